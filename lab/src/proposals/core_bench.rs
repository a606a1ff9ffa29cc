//! The results of Bitcoin Core's own `bench_bitcoin`, as its option `-output-json` writes them, beside the
//! rows that measure the same.

use super::{chain::failed, report::ProposalSummary};
use crate::text::number;
use engine::Error;
use serde::Serialize;
use serde_json::Value;
use std::{fmt::Write as _, fs, path::Path};

/// What a name begins with there, and the proposal and the number of the variant that do the same work.
const SAME_WORK: [(&str, &str, usize); 10] = [
    ("ReadRawBlock", "obfuscation", 1),
    ("ReadBlock", "block-read", 1),
    ("WriteBlock", "block-write", 1),
    ("Obfuscation", "obfuscation", 1),
    ("XorObfuscation", "obfuscation", 0),
    ("SizeComputerBlock", "sizes", 0),
    ("SerializeBlock", "serialise", 0),
    ("DuplicateInputs", "duplicates", 2),
    ("SaltedOutpointHasher", "hash", 3),
    ("SipHash_32b", "hash", 0),
];

/// One of its benchmarks.
#[derive(Serialize, Clone, Debug)]
pub struct CoreBench {
    name: String,
    /// Median of the time for one unit.
    seconds: f64,
    unit: String,
}

/// Reads a result file.
pub fn read(path: &Path) -> Result<Vec<CoreBench>, Error> {
    let text = fs::read_to_string(path).map_err(|error| crate::place::environment("read", path, error))?;
    parse(&text)
        .ok_or_else(|| failed("this is not what bench_bitcoin -output-json=FILE writes").in_file(path, None))
}

fn parse(text: &str) -> Option<Vec<CoreBench>> {
    let report: Value = serde_json::from_str(text).ok()?;
    let bench = |result: &Value| {
        let seconds = result["median(elapsed)"].as_f64()? / result["batch"].as_f64()?;
        let text = |name: &str| result[name].as_str().map(str::to_owned);
        Some(CoreBench { name: text("name")?, seconds, unit: text("unit")? })
    };
    report["results"].as_array()?.iter().map(bench).collect()
}

impl CoreBench {
    /// Returns the cells of its row: name, time of a unit, and the row that does the same work.
    pub fn cells(&self, proposals: &[ProposalSummary]) -> [String; 3] {
        let known = SAME_WORK.iter().find(|(name, ..)| self.name.starts_with(name));
        let ours = known.and_then(|(_, name, at)| {
            let proposal = proposals.iter().find(|proposal| proposal.name == *name)?;
            let variant = proposal.variants.get(*at)?;
            Some(format!("{}, {}: {}", proposal.name, variant.name, variant.speed))
        });
        let nanoseconds = number((self.seconds * 1e12).round() / 1e3);
        [self.name.clone(), format!("{nanoseconds} ns/{}", self.unit), ours.unwrap_or_default()]
    }
}

/// Returns all of them as text.
pub fn text(benches: &[CoreBench], proposals: &[ProposalSummary]) -> String {
    let mut text = String::new();
    if !benches.is_empty() {
        text += "\nbench_bitcoin on this machine, and the rows with the same work\n";
    }
    for bench in benches {
        let [name, time, ours] = bench.cells(proposals);
        let _ = writeln!(text, "{}", format!("  {name:<34}{time:>24}  {ours}").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_one_unit() {
        let text = r#"{"results": [{"title": "", "name": "ObfuscationBench", "unit": "byte", "batch": 100,
            "median(elapsed)": 0.00000005}]}"#;
        let benches = parse(text).unwrap();
        assert_eq!(benches[0].cells(&[])[..2], ["ObfuscationBench", "0.5 ns/byte"]);
        assert!(parse("{}").is_none() && parse("# Benchmark, evals").is_none());
    }
}

//! `peregrine-bench documents`: the page docs/documents.md, with every number of the documents beside those
//! of a recorded run.

use super::{
    chain::failed,
    core_bench,
    list::{self, UNMEASURED},
    proposal::{Proposal, Statement},
    report::{Row, ratio, summary},
};
use crate::place::environment;
use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done};
use engine::Error;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The name of the results of `bench_bitcoin` in the folder of a recorded run.
pub const BENCH_BITCOIN: &str = "bench_bitcoin.json";

const INTRODUCTION: &str = "# The documents' numbers beside ours

Bitcoin Core's documents about the speed of initial block download state numbers; this page sets those that
were measured here beside each. A number such as #32043, which tracks all, is that of a pull request. The page
is printed by `peregrine-bench documents` from the files of a recorded run, which
`peregrine-bench proposals --record DIR` makes ([benchmarks.md](benchmarks.md#what-each-proposal-gains)
explains what is measured and how). Absolute times of different machines and chains cannot be compared, but
the factors of a table can. Who has a machine of another kind can measure all of it with one command
([mainnet.md](mainnet.md#measuring-without-a-node)).
";

#[derive(ClapArgs, Debug)]
pub struct DocumentsArgs {
    /// Folder of the recorded run [default: none, all rows are to be recorded]
    pub run: Option<PathBuf>,
}

/// What the folder of a recorded run has.
#[derive(Default)]
struct Recorded {
    /// The name of the folder.
    name: String,
    facts: Vec<String>,
    rows: Vec<Row>,
}

/// Returns the page.
pub fn run(args: &DocumentsArgs) -> Done {
    let recorded = args.run.as_deref().map_or(Ok(Recorded::default()), Recorded::read)?;
    let core = args.run.as_ref().map(|dir| dir.join(BENCH_BITCOIN)).filter(|path| path.exists());
    let core = core.as_deref().map_or(Ok(Vec::new()), core_bench::read)?;
    let mut page = INTRODUCTION.to_owned();
    recorded.write_facts(&mut page);
    for proposal in list::all() {
        write_proposal(&mut page, proposal, &recorded.rows);
    }
    page += "\n## Bitcoin Core's own benchmarks on the same machine\n\n";
    if core.is_empty() {
        page += "To be recorded (`--bench-bitcoin FILE`).\n";
    } else {
        page += "| `bench_bitcoin` | median | the row with the same work |\n| --- | --- | --- |\n";
        let proposals: Vec<_> =
            list::all().filter_map(|proposal| summary(proposal, &recorded.rows)).collect();
        for bench in &core {
            let _ = writeln!(page, "| {} |", bench.cells(&proposals).join(" | "));
        }
    }
    page += "\n## Numbers without a row\n\n| number | document | why |\n| --- | --- | --- |\n";
    for number in UNMEASURED {
        let _ = writeln!(page, "| {} | {} | {} |", number.said, number.source, number.why);
    }
    Ok((page.trim_end().to_owned(), Exit::Done))
}

impl Recorded {
    fn read(dir: &Path) -> Result<Self, Error> {
        let read = |name| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|error| environment("read", &path, error))
        };
        let parse = |(number, line)| {
            let flaw = format!("line {number} is not one that peregrine-bench proposals writes");
            Row::parse(line).ok_or_else(|| failed(flaw).in_file(dir.join("raw.csv"), None))
        };
        let rows = (2..).zip(read("raw.csv")?.lines().skip(1)).map(parse).collect::<Result<_, _>>()?;
        let facts = read("summary")?.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, facts, rows })
    }

    fn write_facts(&self, page: &mut String) {
        if self.rows.is_empty() {
            *page += "\n**No run is recorded yet**: all rows below are to be recorded.\n";
            return;
        }
        let _ = writeln!(page, "\nThe numbers are those of [this run](../lab/runs/{}/summary).\n", self.name);
        *page += "| | |\n| --- | --- |\n";
        for fact in &self.facts {
            let (name, fact) = fact.split_once(' ').unwrap_or((fact, ""));
            let _ = writeln!(page, "| {name} | {} |", fact.trim());
        }
    }
}

fn write_proposal(page: &mut String, proposal: &'static Proposal, rows: &[Row]) {
    let Proposal { name, title, measure, statements, differs, .. } = proposal;
    let _ = writeln!(page, "\n## {title}\n\nRow `{name}`, {}. {differs}\n", measure.name());
    if !statements.is_empty() {
        *page += "| document | its numbers | factor | machine | source |\n| --- | --- | --- | --- | --- |\n";
    }
    for statement in *statements {
        let Statement { what, machine, source, .. } = statement;
        let (numbers, gain) = (statement.numbers(), statement.gain());
        let _ = writeln!(page, "| {what} | {numbers} | {gain} | {machine} | {source} |");
    }
    let Some(summary) = summary(proposal, rows) else {
        let names: Vec<_> = proposal.variants.iter().map(|variant| variant.name).collect();
        let _ = writeln!(page, "\nTo be recorded: {}.", names.join("; "));
        return;
    };
    *page += "\n| here | median | speed | compared with the first | |\n| --- | --- | --- | --- | --- |\n";
    for variant in &summary.variants {
        let compared = variant.ratio.map_or(String::new(), |all| ratio(*measure, all));
        let remarks = variant.remarks();
        let cells = [variant.name, &variant.text, &variant.speed, &compared, &remarks];
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    if let Some(answer) = summary.statement() {
        let _ = writeln!(page, "\nHere: {answer}.");
    }
}

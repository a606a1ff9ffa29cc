//! The file that describes a plan of ranges for people and programs. What all machines must agree on is in a
//! second file, whose digest it has.

use crate::{prelude::*, report::scripts_text};
use engine::{AtomicFile, CORE_VERSION, Disk, During as _, dir_of, hex, reindex::ScriptsReport, unfinished};
use ranges::RangePlan;
use serde::Deserialize;
use std::ffi::OsString;

/// Maximum length of the file in bytes.
const MAX_LEN: u64 = 64 << 20;

json_of! {
/// The file, and the report of `range plan`.
pub struct PlanJson(plan: &RangePlan, planned: Vec<PlannedRange>) {
    /// SHA-256 of the second file.
    blocks_sha256: String = hex(plan.digest()),
    chain: Network = plan.network(),
    /// The last block.
    height: Height = plan.tip().0,
    block_hash: BlockHash = plan.tip().1,
    /// The version of Bitcoin Core whose rules blocks are checked by.
    rules: &'static str = CORE_VERSION,
    /// Which scripts are run.
    scripts: ScriptsReport = plan.scripts(0).unwrap_or(ScriptsReport::NOT_RUN),
    shards: u32 = plan.shards(),
    ranges: Vec<PlannedRange> = planned,
}
}

/// The heights of a range.
#[derive(Serialize, JsonSchema)]
pub struct PlannedRange {
    number: u32,
    from: u32,
    to: u32,
}

/// What is read of the file.
#[derive(Deserialize)]
struct Reference {
    blocks_sha256: String,
}

/// Begins the file, and returns the path of the second one too. One without a first file, which an
/// interrupted run has left, is of no use: it is removed.
pub fn begin<'d>(disk: &'d dyn Disk, path: &Path) -> Result<(AtomicFile<'d>, PathBuf), Error> {
    let blocks = path.with_extension("blocks");
    if blocks == path {
        let text = "the suffix .blocks is that of the second file; choose another one, such as .json";
        return Err(Error::usage(text).in_file(path, None));
    }
    // It is locked until it has its name.
    let file = unfinished::create_new(disk, path, unfinished::SUFFIX)?;
    let own = [file.temporary_path().file_name(), blocks.file_name()];
    // A first file can have any suffix; while another run makes it, a second one follows.
    let belongs = |name: &OsString| {
        let first = name.to_str().and_then(|name| name.strip_suffix(unfinished::SUFFIX));
        let first = first.map_or(Path::new(name), Path::new);
        first.file_stem() == path.file_stem() && !own.contains(&Some(name.as_os_str()))
    };
    let dir = dir_of(path);
    let is_plan = RangePlan::read(disk, &blocks).is_ok();
    if is_plan && !disk.list(dir).during("list", dir)?.iter().any(belongs) {
        disk.remove_file(&blocks).during("remove", &blocks)?;
    }
    Ok((file, blocks))
}

/// Reads a plan: both files.
pub fn read(path: &Path) -> Result<RangePlan, Error> {
    let damaged = |text: String| Error::damaged(text).in_file(path, None);
    let bytes = RealDisk.read(path, MAX_LEN).during("read the plan", path)?;
    let reference: Reference = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(format!("this is not a plan that range plan has written: {error}")))?;
    let blocks = path.with_extension("blocks");
    let plan = RangePlan::read(&RealDisk, &blocks)?;
    if hex(plan.digest()) == reference.blocks_sha256 {
        return Ok(plan);
    }
    let text = format!("it belongs to another plan than {}; copy both files again", blocks.display());
    Err(damaged(text))
}

impl PlanJson {
    pub fn new(plan: &RangePlan) -> Result<Self, Error> {
        let range = |number| {
            let heights = plan.heights(number)?;
            Ok(PlannedRange { number, from: *heights.start(), to: *heights.end() })
        };
        Ok(Self::of(plan, (0..plan.ranges()).map(range).collect::<Result<_, Error>>()?))
    }

    pub fn write(&self, mut file: AtomicFile<'_>) -> Result<(), Error> {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        file.write_all(text.as_bytes())?;
        Ok(file.commit()?)
    }

    pub fn rows(&self, path: &Path, plan: &RangePlan) -> Rows {
        let (path, blocks) = (path.display(), path.with_extension("blocks"));
        let next = format!("peregrine range check --plan {path} --range 0 --datadir DIR -o r0");
        Rows::default()
            .row("plan", format!("{path} and {}", blocks.display()))
            .row("chain", self.chain)
            .row("block", format!("{} ({})", self.block_hash, self.height))
            .row("scripts", scripts_text(plan.scripts(0)))
            .row("ranges", format!("{}, in {} shards", self.ranges.len(), self.shards))
            .row("next", next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::siphash::SipKey;
    use disk::range_plan::{self, PlannedBlock};
    use engine::{BlockTime, FileNo};
    use std::{fs, io};
    use testkit::fault::{FaultDisk, InjectedFault, Operations};

    /// The second file of another plan was removed if the folder could not be listed.
    #[test]
    fn a_second_file_is_removed_only_if_no_first_file_is_there() {
        let genesis = PlannedBlock {
            hash: BlockHash::default(),
            median_time: BlockTime(0),
            file: FileNo(0),
            data_pos: 8,
            undo_pos: 0,
        };
        let plan = range_plan::RangePlan {
            network: Network::Regtest,
            magic: [0; 4],
            rules: CORE_VERSION.to_owned(),
            activation_heights: String::new(),
            scripts: false,
            assumed_valid_to: None,
            checked_to: None,
            coinbase_key: SipKey(0, 0),
            shards: 1,
            ends: vec![1],
            blocks: vec![genesis],
        };
        let (dir, blocks) = testkit::fresh_path("plan.blocks");
        plan.write(&RealDisk, &blocks).unwrap();
        // That of a plan, and that of another run.
        for first in ["plan.txt", "plan.txt.peregrine-part"] {
            fs::write(dir.path().join(first), "").unwrap();
            for at in 0..20 {
                let (fault, kind) = (InjectedFault::Once, io::ErrorKind::PermissionDenied);
                let disk = FaultDisk::fail_at(at, fault, Operations::All, kind);
                drop(begin(&disk, &dir.path().join("plan")));
                assert!(blocks.exists(), "{first} is there, and operation {at} fails");
            }
            fs::remove_file(dir.path().join(first)).unwrap();
        }
        drop(begin(&RealDisk, &dir.path().join("plan")).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

//! Our side of a comparison: a rebuild as the tests here want it.

use engine::{AssumeValid, Error, Height, Network, RealDisk, ReindexOptions, ReindexReport, ScriptsReport};
use std::{num::NonZeroUsize, path::Path, sync::atomic::AtomicBool};

/// About how many bytes of coins go into one table, so that small chains make many tables.
const SMALL_RANGE: u64 = 4 << 10;

/// What the tests vary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rebuild {
    /// Ignore the block index and write a new one.
    pub scan: bool,
    /// Last block; nothing for the last one on disk.
    pub stop_at_height: Option<Height>,
    /// Make many small tables, where the default makes few of a small chain.
    pub many_tables: bool,
}

impl Rebuild {
    /// Rebuilds the chainstate of the datadir `root` in place, on two threads, all scripts run.
    ///
    /// # Errors
    /// As [`engine::reindex`].
    ///
    /// # Panics
    /// If it succeeds although some script was not run.
    pub fn run(self, root: &Path, network: Network) -> Result<ReindexReport, Box<Error>> {
        let default = ReindexOptions::new(root, network);
        let options = ReindexOptions {
            threads: NonZeroUsize::MIN.saturating_add(1),
            scan: self.scan,
            scripts: Some(&script::Core),
            assume_valid: AssumeValid::Nothing,
            stop_at_height: self.stop_at_height,
            // What Core's own reindex leaves out is left out, though the index of the datadir has it.
            accept_lower_tip: true,
            range_bytes: if self.many_tables { SMALL_RANGE } else { default.range_bytes },
            ..default
        };
        let report =
            engine::reindex(&RealDisk, &options, &|_| {}, &AtomicBool::new(false)).map_err(Box::new)?;
        let all = ScriptsReport { assumed_valid_to: None, inputs: report.counts.inputs };
        assert_eq!(report.scripts, Some(all), "all scripts are run");
        Ok(report)
    }
}

/// How many tables a database in `dir` has.
///
/// # Errors
/// If the directory cannot be listed.
pub fn tables(dir: &Path) -> std::io::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)? {
        count += usize::from(entry?.path().extension().is_some_and(|suffix| suffix == "ldb"));
    }
    Ok(count)
}

//! Peregrine's side of a comparison: rebuilds with the options that the tests need.

use disk::datadir::Datadir;
use engine::{
    AssumeValid, Error, Height, Network, RealDisk, ScriptChecks, UndoPolicy, Watch,
    reindex::{CheckedScripts, ReindexOptions, ReindexReport, ScriptsReport},
};
use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

/// Approximate number of bytes of coins in one table, small enough that small chains make many tables.
const SMALL_RANGE_BYTES: u64 = 4 << 10;

/// The options that the tests vary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rebuild {
    /// Whether to ignore the block index and write a new one.
    pub scan: bool,
    /// Height of the last block; `None` for the last one on disk.
    pub stop_at_height: Option<Height>,
    /// Whether to make many small tables, where the default makes few for a small chain.
    pub many_tables: bool,
    /// Which undo data is used.
    pub undo: UndoPolicy,
}

impl Rebuild {
    /// Rebuilds the chainstate of the datadir `root` in place, on two threads, and runs all scripts.
    ///
    /// # Errors
    /// The same errors as [`engine::reindex()`].
    ///
    /// # Panics
    /// If it succeeds without having run all scripts.
    pub fn run(self, root: &Path, network: Network) -> Result<ReindexReport, Error> {
        let mut options = ReindexOptions {
            // Core's own reindex also leaves out blocks that the datadir's index has.
            accept_lower_tip: true,
            ..ReindexOptions::new(root, network, ScriptChecks::LeftOut)
        };
        options.chain.scan = self.scan;
        options.chain.stop_at_height = self.stop_at_height;
        options.chain.threads = NonZeroUsize::MIN.saturating_add(1);
        options.chain.scripts = ScriptChecks::By(Arc::new(script::Core));
        options.chain.assume_valid = AssumeValid::Off;
        options.chain.undo = self.undo;
        if self.many_tables {
            options.chain.hooks.range_bytes = SMALL_RANGE_BYTES;
        }
        let never = AtomicBool::new(false);
        let report = engine::reindex(&RealDisk, &options, Watch { sink: &|_| {}, interrupt: &never })?;
        let all = ScriptsReport {
            checked: CheckedScripts::All,
            assumed_valid_to: None,
            trusted: None,
            inputs: report.counts.inputs,
        };
        assert_eq!(report.scripts, Some(all), "all scripts are run");
        Ok(report)
    }
}

pub fn remove_undo_files(root: &Path, network: Network) -> std::io::Result<()> {
    for entry in std::fs::read_dir(Datadir::at(root, network).blocks_dir())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rev")) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Returns the number of tables of the database in `dir`.
pub fn tables(dir: &Path) -> std::io::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)? {
        count += usize::from(entry?.path().extension().is_some_and(|suffix| suffix == "ldb"));
    }
    Ok(count)
}

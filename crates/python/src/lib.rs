//! The Python module `peregrine`: the UTXO set and what blocks contain as Arrow record batches, and rebuilds
//! of the chainstate.
//!
//! `peregrine.pyi` documents the module. The engine works on threads of its own (module `work`), which need
//! nothing of Python; the thread that called waits without Python's lock.
#![forbid(unsafe_code)]

mod blocks;
mod coins;
mod error;
mod options;
mod rebuild;
mod report;
mod stream;
mod work;

use engine::{AssumeValid, ChainOptions, Engine, Height, ReindexOptions, ResumeOptions, UndoPolicy};
use error::raised;
use export::{BlockTable, InputTable, OutputTable, TransactionTable};
use options::{Place, named, usage};
use pyo3::prelude::*;
use report::RebuildReport;
use std::{num::NonZeroUsize, path::PathBuf};
use stream::RowStream;

/// The coins of the chainstate, or those after a block.
#[pyfunction]
#[pyo3(signature = (
    datadir, height=None, *, chain="main", blocksdir=None, addresses=false, scan=false, threads=None,
    memory=None, work_dir=None
))]
#[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
fn utxo(
    py: Python<'_>,
    datadir: PathBuf,
    height: Option<u32>,
    chain: &str,
    blocksdir: Option<PathBuf>,
    addresses: bool,
    scan: bool,
    threads: Option<NonZeroUsize>,
    memory: Option<u64>,
    work_dir: Option<PathBuf>,
) -> PyResult<RowStream> {
    let chain = Place { datadir, chain, blocksdir, threads, memory }.options();
    let chain = chain.map_err(|error| raised(py, &error))?;
    coins::rows(py, ChainOptions { work_dir, ..chain }, (height, scan, addresses))
}

/// Defines a function that gives a table of what blocks contain; those with scripts can have addresses.
macro_rules! block_rows {
    ($(#[$doc:meta])* $name:literal $function:ident $table:ty $(, $addresses:ident)?) => {
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(name = $name, signature = (
            datadir, from_height=0, to_height=None, *, chain="main", blocksdir=None, $($addresses=false,)?
            scan=false, threads=None, memory=None
        ))]
        #[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
        fn $function(
            py: Python<'_>,
            datadir: PathBuf,
            from_height: u32,
            to_height: Option<u32>,
            chain: &str,
            blocksdir: Option<PathBuf>,
            $($addresses: bool,)?
            scan: bool,
            threads: Option<NonZeroUsize>,
            memory: Option<u64>,
        ) -> PyResult<RowStream> {
            let place = Place { datadir, chain, blocksdir, threads, memory };
            let addresses = false $(|| $addresses)?;
            blocks::rows::<$table>(py, place, (from_height, to_height), (scan, addresses))
        }
    };
}

block_rows! {
    /// Blocks: what `getblockstats` returns, and the header.
    "blocks" blocks_table BlockTable
}
block_rows! {
    /// Transactions, with their fees.
    "transactions" transactions TransactionTable
}
block_rows! {
    /// Inputs, with the coins that they spend.
    "inputs" inputs InputTable, addresses
}
block_rows! {
    /// Outputs, spent or not.
    "outputs" outputs OutputTable, addresses
}

/// Rebuilds the chainstate.
#[pyfunction]
#[pyo3(name = "reindex", signature = (
    datadir, *, chain="main", blocksdir=None, output=None, stop_at_height=None, scan=false,
    engine="join", undo="auto", assumevalid=None, accept_lower_tip=false, until_damage=false,
    set_aside_indexes=false, keep_old=false, restart=false, threads=None, memory=None, work_dir=None,
    progress=None
))]
#[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
fn rebuild_chainstate(
    py: Python<'_>,
    datadir: PathBuf,
    chain: &str,
    blocksdir: Option<PathBuf>,
    output: Option<PathBuf>,
    stop_at_height: Option<u32>,
    scan: bool,
    engine: &str,
    undo: &str,
    assumevalid: Option<&str>,
    accept_lower_tip: bool,
    until_damage: bool,
    set_aside_indexes: bool,
    keep_old: bool,
    restart: bool,
    threads: Option<NonZeroUsize>,
    memory: Option<u64>,
    work_dir: Option<PathBuf>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<RebuildReport> {
    let options = || {
        let chain = Place { datadir, chain, blocksdir, threads, memory }.options()?;
        let undo = named("undo", &UndoPolicy::ALL, UndoPolicy::name, undo)?;
        let engine = named("engine", &Engine::ALL, Engine::name, engine)?;
        let assume_valid = match assumevalid {
            None => AssumeValid::Default,
            Some("0") => AssumeValid::Off,
            Some(hash) => {
                AssumeValid::Block(hash.parse().map_err(|error| usage(format!("assumevalid: {error}")))?)
            }
        };
        Ok(ReindexOptions {
            resume: ResumeOptions { restart, ..ResumeOptions::default() },
            stop_at_height: stop_at_height.map(Height),
            output,
            scan,
            engine,
            hints: None,
            accept_lower_tip,
            until_damage,
            set_aside_indexes,
            blocks: Vec::new(),
            keep_old,
            chain: ChainOptions { undo, assume_valid, work_dir, ..chain },
        })
    };
    let options = options().map_err(|error| raised(py, &error))?;
    rebuild::rebuild(py, options, progress)
}

/// The module.
#[pymodule]
mod peregrine {
    #[pymodule_export]
    use super::{
        blocks_table as blocks, error::Error, inputs, outputs, rebuild_chainstate as reindex,
        stream::RowStream, transactions, utxo,
    };
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

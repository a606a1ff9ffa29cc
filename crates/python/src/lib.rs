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

use engine::{
    AssumeValid, ChainOptions, Engine, Height, ReindexOptions, ResumeOptions, SetAsideIndexes, UndoPolicy,
};
use error::raised;
use export::{BlockTable, CoinTable, InputTable, OutputTable, TransactionTable};
use options::{Place, named, usage};
use pyo3::{prelude::*, types::PyDict};
use std::{num::NonZeroUsize, path::PathBuf};
use stream::{RowStream, columns_of};

/// Reads the coins of the chainstate, in the order of txids and of `vout`.
///
/// With `height`, those after the block there: all blocks up to it are checked as in a rebuild, and no
/// chainstate is needed; temporary files go to `work_dir`, or to the system's folder for them. `scan`
/// then finds blocks without the block index.
#[pyfunction]
#[pyo3(signature = (
    datadir, height=None, *, chain=None, blocksdir=None, addresses=false, columns=None, scan=false,
    threads=None, memory=None, work_dir=None
))]
#[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
fn utxo(
    py: Python<'_>,
    datadir: PathBuf,
    height: Option<u32>,
    chain: Option<&str>,
    blocksdir: Option<PathBuf>,
    addresses: bool,
    columns: Option<Vec<String>>,
    scan: bool,
    threads: Option<NonZeroUsize>,
    memory: Option<u64>,
    work_dir: Option<PathBuf>,
) -> PyResult<RowStream> {
    let columns =
        columns_of::<CoinTable>(columns.as_deref(), addresses, false).map_err(|error| raised(py, &error))?;
    let chain = Place { datadir, chain, blocksdir, threads, memory }.options();
    let chain = chain.map_err(|error| raised(py, &error))?;
    coins::rows(py, ChainOptions { work_dir, ..chain }, height, scan, columns)
}

/// Defines a function that gives a table of what blocks contain; those with scripts can have addresses.
macro_rules! block_rows {
    ($(#[$doc:meta])* $name:literal $function:ident $table:ty $(, $addresses:ident)?) => {
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(name = $name, signature = (
            datadir, from_height=0, to_height=None, *, chain=None, blocksdir=None, $($addresses=false,)?
            columns=None, scan=false, threads=None, memory=None
        ))]
        #[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
        fn $function(
            py: Python<'_>,
            datadir: PathBuf,
            from_height: u32,
            to_height: Option<u32>,
            chain: Option<&str>,
            blocksdir: Option<PathBuf>,
            $($addresses: bool,)?
            columns: Option<Vec<String>>,
            scan: bool,
            threads: Option<NonZeroUsize>,
            memory: Option<u64>,
        ) -> PyResult<RowStream> {
            let place = Place { datadir, chain, blocksdir, threads, memory };
            let addresses = false $(|| $addresses)?;
            let columns = columns_of::<$table>(columns.as_deref(), addresses, false);
            let columns = columns.map_err(|error| raised(py, &error))?;
            let chain = place.options().map_err(|error| raised(py, &error))?;
            blocks::rows::<$table>(py, chain, from_height, to_height, scan, columns)
        }
    };
}

block_rows! {
    /// Reads blocks, in order of height: what `getblockstats` returns, and the header.
    ///
    /// The last block is the chainstate's best block if `to_height` is None. Undo files are needed.
    "blocks" blocks_table BlockTable
}
block_rows! {
    /// Reads the transactions of blocks with their fees, in the order of the chain. Undo files are
    /// needed.
    "transactions" transactions TransactionTable
}
block_rows! {
    /// Reads the inputs of blocks with the coins that they spend, in the order of the chain.
    ///
    /// Coinbases have none. Undo files are needed.
    "inputs" inputs InputTable, addresses
}

/// Reads the outputs of blocks, spent or not, in the order of the chain.
///
/// With `spent`, or with columns that begin with `spent_`, also the inputs that spend them: all blocks from
/// `from_height` on are read first, and undo files are needed. What does not fit into half of the memory
/// goes to temporary files in `work_dir`, or in the system's folder for them.
#[pyfunction]
#[pyo3(signature = (
    datadir, from_height=0, to_height=None, *, chain=None, blocksdir=None, addresses=false, spent=false,
    columns=None, scan=false, threads=None, memory=None, work_dir=None
))]
#[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
fn outputs(
    py: Python<'_>,
    datadir: PathBuf,
    from_height: u32,
    to_height: Option<u32>,
    chain: Option<&str>,
    blocksdir: Option<PathBuf>,
    addresses: bool,
    spent: bool,
    columns: Option<Vec<String>>,
    scan: bool,
    threads: Option<NonZeroUsize>,
    memory: Option<u64>,
    work_dir: Option<PathBuf>,
) -> PyResult<RowStream> {
    let columns = columns_of::<OutputTable>(columns.as_deref(), addresses, spent)
        .map_err(|error| raised(py, &error))?;
    let chain = Place { datadir, chain, blocksdir, threads, memory }.options();
    let chain = ChainOptions { work_dir, ..chain.map_err(|error| raised(py, &error))? };
    blocks::rows::<OutputTable>(py, chain, from_height, to_height, scan, columns)
}

/// Rebuilds the chainstate from block and undo files, and replaces the old one.
///
/// The arguments are those of the command `peregrine reindex`. `progress` is called with each event, a
/// few times a second. An exception of it, or Ctrl-C, interrupts the rebuild: the datadir is unchanged,
/// and the same call resumes it. The cause of that exception is an `Error` that names what was saved.
#[pyfunction]
#[pyo3(name = "reindex", signature = (
    datadir, *, chain=None, blocksdir=None, output=None, stop_at_height=None, scan=false,
    engine="join", undo="auto", assumevalid=None, accept_lower_tip=false, until_damage=false,
    set_aside_indexes=false, keep_old=false, restart=false, threads=None, memory=None, work_dir=None,
    progress=None
))]
#[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
fn rebuild_chainstate<'py>(
    py: Python<'py>,
    datadir: PathBuf,
    chain: Option<&str>,
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
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
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
            set_aside_indexes: if set_aside_indexes { SetAsideIndexes::Any } else { SetAsideIndexes::None },
            blocks: Vec::new(),
            keep_old,
            chain: ChainOptions { undo, assume_valid, work_dir, ..chain },
        })
    };
    let options = options().map_err(|error| raised(py, &error))?;
    rebuild::rebuild(py, options, progress)
}

/// Bitcoin's UTXO set and blocks as Arrow record batches, from the files of a Bitcoin Core node.
///
/// `datadir` is the directory that `bitcoind -datadir` names, and `blocksdir` the one of `-blocksdir`;
/// `bitcoin.conf` is not read. `chain` is `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None,
/// the only chain that the datadir has, or `main`. Amounts are in satoshis. Columns with hashes have 32
/// bytes in the order of the hash function, which Bitcoin Core prints reversed; reports have hashes as Core
/// prints them. `threads` is the number of worker threads, one for each core if it is None; `columns` names
/// the columns that are made, all but `address` and those of spends if it is None; `memory` is the limit in
/// bytes for the whole process, without the rows that the caller keeps, a quarter of the machine's memory if
/// it is None.
///
/// All functions raise `Error`, and can be interrupted with Ctrl-C.
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

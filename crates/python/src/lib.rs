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
    AssumeValid, ChainOptions, Height, ResumeOptions,
    reindex::{ReindexOptions, SetAsideIndexes},
};
use error::raised;
use export::{BlockTable, CoinTable, InputTable, OutputTable, TransactionTable};
use options::{Place, unknown};
use pyo3::{prelude::*, types::PyDict};
use std::{num::NonZeroUsize, path::PathBuf};
use stream::{RowStream, columns_of};

/// What the functions say of an argument that several of them have.
macro_rules! argument {
    (datadir) => {
        "- `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read"
    };
    (from_height) => {
        "- `from_height`: the first block"
    };
    (to_height) => {
        "- `to_height`: the last block; if it is None, the chainstate's best block, or without a\n  \
         chainstate the last block of the chain with the most work"
    };
    (chain) => {
        "- `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain\n  \
         that the datadir has, or `main`"
    };
    (blocksdir) => {
        "- `blocksdir`: the directory that `bitcoind -blocksdir` names"
    };
    (addresses) => {
        "- `addresses`: also make the column `address`"
    };
    (spent) => {
        "- `spent`: also make the columns that begin with `spent_`"
    };
    (columns) => {
        "- `columns`: the names of the columns that are made; if it is None, all but `address` and\n  \
         those that begin with `spent_`"
    };
    (scan) => {
        "- `scan`: find blocks and undo data by reading their files, without the block index"
    };
    (threads) => {
        "- `threads`: the number of worker threads; if it is None, one for each core"
    };
    (memory) => {
        "- `memory`: the limit in bytes for the whole process, with what it has already, and at least\n  \
         128 MiB; if it is None, a quarter of the machine's memory"
    };
    (work_dir) => {
        "- `work_dir`: the directory for temporary files; if it is None, the system's"
    };
}

/// What the functions say of such arguments, as a list.
macro_rules! arguments {
    ($first:ident $($other:ident)*) => {
        concat!(argument!($first), $("\n", argument!($other)),*)
    };
}

/// Reads the coins of the chainstate, in the order of txids and of `vout`, or those after a block.
///
/// Arguments:
///
#[doc = arguments!(datadir)]
/// - `height`: read the coins after the block at this height. All blocks up to it are checked as in a
///   rebuild, and no chainstate is needed
#[doc = arguments!(chain blocksdir addresses columns)]
/// - `scan`: with `height`, find blocks and undo data by reading their files, without the block index
#[doc = arguments!(threads memory work_dir)]
#[doc = export::coin_columns!()]
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
    if height.is_none() && (scan || work_dir.is_some()) {
        return Err(raised(engine::Error::usage("scan and work_dir have an effect only with height")));
    }
    let columns = columns_of::<CoinTable>(columns.as_deref(), addresses, false).map_err(raised)?;
    let chain = Place { datadir, chain, blocksdir, threads, memory }.options().map_err(raised)?;
    coins::rows(py, ChainOptions { work_dir, scan, ..chain }, height, columns)
}

/// Defines a function that gives a table of what blocks contain: those with scripts can have addresses, and
/// outputs the inputs that spend them.
macro_rules! block_rows {
    (
        $(#[$doc:meta])*
        $name:literal $function:ident $table:ty, $list:ident
        $(, $addresses:ident $($spent:ident $work_dir:ident)?)?
    ) => {
        $(#[$doc])*
        ///
        /// Arguments:
        ///
        #[doc = arguments!(datadir from_height to_height chain blocksdir $($addresses $($spent)?)?)]
        #[doc = arguments!(columns scan threads memory $($($work_dir)?)?)]
        #[doc = export::$list!()]
        #[pyfunction]
        #[pyo3(name = $name, signature = (
            datadir, from_height=0, to_height=None, *, chain=None, blocksdir=None,
            $($addresses=false, $($spent=false,)?)? columns=None, scan=false, threads=None, memory=None,
            $($($work_dir=None)?)?
        ))]
        #[expect(clippy::too_many_arguments, reason = "in Python they have names and defaults")]
        fn $function(
            py: Python<'_>,
            datadir: PathBuf,
            from_height: u32,
            to_height: Option<u32>,
            chain: Option<&str>,
            blocksdir: Option<PathBuf>,
            $($addresses: bool, $($spent: bool,)?)?
            columns: Option<Vec<String>>,
            scan: bool,
            threads: Option<NonZeroUsize>,
            memory: Option<u64>,
            $($($work_dir: Option<PathBuf>,)?)?
        ) -> PyResult<RowStream> {
            let (addresses, spent) = (false $(|| $addresses)?, false $($(|| $spent)?)?);
            let columns = columns_of::<$table>(columns.as_deref(), addresses, spent).map_err(raised)?;
            let chain = Place { datadir, chain, blocksdir, threads, memory }.options().map_err(raised)?;
            let chain = ChainOptions { $($($work_dir,)?)? scan, ..chain };
            blocks::rows::<$table>(py, chain, from_height, to_height, columns)
        }
    };
}

block_rows! {
/// Reads blocks, in order of height: what `getblockstats` returns, and the header.
///
/// Undo files are needed. A coin's age is the difference of the `mediantime` of two blocks.
"blocks" blocks_table BlockTable, block_columns
}
block_rows! {
/// Reads the transactions of blocks with their fees, in the order of the chain. Undo files are
/// needed.
"transactions" transactions TransactionTable, transaction_columns
}
block_rows! {
/// Reads the inputs of blocks with the coins that they spend, in the order of the chain.
///
/// Coinbases have none. Undo files are needed.
"inputs" inputs InputTable, input_columns, addresses
}
block_rows! {
/// Reads the outputs of blocks, spent or not, in the order of the chain.
///
/// With `spent`, or with columns that begin with `spent_`, also the inputs that spend them: all blocks from
/// `from_height` on are read first, and undo files are needed. What does not fit into half of the memory
/// goes to temporary files.
"outputs" outputs OutputTable, output_columns, addresses spent work_dir
}

/// Rebuilds the chainstate from block and undo files, and replaces the old one.
///
/// The result is the report of the command `peregrine reindex`, whose options the arguments are. An exception
/// of `progress`, or Ctrl-C, interrupts a rebuild that has not finished: the datadir is unchanged, and the
/// same call resumes it. The cause of that exception is an `Error` that names what was saved, or says that
/// the rebuild had finished. An exception with a cause of its own has this as a note, from Python 3.11 on.
///
/// Arguments:
///
#[doc = arguments!(datadir chain blocksdir)]
/// - `output`: write the new chainstate, and with `scan` a new block index, to this datadir; leave `datadir`
///   as it is
/// - `stop_at_height`: the last block; if it is None, that of the chain with the most work
#[doc = arguments!(scan)]
/// - `engine`: how coins that are spent are found: `join` reads blocks in any order, on all cores, `cache`
///   connects them in order, with the same result
/// - `undo`: undo data: `auto` uses what is sound and makes the rest, `trust` reports what is missing or
///   damaged as an error, `make` uses none
/// - `assumevalid`: the hash of a block; its scripts and those of its ancestors are not run. `0`: all scripts
///   are run. If it is None, the block is that of the Bitcoin Core release that this version follows.
///   `checked`: the same, and above it, scripts that the block index marks as checked are not run
/// - `accept_lower_tip`: proceed even if the new databases cover fewer blocks than those that they replace
/// - `until_damage`: rebuild up to the block below the lowest one that is damaged or missing
/// - `set_aside_indexes`: rename indexes of bitcoind whose rows would become wrong, so that it builds them
///   again; otherwise such a rebuild is refused
/// - `keep_old`: keep the replaced databases, with the suffix `.old`
/// - `restart`: start over, even if an interrupted rebuild can be resumed
#[doc = arguments!(threads memory)]
/// - `work_dir`: the directory for temporary files; if it is None, they are beside the new chainstate
/// - `progress`: called with each event, a few times a second
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
        let undo = undo.parse().map_err(unknown)?;
        let engine = engine.parse().map_err(unknown)?;
        let assume_valid = match assumevalid {
            None => AssumeValid::Default,
            Some("0") => AssumeValid::Off,
            Some("checked") => AssumeValid::Checked,
            Some(hash) => AssumeValid::Block(
                hash.parse().map_err(|error| engine::Error::usage(format!("assumevalid: {error}")))?,
            ),
        };
        Ok(ReindexOptions {
            output,
            engine,
            hints: None,
            accept_lower_tip,
            until_damage,
            set_aside_indexes: if set_aside_indexes { SetAsideIndexes::Any } else { SetAsideIndexes::None },
            blocks: Vec::new(),
            chain: ChainOptions {
                undo,
                assume_valid,
                work_dir,
                scan,
                stop_at_height: stop_at_height.map(Height),
                resume: ResumeOptions { restart, ..ResumeOptions::default() },
                keep_old,
                ..chain
            },
        })
    };
    rebuild::rebuild(py, options().map_err(raised)?, progress)
}

/// Bitcoin's UTXO set and blocks as Arrow record batches, from the files of a Bitcoin Core node.
///
/// Amounts are in satoshis. Columns with hashes have 32 bytes in the order of the hash function, which
/// Bitcoin Core prints reversed; reports have hashes as Core prints them. Times are in UTC. The functions
/// give a `RowStream`, which any library takes that takes Arrow data.
///
/// All functions raise `Error`, or `OverflowError` or `ValueError` for a number out of range, and can be
/// interrupted with Ctrl-C.
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

//! The commands `peregrine export`: coins and blocks, for programs that work with data.

mod blocks;
mod history;
mod utxo;

#[cfg(test)]
pub use blocks::ExportedBlocksJson;
pub use blocks::{ExportBlocksArgs, ExportOutputsArgs, ExportScriptsArgs, reading_threads};
pub use history::ExportHistoryArgs;
#[cfg(test)]
pub use history::ExportedHistoryJson;
pub use utxo::ExportUtxoArgs;
#[cfg(test)]
pub use utxo::ExportedUtxo;

use clap::Subcommand;
use engine::{Error, ErrorKind, Remedy};
use export::{BlockTable, Columns, InputTable, OutputTable, PartsError, Table, TransactionTable};
use peregrine::output::Done;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// This program, as files name it.
pub const PROGRAM: &str = concat!("peregrine ", env!("CARGO_PKG_VERSION"));

#[derive(Subcommand, Debug)]
pub enum ExportCommand {
    /// Write all coins of the chainstate, of a snapshot, or after a block, as Parquet, Arrow, CSV or SQLite
    Utxo(ExportUtxoArgs),
    /// Write a row for each block: what Bitcoin Core's getblockstats returns, and the header
    Blocks(ExportBlocksArgs),
    /// Write a row for each transaction, with its fee
    Transactions(ExportBlocksArgs),
    /// Write a row for each input, with the coin that it spends
    Inputs(ExportScriptsArgs),
    /// Write a row for each output, spent or not, and by which input it is spent
    Outputs(ExportOutputsArgs),
    /// Write what each output script got and spent, with its balance, sorted by script
    History(ExportHistoryArgs),
}

/// Runs a command.
pub fn run(command: &ExportCommand) -> Done {
    match command {
        ExportCommand::Utxo(args) => utxo::utxo(args),
        ExportCommand::Blocks(args) => blocks::export::<BlockTable>(args, false, None),
        ExportCommand::Transactions(args) => blocks::export::<TransactionTable>(args, false, None),
        ExportCommand::Inputs(args) => blocks::export::<InputTable>(&args.blocks, args.addresses, None),
        ExportCommand::Outputs(ExportOutputsArgs { scripts, spends }) => {
            blocks::export::<OutputTable>(&scripts.blocks, scripts.addresses, Some(spends))
        }
        ExportCommand::History(args) => history::history(args),
    }
}

/// The columns that are written: those with these names, or all if there is none.
fn columns<T: Table>(names: &[String], addresses: bool) -> Result<Columns, Error> {
    match names.is_empty() {
        true => Ok(Columns::all::<T>(addresses)),
        false => Columns::named::<T>(names).map_err(|error| Error::new(ErrorKind::Usage, error.to_string())),
    }
}

/// A column, as the file `.dataset.json` beside a directory has it.
#[derive(Serialize, Deserialize, PartialEq)]
struct DatasetColumn {
    name: String,
    /// Its type in Arrow.
    r#type: String,
}

impl DatasetColumn {
    /// Those of a table that are written.
    fn all<T: Table>(columns: &Columns) -> Vec<Self> {
        columns.fields::<T>().into_iter().map(|(name, r#type)| Self { name, r#type }).collect()
    }
}

/// What the values of columns mean, in such a file.
#[derive(Serialize, PartialEq)]
struct Units {
    amounts: &'static str,
    times: &'static str,
    hashes: &'static str,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            amounts: "satoshis",
            times: "UTC, of block headers",
            hashes: "bytes in the order of the hash function, in CSV reversed",
        }
    }
}

/// The error for a directory that cannot be begun or continued.
fn refusal(error: PartsError, output: &Path) -> Error {
    match error {
        PartsError::Unfinished(error) => error.into(),
        PartsError::OtherRequest(path) => {
            let detail = "an interrupted export with other options has left this directory; repeat that \
                          one, or remove the directory";
            Error::new(ErrorKind::Usage, detail).in_file(path, None).with_remedies([Remedy::OtherName])
        }
        PartsError::Foreign(_) | PartsError::WouldLose { .. } => {
            Error::new(ErrorKind::Usage, error.to_string()).with_remedies([Remedy::OtherName])
        }
        PartsError::Exists(path) => exists(&path),
        _ => exists(output),
    }
}

/// The directory for temporary files: the one that is given, or the one that the output is in.
fn work_dir(given: Option<&Path>, output: &Path) -> PathBuf {
    let beside = output.parent().filter(|dir| !dir.as_os_str().is_empty());
    given.or(beside).unwrap_or(Path::new(".")).to_owned()
}

/// The error for an output that exists.
pub fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Usage, "it exists already").in_file(path, None).with_remedies([Remedy::OtherName])
}

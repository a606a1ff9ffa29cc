//! The commands `peregrine export`: coins and blocks, for programs that work with data.

mod blocks;
mod utxo;

#[cfg(test)]
pub use blocks::ExportedBlocksJson;
pub use blocks::{ExportBlocksArgs, ExportScriptsArgs, reading_threads};
pub use utxo::ExportUtxoArgs;
#[cfg(test)]
pub use utxo::ExportedUtxo;

use clap::Subcommand;
use engine::{Error, ErrorKind, Remedy};
use export::{BlockTable, Columns, InputTable, OutputTable, Table, TransactionTable};
use peregrine::output::Done;
use std::path::Path;

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
    /// Write a row for each output, spent or not
    Outputs(ExportScriptsArgs),
}

/// Runs a command.
pub fn run(command: &ExportCommand) -> Done {
    match command {
        ExportCommand::Utxo(args) => utxo::utxo(args),
        ExportCommand::Blocks(args) => blocks::export::<BlockTable>(args, false),
        ExportCommand::Transactions(args) => blocks::export::<TransactionTable>(args, false),
        ExportCommand::Inputs(args) => blocks::export::<InputTable>(&args.blocks, args.addresses),
        ExportCommand::Outputs(args) => blocks::export::<OutputTable>(&args.blocks, args.addresses),
    }
}

/// The columns that are written: those with these names, or all if there is none.
fn columns<T: Table>(names: &[String], addresses: bool) -> Result<Columns, Error> {
    match names.is_empty() {
        true => Ok(Columns::all::<T>(addresses)),
        false => Columns::named::<T>(names).map_err(|error| Error::new(ErrorKind::Usage, error.to_string())),
    }
}

/// The error for an output that exists.
pub fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Usage, "it exists already").in_file(path, None).with_remedies([Remedy::OtherName])
}

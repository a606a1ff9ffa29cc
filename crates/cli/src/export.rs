//! The commands `peregrine export`: coins and blocks, for programs that work with data.

mod blocks;
mod utxo;

pub use blocks::{ExportBlocksArgs, ExportScriptsArgs, ExportedBlocksJson};
pub use utxo::{ExportUtxoArgs, ExportedUtxo};

use crate::json::Report;
use clap::Subcommand;
use engine::{Error, ErrorKind, Remedy};
use export::{BlockTable, InputTable, OutputTable, TransactionTable};
use peregrine::output::Done;
use std::path::Path;

/// This program, as files name it.
const PROGRAM: &str = concat!("peregrine ", env!("CARGO_PKG_VERSION"));

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

impl ExportCommand {
    /// Its name for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Utxo(_) => "export utxo",
            Self::Blocks(_) => "export blocks",
            Self::Transactions(_) => "export transactions",
            Self::Inputs(_) => "export inputs",
            Self::Outputs(_) => "export outputs",
        }
    }
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &ExportCommand) -> (bool, Done) {
    match command {
        ExportCommand::Utxo(args) => (args.datadir.json, utxo::utxo(args)),
        ExportCommand::Blocks(args) => {
            (args.datadir.json, blocks::export::<BlockTable>(args, false, Report::ExportBlocks))
        }
        ExportCommand::Transactions(args) => {
            (args.datadir.json, blocks::export::<TransactionTable>(args, false, Report::ExportTransactions))
        }
        ExportCommand::Inputs(ExportScriptsArgs { blocks, addresses }) => {
            (blocks.datadir.json, blocks::export::<InputTable>(blocks, *addresses, Report::ExportInputs))
        }
        ExportCommand::Outputs(ExportScriptsArgs { blocks, addresses }) => {
            (blocks.datadir.json, blocks::export::<OutputTable>(blocks, *addresses, Report::ExportOutputs))
        }
    }
}

/// The error for an output that exists.
fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Usage, "it exists already").in_file(path, None).with_remedies([Remedy::OtherName])
}

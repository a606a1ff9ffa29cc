//! The commands `peregrine export`: coins and blocks, for programs that work with data.

pub mod blocks;
pub mod history;
pub mod utxo;

use crate::prelude::*;
use engine::dir_of;
use export::{BlockTable, Columns, InputTable, OutputTable, Table, TransactionTable};
use tables::{WrittenFiles, columns_of};

#[derive(Subcommand, Debug)]
pub enum ExportCommand {
    /// Write all coins of the chainstate, of a snapshot, or after a block, as Parquet, Arrow, CSV or SQLite
    Utxo(utxo::ExportUtxoArgs),
    /// Write a row for each block: what Bitcoin Core's getblockstats returns, and the header
    Blocks(blocks::ExportBlocksArgs),
    /// Write a row for each transaction, with its fee
    Transactions(blocks::ExportBlocksArgs),
    /// Write a row for each input, with the coin that it spends
    Inputs(blocks::ExportScriptsArgs),
    /// Write a row for each output, spent or not, and by which input it is spent
    Outputs(blocks::ExportOutputsArgs),
    /// Write what each output script got and spent, with its balance, sorted by script
    History(history::ExportHistoryArgs),
}

pub fn run(command: &ExportCommand) -> Done {
    match command {
        ExportCommand::Utxo(args) => utxo::utxo(args),
        ExportCommand::Blocks(args) => blocks::export::<BlockTable>(args, false, None),
        ExportCommand::Transactions(args) => blocks::export::<TransactionTable>(args, false, None),
        ExportCommand::Inputs(args) => blocks::export::<InputTable>(&args.blocks, args.addresses, None),
        ExportCommand::Outputs(blocks::ExportOutputsArgs { scripts, spends }) => {
            blocks::export::<OutputTable>(&scripts.blocks, scripts.addresses, Some(spends))
        }
        ExportCommand::History(args) => history::history(args),
    }
}

/// The columns that are written: those with these names, or all if there is none, with `address` if
/// `addresses` and those of spends if `spent`.
fn columns<T: Table>(names: &[String], addresses: bool, spent: bool) -> Result<Columns, Error> {
    columns_of::<T>(Some(names).filter(|names| !names.is_empty()), addresses, spent)
}

/// Describes the files of a directory. `kept`: what follows the number of files that were kept.
fn written_text(written: &WrittenFiles, kept: &str) -> String {
    let WrittenFiles { output, format, files, files_kept, bytes } = written;
    let kept = match files_kept {
        0 => String::new(),
        number => format!(", {} {kept}", count(*number)),
    };
    format!("{output} ({format}, {}{kept}, {})", counted(*files, "file"), HumanSize(*bytes))
}

/// The directory for temporary files: the one that is given, or the one that the output is in.
fn work_dir(given: Option<&Path>, output: &Path) -> PathBuf {
    given.unwrap_or_else(|| dir_of(output)).to_owned()
}

//! The commands `peregrine export`: coins and blocks, for programs that work with data.

mod blocks;
mod history;
mod utxo;

#[cfg(test)]
pub use blocks::ExportedBlocksJson;
pub use blocks::{ExportBlocksArgs, ExportOutputsArgs, ExportScriptsArgs};
pub use history::ExportHistoryArgs;
#[cfg(test)]
pub use history::ExportedHistoryJson;
pub use utxo::ExportUtxoArgs;
#[cfg(test)]
pub use utxo::ExportedUtxo;

use crate::units::{count, counted};
use clap::Subcommand;
use engine::{BlockHash, Error, ErrorKind, Height, HumanSize, Network, Remedy};
use export::{
    BlockTable, Columns, FileFormat, InputTable, OutputTable, Parts, PartsError, RowFile, Table,
    TransactionTable,
};
use peregrine::output::Done;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

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

/// A directory of files with rows that is written, each with the blocks of a chain up to a tip.
struct Directory {
    parts: Parts<'static>,
    format: FileFormat,
    columns: Columns,
    network: Network,
    /// What the metadata of each file says of the tip.
    tip: Vec<(&'static str, String)>,
    files: AtomicU32,
    files_kept: AtomicU32,
    bytes: AtomicU64,
}

impl Directory {
    fn new(parts: Parts<'static>, format: FileFormat, columns: Columns, tip: &Tip) -> Self {
        let Tip { network, height, hash } = tip;
        let tip = vec![
            ("tip_height", height.to_string()),
            ("tip_hash", hash.to_string()),
            ("program", PROGRAM.to_owned()),
        ];
        let (files, files_kept, bytes) = Default::default();
        Self { parts, format, columns, network: *network, tip, files, files_kept, bytes }
    }

    /// Begins a file; `None` if an earlier run has completed it.
    fn begin<T: Table>(&self, name: &str, columns: &Columns) -> Result<Option<RowFile<'static, T>>, Error> {
        self.files.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = self.parts.complete_len(name)? {
            self.files_kept.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            return Ok(None);
        }
        Ok(Some(self.parts.begin(name, self.format, columns)?))
    }

    /// Completes a file with the rows of these blocks.
    fn finish<T: Table>(&self, file: RowFile<'_, T>, heights: &RangeInclusive<u32>) -> Result<(), Error> {
        let mut metadata = vec![
            ("network", self.network.name().to_owned()),
            ("from", heights.start().to_string()),
            ("to", heights.end().to_string()),
            ("rows", file.rows().to_string()),
        ];
        metadata.extend(self.tip.iter().cloned());
        self.bytes.fetch_add(file.finish(&metadata)?, Ordering::Relaxed);
        Ok(())
    }

    /// Completes the directory, to which the file `dataset.json` with this content belongs.
    fn complete(self, output: &Path, content: &str) -> Result<WrittenFiles, Error> {
        self.parts.finish(content)?;
        Ok(WrittenFiles {
            output: output.display().to_string(),
            format: self.format.name(),
            files: self.files.into_inner(),
            files_kept: self.files_kept.into_inner(),
            bytes: self.bytes.into_inner(),
        })
    }
}

/// The last block of a chain.
struct Tip {
    network: Network,
    height: Height,
    hash: BlockHash,
}

/// The files of a directory.
#[derive(Serialize, JsonSchema)]
struct WrittenFiles {
    /// The directory that was written.
    output: String,
    format: &'static str,
    files: u32,
    /// Those of them that an earlier run had completed.
    files_kept: u32,
    bytes: u64,
}

impl WrittenFiles {
    /// `kept`: what follows the number of files that were kept.
    fn text(&self, kept: &str) -> String {
        let Self { output, format, files, files_kept, bytes } = self;
        let kept = match files_kept {
            0 => String::new(),
            number => format!(", {} {kept}", count(*number)),
        };
        format!("{output} ({format}, {}{kept}, {})", counted(*files, "file"), HumanSize(*bytes))
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

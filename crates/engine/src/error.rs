//! The error type of the engine: what kind of error, where, which rule, and what to do.

use disk::{
    DiskError,
    fs::{FileError, NotRegular, limit_remedy},
    leveldb::LevelDbError,
};
use rules::Violation;
use std::{borrow::Cow, fmt, io, path::PathBuf};
use wire::{BlockHash, Height, Txid};

/// The kinds of errors that a user must distinguish; the CLI gives each its own exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense for this datadir (a height above the tip, a wrong network).
    Usage,
    /// A block breaks a consensus rule: Bitcoin Core rejects the chain too.
    Consensus,
    /// Files are damaged or missing.
    Damaged,
    /// The hints or the files are wrong; this does not mean that a block is invalid.
    Hints,
    /// The machine refuses: locked, no space, no permission, an I/O error.
    Environment,
    /// The caller asked to stop.
    Interrupted,
    /// A bug in Peregrine: an invariant does not hold.
    Internal,
}

/// What went wrong, and everything that is known about where.
#[derive(Clone, Debug)]
pub struct Error {
    /// The kind of error.
    pub kind: ErrorKind,
    /// Height of the affected block.
    pub height: Option<Height>,
    /// Hash of the affected block.
    pub block_hash: Option<BlockHash>,
    /// The transaction that breaks the rule.
    pub txid: Option<Txid>,
    /// Id of the broken rule (`docs/rules.md`).
    pub rule: Option<&'static str>,
    /// Bitcoin Core's reject string for the violation.
    pub core: Option<Cow<'static, str>>,
    /// The affected file.
    pub file: Option<PathBuf>,
    /// Byte offset in that file.
    pub offset: Option<u64>,
    /// User id that must run the command instead, if the wrong user ran it.
    pub run_as: Option<u32>,
    /// What is wrong, with values, and what to do.
    pub detail: String,
    /// Whether the block may be one that was stored and never connected: a scan took it for the last block of
    /// the chain, and the undo data found for it matches a sibling too.
    pub contested: bool,
}

impl Error {
    /// An error with kind and text only.
    #[must_use]
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            height: None,
            block_hash: None,
            txid: None,
            rule: None,
            core: None,
            file: None,
            offset: None,
            run_as: None,
            detail: detail.into(),
            contested: false,
        }
    }

    /// The error for a caller that asked to stop.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "interrupted; the datadir is unchanged")
    }

    /// The error for a thread that panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self::new(ErrorKind::Internal, "a worker thread panicked; please report this")
    }

    /// The block and undo files do not form one valid chain; `verify` locates the first conflict.
    #[must_use]
    pub fn inconsistent_data() -> Self {
        Self::damaged(
            "the blocks and undo data do not form one valid chain, or a coinbase occurs twice; run verify",
        )
    }

    /// An error about damaged or missing files.
    #[must_use]
    pub fn damaged(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, detail)
    }

    /// The error for a rule that a block breaks.
    #[must_use]
    pub fn violation(violation: &Violation) -> Self {
        let rule = violation.rule;
        let input = violation.input.map_or(String::new(), |input| format!("input {input}: "));
        let detail = format!("{input}{}: {} ({}, {})", rule.id, violation.detail, rule.must, rule.source);
        Self {
            rule: Some(rule.id),
            core: Some(violation.core.clone()),
            ..Self::new(ErrorKind::Consensus, detail)
        }
    }

    /// Adds the block.
    #[must_use]
    pub fn at_block(mut self, height: Height, hash: BlockHash) -> Self {
        self.height = Some(height);
        self.block_hash = Some(hash);
        self
    }

    /// Adds the file, and the byte offset in it.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<PathBuf>, offset: Option<u64>) -> Self {
        self.file = Some(file.into());
        self.offset = offset;
        self
    }

    /// Adds the transaction.
    #[must_use]
    pub fn in_tx(mut self, txid: Option<Txid>) -> Self {
        self.txid = txid;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(offset) = self.offset {
                write!(f, " at byte {offset}")?;
            }
            f.write_str(if self.height.is_some() { " " } else { ": " })?;
        }
        if let Some(height) = self.height {
            match self.block_hash {
                Some(hash) => write!(f, "(height {height}, block {hash}): ")?,
                None => write!(f, "(height {height}): ")?,
            }
        }
        if let Some(txid) = self.txid {
            write!(f, "transaction {txid}: ")?;
        }
        f.write_str(&self.detail)?;
        if let Some(core) = &self.core {
            write!(f, " [Core: {core}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let creates = error.action.starts_with("create");
        let kind = match error.source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if creates => ErrorKind::Environment,
            io::ErrorKind::NotFound
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory => ErrorKind::Damaged,
            _ if NotRegular::is_cause_of(&error.source) => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        let remedy = match error.source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if creates => {
                "; create its directory, or name another place"
            }
            io::ErrorKind::StorageFull => "; free disk space and run again",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; grant the permission, or write elsewhere with --output"
            }
            _ => limit_remedy(&error.source).unwrap_or_default(),
        };
        Self::new(kind, format!("cannot {}: {}{remedy}", error.action, error.source))
            .in_file(error.path, None)
    }
}

impl From<LevelDbError> for Error {
    fn from(error: LevelDbError) -> Self {
        match error {
            LevelDbError::File(error) => error.into(),
            other => Self::damaged(other.to_string()),
        }
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::File(error) => error.into(),
            DiskError::LevelDb(error) => error.into(),
            DiskError::Locked { .. } => Self::new(ErrorKind::Environment, error.to_string()),
            DiskError::Refused { path, flaw } => Self::new(ErrorKind::Environment, flaw).in_file(path, None),
            DiskError::NotOwner { owner, .. } => {
                Self { run_as: Some(owner), ..Self::new(ErrorKind::Environment, error.to_string()) }
            }
            DiskError::CallerError { .. } => Self::new(ErrorKind::Internal, error.to_string()),
            DiskError::Damaged { path, offset, flaw } => Self::damaged(flaw).in_file(path, Some(offset)),
            other => Self::damaged(other.to_string()),
        }
    }
}

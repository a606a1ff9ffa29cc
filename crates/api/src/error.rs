//! The error type of the engine: what kind of error, where, which rule, and what to do.

use crate::{
    json::{OptionalPathText, texts, written},
    remedy::Remedy,
    subject::Subject,
};
use ::hints::HintsError;
use disk::block_files::{RecordError, RecordFlaw};
use disk::{
    DiskError, LevelDbError,
    datadir::{CHAINSTATE, FileKind, INDEX},
};
use rules::Violation;
use std::{
    borrow::Cow,
    fmt, io,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::{FileError, IO_ERROR, Limit, NotRegular, UnfinishedError, lacks_locks};
use wire::{BlockHash, CoinError, Height, OutPoint, Txid};

/// The kinds of errors that a user must distinguish; the CLI gives each its own exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    #[default]
    Internal,
}

/// What went wrong, everything that is known about where, and what to do. One pointer in size; the fields are
/// those of [`ErrorInfo`].
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
#[serde(into = "ErrorFields")]
#[schemars(with = "ErrorFields")]
pub struct Error(Box<ErrorInfo>);

reported! {
/// The contents of an [`Error`].
#[derive(Clone, Debug, Default)]
pub struct ErrorInfo {
    /// The kind of error.
    pub kind [skip]: ErrorKind,
    /// Height of the affected block.
    pub height: Option<Height>,
    /// Hash of the affected block.
    pub block_hash: Option<BlockHash>,
    /// The transaction that breaks the rule.
    pub txid: Option<Txid>,
    /// Index of the input of that transaction.
    pub input: Option<u32>,
    /// What the broken rule requires, and where that is written.
    pub requirement: Option<String>,
    /// Id of the broken rule (`docs/rules.md`).
    pub rule: Option<&'static str>,
    /// Bitcoin Core's reject string for the violation.
    pub core: Option<Cow<'static, str>>,
    /// The affected file.
    pub file with "OptionalPathText": Option<PathBuf>,
    /// Byte offset in that file.
    pub offset: Option<u64>,
    /// What is wrong, with values.
    pub detail: String,
    /// What it is about.
    pub subjects [skip]: Vec<Subject>,
    /// What the user can do: one of these.
    pub remedies with "RemedyNames": Vec<Remedy>,
    /// The error that caused this one.
    pub cause [skip]: Option<Arc<dyn std::error::Error + Send + Sync>>,
}
}

impl Error {
    /// An error with kind and text only.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self(Box::new(ErrorInfo { kind, detail: detail.into(), ..ErrorInfo::default() }))
    }

    /// The error for a caller that asked to stop.
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "interrupted; the datadir is unchanged")
    }

    /// Explains an interrupt of a rebuild, which keeps the blocks; `done` is what was done with them.
    #[must_use]
    pub fn but_blocks_are(mut self, done: &str) -> Self {
        if self.kind == ErrorKind::Interrupted {
            self.detail = format!("interrupted; all blocks are {done}, the chainstate is unchanged");
        }
        self
    }

    /// Fails with [`Error::interrupted`] if the caller asked to stop.
    #[inline]
    pub fn check_interrupt(interrupt: &AtomicBool) -> Result<(), Self> {
        if interrupt.load(Ordering::Relaxed) { Err(Self::interrupted()) } else { Ok(()) }
    }

    /// The error for a thread that panicked.
    pub fn panicked() -> Self {
        Self::new(ErrorKind::Internal, "a worker thread panicked; please report this")
    }

    /// The block and undo files do not form one valid chain; `verify` locates the first conflict.
    pub fn inconsistent_data() -> Self {
        Self::damaged("the blocks and undo data do not form one valid chain, or a coinbase occurs twice")
            .with_remedies([Remedy::Verify])
    }

    /// Creations and spends of an outpoint do not match within a range of the chain; `verify` of all blocks
    /// says why.
    pub fn unproven_range(outpoint: Option<OutPoint>) -> Self {
        let coin = outpoint.map_or_else(|| "a coin".to_owned(), |outpoint| format!("coin {outpoint}"));
        Self::damaged(format!(
            "creations and spends of {coin} do not match within the range: a block there is invalid, the \
             undo data is false, or a coinbase occurs twice, and then ranges cannot make the chainstate"
        ))
        .with_remedies([Remedy::Verify, Remedy::RebuildChainstate])
    }

    /// An error about damaged or missing files.
    pub fn damaged(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, detail)
    }

    /// An error about a request that makes no sense.
    pub fn usage(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, detail)
    }

    /// The error for an output that exists. If a run is killed at its very end, that is its result.
    pub fn exists(path: &Path) -> Self {
        let error = Self::usage("it exists already").in_file(path, None);
        error.with_remedies([Remedy::OtherName, Remedy::KeepResult])
    }

    /// An error of the machine.
    pub fn environment(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Environment, detail)
    }

    /// The error for a malformed coin in the undo data of a block.
    pub fn malformed_coin(error: CoinError, height: Height, hash: BlockHash) -> Self {
        let error = Self::damaged(format!("the undo data has a malformed coin: {error}"));
        error.at_block(height, hash).about(Subject::UndoData)
    }

    /// The error for a rule that a block breaks.
    pub fn violation(violation: &Violation) -> Self {
        let rule = violation.rule;
        let mut error = Self::new(ErrorKind::Consensus, violation.detail.as_str());
        (error.rule, error.core) = (Some(rule.id), Some(violation.core.clone()));
        error.input = violation.input;
        error.requirement = Some(format!("{} ({})", rule.must, rule.source));
        error
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

    /// Adds what it is about, and what the user can do about that.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        self.subjects.push(subject);
        self.with_remedies(subject.remedies().iter().copied())
    }

    /// Adds that a block or undo file is damaged or missing.
    #[must_use]
    pub fn about_file(self, kind: FileKind) -> Self {
        match kind {
            FileKind::Blk => self.about(Subject::BlockFile),
            FileKind::Rev => self.about(Subject::UndoData).with_remedies([Remedy::RestoreFile]),
        }
    }

    /// Adds the database that the error is about, if that is the chainstate or the block index: `path` is its
    /// directory, or a file in it.
    fn about_database(self, path: &Path) -> Self {
        let is = |name: &str| path.ends_with(name) || path.parent().is_some_and(|dir| dir.ends_with(name));
        let known = [(CHAINSTATE, Subject::Chainstate), (INDEX, Subject::BlockIndex)];
        let subject = known.into_iter().find(|(name, _)| is(name)).map(|(_, subject)| subject);
        subject.into_iter().fold(self, Self::about)
    }

    pub fn is_about(&self, subject: Subject) -> bool {
        self.subjects.contains(&subject)
    }

    /// Whether a database may be sound, but only a bitcoind, perhaps a newer one, can read it.
    pub fn needs_bitcoind(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| {
            matches!(cause.downcast_ref(), Some(DiskError::Refused { .. }))
                || matches!(cause.downcast_ref(), Some(LevelDbError::Unsupported { .. }))
        })
    }

    /// Adds what the user can do, after what else was added before.
    #[must_use]
    pub fn with_remedies(mut self, remedies: impl IntoIterator<Item = Remedy>) -> Self {
        for remedy in remedies {
            if !self.remedies.contains(&remedy) {
                self.remedies.push(remedy);
            }
        }
        self
    }

    /// Converts an I/O error while reading: a file that ends early, or that is not a regular file, is
    /// damaged; anything else is an error of the environment.
    pub fn reading(path: PathBuf, offset: u64, source: io::Error) -> Self {
        let is_not_regular = NotRegular::is_cause_of(&source);
        let kind = match source.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
            _ if is_not_regular => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        Self::new(kind, format!("cannot read: {}", io_text(&source)))
            .in_file(path, Some(offset))
            .with_remedies(is_not_regular.then_some(Remedy::MoveAway))
            .with_remedies(remedy_of(&source))
            .caused_by(source)
    }

    /// Whether the medium could not be read at this place, as if the file were damaged.
    pub fn is_of_medium(&self) -> bool {
        let cause = self.cause.as_ref();
        let of_file = cause.and_then(|cause| cause.downcast_ref::<FileError>()).map(|error| &error.source);
        let source = of_file.or_else(|| cause?.downcast_ref::<io::Error>());
        source.is_some_and(|source| source.raw_os_error() == Some(IO_ERROR))
    }

    /// Turns damage to what this run has just written, named `what`, into an error of the environment: the
    /// disk or the memory has not kept the bytes.
    #[must_use]
    pub fn of_written(self, what: &str) -> Self {
        match self.kind {
            ErrorKind::Damaged => {
                let found = Self::not_as_written(&format!("{what} ({})", self.detail));
                Self(Box::new(ErrorInfo { file: self.0.file, offset: self.0.offset, ..*found.0 }))
            }
            _ => self,
        }
    }

    /// The error for what this run has just written, named `what`, if other bytes are read.
    pub fn not_as_written(what: &str) -> Self {
        let detail =
            format!("{what} reads back differently from what was written; check the disk and the memory");
        Self::environment(detail)
    }

    /// Drops what the user can do.
    pub fn without_remedies(mut self) -> Self {
        self.remedies.clear();
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Returns what is wrong and what to do, without the place; `wording` words each remedy.
    pub fn explanation(&self, wording: impl Fn(&Remedy) -> String) -> String {
        let remedies: Vec<String> = self.remedies.iter().map(wording).collect();
        let text = self.description();
        match remedies.as_slice() {
            [] => text,
            [only] => format!("{text}; {only}"),
            [others @ .., last] => format!("{text}; {}, or {last}", others.join(", ")),
        }
    }

    /// The words for where it is, which precede what it is.
    fn place(&self) -> String {
        let mut place = String::new();
        if let Some(file) = &self.file {
            let offset = self.offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
            let end = if self.height.is_some() { " " } else { ": " };
            place = format!("{}{offset}{end}", file.display());
        }
        if let Some(height) = self.height {
            let block = self.block_hash.map_or(String::new(), |hash| format!(", block {hash}"));
            place += &format!("(height {height}{block}): ");
        }
        place + &self.txid.map_or(String::new(), |txid| format!("transaction {txid}: "))
    }

    /// What is wrong: the details, with the input and the rule that is broken.
    fn description(&self) -> String {
        let input = self.input.map_or(String::new(), |input| format!("input {input}: "));
        let rule = self.rule.map_or(String::new(), |rule| format!("{rule}: "));
        let requirement = self.requirement.as_ref().map_or(String::new(), |text| format!("; {text}"));
        format!("{input}{rule}{}{requirement}", self.detail)
    }

    /// Returns the text of this error without what helps.
    pub fn fact_text(&self) -> String {
        self.clone().without_remedies().to_string()
    }

    /// Returns the whole text of this error; `wording` words each remedy. `Display` uses the wording of
    /// [`Remedy`]'s `Display`.
    pub fn text(&self, wording: impl Fn(&Remedy) -> String) -> String {
        let core = self.core.as_ref().map_or(String::new(), |core| format!(" [Core: {core}]"));
        format!("{}{}{core}", self.place(), self.explanation(wording))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(ToString::to_string))
    }
}

/// An error as reports have it.
#[derive(serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorFields {
    kind: Kind,
    #[serde(flatten)]
    info: Box<ErrorInfo>,
    /// What is wrong and where, for people; it may change at any time.
    text: String,
}

/// The kind of an error. Missing files have a kind of their own.
#[derive(serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Usage,
    Consensus,
    Damaged,
    Missing,
    Hints,
    Environment,
    Interrupted,
    Internal,
}

impl From<Error> for ErrorFields {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Usage => Kind::Usage,
            ErrorKind::Consensus => Kind::Consensus,
            ErrorKind::Damaged if error.is_about(Subject::MissingFile) => Kind::Missing,
            ErrorKind::Damaged => Kind::Damaged,
            ErrorKind::Hints => Kind::Hints,
            ErrorKind::Environment => Kind::Environment,
            ErrorKind::Interrupted => Kind::Interrupted,
            ErrorKind::Internal => Kind::Internal,
        };
        Self { kind, text: error.fact_text(), info: error.0 }
    }
}

written! {
    RemedyNames: Vec<Remedy> => Vec<&'static str>, |remedies| remedies.iter().map(Remedy::name).collect();
    /// Findings as texts only.
    ErrorTexts: Vec<Error> => Vec<String>, |errors| texts(errors.iter().map(Error::fact_text));
}

impl Deref for Error {
    type Target = ErrorInfo;

    fn deref(&self) -> &ErrorInfo {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut ErrorInfo {
        &mut self.0
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        // Locking creates the file: what is missing is its directory.
        let is_missing = error.source.kind() == io::ErrorKind::NotFound;
        let creates = error.is_creation || error.action == "lock" && is_missing;
        let kind = match error.source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if creates => ErrorKind::Environment,
            _ if error.is_damage() => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        let remedies = match error.source.kind() {
            io::ErrorKind::NotFound if creates => vec![Remedy::CreateDirectory, Remedy::OtherName],
            io::ErrorKind::NotADirectory if creates => vec![Remedy::OtherName],
            _ if creates && error.source.raw_os_error() == Some(LINK_LOOP) => vec![Remedy::OtherName],
            // What may not be read is no result.
            io::ErrorKind::PermissionDenied
                if !["list", "open", "open for reading", "read", "read the hints", "read the plan"]
                    .contains(&error.action) =>
            {
                vec![Remedy::GrantPermission, Remedy::OtherOutput]
            }
            io::ErrorKind::ReadOnlyFilesystem => vec![Remedy::MountWritable, Remedy::OtherOutput],
            io::ErrorKind::CrossesDevices => vec![Remedy::OtherOutput],
            _ => remedy_of(&error.source).into_iter().collect(),
        };
        let subject = match error.source.kind() {
            io::ErrorKind::NotFound if kind == ErrorKind::Damaged => Some(Subject::MissingFile),
            io::ErrorKind::StorageFull if Limit::of(&error.source).is_none() => Some(Subject::DiskSpace),
            _ if error.action == "lock" && lacks_locks(&error.source) => Some(Subject::NoLocks),
            _ => None,
        };
        let converted = Self::new(kind, format!("cannot {}: {}", error.action, io_text(&error.source)))
            .in_file(&error.path, None)
            .with_remedies(remedies)
            .caused_by(error);
        subject.into_iter().fold(converted, Self::about)
    }
}

/// Returns what an error of the system means, without its number.
pub fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    let help = match error.kind() {
        _ if error.raw_os_error() == Some(NEEDS_CLEANING) => ": unmount this file system, and run fsck",
        io::ErrorKind::StaleNetworkFileHandle => ": mount this file system again, and run again",
        io::ErrorKind::CrossesDevices => {
            ": in an overlay file system, copy this directory (cp -a), remove it, and give the copy its name"
        }
        _ => "",
    };
    first.to_lowercase() + rest + help
}

/// What the user can do about an error of the system, whatever was done with the file.
fn remedy_of(error: &io::Error) -> Option<Remedy> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some(Remedy::GrantPermission),
        _ if error.raw_os_error() == Some(IO_ERROR) => Some(Remedy::CheckDisk),
        _ => Limit::of(error).map(Remedy::RaiseLimit),
    }
}

/// The system's number of the error of symbolic links that lead to each other (`ELOOP`).
const LINK_LOOP: i32 = 40;
/// The system's number of the error of a damaged file system (`EUCLEAN`).
const NEEDS_CLEANING: i32 = 117;

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        let (cause, may_be_index) = match error.flaw {
            RecordFlaw::Io(source) => {
                let kind = error.kind;
                let error = Self::reading(error.path, error.offset, source);
                return if error.is_of_medium() { error.about_file(kind) } else { error };
            }
            RecordFlaw::StartsBeyondEnd { .. } | RecordFlaw::EndsBeyondEnd { .. } => {
                (": the file is truncated, or the block index belongs to other files", true)
            }
            RecordFlaw::Magic { .. } => {
                ("; the file or the block index is damaged, or blocks/xor.dat is missing or wrong", true)
            }
            _ => ("; the file is damaged, or xor.dat belongs to other files", false),
        };
        let converted = Self::damaged(format!("{}{cause}", error.flaw))
            .in_file(error.path, Some(error.offset))
            .about_file(error.kind);
        if may_be_index { converted.about(Subject::BlockIndex) } else { converted }
    }
}

impl From<LevelDbError> for Error {
    fn from(error: LevelDbError) -> Self {
        match error {
            LevelDbError::File(error) => error.into(),
            LevelDbError::Damaged { ref path, offset, ref flaw } => {
                let converted =
                    Self::damaged(format!("the database is damaged: {flaw}")).in_file(path, Some(offset));
                converted.about_database(path).caused_by(error)
            }
            LevelDbError::Unsupported { ref path, offset, ref feature } => {
                let detail =
                    format!("{feature}; start and stop bitcoind once, which moves their rows to tables");
                Self::environment(detail).in_file(path, Some(offset)).caused_by(error)
            }
            other => Self::damaged(other.to_string()).caused_by(other),
        }
    }
}

impl From<UnfinishedError> for Error {
    fn from(error: UnfinishedError) -> Self {
        match error {
            UnfinishedError::File(error) => error.into(),
            UnfinishedError::Refused { ref path, flaw } => {
                Self::environment(flaw).in_file(path, None).caused_by(error)
            }
            UnfinishedError::Exists(path) => Self::exists(&path),
            other => Self::environment(other.to_string()),
        }
    }
}

impl From<HintsError> for Error {
    fn from(error: HintsError) -> Self {
        let converted = match &error {
            HintsError::Damaged { path, offset, flaw } => {
                Self::damaged(flaw.as_str()).in_file(path, Some(*offset))
            }
            HintsError::Ambiguous { path, flaw } => {
                Self::damaged(flaw.as_str()).in_file(path, Some(0)).with_remedies([Remedy::NameHintFormat])
            }
            HintsError::CallerError { .. } => Self::new(ErrorKind::Internal, error.to_string()),
            _ => match error {
                HintsError::File(error) => return error.into(),
                HintsError::Unfinished(error) => return error.into(),
                other => return Self::damaged(other.to_string()),
            },
        };
        converted.caused_by(error)
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        let error = match error {
            DiskError::File(error) => return error.into(),
            DiskError::LevelDb(error) => return error.into(),
            DiskError::Unfinished(error) => return error.into(),
            error => error,
        };
        let damaged = || Self::damaged(error.to_string());
        let of_file = |path: &PathBuf, flaw: &str| Self::damaged(flaw).in_file(path, None);
        let converted = match &error {
            DiskError::NoDatadir { path, flaw } => of_file(path, flaw).about(Subject::MissingFile),
            DiskError::Locked { holder, .. } => {
                let is_own = holder.as_ref().is_some_and(|holder| holder.pid == Some(std::process::id()));
                let error = Self::environment(error.to_string()).about(Subject::DatadirInUse);
                if is_own { error.without_remedies().with_remedies([Remedy::EndOwnJob]) } else { error }
            }
            DiskError::Refused { path, flaw } => Self::environment(flaw.as_str()).in_file(path, None),
            DiskError::NotReplaceable { path, obstacle } => Self::environment(obstacle.to_string())
                .in_file(path, None)
                .with_remedies(Remedy::of_obstacle(*obstacle)),
            DiskError::NotOwner { owner, .. } => {
                Self::environment(error.to_string()).with_remedies([Remedy::RunAs(*owner)])
            }
            DiskError::CallerError { .. } => Self::new(ErrorKind::Internal, error.to_string()),
            DiskError::Damaged { path, offset, flaw } => {
                Self::damaged(flaw.as_str()).in_file(path, Some(*offset))
            }
            DiskError::WrongKey { path, flaw, .. } => of_file(path, flaw),
            DiskError::MixedKeys { path, flaw, .. } => {
                of_file(path, flaw).with_remedies([Remedy::TakeFromFiles])
            }
            DiskError::DamagedWorkFile { path, offset, flaw } => {
                Self::damaged(flaw.as_str()).in_file(path, Some(*offset)).with_remedies([Remedy::StartOver])
            }
            DiskError::IndexRow { .. } => {
                damaged().with_remedies([Remedy::BitcoindReindex]).about(Subject::BlockIndex)
            }
            DiskError::OtherNetwork { found, .. } => damaged().with_remedies([Remedy::ChooseNetwork(*found)]),
            DiskError::OtherSignet { .. } => damaged().with_remedies([Remedy::NameChallenge]),
            _ => damaged(),
        };
        converted.caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use vfs::LockHolder;

    /// It was that of temporary files, whose directory another process had removed.
    #[test]
    fn a_missing_directory_of_a_lock_file_is_no_damage() {
        let source = io::ErrorKind::NotFound.into();
        let file = FileError { path: "peregrine.lock".into(), action: "lock", is_creation: false, source };
        assert_eq!(Error::from(file).kind, ErrorKind::Environment);
    }

    /// Once, a process was told to wait until it has itself ended.
    #[test]
    fn a_datadir_that_this_process_uses_needs_no_other_program_to_end() {
        let own = std::process::id();
        for (pid, remedy) in [(own, Remedy::EndOwnJob), (own + 1, Remedy::EndOtherProgram)] {
            let holder = Some(LockHolder { pid: Some(pid), program: None });
            let error = Error::from(DiskError::Locked { path: ".lock".into(), holder });
            assert!(error.is_about(Subject::DatadirInUse));
            assert_eq!(error.remedies, [remedy], "{error}");
        }
    }

    #[test]
    fn an_error_is_one_pointer_and_has_its_cause() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let disk =
            DiskError::File(FileError { path: "there".into(), action: "write", is_creation: false, source });
        let error = Error::from(disk);
        assert_eq!((error.kind, &error.remedies), (ErrorKind::Environment, &vec![Remedy::FreeDiskSpace]));
        let cause = error.source().and_then(|cause| cause.downcast_ref::<FileError>()).unwrap();
        assert_eq!(cause.source.kind(), io::ErrorKind::StorageFull);
        assert!(Error::interrupted().source().is_none());
        let text = io_text(&io::Error::from_raw_os_error(NEEDS_CLEANING));
        assert_eq!(text, "structure needs cleaning: unmount this file system, and run fsck");
        let text = io_text(&io::ErrorKind::StaleNetworkFileHandle.into());
        assert_eq!(text, "stale network file handle: mount this file system again, and run again");
        let text = io_text(&io::Error::from_raw_os_error(18));
        assert!(text.starts_with("invalid cross-device link: in an overlay file system, copy"), "{text}");
        for (source, action, remedies) in [
            (io::Error::from(io::ErrorKind::Unsupported), "lock", [Remedy::MountWithLocks]),
            // Once, a directory of an image's layer was an error without a remedy.
            (io::ErrorKind::CrossesDevices.into(), "replace", [Remedy::OtherOutput]),
            (io::Error::from_raw_os_error(IO_ERROR), "read", [Remedy::CheckDisk]),
            // Another place for the result was advised too.
            (io::ErrorKind::PermissionDenied.into(), "open for reading", [Remedy::GrantPermission]),
            (io::ErrorKind::PermissionDenied.into(), "read", [Remedy::GrantPermission]),
            (io::ErrorKind::PermissionDenied.into(), "list", [Remedy::GrantPermission]),
        ] {
            let file = FileError { path: ".lock".into(), action, is_creation: false, source };
            assert_eq!(Error::from(file).remedies, remedies);
        }
        // Once, an output below a file was damage to a file.
        for source in [io::ErrorKind::NotADirectory.into(), io::Error::from_raw_os_error(LINK_LOOP)] {
            let file = FileError { path: "mine/out".into(), action: "create", is_creation: true, source };
            let error = Error::from(file);
            assert_eq!((error.kind, &error.remedies), (ErrorKind::Environment, &vec![Remedy::OtherName]));
        }
        for (number, remedies) in [(IO_ERROR, [Remedy::CheckDisk]), (13, [Remedy::GrantPermission])] {
            let error = Error::reading("rev00000.dat".into(), 0, io::Error::from_raw_os_error(number));
            assert_eq!(error.remedies, remedies);
        }
        // The directory of a database, and one that has a part of its name.
        for (path, is_index) in [("blocks/index/000005.ldb", true), ("mnt/index/000005.ldb", false)] {
            let damage = LevelDbError::Damaged { path: path.into(), offset: 0, flaw: "torn".into() };
            assert_eq!(Error::from(damage).is_about(Subject::BlockIndex), is_index, "{path}");
        }
        // A block index with such a log was once replaced by that of a scan, which has fewer headers.
        let path = "blocks/index/000005.log".into();
        let unread = LevelDbError::Unsupported { path, offset: 0, feature: "a long log".to_owned() };
        let error = Error::from(unread);
        assert!(error.needs_bitcoind() && !error.is_about(Subject::BlockIndex), "{error}");
        assert_eq!(error.kind, ErrorKind::Environment);
    }
}

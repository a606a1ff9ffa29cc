//! Errors of this crate: why a datadir, or a file in it, cannot be used. Messages state where and what is
//! wrong there. The remedy follows from the variant, or the message states it.

use hex_conservative::DisplayHex as _;
use leveldb::LevelDbError;
use std::path::{Path, PathBuf};
use vfs::{FileError, LockHolder, UnfinishedError};
use wire::{FileNo, Network};

/// The errors of all formats in this crate; those of plain LevelDB files are inside [`DiskError::LevelDb`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file cannot be created under its temporary name.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedError),
    /// A database cannot be read or written.
    #[error(transparent)]
    LevelDb(#[from] LevelDbError),
    /// The directory is not a datadir of the network.
    #[error("{}: {flaw}", path.display())]
    NoDatadir {
        /// The directory that was examined.
        path: PathBuf,
        /// The file that is missing, and the networks that are present.
        flaw: String,
    },
    /// The block files are of another network.
    #[error("{}: the blocks are of chain {found}, not of {expected}", path.display())]
    OtherNetwork {
        /// The directory of the network that was asked for.
        path: PathBuf,
        found: Network,
        expected: Network,
    },
    /// The block files are of a signet with another challenge.
    #[error(
        "{}: the blocks are of a signet with another challenge: they begin with {}, not with {}",
        path.display(), found.as_hex(), expected.as_hex()
    )]
    OtherSignet {
        /// The directory of the network.
        path: PathBuf,
        /// The magic of the blocks.
        found: [u8; 4],
        /// The magic that follows from the challenge that was asked for.
        expected: [u8; 4],
    },
    /// `xor.dat` is missing, or is not the key of the block files.
    #[error("{}: {flaw}", path.display())]
    WrongKey {
        /// The file with the key.
        path: PathBuf,
        /// The files, and how to restore the key.
        flaw: String,
        /// The key that the block files reveal.
        key: [u8; 8],
    },
    /// The block files have different keys, so that `xor.dat` cannot be right.
    #[error("{}: {flaw}", path.display())]
    MixedKeys {
        /// The directory of the block files.
        path: PathBuf,
        /// The files and their keys.
        flaw: String,
        /// The files that do not have the key of `xor.dat`.
        files: Vec<FileNo>,
    },
    /// Another process uses the datadir, or another job of this one.
    #[error("{} is in use{}", path.display(), by(holder.as_ref()))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process, if the system reports it.
        holder: Option<LockHolder>,
    },
    /// A file does not have the format in which Core or Peregrine writes it.
    #[error("{} at byte {offset}: {flaw}", path.display())]
    Damaged {
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The flaw, and the remedy.
        flaw: String,
    },
    /// A file of an unfinished job, its checkpoint or a sorted run, is damaged, or belongs to another network
    /// or version. The job can start over.
    #[error("{} at byte {offset}: {flaw}", path.display())]
    DamagedWorkFile {
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        flaw: String,
    },
    /// A row of a database does not have the format in which Core writes it.
    #[error("{}, row {key}: {flaw}", dir.display())]
    Row {
        dir: PathBuf,
        /// The key in hexadecimal.
        key: String,
        /// The flaw of the row, and the remedy.
        flaw: String,
    },
    /// A row of the block index does not have the format in which Core writes it.
    #[error("{}, row {key}: {flaw}; the block index is damaged", dir.display())]
    IndexRow {
        dir: PathBuf,
        /// The key in hexadecimal.
        key: String,
        flaw: String,
    },
    /// Core was stopped while it wrote the chainstate, which now mixes the coins of two blocks.
    #[error("{}: bitcoind was stopped while it wrote the chainstate; if it has the blocks, it completes that \
             when it starts; otherwise, rebuild it", dir.display())]
    InterruptedFlush { dir: PathBuf },
    /// An operation that the job needs is impossible at this path, or must not be done there.
    #[error("{}: {flaw}", path.display())]
    Refused {
        path: PathBuf,
        /// The obstacle at the path, and the remedy.
        flaw: String,
    },
    /// A database cannot be replaced because of what is at a path.
    #[error("{}: {obstacle}", path.display())]
    NotReplaceable { path: PathBuf, obstacle: Obstacle },
    /// The new database would belong to another user than the one that it replaces.
    #[error(
        "{} belongs to user id {owner}, and this process cannot create files for that user",
        path.display()
    )]
    NotOwner {
        /// The database, or the directory in which it would be.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// The caller passed data that cannot be written: a bug in Peregrine.
    #[error("{}: {flaw}; this is a bug, please report it", dir.display())]
    CallerError {
        /// The database or file being written.
        dir: PathBuf,
        /// The request.
        flaw: String,
    },
}

/// A reason why a database cannot be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// A file has the name of the database.
    #[error("expected a database, but this is not a directory")]
    NotDirectory,
    #[error("a file system is mounted here, and a mount point cannot be exchanged for a new directory")]
    MountPoint,
    /// Something that is not Peregrine's has the name under which the new database would be built, or undo
    /// data made.
    #[error(
        "new files must be written here, but what is here was not made by peregrine, or contains files of \
         other programs"
    )]
    ForeignFiles,
    /// The name under which the old database would be kept is taken.
    #[error("the old database would be kept under this name, which is taken")]
    KeptNameTaken,
    /// A link has the name of the database, and leads to what does not exist.
    #[error("this link leads to a directory that does not exist: mount its disk")]
    DanglingLink,
}

/// Names the process that holds a lock.
fn by(holder: Option<&LockHolder>) -> String {
    holder.map_or(String::new(), |holder| format!(" by {holder}"))
}

impl DiskError {
    pub(crate) fn row(dir: &Path, key: &[u8], flaw: impl Into<String>) -> Self {
        Self::Row { dir: dir.to_owned(), key: key.to_lower_hex_string(), flaw: flaw.into() }
    }

    pub(crate) fn index_row(dir: &Path, key: &[u8], flaw: impl Into<String>) -> Self {
        Self::IndexRow { dir: dir.to_owned(), key: key.to_lower_hex_string(), flaw: flaw.into() }
    }
}

//! All exit codes.

use engine::{Error, ErrorKind};

/// The exit code of the process. Scripts may rely on these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// An internal error: a bug in Peregrine, please report it.
    Internal = 1,
    /// The command line is invalid, by itself (clap uses the same code) or for this datadir.
    Usage = 2,
    /// A block breaks a consensus rule; Bitcoin Core rejects the chain too.
    Consensus = 3,
    /// Files are damaged or missing.
    Damaged = 4,
    /// An error of the environment: files in use by another process, no space, no permission, an I/O error.
    Environment = 5,
    /// The hints, or the block or undo files they were used with, are wrong.
    Hints = 6,
    /// An outpoint that was asked for is not unspent.
    NotUnspent = 7,
    /// Interrupted by Ctrl-C, SIGTERM or SIGHUP.
    Interrupted = 130,
}

impl Exit {
    pub fn of(error: &Error) -> Self {
        match error.kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Consensus => Self::Consensus,
            ErrorKind::Damaged => Self::Damaged,
            ErrorKind::Hints => Self::Hints,
            ErrorKind::Environment => Self::Environment,
            ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Internal,
        }
    }
}

//! The exit codes, all of them.

use engine::{Error, ErrorKind};
use std::process::ExitCode;

/// How the process ends. Scripts may rely on these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Our own fault: please report it.
    Internal = 1,
    /// The command line makes no sense, by itself (clap uses the same code) or for this datadir.
    Usage = 2,
    /// A block breaks a consensus rule: Bitcoin Core refuses the chain too.
    Consensus = 3,
    /// Files are damaged or missing.
    Damaged = 4,
    /// The machine refuses: locked by another process, no space, no permission, an I/O error.
    Environment = 5,
    /// Hints, or the files they were used on, are wrong.
    Hints = 6,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The code for an error.
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

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

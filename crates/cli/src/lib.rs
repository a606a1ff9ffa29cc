//! What Peregrine's programs share: exit codes, the effect of signals, the log of a run, the flags that help
//! after an error, how a result is printed, and which sources the program was built from.
#![forbid(unsafe_code)]

pub mod exit;
pub mod output;
pub mod remedy;
pub mod run_log;
pub mod running;
pub mod shell;
pub mod stop;
pub mod version;
pub mod wrap;

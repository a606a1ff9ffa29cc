//! What Peregrine's programs share: exit codes, the effect of signals, the log of a run, the flags that help
//! after an error, and how a result is printed.
#![forbid(unsafe_code)]

pub mod exit;
pub mod output;
pub mod remedy;
pub mod run_log;
pub mod stop;

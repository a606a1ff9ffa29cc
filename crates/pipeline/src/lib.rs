//! The path of a block: [`stages`] has one file for each stage, and [`job`] runs them side by side, within a
//! budget of memory and with checkpoints.
#![forbid(unsafe_code)]

pub mod job;
pub mod stages;

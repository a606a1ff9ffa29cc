//! The way of a block: [`stages`] has one file for each stage, and [`job`] what runs them side by side,
//! within a budget of memory and with checkpoints.
#![forbid(unsafe_code)]

pub mod job;
pub mod stages;

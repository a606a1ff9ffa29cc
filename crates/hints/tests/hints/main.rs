//! Hint files: formats, damage, disks that fail, and sizes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod faults;
mod formats;
mod size;

//! What is exported, read back by other libraries.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod formats;
mod parts;

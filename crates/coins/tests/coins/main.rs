//! The join, the coins cache and aggregates against naive models.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod aggregate;
mod chain;
mod model;

//! `peregrine-bench` as its users meet it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod compare;
mod page;
mod plot;
mod prelude;
mod proposals;
mod sync;

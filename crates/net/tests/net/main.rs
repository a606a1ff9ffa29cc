//! Messages, and peers on sockets, behind a router of I2P, and in a simulated network.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod client;
mod common;
mod i2p;
mod messages;
mod simulation;
mod simulator;

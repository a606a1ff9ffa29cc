//! Shared by the tests of the crate: a tiny chain, a caller that keeps it in memory, a clock, and an I2P
//! router.

pub mod chain;
pub mod clock;
pub mod drive;
pub mod router;

pub use chain::tiny;
pub use drive::Driver;
pub use peregrine_net::{
    address::{Host, PeerAddress},
    peer::{CloseReason, PeerId},
    pool::Target,
    transport::TransportVersion,
};
pub use std::{
    sync::Arc,
    time::{Duration, Instant},
};
pub use testkit::{
    peer::{End, Fault, ScriptedPeer, ServedChain},
    rng::Rng,
};
pub use wire::{BlockHash, Network};

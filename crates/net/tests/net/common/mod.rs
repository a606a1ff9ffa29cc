//! Shared by the tests of the crate: a tiny chain, a caller that keeps it in memory, a clock, and an I2P
//! router.

pub mod chain;
pub mod clock;
pub mod drive;
pub mod router;

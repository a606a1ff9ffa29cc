//! Ranges of a chain that several machines check: each writes what its range amounts to, a delta, and deltas
//! are merged until the coins after the last block are left.
//!
//! A machine that has all blocks makes the plan ([`plan_ranges`]). With it, each machine needs only the files
//! of its ranges ([`check_range`]). Deltas of all ranges, merged shard by shard ([`merge_deltas`]), have no
//! spends left, and become the chainstate ([`finish_ranges`]).
//!
//! # What is proven, and what is trusted
//! A merge proves of the spends in deltas what the join proves in a rebuild: each meets the one coin with its
//! outpoint, and its claim equals that coin. So no delta can lack a coin that another one spends, or have
//! another coin than that one claims, without being found out. What a block does only the machine knows that
//! has checked it: its rules and scripts, and that its delta has all of its spends and outputs, and those
//! that no other range spends as they are in the block. Deltas of the same plan are equal byte for byte, so
//! checking a range again elsewhere shows whether that machine was right.
#![forbid(unsafe_code)]

mod check;
mod deltas;
mod finish;
mod merge;
mod new_delta;
mod plan;
mod range_plan;

pub use check::{CheckRangeOptions, check_range};
pub use deltas::DeltaReport;
pub use finish::{FinishRangesOptions, RangeCheck, RangesReport, finish_ranges};
pub use merge::{MergeDeltasOptions, merge_deltas};
pub use plan::{PlanRangesOptions, RangeFile, plan_ranges};
pub use range_plan::RangePlan;

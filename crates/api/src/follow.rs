//! Report of a download that stays at the tip.

use crate::json::{JsonSchema, Seconds, Serialize};
use std::{collections::VecDeque, time::Duration};
use wire::{BlockHash, Height};

reported! {
/// Blocks that were connected at the tip and committed together: mostly one, more in a burst or a
/// reorganisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectedAtTip {
    /// Height of the last of them.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of blocks of another branch that were disconnected before.
    pub disconnected as "blocks_disconnected": u32,
    /// Number of transactions in the blocks that were connected.
    pub transactions: u64,
    /// Time from the first announcement until all was on the medium.
    pub elapsed as "seconds" with "Seconds": Duration,
    /// The part of that time after the first of the blocks had come.
    pub since_arrival as "seconds_since_arrival" with "Seconds": Duration,
}
}

/// Why a run no longer stays at the tip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FollowEnd {
    /// The caller has interrupted it.
    #[default]
    Interrupted,
    /// Another process uses the datadir.
    DatadirInUse,
    /// Another process has changed the datadir.
    DatadirChanged,
}

reported! {
/// What happened at the tip.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FollowReport {
    /// Number of blocks that were connected.
    pub connected as "blocks_connected": u64,
    /// Number of blocks that were disconnected.
    pub disconnected as "blocks_disconnected": u64,
    /// The last of them, in order; at most [`FollowReport::MAX_LAST`].
    pub last as "connected": VecDeque<ConnectedAtTip>,
    /// How long the run stayed at the tip.
    pub elapsed as "seconds" with "Seconds": Duration,
    /// Why it ended.
    pub end: FollowEnd,
}
}

impl FollowReport {
    /// Maximum number of entries of [`FollowReport::last`]: a week of blocks.
    pub const MAX_LAST: usize = 1_000;
}

//! The rules for headers: `CheckBlockHeader` and `ContextualCheckBlockHeader` in Core.

use crate::{
    params::ChainParams,
    pow,
    table::HEADER_RULES,
    violation::{Violation, ViolationDetails, first_violation, require},
};
use wire::{BlockHash, BlockTime, Header, Height};

/// Maximum time of a header in the future, in seconds (Core `MAX_FUTURE_BLOCK_TIME`).
pub const MAX_FUTURE_BLOCK_TIME: u64 = 2 * 60 * 60;
/// Maximum number of seconds by which the first block of an interval may be earlier than its parent
/// (BIP-0094, Core `MAX_TIMEWARP`).
pub const MAX_TIMEWARP: u64 = 600;
/// Number of blocks whose median time limits the time of the next (Core `nMedianTimeSpan`).
pub const MEDIAN_TIME_SPAN: usize = 11;

/// The ancestors of a header, by height. The methods are called only with heights below the header's.
pub trait Ancestors {
    /// Returns the time and the compact target of the ancestor at `height`.
    fn at(&self, height: Height) -> (BlockTime, u32);

    fn time(&self, height: Height) -> BlockTime {
        self.at(height).0
    }

    fn bits(&self, height: Height) -> u32 {
        self.at(height).1
    }
}

/// A branch that starts with the genesis header: the index is the height.
///
/// # Panics
/// If it has no header at the height.
impl Ancestors for &[Header] {
    fn at(&self, height: Height) -> (BlockTime, u32) {
        let header = &self[height.0 as usize];
        (header.time, header.bits)
    }
}

#[derive(Clone, Copy)]
pub struct HeaderContext<'a> {
    pub params: &'a ChainParams,
    pub height: Height,
    pub header: &'a Header,
    pub hash: &'a BlockHash,
    pub ancestors: &'a dyn Ancestors,
    /// The current time, for the limit on times in the future.
    pub now: BlockTime,
}

/// Checks a header on its branch. For the genesis header only the proof of work is checked; the caller must
/// compare it with [`ChainParams::genesis_hash`].
///
/// # Errors
/// The first broken rule of [`HEADER_RULES`].
pub fn check_header(context: &HeaderContext<'_>) -> Result<(), Violation> {
    first_violation(HEADER_RULES, context.params, context.height, |check| check(context))
}

/// Returns the median of the times of the last blocks, up to 11 in any order: the median time past of the
/// last block (BIP-0113, Core `GetMedianTimePast`).
///
/// # Panics
/// If there are no times, or more than 11.
pub fn median_time_past(times: &[BlockTime]) -> BlockTime {
    let mut sorted = [BlockTime(0); MEDIAN_TIME_SPAN];
    let sorted = &mut sorted[..times.len()];
    sorted.copy_from_slice(times);
    sorted.sort_unstable();
    sorted[times.len() / 2]
}

/// Replaces the times of a chain's blocks, by height, by their median times past: from the last one down,
/// since each depends on the times below it.
pub fn median_times(mut times: Vec<BlockTime>) -> Vec<BlockTime> {
    for at in (0..times.len()).rev() {
        let first = at.saturating_sub(MEDIAN_TIME_SPAN - 1);
        times[at] = median_time_past(&times[first..=at]);
    }
    times
}

fn median_time_past_before(height: Height, ancestors: &dyn Ancestors) -> BlockTime {
    let mut times = [BlockTime(0); MEDIAN_TIME_SPAN];
    let count = (height.0 as usize).min(MEDIAN_TIME_SPAN);
    for (time, back) in times[..count].iter_mut().zip(1..) {
        *time = ancestors.time(Height(height.0 - back));
    }
    median_time_past(&times[..count])
}

pub(crate) fn proof_of_work(c: &HeaderContext<'_>) -> Result<(), ViolationDetails> {
    require(pow::has_proof_of_work(c.params, c.hash, c.header.bits), || {
        match pow::target(c.params, c.header.bits) {
            Some(_) => format!("hash {} is above the target 0x{:08x}", c.hash, c.header.bits),
            None => format!("0x{:08x} is not a valid target on this network", c.header.bits),
        }
    })
}

pub(crate) fn difficulty(c: &HeaderContext<'_>) -> Result<(), ViolationDetails> {
    let expected = pow::expected_bits(c.params, c.height, c.header.time, c.ancestors);
    require(c.header.bits == expected, || {
        format!("target is 0x{:08x}, expected 0x{expected:08x}", c.header.bits)
    })
}

pub(crate) fn time_after_median(c: &HeaderContext<'_>) -> Result<(), ViolationDetails> {
    let median = median_time_past_before(c.height, c.ancestors);
    require(c.header.time > median, || {
        format!("time is {}, expected above the median time past {median}", c.header.time)
    })
}

pub(crate) fn timewarp(c: &HeaderContext<'_>) -> Result<(), ViolationDetails> {
    if !c.height.0.is_multiple_of(c.params.difficulty_adjustment_interval()) {
        return Ok(());
    }
    let prev = c.ancestors.time(Height(c.height.0 - 1));
    require(u64::from(c.header.time.0) + MAX_TIMEWARP >= u64::from(prev.0), || {
        format!("time is {}, expected at most 600 seconds before {prev}", c.header.time)
    })
}

pub(crate) fn time_not_in_future(c: &HeaderContext<'_>) -> Result<(), ViolationDetails> {
    require(u64::from(c.header.time.0) <= u64::from(c.now.0) + MAX_FUTURE_BLOCK_TIME, || {
        format!("time is {}, expected at most 7200 seconds after {}", c.header.time, c.now)
    })
}

pub(crate) fn version_at_least(c: &HeaderContext<'_>, min: i32) -> Result<(), ViolationDetails> {
    let version = c.header.version;
    if version >= min {
        return Ok(());
    }
    let detail = format!("version is {version}, expected at least {min}");
    let mut details = ViolationDetails::new(detail);
    details.core = Some(format!("bad-version(0x{version:08x})"));
    Err(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_the_upper_middle() {
        for (times, median) in [
            (&[5][..], 5),
            (&[5, 3], 5),
            (&[9, 1, 5], 5),
            (&[4, 3, 2, 1], 3),
            (&[11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1], 6),
        ] {
            let times: Vec<BlockTime> = times.iter().copied().map(BlockTime).collect();
            assert_eq!(median_time_past(&times), BlockTime(median));
        }
    }
}

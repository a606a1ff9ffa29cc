//! Estimates what a rebuild needs: disk space, and time between two bounds.

use super::{
    diagnosis::{RebuildNeed, RebuildTime, ScriptWork},
    survey::{FileLengths, Survey},
};
use api::{disk_need::DiskNeed, machine, options::ChainOptions, subject::Subject};
use chain::{blocks::files::Files, commit::directory_bytes, session::work_dir_of};
use pipeline::job::memory::MemoryBudget;
use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};
use vfs::dir_of;
use wire::FileNo;

/// The fewest and the most bytes of blocks that a thread checks in a second. The recorded runs in
/// `docs/performance.md` are between them, and machines differ.
const CHECKED_BYTES_PER_SECOND: (u64, u64) = (45_000_000, 400_000_000);
/// The same for blocks whose scripts are run.
const SCRIPT_BYTES_PER_SECOND: (u64, u64) = (1_900_000, 6_000_000);
/// The fewest bytes of the new chainstate that a thread writes and reads back in a second.
const COIN_BYTES_PER_SECOND: u64 = 50_000_000;
/// Time in which a sample of the block files is read.
const SAMPLE_TIME: Duration = Duration::from_millis(800);
/// Maximum number of places of that sample.
const SAMPLE_PLACES: usize = 48;
/// Length of each place of that sample, in bytes.
const SAMPLE_LEN: usize = 2 << 20;

/// Estimates what a rebuild needs: also undo data for the blocks that lack it.
pub fn of_rebuild(
    files: &Files<'_>,
    options: &ChainOptions,
    lengths: &FileLengths,
    Survey { index, files: [_, undo], scripts, unchecked }: &Survey,
) -> RebuildNeed {
    let (disk, chainstate, lacking) = (files.disk, files.datadir.chainstate_dir(), undo.lacking());
    let resolved = disk.resolve(&chainstate).unwrap_or(chainstate.clone());
    let free = disk.free_space(dir_of(&resolved)).ok();
    if index.is_pruned {
        return RebuildNeed { free, ..RebuildNeed::default() };
    }
    let [block_bytes, undo_bytes] = lengths.each().map(|lengths| lengths.values().sum::<u64>());
    let budget = MemoryBudget::of_blocks(options, index.blocks as usize, lacking > 0);
    let old = directory_bytes(disk, &chainstate);
    let need = DiskNeed::estimate(options.params.network, block_bytes, old, budget.join_bytes);
    let mut need = need.with_checkpoints();
    if lacking > 0 {
        let bytes = block_bytes / u64::from(index.blocks.max(1)) * u64::from(lacking);
        need = need.with_undo(bytes, lacking + 1 >= index.blocks, options.memory_bytes);
    }
    let work = work_dir_of(disk, files.datadir, options.work_dir.as_deref());
    let checked = need.check(disk, &chainstate, &work, &files.datadir.blocks_dir(), 0);
    let speeds = sampled_speeds(files, lengths);
    let (speed_range, threads) = (quartiles(&speeds), budget.threads as u64);
    let bytes = (block_bytes, undo_bytes, need.chainstate);
    let duration = |scripts| Some(time(bytes, scripts, threads, speed_range?));
    let [scripts, unchecked] = [scripts, unchecked].map(|work| work.filter(|_| options.scripts.are_run()));
    RebuildNeed {
        refusal: None,
        need,
        free,
        lacks_space: checked.is_err_and(|error| error.is_about(Subject::DiskSpace)),
        bytes_per_second: speeds.get(speeds.len() / 2).copied(),
        duration: duration(scripts),
        checked_duration: unchecked.and_then(|work| duration(Some(work))),
    }
}

/// Reads small samples of the block files. Returns the speed of each in bytes per second, ascending.
fn sampled_speeds(files: &Files<'_>, lengths: &FileLengths) -> Vec<u64> {
    let sizes: Vec<(u32, u64)> = lengths.blk.iter().map(|(&file, &len)| (file, len)).collect();
    let (started, mut buffer) = (Instant::now(), vec![0; SAMPLE_LEN]);
    // Each place in another part of the files; the last ones are more likely to be in the page cache.
    let places = SAMPLE_PLACES.min(sizes.len());
    let speed = |place: usize| {
        let &(file, len) = sizes.get(place * sizes.len() / places)?;
        let piece = buffer.get_mut(..len.min(SAMPLE_LEN as u64) as usize)?;
        let begun = Instant::now();
        let open = files.disk.open(&files.datadir.blk_path(FileNo(file))).ok()?;
        open.read_exact_at(piece, (len - piece.len() as u64) / 2).ok()?;
        let speed = piece.len() as f64 / begun.elapsed().as_secs_f64().max(1e-9);
        (!piece.is_empty()).then_some(speed as u64)
    };
    let is_in_time = |_: &usize| started.elapsed() < SAMPLE_TIME;
    let mut speeds: Vec<u64> = (0..places).take_while(is_in_time).filter_map(speed).collect();
    speeds.sort_unstable();
    speeds
}

/// Estimates the time of a rebuild that reads so many bytes of blocks and undo data, at a speed between these
/// two, and writes a chainstate of so many bytes.
fn time(
    (block_bytes, undo_bytes, coin_bytes): (u64, u64, u64),
    scripts: Option<ScriptWork>,
    threads: u64,
    (slow, fast): (u64, u64),
) -> RebuildTime {
    let checked = |speed: u64| seconds(block_bytes, speed * threads);
    let read = |speed: u64| seconds(block_bytes + undo_bytes, speed);
    let run = |speed: u64| scripts.map_or(0.0, |work| seconds(work.bytes, speed * threads));
    let (few, many) = CHECKED_BYTES_PER_SECOND;
    let written = seconds(coin_bytes, COIN_BYTES_PER_SECOND * threads);
    RebuildTime {
        blocks: span(read(fast).max(checked(many)), read(slow).max(checked(few)) + written),
        scripts: span(run(SCRIPT_BYTES_PER_SECOND.1), run(SCRIPT_BYTES_PER_SECOND.0)),
        script_work: scripts,
        is_busy: machine::is_busy(),
    }
}

/// Returns the speeds that a quarter of the samples do not reach, and that a quarter exceeds.
fn quartiles(speeds: &[u64]) -> Option<(u64, u64)> {
    let last = speeds.len().checked_sub(1)?;
    Some((*speeds.get(last / 4)?, *speeds.get(last - last / 4)?))
}

fn seconds(bytes: u64, speed: u64) -> f64 {
    bytes as f64 / speed.max(1) as f64
}

fn span(least: f64, most: f64) -> RangeInclusive<Duration> {
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    time(least)..=time(most.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Network;

    #[test]
    fn the_time_follows_from_the_speeds_of_the_disk_and_of_the_recorded_runs() {
        let work = ScriptWork::of_all(94_000_000_000);
        let of = |speeds| time((600_000_000_000, 100_000_000_000, 10_000_000_000), Some(work), 2, speeds);
        let seconds = |range: RangeInclusive<Duration>| (range.start().as_secs(), range.end().as_secs());
        let fast = of((9_000_000_000, 10_000_000_000));
        assert_eq!(seconds(fast.blocks), (750, 6_766), "the coins take at most 100 s");
        assert_eq!(seconds(fast.scripts), (7_833, 24_736));
        assert_eq!(seconds(of((50_000_000, 100_000_000)).blocks), (7_000, 14_100), "the disk is slower");
    }

    /// Bytes of blocks, bytes of those whose scripts were run, and the seconds that two threads took.
    #[test]
    fn recorded_runs_have_taken_as_long_as_is_estimated() {
        for (blocks, run, took) in [
            (2_000_000_000, 0, 2.61),
            (2_000_000_000, 0, 4.30),
            (2_000_000_000, 174_000_000, 18.8),
            // As many small blocks as mainnet has, and a disk that keeps pace.
            (4_300_000_000, 0, 30.0),
            (22_100_000_000, 0, 225.7),
        ] {
            let scripts = Some(ScriptWork::of_all(run));
            let coins = DiskNeed::estimate(Network::Regtest, blocks, None, 1 << 30).chainstate;
            let time = time((blocks, blocks / 6, coins), scripts, 2, (2_000_000_000, 5_000_000_000)).total();
            assert!(time.contains(&Duration::from_secs_f64(took)), "{took} s, estimated {time:?}");
        }
    }

    #[test]
    fn a_single_slow_sample_does_not_count() {
        assert_eq!(quartiles(&[]), None);
        assert_eq!(quartiles(&[7]), Some((7, 7)));
        let speeds = [1, 90, 100, 100, 100, 110, 7_000];
        assert_eq!(quartiles(&speeds), Some((90, 110)));
    }
}

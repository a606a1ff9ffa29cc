//! Memory and time that the plan takes, as the system reports it, for a block index of any length:
//!
//! ```text
//! export PEREGRINE_HEADERS=1000000
//! cargo test --release -p acceptance plan_memory -- --nocapture
//! ```
//!
//! Only the plan is measured, in a separate process: the test runs itself again on a datadir with an index
//! and empty block files of the right lengths, and interrupts the rebuild when the plan is made.

use acceptance::prelude::*;
use disk::index::write_block_index;
use engine::machine::{peak_memory_bytes, resident_bytes};
use std::{
    env,
    fs::{File, create_dir_all},
    io::Write as _,
};

/// The test below, as the test runner names it.
const THIS_TEST: &str = "input::plan_memory::the_plan_takes_few_bytes_per_header";
/// Names the datadir in the process that is measured.
const MEASURED: &str = "PEREGRINE_PLAN_OF";
/// Environment variable with the number of headers; [`HEADERS`] if it is not set.
const HEADER_COUNT: &str = "PEREGRINE_HEADERS";
const HEADERS: u32 = 150_000;
/// Values as in mainnet's files since 2016.
const BLOCKS_PER_FILE: u32 = 100;
const BLOCK_LEN: u32 = 1_300_000;
const UNDO_LEN: u32 = 200_000;

/// Maximum memory of a plan per header, plus [`MAX_BASE`] for code, read buffers and the allocator.
const MAX_BYTES_PER_HEADER: u64 = 88;
const MAX_BASE: u64 = 16 << 20;

/// A chain of headers with minimum work.
fn headers(count: u32) -> impl Iterator<Item = Header> {
    let params = ChainParams::of(Network::Regtest);
    let next = |prev: &Header| {
        let time = BlockTime(prev.time.0 + 600);
        let mut header = Header { version: 4, prev: prev.hash(), time, nonce: 0, ..*prev };
        mine(&mut header, has_work);
        Some(header)
    };
    std::iter::successors(Some(params.genesis), next).take(count as usize)
}

/// A datadir with everything that the plan reads.
fn make_datadir(root: &Path, count: u32) {
    let datadir = Datadir::at(root, Network::Regtest);
    create_dir_all(datadir.blocks_dir()).unwrap();
    let mut index = BlockIndex::default();
    for (height, header) in (0..).zip(headers(count)) {
        let (file, in_file) = (height / BLOCKS_PER_FILE, height % BLOCKS_PER_FILE);
        let status = BlockStatus::VALID_SCRIPTS | BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS;
        let undo = if height > 0 { BlockStatus::HAVE_UNDO } else { 0 };
        let (size, undo_size) = (BLOCK_LEN * BLOCKS_PER_FILE, UNDO_LEN * BLOCKS_PER_FILE);
        index.files.resize(file as usize + 1, FileInfo { size, undo_size, ..FileInfo::default() });
        index.entries.push(IndexEntry {
            hash: header.hash(),
            header,
            height: Height(height),
            status: BlockStatus(status | undo),
            tx_count: 2_000,
            file: Some(FileNo(file)),
            data_pos: Some(ByteOffset(u64::from(in_file * BLOCK_LEN) + 8)),
            undo_pos: (height > 0).then(|| ByteOffset(u64::from(in_file * UNDO_LEN) + 8)),
        });
    }
    for file in (0..).map(FileNo).take(index.files.len()) {
        for (path, len) in [(datadir.blk_path(file), BLOCK_LEN), (datadir.rev_path(file), UNDO_LEN)] {
            let mut created = File::create(path).unwrap();
            // Otherwise, a key would be searched for in all of the file.
            created.write_all(&[&Network::Regtest.magic()[..], &(len - 8).to_le_bytes()].concat()).unwrap();
            created.set_len(u64::from(len * BLOCKS_PER_FILE)).unwrap();
        }
    }
    write_block_index(&RealDisk, &datadir.index_dir(), &index).unwrap();
}

/// Processor time of this process in hundredths of a second, if Linux reports it.
fn processor_time() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Makes the plan, and prints what it took.
fn measure(root: &Path) {
    let (interrupt, planned) = (AtomicBool::new(false), AtomicBool::new(false));
    let (started, before) = (Instant::now(), resident_bytes().unwrap_or(0));
    let sink = |event| {
        if let Event::Planned { height, .. } = event {
            let (peak, stays) = (peak_memory_bytes().unwrap_or(0), resident_bytes().unwrap_or(0));
            let hundredths = processor_time().unwrap_or(0);
            println!("height {}, peak {peak} bytes, now {stays}, before {before}", height.0);
            println!("{} ms, {} ms of the processor", started.elapsed().as_millis(), hundredths * 10);
            interrupt.store(true, Ordering::Relaxed);
            planned.store(true, Ordering::Relaxed);
        }
    };
    let options = ReindexOptions::new(root, Network::Regtest, ScriptChecks::LeftOut);
    let result = engine::reindex(&RealDisk, &options, Watch { sink: &sink, interrupt: &interrupt })
        .map(|report| report.height);
    assert!(planned.load(Ordering::Relaxed), "{result:?}");
    // It was interrupted; or the disk is too small for the size of the sparse files.
    let kind = result.unwrap_err().kind;
    assert!(matches!(kind, ErrorKind::Interrupted | ErrorKind::Environment), "{kind:?}");
}

#[test]
fn the_plan_takes_few_bytes_per_header() {
    if let Some(root) = env::var_os(MEASURED) {
        return measure(root.as_ref());
    }
    let count = env::var(HEADER_COUNT).ok().map_or(HEADERS, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    make_datadir(dir.path(), count);
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", THIS_TEST, "--nocapture"]).env(MEASURED, dir.path());
    let output = again.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    println!("{count} headers\n{stdout}");
    let peak = stdout.split_once("peak ").and_then(|(_, rest)| rest.split_once(" bytes"));
    let peak: u64 = peak.unwrap().0.parse().unwrap();
    let most = u64::from(count) * MAX_BYTES_PER_HEADER + MAX_BASE;
    assert!(peak < most, "a plan over {count} headers takes {peak} bytes, more than {most}");
    assert!(stdout.contains(&format!("height {}, ", count - 1)), "{stdout}");
}

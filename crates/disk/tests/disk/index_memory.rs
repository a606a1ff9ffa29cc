//! Memory that rewriting a block index takes, as Linux reports it, for an index of any length:
//!
//! ```text
//! PEREGRINE_HEADERS=1000000 cargo test --release -p peregrine-disk --test disk index_memory -- --nocapture
//! ```
//!
//! The test runs itself again in a separate process, which only rewrites.

use crate::{prelude::*, written_bytes::entries};
use peregrine_disk::index::IndexRows;
use std::{env, process::Command};

/// Names the folder of the index in the process that is measured.
const MEASURED: &str = "PEREGRINE_REWRITE_OF";
/// Environment variable with the number of headers; [`HEADERS`] if it is not set.
const HEADER_COUNT: &str = "PEREGRINE_HEADERS";
const HEADERS: u32 = 200_000;

/// Maximum memory in KiB, whatever the number of headers: buffers of tables, code and the allocator. Entries
/// in memory would take more than 30 MB.
const MAX_KIB: u64 = 16 << 10;

fn write_index(dir: &Path, count: u32) {
    let mut entries = entries(0..count);
    entries.iter_mut().for_each(|entry| (entry.status, entry.tx_count) = (entry.status.validated(), 2_000));
    let files = vec![FileInfo { blocks: 100, ..FileInfo::default() }; count as usize / 100];
    let index = BlockIndex { entries, files, ..BlockIndex::default() };
    write_block_index(&RealDisk, dir, &index).unwrap();
}

fn add_undo(entry: &mut IndexEntry) {
    entry.status.0 |= BlockStatus::HAVE_UNDO;
    entry.undo_pos = Some(ByteOffset(u64::from(entry.height.0) + 8));
}

#[test]
fn rewriting_takes_the_same_memory_for_any_number_of_entries() {
    if let Some(root) = env::var_os(MEASURED) {
        let [old, new] = ["old", "new"].map(|name| Path::new(&root).join(name));
        rewrite_block_index(&RealDisk, &old, &new, [], PrunedFlag::Keep, add_undo, |_| ()).unwrap();
        println!("{}", std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        return;
    }
    let count = env::var(HEADER_COUNT).ok().map_or(HEADERS, |count| count.parse().unwrap());
    let root = tempfile::tempdir().unwrap();
    write_index(&root.path().join("old"), count);
    let name = "index_memory::rewriting_takes_the_same_memory_for_any_number_of_entries";
    let mut again = Command::new(env::current_exe().unwrap());
    let output = again.args(["--exact", name, "--nocapture"]).env(MEASURED, root.path()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let mut changed = 0;
    let count_undo = |entry: IndexEntry| changed += u32::from(entry.undo_pos.is_some());
    IndexRows::open(&RealDisk, &root.path().join("new")).unwrap().stream(count_undo).unwrap();
    assert_eq!(changed, count);
    let peak = stdout.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let Some(peak) = peak.and_then(|line| line.trim().strip_suffix(" kB")) else {
        return testkit::data::skip("this system does not report the memory of a process");
    };
    println!("{count} headers: {peak} KiB");
    assert!(peak.parse::<u64>().unwrap() < MAX_KIB, "{count} headers: {peak} KiB, more than {MAX_KIB}");
}

//! Undo data that is made equals, byte for byte, what the node or the chain generator wrote.

use super::*;
use crate::{
    job::{
        MatchStats,
        read_only_job::{JobRequest, with_read_only_job},
    },
    stages::{
        coin_sink::{CoinSink, Coins},
        method::Method,
        unspent::ForEachError,
    },
};
use api::{
    event::Watch,
    options::{ChainOptions, ResumeOptions, ScriptChecks},
};
use chain::blocks::files::Files;
use std::{collections::BTreeMap, num::NonZeroUsize, path::Path};
use testkit::{Chain as Generated, ChainSpec, data::unpack_core_datadir, datadir::Layout, fault::FaultDisk};
use wire::{Network, OutPoint};

/// Keeps undo data in memory. Positions count the records of a file.
#[derive(Default)]
struct UndoInMemory(Mutex<BTreeMap<(FileNo, u64), Record>>);

/// Height and, once it was written, the hash of the parent and the undo data.
type Record = (Height, Option<(BlockHash, Vec<u8>)>);

impl UndoInMemory {
    fn by_height(self) -> BTreeMap<Height, (BlockHash, Vec<u8>)> {
        let records = self.0.into_inner().unwrap().into_values();
        records.map(|(height, record)| (height, record.unwrap())).collect()
    }
}

impl UndoSink for UndoInMemory {
    fn start_over(&self) -> Result<(), Error> {
        self.0.lock().unwrap().clear();
        Ok(())
    }

    fn resume(&self, _: &Chain, made: &[(Height, u32)]) -> Result<bool, Error> {
        assert!(made.is_empty(), "nothing is interrupted here");
        Ok(true)
    }

    fn reserve(&self, height: Height, file: FileNo, _: usize) -> Result<ByteOffset, Error> {
        let mut records = self.0.lock().unwrap();
        let of_file = records.range((file, 0)..=(file, u64::MAX));
        assert!(of_file.clone().all(|(_, (lower, _))| *lower < height), "positions are in order of height");
        let pos = 1 + of_file.count() as u64;
        records.insert((file, pos), (height, None));
        Ok(ByteOffset(pos))
    }

    fn write(&self, undo: &PlacedUndo<'_>, _: &mut Vec<u8>) -> Result<(), Error> {
        let mut records = self.0.lock().unwrap();
        let (height, record) = records.get_mut(&(undo.file, undo.pos.0)).unwrap();
        assert_eq!(*height, undo.height, "the position was assigned to this block");
        assert_eq!(record.replace((*undo.prev, undo.data.to_vec())), None, "each record is written once");
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The coins that a job has left.
struct CoinRows;

impl CoinSink for CoinRows {
    type Output = Vec<(OutPoint, u32, Vec<u8>)>;

    fn consume(&mut self, coins: Coins<'_>) -> Result<Self::Output, ForEachError> {
        let mut rows = Vec::new();
        coins.in_sequence(|outpoint, coin| {
            rows.push((*outpoint, coin.code, coin.out.to_vec()));
            Ok(())
        })?;
        Ok(rows)
    }
}

/// What a job has found.
struct Found {
    coins: Vec<(OutPoint, u32, Vec<u8>)>,
    stats: MatchStats,
    /// Undo data by height: what was made, or else that of the file.
    undo: Vec<Vec<u8>>,
    /// Number of blocks whose undo data was made.
    made: usize,
}

/// Matches the spends of a datadir.
fn run(
    root: &Path,
    network: Network,
    method: &Method,
    set: impl Fn(&mut ChainOptions, &mut ResumeOptions),
) -> Found {
    let (mut options, mut resume) =
        (ChainOptions::new(root, network, ScriptChecks::LeftOut), ResumeOptions::default());
    set(&mut options, &mut resume);
    let (disk, interrupt) = (FaultDisk::healthy(), AtomicBool::new(false));
    let (sink, work_dir) = (UndoInMemory::default(), tempfile::tempdir().unwrap());
    let beside = work_dir.path().join("result");
    let quiet = |_| {};
    let request = JobRequest {
        chain: &options,
        scan: false,
        stop_at_height: None,
        result: Some((&beside, &resume)),
        method,
        undo_sink: Some(&sink),
    };
    let done =
        with_read_only_job(&disk, request, Watch { sink: &quiet, interrupt: &interrupt }, |job, clock| {
            let matched = job.match_spends(clock)?;
            let (coins, stats) = job.for_each_coin(matched, clock, &mut CoinRows)?;
            let chain = &job.plan.chain;
            let hashes: Vec<_> =
                (0..chain.block_count() as u32).map(|height| chain.block(Height(height)).hash).collect();
            let heights = (0..chain.block_count() as u32).map(Height);
            let in_files: Vec<_> = heights.map(|height| undo_in_file(chain, job.files, height)).collect();
            Ok((coins, stats, hashes, in_files))
        });
    let (coins, stats, hashes, mut undo) = done.unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let made = sink.by_height();
    for (height, (prev, bytes)) in &made {
        assert_eq!(*prev, hashes[height.0 as usize - 1]);
        undo[height.0 as usize].clone_from(bytes);
    }
    Found { coins, stats, undo, made: made.len() }
}

fn undo_in_file(chain: &Chain, files: &Files<'_>, height: Height) -> Vec<u8> {
    let mut record = RecordBuffer::default();
    BlockReader::new(chain, files).read_undo(height, &mut record).unwrap();
    let bytes = record.bytes();
    bytes[..bytes.len().saturating_sub(CHECKSUM_LEN)].to_vec()
}

fn remove_rev_files(root: &Path, network: Network) {
    let datadir = disk::datadir::Datadir::at(root, network);
    for entry in std::fs::read_dir(datadir.blocks_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("rev") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Threads, bytes of the join, and whether undo data is made every few blocks.
type Machine = (usize, usize, bool);

const MACHINES: [Machine; 4] =
    [(2, 100 << 10, true), (1, 1 << 30, false), (4, 1 << 30, true), (3, 300 << 10, false)];

/// Checks a datadir, with all undo data, then without any, on several machines.
fn check(root: &Path, network: Network, machines: &[Machine]) {
    let expected = run(root, network, &Method::Join, |_, _| {});
    let make = &Method::Routed { uses_undo: false };
    let same = run(root, network, make, |_, _| {});
    assert_eq!(same.made, 0, "what is there already is not made again");
    assert!(same.coins == expected.coins && same.undo == expected.undo);
    remove_rev_files(root, network);
    for uses_undo in [false, true] {
        let method = &Method::Routed { uses_undo };
        for &(threads, join_bytes, every_few_blocks) in machines {
            let found = run(root, network, method, |options, resume| {
                options.threads = NonZeroUsize::new(threads).unwrap();
                options.hooks.join_bytes = Some(join_bytes);
                if every_few_blocks {
                    resume.checkpoint_interval = Duration::ZERO;
                }
            });
            let machine = format!("{threads} threads, {join_bytes} bytes, often: {every_few_blocks}");
            assert!(found.coins == expected.coins, "{machine}");
            let differs =
                found.undo.iter().zip(&expected.undo).position(|(found, expected)| found != expected);
            assert_eq!(differs, None, "height of the first difference, {machine}");
            assert_eq!((found.undo.len(), found.made), (expected.undo.len(), expected.undo.len() - 1));
            assert_eq!(found.stats.counts, expected.stats.counts, "{machine}");
            if join_bytes < 200 << 10 {
                assert!(found.stats.spilled.runs > 0, "{machine}");
            }
        }
    }
}

#[test]
fn undo_data_of_a_generated_chain_is_made_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let chain = Generated::generate(&ChainSpec { blocks: Some(300), ..ChainSpec::new(11, 600_000) });
    chain.write_datadir(dir.path(), &Layout::new(7)).unwrap();
    check(dir.path(), Network::Regtest, &MACHINES);
}

#[test]
fn undo_data_of_core_datadirs_is_made_byte_for_byte() {
    let networks = [
        ("main", Network::Main),
        ("testnet3", Network::Test),
        ("signet", Network::Signet),
        ("regtest", Network::Regtest),
        ("regtest-siblings", Network::Regtest),
    ];
    for (name, network) in networks {
        if let Some(dir) = unpack_core_datadir(name) {
            check(dir.path(), network, &MACHINES[..1]);
        }
    }
}

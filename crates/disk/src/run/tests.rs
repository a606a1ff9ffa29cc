//! Runs come back as they were written, or not at all.

use super::*;
use crate::fs::RealDisk;
use proptest::prelude::*;
use std::ops::Range;
use std::path::PathBuf;
use wire::coin::{chainstate_key_order, compress_output, write_chainstate_key};
use wire::read::write_var_int;
use wire::{Network, Sats, Txid};

/// An entry that owns its coin.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Owned {
    spend: bool,
    outpoint: OutPoint,
    code: u32,
    out: Vec<u8>,
}

impl Owned {
    fn of(entry: &RunEntry<'_>) -> Self {
        let RunEntry { spend, outpoint, coin } = *entry;
        Self { spend, outpoint, code: coin.code, out: coin.out.to_vec() }
    }

    fn entry(&self) -> RunEntry<'_> {
        let coin = Coin { code: self.code, out: &self.out };
        RunEntry { spend: self.spend, outpoint: self.outpoint, coin }
    }
}

fn entry(first: u8, rest: u8, vout: u32, spend: bool) -> Owned {
    let mut txid = [rest; 32];
    txid[0] = first;
    let mut out = Vec::new();
    compress_output(&mut out, Sats(5_000_000_000 + i64::from(vout)), &[rest; 5]);
    Owned { spend, outpoint: OutPoint { txid: Txid(txid), vout }, code: 2 * u32::from(rest), out }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("a.run")
    }

    fn write(&self, entries: &[Owned], buffer: usize, block_len: usize) -> RunMeta {
        let _ = std::fs::remove_file(self.path());
        let mut run =
            RunWriter::with_block_len(&RealDisk, &self.path(), Network::Main, buffer, block_len).unwrap();
        entries.iter().for_each(|entry| run.add(&entry.entry()).unwrap());
        let meta = run.finish().unwrap();
        assert_eq!(meta.bytes, std::fs::metadata(self.path()).unwrap().len());
        meta
    }

    fn open(&self) -> Result<RunReader, DiskError> {
        RunReader::open(&RealDisk, &self.path(), Network::Main)
    }

    fn read_all(&self) -> Result<Vec<Owned>, DiskError> {
        read(&self.open()?, 0..SHARDS, 0)
    }
}

fn read(run: &RunReader, shards: Range<usize>, buffer: usize) -> Result<Vec<Owned>, DiskError> {
    let mut cursor = run.cursor(shards, buffer);
    let mut found = Vec::new();
    while let Some(entry) = cursor.advance()?.as_ref().map(Owned::of) {
        assert_eq!(cursor.current().as_ref().map(Owned::of).as_ref(), Some(&entry));
        found.push(entry);
    }
    assert_eq!(cursor.current(), None);
    assert!(cursor.advance()?.is_none(), "the end stays the end");
    Ok(found)
}

/// A few bytes to draw from make txids that are equal, or begin alike.
fn any_txid() -> impl Strategy<Value = Txid> {
    let byte = prop_oneof![4 => Just(0u8), 1 => Just(1), 1 => any::<u8>()];
    let head = prop::array::uniform8(byte);
    (prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], head, any::<bool>()).prop_map(
        |(first, head, tail)| {
            let mut txid = [if tail { 7 } else { 0 }; 32];
            txid[1..9].copy_from_slice(&head);
            txid[0] = first;
            Txid(txid)
        },
    )
}

fn any_vout() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..10, 1 => 120u32..140, 1 => 16_500u32..16_520, 1 => any::<u32>()]
}

/// Every kind of script, and the longest.
fn any_out() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![20 => 0u64..150, 1 => 9_990u64..=10_000];
    let script = (0u64..7, len, any::<u8>()).prop_map(|(kind, len, byte)| {
        let (kind, len) = match kind {
            0 | 1 => (kind, 20),
            2..=5 => (kind, 32),
            _ => (kind + len, len),
        };
        (kind, vec![byte; len as usize])
    });
    (any::<u64>(), 0u32..64, script).prop_map(|(amount, shift, (kind, script))| {
        let mut out = Vec::new();
        write_var_int(&mut out, amount >> shift);
        write_var_int(&mut out, kind);
        out.extend(script);
        out
    })
}

fn any_entries() -> impl Strategy<Value = Vec<Owned>> {
    let code = prop_oneof![Just(2u32), Just(1_900_001), any::<u32>()];
    let entry = (any::<bool>(), any_txid(), any_vout(), code, any_out());
    let entry = entry.prop_map(|(spend, txid, vout, code, out)| {
        let outpoint = OutPoint { txid, vout };
        Owned { spend, outpoint, code, out }
    });
    prop::collection::vec(entry, 0..200).prop_map(|mut entries| {
        entries.sort_by(|a, b| chainstate_key_order(&a.outpoint, &b.outpoint));
        entries
    })
}

/// The net sizes of a shard, from the keys and values themselves.
fn net(entries: &[Owned], shard: usize) -> NetSize {
    let mut net = NetSize::default();
    for entry in entries.iter().filter(|entry| usize::from(entry.outpoint.txid.0[0]) == shard) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        write_chainstate_key(&mut key, &entry.outpoint);
        entry.entry().coin.write_chainstate_value(&mut value);
        let sign = if entry.spend { -1 } else { 1 };
        net.coins += sign;
        net.key_bytes += sign * key.len() as i64;
        net.value_bytes += sign * value.len() as i64;
    }
    net
}

proptest! {
    #[test]
    fn any_entries_come_back_by_any_ranges(
        entries in any_entries(),
        block_len in 0usize..2000,
        buffers in (0usize..4000, 0usize..200_000),
        mut cuts in prop::collection::vec(0usize..=SHARDS, 0..5),
    ) {
        let place = Place::new();
        let meta = place.write(&entries, buffers.0, block_len);
        let spends = entries.iter().filter(|entry| entry.spend).count();
        prop_assert_eq!((meta.entries, meta.spends), (entries.len() as u64, spends as u64));
        let nets: Vec<_> = (0..SHARDS).map(|shard| net(&entries, shard)).collect();
        prop_assert_eq!(&meta.net, &nets);

        let run = place.open().unwrap();
        prop_assert_eq!(run.meta(), &meta);
        cuts.extend([0, SHARDS]);
        cuts.sort_unstable();
        let mut found = Vec::new();
        for cut in cuts.windows(2) {
            found.extend(read(&run, cut[0]..cut[1], buffers.1).unwrap());
        }
        prop_assert_eq!(found, entries);
    }
}

//! A run is read exactly as it was written, or refused.

use super::*;
use proptest::prelude::*;
use std::ops::Range;
use std::path::PathBuf;
use vfs::RealDisk;
use wire::coin::{chainstate_key_order, compressed_output, write_chainstate_key};
use wire::read::write_var_int;
use wire::{Coin, Entry, Network, OutPoint, Sats, Txid};

/// An entry that owns its coin.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Owned {
    is_spend: bool,
    outpoint: OutPoint,
    code: u32,
    out: Vec<u8>,
}

impl Owned {
    fn of(entry: &Entry<'_>) -> Self {
        let Entry { is_spend, outpoint, coin } = *entry;
        Self { is_spend, outpoint, code: coin.code, out: coin.out.to_vec() }
    }

    fn entry(&self) -> Entry<'_> {
        let coin = Coin { code: self.code, out: &self.out };
        Entry { is_spend: self.is_spend, outpoint: self.outpoint, coin }
    }
}

fn entry(first: u8, rest: u8, vout: u32, spend: bool) -> Owned {
    let mut txid = [rest; 32];
    txid[0] = first;
    let out = compressed_output(Sats(5_000_000_000 + i64::from(vout)), &[rest; 5]);
    Owned { is_spend: spend, outpoint: OutPoint { txid: Txid(txid), vout }, code: 2 * u32::from(rest), out }
}

struct RunDir(tempfile::TempDir);

impl RunDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("a.run")
    }

    fn write(&self, entries: &[Owned], buffer: usize, block_len: usize) -> SortedRunMeta {
        let _ = std::fs::remove_file(self.path());
        let mut run = SortedRunWriter::create(&RealDisk, &self.path(), Network::Main, buffer).unwrap();
        run.block_len = block_len;
        entries.iter().for_each(|entry| run.add(&entry.entry()).unwrap());
        let meta = run.finish().unwrap();
        assert_eq!(meta.bytes, std::fs::metadata(self.path()).unwrap().len());
        meta
    }

    fn open(&self) -> Result<SortedRunReader, DiskError> {
        SortedRunReader::open(&RealDisk, &self.path(), Network::Main)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
}

fn read_bytes(bytes: Vec<u8>) -> Result<Vec<Owned>, DiskError> {
    read(&SortedRunReader::from_file(Box::new(bytes), Path::new("a.run"), Network::Main)?, 0..SHARDS, 0)
}

fn read(run: &SortedRunReader, shards: Range<usize>, buffer: usize) -> Result<Vec<Owned>, DiskError> {
    let mut cursor = run.cursor(shards, buffer);
    let mut found = Vec::new();
    while let Some(entry) = cursor.advance()?.as_ref().map(Owned::of) {
        assert_eq!(cursor.current().as_ref().map(Owned::of).as_ref(), Some(&entry));
        found.push(entry);
    }
    assert_eq!(cursor.current(), None);
    assert!(cursor.advance()?.is_none(), "a cursor stays at the end");
    Ok(found)
}

/// Draws from few byte values, so that some txids are equal or have a common prefix.
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
    let vout = prop_oneof![4 => 0u32..10, 1 => 120u32..140, 1 => 16_500u32..16_520, 1 => any::<u32>()];
    let entry = (any::<bool>(), any_txid(), vout, code, any_out());
    let entry = entry.prop_map(|(spend, txid, vout, code, out)| {
        let outpoint = OutPoint { txid, vout };
        Owned { is_spend: spend, outpoint, code, out }
    });
    prop::collection::vec(entry, 0..200).prop_map(|mut entries| {
        entries.sort_by(|a, b| chainstate_key_order(&a.outpoint, &b.outpoint));
        entries
    })
}

/// Computes the net size of a shard from the encoded keys and values.
fn net(entries: &[Owned], shard: usize) -> NetSize {
    let mut net = NetSize::default();
    for entry in entries.iter().filter(|entry| usize::from(entry.outpoint.txid.0[0]) == shard) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        write_chainstate_key(&mut key, &entry.outpoint);
        entry.entry().coin.write_chainstate_value(&mut value);
        let sign = if entry.is_spend { -1 } else { 1 };
        net.coins += sign;
        net.key_bytes += sign * key.len() as i64;
        net.value_bytes += sign * value.len() as i64;
    }
    net
}

proptest! {
    #[test]
    fn entries_round_trip_however_the_shards_are_divided(
        entries in any_entries(),
        block_len in 0usize..2000,
        buffers in (0usize..4000, 0usize..200_000),
        mut cuts in prop::collection::vec(0usize..=SHARDS, 0..5),
    ) {
        let dir = RunDir::new();
        let meta = dir.write(&entries, buffers.0, block_len);
        let spends = entries.iter().filter(|entry| entry.is_spend).count();
        prop_assert_eq!((meta.entries, meta.spends), (entries.len() as u64, spends as u64));
        let nets: Vec<_> = (0..SHARDS).map(|shard| net(&entries, shard)).collect();
        prop_assert_eq!(&meta.net, &nets);

        let run = dir.open().unwrap();
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

#[test]
fn several_threads_can_read_one_run() {
    let dir = RunDir::new();
    let entries: Vec<_> =
        (0..=255).flat_map(|first| [entry(first, 1, 0, true), entry(first, 2, 9, false)]).collect();
    dir.write(&entries, 1000, 20);
    let run = dir.open().unwrap();
    let found: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let read = |shards| scope.spawn(move || read(run, shards, 0).unwrap());
        let threads: Vec<_> = [0..90, 90..91, 91..256].into_iter().map(read).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(found, entries);
}

#[test]
fn entries_of_equal_keys_keep_their_order() {
    let (made, spent) = (entry(9, 1, 0, false), entry(9, 1, 0, true));
    let entries = [spent.clone(), made.clone(), made, spent.clone(), spent];
    let dir = RunDir::new();
    let meta = dir.write(&entries, 0, BLOCK_LEN);
    assert_eq!((meta.entries, meta.spends, meta.net[9].coins), (5, 3, -1));
    assert_eq!(read_bytes(dir.bytes()).unwrap(), entries);
}

#[test]
fn empty_runs_and_runs_of_one_entry_round_trip() {
    let dir = RunDir::new();
    let meta = dir.write(&[], 0, BLOCK_LEN);
    assert_eq!((meta.bytes, meta.entries), ((HEADER_LEN + FOOTER_LEN) as u64, 0));
    assert_eq!(read_bytes(dir.bytes()).unwrap(), []);
    assert_eq!(read(&dir.open().unwrap(), 300..400, 0).unwrap(), []);
    assert_eq!(read(&dir.open().unwrap(), SHARDS - 1..usize::MAX, 0).unwrap(), []);

    let out = compressed_output(Sats(2_099_999_999_999_999), &[0x51; 10_000]);
    assert_eq!(out.len(), 10_010);
    let longest = Owned { code: u32::MAX, out, ..entry(255, 255, u32::MAX, true) };
    for one in [entry(0, 0, 0, false), entry(77, 0, 3, true), longest] {
        dir.write(std::slice::from_ref(&one), 1 << 20, BLOCK_LEN);
        assert_eq!(read_bytes(dir.bytes()).unwrap(), [one]);
    }
}

/// Returns an entry with `len` bytes of script, whose other fields have their maximum length.
fn long(rest: u8, len: u64) -> Owned {
    let mut long =
        Owned { code: u32::MAX - u32::from(rest), out: Vec::new(), ..entry(1, rest, u32::MAX, true) };
    write_var_int(&mut long.out, u64::MAX);
    write_var_int(&mut long.out, 6 + len);
    long.out.resize(long.out.len() + len as usize, 1);
    long
}

#[test]
fn the_longest_entry_may_begin_at_the_last_byte_of_a_block() {
    let dir = RunDir::new();
    let mut longest_block = 0;
    for len in 5150..5250 {
        let mut entries: Vec<_> = (0..6).map(|rest| long(rest, 10_000)).collect();
        entries.extend([long(6, len), long(7, 10_000)]);
        dir.write(&entries, 0, BLOCK_LEN);
        let bytes = dir.bytes();
        let block = u32::from_le_bytes(*bytes[HEADER_LEN + 4..].first_chunk().unwrap());
        longest_block = longest_block.max(block as usize);
        assert_eq!(read_bytes(bytes).unwrap(), entries);
    }
    assert_eq!(longest_block, MAX_CONTENT_LEN - 1);
}

#[test]
fn the_writer_refuses_malformed_coins_and_entries_out_of_order() {
    let dir = RunDir::new();
    let mut run = SortedRunWriter::create(&RealDisk, &dir.path(), Network::Main, 0).unwrap();
    let mut refuse = |entry: &Owned, flaw: &str| {
        let error = run.add(&entry.entry()).unwrap_err();
        assert!(matches!(error, DiskError::CallerError { .. }), "{error}");
        assert!(error.to_string().contains(flaw), "{error}");
    };
    for out in [&[][..], &[0], &[0, 6, 1], &[0, 7], &[0x80; 30], &[0; 21], &[0; 23]] {
        refuse(&Owned { out: out.to_vec(), ..entry(5, 5, 5, false) }, "malformed");
    }
    let kept = entry(5, 5, 16512, false);
    run.add(&kept.entry()).unwrap();
    // VARINTs sort 16512 before 16511.
    for before in
        [entry(4, 9, 0, false), entry(5, 4, 0, true), entry(5, 5, 0, true), entry(5, 5, 16511, true)]
    {
        let ordered = chainstate_key_order(&kept.outpoint, &before.outpoint).is_le();
        match run.add(&before.entry()) {
            Ok(()) => assert!(ordered, "{before:?}"),
            Err(error) => assert!(!ordered && error.to_string().contains("not in order"), "{error}"),
        }
    }
    run.finish().unwrap();
    let read = read_bytes(dir.bytes()).unwrap();
    assert_eq!(read, [kept, entry(5, 5, 16511, true)]);
}

fn small_run() -> (Vec<Owned>, Vec<u8>) {
    let entries = vec![
        entry(0, 0, 0, true),
        entry(3, 1, 0, false),
        entry(3, 1, 200, false),
        entry(3, 2, 1, true),
        entry(255, 9, 7, false),
    ];
    let dir = RunDir::new();
    // A block has two entries.
    dir.write(&entries, 50, 40);
    (entries, dir.bytes())
}

#[test]
fn refuses_every_altered_or_truncated_run() {
    let (entries, bytes) = small_run();
    assert_eq!(read_bytes(bytes.clone()).unwrap(), entries);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read_bytes(flipped).is_err(), "bit {bit} of {} is flipped", bytes.len() * 8);
    }
    for len in 0..bytes.len() {
        assert!(read_bytes(bytes[..len].to_vec()).is_err(), "{len} bytes are left");
        let cut_out = [&bytes[..len], &bytes[len + 1..]].concat();
        assert!(read_bytes(cut_out).is_err(), "byte {len} is missing");
    }
    assert!(read_bytes([&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn refuses_an_intact_block_of_another_run() {
    let dir = RunDir::new();
    let [first, second] = [1, 2].map(|rest| {
        dir.write(&[entry(3, rest, 0, false), entry(4, 7, 0, false)], 0, BLOCK_LEN);
        dir.bytes()
    });
    let run = SortedRunReader::from_file(Box::new(first.clone()), Path::new("a.run"), Network::Main).unwrap();
    let (start, end) = (run.shard(4).offset as usize, run.shard(5).offset as usize);
    assert_eq!(first[start + 4..end], second[start + 4..end], "only the chained checksum differs");
    let mixed = [&first[..start], &second[start..end], &first[end..]].concat();
    let error = read_bytes(mixed).unwrap_err().to_string();
    assert!(error.starts_with(&format!("a.run at byte {start}: checksum mismatch in a block")), "{error}");
}

#[test]
fn each_defect_has_its_own_error() {
    let (_, bytes) = small_run();
    let error = |bytes: Vec<u8>, network| {
        let run = SortedRunReader::from_file(Box::new(bytes), Path::new("a.run"), network);
        run.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        error(bytes, Network::Main)
    };
    assert_eq!(with(0, b'x'), "a.run at byte 0: not a peregrine run; the file is damaged");
    assert_eq!(
        with(8, 9),
        "a.run at byte 8: written by another version of peregrine (format 9, this one reads 1)"
    );
    assert_eq!(
        error(bytes.clone(), Network::Test),
        "a.run at byte 12: written for another network than test"
    );
    assert!(error(bytes[..100].to_vec(), Network::Main).contains("at byte 100: truncated"));
    assert!(error(bytes[..bytes.len() - 1].to_vec(), Network::Main).contains("does not end like a run"));
    assert!(with(bytes.len() - FOOTER_LEN, 0).contains("checksum mismatch in the footer"));
    let body = [&bytes[..HEADER_LEN], &bytes[bytes.len() - FOOTER_LEN..]].concat();
    assert!(error(body, Network::Main).contains("its length differs"));
}

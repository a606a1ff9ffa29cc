//! UTXO snapshots: files have the documented format, coins round-trip, and damage is reported with its
//! offset. Any bytes are tried by the fuzz targets (`testkit::fuzz`); files of Bitcoin Core are in crate
//! `acceptance`.

use crate::{faults, prelude::*};

use peregrine_disk::snapshot::{METADATA_LEN, SnapshotMetadata, SnapshotReader, SnapshotWriter};
use proptest::{collection::vec, prelude::*};
use testkit::fuzz::MemoryDisk;
use vfs::unfinished;
use wire::Sats;
use wire::coin::{chainstate_key_order, compressed_output};
use wire::read::{write_compact_size, write_var_int};

type Owned = (OutPoint, u32, Vec<u8>);

const BASE: BlockHash = BlockHash([9; 32]);

fn owned((outpoint, coin): (OutPoint, Coin<'_>)) -> Owned {
    (outpoint, coin.code, coin.out.to_vec())
}

fn out(amount: i64, script: &[u8]) -> Vec<u8> {
    compressed_output(Sats(amount), script)
}

fn write(disk: &dyn Disk, path: &Path, coins: &[Owned]) -> Result<u64, DiskError> {
    let mut writer = SnapshotWriter::create(disk, path, Network::Test.magic(), BASE, coins.len() as u64)?;
    for (outpoint, code, out) in coins {
        writer.add(outpoint, &Coin { code: *code, out })?;
    }
    writer.finish()
}

fn read(disk: &dyn Disk, path: &Path) -> Result<(SnapshotMetadata, Vec<Owned>), DiskError> {
    let mut reader = SnapshotReader::open(disk, path)?;
    let (metadata, mut coins) = (*reader.metadata(), Vec::new());
    while let Some(coin) = reader.advance()? {
        coins.push(owned(coin));
    }
    Ok((metadata, coins))
}

/// The model: encodes the documented format independently of the writer.
fn model(network: Network, coins: &[Owned]) -> Vec<u8> {
    let head = [&b"utxo\xff\x02\x00"[..], &network.magic(), &BASE.0, &(coins.len() as u64).to_le_bytes()];
    let mut bytes = head.concat();
    for tx in coins.chunk_by(|a, b| a.0.txid == b.0.txid) {
        bytes.extend(tx[0].0.txid.0);
        write_compact_size(&mut bytes, tx.len() as u64);
        for (outpoint, code, out) in tx {
            write_compact_size(&mut bytes, outpoint.vout.into());
            write_var_int(&mut bytes, (*code).into());
            bytes.extend(out);
        }
    }
    bytes
}

/// A disk with a file of these bytes.
fn memory(bytes: Vec<u8>) -> MemoryDisk {
    MemoryDisk::default().with("utxo.dat", bytes)
}

fn read_bytes(bytes: Vec<u8>) -> Result<Vec<Owned>, DiskError> {
    read(&memory(bytes), Path::new("utxo.dat")).map(|(_, coins)| coins)
}

/// The longest coins, of which one ends up at each place where the reader's buffer of 256 KiB may end.
#[test]
fn a_long_coin_is_read_wherever_the_buffer_ends() {
    let coin = |number: u8, script: usize| {
        let outpoint = OutPoint { txid: Txid([number; 32]), vout: 0x0200_0000 };
        (outpoint, u32::MAX, out(2_099_999_999_999_999, &vec![0x51; script]))
    };
    // A step is less than what a coin takes besides its script.
    for filler in (0..10_000).step_by(30) {
        let coins: Vec<_> =
            (0..30).map(|number| coin(number, if number == 0 { filler } else { 10_000 })).collect();
        assert!(read_bytes(model(Network::Test, &coins)).unwrap() == coins, "{filler}");
    }
}

/// Distinct coins in key order: many coins of few transactions, with indices at the limits of both encodings.
fn arb_coins() -> impl Strategy<Value = Vec<Owned>> {
    let edges = [0, 1, 127, 128, 252, 253, 16_511, 16_512, 65_535, 65_536, 0x0200_0000];
    let vout = prop_oneof![0u32..6, prop::sample::select(edges.to_vec())];
    let amount = prop_oneof![0..1000i64, Just(Sats::MAX_MONEY.0), (0i64..21).prop_map(|n| n * 100_000_000)];
    let script = prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 9_990..10_000)];
    let coin = (0u8..5, vout, any::<u32>(), amount, script);
    vec(coin, 0..40).prop_map(|coins| {
        let coin = |(txid, vout, code, amount, script): (u8, u32, u32, i64, Vec<u8>)| {
            (OutPoint { txid: Txid([txid; 32]), vout }, code, out(amount, &script))
        };
        let mut coins: Vec<Owned> = coins.into_iter().map(coin).collect();
        coins.sort_by(|a, b| chainstate_key_order(&a.0, &b.0));
        coins.dedup_by(|a, b| a.0 == b.0);
        coins
    })
}

proptest! {
    #[test]
    fn coins_round_trip_in_the_documented_format(coins in arb_coins()) {
        let (_dir, path) = testkit::fresh_path("utxo.dat");
        let len = write(&RealDisk, &path, &coins).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        prop_assert!(bytes == model(Network::Test, &coins));
        prop_assert_eq!(len, bytes.len() as u64);
        let (network, base_block) = (Network::Test, BASE);
        let (magic, base_height, coins_total) = (network.magic(), None, coins.len() as u64);
        let metadata = SnapshotMetadata { magic, base_block, base_height, coins: coins_total };
        prop_assert_eq!(read(&RealDisk, &path).unwrap(), (metadata, coins));
        let mut reader = SnapshotReader::open(&RealDisk, &path).unwrap();
        while reader.advance().unwrap().is_some() {}
        prop_assert_eq!(reader.position(), len);
    }
}

/// The same file with the height before the block's hash, as the draft of BIP 452 has it.
fn with_height(core: &[u8], height: u32) -> Vec<u8> {
    [&core[..11], &height.to_le_bytes(), &core[11..]].concat()
}

proptest! {
    /// No number of coins, and no txid, makes one form look like the other.
    #[test]
    fn both_forms_of_the_metadata_are_told_apart(
        coins in arb_coins(), height: u32, hash: [u8; 32], end in 0..5usize
    ) {
        let coins: Vec<Owned> = coins.into_iter().map(|(at, code, out)| (at, code % 1000, out)).collect();
        let mut core = model(Network::Test, &coins);
        core[11..43].copy_from_slice(&hash);
        // As the work of a block makes it.
        core[43 - end..43].fill(0);
        let (height, path) = (height.max(500), Path::new("utxo.dat"));
        let (plain, expected) = read(&memory(core.clone()), path).unwrap();
        prop_assert_eq!((plain.base_height, &expected), (None, &coins));
        let (draft, found) = match read(&memory(with_height(&core, height)), path) {
            Ok(read) => read,
            // Four bytes after a snapshot without coins.
            Err(error) => {
                prop_assert!(coins.is_empty(), "{}", error);
                return Ok(());
            }
        };
        prop_assert_eq!(draft, SnapshotMetadata { base_height: Some(wire::Height(height)), ..plain });
        prop_assert_eq!(found, coins);
    }
}

/// A file of 16 GiB and more could be of both forms, if its first txid is one in four billion.
#[test]
fn a_file_that_fits_both_forms_is_refused() {
    let coins = [(OutPoint { txid: Txid([0; 32]), vout: 0 }, 9, out(5, &[0x51]))];
    let mut core = model(Network::Test, &coins);
    core[51] = 1;
    let (_dir, path) = testkit::fresh_path("utxo.dat");
    std::fs::write(&path, &core).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 34).unwrap();
    let reader = SnapshotReader::open(&RealDisk, &path).unwrap();
    assert_eq!(reader.metadata().coins, 1, "too short for the other");
    file.set_len((1 << 34) + 100).unwrap();
    let error = SnapshotReader::open(&RealDisk, &path).err().unwrap().to_string();
    assert!(error.contains("a snapshot of 1 coins") && error.contains("4294967296 coins"), "{error}");
}

#[test]
fn the_stated_height_bounds_the_coins() {
    let coins = [(OutPoint { txid: Txid([1; 32]), vout: 0 }, 9 << 1, out(5, &[0x51]))];
    let core = model(Network::Test, &coins);
    let path = Path::new("utxo.dat");
    let (metadata, _) = read(&memory(with_height(&core, 9)), path).unwrap();
    assert!(metadata.check_height(path, wire::Height(9)).is_ok());
    let error = metadata.check_height(path, wire::Height(10)).unwrap_err().to_string();
    assert!(error.contains("at byte 11: the height is 9") && error.contains("has 10;"), "{error}");
    let error = read_bytes(with_height(&core, 8)).unwrap_err().to_string();
    assert!(error.contains("at byte 55: ") && error.contains("of height 9 is above"), "{error}");
}

/// The coins fill the buffer several times, and some are longer than the free part of it.
#[test]
fn coins_across_buffer_boundaries_round_trip() {
    let coin = |number: u32| {
        let script = vec![0x51; (number * 37 % 10_001) as usize];
        let txid =
            Txid(std::array::from_fn(|at| if at < 2 { (number / 3).to_be_bytes()[2 + at] } else { 7 }));
        (OutPoint { txid, vout: number % 3 }, number, out(i64::from(number), &script))
    };
    let coins: Vec<Owned> = (0..300).map(coin).collect();
    let (_dir, path) = testkit::fresh_path("utxo.dat");
    write(&RealDisk, &path, &coins).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 5 * (256 << 10) && bytes == model(Network::Test, &coins));
    assert_eq!(read_bytes(bytes).unwrap(), coins);
}

#[test]
fn errors_name_offset_and_defect() {
    let coins: Vec<Owned> = [(1, 0), (1, 2), (2, 0)]
        .map(|(txid, vout)| (OutPoint { txid: Txid([txid; 32]), vout }, 9, out(5, &[0x51])))
        .to_vec();
    let good = model(Network::Test, &coins);
    let check = |at: usize, new: &[u8], offset: usize, flaw: &str| {
        let mut bytes = good.clone();
        bytes.splice(at..at + new.len(), new.iter().copied());
        let error = read_bytes(bytes).unwrap_err().to_string();
        let place = format!("utxo.dat at byte {offset}: ");
        assert!(error.starts_with(&place) && error.contains(flaw), "{error}");
    };
    let first = METADATA_LEN;
    check(0, b"utxp", 0, "not a UTXO snapshot");
    check(5, &[3], 5, "version 3 is not supported");
    check(43, &[0xff; 8], 43, "18446744073709551615 coins do not fit into the 81 bytes");
    check(43, &[2], first + 43, "38 bytes follow the last coin");
    check(43, &[4], good.len(), "the file ends inside a coin");
    check(first + 32, &[0], first, "has 0 coins while 3 are left");
    check(first + 32, &[4], first, "has 4 coins while 3 are left");
    check(first + 33, &[0xfd, 1, 0], first, "a CompactSize is longer");
    check(first + 33, &[0xfe, 1, 0, 0, 2], first, "index of 33554433 is too large");
    check(first + 34, &[0xff; 11], first, "does not fit into 64 bits");
    let mut code = Vec::new();
    write_var_int(&mut code, 1 << 32);
    check(first + 34, &code, first, "code 4294967296 does not fit into 32 bits");
    check(first + 38, &[0], first + 38, "is out of order");
    let last = good.len() - 38;
    check(last, &[1; 32], last, "is out of order");
    let mut many = coins.clone();
    many[0].2 = out(Sats::MAX_MONEY.0 + 1, &[]);
    let error = read_bytes(model(Network::Test, &many)).unwrap_err().to_string();
    assert!(error.contains("has 2100000000000001 satoshis, more than can exist"), "{error}");
    many[0].2 = [&[5][..], &[0xcd, 0x17], &[0x51; 10_001]].concat();
    let error = read_bytes(model(Network::Test, &many)).unwrap_err().to_string();
    assert!(error.contains("script of 10001 bytes is above the limit"), "{error}");
    let error = read_bytes([&good[..], &[0]].concat()).unwrap_err().to_string();
    assert!(error.contains(&format!("at byte {}: 1 bytes follow the last coin", good.len())), "{error}");
    let error = read_bytes(good[..50].to_vec()).unwrap_err().to_string();
    assert!(error.contains("at byte 50: a UTXO snapshot has at least 51 bytes"), "{error}");
}

/// Coins of one transaction wait in memory for their number when they are written again: a file with 8 GB of
/// them got each run killed.
#[test]
fn a_transaction_with_more_coins_than_a_block_can_have_is_refused() {
    let coins = |count: u32| -> Vec<Owned> {
        let coin = |vout| (OutPoint { txid: Txid([1; 32]), vout }, 9, out(5, &[0x51; 10_000]));
        (0..count).map(coin).collect()
    };
    assert_eq!(read_bytes(model(Network::Test, &coins(399))).unwrap().len(), 399);
    let error = read_bytes(model(Network::Test, &coins(400))).unwrap_err().to_string();
    assert!(error.contains("has coins of more than 4000000 bytes"), "{error}");
}

#[test]
fn an_unknown_magic_is_that_of_a_custom_signet() {
    let mut bytes = model(Network::Test, &[]);
    bytes[7..11].copy_from_slice(&[1, 2, 3, 4]);
    let metadata = read(&memory(bytes), Path::new("utxo.dat")).unwrap().0;
    assert_eq!((metadata.network(), metadata.magic), (Network::Signet, [1, 2, 3, 4]));
}

#[test]
fn a_wrong_order_or_count_is_a_caller_error() {
    let (dir, path) = testkit::fresh_path("utxo.dat");
    let coin = Coin { code: 9, out: &out(5, &[0x51]) };
    let outpoint = |vout| OutPoint { txid: Txid([1; 32]), vout };
    let mut writer = SnapshotWriter::create(&RealDisk, &path, Network::Main.magic(), BASE, 2).unwrap();
    writer.add(&outpoint(16_512), &coin).unwrap();
    let wrong = [16_512, 0, 127].map(|vout| writer.add(&outpoint(vout), &coin));
    assert!(wrong.iter().all(|result| matches!(result, Err(DiskError::CallerError { .. }))), "{wrong:?}");
    // In key order, 80 80 00 is before ff 7f.
    writer.add(&outpoint(16_511), &coin).unwrap();
    let more = writer.add(&OutPoint { txid: Txid([2; 32]), vout: 0 }, &coin);
    assert!(matches!(more, Err(DiskError::CallerError { .. })));
    writer.finish().unwrap();
    let taken = SnapshotWriter::create(&RealDisk, &path, Network::Main.magic(), BASE, 2).map(|_| ());
    assert!(taken.unwrap_err().to_string().contains("it exists already"), "a snapshot is never replaced");

    let other = dir.path().join("other.dat");
    let writer = SnapshotWriter::create(&RealDisk, &other, Network::Main.magic(), BASE, 1).unwrap();
    assert!(matches!(writer.finish(), Err(DiskError::CallerError { .. })));
    assert!(!other.exists() && !incomplete(&other).exists());
    std::fs::write(incomplete(&other), "left by a crash").unwrap();
    let writer = SnapshotWriter::create(&RealDisk, &other, Network::Main.magic(), BASE, 1).unwrap();
    assert_eq!(std::fs::read(incomplete(&other)).unwrap(), b"", "the next writer replaces it");
    drop(writer);
    assert!(!incomplete(&other).exists(), "it removes its own");
}

#[test]
fn files_of_the_user_beside_a_snapshot_stay() {
    let (dir, path) = testkit::fresh_path("utxo.dat");
    for suffix in [".incomplete", ".part", ".records"] {
        std::fs::write(dir.path().join(format!("utxo.dat{suffix}")), "mine").unwrap();
    }
    let writer = SnapshotWriter::create(&RealDisk, &path, Network::Main.magic(), BASE, 0).unwrap();
    writer.finish().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
    // A directory that has the name of the temporary file is not ours either.
    let other = dir.path().join("other.dat");
    std::fs::create_dir(incomplete(&other)).unwrap();
    let error =
        SnapshotWriter::create(&RealDisk, &other, Network::Main.magic(), BASE, 0).err().unwrap().to_string();
    assert!(error.contains("move it away"), "{error}");
}

#[test]
fn a_link_to_a_missing_file_is_followed() {
    let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (path, target) = (dir.path().join("utxo.dat"), elsewhere.path().join("target"));
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let writer = SnapshotWriter::create(&RealDisk, &path, Network::Main.magic(), BASE, 0).unwrap();
    assert!(incomplete(&target).exists() && !incomplete(&path).exists());
    writer.finish().unwrap();
    assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink() && target.is_file());
}

fn incomplete(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(unfinished::SUFFIX);
    name.into()
}

/// Whichever operation fails, the snapshot is complete or absent, and the next attempt succeeds.
#[test]
fn a_snapshot_is_complete_or_absent_after_any_failure() {
    let coins: Vec<Owned> = (0..100)
        .map(|txid| (OutPoint { txid: Txid([txid; 32]), vout: 0 }, 9, out(5, &[0x51; 9_000])))
        .collect();
    let write = |disk: &dyn Disk, path: &Path| write(disk, path, &coins).map(drop);
    faults::check(write, |path, what| {
        // If only the sync of the directory fails, the file has been renamed already.
        if !path.exists() {
            write(&RealDisk, path).unwrap();
        }
        assert_eq!(read(&RealDisk, path).unwrap().1, coins, "{what}");
        assert!(!incomplete(path).exists(), "{what}");
    });
}

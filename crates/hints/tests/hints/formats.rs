//! Hint files: all formats represent the same hints, are distinguished by content, can be read from any
//! height, and are safe to read when damaged.

use crate::common::{Block, Chain, check, real, simulated, write};
use flate2::{Compression, write::GzEncoder};
use hex_conservative::{DisplayHex as _, decode_to_vec};
use peregrine_hints::{
    HintFormat, HintInfo, HintReader, HintWriter, HintsError, Numbering, NumberingError, renumber,
};
use std::{fs, io::Write as _, path::PathBuf, sync::atomic::AtomicBool};
use tempfile::TempDir;
use testkit::rng::Rng;
use vfs::RealDisk;
use wire::{BlockHash, Height, Network};

struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("hints")
    }

    fn open(&self, format: Option<HintFormat>) -> Result<HintReader, HintsError> {
        HintReader::open(&RealDisk, &self.path(), format)
    }
}

fn open(bytes: &[u8], format: Option<HintFormat>) -> Result<HintReader, HintsError> {
    let dir = Dir::new();
    std::fs::write(dir.path(), bytes).unwrap();
    dir.open(format)
}

fn read(mut reader: HintReader) -> Result<Vec<Vec<u32>>, HintsError> {
    let (mut all, mut unspent) = (Vec::new(), Vec::new());
    while reader.next_block(&mut unspent)?.is_some() {
        all.push(unspent.clone());
    }
    Ok(all)
}

fn bytes_of(format: HintFormat, chain: &Chain) -> Vec<u8> {
    let dir = Dir::new();
    write(&dir.path(), format, chain);
    std::fs::read(dir.path()).unwrap()
}

/// Writes the hints of a chain as a program does that has no blocks.
fn write_without_blocks(dir: &Dir, format: HintFormat, chain: &Chain) -> HintInfo {
    let height = Height(chain.blocks.len() as u32);
    let mut writer = HintWriter::create(&RealDisk, &dir.path(), format, None, height, None).unwrap();
    for block in &chain.blocks {
        writer.push_block(None, &block.hints(format.numbering()).1).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns a chain with these hints; each block has ten more outputs after the last hint.
fn chain_of(blocks: &[&[u32]]) -> Chain {
    let block = |hints: &&[u32]| Block {
        spendable: vec![true; hints.last().map_or(0, |last| *last as usize + 1) + 10],
        unspent: hints.to_vec(),
    };
    let blocks = blocks.iter().map(block).collect();
    Chain { name: "list", network: Network::Regtest, tip: BlockHash([7; 32]), blocks }
}

fn text(result: Result<HintReader, HintsError>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_else(|| panic!("the file was accepted"))
}

#[test]
fn every_format_round_trips_and_is_recognised_by_content() {
    for chain in [simulated(700, 1)].into_iter().chain(real()) {
        for format in HintFormat::ALL {
            let dir = Dir::new();
            let written = write(&dir.path(), format, &chain);
            let reader = dir.open(None).or_else(|error| {
                assert_eq!(chain.name, "signet", "coinbases alone can match two formats: {error}");
                dir.open(Some(format))
            });
            let mut reader = reader.unwrap();
            assert_eq!(format.name().parse(), Ok(format));
            let info = reader.info().clone();
            assert!(info.outputs.is_none() || info.outputs == written.outputs);
            let (outputs, height) = (info.outputs, Height(chain.blocks.len() as u32));
            assert_eq!(info, HintInfo { format, height, outputs, ..written }, "{}", chain.name);
            check(&mut reader, &chain);
            check(&mut reader.fork(), &chain);
            reader.verify(&AtomicBool::new(false)).unwrap();
            let names: Vec<_> = std::fs::read_dir(dir.0.path()).unwrap().collect();
            assert_eq!(names.len(), 1, "no other file is left");
        }
    }
    assert!("bip-456".parse::<HintFormat>().is_err());
}

#[test]
fn a_link_to_a_missing_file_is_followed() {
    let chain = simulated(20, 6);
    // A bitmap file has two temporary files.
    for format in [HintFormat::Peregrine, HintFormat::Bitmap] {
        let (dir, elsewhere) = (Dir::new(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path().join("target"), dir.path()).unwrap();
        write(&dir.path(), format, &chain);
        assert!(fs::symlink_metadata(dir.path()).unwrap().is_symlink());
        check(&mut dir.open(Some(format)).unwrap(), &chain);
        for folder in [dir.0.path(), elsewhere.path()] {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "no other file is left");
        }
    }
}

#[test]
fn blocks_can_be_read_in_any_order() {
    let chain = simulated(500, 2);
    for format in HintFormat::ALL {
        let dir = Dir::new();
        write(&dir.path(), format, &chain);
        let (mut reader, mut rng, mut unspent) =
            (dir.open(None).unwrap(), Rng::new(3, "hint files"), Vec::new());
        for _ in 0..if format == HintFormat::Btcd { 40 } else { 1500 } {
            let height = 1 + rng.below(500) as u32;
            reader.block(Height(height), &mut unspent).unwrap();
            assert_eq!(unspent, chain.blocks[height as usize - 1].hints(format.numbering()).1);
        }
        for beyond in [0, 501, u32::MAX] {
            reader.block(Height(beyond), &mut unspent).unwrap();
            assert!(unspent.is_empty());
        }
        assert_eq!(reader.next_block(&mut unspent).unwrap(), Some(Height(1)));
    }
}

#[test]
fn bip456_records_equal_those_of_the_bip_and_of_the_crate() {
    let cases: [(&[u32], &[u8], &[u8]); 4] = [
        (&[3, 7, 12], &[3, 12, 0xf0, 0xa4], &[3, 12, 0x0f, 0x25]),
        (&[0], &[1, 0, 0x80], &[1, 0, 1]),
        (&[], &[0], &[0]),
        (
            &[13, 16, 19, 22, 25, 28, 31, 34, 37, 40],
            &[0x0a, 0x28, 0x8d, 0x8d, 0x80, 0x16, 0xad, 0x50],
            &[0x0a, 0x28, 0xb1, 0xb1, 0x01, 0x68, 0xb5, 0x0a],
        ),
    ];
    for (hints, most_first, least_first) in cases {
        let chain = chain_of(&[hints]);
        let header = b"UTXO\0\x01\0\0\0";
        assert_eq!(bytes_of(HintFormat::Bip456, &chain), [header, &[0][..], most_first].concat());
        assert_eq!(bytes_of(HintFormat::Bip456Lsb, &chain), [header, least_first].concat());
    }
}

/// Existing files must stay readable, and the bytes must not change without a new version.
#[test]
fn each_format_has_its_documented_bytes() {
    let chain = chain_of(&[&[3, 7, 12]]);
    let utxo = |version: u8| [b"UTXO", &[version, 1, 0, 0, 0][..]].concat();
    let bitmap = [0x17, 0, 0x88, 0x10, 0];
    let cases = [
        (HintFormat::TheStack, [&[1, 0, 0][..], &bitmap, &[0, 0]].concat()),
        (HintFormat::SwiftSync2140, [&[7; 32][..], &[3, 3, 7, 12]].concat()),
        (
            HintFormat::Bitmap,
            [&utxo(0)[..], &[1, 0, 0, 0, 21, 0, 0, 0, 0, 0, 0, 0, 0x17, 0], &[0, 0], &bitmap[2..]].concat(),
        ),
        (HintFormat::Peregrine, golden()),
    ];
    for (format, bytes) in cases {
        assert_eq!(bytes_of(format, &chain).to_lower_hex_string(), bytes.to_lower_hex_string(), "{format}");
        check(&mut open(&bytes, Some(format)).unwrap(), &chain);
    }
    let gzip = bytes_of(HintFormat::Btcd, &chain);
    let mut inside = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut inside).unwrap();
    assert_eq!(inside, [&utxo(1)[..], &[3, 3, 3, 4]].concat());
}

/// Peregrine's own format, version 1: block 1 of regtest has 23 outputs, of which 3, 7 and 12 are unspent.
fn golden() -> Vec<u8> {
    let hex = "504748494e54530a01000100fabfb5da010000000707070707070707070707070707070707070707\
                070707070707070707070707d3fe9e800a1c64b6040000000e3dcb8d01003c000000000000000100\
                0000030000000000000017000000000000005ffc61738509dab131beece83c0df0ec7f68da5bb8e0\
                8ddf7001c65d53c4963101d24b0e";
    decode_to_vec(hex).unwrap()
}

#[test]
fn the_variants_of_bip456_are_distinguished() {
    let chain = simulated(300, 4);
    for format in [HintFormat::Bip456, HintFormat::Bip456Lsb] {
        for genesis in [false, true] {
            let dir = Dir::new();
            let written = write_without_blocks(&dir, format, &chain);
            if written.first_record_is_genesis != Some(genesis) {
                let mut bytes = std::fs::read(dir.path()).unwrap();
                bytes.splice(9..if genesis { 9 } else { 10 }, genesis.then_some(0));
                std::fs::write(dir.path(), bytes).unwrap();
            }
            let mut reader = dir.open(None).unwrap();
            assert_eq!(reader.info().format, format);
            assert_eq!(reader.info().first_record_is_genesis, Some(genesis));
            check(&mut reader, &chain);
        }
    }
    // A genesis block with a hint, no record, one record too many.
    for records in [&[1, 0, 1, 0][..], &[], &[0, 0, 0]] {
        let bytes = [b"UTXO\0\x01\0\0\0", records].concat();
        assert!(open(&bytes, Some(HintFormat::Bip456Lsb)).is_err(), "{records:?}");
    }
}

#[test]
fn an_ambiguous_file_is_refused_until_its_format_is_named() {
    let empty = chain_of(&[&[], &[], &[]]);
    for format in [HintFormat::Bip456, HintFormat::Bip456Lsb] {
        let reader = open(&bytes_of(format, &empty), None).unwrap();
        assert_eq!(reader.info().format, HintFormat::Bip456, "both bit orders give the same hints");
    }
    // Only a header: bip456 without blocks or a bitmap without blocks.
    let header = b"UTXO\0\0\0\0\0";
    let refused = open(header, None).err().unwrap();
    assert!(matches!(&refused, HintsError::Ambiguous { .. }), "{refused}");
    assert!(refused.to_string().contains("bip456 and as bitmap"), "{refused}");
    assert!(open(header, Some(HintFormat::Bitmap)).is_ok());
    // Blocks of one output, each unspent or not, match both formats without a header.
    let bytes = [1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0];
    let refused = text(open(&bytes, None));
    assert!(refused.contains("thestack and as swiftsync2140 without a block hash"), "{refused}");
    assert_eq!(read(open(&bytes, Some(HintFormat::TheStack)).unwrap()).unwrap(), [[0], [0]]);
}

#[test]
fn swiftsync2140_files_with_and_without_a_block_hash_are_distinguished() {
    for chain in [simulated(400, 5)].into_iter().chain(real()) {
        let with = bytes_of(HintFormat::SwiftSync2140, &chain);
        let reader = open(&with, Some(HintFormat::SwiftSync2140)).unwrap();
        assert_eq!(reader.info().block_hash, Some(chain.tip), "{}", chain.name);
        check(&mut open(&with, Some(HintFormat::SwiftSync2140)).unwrap(), &chain);
        let mut without = open(&with[32..], Some(HintFormat::SwiftSync2140)).unwrap();
        assert_eq!(without.info().block_hash, None, "{}", chain.name);
        check(&mut without, &chain);
    }
}

/// The files that made other readers panic or allocate without bound, and similar ones.
#[test]
fn inputs_that_crash_other_readers_are_refused() {
    let utxo = |version: u8, height: u32, rest: &[u8]| {
        [b"UTXO", &[version][..], &height.to_le_bytes(), rest].concat()
    };
    let cases: [(&str, HintFormat, Vec<u8>); 14] = [
        ("more hints than outputs", HintFormat::Bip456, utxo(0, 1, &[5, 2, 0xff, 0xff])),
        ("a CompactSize of 64 bits", HintFormat::Bip456, utxo(0, 1, &[0xff; 9])),
        ("billions of hints", HintFormat::Bip456, utxo(0, 1, &[0xfe, 0, 0, 0, 0x80, 1])),
        ("a last index of billions", HintFormat::Bip456Lsb, utxo(0, 1, &[1, 0xfe, 0xff, 0xff, 0xff, 0xff])),
        ("trailing bytes", HintFormat::Bip456, utxo(0, 1, &[0, 1, 0, 0x80, 0x99, 0x77])),
        ("a size not in its shortest encoding", HintFormat::Bip456, utxo(0, 1, &[0xfd, 1, 0, 0, 0x80])),
        ("no records", HintFormat::Bip456, utxo(0, u32::MAX, &[])),
        ("a table beyond the end", HintFormat::Bitmap, utxo(0, u32::MAX, &[0; 64])),
        (
            "a table with a wrong offset",
            HintFormat::Bitmap,
            utxo(0, 1, &[[1, 0, 0, 0, 0xff, 0xff]; 4].concat()),
        ),
        ("billions of indices", HintFormat::SwiftSync2140, [&[9; 32][..], &[0xfe, 0, 0, 0, 0x80]].concat()),
        ("descending indices", HintFormat::SwiftSync2140, [&[9; 32][..], &[2, 5, 5]].concat()),
        ("no end mark", HintFormat::TheStack, vec![1, 0, 0, 1, 0, 1]),
        ("bits after the last output", HintFormat::TheStack, vec![1, 0, 0, 1, 0, 2, 0, 0]),
        ("an unknown version", HintFormat::Peregrine, [b"PGHINTS\n", &[9; 200][..]].concat()),
    ];
    for (what, format, bytes) in cases {
        let error = text(open(&bytes, Some(format)));
        let parts = [" at byte ", "download or create it again"];
        assert!(parts.iter().all(|part| error.contains(part)), "{what}: {error}");
        assert!(open(&bytes, None).is_err(), "{what}");
    }
    assert!(text(open(&[], None)).contains("empty"));
    assert!(text(open(b"no hints", None)).contains("at byte"));
}

/// A zero byte is a record of some formats, and a sparse file or gzip can contain billions of them.
#[test]
fn billions_of_zeros_are_refused_quickly() {
    let (_dir, holes) = testkit::fresh_path("holes");
    fs::File::create(&holes).unwrap().set_len(100 << 30).unwrap();
    let error = text(HintReader::open(&RealDisk, &holes, Some(HintFormat::SwiftSync2140)));
    assert!(error.contains("there are more than 16777216 records"), "{error}");

    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"UTXO\x01\xff\xff\xff\xff").unwrap();
    (0..32).for_each(|_| gzip.write_all(&[0; 1 << 20]).unwrap());
    let error = text(open(&gzip.finish().unwrap(), None));
    assert!(error.contains("there are more than 16777216 records"), "{error}");
}

/// Each entry of the index once took 24 bytes of memory before anything said how many there can be.
#[test]
fn impossible_numbers_of_groups_are_refused_before_they_are_read() {
    let (mut many, mut high) = (golden(), golden());
    // One block, and its group of four bytes after the header, is followed by an index of one entry.
    let entry = many[60..70].repeat(1000);
    many.splice(70..70, entry);
    let groups = many.len() - 56;
    many[groups..groups + 4].copy_from_slice(&1001_u32.to_le_bytes());
    high[16..20].copy_from_slice(&16_777_217_u32.to_le_bytes());
    for (mut bytes, words) in [(many, "1001 groups of 1 blocks"), (high, "1 groups of 16777217 blocks")] {
        testkit::fuzz::reseal::hints(&mut bytes);
        let error = text(open(&bytes, None));
        assert!(error.contains(words), "{error}");
    }
}

/// Files with checksums: gzip has them, except of its header, and Peregrine's own format.
#[test]
fn all_damage_to_files_with_checksums_is_found() {
    let mut chain = simulated(70, 8);
    for block in &mut chain.blocks {
        block.spendable.truncate(30);
        block.unspent.retain(|hint| *hint < 30);
    }
    for (format, what, first) in [(HintFormat::Peregrine, "at byte", 0), (HintFormat::Btcd, "", 10)] {
        let whole = bytes_of(format, &chain);
        let is_refused = |bytes: &[u8], words: &str| {
            let read = open(bytes, Some(format)).and_then(|reader| {
                reader.verify(&AtomicBool::new(false))?;
                read(reader)
            });
            read.is_err_and(|error| error.to_string().contains(words))
        };
        assert!(!is_refused(&whole, ""));
        for len in 0..whole.len() {
            assert!(is_refused(&whole[..len], ""), "{format}: cut to {len} bytes");
        }
        let follow = if format == HintFormat::Btcd { "bytes follow" } else { "" };
        for more in [&[0][..], b"x", &whole] {
            assert!(is_refused(&[&whole[..], more].concat(), follow), "{format}: {} bytes more", more.len());
        }
        let mut flipped = whole;
        for at in first..flipped.len() {
            flipped[at] ^= 1 << (at % 8);
            assert!(is_refused(&flipped, what), "{format}: byte {at} changed");
            flipped[at] ^= 1 << (at % 8);
        }
    }
}

/// In formats without checksums, damage is refused or gives other hints, but never panics.
#[test]
fn damage_to_any_format_never_panics() {
    let chain = simulated(30, 9);
    for format in HintFormat::ALL {
        let bytes = bytes_of(format, &chain);
        let (mut rng, mut refused) = (Rng::new(10, "hint files"), 0);
        for round in 0..100 {
            let mut damaged = bytes.clone();
            match round % 4 {
                0 => damaged.truncate(rng.below(bytes.len() as u64) as usize),
                1 => damaged.extend((0..1 + rng.below(9)).map(|_| rng.next_u64() as u8)),
                2 => drop(damaged.drain(..rng.below(40) as usize)),
                _ => {
                    let at = rng.below(bytes.len() as u64) as usize;
                    damaged[at] = rng.next_u64() as u8;
                }
            }
            for as_format in [None, Some(format)] {
                let read = open(&damaged, as_format).and_then(read);
                refused += u32::from(read.is_err());
                assert!(read.iter().flatten().all(|hints| hints.is_sorted_by(|a, b| a < b)));
            }
        }
        assert!(refused > 50, "{format}: {refused} of 200");
    }
}

#[test]
fn writers_refuse_what_their_format_cannot_represent() {
    let dir = Dir::new();
    let create = |format, hash| {
        HintWriter::create(&RealDisk, &dir.path(), format, None, Height(2), hash).map_err(|e| e.to_string())
    };
    assert!(create(HintFormat::SwiftSync2140, None).err().unwrap().contains("needs the hash"));
    for format in HintFormat::ALL {
        let hash = Some(BlockHash([1; 32]));
        let push = |outputs, unspent: &[u32]| {
            create(format, hash)?.push_block(outputs, unspent).map_err(|error| error.to_string())
        };
        assert!(push(Some(3), &[1, 1]).unwrap_err().contains("not an ascending list"), "{format}");
        assert!(push(Some(3), &[3]).is_err() && push(Some(111_112), &[]).is_err());
        assert!(push(None, &[u32::MAX]).is_err());
        assert!(push(Some(3), &[0, 2]).is_ok());
        let needs_outputs = matches!(format, HintFormat::TheStack | HintFormat::Bitmap);
        assert_eq!(push(None, &[2]).is_err(), needs_outputs, "{format}");
        let too_large = push(Some(65_536), &[65_535]);
        assert_eq!(too_large.is_err(), format == HintFormat::TheStack, "{too_large:?}");

        let mut writer = create(format, hash).unwrap();
        writer.push_block(Some(1), &[0]).unwrap();
        assert!(writer.finish().unwrap_err().to_string().contains("1 of 2 blocks"));
        let left = fs::read_dir(dir.0.path()).unwrap().count();
        assert_eq!(left, 0, "{format}: a failed writer leaves no file");
    }
}

/// An interrupt waited until a file was decoded.
#[test]
fn an_interrupt_ends_the_check_of_a_file() {
    let mut bytes = bytes_of(HintFormat::Peregrine, &simulated(70, 8));
    let number = bytes.len() - 52;
    bytes[number..number + 8].copy_from_slice(&1_u64.to_le_bytes());
    testkit::fuzz::reseal::hints(&mut bytes);
    let is_valid = |interrupt| open(&bytes, None).unwrap().verify(&AtomicBool::new(interrupt)).is_ok();
    assert_eq!([false, true].map(is_valid), [false, true]);
}

#[test]
fn a_file_written_without_outputs_returns_none_for_them() {
    let (chain, dir) = (simulated(100, 11), Dir::new());
    write_without_blocks(&dir, HintFormat::Peregrine, &chain);
    let mut reader = dir.open(None).unwrap();
    let info = reader.info();
    assert_eq!((info.network, info.block_hash, info.outputs), (None, None, None));
    check(&mut reader, &chain);
    assert_eq!(reader.outputs(), None);
    reader.verify(&AtomicBool::new(false)).unwrap();
}

#[test]
fn the_largest_blocks_round_trip() {
    let all: Vec<u32> = (0..111_111).collect();
    let hints = [&all[..], &[0, 111_110], &[111_110], &[]];
    let of = |height: u32| hints[height as usize % hints.len()];
    for format in HintFormat::ALL.into_iter().filter(|format| *format != HintFormat::TheStack) {
        let (dir, height, hash) = (Dir::new(), Height(20), Some(BlockHash([7; 32])));
        let mut writer = HintWriter::create(&RealDisk, &dir.path(), format, None, height, hash).unwrap();
        (1..=20).for_each(|height| writer.push_block(Some(111_111), of(height)).unwrap());
        writer.finish().unwrap();
        let (mut reader, mut unspent) = (dir.open(Some(format)).unwrap(), Vec::new());
        for height in [1, 2, 20, 19, 10, 8] {
            reader.block(Height(height), &mut unspent).unwrap();
            assert_eq!(unspent, of(height), "{format} {height}");
        }
    }
}

#[test]
fn a_long_file_can_be_read_from_any_height() {
    // So many records that the index drops positions.
    const EMPTY: u32 = 1_100_000;
    let mut bytes = vec![9; 32];
    bytes.extend(vec![0; EMPTY as usize]);
    bytes.extend([2, 3, 5, 1, 4]);
    let mut reader = open(&bytes, Some(HintFormat::SwiftSync2140)).unwrap();
    assert_eq!(reader.info().height, Height(EMPTY + 2));
    let mut unspent = Vec::new();
    for (height, hints) in [(EMPTY + 2, &[4][..]), (EMPTY + 1, &[3, 5]), (1, &[]), (EMPTY + 2, &[4])] {
        reader.block(Height(height), &mut unspent).unwrap();
        assert_eq!(unspent, hints, "block {height}");
    }
}

#[test]
fn numberings_convert_into_each_other() {
    let spendable = [true, false, true, true, false, true];
    let convert = |hints: &[u32], from, to| {
        let mut hints = hints.to_vec();
        renumber(&mut hints, from, to, spendable).map(|()| hints)
    };
    use Numbering::{AllOutputs as All, SpendableOutputs as Spendable};
    assert_eq!(convert(&[0, 3, 5], All, Spendable), Ok(vec![0, 2, 3]));
    assert_eq!(convert(&[0, 2, 3], Spendable, All), Ok(vec![0, 3, 5]));
    assert_eq!(convert(&[], All, Spendable), Ok(vec![]));
    assert_eq!(convert(&[0, 5], All, All), Ok(vec![0, 5]));
    assert_eq!(convert(&[1], All, Spendable), Err(NumberingError::Unspendable { index: 1 }));
    assert_eq!(convert(&[6], All, Spendable), Err(NumberingError::Beyond { index: 6, outputs: 6 }));
    assert_eq!(convert(&[4], Spendable, All), Err(NumberingError::Beyond { index: 4, outputs: 4 }));
    for block in &simulated(200, 12).blocks {
        let mut hints = block.hints(Spendable).1;
        renumber(&mut hints, Spendable, All, block.spendable.iter().copied()).unwrap();
        assert_eq!(hints, block.unspent);
    }
}

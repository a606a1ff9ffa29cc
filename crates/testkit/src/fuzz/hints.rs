//! Fuzz targets for hint files: any bytes, read as each format, are refused or are valid hints.

use super::{memory::MemoryDisk, reseal};
use crate::prelude::*;
use flate2::{Compression, write::GzEncoder};
use hints::{HintFormat, HintReader, HintWriter, MAX_OUTPUTS, packed::Unpacked};
use std::{
    io::{Read as _, Write as _},
    sync::atomic::AtomicBool,
};

/// Maximum number of blocks that are read: gzip makes millions of empty ones out of few bytes.
const MAX_BLOCKS: u32 = 5_000;

/// Number of bytes up to which packed files are unpacked.
const MAX_UNPACKED: usize = 64 << 10;

/// The file is read as each format, and as the format that is detected.
pub fn file(bytes: &[u8]) -> bool {
    let disk = MemoryDisk::default().with("hints", bytes);
    let fine = HintFormat::ALL.map(|format| {
        let reader = open(&disk, Some(format));
        reader.map(|reader| walk(reader, format)).unwrap_or(false)
    });
    if let Some(reader) = open(&disk, None) {
        let format = reader.info().format;
        assert!(walk(reader, format) || format == HintFormat::Peregrine);
    }
    fine.contains(&true)
}

/// Peregrine's format, with correct checksums.
pub fn peregrine(bytes: &[u8]) -> bool {
    let mut sealed = bytes.to_vec();
    reseal::hints(&mut sealed);
    let disk = MemoryDisk::default().with("hints", sealed);
    let Some(reader) = open(&disk, Some(HintFormat::Peregrine)) else { return false };
    let verified = reader.verify(&AtomicBool::new(false)).is_ok();
    let walked = walk(reader, HintFormat::Peregrine);
    assert!(walked || !verified, "what is verified can be read");
    walked
}

/// A file that may be packed: what it unpacks to does not depend on how much is asked for at once.
pub fn packed(bytes: &[u8]) -> bool {
    let read = |piece: usize| {
        let mut unpacked = Unpacked::new(bytes).expect("bytes in memory can be read");
        let (mut plain, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match unpacked.read(&mut buffer) {
                Ok(0) => return (plain, true),
                Ok(len) => plain.extend_from_slice(&buffer[..len]),
                Err(_) => return (plain, false),
            }
            if plain.len() >= MAX_UNPACKED {
                plain.truncate(MAX_UNPACKED);
                return (plain, true);
            }
        }
    };
    let (plain, is_complete) = read(MAX_UNPACKED);
    let (in_pieces, is_complete_too) = read(17);
    assert_eq!(is_complete, is_complete_too);
    assert!(!is_complete || plain == in_pieces);
    is_complete
}

fn open(disk: &MemoryDisk, format: Option<HintFormat>) -> Option<HintReader> {
    HintReader::open(disk, Path::new("hints"), format).ok()
}

/// Checks that hints ascend, that their number is as announced, and that they are the same in any order of
/// reading. Returns whether all could be read. Only Peregrine's format may fail here; the others were read
/// once by `open`.
fn walk(mut reader: HintReader, format: HintFormat) -> bool {
    let info = reader.info().clone();
    assert_eq!(info.format, format);
    let (mut unspent, mut again, mut sum) = (Vec::new(), Vec::new(), 0);
    let mut other = reader.fork();
    let last = info.height.0.min(MAX_BLOCKS);
    for height in 1..=last {
        match reader.next_block(&mut unspent) {
            Ok(found) => assert_eq!(found, Some(Height(height))),
            Err(error) => {
                assert_eq!(format, HintFormat::Peregrine, "{error}");
                return false;
            }
        }
        assert!(unspent.is_sorted_by(|a, b| a < b));
        assert!(unspent.last().is_none_or(|index| *index < MAX_OUTPUTS));
        assert!(reader.outputs().is_none_or(|outputs| unspent.last().is_none_or(|index| *index < outputs)));
        sum += unspent.len() as u64;
        if height % 7 == 1 && format != HintFormat::Btcd {
            let back = last + 1 - height;
            if other.block(Height(back), &mut again).is_ok() && back == height {
                assert_eq!(unspent, again);
            }
        }
    }
    assert!(last < info.height.0 || sum == info.hints || format == HintFormat::Peregrine);
    true
}

/// Returns hints of some blocks in each format, and in BIP-0456's other form.
pub fn files() -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = HintFormat::ALL.into_iter().map(sample).collect();
    let mut without_genesis = sample(HintFormat::Bip456);
    without_genesis.remove(b"UTXO\0\x0c\0\0\0".len());
    files.push(without_genesis);
    files
}

/// Returns files of some bytes in xz and in gzip, and one in btcd's format, which is gzip by itself.
pub fn packed_files() -> Vec<Vec<u8>> {
    let plain = sample(HintFormat::TheStack);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&plain).expect("memory can be written");
    let gzip = gzip.finish().expect("memory can be written");
    vec![
        liblzma::encode_all(plain.as_slice(), 1).expect("memory can be read"),
        [&gzip[..], &gzip].concat(),
        gzip,
        sample(HintFormat::Btcd),
    ]
}

pub fn peregrine_files() -> Vec<Vec<u8>> {
    vec![sample(HintFormat::Peregrine)]
}

fn sample(format: HintFormat) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary folders can be created");
    let path = dir.path().join("hints");
    let (network, hash) = (Some(Network::Regtest), Some(BlockHash([0x5e; 32])));
    let height = Height(12);
    let writer = HintWriter::create(&RealDisk, &path, format, network, height, hash);
    let mut writer = writer.expect("the file can be made");
    for block in 0..height.0 {
        let outputs = 1 + block * block * 7;
        let unspent: Vec<u32> =
            (0..outputs).filter(|index| index * (block + 3) % 11 < 2 + block / 3).collect();
        writer.push_block(Some(outputs), &unspent).expect("the block fits");
    }
    writer.finish().expect("the file can be finished");
    std::fs::read(path).expect("the file is there")
}

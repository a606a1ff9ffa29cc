//! Tests of the reader's errors; appending is tested in `testkit`, which has blocks and faulty disks.

use super::*;
use crate::blk;
use vfs::RealDisk;
use wire::{ByteOffset, Network};

const MAGIC: [u8; 4] = Network::Regtest.magic();

#[test]
fn errors_state_what_was_found_and_expected() {
    let dir = tempfile::tempdir().unwrap();
    let datadir = Datadir::at(dir.path(), Network::Regtest);
    RealDisk.create_dir_all(&datadir.blocks_dir()).unwrap();
    let obfuscation = Obfuscation::from_key([3; 8]);
    let files = BlockFiles::new(&RealDisk, &datadir, obfuscation);
    let missing = files.open(FileKind::Blk, FileNo(0)).err().unwrap();
    assert_eq!(missing.source.kind(), std::io::ErrorKind::NotFound);

    let mut bytes = Vec::new();
    blk::write_record(&mut bytes, MAGIC, &[7; 100]);
    let second = bytes.len() as u64 + 8;
    blk::write_record(&mut bytes, MAGIC, &[8; 50]);
    bytes.truncate(bytes.len() - 1);
    let third = bytes.len() as u64 + 8;
    bytes.extend([&MAGIC[..], &u32::MAX.to_le_bytes()].concat());
    let end = bytes.len() as u64;
    obfuscation.apply(&mut bytes, 0);
    for kind in [FileKind::Blk, FileKind::Rev] {
        std::fs::write(files.path(kind, FileNo(0)), &bytes).unwrap();
        let file = files.open(kind, FileNo(0)).unwrap();
        let mut buffer = RecordBuffer::default();
        let mut read =
            |pos| file.read(ByteOffset(pos), &mut buffer).map_err(|error| (error.offset, error.flaw));
        assert!(read(8).is_ok());
        assert!(matches!(read(7), Err((0, RecordFlaw::StartsInFrame { pos: 7 }))));
        let found = [MAGIC[1], MAGIC[2], MAGIC[3], 100];
        assert!(matches!(read(9), Err((1, RecordFlaw::Magic { found: f, expected: MAGIC })) if f == found));
        let (at, longest) = (third - 8, if kind == FileKind::Blk { 0x0200_0000 } else { 256 << 20 });
        let oversized = read(third);
        assert!(
            matches!(oversized, Err((offset, RecordFlaw::Oversized { len: 0xffff_ffff, longest: l }))
                if (offset, l) == (at, longest)),
            "{oversized:?}"
        );
        let beyond = read(end + 1);
        assert!(matches!(beyond, Err((_, RecordFlaw::StartsBeyondEnd { file_len })) if file_len == end));
        // The third frame follows the second record, whose last byte is missing: only the length shows it.
        assert!(read(second).is_ok() || kind == FileKind::Rev);
        let expected = if kind == FileKind::Blk { 50 } else { 132 };
        assert_eq!(buffer.bytes().len(), expected);
    }
    let blk = files.path(FileKind::Blk, FileNo(0));
    std::fs::write(&blk, &bytes[..bytes.len() - 10]).unwrap();
    let cut = files.open(FileKind::Blk, FileNo(0)).unwrap();
    let error = cut.read(ByteOffset(second), &mut RecordBuffer::default()).unwrap_err();
    assert!(matches!(error.flaw, RecordFlaw::EndsBeyondEnd { len: 50, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("blk00000.dat at byte 108: the record of 50 bytes runs beyond"), "{text}");
}

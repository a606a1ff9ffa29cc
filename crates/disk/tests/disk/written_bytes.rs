//! The bytes of databases stay what they were when their hashes were recorded here: the names and the
//! contents of all files depend only on the rows and their division into ranges.

use crate::prelude::*;
use digest::sha256::sha256;
use std::ops::Range;
use wire::{FileNo, Header, Height};

/// Returns the hash of the names and the bytes of all files in a directory.
fn hash(dir: &Path) -> String {
    let mut all = Vec::new();
    for (name, bytes) in snapshot(dir).unwrap() {
        all.extend_from_slice(format!("{} {}\n", name.display(), bytes.len()).as_bytes());
        all.extend_from_slice(&bytes);
    }
    BlockHash(sha256(&all)).to_string()
}

/// Writes a chainstate with as many coins in each range; each has a script of this length.
fn chainstate(ranges: &[u32], script_len: usize) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (key, count) = (Obfuscation::from_key([1, 2, 3, 4, 5, 6, 7, 8]), ranges.len() as u32);
    let out = [&[9, 0x80, 0x80, 7][..], &vec![0x51; script_len]].concat();
    let mut new = ChainstateReader::create(&RealDisk, dir.path(), key).unwrap();
    let update = new.update(BlockHash([5; 32])).unwrap();
    let write = |(index, &coins): (u32, &u32)| {
        let mut range = update.numbered_range(index, count);
        for number in 0..coins {
            let mut txid = Txid([index as u8; 32]);
            txid.0[1..5].copy_from_slice(&number.to_be_bytes());
            let coin = Coin { code: number, out: &out };
            range.set(&OutPoint { txid, vout: number % 3 }, Some(&coin)).unwrap();
        }
        range.finish().unwrap()
    };
    let tables: Vec<_> = (0..).zip(ranges).map(write).collect();
    update.commit(tables).unwrap();
    hash(dir.path())
}

#[test]
fn the_files_of_a_new_chainstate_are_the_same_as_ever() {
    let hashes = [
        chainstate(&[], 0),
        chainstate(&[3000], 20),
        chainstate(&[100, 0, 2000, 1], 20),
        // Two tables of the first range.
        chainstate(&[4000, 10], 9000),
    ];
    let expected = [
        "bb6e99da74ac811642e698bdf736790339129aade4bebc656467cf2462f6255c",
        "71aa5fbfd0c5240b27ca3b7c1832a3d7852a2864b2923ff8ac6c152baad2fb49",
        "10cf328a023f6a6120c8123642cbb6a5a46122508e06407cfdda6b14e81d5a2f",
        "44bf61eb830f458275cf37d3826db61a05833020516bc6659aabeace90155797",
    ];
    assert_eq!(hashes, expected);
}

/// Entries of stored blocks, one at each height, in the order of their hashes.
pub fn entries(nonces: Range<u32>) -> Vec<IndexEntry> {
    let entry = |nonce: u32| {
        let header = Header { nonce, ..Header::default() };
        let (file, data_pos) = (Some(FileNo(nonce / 100)), Some(ByteOffset(8)));
        let of_header = IndexEntry::of_header(header.hash(), header, Height(nonce));
        IndexEntry { status: BlockStatus::stored(true), tx_count: 2, file, data_pos, ..of_header }
    };
    let mut entries: Vec<_> = nonces.map(entry).collect();
    entries.sort_by_key(|entry| entry.hash);
    entries
}

#[test]
fn the_files_of_a_new_block_index_are_the_same_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    let info = |number: u32| FileInfo { blocks: 1, size: 1_000 + number, ..FileInfo::default() };
    let index =
        BlockIndex { files: (0..20).map(info).collect(), entries: entries(0..2000), ..BlockIndex::default() };
    write_block_index(&RealDisk, &old, &index).unwrap();
    let added = entries(1900..2500);
    let change = |entry: &mut IndexEntry| {
        if entry.height.0.is_multiple_of(7) {
            entry.status = entry.status.validated();
        }
    };
    let files = |files: &mut Vec<FileInfo>| files.push(info(99));
    rewrite_block_index(&RealDisk, &old, &new, added, PrunedFlag::Set, change, files).unwrap();
    let expected = [
        "1b83692b6e91b712d9879da8f936479869d75170f6195430cf77919e525224d9",
        "f6800b0acad2f9c88befac71c4b70e3e6f0ab2d4078390dbb31668195d436373",
    ];
    assert_eq!([hash(&old), hash(&new)], expected);
}

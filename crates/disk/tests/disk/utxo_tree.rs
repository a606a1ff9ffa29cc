//! Snapshots in chunks: the tree against a second implementation, both forms of the list of leaves, and
//! folders that are complete or absent.

use crate::faults;

use digest::sha256::sha256d;
use peregrine_disk::{
    DiskError,
    snapshot::SnapshotOutput as _,
    utxo_tree::{ChunkWriter, TREE_NAME, UtxoTree, chunk_name},
};
use std::{fs, path::Path, sync::mpsc};
use tempfile::TempDir;
use testkit::{corrupt::snapshot, fault::FaultDisk, rng::Rng};
use vfs::{Disk, RealDisk};
use wire::BlockHash;

const BLOCK: BlockHash = BlockHash([7; 32]);
const CHUNK_LEN: u64 = 64;

/// The model: the root of the leaves `first..end`, from the top of the tree.
fn root_of(leaves: &[[u8; 32]]) -> [u8; 32] {
    if let [only] = leaves {
        return *only;
    }
    // The left part is full: its size is the largest power of two below the number of leaves.
    let mut left = 1;
    while left * 2 < leaves.len() {
        left *= 2;
    }
    sha256d(&[root_of(&leaves[..left]), root_of(&leaves[left..])].concat())
}

fn bytes(len: u64) -> Vec<u8> {
    let mut rng = Rng::new(len, "chunks");
    (0..len).map(|_| rng.below(256) as u8).collect()
}

fn tree_of(bytes: &[u8]) -> UtxoTree {
    let leaves = bytes.chunks(CHUNK_LEN as usize).map(sha256d).collect();
    UtxoTree { block: BLOCK, len: bytes.len() as u64, leaves, chunk_len: CHUNK_LEN }
}

/// Writes bytes in pieces of a length that is no divisor of the chunks'.
fn write(disk: &dyn Disk, dir: &Path, bytes: &[u8]) -> Result<UtxoTree, DiskError> {
    let mut writer = ChunkWriter::create(disk, dir, CHUNK_LEN)?;
    bytes.chunks(37).try_for_each(|piece| writer.append(piece))?;
    writer.finish(BLOCK, |tree| format!("{} chunks", tree.leaves.len()))
}

/// Checks that a folder has exactly the chunks of `bytes` and their tree.
fn assert_complete(dir: &Path, bytes: &[u8]) {
    let (tree, mut found) = (tree_of(bytes), snapshot(dir).unwrap());
    assert_eq!(found.remove(Path::new(TREE_NAME)), Some(tree.encode()));
    let file = found.remove(Path::new("tree.json"));
    assert_eq!(file, Some(format!("{} chunks", tree.leaves.len()).into_bytes()));
    let joined: Vec<u8> =
        (0..).map_while(|index| found.remove(Path::new(&chunk_name(index)))).flatten().collect();
    assert!(joined == bytes && found.is_empty(), "{:?}", found.keys());
}

#[test]
fn the_root_is_that_of_a_tree_from_the_top_for_1_to_40_chunks() {
    for chunks in 1..=40 {
        for len in [chunks * CHUNK_LEN, chunks * CHUNK_LEN - 1, (chunks - 1) * CHUNK_LEN + 1] {
            let (dir, bytes) = (TempDir::new().unwrap(), bytes(len));
            let set = dir.path().join("set");
            let tree = write(&FaultDisk::healthy(), &set, &bytes).unwrap();
            assert_complete(&set, &bytes);
            assert_eq!((tree.leaves.len() as u64, tree.root()), (chunks, root_of(&tree.leaves)), "{len}");
            let part = |index| {
                let range = tree.range(index);
                &bytes[range.start as usize..range.end as usize]
            };
            for index in 0..chunks {
                assert_eq!(tree.check(index, part(index)), Ok(()));
            }
            if chunks > 1 {
                assert_eq!(tree.check(0, part(1)), Err(Some(1)));
            }
            assert_eq!(tree.check(chunks, part(0)), Err(Some(0)), "there is no such chunk");
            assert_eq!(tree.check(0, &part(0)[1..]), Err(None));
        }
    }
    // Three leaves: the third moves up. If it were paired with itself, a fourth would be no other set.
    let [a, b, c] = [1, 2, 3].map(|byte| [byte; 32]);
    let tree = UtxoTree { leaves: vec![a, b, c], ..tree_of(&bytes(3 * CHUNK_LEN)) };
    assert_eq!(tree.root(), sha256d(&[sha256d(&[a, b].concat()), c].concat()));
}

#[test]
fn leaves_are_read_with_and_without_their_number() {
    for chunks in [1, 2, 252, 253, 254, 300] {
        let tree = tree_of(&bytes(chunks * CHUNK_LEN - 5));
        let plain = tree.encode();
        assert_eq!(plain.len() as u64, 42 + 32 * chunks, "the draft states no number");
        assert_eq!(UtxoTree::decode(&plain, CHUNK_LEN), Ok(tree.clone()));
        let with_number = |number: u64| {
            let mut bytes = plain[..42].to_vec();
            wire::read::write_compact_size(&mut bytes, number);
            bytes.extend(&plain[42..]);
            bytes
        };
        assert_eq!(UtxoTree::decode(&with_number(chunks), CHUNK_LEN), Ok(tree));
        let (offset, flaw) = UtxoTree::decode(&with_number(chunks ^ 1), CHUNK_LEN).unwrap_err();
        assert!(offset == 42 && flaw.contains("number before the leaves") || flaw.contains("leaves follow"));
    }
}

#[test]
fn a_wrong_tree_is_refused_with_its_offset() {
    let good = tree_of(&bytes(5 * CHUNK_LEN)).encode();
    let check = |edit: &dyn Fn(&mut Vec<u8>), offset: u64, flaw: &str| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        let found = UtxoTree::decode(&bytes, CHUNK_LEN).unwrap_err();
        assert!(found.0 == offset && found.1.contains(flaw), "{found:?}");
    };
    check(&|bytes| bytes.truncate(41), 41, "a tree has at least 42 bytes");
    check(&Vec::clear, 0, "a tree has at least 42 bytes");
    check(&|bytes| bytes[32] = 3, 32, "of version 3, only 2 is known");
    check(&|bytes| bytes[34..42].fill(0), 34, "the tree is of 0 bytes");
    check(&|bytes| bytes[34..42].fill(0xff), 42, "288230376151711744 chunks, but 160 bytes of leaves follow");
    check(&|bytes| bytes.truncate(42), 42, "320 bytes have 5 chunks, but 0 bytes of leaves follow");
    check(&|bytes| bytes.truncate(42 + 4 * 32), 42, "but 128 bytes");
    check(&|bytes| bytes.extend([0; 32]), 42, "but 192 bytes");
    check(&|bytes| bytes.push(0), 42, "the number before the leaves is not 5");
    // Once, this was a divisor.
    assert!(UtxoTree::decode(&good, 0).is_err());
}

#[test]
fn a_folder_is_never_replaced_and_files_of_others_stay() {
    let (dir, bytes) = (TempDir::new().unwrap(), bytes(200));
    let set = dir.path().join("set");
    write(&RealDisk, &set, &bytes).unwrap();
    let error = write(&RealDisk, &set, &bytes).unwrap_err().to_string();
    assert!(error.contains("something of that name already"), "{error}");
    assert_complete(&set, &bytes);
    let (other, building) = (dir.path().join("other"), dir.path().join("other.peregrine-part"));
    fs::create_dir(&building).unwrap();
    fs::write(building.join("mine"), "mine").unwrap();
    let error = write(&RealDisk, &other, &bytes).unwrap_err().to_string();
    assert!(error.contains("mine: this is not of the directory that is written here"), "{error}");
    assert_eq!(fs::read_dir(&building).unwrap().count(), 1);
    fs::remove_file(building.join("mine")).unwrap();
    // What a crash has left, also of a longer set.
    for name in ["000000.chunk", "000099.chunk", "tree.json", "utxotree", "utxotree.peregrine-part"] {
        fs::write(building.join(name), "torn").unwrap();
    }
    write(&RealDisk, &other, &bytes).unwrap();
    assert_complete(&other, &bytes);
    assert!(!building.exists());
    // A writer that is dropped leaves nothing.
    let third = dir.path().join("third");
    let mut writer = ChunkWriter::create(&RealDisk, &third, CHUNK_LEN).unwrap();
    writer.append(&bytes).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// Once, the folder was unlocked before it had its name: another run emptied it.
#[test]
fn no_other_run_takes_a_folder_before_it_has_its_name() {
    let (dir, bytes) = (TempDir::new().unwrap(), bytes(200));
    let [set, tree] = ["set", "set.peregrine-part/utxotree"].map(|name| dir.path().join(name));
    let (tries, tried) = mpsc::channel();
    let other = (set.clone(), bytes.clone());
    let attempt = move || tries.send(write(&RealDisk, &other.0, &other.1).is_ok()).unwrap();
    let disk = FaultDisk::healthy().watched(tree, attempt);
    write(&disk, &set, &bytes).unwrap();
    let tried: Vec<bool> = tried.try_iter().collect();
    assert!(!tried.is_empty() && !tried.contains(&true), "{tried:?}");
    assert_complete(&set, &bytes);
}

/// Whichever operation fails, and whatever a power cut takes: a folder with its name is complete, and the
/// next attempt succeeds.
#[test]
fn a_folder_is_complete_or_absent_after_any_failure() {
    let bytes = bytes(500);
    let write = |disk: &dyn Disk, set: &Path| write(disk, set, &bytes).map(drop);
    faults::check(write, |set, _| {
        if !set.exists() {
            write(&RealDisk, set).unwrap();
        }
        assert_complete(set, &bytes);
    });
}

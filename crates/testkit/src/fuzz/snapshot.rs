//! The fuzz targets for UTXO snapshots and the trees of their chunks.

use super::{
    memory::MemoryDisk,
    samples::{SampleCoin, coins, files},
};
use crate::prelude::*;
use disk::{
    snapshot::{SnapshotReader, SnapshotWriter},
    utxo_tree::UtxoTree,
};

const NAME: &str = "utxo.dat";

/// A snapshot whose coins can all be read is the same when they are written again.
pub fn snapshot(bytes: &[u8]) -> bool {
    let disk = MemoryDisk::default().with(NAME, bytes);
    let Ok(mut reader) = SnapshotReader::open(&disk, Path::new(NAME)) else { return false };
    let metadata = *reader.metadata();
    // Per transaction: txid, coins, and their bytes.
    let mut txs: Vec<([u8; 32], u64, Vec<u8>)> = Vec::new();
    let mut coins = 0;
    loop {
        match reader.advance() {
            Err(_) => return false,
            Ok(None) => break,
            Ok(Some((outpoint, coin))) => {
                coins += 1;
                super::wire::check_coin(&coin);
                if txs.last().is_none_or(|tx| tx.0 != outpoint.txid.0) {
                    txs.push((outpoint.txid.0, 0, Vec::new()));
                }
                let tx = txs.last_mut().expect("one was pushed at least");
                tx.1 += 1;
                write_compact_size(&mut tx.2, outpoint.vout.into());
                write_var_int(&mut tx.2, coin.code.into());
                tx.2.extend_from_slice(coin.out);
            }
        }
    }
    assert_eq!((coins, reader.position()), (metadata.coins, bytes.len() as u64));
    let mut again = bytes[..metadata.len_in_file()].to_vec();
    for (txid, count, coins) in txs {
        again.extend(txid);
        write_compact_size(&mut again, count);
        again.extend(coins);
    }
    assert!(again == bytes);
    true
}

/// Returns snapshots without coins, of coins with scripts of all forms, and of transactions of which several
/// outputs are unspent; from 16,512 on, the order of outputs is not that of their numbers.
pub fn seeds() -> Vec<Vec<u8>> {
    let file = |coins: &[SampleCoin]| {
        let mut written = files(|dir| {
            let (path, magic, count) = (dir.join(NAME), Network::Regtest.magic(), coins.len() as u64);
            let mut file = SnapshotWriter::create(&RealDisk, &path, magic, BlockHash([7; 32]), count)?;
            coins.iter().try_for_each(|coin| file.add(&coin.outpoint, &coin.coin()))?;
            file.finish().map(drop)
        });
        written.swap_remove(0).1
    };
    let places = [(1, 0), (1, 1), (1, 300), (2, 16_512), (2, 16_511)];
    let several: Vec<SampleCoin> = coins(places.len())
        .into_iter()
        .zip(places)
        .map(|(coin, (txid, vout))| SampleCoin {
            outpoint: OutPoint { txid: Txid([txid; 32]), vout },
            ..coin
        })
        .collect();
    let core = file(&several);
    let draft = [&core[..11], &1000u32.to_le_bytes(), &core[11..]].concat();
    vec![file(&[]), file(&coins(100)), core, draft]
}

/// Length of the chunks of the trees.
const CHUNK_LEN: u64 = 64;

/// A tree that can be read is the same when it is written again, without the number of its leaves.
pub fn utxo_tree(bytes: &[u8]) -> bool {
    let Ok(tree) = UtxoTree::decode(bytes, CHUNK_LEN) else { return false };
    let again = tree.encode();
    assert!(bytes.starts_with(&again[..42]) && bytes.ends_with(&again[42..]));
    assert!(bytes.len() - again.len() <= 5, "a CompactSize of 32 bits");
    let ends = tree.range(tree.leaves.len() as u64 - 1).end;
    assert!(ends == tree.len && (tree.root() == tree.leaves[0]) == (tree.leaves.len() == 1));
    true
}

/// Returns trees of one leaf and of several, one with the number of leaves.
pub fn utxo_trees() -> Vec<Vec<u8>> {
    let tree = |count: u8| {
        let (block, len) = (BlockHash([7; 32]), u64::from(count) * CHUNK_LEN);
        let leaves = (1..=count).map(|leaf| [leaf; 32]).collect();
        UtxoTree { block, len, leaves, chunk_len: CHUNK_LEN }.encode()
    };
    let several = tree(5);
    let with_number = [&several[..42], &[5], &several[42..]].concat();
    vec![tree(1), several, with_number]
}

//! The fuzz targets for UTXO snapshots and the trees of their chunks.

use super::memory::MemoryDisk;
use ::wire::{
    Coin, Network, Sats,
    coin::compress_output,
    read::{write_compact_size, write_var_int},
};
use disk::{snapshot::SnapshotReader, utxo_tree::UtxoTree};
use std::path::Path;

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

/// Returns an empty snapshot, and snapshots of a few transactions whose coins have scripts of all forms.
pub fn seeds() -> Vec<Vec<u8>> {
    let file = |txs: &[(u8, &[u32])]| {
        let coins: usize = txs.iter().map(|(_, vouts)| vouts.len()).sum();
        let head = [&b"utxo\xff\x02\x00"[..], &Network::Regtest.magic(), &[7; 32]];
        let mut bytes = [&head.concat()[..], &(coins as u64).to_le_bytes()].concat();
        let scripts: [&[u8]; 5] = [
            &[&[0x76, 0xa9, 20][..], &[1; 20], &[0x88, 0xac]].concat(),
            &[&[0xa9, 20][..], &[2; 20], &[0x87]].concat(),
            &[&[33, 3][..], &[3; 32], &[0xac]].concat(),
            &[&[0, 20][..], &[4; 20]].concat(),
            &[],
        ];
        let mut number = 0;
        for (txid, vouts) in txs {
            bytes.extend([*txid; 32]);
            write_compact_size(&mut bytes, vouts.len() as u64);
            for vout in *vouts {
                let mut out = Vec::new();
                compress_output(&mut out, Sats(number * 700_000), scripts[number as usize % 5]);
                write_compact_size(&mut bytes, (*vout).into());
                Coin { code: number as u32 * 90, out: &out }.write_chainstate_value(&mut bytes);
                number += 1;
            }
        }
        bytes
    };
    let core = file(&[(1, &[0, 1, 300]), (2, &[16_512, 16_511])]);
    let draft = [&core[..11], &1000u32.to_le_bytes(), &core[11..]].concat();
    vec![file(&[]), core, draft, file(&[(1, &[0]), (2, &[0]), (9, &[70_000])])]
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
        let (block, len) = (::wire::BlockHash([7; 32]), u64::from(count) * CHUNK_LEN);
        let leaves = (1..=count).map(|leaf| [leaf; 32]).collect();
        UtxoTree { block, len, leaves, chunk_len: CHUNK_LEN }.encode()
    };
    let several = tree(5);
    let with_number = [&several[..42], &[5], &several[42..]].concat();
    vec![tree(1), several, with_number]
}

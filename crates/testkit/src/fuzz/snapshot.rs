//! The fuzz target for UTXO snapshots.

use super::memory::MemoryDisk;
use ::wire::{
    Coin, Network, Sats,
    coin::compress_output,
    read::{write_compact_size, write_var_int},
};
use disk::snapshot::{METADATA_LEN, SnapshotReader};
use std::path::Path;

const NAME: &str = "utxo.dat";

/// A snapshot whose coins can all be read is the same when they are written again.
pub fn snapshot(bytes: &[u8]) -> bool {
    let disk = MemoryDisk::default().with(NAME, bytes);
    let Ok(mut reader) = SnapshotReader::open(&disk, Path::new(NAME)) else { return false };
    let announced = reader.metadata().coins;
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
    assert_eq!((coins, reader.position()), (announced, bytes.len() as u64));
    let mut again = bytes[..METADATA_LEN].to_vec();
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
    vec![
        file(&[]),
        file(&[(1, &[0, 1, 300]), (2, &[16_512, 16_511])]),
        file(&[(1, &[0]), (2, &[0]), (9, &[70_000])]),
    ]
}

//! Thousands of unusual outputs in one transaction: tests the compression of coins and their order in the
//! chainstate.

use crate::{generated::core_and_rebuild_agree, prelude::*};
use bitcoin::{Amount, ScriptBuf, TxOut, hex::FromHex as _};
use std::ops::Range;
use testkit::mutation::{BlockBuilder, BuilderCoin};

/// More than 16,512 outputs: up to index 16,511, the order of keys in the chainstate is numeric.
const OUTPUTS: usize = 17_000;
/// Indices of the outputs with the shortest script.
const PLAIN: Range<usize> = 5_000..16_000;
/// Outputs that are spent: on both sides of where the encoding changes, and the last one.
const SPENT: [u32; 6] = [0, 127, 128, 16_511, 16_512, OUTPUTS as u32 - 1];
/// x and y of the generator, a point on the curve.
const ON_CURVE: [&str; 2] = [
    "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
    "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8",
];

/// Returns a script in one of the forms that are compressed, or nearly so.
fn script(rng: &mut Rng) -> Vec<u8> {
    let [x, y] = ON_CURVE.map(|digits| Vec::from_hex(digits).expect("hex digits"));
    let mut hash = [0; 20];
    rng.fill(&mut hash);
    let first = [0, 2, 3, 4, 5, 6, 7][rng.below(7) as usize];
    let mut script = match rng.below(7) {
        0 => [&[0x76, 0xa9, 20][..], &hash, &[0x88, 0xac]].concat(),
        1 => [&[0xa9, 20][..], &hash, &[0x87]].concat(),
        2 => [&[33, first][..], &x, &[0xac]].concat(),
        3 => [&[65, 4][..], &x, &y, &[0xac]].concat(),
        4 => [&[65, first][..], &x, &y, &[0xac]].concat(),
        5 => vec![0x51; [0, 1, 121, 122, 123, 300][rng.below(6) as usize]],
        _ => [&[0, 20][..], &hash].concat(),
    };
    if rng.chance(1, 2) && !script.is_empty() {
        let at = rng.below(script.len() as u64) as usize;
        match rng.below(3) {
            0 => script[at] ^= 1 << rng.below(8),
            1 => drop(script.pop()),
            _ => script.insert(at, 0x51),
        }
    }
    script
}

/// Returns an amount of any length, round or not.
fn amount(rng: &mut Rng) -> u64 {
    let unit = 10u64.pow(rng.below(6) as u32);
    unit * rng.below(12) + u64::from(rng.chance(1, 4))
}

fn odd_outputs(seed: u64) -> Vec<TxOut> {
    let mut rng = Rng::new(seed, "odd outputs");
    let mut outputs: Vec<TxOut> = (0..OUTPUTS)
        .map(|vout| {
            // If all scripts were unusual, they would not fit into a block.
            let script = if PLAIN.contains(&vout) { vec![0x51] } else { script(&mut rng) };
            TxOut { value: Amount::from_sat(amount(&mut rng)), script_pubkey: ScriptBuf::from_bytes(script) }
        })
        .collect();
    for vout in SPENT {
        outputs[vout as usize].script_pubkey = ScriptBuf::from_bytes(vec![0x51]);
    }
    // The longest script that can be spent, and one that is a byte longer and creates no coin.
    for (vout, len) in [(50, 10_000), (51, 10_001)] {
        outputs[vout].script_pubkey = ScriptBuf::from_bytes(vec![0x61; len]);
    }
    outputs
}

/// A block with unusual outputs, and a block that spends some of them: Core, the naive model and a rebuild
/// have the same rows in the same order.
#[test]
fn unusual_outputs_become_the_same_coins() -> Result<(), Box<dyn Error>> {
    let mut chain = base_chain(41);
    let mut builder = BlockBuilder::new(&chain, 1);
    let coin = builder.take();
    let make = builder.spend(&[&coin], odd_outputs(41));
    builder.add(vec![make.clone()]);
    let coins: Vec<BuilderCoin> = SPENT.iter().map(|&vout| builder.tip_coin_of(&make, vout)).collect();
    let spend = builder.spend(&coins.iter().collect::<Vec<_>>(), vec![odd_outputs(42).swap_remove(1)]);
    builder.add(vec![spend]);
    let added = builder.into_added();
    for block in &added {
        chain.model.apply(&block.bytes, block.height);
    }
    chain.blocks.extend(added);

    core_and_rebuild_agree(&chain, &Layout::new(41), Rebuild::default(), OUTPUTS / 2).map(drop)
}

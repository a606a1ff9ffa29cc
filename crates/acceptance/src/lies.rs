//! Falsified undo data.

use crate::prelude::*;
use disk::undo::{UndoArena, UndoView, write_undo};

/// Changes code, amount or script of a claim.
pub type Falsify = fn(code: &mut u32, amount: &mut i64, script: &mut Vec<u8>);

/// Code and output bytes of a coin.
pub type Claim = (u32, Vec<u8>);

/// What the undo data of a block claims, by transaction.
fn claims(block: &GeneratedBlock) -> Vec<Vec<Claim>> {
    let mut arena = UndoArena::default();
    let view = UndoView::parse(block.undo.as_ref().unwrap(), &mut arena).unwrap();
    let owned = |coin: Coin<'_>| (coin.code, coin.out.to_vec());
    view.txs().map(|coins| coins.map(owned).collect()).collect()
}

/// Falsifies one claim in a block's undo data; the checksum is computed again when the datadir is written.
/// `pick` chooses the transaction (not counting the coinbase) and its input, given all claims.
pub fn falsify_claim(
    block: &mut GeneratedBlock,
    pick: impl FnOnce(&[Vec<Claim>]) -> (usize, usize),
    falsify: impl FnOnce(&mut u32, &mut i64, &mut Vec<u8>),
) {
    let mut txs = claims(block);
    let (tx, input) = pick(&txs);
    let claim = &mut txs[tx][input];
    let (code, out) = &mut *claim;
    let before = (*code, out.clone());
    change_output(out, |amount, script| falsify(code, amount, script));
    assert_ne!(*claim, before, "the claim is unchanged");
    let coins: Vec<_> = txs.iter().map(|tx| tx.iter().map(|(code, out)| Coin { code: *code, out })).collect();
    block.undo = Some(write_undo(coins.into_iter()));
}

pub const FALSIFICATIONS: &[(&str, Falsify)] = &[
    ("amount, more", |_, amount, _| *amount += 1),
    ("amount, less", |_, amount, _| *amount -= 1),
    ("amount, beyond all money", |_, amount, _| *amount = 21_000_001 * 100_000_000),
    ("amount, none", |_, amount, _| *amount = 0),
    ("height, earlier", |code, _, _| *code -= 2),
    ("height, later than the block", |code, _, _| *code = 1 << 20),
    ("coinbase flag", |code, _, _| *code ^= 1),
    ("script, another", |_, _, script| *script = vec![0x51, 0x52]),
    ("script, longer", |_, _, script| script.push(0x51)),
    ("script, many sigops", |_, _, script| *script = vec![0xac; 9_000]),
];

/// How a claim about a coin is falsified that the block itself creates, and so refutes.
pub const OF_OWN_COIN: &str = "amount, none, of a coin of the same block";

/// The chain with false undo data, once for each way and once more as [`OF_OWN_COIN`] says: the way's name,
/// the chain, the index of the block, and the number of the transaction in its undo data.
pub fn falsified(chain: &Chain) -> impl Iterator<Item = (&'static str, Chain, usize, usize)> {
    let is_fit = |at: &usize| !chain.blocks[*at].stale && chain.blocks[*at].txs > 2;
    let fit: Vec<usize> = (0..chain.blocks.len()).filter(is_fit).collect();
    let own = fit.iter().find_map(|&at| {
        let is_own = |(code, _): &Claim| code >> 1 == chain.blocks[at].height;
        let claims = claims(&chain.blocks[at]).into_iter().enumerate();
        let mut places = claims.filter_map(|(tx, claims)| Some((at, tx, claims.iter().position(is_own)?)));
        places.next()
    });
    let own = own.expect("a transaction spends a coin of its own block");
    let spread = move |number: usize| {
        let at = fit[number * (fit.len() - 1) / (FALSIFICATIONS.len() - 1)];
        (at, number % (chain.blocks[at].txs as usize - 1), 0)
    };
    let rows =
        FALSIFICATIONS.iter().enumerate().map(move |(number, (what, how))| (*what, *how, spread(number)));
    let none: Falsify = |_, amount, _| *amount = 0;
    rows.chain([(OF_OWN_COIN, none, own)]).map(|(what, how, (at, tx, input))| {
        let mut falsified = chain.clone();
        falsify_claim(&mut falsified.blocks[at], |_| (tx, input), how);
        (what, falsified, at, tx)
    })
}

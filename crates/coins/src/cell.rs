//! One creation or one spend in 88 bytes: the form in which the join stages, stores and compares them.
//!
//! ```text
//! txid 32 | vout 4 | code 4 | shape 1 | body 47
//! shape    80 spend (else creation) | 40 out is in the long outputs | 3f length of out; ff: free cell
//! body     out, or its number in the long outputs 4
//! ```
//!
//! `out` is the compressed output: 21 bytes and the amount for P2PKH, 23 for P2WPKH, 35 for P2TR and P2WSH,
//! 33 for P2PK; the amount takes at most 9 bytes, nearly always up to 5. All of these are stored in the cell;
//! bare multisig and other long scripts are stored in the [`LongOutputs`].

use crate::slab::Slab;
use wire::{Coin, Entry, NetSize, OutPoint, Txid};

const SPEND: u8 = 0x80;
const LONG: u8 = 0x40;
const LENGTH: u8 = 0x3f;
const FREE: u8 = 0xff;
const BODY: usize = 47;

/// A creation or a spend. A number in its body refers to the [`LongOutputs`] of the same owner.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Cell {
    txid: [u8; 32],
    vout: u32,
    pub(crate) code: u32,
    shape: u8,
    body: [u8; BODY],
}

const _: () = assert!(size_of::<Cell>() == 88, "a coin takes 88 bytes and its slot in the index");

impl Cell {
    /// A free cell, which replaces a removed one.
    pub(crate) const BLANK: Self = Self { txid: [0; 32], vout: 0, code: 0, shape: FREE, body: [0; BODY] };

    #[inline]
    pub(crate) fn new(
        is_spend: bool,
        outpoint: &OutPoint,
        coin: Coin<'_>,
        long_outputs: &mut LongOutputs,
    ) -> Self {
        let mut cell = Self::without_coin(outpoint);
        cell.code = coin.code;
        cell.shape = if is_spend { SPEND } else { 0 };
        if let Some(inline) = cell.body.get_mut(..coin.out.len()) {
            inline.copy_from_slice(coin.out);
            cell.shape |= coin.out.len() as u8;
        } else {
            cell.shape |= LONG;
            cell.set_number(long_outputs.insert(coin.out.into()));
        }
        cell
    }

    /// A cell that has an outpoint and nothing else.
    #[inline]
    pub(crate) const fn without_coin(outpoint: &OutPoint) -> Self {
        Self { txid: outpoint.txid.0, vout: outpoint.vout, code: 0, shape: 0, body: [0; BODY] }
    }

    #[inline]
    pub(crate) const fn is_spend(&self) -> bool {
        self.shape & SPEND != 0
    }

    #[inline]
    pub(crate) const fn is_free(&self) -> bool {
        self.shape == FREE
    }

    #[inline]
    pub(crate) const fn outpoint(&self) -> OutPoint {
        OutPoint { txid: Txid(self.txid), vout: self.vout }
    }

    #[inline]
    pub(crate) const fn shard(&self) -> usize {
        self.txid[0] as usize
    }

    #[inline]
    pub(crate) const fn txid(&self) -> &[u8; 32] {
        &self.txid
    }

    #[inline]
    pub(crate) const fn vout(&self) -> u32 {
        self.vout
    }

    #[inline]
    pub(crate) fn same_outpoint(&self, other: &Self) -> bool {
        self.vout == other.vout && self.txid == other.txid
    }

    #[inline]
    pub(crate) fn is_at(&self, outpoint: &OutPoint) -> bool {
        self.vout == outpoint.vout && self.txid == outpoint.txid.0
    }

    #[inline]
    fn out<'a>(&'a self, long_outputs: &'a LongOutputs) -> &'a [u8] {
        if self.shape & LONG != 0 {
            &long_outputs.long[self.number()]
        } else {
            &self.body[..(self.shape & LENGTH) as usize]
        }
    }

    #[inline]
    pub(crate) fn coin<'a>(&'a self, long_outputs: &'a LongOutputs) -> Coin<'a> {
        Coin { code: self.code, out: self.out(long_outputs) }
    }

    #[inline]
    pub(crate) fn entry<'a>(&'a self, long_outputs: &'a LongOutputs) -> Entry<'a> {
        Entry { is_spend: self.is_spend(), outpoint: self.outpoint(), coin: self.coin(long_outputs) }
    }

    /// Returns the size of its row in the chainstate.
    #[inline]
    pub(crate) fn row_size(&self, long_outputs: &LongOutputs) -> NetSize {
        NetSize::of_coin(self.vout, self.coin(long_outputs))
    }

    /// Removes its output from the long outputs, if it is there.
    #[inline]
    pub(crate) fn release(&self, long_outputs: &mut LongOutputs) {
        if self.shape & LONG != 0 {
            drop(long_outputs.remove(self.number()));
        }
    }

    /// Returns the cell after moving its long output, if it has one, from one store to another.
    #[inline]
    pub(crate) fn moved(mut self, from: &mut LongOutputs, to: &mut LongOutputs) -> Self {
        if self.shape & LONG != 0 {
            self.set_number(to.insert(from.remove(self.number())));
        }
        self
    }

    #[inline]
    fn number(&self) -> u32 {
        self.body.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn set_number(&mut self, number: u32) {
        self.body[..size_of::<u32>()].copy_from_slice(&number.to_le_bytes());
    }
}

/// Number of cells in a chunk of 11 KB: small compared with a shard also if the join is small, since each of
/// its 256 shards has a chunk of its own.
const CHUNK: usize = 128;

pub(crate) type Cells = Slab<Cell, CHUNK>;

/// Compressed outputs that are too long for a cell.
#[derive(Clone, Debug)]
pub(crate) struct LongOutputs {
    long: Slab<Box<[u8]>, 64>,
    long_bytes: usize,
}

impl LongOutputs {
    pub(crate) const fn new() -> Self {
        Self { long: Slab::new(None), long_bytes: 0 }
    }

    fn insert(&mut self, out: Box<[u8]>) -> u32 {
        self.long_bytes += out.len();
        self.long.insert(out)
    }

    fn remove(&mut self, number: u32) -> Box<[u8]> {
        let out = self.long.remove(number, Box::default());
        self.long_bytes -= out.len();
        out
    }

    /// Returns the total length of the outputs in bytes.
    pub(crate) const fn long_bytes(&self) -> usize {
        self.long_bytes
    }

    /// Returns the memory in bytes. Outputs of many lengths are allocated and freed in the arenas of several
    /// threads: of the allocator's memory for them, 3 bytes in 7 are unused (`tests/turnover.rs`).
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.long.memory_bytes() + self.long_bytes) / 4 * 7
    }
}

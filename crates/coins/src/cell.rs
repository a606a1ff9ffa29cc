//! One creation or one spend in 88 bytes: what the join stages, stores and compares.
//!
//! ```text
//! txid 32 | vout 4 | code 4 | shape 1 | body 47
//! shape    80 spend (else creation) | 40 out lies in the long_outputs | 3f length of out; ff: free place
//! body     out, or its number in the long_outputs 4
//! ```
//!
//! `out` is the compressed output: 21 bytes and the amount for P2PKH, 23 for P2WPKH, 35 for P2TR and P2WSH,
//! 33 for P2PK; the amount takes at most 9, nearly always up to 5. So all of these lie in the cell; bare
//! multisig and other long scripts lie in the [`LongOutputs`].

use crate::slab::Slab;
use wire::{Coin, Entry, NetSize, OutPoint, Txid};

const SPEND: u8 = 0x80;
const LONG: u8 = 0x40;
const LENGTH: u8 = 0x3f;
const FREE: u8 = 0xff;
const BODY: usize = 47;

/// A creation or a spend; numbers in it refer to the long_outputs of the place that holds it.
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
    /// What a removed cell leaves behind.
    pub(crate) const BLANK: Self = Self { txid: [0; 32], vout: 0, code: 0, shape: FREE, body: [0; BODY] };

    #[inline]
    pub(crate) fn creation(outpoint: &OutPoint, coin: Coin<'_>, long_outputs: &mut LongOutputs) -> Self {
        let mut cell = Self::with(outpoint, coin.code, 0);
        cell.set_out(coin.out, long_outputs);
        cell
    }

    #[inline]
    pub(crate) fn spend(outpoint: &OutPoint, claim: Coin<'_>, long_outputs: &mut LongOutputs) -> Self {
        let mut cell = Self::with(outpoint, claim.code, SPEND);
        cell.set_out(claim.out, long_outputs);
        cell
    }

    #[inline]
    const fn with(outpoint: &OutPoint, code: u32, shape: u8) -> Self {
        Self { txid: outpoint.txid.0, vout: outpoint.vout, code, shape, body: [0; BODY] }
    }

    #[inline]
    fn set_out(&mut self, out: &[u8], long_outputs: &mut LongOutputs) {
        if let Some(inline) = self.body.get_mut(..out.len()) {
            inline.copy_from_slice(out);
            self.shape |= out.len() as u8;
        } else {
            self.shape |= LONG;
            self.set_number(long_outputs.insert(out.into()));
        }
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

    /// Number of the shard it belongs to.
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

    /// The compressed output.
    #[inline]
    pub(crate) fn out<'a>(&'a self, long_outputs: &'a LongOutputs) -> &'a [u8] {
        if self.shape & LONG != 0 {
            &long_outputs.long[self.number()]
        } else {
            &self.body[..(self.shape & LENGTH) as usize]
        }
    }

    #[inline]
    pub(crate) fn entry<'a>(&'a self, long_outputs: &'a LongOutputs) -> Entry<'a> {
        let coin = Coin { code: self.code, out: self.out(long_outputs) };
        Entry { spend: self.is_spend(), outpoint: self.outpoint(), coin }
    }

    /// Of its row in the chainstate.
    #[inline]
    pub(crate) fn row_size(&self, long_outputs: &LongOutputs) -> NetSize {
        NetSize::of(self.vout, Coin { code: self.code, out: self.out(long_outputs) })
    }

    /// Gives back what it holds in the long_outputs.
    #[inline]
    pub(crate) fn release(&self, long_outputs: &mut LongOutputs) {
        if self.shape & LONG != 0 {
            drop(long_outputs.remove(self.number()));
        }
    }

    /// Moves what it holds in one long_outputs to another.
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

/// Outputs that do not fit into cells.
#[derive(Debug)]
pub(crate) struct LongOutputs {
    long: Slab<Box<[u8]>, 64>,
    long_bytes: usize,
}

impl LongOutputs {
    pub(crate) const fn new() -> Self {
        Self { long: Slab::new(), long_bytes: 0 }
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

    /// Bytes of the outputs.
    pub(crate) const fn long_bytes(&self) -> usize {
        self.long_bytes
    }

    /// Bytes of memory it takes. Outputs of many lengths come and go in the arenas of several threads: of
    /// what the allocator has for them, 3 bytes in 7 are not in use (`tests/turnover.rs`).
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.long.memory_bytes() + self.long_bytes) / 4 * 7
    }
}

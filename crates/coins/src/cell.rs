//! One creation or one spend in 88 bytes: what the join stages, stores and compares.
//!
//! ```text
//! txid 32 | vout 4 | code 4 | shape 1 | body 47
//! shape    80 spend (else creation) | 40 out lies in the attic | 3f length of out; ff: free place
//! body     creation: out           spend: number of the spender in the attic 4, then out
//! ```
//!
//! `out` is the compressed output: 21 bytes and the amount for P2PKH, 23 for P2WPKH, 35 for P2TR and P2WSH,
//! 33 for P2PK; the amount takes at most 9, nearly always up to 5. So all of these lie in the cell; bare
//! multisig and other long scripts lie in the [`Attic`]. So do the spenders' positions: few spends are open
//! at a time.

use crate::{finding::Position, slab::Slab};
use wire::{Coin, Entry, OutPoint, Txid};

const SPEND: u8 = 0x80;
const LONG: u8 = 0x40;
const LENGTH: u8 = 0x3f;
const FREE: u8 = 0xff;
const BODY: usize = 47;
const NUMBER: usize = size_of::<u32>();

/// A creation or a spend; numbers in it refer to the attic of the place that holds it.
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
    pub(crate) fn creation(outpoint: &OutPoint, coin: Coin<'_>, attic: &mut Attic) -> Self {
        let mut cell = Self::with(outpoint, coin.code, 0);
        cell.set_out(coin.out, attic);
        cell
    }

    #[inline]
    pub(crate) fn spend(outpoint: &OutPoint, claim: Coin<'_>, spender: Position, attic: &mut Attic) -> Self {
        let mut cell = Self::with(outpoint, claim.code, SPEND);
        cell.set_number(0, attic.spenders.insert(spender));
        cell.set_out(claim.out, attic);
        cell
    }

    #[inline]
    const fn with(outpoint: &OutPoint, code: u32, shape: u8) -> Self {
        Self { txid: outpoint.txid.0, vout: outpoint.vout, code, shape, body: [0; BODY] }
    }

    #[inline]
    fn set_out(&mut self, out: &[u8], attic: &mut Attic) {
        let start = self.out_start();
        if let Some(inline) = self.body[start..].get_mut(..out.len()) {
            inline.copy_from_slice(out);
            self.shape |= out.len() as u8;
        } else {
            attic.long_bytes += out.len();
            self.shape |= LONG;
            let number = attic.long.insert(out.into());
            self.set_number(start, number);
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
    pub(crate) fn out<'a>(&'a self, attic: &'a Attic) -> &'a [u8] {
        let start = self.out_start();
        if self.shape & LONG != 0 {
            &attic.long[self.number(start)]
        } else {
            &self.body[start..start + (self.shape & LENGTH) as usize]
        }
    }

    #[inline]
    pub(crate) fn entry<'a>(&'a self, attic: &'a Attic) -> Entry<'a> {
        let coin = Coin { code: self.code, out: self.out(attic) };
        Entry { spend: self.is_spend(), outpoint: self.outpoint(), coin }
    }

    /// Position of the input that spends.
    pub(crate) fn spender(&self, attic: &Attic) -> Position {
        debug_assert!(self.is_spend());
        attic.spenders[self.number(0)]
    }

    /// Reads a byte of the cell's last cache line, only to bring it there.
    #[inline]
    pub(crate) const fn touch(&self) -> u64 {
        self.txid[0] as u64 ^ self.body[BODY - 1] as u64
    }

    /// Gives back what it holds in the attic.
    #[inline]
    pub(crate) fn release(&self, attic: &mut Attic) {
        if self.shape & (SPEND | LONG) == 0 {
            return;
        }
        if self.is_spend() {
            attic.spenders.remove(self.number(0), Position::default());
        }
        if self.shape & LONG != 0 {
            let out = attic.long.remove(self.number(self.out_start()), Box::default());
            attic.long_bytes -= out.len();
        }
    }

    /// Moves what it holds in one attic to another.
    #[inline]
    pub(crate) fn moved(mut self, from: &mut Attic, to: &mut Attic) -> Self {
        if self.is_spend() {
            let spender = attic_take(&mut from.spenders, self.number(0));
            self.set_number(0, to.spenders.insert(spender));
        }
        if self.shape & LONG != 0 {
            let start = self.out_start();
            let out = attic_take(&mut from.long, self.number(start));
            from.long_bytes -= out.len();
            to.long_bytes += out.len();
            self.set_number(start, to.long.insert(out));
        }
        self
    }

    #[inline]
    const fn out_start(&self) -> usize {
        if self.is_spend() { NUMBER } else { 0 }
    }

    #[inline]
    fn number(&self, at: usize) -> u32 {
        self.body[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn set_number(&mut self, at: usize, number: u32) {
        self.body[at..at + NUMBER].copy_from_slice(&number.to_le_bytes());
    }
}

fn attic_take<T: Default, const CHUNK: usize>(slab: &mut Slab<T, CHUNK>, at: u32) -> T {
    slab.remove(at, T::default())
}

/// What does not fit into cells.
#[derive(Debug)]
pub(crate) struct Attic {
    spenders: Slab<Position, 64>,
    long: Slab<Box<[u8]>, 64>,
    long_bytes: usize,
}

impl Attic {
    pub(crate) const fn new() -> Self {
        Self { spenders: Slab::new(), long: Slab::new(), long_bytes: 0 }
    }

    /// Bytes of the long outputs.
    pub(crate) const fn long_bytes(&self) -> usize {
        self.long_bytes
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.spenders.memory_bytes() + self.long.memory_bytes() + self.long_bytes
    }
}

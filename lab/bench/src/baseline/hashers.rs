//! Keyed hashes of outpoints, for tables in memory.

use digest::siphash::SipHash13Uj;
use hashbrown::HashTable;
use siphasher::sip::SipHasher24;
use std::{
    array::from_fn,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    hint::black_box,
};
use wire::OutPoint;

/// A hash of outpoints under a key of 128 bits.
pub trait OutpointHasher {
    fn new(k0: u64, k1: u64) -> Self;

    fn hash(&self, outpoint: &OutPoint) -> u64;
}

/// SipHash of an outpoint with `C` rounds for each block and `D` at the end.
///
/// With `JUMBO`, the txid is one block, otherwise four. With `PADDED`, the index of the output is a block,
/// and the length is the last one; otherwise the last block has both, or, with `JUMBO`, no length. With
/// `SALTED`, the key is mixed in once, otherwise for each hash.
#[derive(Clone, Copy, Debug)]
pub struct Sip<const C: u32, const D: u32, const JUMBO: bool, const PADDED: bool, const SALTED: bool> {
    /// The first state, or the key twice.
    start: [u64; 4],
}

/// The standard SipHash-2-4, whose key is mixed in for each hash: Bitcoin Core's until #30442.
pub type Unsalted24 = Sip<2, 4, false, false, false>;
/// The same with its key mixed in once: Bitcoin Core's until jumbo blocks.
pub type Salted24 = Sip<2, 4, false, false, true>;

/// The finalizers of a standard and of an unpadded hash.
const FINALIZER: u64 = 0xff;
const FINALIZER_UNPADDED: u64 = u64::from_le_bytes(*b"unpadded");

/// Mixes a key into the constants of SipHash.
#[inline(always)]
fn salted([k0, k1, k2, k3]: [u64; 4]) -> [u64; 4] {
    let constants =
        [b"somepseu", b"dorandom", b"lygenera", b"tedbytes"].map(|word| u64::from_be_bytes(*word));
    let [v0, v1, v2, v3] = constants;
    [v0 ^ k0, v1 ^ k1, v2 ^ k2, v3 ^ k3]
}

#[inline(always)]
fn rounds(state: &mut [u64; 4], count: u32) {
    let [mut v0, mut v1, mut v2, mut v3] = *state;
    for _ in 0..count {
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v3 = v3.rotate_left(21) ^ v0;
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
    }
    *state = [v0, v1, v2, v3];
}

#[inline(always)]
fn compress(state: &mut [u64; 4], word: u64, count: u32) {
    state[3] ^= word;
    rounds(state, count);
    state[0] ^= word;
}

impl<const C: u32, const D: u32, const JUMBO: bool, const PADDED: bool, const SALTED: bool> OutpointHasher
    for Sip<C, D, JUMBO, PADDED, SALTED>
{
    fn new(k0: u64, k1: u64) -> Self {
        let key = [k0, k1, k0, k1];
        Self { start: if SALTED { salted(key) } else { key } }
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        // Opaque, or the compiler would mix in the key once.
        let mut state = if SALTED { self.start } else { salted(*black_box(&self.start)) };
        let (words, _) = outpoint.txid.0.as_chunks::<8>();
        let words: [u64; 4] = from_fn(|at| u64::from_le_bytes(words[at]));
        if !JUMBO {
            words.into_iter().for_each(|word| compress(&mut state, word, C));
        } else {
            let [w0, w1, w2, w3] = words;
            state.iter_mut().zip([w1, w2, w3, w0]).for_each(|(v, word)| *v ^= word);
            rounds(&mut state, C);
            state.iter_mut().zip(words).for_each(|(v, word)| *v ^= word);
        }
        let vout = u64::from(outpoint.vout);
        compress(&mut state, if PADDED || JUMBO { vout } else { vout | 36 << 56 }, C);
        if PADDED {
            compress(&mut state, 40 << 56, C);
        }
        state[2] ^= if JUMBO && !PADDED { FINALIZER_UNPADDED } else { FINALIZER };
        rounds(&mut state, D);
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

/// SipHash-2-4 of the same bytes by a crate that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Crate24(u64, u64);

/// What a `HashMap` does by default: the standard library's SipHash-1-3 through the trait `Hash`. Its key is
/// random.
#[derive(Clone, Debug)]
pub struct Std(RandomState);

/// SipHash-1-3 with jumbo blocks, unpadded: Bitcoin Core's since 2026, and Peregrine's.
#[derive(Clone, Copy, Debug)]
pub struct Jumbo(SipHash13Uj);

impl OutpointHasher for Crate24 {
    fn new(k0: u64, k1: u64) -> Self {
        Self(k0, k1)
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        let mut message = [0; 36];
        message[..32].copy_from_slice(&outpoint.txid.0);
        message[32..].copy_from_slice(&outpoint.vout.to_le_bytes());
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        hasher.write(&message);
        hasher.finish()
    }
}

impl OutpointHasher for Std {
    fn new(_: u64, _: u64) -> Self {
        Self(RandomState::new())
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        self.0.hash_one(outpoint)
    }
}

impl OutpointHasher for Jumbo {
    fn new(k0: u64, k1: u64) -> Self {
        Self(SipHash13Uj::new(k0, k1))
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        self.0.hash_outpoint(&outpoint.txid.0, outpoint.vout)
    }
}

#[derive(Debug)]
pub struct OutpointSet<H> {
    hasher: H,
    outpoints: HashTable<OutPoint>,
}

impl<H: OutpointHasher> OutpointSet<H> {
    /// Creates a set of these outpoints, which grows as they come.
    pub fn of(outpoints: &[OutPoint]) -> Self {
        let (hasher, mut table) = (H::new(1, 2), HashTable::new());
        for outpoint in outpoints {
            let is_it = |other: &OutPoint| other == outpoint;
            table.entry(hasher.hash(outpoint), is_it, |other| hasher.hash(other)).or_insert(*outpoint);
        }
        Self { hasher, outpoints: table }
    }

    /// Returns how many of these outpoints are in the set.
    pub fn count(&self, outpoints: &[OutPoint]) -> usize {
        let is_in = |outpoint: &&OutPoint| {
            self.outpoints.find(self.hasher.hash(outpoint), |other| other == *outpoint).is_some()
        };
        outpoints.iter().filter(is_in).count()
    }
}

/// Returns the sum of the outpoints' hashes.
pub fn sum<H: OutpointHasher>(outpoints: &[OutPoint]) -> u64 {
    let hasher = H::new(1, 2);
    outpoints.iter().fold(0, |sum, outpoint| sum.wrapping_add(hasher.hash(black_box(outpoint))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::siphash::siphash24;
    use wire::Txid;

    #[test]
    fn forms_that_exist_elsewhere_have_the_same_hashes() {
        for vout in [0, 1, 0xfedc_ba98] {
            let outpoint = OutPoint { txid: Txid(from_fn(|at| at as u8 ^ 0xa5)), vout };
            let message = [&outpoint.txid.0[..], &vout.to_le_bytes()].concat();
            let standard = siphash24(1, 2, &message);
            assert_eq!(Unsalted24::new(1, 2).hash(&outpoint), standard);
            assert_eq!(Salted24::new(1, 2).hash(&outpoint), standard);
            assert_eq!(Crate24::new(1, 2).hash(&outpoint), standard);
            let wide = [&outpoint.txid.0[..], &u64::from(vout).to_le_bytes()].concat();
            assert_eq!(Sip::<2, 4, false, true, true>::new(1, 2).hash(&outpoint), siphash24(1, 2, &wide));
            let jumbo = Sip::<1, 3, true, false, false>::new(1, 2).hash(&outpoint);
            assert_eq!(jumbo, Jumbo::new(1, 2).hash(&outpoint));
        }
    }
}

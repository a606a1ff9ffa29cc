//! A sum that is zero if and only if each element was subtracted as often as it was added: SwiftSync's proof,
//! without storing coins, that each coin that is spent according to the hints was created once and spent
//! once.
//!
//! Each element (an outpoint, or an outpoint with its coin) is mapped to a number that an attacker cannot
//! predict, since it depends on a secret key that is drawn after hints and chain are fixed. The number is
//! added when the coin is created and subtracted when it is spent, in any order, on any thread ([`Sum`]).
//! Additions are modulo 2^256 or 2^128, never XOR, under which an element added twice would vanish. MuHash
//! needs no key: its numbers are multiplied and divided modulo a prime of 3072 bits. ADR 6 explains why this
//! is sound and what each kind costs.
//!
//! A sum other than zero proves that something is wrong but not where; the [`crate::join`] finds out.
//!
//! ```
//! use peregrine_coins::aggregate::{Aggregate, AggregateKey, AggregateKind};
//! use wire::{OutPoint, Txid};
//!
//! let aggregate = Aggregate::new(AggregateKind::Sha256, AggregateKey::new([7; 32])); // a real key is random
//! let coin = OutPoint { txid: Txid([1; 32]), vout: 0 };
//! let (mut created, mut spent) = (aggregate.sum(), aggregate.sum());
//! spent.subtract(&coin, None);
//! created.add(&coin, None);
//! created.merge(spent);
//! assert!(created.is_zero());
//! ```

use digest::{
    kernel::Kernel,
    muhash::MuHash3072,
    sha256::{
        block_count,
        keyed::{midstate, one_block, push_blocks, sum_with},
    },
    siphash::{push_words, siphash24_128_sum_with, word_count},
};
use std::{fmt, sync::Arc};
use wire::{Coin, OutPoint};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Length of an outpoint in bytes: txid, then `vout` little-endian.
const OUTPOINT_LEN: usize = 36;
/// Length of the part before a coin's output in the element of a whole coin, in bytes: outpoint, then the
/// code, little-endian.
const HEAD_LEN: usize = OUTPOINT_LEN + 4;
/// Number of messages of one length that are staged before they are hashed together: a few times the number
/// of lanes, and 4 KiB of outpoints.
const STAGED_MESSAGES: usize = 64;
/// Follows the key in the first hashed block, so that no other use of the key can give the same state.
const TAG: &[u8; 32] = b"Peregrine UTXO aggregate SHA-256";

wire::named! {
/// The mapping from elements to numbers, and how they are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AggregateKind: "aggregate" {
    /// SHA-256 under the key, added modulo 2^256.
    #[default]
    Sha256 = "sha256",
    /// SipHash-2-4-128 under the first half of the key, added modulo 2^128.
    SipHash128 = "siphash128",
    /// MuHash3072, which has no key: multiplied modulo a prime. By far the slowest.
    MuHash3072 = "muhash",
}
}

/// The secret: 32 bytes from the system's random source, drawn after hints and chain are fixed.
///
/// An attacker who knows it can make hints that hide a double spend. It is never printed, is overwritten when
/// dropped, and may be stored only in files that nobody else can read.
#[derive(Clone, ZeroizeOnDrop)]
pub struct AggregateKey([u8; 32]);

impl AggregateKey {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the key's bytes, only to be stored for resuming the job.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the two words of SipHash's key.
    fn words(&self) -> (u64, u64) {
        let word = |number: usize| u64::from_le_bytes(self.0.as_chunks::<8>().0[number]);
        (word(0), word(1))
    }

    /// Returns the state of SHA-256 after the key's block.
    fn midstate(&self) -> Zeroizing<[u32; 8]> {
        let mut block = Zeroizing::new([0; 64]);
        block[..32].copy_from_slice(&self.0);
        block[32..].copy_from_slice(TAG);
        Zeroizing::new(midstate(&block))
    }
}

impl fmt::Debug for AggregateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AggregateKey(secret)")
    }
}

/// The kind and key that all sums of a job share. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Aggregate(Arc<Shared>);

struct Shared {
    kind: AggregateKind,
    kernel: Kernel,
    key: AggregateKey,
    /// Must be kept as secret as the key.
    midstate: Zeroizing<[u32; 8]>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Aggregate {
    /// Creates an aggregate of a kind with a key, which MuHash ignores.
    pub fn new(kind: AggregateKind, key: AggregateKey) -> Self {
        Self::with_kernel(kind, key, Kernel::active())
    }

    /// [`Aggregate::new`] with the given kernel; the sums do not depend on it.
    pub fn with_kernel(kind: AggregateKind, key: AggregateKey, kernel: Kernel) -> Self {
        let midstate = key.midstate();
        Self(Arc::new(Shared { kind, kernel, key, midstate }))
    }

    pub fn kind(&self) -> AggregateKind {
        self.0.kind
    }

    /// Returns the secret, which resuming the job requires.
    pub fn key(&self) -> &AggregateKey {
        &self.0.key
    }

    /// Creates an empty sum. Each thread needs its own.
    pub fn sum(&self) -> Sum {
        let state = match self.0.kind {
            AggregateKind::Sha256 => State::Sha256(Box::default()),
            AggregateKind::SipHash128 => State::SipHash128(Box::default()),
            AggregateKind::MuHash3072 => State::MuHash3072(Box::default()),
        };
        Sum { shared: Arc::clone(&self.0), state }
    }

    /// Restores a sum from [`Sum::to_bytes`] of an aggregate with the same kind and key; `None` if the bytes
    /// cannot be a sum of this kind. Bytes of another key or job cannot be detected: the caller must
    /// authenticate what it stores.
    pub fn sum_from_bytes(&self, bytes: &[u8]) -> Option<Sum> {
        let mut sum = self.sum();
        match &mut sum.state {
            State::Sha256(staged) => {
                let (limbs, rest) = bytes.as_chunks::<8>();
                let limbs: &[[u8; 8]; 4] = limbs.try_into().ok().filter(|_| rest.is_empty())?;
                staged.total = limbs.map(u64::from_le_bytes);
            }
            State::SipHash128(staged) => {
                staged.total = limbs_of(u128::from_le_bytes(bytes.try_into().ok()?));
            }
            State::MuHash3072(set) => {
                **set = MuHash3072::from_bytes(bytes.try_into().ok()?)?;
            }
        }
        Some(sum)
    }
}

/// A sum of elements, some added and some subtracted. Elements are staged until there are enough to fill the
/// lanes.
///
/// The bytes of an element are txid 32 | vout 4 without a coin, and txid 32 | vout 4 | code 4 | `out`
/// ([`wire::coin`]) with one; numbers are little-endian. Both encodings are injective, and no element of one
/// form equals one of the other, since outputs have at least two bytes.
pub struct Sum {
    shared: Arc<Shared>,
    state: State,
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sum").field("kind", &self.shared.kind).finish_non_exhaustive()
    }
}

enum State {
    Sha256(Box<Staged<[u8; 64]>>),
    SipHash128(Box<Staged<u64>>),
    MuHash3072(Box<MuHash3072>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    Plus,
    Minus,
}

impl Sum {
    #[inline]
    pub fn add(&mut self, outpoint: &OutPoint, coin: Option<Coin<'_>>) {
        self.apply(Sign::Plus, outpoint, coin);
    }

    /// Subtracts an outpoint, or an outpoint with its coin. It need not have been added yet.
    #[inline]
    pub fn subtract(&mut self, outpoint: &OutPoint, coin: Option<Coin<'_>>) {
        self.apply(Sign::Minus, outpoint, coin);
    }

    #[inline]
    fn apply(&mut self, sign: Sign, outpoint: &OutPoint, coin: Option<Coin<'_>>) {
        match &mut self.state {
            State::Sha256(staged) => staged.stage(&self.shared, sign, outpoint, coin),
            State::SipHash128(staged) => staged.stage(&self.shared, sign, outpoint, coin),
            State::MuHash3072(set) => with_element(outpoint, coin, |element| match sign {
                Sign::Plus => set.insert(element),
                Sign::Minus => set.remove(element),
            }),
        }
    }

    /// Returns the key of the aggregate, only to be stored for resuming the job.
    pub fn key(&self) -> &AggregateKey {
        &self.shared.key
    }

    /// Returns whether [`Sum::merge`] accepts `other`: kind and key are the same.
    pub fn can_merge(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.shared, &other.shared);
        Arc::ptr_eq(ours, theirs) || ours.kind == theirs.kind && ours.key.0 == theirs.key.0
    }

    /// Adds the elements of `other`.
    ///
    /// # Panics
    /// If `other` is a sum of another [`Aggregate`], which maps elements to other numbers.
    pub fn merge(&mut self, mut other: Self) {
        assert!(self.can_merge(&other), "sums of two aggregates cannot be merged");
        other.flush();
        match (&mut self.state, &other.state) {
            (State::Sha256(staged), State::Sha256(other)) => add(&mut staged.total, &other.total),
            (State::SipHash128(staged), State::SipHash128(other)) => add(&mut staged.total, &other.total),
            (State::MuHash3072(set), State::MuHash3072(other)) => set.combine(other),
            _ => unreachable!("sums of one aggregate are of one kind"),
        }
    }

    /// Returns whether every element was subtracted as often as it was added. The probability of a false
    /// `true` is 2^-256, 2^-128, or for MuHash that of solving a discrete logarithm.
    pub fn is_zero(&mut self) -> bool {
        self.flush();
        match &self.state {
            State::Sha256(staged) => staged.total == [0; 4],
            State::SipHash128(staged) => staged.total[..2] == [0; 2],
            State::MuHash3072(set) => set.is_empty(),
        }
    }

    /// Returns the sum as 32, 16 or [`MuHash3072::BYTES`] bytes, for [`Aggregate::sum_from_bytes`].
    pub fn to_bytes(&mut self) -> Vec<u8> {
        self.flush();
        match &self.state {
            State::Sha256(staged) => staged.total.map(u64::to_le_bytes).as_flattened().to_vec(),
            State::SipHash128(staged) => staged.total.map(u64::to_le_bytes)[..2].as_flattened().to_vec(),
            State::MuHash3072(set) => set.to_bytes().to_vec(),
        }
    }

    /// Hashes all staged messages.
    fn flush(&mut self) {
        match &mut self.state {
            State::Sha256(staged) => staged.flush(&self.shared),
            State::SipHash128(staged) => staged.flush(&self.shared),
            State::MuHash3072(_) => {}
        }
    }
}

/// The unit of a padded message: a block or word of the hash function.
trait Unit: Sized {
    /// Maximum number of units of a staged message. Longer messages are too rare to fill the lanes and are
    /// hashed immediately.
    const MAX_STAGED: usize;

    /// Returns the number of units in a padded message of `length` bytes.
    fn count(length: usize) -> usize;

    /// Appends the element of an outpoint.
    fn push_outpoint(units: &mut Vec<Self>, outpoint: &OutPoint);

    /// Appends the element of a whole coin.
    fn push_coin(units: &mut Vec<Self>, outpoint: &OutPoint, coin: Coin<'_>);

    /// Returns the sum of the hashes of messages of `count` units each. In a sum of 128 bits only the low
    /// words are used.
    fn sum(shared: &Shared, units: &[Self], count: usize) -> [u64; 4];
}

/// The blocks of SHA-256.
impl Unit for [u8; 64] {
    /// The length of a bare 2-of-3 multisignature with long keys.
    const MAX_STAGED: usize = 4;

    #[inline]
    fn count(length: usize) -> usize {
        block_count(length)
    }

    #[inline]
    fn push_outpoint(units: &mut Vec<Self>, outpoint: &OutPoint) {
        units.push(one_block(&outpoint_bytes(outpoint)));
    }

    #[inline]
    fn push_coin(units: &mut Vec<Self>, outpoint: &OutPoint, coin: Coin<'_>) {
        push_blocks(units, &head_bytes(outpoint, coin), coin.out);
    }

    fn sum(shared: &Shared, units: &[Self], count: usize) -> [u64; 4] {
        sum_with(shared.kernel, &shared.midstate, units, count)
    }
}

/// The words of SipHash.
impl Unit for u64 {
    /// The length of a bare 1-of-2 multisignature.
    const MAX_STAGED: usize = 15;

    #[inline]
    fn count(length: usize) -> usize {
        word_count(length)
    }

    #[inline]
    fn push_outpoint(units: &mut Vec<Self>, outpoint: &OutPoint) {
        push_words(units, &outpoint.txid.0, &outpoint.vout.to_le_bytes());
    }

    #[inline]
    fn push_coin(units: &mut Vec<Self>, outpoint: &OutPoint, coin: Coin<'_>) {
        push_words(units, &head_bytes(outpoint, coin), coin.out);
    }

    fn sum(shared: &Shared, units: &[Self], count: usize) -> [u64; 4] {
        let (k0, k1) = shared.key.words();
        limbs_of(siphash24_128_sum_with(shared.kernel, k0, k1, units, count))
    }
}

/// A sum, and staged messages grouped by length, so that each call of the kernel fills its lanes.
struct Staged<U> {
    /// Least significant word first.
    total: [u64; 4],
    /// Messages to add; the index is the number of units minus one.
    plus: Vec<Vec<U>>,
    /// Messages to subtract, likewise.
    minus: Vec<Vec<U>>,
    /// Buffer for a message that is hashed immediately.
    long: Vec<U>,
}

impl<U: Unit> Default for Staged<U> {
    fn default() -> Self {
        let empty = || (0..U::MAX_STAGED).map(|_| Vec::new()).collect();
        Self { total: [0; 4], plus: empty(), minus: empty(), long: Vec::new() }
    }
}

impl<U: Unit> Staged<U> {
    #[inline]
    fn stage(&mut self, shared: &Shared, sign: Sign, outpoint: &OutPoint, coin: Option<Coin<'_>>) {
        let count = U::count(coin.map_or(OUTPOINT_LEN, |coin| HEAD_LEN + coin.out.len()));
        let staged = match sign {
            Sign::Plus => &mut self.plus,
            Sign::Minus => &mut self.minus,
        };
        let (waiting, max_messages) = match staged.get_mut(count - 1) {
            Some(waiting) => (waiting, STAGED_MESSAGES),
            None => (&mut self.long, 1),
        };
        match coin {
            None => U::push_outpoint(waiting, outpoint),
            Some(coin) => U::push_coin(waiting, outpoint, coin),
        }
        if waiting.len() >= max_messages * count {
            hash_staged(&mut self.total, shared, sign, waiting, count);
        }
    }

    fn flush(&mut self, shared: &Shared) {
        for (sign, staged) in [(Sign::Plus, &mut self.plus), (Sign::Minus, &mut self.minus)] {
            for (count, waiting) in (1..).zip(staged) {
                hash_staged(&mut self.total, shared, sign, waiting, count);
            }
        }
    }
}

/// Hashes the staged messages, of `count` units each, into `total`.
fn hash_staged<U: Unit>(
    total: &mut [u64; 4],
    shared: &Shared,
    sign: Sign,
    waiting: &mut Vec<U>,
    count: usize,
) {
    let sum = U::sum(shared, waiting, count);
    waiting.clear();
    match sign {
        Sign::Plus => add(total, &sum),
        Sign::Minus => add(total, &negated(sum)),
    }
}

/// Returns a 128-bit number in the low words. The high words only collect carries and are ignored.
fn limbs_of(number: u128) -> [u64; 4] {
    [number as u64, (number >> 64) as u64, 0, 0]
}

/// Adds modulo 2^256.
fn add(total: &mut [u64; 4], number: &[u64; 4]) {
    let mut carry = false;
    for (limb, number) in total.iter_mut().zip(number) {
        let (sum, first) = limb.overflowing_add(*number);
        let (sum, second) = sum.overflowing_add(carry.into());
        (*limb, carry) = (sum, first | second);
    }
}

/// Returns 2^256 - `number`, or 0.
fn negated(number: [u64; 4]) -> [u64; 4] {
    let mut negated = number.map(|limb| !limb);
    add(&mut negated, &[1, 0, 0, 0]);
    negated
}

#[inline]
pub(crate) fn outpoint_bytes(outpoint: &OutPoint) -> [u8; OUTPOINT_LEN] {
    let mut bytes = [0; OUTPOINT_LEN];
    bytes[..32].copy_from_slice(&outpoint.txid.0);
    bytes[32..].copy_from_slice(&outpoint.vout.to_le_bytes());
    bytes
}

#[inline]
fn head_bytes(outpoint: &OutPoint, coin: Coin<'_>) -> [u8; HEAD_LEN] {
    let mut bytes = [0; HEAD_LEN];
    bytes[..OUTPOINT_LEN].copy_from_slice(&outpoint_bytes(outpoint));
    bytes[OUTPOINT_LEN..].copy_from_slice(&coin.code.to_le_bytes());
    bytes
}

fn with_element<T>(outpoint: &OutPoint, coin: Option<Coin<'_>>, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
    match coin {
        None => use_bytes(&outpoint_bytes(outpoint)),
        Some(coin) => use_bytes(&[&head_bytes(outpoint, coin)[..], coin.out].concat()),
    }
}

//! MuHash3072: a hash of a set, to which elements are added and from which they are removed in any order.
//!
//! Each element is mapped to a number modulo the prime 2^3072 - 1103717 (the ChaCha20 key stream with the
//! element's SHA-256 as key); the set is the product of the added elements divided by the product of the
//! removed ones. Division is slow, so both products are kept and divided once, at the end. Products can be
//! computed in parallel and combined.
//! Source: Core `crypto/muhash.h`; `gettxoutsetinfo muhash` is this hash of all coins.

#[cfg(target_arch = "x86_64")]
mod adx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod chacha20;

use sha256d::sha256;

/// Number of 64-bit words in a number, least significant first.
const LIMBS: usize = 48;
/// The modulus is 2^3072 minus this.
const PRIME_DIFFERENCE: u64 = 1_103_717;

/// A set of byte strings, as a fraction.
#[derive(Clone, Debug)]
pub struct MuHash3072 {
    numerator: Num3072,
    denominator: Num3072,
}

impl Default for MuHash3072 {
    fn default() -> Self {
        Self::new()
    }
}

impl MuHash3072 {
    /// Length of [`MuHash3072::to_bytes`] in bytes.
    pub const BYTES: usize = 2 * LIMBS * 8;

    /// Returns the empty set.
    pub fn new() -> Self {
        Self { numerator: Num3072::ONE, denominator: Num3072::ONE }
    }

    pub fn insert(&mut self, element: &[u8]) {
        self.numerator.multiply(&Num3072::of_element(element));
    }

    /// Removes an element, which need not have been added yet: only the product of all changes matters.
    pub fn remove(&mut self, element: &[u8]) {
        self.denominator.multiply(&Num3072::of_element(element));
    }

    /// Applies all changes of `other` to this set. The operation is associative and commutative.
    pub fn combine(&mut self, other: &Self) {
        self.numerator.multiply(&other.numerator);
        self.denominator.multiply(&other.denominator);
    }

    /// Takes back all changes of `other`.
    pub fn divide(&mut self, other: &Self) {
        self.numerator.multiply(&other.denominator);
        self.denominator.multiply(&other.numerator);
    }

    /// Returns whether every element was removed as often as it was added.
    pub fn is_empty(&self) -> bool {
        let (mut numerator, mut denominator) = (self.numerator.clone(), self.denominator.clone());
        numerator.reduce();
        denominator.reduce();
        numerator == denominator
    }

    /// Returns both products, from which [`MuHash3072::from_bytes`] continues: numerator, then denominator,
    /// each with the least significant byte first.
    pub fn to_bytes(&self) -> [u8; MuHash3072::BYTES] {
        let mut bytes = [0; MuHash3072::BYTES];
        let (numerator, denominator) = bytes.split_at_mut(LIMBS * 8);
        self.numerator.write(numerator);
        self.denominator.write(denominator);
        bytes
    }

    /// Returns the set with the products of [`MuHash3072::to_bytes`]. `None` if one of them is congruent to
    /// 0, which no product of elements is and which would equal every other set.
    pub fn from_bytes(bytes: &[u8; MuHash3072::BYTES]) -> Option<Self> {
        let (numerator, denominator) = bytes.split_at(LIMBS * 8);
        Some(Self { numerator: Num3072::read(numerator)?, denominator: Num3072::read(denominator)? })
    }

    /// Turns each fraction into an equal one with denominator 1, with one inverse for all (Montgomery's
    /// trick).
    pub fn divide_all(sets: &mut [Self]) {
        // The product of the denominators before each set.
        let mut product = Num3072::ONE;
        let before: Vec<Num3072> = sets
            .iter()
            .map(|set| {
                let before = product.clone();
                product.multiply(&set.denominator);
                before
            })
            .collect();
        let mut inverse = product.inverse();
        for (set, before) in sets.iter_mut().zip(before).rev() {
            set.numerator.multiply(&inverse);
            set.numerator.multiply(&before);
            inverse.multiply(&std::mem::replace(&mut set.denominator, Num3072::ONE));
        }
    }

    /// Returns the hash of the set: the SHA-256 of the quotient's 384 bytes, least significant first.
    ///
    /// The bytes are in the order of SHA-256; `gettxoutsetinfo` displays them reversed.
    pub fn finalize(mut self) -> [u8; 32] {
        if self.denominator != Num3072::ONE {
            self.numerator.multiply(&self.denominator.inverse());
        }
        self.numerator.reduce();
        let mut bytes = [0; LIMBS * 8];
        self.numerator.write(&mut bytes);
        sha256(&bytes)
    }
}

/// A number below 2^3072 that represents its remainder modulo the prime.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Num3072([u64; LIMBS]);

impl Num3072 {
    const ONE: Num3072 = {
        let mut limbs = [0; LIMBS];
        limbs[0] = 1;
        Num3072(limbs)
    };

    /// Returns the number to which an element is mapped.
    fn of_element(element: &[u8]) -> Self {
        let blocks = chacha20::blocks(&sha256(element));
        let mut limbs = [0; LIMBS];
        for (limbs, words) in limbs.as_chunks_mut::<8>().0.iter_mut().zip(&blocks) {
            for (limb, [low, high]) in limbs.iter_mut().zip(words.as_chunks::<2>().0) {
                *limb = u64::from(*low) | u64::from(*high) << 32;
            }
        }
        Num3072(limbs)
    }

    fn write(&self, bytes: &mut [u8]) {
        for (bytes, limb) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *bytes = limb.to_le_bytes();
        }
    }

    /// Reads the output of [`Num3072::write`]. Returns `None` if the number is congruent to 0.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut number = Num3072([0; LIMBS]);
        for (limb, bytes) in number.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *limb = u64::from_le_bytes(*bytes);
        }
        number.reduce();
        (number.0 != [0; LIMBS]).then_some(number)
    }

    /// Multiplies by `other`: computes the full product, then folds the upper half into the lower, since
    /// 2^3072 is congruent to `PRIME_DIFFERENCE`.
    fn multiply(&mut self, other: &Self) {
        let product = product(&self.0, &other.0);
        let (low, high) = product.split_at(LIMBS);
        let mut carry = 0;
        for ((limb, low), high) in self.0.iter_mut().zip(low).zip(high) {
            carry += u128::from(*low) + u128::from(*high) * u128::from(PRIME_DIFFERENCE);
            *limb = carry as u64;
            carry >>= 64;
        }
        self.fold(carry as u64);
    }

    /// Adds `carry` times 2^3072.
    fn fold(&mut self, mut carry: u64) {
        // A second iteration happens only if the sum exceeds 2^3072 once more; the number is then small, so
        // there is no third.
        while carry > 0 {
            let mut sum = u128::from(carry) * u128::from(PRIME_DIFFERENCE);
            for limb in &mut self.0 {
                sum += u128::from(*limb);
                *limb = sum as u64;
                sum >>= 64;
                if sum == 0 {
                    break;
                }
            }
            carry = sum as u64;
        }
    }

    /// Replaces the number by its remainder.
    fn reduce(&mut self) {
        let above =
            self.0[0] >= PRIME_DIFFERENCE.wrapping_neg() && self.0[1..].iter().all(|limb| *limb == u64::MAX);
        if above {
            let rest = self.0[0] - PRIME_DIFFERENCE.wrapping_neg();
            self.0 = [0; LIMBS];
            self.0[0] = rest;
        }
    }

    /// Returns the number's inverse: the number to the power of the prime minus 2. It takes about 6 ms.
    fn inverse(&self) -> Self {
        /// Number of bits of the exponent above its lowest word, all of which are ones.
        const ONES: usize = (LIMBS - 1) * 64;
        // To the power of 2^count - 1, for a count that doubles, or grows by one, until it is `ONES`.
        let (mut power, mut count) = (self.clone(), 1);
        for bit in (0..ONES.ilog2()).rev() {
            let run = power.clone();
            power.square(count);
            power.multiply(&run);
            count *= 2;
            if ONES >> bit & 1 == 1 {
                power.square(1);
                power.multiply(self);
                count += 1;
            }
        }
        // The exponent is 2^3072 - (PRIME_DIFFERENCE + 2).
        let lowest = (PRIME_DIFFERENCE + 2).wrapping_neg();
        for bit in (0..64).rev() {
            power.square(1);
            if lowest >> bit & 1 == 1 {
                power.multiply(self);
            }
        }
        power
    }

    /// Squares the number this many times.
    fn square(&mut self, times: usize) {
        for _ in 0..times {
            let number = self.clone();
            self.multiply(&number);
        }
    }
}

/// Returns all 96 words of a product, by the fastest code for this processor.
fn product(a: &[u64; LIMBS], b: &[u64; LIMBS]) -> [u64; 2 * LIMBS] {
    #[cfg(target_arch = "x86_64")]
    if avx512::is_available() {
        // SAFETY: the processor has the instructions.
        return unsafe { avx512::wide_product(a, b) };
    }
    #[cfg(target_arch = "x86_64")]
    if adx::is_available() {
        // SAFETY: the processor has the instructions.
        return unsafe { adx::wide_product(a, b) };
    }
    wide_product(a, b)
}

/// Returns all 96 words of a product. It adds two rows at a time, which halves the passes over the result.
fn wide_product(a: &[u64; LIMBS], b: &[u64; LIMBS]) -> [u64; 2 * LIMBS] {
    let mut product = [0; 2 * LIMBS];
    for (row, [a0, a1]) in a.as_chunks::<2>().0.iter().enumerate() {
        let (a0, a1) = (u128::from(*a0), u128::from(*a1));
        let out: &mut [u64] = &mut product[2 * row..2 * row + LIMBS + 2];
        let (mut carry0, mut carry1, mut previous) = (0, 0, 0);
        for (out, b) in out.iter_mut().zip(b) {
            let sum0 = a0 * u128::from(*b) + u128::from(*out) + carry0;
            let sum1 = a1 * previous + u128::from(sum0 as u64) + carry1;
            *out = sum1 as u64;
            (carry0, carry1, previous) = (sum0 >> 64, sum1 >> 64, u128::from(*b));
        }
        let last = a1 * previous + carry0 + carry1;
        out[LIMBS] = last as u64;
        out[LIMBS + 1] = (last >> 64) as u64;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_special_instructions_are_those_of_the_portable_code() {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.rotate_left(17) ^ state >> 31
        };
        let mut numbers = vec![[0; LIMBS], [u64::MAX; LIMBS]];
        numbers.extend((0..20).map(|_| std::array::from_fn(|_| random())));
        numbers
            .extend((0..LIMBS).map(|limb| std::array::from_fn(|at| if at == limb { u64::MAX } else { 0 })));
        for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (a, b))) {
            let expected = wide_product(a, b);
            #[cfg(target_arch = "x86_64")]
            if avx512::is_available() {
                // SAFETY: the processor has the instructions.
                assert_eq!(unsafe { avx512::wide_product(a, b) }, expected);
            }
            #[cfg(target_arch = "x86_64")]
            if adx::is_available() {
                // SAFETY: the processor has the instructions.
                assert_eq!(unsafe { adx::wide_product(a, b) }, expected);
            }
            assert_eq!(product(a, b), expected);
        }
    }

    fn limbs(lowest: u64, others: u64) -> Num3072 {
        let mut limbs = [others; LIMBS];
        limbs[0] = lowest;
        Num3072(limbs)
    }

    /// Covers the prime and the numbers next to those whose carries propagate through all words.
    #[test]
    fn reduces_numbers_around_the_modulus() {
        let modulus = PRIME_DIFFERENCE.wrapping_neg();
        for (lowest, wanted) in [(modulus, 0), (modulus + 1, 1), (u64::MAX, PRIME_DIFFERENCE - 1)] {
            let mut number = limbs(lowest, u64::MAX);
            number.reduce();
            assert_eq!(number, limbs(wanted, 0));
        }
        let mut below = limbs(modulus - 1, u64::MAX);
        below.reduce();
        assert_eq!(below, limbs(modulus - 1, u64::MAX), "the modulus minus one stays");

        let mut square = below.clone();
        square.multiply(&below);
        square.reduce();
        assert_eq!(square, Num3072::ONE, "minus one squared");

        let mut largest = limbs(u64::MAX, u64::MAX);
        largest.multiply(&limbs(u64::MAX, u64::MAX));
        largest.reduce();
        let rest = PRIME_DIFFERENCE - 1;
        assert_eq!(largest, limbs(rest * rest, 0));

        let mut folded = limbs(u64::MAX, u64::MAX);
        folded.fold(1);
        assert_eq!(folded, limbs(2 * PRIME_DIFFERENCE - 1, 0), "a carry through all words is folded again");
    }

    #[test]
    fn from_bytes_rejects_zero() {
        let mut bytes = MuHash3072::new().to_bytes();
        assert!(MuHash3072::from_bytes(&bytes).is_some_and(|set| set.is_empty()));
        bytes[0] = 0;
        assert!(MuHash3072::from_bytes(&bytes).is_none(), "0");
        limbs(PRIME_DIFFERENCE.wrapping_neg(), u64::MAX).write(&mut bytes[..LIMBS * 8]);
        assert!(MuHash3072::from_bytes(&bytes).is_none(), "the modulus");
    }

    #[test]
    fn a_number_times_its_inverse_is_one() {
        for number in [Num3072::ONE, limbs(2, 0), limbs(u64::MAX, u64::MAX), Num3072::of_element(b"x")] {
            let mut product = number.inverse();
            product.multiply(&number);
            product.reduce();
            assert_eq!(product, Num3072::ONE);
        }
    }

    #[test]
    fn sets_divided_together_have_the_hashes_that_they_have_alone() {
        let mut sets: Vec<MuHash3072> = (0..9u8)
            .map(|number| {
                let mut set = MuHash3072::new();
                (0..number).for_each(|element| set.insert(&[number, element]));
                (3..number).for_each(|element| set.remove(&[number, element, 0]));
                set
            })
            .collect();
        let alone: Vec<_> = sets.iter().map(|set| set.clone().finalize()).collect();
        MuHash3072::divide_all(&mut sets);
        assert!(sets.iter().all(|set| set.denominator == Num3072::ONE));
        assert_eq!(sets.into_iter().map(MuHash3072::finalize).collect::<Vec<_>>(), alone);
        MuHash3072::divide_all(&mut []);
    }
}

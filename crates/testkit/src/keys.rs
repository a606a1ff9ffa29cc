//! Keys, and signatures that are cheap to make.
//!
//! Usual signing costs a point multiplication per signature, and a chain has millions of signatures. Nothing
//! here guards money, so nonces come from a small pool whose points and inverses are computed once: a
//! signature then takes two multiplications modulo the group order. Readers of the chain can compute the
//! keys, but these follow from the seed anyway.

use crate::rng::Rng;
use bitcoin::secp256k1::{Parity, PublicKey, Scalar, Secp256k1, SecretKey, XOnlyPublicKey, ecdsa};
use digest::sha256::Sha256;

/// Number of nonces in a pool.
const NONCES: usize = 16;

/// n - 2: raising to this power inverts modulo the group order n.
const ORDER_MINUS_TWO: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba,
    0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x3f,
];

/// A secret key with its public forms.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub(crate) secret: SecretKey,
    /// The secret key whose point has an even y, with which BIP-0340 signs.
    even: SecretKey,
    pub public: PublicKey,
    pub x_only: XOnlyPublicKey,
}

impl Key {
    pub(crate) fn new(secret: SecretKey) -> Self {
        let public = secret.public_key(&Secp256k1::signing_only());
        let (x_only, parity) = public.x_only_public_key();
        let even = if parity == Parity::Even { secret } else { secret.negate() };
        Self { secret, even, public, x_only }
    }
}

#[derive(Clone, Copy, Debug)]
struct Nonce {
    k: SecretKey,
    inverse: Scalar,
    r: [u8; 32],
}

/// Signs with a pool of nonces.
#[derive(Clone, Debug)]
pub struct Signer {
    nonces: Vec<Nonce>,
    challenge: Sha256,
}

impl Signer {
    /// Computes the nonces of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "nonces");
        let mut nonces = Vec::new();
        while nonces.len() < NONCES {
            let key = random_key(&mut rng);
            let r = key.x_only.serialize();
            // A low r makes all signatures equally short.
            if r[0] < 0x80 {
                nonces.push(Nonce { k: key.even, inverse: Scalar::from(invert(key.even)), r });
            }
        }
        let tag = digest::sha256::sha256(b"BIP0340/challenge");
        let mut challenge = Sha256::new();
        challenge.update(&tag);
        challenge.update(&tag);
        Self { nonces, challenge }
    }

    fn nonce(&self, digest: &[u8; 32]) -> &Nonce {
        &self.nonces[digest[0] as usize % NONCES]
    }

    /// Makes an ECDSA signature in DER, with low s.
    ///
    /// # Panics
    /// If a number is 0 or not below the group order, with probability 2^-127.
    pub fn ecdsa(&self, key: &Key, digest: &[u8; 32]) -> Vec<u8> {
        let nonce = self.nonce(digest);
        let r = Scalar::from_be_bytes(nonce.r).expect("x of a point is below the order");
        let z = Scalar::from_be_bytes(*digest).expect("a hash is below the order");
        let s = key
            .secret
            .mul_tweak(&r)
            .and_then(|rd| rd.add_tweak(&z))
            .and_then(|sum| sum.mul_tweak(&nonce.inverse))
            .expect("no sum is zero");
        let compact = [nonce.r, s.secret_bytes()].concat();
        let mut signature = ecdsa::Signature::from_compact(&compact).expect("r and s are below the order");
        signature.normalize_s();
        signature.serialize_der().to_vec()
    }

    /// Makes a BIP-0340 signature.
    ///
    /// # Panics
    /// If a number is 0 or not below the group order, with probability 2^-127.
    pub fn schnorr(&self, key: &Key, digest: &[u8; 32]) -> Vec<u8> {
        let nonce = self.nonce(digest);
        let mut challenge = self.challenge.clone();
        challenge.update(&nonce.r);
        challenge.update(&key.x_only.serialize());
        challenge.update(digest);
        let e = Scalar::from_be_bytes(challenge.finalize()).expect("a hash is below the order");
        let s = key
            .even
            .mul_tweak(&e)
            .and_then(|ed| ed.add_tweak(&Scalar::from(nonce.k)))
            .expect("no sum is zero");
        [nonce.r, s.secret_bytes()].concat()
    }
}

pub fn random_key(rng: &mut Rng) -> Key {
    loop {
        let mut bytes = [0; 32];
        rng.fill(&mut bytes);
        if let Ok(secret) = SecretKey::from_slice(&bytes) {
            return Key::new(secret);
        }
    }
}

/// Computes the inverse modulo the group order, by Fermat's little theorem.
fn invert(k: SecretKey) -> SecretKey {
    let times = |a: SecretKey, b: SecretKey| a.mul_tweak(&Scalar::from(b)).expect("no product is zero");
    // The highest bit of n - 2 is set, so the power starts at k.
    let bits = ORDER_MINUS_TWO.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
    bits.skip(1).fold(k, |power, bit| {
        let square = times(power, power);
        if bit { times(square, k) } else { square }
    })
}

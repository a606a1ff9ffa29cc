//! Keys and ciphers of the version 2 transport (BIP 324; Core `bip324.cpp`, `crypto/chacha20poly1305.cpp`).
//!
//! The key exchange is libsecp256k1's. The crate `bip324` does not give out the keys that it derives, and its
//! own ChaCha20-Poly1305 is several times slower than RustCrypto's; blocks are nearly all bytes of a
//! connection.

use bitcoin_hashes::{Hkdf, sha256};
use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};
use chacha20poly1305::{AeadInPlace, ChaCha20Poly1305, KeyInit};
use secp256k1::{
    SecretKey,
    ellswift::{ElligatorSwift, Party},
};
use std::mem;

/// Length of a public key as it is sent, in bytes.
pub(crate) const KEY_LEN: usize = 64;
/// Length of the bytes that end the garbage.
pub(crate) const TERMINATOR_LEN: usize = 16;
/// Length of the tag that authenticates a packet.
pub(crate) const TAG_LEN: usize = 16;
/// Number of packets after which a key is replaced.
const REKEY_INTERVAL: u32 = 224;

/// Which side opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The side that opened it.
    Initiator,
    /// The side that accepted it.
    Responder,
}

/// A secret key, and the public key as 64 bytes that look random.
pub(crate) struct KeyPair {
    secret: SecretKey,
    public: ElligatorSwift,
}

impl KeyPair {
    /// Creates a key pair from two random numbers. Returns `None` if the first is not a valid secret key,
    /// which has a chance of 2^-128.
    pub(crate) fn new(secret: [u8; 32], auxiliary: [u8; 32]) -> Option<Self> {
        let secret = SecretKey::from_secret_bytes(secret).ok()?;
        Some(Self { secret, public: ElligatorSwift::from_seckey(secret, Some(auxiliary)) })
    }

    /// Creates a key pair from the operating system's random numbers.
    pub(crate) fn random() -> Self {
        loop {
            if let Some(pair) = Self::new(crate::random::bytes(), crate::random::bytes()) {
                return pair;
            }
        }
    }

    /// Returns the bytes to send to the peer.
    pub(crate) fn public(&self) -> [u8; KEY_LEN] {
        self.public.to_array()
    }

    pub(crate) fn derive(&self, theirs: [u8; KEY_LEN], role: Role, magic: [u8; 4]) -> Session {
        let theirs = ElligatorSwift::from_array(theirs);
        let (initiator, responder, party) = match role {
            Role::Initiator => (self.public, theirs, Party::Initiator),
            Role::Responder => (theirs, self.public, Party::Responder),
        };
        let shared = ElligatorSwift::shared_secret(initiator, responder, self.secret, party);
        let salt = [&b"bitcoin_v2_shared_secret"[..], &magic].concat();
        let hkdf = Hkdf::<sha256::HashEngine>::new(&salt, &shared.to_secret_bytes());
        let expand = |info: &str| {
            let mut key = [0; 32];
            // It fails only above 255 times 32 bytes.
            let expanded = hkdf.expand(info.as_bytes(), &mut key);
            debug_assert!(expanded.is_ok());
            key
        };
        let stream = |name| CipherPair {
            lengths: LengthCipher::new(expand(&format!("{name}_L"))),
            packets: PacketCipher::new(expand(&format!("{name}_P"))),
        };
        let terminators = expand("garbage_terminators");
        // As the initiator has it.
        let mut session = Session {
            #[cfg(test)]
            id: expand("session_id"),
            send: stream("initiator"),
            receive: stream("responder"),
            our_terminator: terminators.first_chunk().copied().unwrap_or_default(),
            their_terminator: terminators.last_chunk().copied().unwrap_or_default(),
        };
        if role == Role::Responder {
            mem::swap(&mut session.send, &mut session.receive);
            mem::swap(&mut session.our_terminator, &mut session.their_terminator);
        }
        session
    }
}

/// The secrets that two peers share after the key exchange.
pub(crate) struct Session {
    /// A number by which users of both peers could see that nobody is between them.
    #[cfg(test)]
    pub(crate) id: [u8; 32],
    pub(crate) send: CipherPair,
    pub(crate) receive: CipherPair,
    /// The bytes that end our garbage.
    pub(crate) our_terminator: [u8; TERMINATOR_LEN],
    /// The bytes that end the peer's garbage.
    pub(crate) their_terminator: [u8; TERMINATOR_LEN],
}

/// The ciphers of one direction.
pub(crate) struct CipherPair {
    pub(crate) lengths: LengthCipher,
    pub(crate) packets: PacketCipher,
}

/// Enciphers and deciphers the 3-byte lengths of packets: one key stream, and a new key after 224 lengths
/// (Core `FSChaCha20`).
pub(crate) struct LengthCipher {
    cipher: ChaCha20,
    lengths: u32,
    rekeys: u64,
}

impl LengthCipher {
    fn new(key: [u8; 32]) -> Self {
        Self { cipher: Self::cipher(key, 0), lengths: 0, rekeys: 0 }
    }

    fn cipher(key: [u8; 32], rekeys: u64) -> ChaCha20 {
        ChaCha20::new(&key.into(), &nonce(0, rekeys).into())
    }

    /// Enciphers or deciphers the next length.
    pub(crate) fn apply(&mut self, length: &mut [u8; 3]) {
        self.cipher.apply_keystream(length);
        self.lengths += 1;
        if self.lengths == REKEY_INTERVAL {
            let mut key = [0; 32];
            self.cipher.apply_keystream(&mut key);
            self.rekeys += 1;
            self.lengths = 0;
            self.cipher = Self::cipher(key, self.rekeys);
        }
    }
}

/// Enciphers and deciphers packets: a new nonce for each, and a new key after 224 packets (Core
/// `FSChaCha20Poly1305`).
pub(crate) struct PacketCipher {
    cipher: ChaCha20Poly1305,
    packets: u32,
    rekeys: u64,
}

impl PacketCipher {
    fn new(key: [u8; 32]) -> Self {
        Self { cipher: ChaCha20Poly1305::new(&key.into()), packets: 0, rekeys: 0 }
    }

    /// Enciphers `bytes` in place and returns the tag over them and `associated`.
    pub(crate) fn encrypt(&mut self, associated: &[u8], bytes: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = nonce(self.packets, self.rekeys).into();
        // It fails only above 256 GiB.
        let tag = self.cipher.encrypt_in_place_detached(&nonce, associated, bytes);
        debug_assert!(tag.is_ok());
        self.next();
        tag.unwrap_or_default().into()
    }

    /// Deciphers `bytes` in place. Returns whether the tag is right; if not, the bytes are unchanged and the
    /// connection must be closed.
    pub(crate) fn decrypt(&mut self, associated: &[u8], bytes: &mut [u8], tag: [u8; TAG_LEN]) -> bool {
        let nonce = nonce(self.packets, self.rekeys).into();
        let result = self.cipher.decrypt_in_place_detached(&nonce, associated, bytes, &tag.into());
        self.next();
        result.is_ok()
    }

    fn next(&mut self) {
        self.packets += 1;
        if self.packets == REKEY_INTERVAL {
            let mut key = [0; 32];
            let nonce = nonce(u32::MAX, self.rekeys).into();
            // The key is the key stream itself: zeros, enciphered.
            let done = self.cipher.encrypt_in_place_detached(&nonce, &[], &mut key);
            debug_assert!(done.is_ok());
            self.cipher = ChaCha20Poly1305::new(&key.into());
            self.packets = 0;
            self.rekeys += 1;
        }
    }
}

/// Returns the nonce: u32 LE | u64 LE.
fn nonce(packet: u32, rekeys: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    let fields = packet.to_le_bytes().into_iter().chain(rekeys.to_le_bytes());
    nonce.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    nonce
}

#[cfg(test)]
mod tests;

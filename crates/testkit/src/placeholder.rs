//! Inputs with placeholders for signatures: bytes that are computed once per script, with gaps for noise.
//!
//! A chain whose scripts are never run needs no signatures, only different bytes of the same length in their
//! place. All other bytes are the same in all inputs that spend the same script of the pool.

use crate::scripts::Item;
use bitcoin::script::{Builder, PushBytesBuf};
use std::ops::Range;
use wire::read::write_compact_size;

/// Length of a placeholder for an ECDSA signature, in bytes: the usual length of a real one with its hash
/// type.
pub const ECDSA_LEN: usize = 71;
/// Length of a placeholder for a BIP-0340 signature, in bytes.
pub const SCHNORR_LEN: usize = 64;

/// The factor of the linear congruential generator that makes noise.
const FACTOR: u32 = 0x9e37_79b1;
/// Its increment.
const TERM: u32 = 0x7f4a_7c15;

/// Its steps combined: the state after `n + 1` steps from `s` is `JUMPS[n].0 * s + JUMPS[n].1`.
const JUMPS: [(u32, u32); ECDSA_LEN] = {
    let mut jumps = [(FACTOR, TERM); ECDSA_LEN];
    let mut at = 1;
    while at < ECDSA_LEN {
        let (factor, term) = jumps[at - 1];
        jumps[at] = (factor.wrapping_mul(FACTOR), term.wrapping_mul(FACTOR).wrapping_add(TERM));
        at += 1;
    }
    jumps
};

/// Returns cheap pseudo-random bytes that depend on `salt`.
#[must_use]
pub fn noise(salt: u16, len: usize) -> Vec<u8> {
    let mut state = u32::from(salt) | 0x1_0000;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(FACTOR).wrapping_add(TERM);
            (state >> 24) as u8
        })
        .collect()
}

/// Returns the bytes that the placeholders of an input start with: [`noise`], except that the first byte is
/// that of a DER signature.
fn signature_noise(salt: u16) -> [u8; ECDSA_LEN] {
    let state = u32::from(salt) | 0x1_0000;
    let mut noise = JUMPS.map(|(factor, term)| (state.wrapping_mul(factor).wrapping_add(term) >> 24) as u8);
    noise[0] = 0x30;
    noise
}

/// A signature script or a witness, with gaps for the signatures.
#[derive(Clone, Debug, Default)]
pub struct Template {
    bytes: Vec<u8>,
    gaps: Vec<Range<usize>>,
}

impl Template {
    /// A signature script that pushes `items`, with its length before it.
    #[must_use]
    pub fn script_sig(items: &[Item], signature_len: usize) -> Self {
        let (mut script, mut gaps) = (Builder::new(), Vec::new());
        for item in items {
            let bytes = PushBytesBuf::try_from(filled(item, signature_len)).expect("items are short");
            script = script.push_slice(bytes);
            if matches!(item, Item::Signature(_)) {
                gaps.push(script.as_bytes().len() - signature_len..script.as_bytes().len());
            }
        }
        let mut bytes = Vec::new();
        write_compact_size(&mut bytes, script.as_bytes().len() as u64);
        let prefix = bytes.len();
        bytes.extend_from_slice(script.as_bytes());
        let gaps = gaps.into_iter().map(|gap| gap.start + prefix..gap.end + prefix).collect();
        Self { bytes, gaps }
    }

    /// A witness, with the number of its items before it.
    #[must_use]
    pub fn witness(items: &[Item], signature_len: usize) -> Self {
        let (mut bytes, mut gaps) = (Vec::new(), Vec::new());
        write_compact_size(&mut bytes, items.len() as u64);
        for item in items {
            let filled = filled(item, signature_len);
            write_compact_size(&mut bytes, filled.len() as u64);
            bytes.extend_from_slice(&filled);
            if matches!(item, Item::Signature(_)) {
                gaps.push(bytes.len() - signature_len..bytes.len());
            }
        }
        Self { bytes, gaps }
    }

    /// Appends the bytes to `out`, with noise for `salt` in the gaps.
    pub fn write(&self, salt: u16, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        if self.gaps.is_empty() {
            return;
        }
        let noise = signature_noise(salt);
        for gap in &self.gaps {
            out[start + gap.start..start + gap.end].copy_from_slice(&noise[..gap.len()]);
        }
    }
}

fn filled(item: &Item, signature_len: usize) -> Vec<u8> {
    match item {
        Item::Bytes(bytes) => bytes.clone(),
        Item::Signature(_) => vec![0; signature_len],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_steps_equal_single_steps() {
        for salt in [0, 1, 0x1234, u16::MAX] {
            assert_eq!(signature_noise(salt)[1..], noise(salt, ECDSA_LEN)[1..]);
        }
    }
}

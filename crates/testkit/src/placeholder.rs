//! Inputs without signatures: bytes that are computed once for each script, with gaps for noise.
//!
//! A chain whose scripts nobody runs needs no signatures, only bytes in their place: as many as a signature
//! has, and not twice the same. All else of an input that spends a script of the pool is the same each time.

use crate::scripts::Item;
use bitcoin::script::{Builder, PushBytesBuf};
use std::ops::Range;
use wire::read::write_compact_size;

/// Bytes of a placeholder ECDSA signature: the usual length of a true one with its hash type.
pub const ECDSA_LEN: usize = 71;
/// Bytes of a placeholder BIP-0340 signature.
pub const SCHNORR_LEN: usize = 64;

/// The factor of the generator of noise.
const FACTOR: u32 = 0x9e37_79b1;
/// What it adds.
const TERM: u32 = 0x7f4a_7c15;

/// Its steps taken at once: the state after `n + 1` steps from `s` is `JUMPS[n].0 * s + JUMPS[n].1`.
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

/// Cheap bytes that differ by `salt`.
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

/// What all placeholders of an input start with: [`noise`] but for the first byte, which is that of a DER
/// signature.
fn signature_noise(salt: u16) -> [u8; ECDSA_LEN] {
    let state = u32::from(salt) | 0x1_0000;
    let mut noise = JUMPS.map(|(factor, term)| (state.wrapping_mul(factor).wrapping_add(term) >> 24) as u8);
    noise[0] = 0x30;
    noise
}

/// A signature script or a witness, with gaps where signatures belong.
#[derive(Clone, Debug, Default)]
pub struct Template {
    bytes: Vec<u8>,
    gaps: Vec<Range<usize>>,
}

impl Template {
    /// A signature script, its length first, that pushes `items`.
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

    /// A witness, the number of its items first.
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

    /// Appends the bytes, the gaps filled with noise of `salt`.
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
    fn jumps_are_steps() {
        for salt in [0, 1, 0x1234, u16::MAX] {
            assert_eq!(signature_noise(salt)[1..], noise(salt, ECDSA_LEN)[1..]);
        }
    }
}

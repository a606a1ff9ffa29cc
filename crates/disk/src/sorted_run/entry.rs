//! One entry of a run, encoded as the difference to the entry before it.
//!
//! ```text
//! flags   bit 0      a spend
//!         bits 1-3   bytes of the txid, after its first, that equal those of the entry before; 7: all 31
//!         bit 4      the code equals that of the entry before, and is omitted
//!         bits 5-7   vout; 7: VARINT(vout) follows
//! ```
//! Then follows what the flags leave open: the rest of the txid, vout, VARINT(code), and `out`
//! ([`wire::coin`]), which contains its own length. The first entry of a shard is encoded as if after one
//! with code 0 and the outpoint (first byte of the shard's txids, then 31 zeros; 0).

use std::cmp::Ordering;
use std::ops::Range;
use wire::coin::{chainstate_key_order, compressed_script_len};
use wire::read::write_var_int;
use wire::script::MAX_SCRIPT_SIZE;
use wire::{Entry, OutPoint, Reader};

/// Flags and an `out` of 2 bytes: no amount, no script.
pub(super) const MIN_LEN: u64 = 3;
/// Flags, txid, vout, code, then `out`: amount, script length, script.
pub(super) const MAX_LEN: usize = 1 + 31 + 5 + 5 + 10 + 2 + MAX_SCRIPT_SIZE;

const SPEND: u8 = 1;
const SHARED_SHIFT: u32 = 1;
const SAME_CODE: u8 = 1 << 4;
const VOUT_SHIFT: u32 = 5;
/// The greatest number of three bits: as the count of shared bytes, the whole txid; as vout, that
/// VARINT(vout) follows.
const ALL: u8 = 7;

/// An entry cannot be decoded.
pub(super) const MALFORMED: &str = "an entry is malformed";
const OUT_OF_ORDER: &str = "entries are not in order";

/// The parts of an entry on which the encoding of the next one depends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Previous {
    pub(super) outpoint: OutPoint,
    pub(super) code: u32,
}

pub(super) struct Decoded {
    pub(super) is_spend: bool,
    /// Range of the coin's `out` in the bytes of the entry; it ends with the entry.
    pub(super) out: Range<usize>,
}

impl Previous {
    /// The state before a shard's first entry.
    pub(super) fn before(shard: u8) -> Self {
        let mut last = Self::default();
        if let Some(first) = last.outpoint.txid.0.first_mut() {
            *first = shard;
        }
        last
    }

    /// Appends an entry of the same shard, which must not come before this one.
    #[inline]
    pub(super) fn encode(&mut self, entry: &Entry<'_>, bytes: &mut Vec<u8>) {
        let Entry { is_spend, outpoint, coin } = *entry;
        let shared = shared_bytes(&self.outpoint.txid.0, &outpoint.txid.0);
        let same_code = self.code == coin.code;
        let vout = outpoint.vout.min(ALL.into()) as u8;
        let flags = if is_spend { SPEND } else { 0 }
            | shared << SHARED_SHIFT
            | if same_code { SAME_CODE } else { 0 }
            | vout << VOUT_SHIFT;
        bytes.push(flags);
        if shared < ALL {
            bytes.extend_from_slice(outpoint.txid.0.get(1 + usize::from(shared)..).unwrap_or_default());
        }
        if vout == ALL {
            write_var_int(bytes, outpoint.vout.into());
        }
        if !same_code {
            write_var_int(bytes, coin.code.into());
        }
        bytes.extend_from_slice(coin.out);
        *self = Self { outpoint, code: coin.code };
    }

    /// Decodes the entry at the beginning of `bytes`. On error, `self` is not changed.
    #[inline]
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<Decoded, &'static str> {
        let (decoded, last) = self.parse(bytes).ok_or(MALFORMED)?;
        if chainstate_key_order(&self.outpoint, &last.outpoint) == Ordering::Greater {
            return Err(OUT_OF_ORDER);
        }
        *self = last;
        Ok(decoded)
    }

    #[inline]
    fn parse(&self, bytes: &[u8]) -> Option<(Decoded, Self)> {
        let mut reader = Reader::new(bytes);
        let Self { mut outpoint, mut code } = *self;
        let flags = reader.u8().ok()?;
        let shared = flags >> SHARED_SHIFT & ALL;
        if shared < ALL {
            let own = outpoint.txid.0.get_mut(1 + usize::from(shared)..)?;
            own.copy_from_slice(reader.bytes(own.len()).ok()?);
        }
        outpoint.vout = match flags >> VOUT_SHIFT {
            ALL => u32::try_from(reader.var_int().ok()?).ok()?,
            vout => vout.into(),
        };
        if flags & SAME_CODE == 0 {
            code = u32::try_from(reader.var_int().ok()?).ok()?;
        }
        let start = reader.position();
        skip_out(&mut reader)?;
        let decoded = Decoded { is_spend: flags & SPEND != 0, out: start..reader.position() };
        Some((decoded, Self { outpoint, code }))
    }
}

/// Whether `out` is one compressed output according to its lengths: otherwise, its end could not be found.
#[inline]
pub(super) fn is_out(out: &[u8]) -> bool {
    let mut reader = Reader::new(out);
    skip_out(&mut reader).is_some() && reader.remaining() == 0
}

#[inline]
fn skip_out(reader: &mut Reader<'_>) -> Option<()> {
    reader.var_int().ok()?;
    let script_len = usize::try_from(compressed_script_len(reader.var_int().ok()?)).ok()?;
    reader.bytes(Some(script_len).filter(|len| *len <= MAX_SCRIPT_SIZE)?).ok().map(drop)
}

/// Returns how many bytes after the first two txids of a shard share: up to 6, or [`ALL`] if they are equal.
#[inline]
fn shared_bytes(a: &[u8; 32], b: &[u8; 32]) -> u8 {
    if a == b {
        return ALL;
    }
    let head = |txid: &[u8; 32]| txid.first_chunk().map_or(0, |head| u64::from_be_bytes(*head));
    let same = ((head(a) ^ head(b)).leading_zeros() / 8) as u8;
    same.saturating_sub(1).min(ALL - 1)
}

//! The compressed coin: the form of a coin in undo data and the chainstate, and everywhere in Peregrine.
//!
//! Source: Core `Coin::Serialize`, `TxInUndoFormatter`, `TxOutCompression` (`coins.h`, `undo.h`,
//! `compressor.h`).
//!
//! ```text
//! chainstate key    'C' | txid 32 | VARINT(vout)
//! chainstate value  VARINT(code) | out              code = height * 2 + coinbase
//! undo entry        VARINT(code) | VARINT(0) if height > 0 | out
//! out               VARINT(compressed amount) | script
//! script            00 | hash 20       P2PKH
//!                   01 | hash 20       P2SH
//!                   02, 03 | x 32      P2PK, compressed key
//!                   04, 05 | x 32      P2PK, uncompressed key, even or odd y; only for points on the curve
//!                   VARINT(length + 6) | script        any other
//! ```
//!
//! Core gives each output exactly one such form, and others are refused, so two coins are equal if and only
//! if their codes and their `out` bytes are equal. A claim from undo data and the created coin are therefore
//! compared bytewise.

use crate::{
    hash::{OutPoint, Txid},
    read::{Reader, WireError, write_compact_size, write_var_int},
    script::MAX_SCRIPT_SIZE,
    units::{Height, Sats},
};
use secp256k1::PublicKey;
use std::cmp::Ordering;

/// First byte of a coin's key in the chainstate (Core `DB_COIN`).
pub const COIN_KEY_PREFIX: u8 = b'C';

/// Number of special script forms; any other script is preceded by its length plus this (Core
/// `nSpecialScripts`).
const SPECIAL_SCRIPTS: u64 = 6;

/// The reason why bytes are not a coin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoinError {
    /// The bytes are too few or too many, or contain a malformed number.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Height and coinbase flag do not fit into 32 bits.
    #[error("coin code {0} does not fit into 32 bits")]
    Code(u64),
    /// The decompressed amount does not fit into an i64.
    #[error("compressed amount {0} overflows")]
    Amount(u64),
    /// The script is longer than a coin's script can be.
    #[error("a coin's script of {0} bytes is above the limit of 10000 bytes")]
    ScriptSize(u64),
    /// The script has a special form, but is stored like any other.
    #[error("a script is stored whole that Bitcoin Core always compresses")]
    NotCompressed,
    /// No point on the curve has this x coordinate.
    #[error("compressed public key is not on the curve")]
    NotOnCurve,
    /// An undo entry has no height: Core before 0.15 wrote it only for the last spend of a transaction.
    #[error("undo entry has no height (written by Bitcoin Core before 0.15)")]
    NoHeight,
    /// The key of a chainstate row is not the key of a coin.
    #[error("not the key of a coin")]
    Key,
}

/// A compressed coin: its height and coinbase flag as one number, and its output in Core's compressed form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coin<'a> {
    /// height * 2 + coinbase.
    pub code: u32,
    /// Compressed amount and script.
    pub out: &'a [u8],
}

impl<'a> Coin<'a> {
    /// Returns the code of a coin created at `height`, which must be below 2^31. No chain reaches that
    /// height: heights come from [`Coin`] codes or block counts.
    pub const fn code_of(height: Height, is_coinbase: bool) -> u32 {
        height.0 << 1 | is_coinbase as u32
    }

    /// Returns the height of the block that created it.
    pub const fn height(&self) -> Height {
        Height(self.code >> 1)
    }

    pub const fn is_coinbase(&self) -> bool {
        self.code & 1 == 1
    }

    /// Reads one entry of undo data.
    ///
    /// # Errors
    /// [`CoinError`] if the bytes are not an entry that Core writes.
    #[inline]
    pub fn read_undo(reader: &mut Reader<'a>, bytes: &'a [u8]) -> Result<Self, CoinError> {
        let code = read_code(reader)?;
        if code >> 1 == 0 {
            return Err(CoinError::NoHeight);
        }
        reader.var_int()?;
        let start = reader.position();
        skip_out(reader)?;
        Ok(Self { code, out: bytes.get(start..reader.position()).unwrap_or_default() })
    }

    /// Reads the value of a chainstate row, with the obfuscation already removed.
    ///
    /// # Errors
    /// [`CoinError`] if the bytes are not exactly one coin.
    pub fn read_chainstate_value(value: &'a [u8]) -> Result<Self, CoinError> {
        let mut reader = Reader::new(value);
        let code = read_code(&mut reader)?;
        let start = reader.position();
        skip_out(&mut reader)?;
        reader.finish()?;
        Ok(Self { code, out: value.get(start..).unwrap_or_default() })
    }

    /// Appends the value of a chainstate row, not obfuscated.
    pub fn write_chainstate_value(&self, value: &mut Vec<u8>) {
        write_var_int(value, self.code.into());
        value.extend_from_slice(self.out);
    }

    /// Appends an entry of undo data.
    pub fn write_undo(&self, undo: &mut Vec<u8>) {
        write_var_int(undo, self.code.into());
        if self.code >> 1 > 0 {
            undo.push(0);
        }
        undo.extend_from_slice(self.out);
    }

    /// Decodes the amount and the script.
    ///
    /// # Errors
    /// [`CoinError`] if `out` is not one compressed output.
    #[inline]
    pub fn output(&self) -> Result<(Sats, CompressedScript<'a>), CoinError> {
        let mut reader = Reader::new(self.out);
        let compressed = reader.var_int()?;
        let amount = decompress_amount(compressed).ok_or(CoinError::Amount(compressed))?;
        let script = CompressedScript::read(&mut reader)?;
        reader.finish()?;
        Ok((Sats(amount), script))
    }

    /// Decodes the coin and appends its [UTXO element](write_utxo_element).
    ///
    /// # Errors
    /// [`CoinError`] if `out` is not one compressed output.
    pub fn write_utxo_element(&self, outpoint: &OutPoint, element: &mut Vec<u8>) -> Result<(), CoinError> {
        let (amount, script) = self.output()?;
        write_utxo_element(element, outpoint, self.code, amount, script)
    }
}

/// Appends the form in which `hash_serialized_3` and MuHash hash a coin (Core `kernel/coinstats.cpp`
/// `TxOutSer`): outpoint, code as u32, amount as i64, script with its CompactSize length.
#[inline]
pub fn write_utxo_element(
    element: &mut Vec<u8>,
    outpoint: &OutPoint,
    code: u32,
    amount: Sats,
    script: CompressedScript<'_>,
) -> Result<(), CoinError> {
    begin_utxo_element(element, outpoint, code, amount);
    write_compact_size(element, script.script_len() as u64);
    script.decompress(element)
}

/// Appends all of an element but its script.
#[inline]
fn begin_utxo_element(element: &mut Vec<u8>, outpoint: &OutPoint, code: u32, amount: Sats) {
    // One number, so that no memory is read in other widths than it was written in, which would stall.
    let numbers = u128::from(outpoint.vout) | u128::from(code) << 32 | u128::from(amount.0 as u64) << 64;
    element.extend_from_slice(&outpoint.txid.0);
    element.extend_from_slice(&numbers.to_le_bytes());
}

/// A coin as the hashes of the UTXO set cover it, with its script uncompressed ([`write_utxo_element`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoElement<'a> {
    pub outpoint: OutPoint,
    /// Height and coinbase flag, as in [`Coin::code`].
    pub code: u32,
    pub amount: Sats,
    pub script: &'a [u8],
}

impl<'a> UtxoElement<'a> {
    /// Reads one element.
    ///
    /// # Errors
    /// [`WireError`] if the bytes end early, or the script is longer than any message.
    #[inline]
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let outpoint = OutPoint { txid: Txid(reader.array()?), vout: reader.u32()? };
        let (code, amount) = (reader.u32()?, reader.u64()?);
        Ok(Self { outpoint, code, amount: Sats(amount as i64), script: reader.byte_string()? })
    }

    pub fn write(&self, element: &mut Vec<u8>) {
        begin_utxo_element(element, &self.outpoint, self.code, self.amount);
        write_compact_size(element, self.script.len() as u64);
        element.extend_from_slice(self.script);
    }

    /// Returns the height of the block that created the coin.
    pub const fn height(&self) -> Height {
        Height(self.code >> 1)
    }

    pub const fn is_coinbase(&self) -> bool {
        self.code & 1 == 1
    }
}

fn read_code(reader: &mut Reader<'_>) -> Result<u32, CoinError> {
    let code = reader.var_int()?;
    u32::try_from(code).map_err(|_| CoinError::Code(code))
}

#[inline]
fn skip_out(reader: &mut Reader<'_>) -> Result<(), CoinError> {
    reader.var_int()?;
    CompressedScript::read(reader).map(|_| ())
}

/// A script in the form of [`Coin::out`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressedScript<'a> {
    /// `DUP HASH160 <hash> EQUALVERIFY CHECKSIG`
    P2pkh(&'a [u8; 20]),
    /// `HASH160 <hash> EQUAL`
    P2sh(&'a [u8; 20]),
    /// `<key> CHECKSIG`. The tag is 2 or 3, the first byte of a compressed key, or 4 or 5 for an uncompressed
    /// key whose y is even or odd.
    P2pk { tag: u8, x: &'a [u8; 32] },
    /// Any other script, uncompressed.
    Raw(&'a [u8]),
}

/// Returns the length in bytes of the compressed script that follows the number `kind`.
#[inline]
pub const fn compressed_script_len(kind: u64) -> u64 {
    match kind {
        0 | 1 => 20,
        2..=5 => 32,
        _ => kind - SPECIAL_SCRIPTS,
    }
}

impl<'a> CompressedScript<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, CoinError> {
        let kind = reader.var_int()?;
        match kind {
            0 => array(reader).map(Self::P2pkh),
            1 => array(reader).map(Self::P2sh),
            2..=5 => array(reader).map(|x| Self::P2pk { tag: kind as u8, x }),
            _ => {
                let len = compressed_script_len(kind);
                if len > MAX_SCRIPT_SIZE as u64 {
                    return Err(CoinError::ScriptSize(len));
                }
                let script = reader.bytes(len as usize)?;
                if has_special_form(script) { Err(CoinError::NotCompressed) } else { Ok(Self::Raw(script)) }
            }
        }
    }

    /// Returns the length of the decompressed script in bytes.
    pub const fn script_len(&self) -> usize {
        match self {
            Self::P2pkh(_) => 25,
            Self::P2sh(_) => 23,
            Self::P2pk { tag: 2 | 3, .. } => 35,
            Self::P2pk { .. } => 67,
            Self::Raw(script) => script.len(),
        }
    }

    /// Returns whether the script is pay-to-script-hash (BIP-0016).
    pub const fn is_p2sh(&self) -> bool {
        matches!(self, Self::P2sh(_))
    }

    /// Appends the decompressed script.
    ///
    /// # Errors
    /// [`CoinError::NotOnCurve`] if an uncompressed key is not on the curve: Core writes no such coin.
    pub fn decompress(&self, script: &mut Vec<u8>) -> Result<(), CoinError> {
        match self {
            Self::P2pkh(hash) => {
                script.extend_from_slice(&[0x76, 0xa9, 20]);
                script.extend_from_slice(*hash);
                script.extend_from_slice(&[0x88, 0xac]);
            }
            Self::P2sh(hash) => {
                script.extend_from_slice(&[0xa9, 20]);
                script.extend_from_slice(*hash);
                script.push(0x87);
            }
            Self::P2pk { tag: tag @ (2 | 3), x } => {
                script.extend_from_slice(&[33, *tag]);
                script.extend_from_slice(*x);
                script.push(0xac);
            }
            Self::P2pk { tag, x } => {
                let key: Vec<u8> = [&[tag - 2][..], &x[..]].concat();
                let key = PublicKey::from_slice(&key).map_err(|_| CoinError::NotOnCurve)?;
                script.push(65);
                script.extend_from_slice(&key.serialize_uncompressed());
                script.push(0xac);
            }
            Self::Raw(raw) => script.extend_from_slice(raw),
        }
        Ok(())
    }
}

fn array<'a, const N: usize>(reader: &mut Reader<'a>) -> Result<&'a [u8; N], CoinError> {
    let at = reader.position();
    let bytes = reader.bytes(N)?;
    bytes.first_chunk().ok_or(CoinError::Wire(WireError::Truncated { at, needed: N }))
}

/// Whether Core has a special form for a script: a shorter one, for scripts of these lengths.
#[inline]
fn has_special_form(script: &[u8]) -> bool {
    matches!(script.len(), 23 | 25 | 35 | 67) && compressed_output(Sats(0), script).len() < script.len()
}

/// Returns the compressed form of an output; [`compress_output`] appends it.
pub fn compressed_output(amount: Sats, script: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress_output(&mut out, amount, script);
    out
}

/// Appends the compressed form of an output (Core `TxOutCompression`). `amount` must not be negative, which
/// the rules have checked before a coin is created.
#[inline]
pub fn compress_output(out: &mut Vec<u8>, amount: Sats, script: &[u8]) {
    write_var_int(out, compress_amount(amount.0 as u64));
    match script {
        [0x76, 0xa9, 20, hash @ .., 0x88, 0xac] if hash.len() == 20 => {
            out.push(0);
            out.extend_from_slice(hash);
        }
        [0xa9, 20, hash @ .., 0x87] if hash.len() == 20 => {
            out.push(1);
            out.extend_from_slice(hash);
        }
        // Core checks whether an uncompressed key is on the curve, but does not check a compressed one.
        [33, tag @ (2 | 3), x @ .., 0xac] if x.len() == 32 => {
            out.push(*tag);
            out.extend_from_slice(x);
        }
        [65, key @ .., 0xac]
            if key.len() == 65 && key.first() == Some(&4) && PublicKey::from_slice(key).is_ok() =>
        {
            let parity = key.last().map_or(0, |last| last & 1);
            out.push(4 | parity);
            out.extend(key.iter().skip(1).take(32));
        }
        _ => {
            write_var_int(out, script.len() as u64 + SPECIAL_SCRIPTS);
            out.extend_from_slice(script);
        }
    }
}

/// Compresses an amount (Core `CompressAmount`): trailing decimal zeros become an exponent, since most
/// amounts are round.
pub const fn compress_amount(mut amount: u64) -> u64 {
    if amount == 0 {
        return 0;
    }
    let mut exponent = 0;
    while amount.is_multiple_of(10) && exponent < 9 {
        amount /= 10;
        exponent += 1;
    }
    if exponent < 9 {
        let digit = amount % 10;
        1 + (amount / 10 * 9 + digit - 1) * 10 + exponent
    } else {
        1 + (amount - 1) * 10 + 9
    }
}

/// Decompresses an amount (Core `DecompressAmount`). `None` if it does not fit into an i64.
pub fn decompress_amount(compressed: u64) -> Option<i64> {
    let Some(rest) = compressed.checked_sub(1) else { return Some(0) };
    let exponent = (rest % 10) as u32;
    let rest = rest / 10;
    let mantissa = if exponent < 9 { rest / 9 * 10 + rest % 9 + 1 } else { rest + 1 };
    mantissa.checked_mul(10u64.pow(exponent)).and_then(|amount| i64::try_from(amount).ok())
}

/// Appends the chainstate key of a coin.
#[inline]
pub fn write_chainstate_key(key: &mut Vec<u8>, outpoint: &OutPoint) {
    key.push(COIN_KEY_PREFIX);
    key.extend_from_slice(&outpoint.txid.0);
    write_var_int(key, outpoint.vout.into());
}

/// Reads the chainstate key of a coin: the txid, which is borrowed, since copying it would be the slowest
/// part, and the index.
///
/// # Errors
/// [`CoinError::Key`] if it is not the key of a coin.
#[inline]
pub fn split_chainstate_key(key: &[u8]) -> Result<(&[u8; 32], u32), CoinError> {
    let (Some(&COIN_KEY_PREFIX), Some((txid, vout))) =
        (key.first(), key.get(1..).and_then(<[u8]>::split_first_chunk))
    else {
        return Err(CoinError::Key);
    };
    let mut reader = Reader::new(vout);
    let vout = u32::try_from(reader.var_int()?).map_err(|_| CoinError::Key)?;
    reader.finish()?;
    Ok((txid, vout))
}

/// Compares two outpoints in the order of their chainstate keys: by txid bytes, then by the *bytes* of
/// VARINT(vout). From 16512 on that is not numeric order: VARINT(16511) is `ff 7f`, VARINT(16512) is `80 80
/// 00`.
pub fn chainstate_key_order(a: &OutPoint, b: &OutPoint) -> Ordering {
    a.txid.cmp(&b.txid).then_with(|| var_int_sort_key(a.vout).cmp(&var_int_sort_key(b.vout)))
}

/// Returns the VARINT bytes of a u32, left-aligned in a u64, which compares in the order of the bytes.
const fn var_int_sort_key(value: u32) -> u64 {
    let mut rest = value as u64;
    let mut key = rest & 0x7f;
    let mut bits = 8;
    while rest >= 0x80 {
        rest = (rest >> 7) - 1;
        key |= (rest & 0x7f | 0x80) << bits;
        bits += 8;
    }
    key << (64 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_conservative::decode_to_vec;

    #[test]
    fn amounts_round_trip_and_match_known_values() {
        // Pairs from Core's unit test compress_tests.cpp.
        for (amount, compressed) in [
            (0, 0),
            (1, 1),
            (1_000_000, 7),
            (100_000_000, 9),
            (5_000_000_000, 50),
            (2_100_000_000_000_000, 21_000_000),
        ] {
            assert_eq!(compress_amount(amount), compressed);
            assert_eq!(decompress_amount(compressed), Some(amount as i64));
        }
        for amount in (0..100_000u64).chain((0..60).map(|bit| (1 << bit) + 7)) {
            assert_eq!(decompress_amount(compress_amount(amount)), Some(amount as i64));
        }
        assert_eq!(decompress_amount(u64::MAX), None);
    }

    const GENESIS_KEY: &str = "04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb6\
        49f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f";

    #[test]
    fn each_script_form_round_trips() {
        let p2pk = [&[65][..], &decode_to_vec(GENESIS_KEY).unwrap(), &[0xac]].concat();
        let mut off_curve = p2pk.clone();
        off_curve[65] ^= 1;
        let compressed_key = [&[33, 3][..], &[9; 32], &[0xac]].concat();
        let p2pkh = [&[0x76, 0xa9, 20][..], &[1; 20], &[0x88, 0xac]].concat();
        let p2sh = [&[0xa9, 20][..], &[2; 20], &[0x87]].concat();
        for (script, len, first) in [
            (p2pk, 33, 5),
            (off_curve, 68, 67 + 6),
            (compressed_key, 33, 3),
            (p2pkh, 21, 0),
            (p2sh, 21, 1),
            (vec![], 1, 6),
            (vec![0x51; 122], 2 + 122, 0x80),
        ] {
            let out = compressed_output(Sats(0), &script);
            assert_eq!((out.len() - 1, out[1]), (len, first));
            let coin = Coin { code: Coin::code_of(Height(5), true), out: &out };
            let (amount, compressed) = coin.output().unwrap();
            let mut back = Vec::new();
            compressed.decompress(&mut back).unwrap();
            assert_eq!((amount, &back), (Sats(0), &script));
            assert_eq!(compressed.script_len(), script.len());
        }
    }

    /// Regression: the rules did not count the signature operations of a P2SH script that was stored whole.
    #[test]
    fn a_script_that_core_compresses_is_refused_if_it_is_stored_whole() {
        for script in [
            [&[65][..], &decode_to_vec(GENESIS_KEY).unwrap(), &[0xac]].concat(),
            [&[33, 3][..], &[9; 32], &[0xac]].concat(),
            [&[0x76, 0xa9, 20][..], &[1; 20], &[0x88, 0xac]].concat(),
            [&[0xa9, 20][..], &[2; 20], &[0x87]].concat(),
        ] {
            let out = [&[0, script.len() as u8 + 6][..], &script].concat();
            let coin = Coin { code: Coin::code_of(Height(1), false), out: &out };
            assert_eq!(coin.output(), Err(CoinError::NotCompressed));
            let (mut undo, mut value) = (Vec::new(), Vec::new());
            coin.write_undo(&mut undo);
            coin.write_chainstate_value(&mut value);
            assert_eq!(Coin::read_undo(&mut Reader::new(&undo), &undo), Err(CoinError::NotCompressed));
            assert_eq!(Coin::read_chainstate_value(&value), Err(CoinError::NotCompressed));
        }
    }

    #[test]
    fn undo_and_chainstate_forms_decode_to_the_same_coin() {
        let out = compressed_output(Sats(1234), &[0x51]);
        let coin = Coin { code: Coin::code_of(Height(1), false), out: &out };
        let (mut undo, mut value) = (Vec::new(), Vec::new());
        coin.write_undo(&mut undo);
        coin.write_chainstate_value(&mut value);
        assert_eq!(undo.len(), value.len() + 1);
        let mut reader = Reader::new(&undo);
        assert_eq!(Coin::read_undo(&mut reader, &undo), Ok(coin));
        assert_eq!(reader.remaining(), 0);
        assert_eq!(Coin::read_chainstate_value(&value), Ok(coin));
        value.push(0);
        assert!(matches!(
            Coin::read_chainstate_value(&value),
            Err(CoinError::Wire(WireError::Trailing { .. }))
        ));
        let without_height = [0, 0, 6];
        let found = Coin::read_undo(&mut Reader::new(&without_height), &without_height);
        assert_eq!(found, Err(CoinError::NoHeight));
    }

    #[test]
    fn chainstate_key_order_equals_the_order_of_the_key_bytes() {
        let vouts = [0u32, 1, 127, 128, 255, 256, 16511, 16512, 16513, 2_113_663, 2_113_664, u32::MAX];
        let key = |vout| {
            let mut key = Vec::new();
            write_chainstate_key(&mut key, &OutPoint { txid: Txid([3; 32]), vout });
            assert_eq!(split_chainstate_key(&key), Ok((&[3; 32], vout)));
            key
        };
        for a in vouts {
            for b in vouts {
                let (x, y) =
                    (OutPoint { txid: Txid([3; 32]), vout: a }, OutPoint { txid: Txid([3; 32]), vout: b });
                assert_eq!(chainstate_key_order(&x, &y), key(a).cmp(&key(b)), "{a} {b}");
            }
        }
        assert_eq!(split_chainstate_key(b"B"), Err(CoinError::Key));
    }
}

//! The coins that a block spends, as peers send them (BIP-0455, a draft).
//!
//! ```text
//! bspent    block hash 32 | CompactSize: coins | coins
//! coin      index of its input u32 | code u32 | script | CompactSize(compressed amount)
//! script    00 | CompactSize: length | script     any other
//!           01 | hash 20                          P2PKH
//!           02, 03 | x 32                         P2PK, compressed key
//!           04 | x and y 64                       P2PK, uncompressed key
//!           05 | hash 20                          P2SH
//!           06 | program 32                       P2WSH
//!           07 | program 20                       P2WPKH
//!           08 | program 32                       P2TR
//! ```
//! Numbers are little-endian; the code is height * 2 + coinbase. Indexes count the inputs of all transactions
//! of the block but the coinbase.
//!
//! The draft's reference code for Bitcoin Core (branch `bip-block-undo`) has the amount before the script,
//! and as a VARINT; [`SpentCoinsForm::Reference`] is that form.
//!
//! Nothing proves such coins by themselves: they are claims, like undo data.

use crate::{
    coin::{Coin, CoinError, CompressedScript, compress_amount, compress_output, decompress_amount},
    hash::BlockHash,
    read::{Reader, WireError, write_compact_size, write_var_int},
    script::MAX_SCRIPT_SIZE,
    units::Sats,
};

/// Minimum bytes of a coin: index, code, a raw script without bytes, and an amount.
const MIN_COIN_LEN: usize = 4 + 4 + 2 + 1;

/// Who defines the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpentCoinsForm {
    Draft,
    /// The draft's reference code for Bitcoin Core.
    Reference,
}

/// Why bytes are not the coins that a block spends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpentCoinsError {
    /// The block hash or the number of coins is malformed, or bytes follow the last coin.
    #[error("spent coins: {0}")]
    Wire(#[from] WireError),
    /// They are those of another block.
    #[error("the spent coins are those of block {found}")]
    OtherBlock { found: BlockHash },
    /// Their number is not that of the block's inputs without the coinbase's.
    #[error("{found} spent coins for a block with {inputs} inputs")]
    Count { found: usize, inputs: usize },
    /// A coin is malformed. Its number is that in the list, from 0 on.
    #[error("spent coin {number}, at byte {at}: {source}")]
    Coin { number: usize, at: usize, source: CoinFlaw },
}

/// What is wrong with one coin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoinFlaw {
    /// A number or a length is malformed, or the bytes end.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The block has no such input, or the input has a coin already.
    #[error("input {0} does not exist, or has another coin")]
    Input(u32),
    /// A coin of the genesis block, which nobody can spend.
    #[error("its height is 0")]
    Height,
    /// The script has an unknown form.
    #[error("unknown form {0:#04x} of a script")]
    ScriptForm(u8),
    /// The script is longer than a coin's script can be.
    #[error("a script of {0} bytes is above the limit of 10000 bytes")]
    ScriptSize(usize),
    /// The amount is above all money.
    #[error("compressed amount {0} is above 21000000 BTC")]
    Amount(u64),
}

impl SpentCoinsForm {
    /// Encodes the coins that a block spends, in the order of its inputs.
    ///
    /// # Errors
    /// [`CoinError`] if the bytes of a coin are not those of a compressed output.
    pub fn write<'a>(
        self,
        block: &BlockHash,
        coins: impl ExactSizeIterator<Item = Coin<'a>>,
    ) -> Result<Vec<u8>, CoinError> {
        let mut out = Vec::with_capacity(BlockHash::default().0.len() + 9 + coins.len() * 40);
        out.extend_from_slice(&block.0);
        write_compact_size(&mut out, coins.len() as u64);
        for (index, coin) in (0_u32..).zip(coins) {
            let (amount, script) = coin.output()?;
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&coin.code.to_le_bytes());
            let amount = compress_amount(amount.0 as u64);
            match self {
                Self::Draft => {
                    write_script(&mut out, script)?;
                    write_compact_size(&mut out, amount);
                }
                Self::Reference => {
                    write_var_int(&mut out, amount);
                    write_script(&mut out, script)?;
                }
            }
        }
        Ok(out)
    }

    /// Decodes the coins that `block` spends, and returns its undo data (Core `CBlockUndo`). `inputs` are the
    /// numbers of inputs of its transactions, without the coinbase; each input must have one coin. The coins
    /// can be in any order.
    ///
    /// # Errors
    /// [`SpentCoinsError`] if the bytes are anything else.
    pub fn read_undo(
        self,
        bytes: &[u8],
        block: &BlockHash,
        inputs: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vec<u8>, SpentCoinsError> {
        let mut reader = Reader::new(bytes);
        let found = BlockHash(reader.array()?);
        if found != *block {
            return Err(SpentCoinsError::OtherBlock { found });
        }
        let (count, input_count) = (reader.compact_size()?, inputs.clone().sum::<usize>());
        if count != input_count || count > reader.remaining() / MIN_COIN_LEN {
            return Err(SpentCoinsError::Count { found: count, inputs: input_count });
        }
        let mut coins = vec![None; count];
        let (mut outs, mut script) = (Vec::new(), Vec::new());
        for number in 0..count {
            let at = reader.position();
            self.read_coin(&mut reader, &mut coins, &mut outs, &mut script)
                .map_err(|source| SpentCoinsError::Coin { number, at, source })?;
        }
        reader.finish()?;
        let mut undo = Vec::with_capacity(outs.len() + count * 6 + inputs.len());
        write_compact_size(&mut undo, inputs.len() as u64);
        // There are as many coins as inputs, each at another one.
        let mut coins = coins.into_iter().flatten();
        for inputs in inputs {
            write_compact_size(&mut undo, inputs as u64);
            for (code, start, end) in coins.by_ref().take(inputs) {
                Coin { code, out: outs.get(start..end).unwrap_or_default() }.write_undo(&mut undo);
            }
        }
        Ok(undo)
    }

    /// Reads a coin: its code, and where its compressed output is in `outs`.
    fn read_coin(
        self,
        reader: &mut Reader<'_>,
        coins: &mut [Option<(u32, usize, usize)>],
        outs: &mut Vec<u8>,
        script: &mut Vec<u8>,
    ) -> Result<(), CoinFlaw> {
        let (index, code) = (reader.u32()?, reader.u32()?);
        let Some(coin @ None) = coins.get_mut(index as usize) else { return Err(CoinFlaw::Input(index)) };
        if code >> 1 == 0 {
            return Err(CoinFlaw::Height);
        }
        let amount = match self {
            Self::Draft => {
                read_script(reader, script)?;
                reader.compact_u64()?
            }
            Self::Reference => {
                let amount = reader.var_int()?;
                read_script(reader, script)?;
                amount
            }
        };
        let sats = decompress_amount(amount).map(Sats).filter(|sats| sats.in_money_range());
        let start = outs.len();
        compress_output(outs, sats.ok_or(CoinFlaw::Amount(amount))?, script);
        *coin = Some((code, start, outs.len()));
        Ok(())
    }
}

/// Appends a script in the form of the messages.
fn write_script(out: &mut Vec<u8>, script: CompressedScript<'_>) -> Result<(), CoinError> {
    let mut put = |form: u8, bytes: &[u8]| {
        out.push(form);
        out.extend_from_slice(bytes);
    };
    match script {
        CompressedScript::P2pkh(hash) => put(1, hash),
        CompressedScript::P2sh(hash) => put(5, hash),
        CompressedScript::P2pk { tag: tag @ (2 | 3), x } => put(tag, x),
        CompressedScript::P2pk { .. } => {
            let mut whole = Vec::with_capacity(67);
            script.decompress(&mut whole)?;
            put(4, whole.get(2..66).unwrap_or_default());
        }
        // A key that is not on the curve is not compressed in a coin.
        CompressedScript::Raw([65, 4, key @ .., 0xac]) if key.len() == 64 => put(4, key),
        CompressedScript::Raw([0x00, 32, program @ ..]) if program.len() == 32 => put(6, program),
        CompressedScript::Raw([0x00, 20, program @ ..]) if program.len() == 20 => put(7, program),
        CompressedScript::Raw([0x51, 32, program @ ..]) if program.len() == 32 => put(8, program),
        CompressedScript::Raw(raw) => {
            out.push(0);
            write_compact_size(out, raw.len() as u64);
            out.extend_from_slice(raw);
        }
    }
    Ok(())
}

/// Reads a script in the form of the messages.
fn read_script(reader: &mut Reader<'_>, script: &mut Vec<u8>) -> Result<(), CoinFlaw> {
    script.clear();
    let form = reader.u8()?;
    let (before, len, after): (&[u8], usize, &[u8]) = match form {
        0 => {
            let len = reader.compact_size()?;
            if len > MAX_SCRIPT_SIZE {
                return Err(CoinFlaw::ScriptSize(len));
            }
            (&[], len, &[])
        }
        1 => (&[0x76, 0xa9, 20], 20, &[0x88, 0xac]),
        2 => (&[33, 2], 32, &[0xac]),
        3 => (&[33, 3], 32, &[0xac]),
        4 => (&[65, 4], 64, &[0xac]),
        5 => (&[0xa9, 20], 20, &[0x87]),
        6 => (&[0x00, 32], 32, &[]),
        7 => (&[0x00, 20], 20, &[]),
        8 => (&[0x51, 32], 32, &[]),
        unknown => return Err(CoinFlaw::ScriptForm(unknown)),
    };
    script.extend_from_slice(before);
    script.extend_from_slice(reader.bytes(len)?);
    script.extend_from_slice(after);
    Ok(())
}

#[cfg(test)]
mod tests;

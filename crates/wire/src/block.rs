//! Blocks and transactions as views of their bytes.
//!
//! One pass ([`BlockArena::parse`]) checks the encoding and records the offsets of each transaction, input
//! and output; the views then read fields directly from the block's bytes. The arena's vectors are reused
//! from block to block, so parsing does not allocate once they have grown. It is as strict as Core's
//! `UnserializeTransaction` and `ReadCompactSize`. Whether bytes may follow the last transaction is the
//! caller's choice: Core rejects them in a message and ignores them in a block file.

use crate::{
    hash::{OutPoint, Txid},
    header::Header,
    read::{Reader, WireError},
    units::{Sats, Weight},
};
use digest::sha256::Message;

/// The parts of a transaction: byte offsets in the block, and index ranges of the arena's spans.
#[derive(Clone, Copy, Debug)]
struct TxSpan {
    start: u32,
    /// Offset of the input count, which follows the version and, if there is a witness, marker and flag.
    body: u32,
    /// End of the last output, where the witness or the lock time begins.
    body_end: u32,
    end: u32,
    inputs: (u32, u32),
    outputs: (u32, u32),
}

/// The byte offsets of an input: the outpoint is at `at`; the sequence number follows the script.
#[derive(Clone, Copy, Debug)]
struct InputSpan {
    at: u32,
    script: u32,
    script_end: u32,
    /// Offset of the witness stack's item count; the range is empty if there is no witness.
    witness: u32,
    witness_end: u32,
}

/// The byte offsets of an output: the value is at `at`.
#[derive(Clone, Copy, Debug)]
struct OutputSpan {
    at: u32,
    script: u32,
    script_end: u32,
}

/// A reusable buffer for the spans of one block.
#[derive(Clone, Debug, Default)]
pub struct BlockArena {
    txs: Vec<TxSpan>,
    inputs: Vec<InputSpan>,
    outputs: Vec<OutputSpan>,
}

impl BlockArena {
    /// Parses a serialised block.
    ///
    /// # Errors
    /// [`WireError`] with the offset of the first malformed byte.
    pub fn parse<'a>(&'a mut self, bytes: &'a [u8]) -> Result<BlockView<'a>, WireError> {
        let mut reader = Reader::new(bytes);
        let header = self.parse_block_spans(&mut reader)?;
        reader.finish()?;
        Ok(BlockView { bytes, header, arena: self })
    }

    /// Parses the serialised block at the start of `bytes` and ignores the bytes that follow it.
    ///
    /// # Errors
    /// [`WireError`] with the offset of the first malformed byte.
    pub fn parse_first<'a>(&'a mut self, bytes: &'a [u8]) -> Result<BlockView<'a>, WireError> {
        let mut reader = Reader::new(bytes);
        let header = self.parse_block_spans(&mut reader)?;
        let bytes = bytes.get(..reader.position()).unwrap_or(bytes);
        Ok(BlockView { bytes, header, arena: self })
    }

    /// Returns the view of the block that was parsed last, which had this header and these bytes.
    pub const fn view<'a>(&'a self, header: Header, bytes: &'a [u8]) -> BlockView<'a> {
        BlockView { bytes, header, arena: self }
    }

    pub const fn memory_bytes(&self) -> usize {
        self.txs.capacity() * size_of::<TxSpan>()
            + self.inputs.capacity() * size_of::<InputSpan>()
            + self.outputs.capacity() * size_of::<OutputSpan>()
    }

    fn parse_block_spans(&mut self, reader: &mut Reader<'_>) -> Result<Header, WireError> {
        self.clear();
        let header = Header::read(reader)?;
        let count = reader.compact_size()?;
        for _ in 0..count {
            self.parse_tx_spans(reader)?;
        }
        Ok(header)
    }

    /// Parses a single serialised transaction.
    ///
    /// # Errors
    /// [`WireError`] with the offset of the first malformed byte.
    pub fn parse_tx<'a>(&'a mut self, bytes: &'a [u8]) -> Result<TxView<'a>, WireError> {
        self.clear();
        let mut reader = Reader::new(bytes);
        let span = self.parse_tx_spans(&mut reader)?;
        reader.finish()?;
        Ok(TxView { bytes, span, arena: self })
    }

    fn clear(&mut self) {
        self.txs.clear();
        self.inputs.clear();
        self.outputs.clear();
    }

    fn parse_tx_spans(&mut self, reader: &mut Reader<'_>) -> Result<TxSpan, WireError> {
        let start = reader.position();
        reader.bytes(4)?;
        let mut body = reader.position();
        let first_input = self.inputs.len();
        let first_output = self.outputs.len();
        let mut flags = 0;
        let mut input_count = reader.compact_size()?;
        if input_count == 0 {
            flags = reader.u8()?;
            if flags != 0 {
                body = reader.position();
                input_count = reader.compact_size()?;
            }
        }
        // Core reads no inputs and a zero flag byte as a transaction without inputs and outputs.
        let has_lists = input_count > 0 || flags != 0;
        if has_lists {
            for _ in 0..input_count {
                self.parse_input_span(reader)?;
            }
            for _ in 0..reader.compact_size()? {
                let at = reader.position();
                reader.bytes(8)?;
                let script = reader.byte_string()?;
                let script_end = reader.position();
                self.outputs.push(OutputSpan {
                    at: at as u32,
                    script: (script_end - script.len()) as u32,
                    script_end: script_end as u32,
                });
            }
        }
        let body_end = reader.position();
        if flags & 1 != 0 {
            self.parse_witness_spans(first_input, reader, start)?;
        }
        if flags & !1 != 0 {
            return Err(WireError::UnknownOptionalData { at: start });
        }
        reader.bytes(4)?;
        let span = TxSpan {
            start: start as u32,
            body: body as u32,
            body_end: body_end as u32,
            end: reader.position() as u32,
            inputs: (first_input as u32, self.inputs.len() as u32),
            outputs: (first_output as u32, self.outputs.len() as u32),
        };
        self.txs.push(span);
        Ok(span)
    }

    #[inline]
    fn parse_input_span(&mut self, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let at = reader.position();
        reader.bytes(36)?;
        let script = reader.byte_string()?;
        let script_end = reader.position();
        reader.bytes(4)?;
        self.inputs.push(InputSpan {
            at: at as u32,
            script: (script_end - script.len()) as u32,
            script_end: script_end as u32,
            witness: 0,
            witness_end: 0,
        });
        Ok(())
    }

    fn parse_witness_spans(
        &mut self,
        first_input: usize,
        reader: &mut Reader<'_>,
        tx_start: usize,
    ) -> Result<(), WireError> {
        let mut has_witness_items = false;
        for input in self.inputs.iter_mut().skip(first_input) {
            input.witness = reader.position() as u32;
            let items = reader.compact_size()?;
            has_witness_items |= items > 0;
            for _ in 0..items {
                reader.byte_string()?;
            }
            input.witness_end = reader.position() as u32;
        }
        if has_witness_items { Ok(()) } else { Err(WireError::SuperfluousWitness { at: tx_start }) }
    }
}

/// A well-formed block, whose consensus rules may not have been checked.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    bytes: &'a [u8],
    header: Header,
    arena: &'a BlockArena,
}

impl<'a> BlockView<'a> {
    /// Returns the serialised block.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of transactions.
    pub fn tx_count(&self) -> usize {
        self.arena.txs.len()
    }

    /// Returns the transactions in block order.
    pub fn txs(&self) -> impl ExactSizeIterator<Item = TxView<'a>> + Clone + use<'a> {
        let (bytes, arena) = (self.bytes, self.arena);
        arena.txs.iter().map(move |&span| TxView { bytes, span, arena })
    }

    /// Returns the transaction at `index`, or `None` if there are fewer.
    pub fn tx(&self, index: usize) -> Option<TxView<'a>> {
        let span = *self.arena.txs.get(index)?;
        Some(TxView { bytes: self.bytes, span, arena: self.arena })
    }

    /// Returns the outpoints of the coins that the block spends, in the order of its inputs.
    pub fn prevouts(&self) -> impl Iterator<Item = OutPoint> + Clone + use<'a> {
        self.txs().skip(1).flat_map(|tx| tx.inputs()).map(|input| input.prevout())
    }

    /// Returns the number of inputs of all transactions, including the coinbase's.
    pub fn input_count(&self) -> usize {
        self.arena.inputs.len()
    }

    /// Returns the number of outputs of all transactions, including unspendable ones.
    pub fn output_count(&self) -> usize {
        self.arena.outputs.len()
    }

    /// Returns the size without witnesses, in bytes.
    pub fn stripped_size(&self) -> usize {
        let witnesses: usize = self.txs().map(|tx| tx.total_size() - tx.stripped_size()).sum();
        self.bytes.len() - witnesses
    }

    /// Returns the weight (BIP-0141, Core `GetBlockWeight`).
    pub fn weight(&self) -> Weight {
        Weight(self.stripped_size() as u64 * (Weight::WITNESS_SCALE_FACTOR - 1) + self.bytes.len() as u64)
    }
}

/// A well-formed transaction, whose consensus rules may not have been checked.
#[derive(Clone, Copy, Debug)]
pub struct TxView<'a> {
    bytes: &'a [u8],
    span: TxSpan,
    arena: &'a BlockArena,
}

impl<'a> TxView<'a> {
    /// Returns the serialised transaction, including its witness.
    pub fn bytes(&self) -> &'a [u8] {
        slice(self.bytes, self.span.start, self.span.end)
    }

    /// Returns the byte offset of the transaction in its block.
    pub const fn offset(&self) -> usize {
        self.span.start as usize
    }

    /// Returns the version (unsigned, as in Core since 28).
    pub fn version(&self) -> u32 {
        u32_at(self.bytes, self.span.start)
    }

    /// Returns the lock time: a height if below 500,000,000, otherwise a time.
    pub fn lock_time(&self) -> u32 {
        u32_at(self.bytes, self.span.end - 4)
    }

    /// Returns whether the transaction is serialised with a witness, so that its wtxid differs from its txid.
    pub const fn has_witness(&self) -> bool {
        self.span.body != self.span.start + 4
    }

    /// Returns the size without witness, in bytes.
    pub const fn stripped_size(&self) -> usize {
        (self.span.body_end - self.span.body) as usize + 8
    }

    /// Returns the size with witness, in bytes.
    pub const fn total_size(&self) -> usize {
        (self.span.end - self.span.start) as usize
    }

    /// Returns the weight (BIP-0141, Core `GetTransactionWeight`).
    pub const fn weight(&self) -> Weight {
        let stripped = self.stripped_size() as u64;
        Weight(stripped * (Weight::WITNESS_SCALE_FACTOR - 1) + self.total_size() as u64)
    }

    /// Returns the message whose SHA-256d is the txid.
    pub fn txid_message(&self) -> Message<'a> {
        let span = self.span;
        if !self.has_witness() {
            return Message([self.bytes(), &[], &[]]);
        }
        Message([
            slice(self.bytes, span.start, span.start + 4),
            slice(self.bytes, span.body, span.body_end),
            slice(self.bytes, span.end - 4, span.end),
        ])
    }

    /// Returns the message whose SHA-256d is the wtxid.
    pub fn wtxid_message(&self) -> Message<'a> {
        Message([self.bytes(), &[], &[]])
    }

    pub const fn input_count(&self) -> usize {
        (self.span.inputs.1 - self.span.inputs.0) as usize
    }

    pub const fn output_count(&self) -> usize {
        (self.span.outputs.1 - self.span.outputs.0) as usize
    }

    pub fn inputs(&self) -> impl ExactSizeIterator<Item = InputView<'a>> + Clone + use<'a> {
        let bytes = self.bytes;
        spans(&self.arena.inputs, self.span.inputs).iter().map(move |&span| InputView { bytes, span })
    }

    pub fn outputs(&self) -> impl ExactSizeIterator<Item = OutputView<'a>> + Clone + use<'a> {
        let bytes = self.bytes;
        spans(&self.arena.outputs, self.span.outputs).iter().map(move |&span| OutputView { bytes, span })
    }

    /// Returns whether it is a coinbase: it has one input, whose outpoint is null (Core `IsCoinBase`).
    pub fn is_coinbase(&self) -> bool {
        let mut inputs = self.inputs();
        inputs.len() == 1 && inputs.next().is_some_and(|input| input.prevout().is_null())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct InputView<'a> {
    bytes: &'a [u8],
    span: InputSpan,
}

impl<'a> InputView<'a> {
    /// Returns the outpoint of the coin that the input spends.
    pub fn prevout(&self) -> OutPoint {
        let at = self.span.at;
        let txid = slice(self.bytes, at, at + 32).first_chunk().copied().unwrap_or_default();
        OutPoint { txid: Txid(txid), vout: u32_at(self.bytes, at + 32) }
    }

    pub fn script_sig(&self) -> &'a [u8] {
        slice(self.bytes, self.span.script, self.span.script_end)
    }

    pub fn sequence(&self) -> u32 {
        u32_at(self.bytes, self.span.script_end)
    }

    /// Returns the items of the witness stack, bottom first; empty if there is no witness.
    pub fn witness(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let mut reader = Reader::new(slice(self.bytes, self.span.witness, self.span.witness_end));
        // These reads cannot fail: parsing has read the same bytes without an error.
        let items = reader.compact_size().unwrap_or(0);
        (0..items).map_while(move |_| reader.byte_string().ok())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct OutputView<'a> {
    bytes: &'a [u8],
    span: OutputSpan,
}

impl<'a> OutputView<'a> {
    /// Returns the amount, which hostile bytes may make negative.
    pub fn value(&self) -> Sats {
        let at = self.span.at;
        Sats(i64::from_le_bytes(slice(self.bytes, at, at + 8).first_chunk().copied().unwrap_or_default()))
    }

    /// Returns the script that a spender must satisfy.
    pub fn script_pubkey(&self) -> &'a [u8] {
        slice(self.bytes, self.span.script, self.span.script_end)
    }
}

// Parsing creates spans only within the bytes it has read, so these functions never return their defaults.
// They do not index, so that no mistake in this file can become a panic on hostile bytes.

#[inline]
fn slice(bytes: &[u8], start: u32, end: u32) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

#[inline]
fn u32_at(bytes: &[u8], at: u32) -> u32 {
    u32::from_le_bytes(slice(bytes, at, at + 4).first_chunk().copied().unwrap_or_default())
}

#[inline]
fn spans<T>(all: &[T], (start, end): (u32, u32)) -> &[T] {
    all.get(start as usize..end as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_hex(body: &str) -> Vec<u8> {
        hex_conservative::decode_to_vec(&body.replace(' ', "")).unwrap()
    }

    fn zeros(n: usize) -> String {
        "00".repeat(n)
    }

    fn assert_counts(body: &str, expected: Result<(usize, usize), WireError>) {
        let bytes = from_hex(body);
        let mut arena = BlockArena::default();
        let got = arena.parse_tx(&bytes).map(|tx| (tx.input_count(), tx.output_count()));
        assert_eq!(got, expected, "{body}");
    }

    #[test]
    fn reads_segwit_marker_and_flag_as_core_does() {
        let input = format!("{} 00 ffffffff", zeros(36));
        let output = format!("{} 01 51", zeros(8));
        assert_counts(&format!("02000000 01 {input} 01 {output} 00000000"), Ok((1, 1)));
        assert_counts(&format!("02000000 0001 01 {input} 01 {output} 01 01 aa 00000000"), Ok((1, 1)));
        assert_counts(
            &format!("02000000 0001 01 {input} 01 {output} 00 00000000"),
            Err(WireError::SuperfluousWitness { at: 0 }),
        );
        assert_counts(
            &format!("02000000 0002 01 {input} 01 {output} 00000000"),
            Err(WireError::UnknownOptionalData { at: 0 }),
        );
        assert_counts("02000000 0001 00 00 00000000", Err(WireError::SuperfluousWitness { at: 0 }));
        // No inputs, flag 0: a transaction without inputs and outputs, which the rules then reject.
        assert_counts("02000000 0000 00000000", Ok((0, 0)));
        assert_counts("02000000 0000 00000000 00", Err(WireError::Trailing { at: 10, extra: 1 }));
        assert_counts("02000000 0000 000000", Err(WireError::Truncated { at: 9, needed: 1 }));
        assert_counts("02000000 fd0100", Err(WireError::NonCanonicalCompactSize { at: 4 }));
    }

    #[test]
    fn reads_fields_and_hash_messages() {
        let bytes = from_hex(&format!(
            "01000000 0001 01 {} 07000000 02 abcd 04030201 01 0100000000000000 01 51 02 01 aa 00 78563412",
            "11".repeat(32)
        ));
        let mut arena = BlockArena::default();
        let tx = arena.parse_tx(&bytes).unwrap();
        assert_eq!((tx.version(), tx.lock_time(), tx.has_witness()), (1, 0x1234_5678, true));
        let input = tx.inputs().next().unwrap();
        assert_eq!(input.prevout(), OutPoint { txid: Txid([0x11; 32]), vout: 7 });
        assert_eq!((input.script_sig(), input.sequence()), (&[0xab, 0xcd][..], 0x0102_0304));
        assert_eq!(input.witness().collect::<Vec<_>>(), [&[0xaa][..], &[]]);
        let output = tx.outputs().next().unwrap();
        assert_eq!((output.value(), output.script_pubkey()), (Sats(1), &[0x51][..]));
        let stripped: Vec<u8> = tx.txid_message().0.concat();
        assert_eq!(stripped.len(), tx.stripped_size());
        assert_eq!(tx.total_size(), stripped.len() + 2 + 4);
        assert_eq!(&stripped[4..], [&bytes[6..bytes.len() - 8], &bytes[bytes.len() - 4..]].concat());
        assert_eq!(tx.wtxid_message().0.concat(), bytes);
        assert!(!tx.is_coinbase());
    }
}

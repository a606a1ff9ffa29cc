//! Block and undo files, read and written as Bitcoin Core did: byte by byte, and field by field through a
//! small buffer.

use digest::{obfuscation::Obfuscation, sha256::Sha256};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
};
use wire::{
    BlockHash, Coin,
    read::{write_compact_size, write_var_int},
};

/// Bytes of the buffer of C's standard streams.
const SMALL_BUFFER: usize = 4096;
/// Bytes of magic and length before a record.
const FRAME_BYTES: usize = 8;

/// The obfuscation of files, applied in words of 64 bits as the product does, or byte by byte.
#[derive(Clone, Copy, Debug)]
pub struct Xor {
    pub key: Obfuscation,
    /// Whether it is applied byte by byte.
    pub is_bytewise: bool,
}

impl Xor {
    /// XORs bytes that begin at `offset` of their file.
    pub fn apply(&self, bytes: &mut [u8], offset: u64) {
        if self.is_bytewise {
            obfuscate_bytewise(self.key.key(), bytes, offset);
        } else {
            self.key.apply(bytes, offset);
        }
    }
}

/// XORs bytes that begin at `offset` of their file, one after the other.
pub fn obfuscate_bytewise(key: [u8; 8], bytes: &mut [u8], offset: u64) {
    let mut at = (offset % 8) as usize;
    for byte in bytes {
        *byte ^= key[at];
        at += 1;
        if at == key.len() {
            at = 0;
        }
    }
}

/// Reads the record at `pos` into `record`, in one piece.
pub fn read_whole(file: &File, xor: Xor, pos: u64, record: &mut Vec<u8>) -> io::Result<()> {
    let mut frame = [0; FRAME_BYTES];
    let start = pos - FRAME_BYTES as u64;
    file.read_exact_at(&mut frame, start)?;
    xor.apply(&mut frame, start);
    let [.., a, b, c, d] = frame;
    record.resize(u32::from_le_bytes([a, b, c, d]) as usize, 0);
    file.read_exact_at(record, pos)?;
    xor.apply(record, pos);
    Ok(())
}

/// Where the fields of a block come from, in their order.
trait Fields {
    /// Returns the next byte, which stays.
    fn peek(&mut self) -> io::Result<u8>;

    /// Passes the next `length` bytes. Those of witnesses, and what announces them, are not in a stripped
    /// block.
    fn pass(&mut self, length: usize, is_witness: bool) -> io::Result<&[u8]>;

    fn compact_size(&mut self, is_witness: bool) -> io::Result<usize> {
        let length = match self.pass(1, is_witness)? {
            [first @ 253..=255] => 2 << (first - 253),
            [small] => return Ok((*small).into()),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let mut number = [0; 8];
        number[..length].copy_from_slice(self.pass(length, is_witness)?);
        Ok(u64::from_le_bytes(number) as usize)
    }

    fn bytes(&mut self, is_witness: bool) -> io::Result<()> {
        let length = self.compact_size(is_witness)?;
        self.pass(length, is_witness).map(drop)
    }

    fn block(&mut self) -> io::Result<()> {
        for length in [4, 32, 32, 4, 4, 4] {
            self.pass(length, false)?;
        }
        (0..self.compact_size(false)?).try_for_each(|_| self.tx())
    }

    fn tx(&mut self) -> io::Result<()> {
        self.pass(4, false)?;
        // No transaction has no inputs: a zero in the place of their number announces witnesses.
        let has_witness = self.peek()? == 0;
        if has_witness {
            self.pass(1, true)?;
            self.pass(1, true)?;
        }
        let inputs = self.compact_size(false)?;
        for _ in 0..inputs {
            self.pass(32, false)?;
            self.pass(4, false)?;
            self.bytes(false)?;
            self.pass(4, false)?;
        }
        for _ in 0..self.compact_size(false)? {
            self.pass(8, false)?;
            self.bytes(false)?;
        }
        for _ in 0..if has_witness { inputs } else { 0 } {
            (0..self.compact_size(true)?).try_for_each(|_| self.bytes(true))?;
        }
        self.pass(4, false).map(drop)
    }
}

/// Reads blocks field by field through a small buffer.
#[derive(Debug)]
pub struct FieldReader {
    file: BufReader<File>,
    xor: Xor,
    offset: u64,
    block: Vec<u8>,
}

impl Fields for FieldReader {
    fn peek(&mut self) -> io::Result<u8> {
        let byte = *self.file.fill_buf()?.first().ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut byte = [byte];
        self.xor.apply(&mut byte, self.offset);
        Ok(byte[0])
    }

    fn pass(&mut self, length: usize, _: bool) -> io::Result<&[u8]> {
        let start = self.block.len();
        self.block.resize(start + length, 0);
        let field = &mut self.block[start..];
        self.file.read_exact(field)?;
        self.xor.apply(field, self.offset);
        self.offset += length as u64;
        Ok(field)
    }
}

impl FieldReader {
    pub fn new(file: File, xor: Xor) -> Self {
        let file = BufReader::with_capacity(SMALL_BUFFER, file);
        Self { file, xor, offset: 0, block: Vec::new() }
    }

    /// Reads the block whose first byte is at `pos`, and returns its fields.
    pub fn read_block(&mut self, pos: u64) -> io::Result<&[u8]> {
        self.file.seek(SeekFrom::Start(pos))?;
        self.offset = pos;
        self.block.clear();
        self.block()?;
        Ok(&self.block)
    }
}

/// The fields of a block in memory.
struct Visited<'b, F> {
    rest: &'b [u8],
    visit: F,
}

impl<F: FnMut(&[u8], bool) -> io::Result<()>> Fields for Visited<'_, F> {
    fn peek(&mut self) -> io::Result<u8> {
        self.rest.first().copied().ok_or(io::ErrorKind::UnexpectedEof.into())
    }

    fn pass(&mut self, length: usize, is_witness: bool) -> io::Result<&[u8]> {
        let (field, rest) = self.rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.rest = rest;
        (self.visit)(field, is_witness)?;
        Ok(field)
    }
}

/// Calls `visit` with each field of a serialised block, and whether it belongs to a witness.
///
/// # Errors
/// That of `visit`, or that the block ends early.
pub fn visit_fields(block: &[u8], visit: impl FnMut(&[u8], bool) -> io::Result<()>) -> io::Result<()> {
    Visited { rest: block, visit }.block()
}

/// Returns the weight of a block by passing all its fields twice, without and with witnesses, as Bitcoin
/// Core serialises it into a counter.
///
/// # Errors
/// If the block ends early.
pub fn weight_by_fields(block: &[u8]) -> io::Result<u64> {
    let (mut stripped, mut total) = (0, 0);
    visit_fields(block, |field, is_witness| {
        stripped += if is_witness { 0 } else { field.len() as u64 };
        Ok(())
    })?;
    visit_fields(block, |field, _| {
        total += field.len() as u64;
        Ok(())
    })?;
    Ok(3 * stripped + total)
}

/// Writes records field by field through a small buffer.
#[derive(Debug)]
pub struct FieldWriter {
    file: BufWriter<File>,
    xor: Xor,
    offset: u64,
    hash: Sha256,
    field: Vec<u8>,
}

impl FieldWriter {
    /// Writes to `file` from its beginning on.
    pub fn new(file: File, xor: Xor) -> Self {
        let file = BufWriter::with_capacity(SMALL_BUFFER, file);
        Self { file, xor, offset: 0, hash: Sha256::new(), field: Vec::new() }
    }

    /// Writes the field, hashes it, and empties it.
    fn write(&mut self) -> io::Result<()> {
        self.hash.update(&self.field);
        self.write_only()
    }

    fn write_only(&mut self) -> io::Result<()> {
        self.xor.apply(&mut self.field, self.offset);
        self.file.write_all(&self.field)?;
        self.offset += self.field.len() as u64;
        self.field.clear();
        Ok(())
    }

    fn begin(&mut self, magic: [u8; 4], length: u32) -> io::Result<()> {
        self.field.extend(magic);
        self.write_only()?;
        self.field.extend(length.to_le_bytes());
        self.write_only()
    }

    pub fn write_block(&mut self, magic: [u8; 4], block: &[u8]) -> io::Result<()> {
        self.begin(magic, block.len() as u32)?;
        visit_fields(block, |field, _| {
            self.field.extend_from_slice(field);
            self.write_only()
        })
    }

    /// Writes the record of a block's undo data, the coins that each transaction spends, in `length` bytes.
    pub fn write_undo<'a, C: ExactSizeIterator<Item = Coin<'a>>>(
        &mut self,
        magic: [u8; 4],
        prev: &BlockHash,
        txs: impl ExactSizeIterator<Item = C>,
        length: u32,
    ) -> io::Result<()> {
        self.begin(magic, length)?;
        self.hash = Sha256::new();
        self.hash.update(&prev.0);
        write_compact_size(&mut self.field, txs.len() as u64);
        self.write()?;
        for coins in txs {
            write_compact_size(&mut self.field, coins.len() as u64);
            self.write()?;
            for coin in coins {
                write_var_int(&mut self.field, coin.code.into());
                self.write()?;
                if coin.height().0 > 0 {
                    self.field.push(0);
                    self.write()?;
                }
                self.field.extend_from_slice(coin.out);
                self.write()?;
            }
        }
        self.field.extend(std::mem::take(&mut self.hash).finalize_double());
        self.write()
    }

    /// Writes what is still in the buffer.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

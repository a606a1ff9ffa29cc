//! Block and undo files, read and written as Bitcoin Core did: byte by byte, and field by field through a
//! small buffer.

use digest::{obfuscation::Obfuscation, sha256::Sha256};
use disk::undo::UndoView;
use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
};
use wire::{
    BlockHash,
    read::{write_compact_size, write_var_int},
};

/// Bytes of the buffer of C's standard streams.
const SMALL_BUFFER: usize = 4096;
/// Bytes of magic and length before a record.
const FRAME_BYTES: usize = 8;

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

/// Reads the record at `pos` into `record` as `disk` does, but XORs it byte by byte.
///
/// # Errors
/// Any I/O error.
pub fn read_bytewise(file: &File, key: [u8; 8], pos: u64, record: &mut Vec<u8>) -> io::Result<()> {
    let mut frame = [0; FRAME_BYTES];
    let start = pos - FRAME_BYTES as u64;
    file.read_exact_at(&mut frame, start)?;
    obfuscate_bytewise(key, &mut frame, start);
    let [.., a, b, c, d] = frame;
    record.resize(u32::from_le_bytes([a, b, c, d]) as usize, 0);
    file.read_exact_at(record, pos)?;
    obfuscate_bytewise(key, record, pos);
    Ok(())
}

/// What a block contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Number of transactions.
    pub txs: u64,
    /// Number of inputs, the coinbase's included.
    pub inputs: u64,
    /// Number of outputs.
    pub outputs: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Contents {
    fn add_assign(&mut self, other: Self) {
        self.txs += other.txs;
        self.inputs += other.inputs;
        self.outputs += other.outputs;
        self.bytes += other.bytes;
    }
}

/// Reads blocks field by field through a small buffer.
#[derive(Debug)]
pub struct FieldReader {
    file: BufReader<File>,
    obfuscation: Obfuscation,
    offset: u64,
    script: Vec<u8>,
}

impl FieldReader {
    /// Reads from `file`.
    #[must_use]
    pub fn new(file: File, obfuscation: Obfuscation) -> Self {
        let file = BufReader::with_capacity(SMALL_BUFFER, file);
        Self { file, obfuscation, offset: 0, script: Vec::new() }
    }

    fn field<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.obfuscation.apply(&mut bytes, self.offset);
        self.offset += N as u64;
        Ok(bytes)
    }

    fn compact_size(&mut self) -> io::Result<u64> {
        let [first] = self.field()?;
        Ok(match first {
            253 => u16::from_le_bytes(self.field()?).into(),
            254 => u32::from_le_bytes(self.field()?).into(),
            255 => u64::from_le_bytes(self.field()?),
            small => small.into(),
        })
    }

    fn bytes(&mut self) -> io::Result<()> {
        let length = self.compact_size()?;
        self.script.resize(length as usize, 0);
        self.file.read_exact(&mut self.script)?;
        self.obfuscation.apply(&mut self.script, self.offset);
        self.offset += length;
        Ok(())
    }

    /// Reads the block whose first byte is at `pos`.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn read_block(&mut self, pos: u64) -> io::Result<Contents> {
        self.file.seek(SeekFrom::Start(pos))?;
        self.offset = pos;
        let _version: [u8; 4] = self.field()?;
        let _hashes: [[u8; 32]; 2] = [self.field()?, self.field()?];
        let _time_bits_nonce: [[u8; 4]; 3] = [self.field()?, self.field()?, self.field()?];
        let mut contents = Contents { txs: self.compact_size()?, ..Contents::default() };
        for _ in 0..contents.txs {
            self.read_tx(&mut contents)?;
        }
        contents.bytes = self.offset - pos;
        Ok(contents)
    }

    fn read_tx(&mut self, contents: &mut Contents) -> io::Result<()> {
        let _version: [u8; 4] = self.field()?;
        let mut inputs = self.compact_size()?;
        let has_witness = inputs == 0;
        if has_witness {
            let _flag: [u8; 1] = self.field()?;
            inputs = self.compact_size()?;
        }
        for _ in 0..inputs {
            let _txid: [u8; 32] = self.field()?;
            let _vout: [u8; 4] = self.field()?;
            self.bytes()?;
            let _sequence: [u8; 4] = self.field()?;
        }
        let outputs = self.compact_size()?;
        for _ in 0..outputs {
            let _value: [u8; 8] = self.field()?;
            self.bytes()?;
        }
        if has_witness {
            for _ in 0..inputs {
                for _ in 0..self.compact_size()? {
                    self.bytes()?;
                }
            }
        }
        let _lock_time: [u8; 4] = self.field()?;
        contents.inputs += inputs;
        contents.outputs += outputs;
        Ok(())
    }
}

/// Writes undo data field by field through a small buffer.
#[derive(Debug)]
pub struct FieldWriter {
    file: BufWriter<File>,
    obfuscation: Obfuscation,
    offset: u64,
    hash: Sha256,
    field: Vec<u8>,
}

impl FieldWriter {
    /// Writes to `file` from its beginning on.
    #[must_use]
    pub fn new(file: File, obfuscation: Obfuscation) -> Self {
        let file = BufWriter::with_capacity(SMALL_BUFFER, file);
        Self { file, obfuscation, offset: 0, hash: Sha256::new(), field: Vec::new() }
    }

    /// Writes the field, hashes it, and empties it.
    fn write(&mut self) -> io::Result<()> {
        self.hash.update(&self.field);
        self.obfuscation.apply(&mut self.field, self.offset);
        self.file.write_all(&self.field)?;
        self.offset += self.field.len() as u64;
        self.field.clear();
        Ok(())
    }

    /// Writes the record of a block's undo data, which has `length` bytes.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn write_record(
        &mut self,
        magic: [u8; 4],
        prev: &BlockHash,
        undo: &UndoView<'_>,
        length: u32,
    ) -> io::Result<()> {
        self.field.extend(magic);
        self.write()?;
        self.field.extend(length.to_le_bytes());
        self.write()?;
        self.hash = Sha256::new();
        self.hash.update(&prev.0);
        write_compact_size(&mut self.field, undo.tx_count() as u64);
        self.write()?;
        for coins in undo.txs() {
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
    ///
    /// # Errors
    /// Any I/O error.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

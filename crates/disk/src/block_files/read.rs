//! Reads records by their positions.
//!
//! A position comes from the block index or a scan, and neither has a length that could be trusted. So each
//! record's length is taken from its own frame (magic and length, before the position) and checked against
//! the file's end and the longest record. A block's record may be longer than the block: what follows the
//! block is ignored, as in Core (`ReadRawBlock`, `ReadBlock`).

use super::BlockFiles;
use crate::{
    blk::{MAX_RECORD_LEN, RECORD_HEADER_LEN},
    datadir::FileKind,
    undo::{CHECKSUM_LEN, MAX_UNDO_LEN},
};
use digest::obfuscation::Obfuscation;
use hex_conservative::DisplayHex as _;
use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};
use vfs::{During as _, FileError, ReadAt};
use wire::{ByteOffset, FileNo, MAX_BLOCK_LEN};

/// How far the operating system is asked to read ahead in a file, in bytes.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// A buffer that a huge record has made larger than this, in bytes, is freed.
const MAX_BUFFER_BYTES: usize = 8 << 20;

/// Why a record could not be read: facts only, without advice.
#[derive(Debug, thiserror::Error)]
#[error("{} at byte {offset}: {flaw}", path.display())]
pub struct RecordError {
    pub kind: FileKind,
    pub path: PathBuf,
    /// Byte offset in the file: of the record's frame, or of the part that could not be read.
    pub offset: u64,
    pub flaw: RecordFlaw,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFlaw {
    /// The file is shorter than the position.
    #[error("the record starts beyond the end of the file ({file_len} bytes)")]
    StartsBeyondEnd {
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// The position leaves no space for a frame before it.
    #[error("the record starts at byte {pos}, before the end of the first frame")]
    StartsInFrame { pos: u64 },
    /// There is no frame before the position.
    #[error("no record starts here: expected network magic {}, found {}", expected.as_hex(), found.as_hex())]
    Magic { found: [u8; 4], expected: [u8; 4] },
    /// The length in the frame is above that of the longest record.
    #[error("the record claims to have {len} bytes, but none has more than {longest}")]
    Oversized {
        /// Length in the frame, in bytes.
        len: usize,
        /// Length of the longest record of this kind of file.
        longest: usize,
    },
    /// The file ends inside the record.
    #[error("the record of {len} bytes runs beyond the end of the file ({file_len} bytes)")]
    EndsBeyondEnd {
        /// Length of the record in bytes.
        len: usize,
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// The file could not be read.
    #[error("cannot read: {0}")]
    Io(#[source] io::Error),
}

/// The bytes of a record, in memory that is reused.
#[derive(Default)]
pub struct RecordBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl RecordBuffer {
    /// Returns the bytes that were read last.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub const fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the CRC-32C of the bytes that were read last.
    pub fn crc32c(&self) -> u32 {
        crc32c::crc32c(self.bytes())
    }

    /// Makes these the bytes that were read last.
    pub fn set(&mut self, bytes: Vec<u8>) {
        self.len = bytes.len();
        self.bytes = bytes;
    }

    /// Empties the buffer, and keeps its memory.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the bytes that were read last, without the buffer.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        self.bytes
    }

    fn resize(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() > MAX_BUFFER_BYTES {
            self.bytes = Vec::new();
        }
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.len = len;
        self.bytes.get_mut(..len).unwrap_or_default()
    }
}

/// A file of records that is open for reading, by any number of threads.
pub struct RecordFile {
    kind: FileKind,
    number: FileNo,
    path: PathBuf,
    file: Box<dyn ReadAt>,
    /// Length of the file in bytes, when it was last measured.
    len: AtomicU64,
    magic: [u8; 4],
    obfuscation: Obfuscation,
    /// Position up to which the operating system was asked to read ahead.
    read_ahead_end: AtomicU64,
}

impl BlockFiles<'_> {
    pub fn open(&self, kind: FileKind, number: FileNo) -> Result<RecordFile, FileError> {
        let path = self.path(kind, number);
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        let (file, len) = opened.during("open for reading", &path)?;
        let (magic, obfuscation) = (self.datadir.magic(), self.obfuscation);
        let (len, read_ahead_end) = (AtomicU64::new(len), AtomicU64::new(0));
        Ok(RecordFile { kind, number, path, file, len, magic, obfuscation, read_ahead_end })
    }
}

impl RecordFile {
    pub fn is(&self, kind: FileKind, number: FileNo) -> bool {
        (self.kind, self.number) == (kind, number)
    }

    /// Reads the record whose data starts at `pos`, without obfuscation: a block, or undo data and its
    /// checksum. Asks the operating system to read what follows.
    ///
    /// # Errors
    /// [`RecordError`] if no complete record is there, or the file cannot be read.
    pub fn read(&self, pos: ByteOffset, buffer: &mut RecordBuffer) -> Result<(), RecordError> {
        let ByteOffset(pos) = pos;
        let start = pos.saturating_sub(RECORD_HEADER_LEN as u64);
        let flawed = |flaw: RecordFlaw| self.error(start, flaw);
        if pos < RECORD_HEADER_LEN as u64 {
            return Err(flawed(RecordFlaw::StartsInFrame { pos }));
        }
        let file_len = self.len_for(pos)?;
        if pos > file_len {
            return Err(flawed(RecordFlaw::StartsBeyondEnd { file_len }));
        }
        let mut frame = [0; RECORD_HEADER_LEN];
        self.read_exact_at(&mut frame, start)?;
        let [m0, m1, m2, m3, len @ ..] = frame;
        let (found, expected) = ([m0, m1, m2, m3], self.magic);
        if found != expected {
            return Err(flawed(RecordFlaw::Magic { found, expected }));
        }
        let len = u32::from_le_bytes(len) as usize;
        let (longest, checksum_len) = match self.kind {
            FileKind::Blk => (MAX_RECORD_LEN, 0),
            // A checksum, not counted in the length, follows undo data.
            FileKind::Rev => (MAX_UNDO_LEN, CHECKSUM_LEN),
        };
        if len > longest {
            return Err(flawed(RecordFlaw::Oversized { len, longest }));
        }
        let record_len = len + checksum_len;
        let end = pos + record_len as u64;
        let file_len = self.len_for(end)?;
        if end > file_len {
            return Err(flawed(RecordFlaw::EndsBeyondEnd { len, file_len }));
        }
        // A block is never longer; the rest of a longer record does not belong to it.
        let needed = if self.kind == FileKind::Blk { len.min(MAX_BLOCK_LEN) } else { record_len };
        self.read_exact_at(buffer.resize(needed), pos)?;
        self.read_ahead(end);
        Ok(())
    }

    /// Returns the length of the file in bytes, which is measured again if it was less than `needed`: the
    /// file may have grown since it was opened.
    fn len_for(&self, needed: u64) -> Result<u64, RecordError> {
        let mut len = self.len.load(Ordering::Relaxed);
        if len < needed {
            len = self.file.len().map_err(|source| self.error(needed, RecordFlaw::Io(source)))?;
            self.len.store(len, Ordering::Relaxed);
        }
        Ok(len)
    }

    fn error(&self, offset: u64, flaw: RecordFlaw) -> RecordError {
        RecordError { kind: self.kind, path: self.path.clone(), offset, flaw }
    }

    fn read_exact_at(&self, bytes: &mut [u8], pos: u64) -> Result<(), RecordError> {
        self.file.read_exact_at(bytes, pos).map_err(|source| self.error(pos, RecordFlaw::Io(source)))?;
        self.obfuscation.apply(bytes, pos);
        Ok(())
    }

    /// Asks the operating system to read ahead after `pos`, in large steps. Concurrent callers may ask twice
    /// for the same part.
    fn read_ahead(&self, pos: u64) {
        let requested_end = self.read_ahead_end.load(Ordering::Relaxed).max(pos);
        let len = self.len.load(Ordering::Relaxed);
        let end = len.min(pos + READ_AHEAD_BYTES);
        if end >= requested_end + READ_AHEAD_BYTES / 4 || end == len && end > requested_end {
            self.read_ahead_end.store(end, Ordering::Relaxed);
            self.file.read_ahead(requested_end, end - requested_end);
        }
    }
}

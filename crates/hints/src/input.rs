//! Reads the bytes of a hint file in order, a window at a time, decompressing gzip if necessary.

use crate::HintsError;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use vfs::{FileError, ReadAt};

/// Bytes read at once, and the maximum length for [`Input::take`].
pub(super) const WINDOW_LEN: usize = 64 << 10;

/// Why input cannot be decoded; the caller adds file and block.
#[derive(Debug)]
pub(super) enum InputError {
    /// The bytes at this offset of the file, decompressed if it is gzip, do not have the format.
    Malformed(u64, String),
    /// The file could not be read.
    Io(io::Error),
}

/// The remedy for a file that does not have its format.
pub(super) const REMEDY: &str = "the hint file is damaged or of another format, download or create it again";

impl InputError {
    /// Adds the path and `part`, such as "block 7".
    pub(super) fn at(self, path: &Path, part: impl std::fmt::Display) -> HintsError {
        match self {
            Self::Malformed(offset, text) => HintsError::Damaged {
                path: path.to_owned(),
                offset,
                flaw: format!("{part}: {text}; {REMEDY}"),
            },
            Self::Io(source) => {
                FileError { path: path.to_owned(), action: "read the hints", is_creation: false, source }
                    .into()
            }
        }
    }
}

/// An open file as a stream.
pub(super) struct FileBytes {
    file: Arc<dyn ReadAt>,
    next: u64,
    len: u64,
}

impl FileBytes {
    /// The bytes from `next` on of a file of `len` bytes.
    pub(super) fn new(file: Arc<dyn ReadAt>, next: u64, len: u64) -> Self {
        Self { file, next: next.min(len), len }
    }
}

impl Read for FileBytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.len - self.next).min(buf.len() as u64) as usize;
        let buf = buf.get_mut(..len).unwrap_or_default();
        self.file.read_exact_at(buf, self.next)?;
        self.next += len as u64;
        Ok(len)
    }
}

enum ByteSource {
    Plain(FileBytes),
    Gzip(Box<GzDecoder<BufReader<FileBytes>>>),
}

pub(super) struct Input {
    source: ByteSource,
    window: Vec<u8>,
    /// Number of bytes of the window that were taken.
    taken: usize,
    /// Offset of the window's first byte.
    start: u64,
}

impl Input {
    /// Starts at byte `offset` of a file of `len` bytes.
    pub(super) fn plain(file: Arc<dyn ReadAt>, offset: u64, len: u64) -> Self {
        let source = ByteSource::Plain(FileBytes::new(file, offset, len));
        Self { source, window: Vec::new(), taken: 0, start: offset }
    }

    /// Starts at the first decompressed byte of a gzip file of `len` bytes.
    pub(super) fn gzip(file: Arc<dyn ReadAt>, len: u64) -> Self {
        let bytes = BufReader::with_capacity(WINDOW_LEN, FileBytes::new(file, 0, len));
        let source = ByteSource::Gzip(Box::new(GzDecoder::new(bytes)));
        Self { source, window: Vec::new(), taken: 0, start: 0 }
    }

    pub(super) fn position(&self) -> u64 {
        self.start + self.taken as u64
    }

    pub(super) fn malformed(&self, text: impl Into<String>) -> InputError {
        InputError::Malformed(self.position(), text.into())
    }

    /// Moves the cursor of a plain file. Does nothing for gzip, which cannot seek.
    pub(super) fn seek(&mut self, offset: u64) {
        if let ByteSource::Plain(bytes) = &mut self.source {
            bytes.next = offset.min(bytes.len);
            self.window.clear();
            (self.taken, self.start) = (0, offset);
        }
    }

    /// Whether all bytes were taken. Bytes after the end of a gzip stream are an error.
    pub(super) fn is_end(&mut self) -> Result<bool, InputError> {
        Ok(!self.fill(1)?)
    }

    /// Takes the next `len` bytes, at most [`WINDOW_LEN`].
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&[u8], InputError> {
        if self.window.len() - self.taken < len && !self.fill(len)? {
            let rest = self.window.len() - self.taken;
            return Err(self.malformed(format!("the file ends after {rest} of {len} needed bytes")));
        }
        let start = self.taken;
        self.taken += len;
        Ok(self.window.get(start..self.taken).unwrap_or_default())
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], InputError> {
        let bytes = self.take(N)?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    /// Takes a CompactSize, which must be in its shortest encoding and at most `max`. `what` names it in
    /// errors.
    #[inline]
    pub(super) fn compact_size(&mut self, max: u32, what: &str) -> Result<u32, InputError> {
        let [first] = self.array()?;
        let (size, min) = match first {
            0..=0xfc => (first.into(), 0),
            0xfd => (self.array().map(u16::from_le_bytes)?.into(), 0xfd),
            0xfe => (self.array().map(u32::from_le_bytes)?.into(), 0x1_0000),
            0xff => (self.array().map(u64::from_le_bytes)?, 0x1_0000_0000),
        };
        if size < min {
            return Err(self.malformed(format!("the {what} {size} is not in its shortest encoding")));
        }
        match u32::try_from(size) {
            Ok(size) if size <= max => Ok(size),
            _ => Err(self.malformed(format!("the {what} is {size}, above the maximum of {max}"))),
        }
    }

    /// Ensures that the window has `len` bytes. Returns false if the input ends before that.
    fn fill(&mut self, len: usize) -> Result<bool, InputError> {
        debug_assert!(len <= WINDOW_LEN, "callers bound their pieces");
        if self.window.len() - self.taken >= len {
            return Ok(true);
        }
        self.window.drain(..self.taken);
        self.start += self.taken as u64;
        self.taken = 0;
        let mut filled = self.window.len();
        self.window.resize(WINDOW_LEN, 0);
        let mut outcome = Ok(false);
        while filled < len {
            let free = self.window.get_mut(filled..).unwrap_or_default();
            match self.source.read(free) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.window.truncate(filled);
        match outcome {
            Err(error) if self.source.is_malformed(&error) => Err(self.malformed(format!("gzip: {error}"))),
            Err(error) => Err(InputError::Io(error)),
            Ok(_) => Ok(filled >= len),
        }
    }
}

impl ByteSource {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(bytes) => bytes.read(buf),
            Self::Gzip(gzip) => match gzip.read(buf)? {
                0 if !buf.is_empty() && !gzip.get_mut().fill_buf()?.is_empty() => {
                    Err(io::Error::new(io::ErrorKind::InvalidData, "bytes follow the end of the stream"))
                }
                read => Ok(read),
            },
        }
    }

    /// Whether an error means that the gzip data is malformed, not that reading failed.
    fn is_malformed(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        matches!(self, Self::Gzip(_)) && matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
    }
}

//! The bytes of a hint file in order, straight from the disk or out of gzip, a window at a time.

use crate::DiskError;
use crate::fs::{FileError, ReadAt};
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes read at once; the longest piece that [`Input::take`] gives.
pub(super) const WINDOW: usize = 64 << 10;

/// What is wrong with bytes, and where; the caller knows file and height.
#[derive(Debug)]
pub(super) enum Flaw {
    /// At this byte of the file, or of what gzip holds.
    Wrong(u64, String),
    /// The file could not be read.
    Io(io::Error),
}

/// What to do about a file that is not as its format says.
pub(super) const REMEDY: &str = "the hint file is damaged or of another format, fetch or make it again";

impl Flaw {
    /// The error of a caller who knows the place: `whose` is "block 7" or the like.
    pub(super) fn at(self, path: &Path, whose: impl std::fmt::Display) -> DiskError {
        match self {
            Self::Wrong(offset, text) => DiskError::Damaged {
                path: path.to_owned(),
                offset,
                flaw: format!("{whose}: {text}; {REMEDY}"),
            },
            Self::Io(source) => FileError { path: path.to_owned(), action: "read the hints", source }.into(),
        }
    }
}

/// An open file as a stream.
struct FileBytes {
    file: Arc<dyn ReadAt>,
    next: u64,
    len: u64,
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

/// A cursor over a file.
pub(super) struct Input {
    source: ByteSource,
    window: Vec<u8>,
    /// Bytes of the window that were taken.
    taken: usize,
    /// Position of the window's first byte.
    start: u64,
}

impl Input {
    /// Starts at byte `offset` of a file of `len` bytes.
    pub(super) fn plain(file: Arc<dyn ReadAt>, offset: u64, len: u64) -> Self {
        let source = ByteSource::Plain(FileBytes { file, next: offset.min(len), len });
        Self { source, window: Vec::new(), taken: 0, start: offset }
    }

    /// Starts at the first byte of what is compressed in a file of `len` bytes.
    pub(super) fn gzip(file: Arc<dyn ReadAt>, len: u64) -> Self {
        let bytes = BufReader::with_capacity(WINDOW, FileBytes { file, next: 0, len });
        Self {
            source: ByteSource::Gzip(Box::new(GzDecoder::new(bytes))),
            window: Vec::new(),
            taken: 0,
            start: 0,
        }
    }

    /// Bytes before the cursor.
    pub(super) fn position(&self) -> u64 {
        self.start + self.taken as u64
    }

    /// An error at the cursor.
    pub(super) fn wrong(&self, text: impl Into<String>) -> Flaw {
        Flaw::Wrong(self.position(), text.into())
    }

    /// Moves the cursor of a plain file; gzip has no way there and ignores it.
    pub(super) fn seek(&mut self, offset: u64) {
        if let ByteSource::Plain(bytes) = &mut self.source {
            bytes.next = offset.min(bytes.len);
            self.window.clear();
            (self.taken, self.start) = (0, offset);
        }
    }

    /// Whether all bytes were taken. Behind the end of gzip there must be nothing.
    pub(super) fn is_end(&mut self) -> Result<bool, Flaw> {
        Ok(!self.fill(1)?)
    }

    /// The next `len` bytes, at most [`WINDOW`].
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&[u8], Flaw> {
        if self.window.len() - self.taken < len && !self.fill(len)? {
            let rest = self.window.len() - self.taken;
            return Err(self.wrong(format!("the file ends after {rest} of {len} bytes")));
        }
        let start = self.taken;
        self.taken += len;
        Ok(self.window.get(start..self.taken).unwrap_or_default())
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let bytes = self.take(N)?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    /// A CompactSize, in its shortest form; none here is above `most`. `what` names it in errors.
    #[inline]
    pub(super) fn compact_size(&mut self, most: u32, what: &str) -> Result<u32, Flaw> {
        let [first] = self.array()?;
        let (size, least) = match first {
            0..=0xfc => (first.into(), 0),
            0xfd => (self.array().map(u16::from_le_bytes)?.into(), 0xfd),
            0xfe => (self.array().map(u32::from_le_bytes)?.into(), 0x1_0000),
            0xff => (self.array().map(u64::from_le_bytes)?, 0x1_0000_0000),
        };
        if size < least {
            return Err(self.wrong(format!("the {what}, {size}, is not in its shortest form")));
        }
        match u32::try_from(size) {
            Ok(size) if size <= most => Ok(size),
            _ => Err(self.wrong(format!("the {what} is {size}, at most {most} is possible"))),
        }
    }

    /// Gets `len` bytes into the window; false if the input ends before.
    fn fill(&mut self, len: usize) -> Result<bool, Flaw> {
        debug_assert!(len <= WINDOW, "formats bound their pieces");
        if self.window.len() - self.taken >= len {
            return Ok(true);
        }
        self.window.drain(..self.taken);
        self.start += self.taken as u64;
        self.taken = 0;
        let mut filled = self.window.len();
        self.window.resize(WINDOW, 0);
        let mut outcome = Ok(false);
        while filled < len {
            let room = self.window.get_mut(filled..).unwrap_or_default();
            match self.source.read(room) {
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
            Err(error) if self.source.is_at_fault(&error) => Err(self.wrong(format!("gzip: {error}"))),
            Err(error) => Err(Flaw::Io(error)),
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

    /// Whether an error is about the bytes of gzip, not about reading them.
    fn is_at_fault(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        matches!(self, Self::Gzip(_)) && matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
    }
}

//! A temporary file of pieces, which are appended and read back by their positions.
//!
//! It begins with a magic, so that leftovers of killed processes are recognised. The caller keeps the
//! [`Piece`]s, or of a [`Stack`] the last one, which have the checksums; for a file that another process has
//! left, they can be computed again if the pieces state their lengths.

use crate::error::DiskError;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use vfs::{Disk, During as _, ReadAt, WriteFile, remove_if_there};

/// First bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"PGRN-TMP";

/// Where a piece is in its file. The default has no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    offset: u64,
    len: u32,
    /// CRC-32C of its bytes.
    checksum: u32,
}

impl Piece {
    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether these are its bytes, by length and checksum.
    pub fn has(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len() && crc32c::crc32c(bytes) == self.checksum
    }

    /// The same as bytes, so that a piece can name another one.
    fn to_bytes(self) -> [u8; 16] {
        let [low, high] = [self.len, self.checksum].map(u128::from);
        (u128::from(self.offset) << 64 | high << 32 | low).to_le_bytes()
    }

    const fn from_bytes(bytes: [u8; 16]) -> Self {
        let all = u128::from_le_bytes(bytes);
        Self { offset: (all >> 64) as u64, len: all as u32, checksum: (all >> 32) as u32 }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Pieces that are read from the last one on: each ends with the place of the one before. A list of them
/// could take more memory than there is.
#[derive(Clone, Copy, Default)]
pub struct Stack {
    pub last: Piece,
    /// Bytes of all pieces, without these places.
    pub bytes: usize,
}

/// The file, open for writing and reading by any number of threads.
pub struct ScratchFile {
    path: PathBuf,
    /// `None` if another process has written the file.
    writer: Mutex<Option<Writer>>,
    reader: Box<dyn ReadAt>,
}

struct Writer {
    file: Box<dyn WriteFile>,
    len: u64,
}

impl ScratchFile {
    /// Creates the file. One that a killed process has left at `path` is removed first.
    pub fn create(disk: &dyn Disk, path: &Path) -> Result<Self, DiskError> {
        remove_if_there(disk, path)?;
        let mut file = disk.create(path).during_creation(path)?;
        file.write_all(&MAGIC).during("write", path)?;
        let reader = disk.open(path).during("open for reading", path)?;
        let writer = Mutex::new(Some(Writer { file, len: Self::START }));
        Ok(Self { path: path.to_owned(), writer, reader })
    }

    /// Position of the first piece.
    pub const START: u64 = MAGIC.len() as u64;

    /// Opens a file that another process has left, for reading. Returns `None` if there is none.
    pub fn open_left(disk: &dyn Disk, path: &Path) -> Result<Option<Self>, DiskError> {
        if !disk.exists(path).during("look for", path)? {
            return Ok(None);
        }
        let reader = disk.open(path).during("open for reading", path)?;
        Ok(Some(Self { path: path.to_owned(), writer: Mutex::new(None), reader }))
    }

    /// Reads `len` bytes at `offset` and appends them to `into`, and returns them as a piece. The caller
    /// knows whether they are a piece. Returns `None` if the file ends before them.
    pub fn piece_at(&self, offset: u64, len: u32, into: &mut Vec<u8>) -> Result<Option<Piece>, DiskError> {
        if self.reader.len().during("measure", &self.path)? < offset + u64::from(len) {
            return Ok(None);
        }
        let start = into.len();
        into.resize(start + len as usize, 0);
        let bytes = into.get_mut(start..).unwrap_or_default();
        self.reader.read_exact_at(bytes, offset).during("read", &self.path)?;
        Ok(Some(Piece { offset, len, checksum: crc32c::crc32c(bytes) }))
    }

    /// Returns when all that was appended is on the medium. The file's name also needs [`Disk::sync_dir`].
    pub fn sync(&self) -> Result<(), DiskError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_mut().map_or(Ok(()), |writer| Ok(writer.file.sync().during("sync", &self.path)?))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a piece. Pieces should be large: they are not buffered.
    ///
    /// # Errors
    /// [`DiskError::File`]; [`DiskError::CallerError`] for 4 GiB or more, or if another process has written
    /// the file.
    pub fn append(&self, bytes: &[u8]) -> Result<Piece, DiskError> {
        let error = || {
            let flaw = format!("a piece of {} bytes, or a file of another process", bytes.len());
            DiskError::CallerError { dir: self.path.clone(), flaw }
        };
        let len = u32::try_from(bytes.len()).map_err(|_| error())?;
        let checksum = crc32c::crc32c(bytes);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = writer.as_mut().ok_or_else(error)?;
        let offset = writer.len;
        writer.file.write_all(bytes).during("write", &self.path)?;
        writer.len += u64::from(len);
        Ok(Piece { offset, len, checksum })
    }

    /// Reads a piece and appends it to `into`.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if it is not as it was written; [`DiskError::File`].
    pub fn read(&self, piece: &Piece, into: &mut Vec<u8>) -> Result<(), DiskError> {
        let start = into.len();
        into.resize(start + piece.len(), 0);
        let bytes = into.get_mut(start..).unwrap_or_default();
        self.reader.read_exact_at(bytes, piece.offset).during("read", &self.path)?;
        if crc32c::crc32c(bytes) == piece.checksum {
            return Ok(());
        }
        let (path, flaw) = (self.path.clone(), "checksum mismatch; the file is damaged".to_owned());
        Err(DiskError::DamagedWorkFile { path, offset: piece.offset, flaw })
    }

    /// Moves the bytes from `start` on to a new last piece.
    pub fn push(&self, stack: &mut Stack, bytes: &mut Vec<u8>, start: usize) -> Result<(), DiskError> {
        stack.bytes += bytes.len().saturating_sub(start);
        bytes.extend_from_slice(&stack.last.to_bytes());
        stack.last = self.append(bytes.get(start..).unwrap_or_default())?;
        bytes.truncate(start);
        Ok(())
    }

    /// Reads the last piece and appends its bytes to `into`. The one before becomes the last.
    pub fn pop(&self, stack: &mut Stack, into: &mut Vec<u8>) -> Result<(), DiskError> {
        let start = into.len();
        self.read(&stack.last, into)?;
        stack.last = into.last_chunk().copied().map(Piece::from_bytes).unwrap_or_default();
        into.truncate(into.len().saturating_sub(size_of::<Piece>()));
        stack.bytes = stack.bytes.saturating_sub(into.len() - start);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    #[test]
    fn a_stack_comes_back_from_its_last_piece() {
        let (_dir, path) = testkit::fresh_path("stack");
        let (file, mut stack) = (ScratchFile::create(&RealDisk, &path).unwrap(), Stack::default());
        for number in 1..=9 {
            let mut bytes = vec![number; 100];
            file.push(&mut stack, &mut bytes, 30).unwrap();
            assert_eq!(bytes, [number; 30]);
        }
        assert_eq!(stack.bytes, 9 * 70);
        let mut back = vec![0];
        for number in (1..=9).rev() {
            back.truncate(1);
            file.pop(&mut stack, &mut back).unwrap();
            assert_eq!(back, [&[0][..], &[number; 70]].concat());
        }
        assert!(stack.last.is_empty() && stack.bytes == 0);
    }

    #[test]
    fn pieces_come_back_in_any_order_and_changes_are_noticed() {
        let (dir, path) = testkit::fresh_path("scratch");
        std::fs::write(&path, b"left behind").unwrap();
        let file = ScratchFile::create(&RealDisk, &path).unwrap();
        let bytes: Vec<Vec<u8>> = (0..50u8).map(|number| vec![number; usize::from(number) * 100]).collect();
        let pieces: Vec<Piece> = bytes.iter().map(|bytes| file.append(bytes).unwrap()).collect();
        assert!(pieces[0].is_empty() && pieces[7].len() == 700);
        assert!(pieces.iter().all(|piece| Piece::from_bytes(piece.to_bytes()) == *piece));
        assert!(pieces[7].has(&bytes[7]) && !pieces[7].has(&bytes[8]) && !pieces[7].has(&[8; 700]));
        let mut back = Vec::new();
        for (piece, bytes) in pieces.iter().zip(&bytes).rev() {
            back.clear();
            file.read(piece, &mut back).unwrap();
            assert_eq!(back, *bytes);
        }
        let mut content = std::fs::read(&path).unwrap();
        content[108] ^= 1;
        std::fs::write(&path, content).unwrap();
        let error = file.read(&pieces[2], &mut back).unwrap_err();
        assert!(error.to_string().contains("at byte 108: checksum mismatch"), "{error}");
        assert!(file.read(&pieces[3], &mut back).is_ok());
        let left = ScratchFile::open_left(&RealDisk, &path).unwrap().unwrap();
        back.clear();
        let again = left.piece_at(pieces[7].offset, pieces[7].len, &mut back).unwrap().unwrap();
        assert!(again == pieces[7] && back == bytes[7] && left.append(&[1]).is_err());
        assert_eq!(left.piece_at(pieces[49].offset, pieces[49].len + 1, &mut back).unwrap(), None);
        assert!(ScratchFile::open_left(&RealDisk, &dir.path().join("missing")).unwrap().is_none());
        let missing = ScratchFile::create(&RealDisk, &dir.path().join("missing/scratch"));
        assert!(matches!(missing.err(), Some(DiskError::File(error)) if error.is_creation));
    }
}

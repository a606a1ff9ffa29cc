//! A temporary file of pieces, which are appended and read back by their positions.
//!
//! It belongs to one process: nothing in it outlives a restart. It begins with a magic, so that leftovers of
//! killed processes are recognised. The caller keeps the [`Piece`]s, which have the checksums.

use crate::error::DiskError;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use vfs::{Disk, During as _, ReadAt, WriteFile};

/// First bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"PGRN-TMP";

/// Where a piece is in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    offset: u64,
    len: u32,
    /// CRC-32C of its bytes.
    checksum: u32,
}

impl Piece {
    /// Its length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The file, open for writing and reading by any number of threads.
pub struct ScratchFile {
    path: PathBuf,
    writer: Mutex<Writer>,
    reader: Box<dyn ReadAt>,
}

struct Writer {
    file: Box<dyn WriteFile>,
    len: u64,
}

impl ScratchFile {
    /// Creates the file. One that a killed process has left at `path` is removed first.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn create(disk: &dyn Disk, path: &Path) -> Result<Self, DiskError> {
        if disk.exists(path).during("look for", path)? {
            disk.remove_file(path).during("remove", path)?;
        }
        let mut file = disk.create(path).during_creation(path)?;
        file.write_all(&MAGIC).during("write", path)?;
        let reader = disk.open(path).during("open for reading", path)?;
        let writer = Mutex::new(Writer { file, len: MAGIC.len() as u64 });
        Ok(Self { path: path.to_owned(), writer, reader })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a piece. Pieces should be large: they are not buffered.
    ///
    /// # Errors
    /// [`DiskError::File`]; [`DiskError::CallerError`] for 4 GiB or more.
    pub fn append(&self, bytes: &[u8]) -> Result<Piece, DiskError> {
        let Ok(len) = u32::try_from(bytes.len()) else {
            let flaw = format!("a piece of {} bytes", bytes.len());
            return Err(DiskError::CallerError { dir: self.path.clone(), flaw });
        };
        let checksum = crc32c::crc32c(bytes);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    #[test]
    fn pieces_come_back_in_any_order_and_changes_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scratch");
        std::fs::write(&path, b"left behind").unwrap();
        let file = ScratchFile::create(&RealDisk, &path).unwrap();
        let bytes: Vec<Vec<u8>> = (0..50u8).map(|number| vec![number; usize::from(number) * 100]).collect();
        let pieces: Vec<Piece> = bytes.iter().map(|bytes| file.append(bytes).unwrap()).collect();
        assert!(pieces[0].is_empty() && pieces[7].len() == 700);
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
        let missing = ScratchFile::create(&RealDisk, &dir.path().join("missing/scratch"));
        assert!(matches!(missing.err(), Some(DiskError::File(error)) if error.is_creation));
    }
}

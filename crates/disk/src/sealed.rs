//! Small files of Peregrine's own: magic, version, content, and a checksum of all that.

use crate::error::DiskError;
use std::path::Path;
use vfs::{Disk, unfinished};
use wire::{Reader, WireError};

/// The first bytes of such a file.
pub(crate) struct Seal {
    pub magic: [u8; 8],
    pub version: u32,
    /// The kind of file, for messages.
    pub what: &'static str,
}

impl Seal {
    /// Begins the bytes of a file, with space for `len` more.
    pub fn open_new(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 256);
        bytes.extend(self.magic);
        bytes.extend(self.version.to_le_bytes());
        bytes
    }

    /// Ends the bytes of a file.
    pub fn close(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Returns the content of a file, or what is wrong with it.
    pub fn check<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let Self { magic, version, what } = self;
        let damaged = |flaw: &str| format!("{flaw}; the file is damaged: copy it again, or make another one");
        let (found, rest) = bytes.split_first_chunk().ok_or_else(|| damaged("truncated"))?;
        if found != magic {
            return Err(format!("this is not {what}"));
        }
        let (found, rest) = rest.split_first_chunk().ok_or_else(|| damaged("truncated"))?;
        let found = u32::from_le_bytes(*found);
        if found != *version {
            return Err(format!(
                "another version of peregrine has written this (format {found}, this one reads {version}); \
                 use one version for all ranges"
            ));
        }
        let (content, checksum) = rest.split_last_chunk().ok_or_else(|| damaged("truncated"))?;
        let summed = bytes.get(..bytes.len() - checksum.len()).unwrap_or_default();
        match crc32c::crc32c(summed) == u32::from_le_bytes(*checksum) {
            true => Ok(content),
            false => Err(damaged("checksum mismatch")),
        }
    }
}

/// Writes a whole file; one that has its name is replaced when all of it is on the medium.
///
/// # Errors
/// [`DiskError::Unfinished`]; [`DiskError::File`].
pub(crate) fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut file = unfinished::create(disk, path, unfinished::SUFFIX)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}

/// Appends a text: its length in one byte, then as many characters of it as 255 bytes have.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let max = text.len().min(u8::MAX.into());
    let len = (0..=max).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0);
    bytes.push(len as u8);
    bytes.extend(text.bytes().take(len));
}

/// Parses a text; `None` if it is not UTF-8.
pub(crate) fn text(reader: &mut Reader<'_>) -> Result<Option<String>, WireError> {
    let len = reader.u8()?;
    Ok(std::str::from_utf8(reader.bytes(len.into())?).ok().map(ToOwned::to_owned))
}

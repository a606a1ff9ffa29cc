//! Small files of Peregrine's own: magic, version, for some the length, content, and a checksum of all that.

use crate::error::DiskError;
use crate::pack::{Malformed, Pack};
use std::cmp::Ordering;
use std::path::Path;
use wire::Reader;

/// The first bytes of such a file.
pub(crate) struct Seal {
    pub magic: [u8; 8],
    pub version: u32,
    /// The kind of file, for messages.
    pub what: &'static str,
}

/// Why bytes are not a file that this version has written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("this is not {0}")]
    Other(&'static str),
    #[error("written by another version of peregrine (format {found}, this one reads {known})")]
    Version { found: u32, known: u32 },
    #[error("{0}")]
    Damaged(&'static str),
    /// The bytes are as they were written, but their content is impossible.
    #[error(transparent)]
    Content(#[from] Malformed),
}

/// The content of such a file.
pub(crate) trait Sealed: Pack {
    const SEAL: Seal;
    /// Whether the file states its length, so that truncated and lengthened ones are told from damaged ones.
    const STATES_LENGTH: bool = false;

    /// Whether its parts fit together: otherwise it is neither written nor read.
    fn check(&self) -> Result<(), &'static str>;

    /// Returns the bytes of the file; the error for content that does not fit together names `path`.
    fn seal(&self, path: &Path) -> Result<Vec<u8>, DiskError> {
        match self.check() {
            Ok(()) => Ok(self.sealed()),
            Err(flaw) => Err(DiskError::CallerError { dir: path.to_owned(), flaw: flaw.to_owned() }),
        }
    }

    /// Returns the bytes of the file.
    fn sealed(&self) -> Vec<u8> {
        let mut bytes = Self::SEAL.magic.to_vec();
        Self::SEAL.version.put(&mut bytes);
        let mut content = Vec::new();
        self.put(&mut content);
        if Self::STATES_LENGTH {
            ((bytes.len() + size_of::<u64>() + content.len() + CHECKSUM_LEN) as u64).put(&mut bytes);
        }
        bytes.extend(content);
        with_checksum(bytes)
    }

    /// Returns the content of a file.
    fn unseal(bytes: &[u8]) -> Result<Self, Flaw> {
        let Seal { magic, version, what } = Self::SEAL;
        let rest = bytes.strip_prefix(&magic).ok_or(Flaw::Other(what))?;
        let (found, rest) = rest.split_first_chunk().ok_or(Flaw::Damaged("truncated"))?;
        let found = u32::from_le_bytes(*found);
        if found != version {
            return Err(Flaw::Version { found, known: version });
        }
        let rest =
            if Self::STATES_LENGTH { after_length(rest, bytes.len()).map_err(Flaw::Damaged)? } else { rest };
        let (content, _) = rest.split_last_chunk::<CHECKSUM_LEN>().ok_or(Flaw::Damaged("truncated"))?;
        without_checksum(bytes).ok_or(Flaw::Damaged("checksum mismatch"))?;
        let mut reader = Reader::new(content);
        let content = Self::take(&mut reader)?;
        reader.finish().map_err(Malformed::from)?;
        content.check().map_err(Malformed::Value)?;
        Ok(content)
    }
}

/// Returns what follows the length of a file, which has `len` bytes.
fn after_length(bytes: &[u8], len: usize) -> Result<&[u8], &'static str> {
    let (stated, rest) = bytes.split_first_chunk().ok_or("truncated")?;
    match u64::from_le_bytes(*stated).cmp(&(len as u64)) {
        Ordering::Greater => Err("truncated"),
        Ordering::Less => Err("bytes were added"),
        Ordering::Equal => Ok(rest),
    }
}

const CHECKSUM_LEN: usize = 4;

/// Appends the CRC-32C of all bytes.
pub(crate) fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    crc32c::crc32c(&bytes).put(&mut bytes);
    bytes
}

/// Returns the bytes before their checksum; `None` if it is not theirs.
pub(crate) fn without_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*checksum)).then_some(content)
}

impl Flaw {
    /// Returns the error for a file of a range; `advice` is what to do if it is damaged.
    pub fn in_range_file(&self, path: &Path, advice: &str) -> DiskError {
        let advice =
            if matches!(self, Self::Version { .. }) { "use one version for all ranges" } else { advice };
        DiskError::Damaged { path: path.to_owned(), offset: 0, flaw: format!("{self}; {advice}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::pack_fields;

    #[derive(PartialEq, Debug)]
    struct Sample {
        numbers: Vec<u64>,
        text: String,
        is_marked: bool,
    }
    pack_fields!(Sample { numbers, text, is_marked });

    impl Sealed for Sample {
        const SEAL: Seal = Seal { magic: *b"PGRN-TST", version: 3, what: "a sample" };

        fn check(&self) -> Result<(), &'static str> {
            if self.numbers.is_empty() { Err("no numbers") } else { Ok(()) }
        }
    }

    fn sample() -> Sample {
        Sample { numbers: vec![7, u64::MAX], text: "né".to_owned(), is_marked: true }
    }

    fn flaw(bytes: &[u8]) -> String {
        Sample::unseal(bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_content_comes_back_from_its_bytes_and_from_no_others() {
        let bytes = sample().sealed();
        let content = [&[2, 0, 0, 0, 7][..], &[0; 7], &[0xff; 8], "\u{3}né\u{1}".as_bytes()].concat();
        assert_eq!(bytes[..bytes.len() - 4], [&b"PGRN-TST\x03\0\0\0"[..], &content].concat());
        assert_eq!(Sample::unseal(&bytes).unwrap(), sample());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                0..8 => "this is not a sample",
                8..12 => "written by another version of peregrine (format ",
                _ => "checksum mismatch",
            };
            assert!(flaw(&flipped).starts_with(expected), "bit {bit} is flipped");
        }
        for len in 0..bytes.len() {
            let expected = match len {
                0..8 => "this is not a sample",
                8..16 => "truncated",
                _ => "checksum mismatch",
            };
            assert_eq!(flaw(&bytes[..len]), expected, "{len} bytes are left");
        }
        assert_eq!(flaw(&[&bytes[..], &[0]].concat()), "checksum mismatch");
    }

    #[test]
    fn a_content_that_is_never_written_is_not_read() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = sample().sealed();
            bytes.truncate(bytes.len() - 4);
            bytes[at] = byte;
            flaw(&with_checksum(bytes))
        };
        assert_eq!(changed(8, 4), "written by another version of peregrine (format 4, this one reads 3)");
        assert!(changed(15, 1).contains("ends early"), "a number of numbers");
        assert!(changed(12, 1).contains("ends early"), "7 bytes are taken for a text of 255");
        assert!(changed(33, 0xff).contains("not valid UTF-8"));
        assert_eq!(changed(36, 2), "a mark in it is neither 0 nor 1");
        let shorter = changed(32, 2);
        assert!(shorter.contains("unexpected bytes after the end") || shorter.contains("UTF-8"));
        let none = Sample { numbers: Vec::new(), ..sample() };
        assert_eq!(flaw(&none.sealed()), "no numbers");
        assert!(matches!(none.seal("a".as_ref()), Err(DiskError::CallerError { .. })));
        let long = Sample { text: "é".repeat(200), ..sample() };
        let text = Sample::unseal(&long.sealed()).unwrap().text;
        assert_eq!(text, "é".repeat(127), "it ends after a character");
    }
}

//! Hint files that are compressed as a whole, with xz or gzip: recognised by their first bytes, not by their
//! names, and unpacked as a stream.
//!
//! Formats with random access cannot be read from a stream, so that callers write what is unpacked to a file.
//! A file in btcd's format is gzip by itself and stays as it is.

use crate::{HintsError, bip456, btcd, input::FileBytes, input::REMEDY, stream::HintFile};
use digest::sha256::Sha256;
use flate2::read::{GzDecoder, MultiGzDecoder};
use lzma_rust2::XzReader;
use std::{
    io::{self, BufReader, Chain, Cursor, Read},
    path::Path,
};
use vfs::{Disk, During as _};

/// Memory in KiB that a file may need to be unpacked: `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB: u32 = 80 << 10;
/// Bytes by which a packing is recognised. In gzip, a name or a comment may come first.
const HEAD_LEN: usize = 64 << 10;
/// Bytes that are read at once.
const BUFFER_LEN: usize = 64 << 10;

const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
pub(super) const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

wire::named! {
/// How a whole file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// xz.
    Xz = "xz",
    /// gzip.
    Gzip = "gzip",
}
}

impl Packing {
    /// Returns the packing of a file that begins with `head`; `None` if it is not packed.
    fn of(head: &[u8]) -> Option<Self> {
        let is_btcd = || {
            let mut start = [0; 5];
            let magic = [&bip456::MAGIC[..], &[btcd::VERSION]].concat();
            GzDecoder::new(head).read_exact(&mut start).is_ok() && start[..] == magic
        };
        match head {
            _ if head.starts_with(&XZ_MAGIC) => Some(Self::Xz),
            _ if head.starts_with(&GZIP_MAGIC) && !is_btcd() => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// The source of [`Unpacked`]: counts and hashes what is read, and notes a failure.
struct Source<R> {
    bytes: R,
    len: u64,
    sha256: Sha256,
    has_failed: bool,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buf);
        match &read {
            Ok(len) => {
                self.len += *len as u64;
                self.sha256.update(buf.get(..*len).unwrap_or_default());
            }
            Err(error) => self.has_failed |= error.kind() != io::ErrorKind::Interrupted,
        }
        read
    }
}

type Bytes<R> = BufReader<Chain<Cursor<Vec<u8>>, Source<R>>>;

enum Decoder<R: Read> {
    Plain(Bytes<R>),
    Gzip(Box<MultiGzDecoder<Bytes<R>>>),
    Xz(Box<XzReader<Bytes<R>>>),
}

/// The plain bytes of a hint file, packed or not.
pub struct Unpacked<R: Read> {
    /// How it is compressed; `None` if it is not.
    pub packing: Option<Packing>,
    decoder: Decoder<R>,
}

/// A packed file, as far as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedFile {
    /// How it is compressed; `None` if it is not.
    pub packing: Option<Packing>,
    /// Length in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: [u8; 32],
}

impl<R: Read> Unpacked<R> {
    /// Recognises the packing by the first bytes of a file.
    ///
    /// # Errors
    /// Any error of `bytes`.
    pub fn new(bytes: R) -> io::Result<Self> {
        let mut source = Source { bytes, len: 0, sha256: Sha256::new(), has_failed: false };
        let mut head = Vec::new();
        source.by_ref().take(HEAD_LEN as u64).read_to_end(&mut head)?;
        let packing = Packing::of(&head);
        let bytes = BufReader::with_capacity(BUFFER_LEN, Cursor::new(head).chain(source));
        let decoder = match packing {
            None => Decoder::Plain(bytes),
            Some(Packing::Gzip) => Decoder::Gzip(Box::new(MultiGzDecoder::new(bytes))),
            Some(Packing::Xz) => Decoder::Xz(Box::new(XzReader::new_mem_limit(bytes, true, XZ_MEMORY_KIB))),
        };
        Ok(Self { packing, decoder })
    }

    fn source(&self) -> &Source<R> {
        let bytes = match &self.decoder {
            Decoder::Plain(bytes) => bytes,
            Decoder::Gzip(gzip) => gzip.get_ref(),
            Decoder::Xz(xz) => xz.inner(),
        };
        bytes.get_ref().get_ref().1
    }

    /// Whether reading the source has failed. Otherwise, an error is one of the packed data.
    pub fn source_has_failed(&self) -> bool {
        self.source().has_failed
    }

    /// The packed file, as far as it was read: all of it after the end of the plain bytes.
    pub fn packed(&self) -> PackedFile {
        let source = self.source();
        PackedFile { packing: self.packing, bytes: source.len, sha256: source.sha256.clone().finalize() }
    }

    /// Returns the error for packed data of the file at `path` that cannot be unpacked.
    pub fn damaged(&self, path: &Path, error: &io::Error) -> HintsError {
        let packing = self.packing.map_or("plain", Packing::name);
        let flaw = format!("{packing}: {error}; {REMEDY}");
        HintsError::Damaged { path: path.to_owned(), offset: self.source().len, flaw }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.decoder {
            Decoder::Plain(bytes) => bytes.read(buf),
            Decoder::Gzip(gzip) => gzip.read(buf),
            Decoder::Xz(xz) => xz.read(buf),
        }
    }
}

/// Opens a hint file, packed or not.
///
/// # Errors
/// [`HintsError::File`].
pub fn open(disk: &dyn Disk, path: &Path) -> Result<Unpacked<impl Read>, HintsError> {
    let HintFile { bytes, len, .. } = HintFile::open(disk, path)?;
    Ok(Unpacked::new(FileBytes::new(bytes, 0, len)).during("read the hints", path)?)
}

/// Returns the SHA-256 of the plain bytes of a hint file, and the file as it is if it is packed.
///
/// # Errors
/// [`HintsError::File`]; [`HintsError::Damaged`] if the file cannot be unpacked.
pub fn digests(disk: &dyn Disk, path: &Path) -> Result<([u8; 32], Option<PackedFile>), HintsError> {
    let mut unpacked = open(disk, path)?;
    let (mut sha256, mut buffer) = (Sha256::new(), vec![0; BUFFER_LEN]);
    loop {
        match unpacked.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => sha256.update(buffer.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if unpacked.source_has_failed() => Err(error).during("read the hints", path)?,
            Err(error) => return Err(unpacked.damaged(path, &error)),
        }
    }
    Ok((sha256.finalize(), unpacked.packing.map(|_| unpacked.packed())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        liblzma::encode_all(bytes, 6).unwrap()
    }

    fn unpack(bytes: &[u8]) -> (io::Result<Vec<u8>>, PackedFile) {
        let mut unpacked = Unpacked::new(bytes).unwrap();
        let mut plain = Vec::new();
        let read = unpacked.read_to_end(&mut plain).map(|_| plain);
        assert!(!unpacked.source_has_failed());
        (read, unpacked.packed())
    }

    /// Bytes that look like those of hints, longer than all buffers.
    fn sample() -> Vec<u8> {
        (0..300_000_u32).flat_map(|at| (at.wrapping_mul(at) >> 7).to_le_bytes()).collect()
    }

    #[test]
    fn packed_bytes_are_unpacked_and_others_stay_as_they_are() {
        for plain in [sample(), b"UTXO\x00 of a few bytes".to_vec(), vec![7]] {
            for (packing, bytes) in
                [(None, plain.clone()), (Some(Packing::Gzip), gzip(&plain)), (Some(Packing::Xz), xz(&plain))]
            {
                let (read, packed) = unpack(&bytes);
                assert!(read.unwrap() == plain, "{packing:?}");
                let sha256 = digest::sha256::sha256(&bytes);
                assert_eq!(packed, PackedFile { packing, bytes: bytes.len() as u64, sha256 });
            }
            let twice = [xz(&plain), xz(&plain)].concat();
            assert_eq!(unpack(&twice).0.unwrap(), plain.repeat(2), "xz files can be concatenated");
        }
    }

    #[test]
    fn the_gzip_of_btcds_format_belongs_to_the_format() {
        let bytes = gzip(&[b"UTXO\x01", &sample()[..]].concat());
        let (read, packed) = unpack(&bytes);
        assert!(read.unwrap() == bytes && packed.packing.is_none());
        let (read, packed) = unpack(&xz(&bytes));
        assert!(read.unwrap() == bytes && packed.packing == Some(Packing::Xz));
    }

    #[test]
    fn damaged_truncated_and_extended_files_are_errors() {
        let plain = sample();
        for bytes in [gzip(&plain), xz(&plain)] {
            for len in [bytes.len() - 1, bytes.len() / 2, 20] {
                assert!(unpack(&bytes[..len]).0.is_err(), "{len} of {} bytes", bytes.len());
            }
            assert!(unpack(&[&bytes[..], b"more than this"].concat()).0.is_err());
            let mut flipped = bytes.clone();
            flipped[bytes.len() / 2] ^= 4;
            assert!(unpack(&flipped).0.is_err());
        }
    }

    #[test]
    fn a_dictionary_above_the_memory_limit_is_refused() {
        let mut options = liblzma::stream::LzmaOptions::new_preset(1).unwrap();
        options.dict_size(256 << 20);
        let mut filters = liblzma::stream::Filters::new();
        filters.lzma2(&options);
        let stream =
            liblzma::stream::Stream::new_stream_encoder(&filters, liblzma::stream::Check::Crc32).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(&sample()).unwrap();
        let error = unpack(&encoder.finish().unwrap()).0.unwrap_err();
        assert!(error.to_string().contains("mem"), "{error}");
    }

    #[test]
    fn a_failing_source_is_not_taken_for_damage() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
        let plain = sample();
        let packed = xz(&plain);
        let mut unpacked = Unpacked::new(packed[..100_000].chain(Broken)).unwrap();
        assert!(unpacked.read_to_end(&mut Vec::new()).is_err() && unpacked.source_has_failed());
    }
}

//! Writes a hint file of any format, a block at a time.
//!
//! The file is written under its name with the suffix `.peregrine-part`, synced, and then renamed: a crash
//! leaves a temporary file, which the next writer of the same file removes. An error leaves no file, unless
//! only the last sync has failed: then the file is complete and has its name.

use super::peregrine::{self, GroupWriter};
use super::stream::{Genesis, VARIANTS, Variant};
use super::{HintFormat, HintInfo, MAX_OUTPUTS, bip456, bitmap};
use crate::HintsError;
use digest::sha256::Sha256;
use flate2::{Compression, GzBuilder, write::GzEncoder};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use vfs::unfinished::{self, SUFFIX};
use vfs::{AtomicFile, Disk, During as _, FileError};
use wire::{BlockHash, Height, Network};

/// Bytes that are collected before they are written.
const BUFFER_LEN: usize = 1 << 20;

/// Suffix of the file with the records of a bitmap file, whose table is written first but known last.
const RECORDS_SUFFIX: &str = ".peregrine-records";

/// A hint file that is being written.
pub struct HintWriter<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    info: HintInfo,
    /// The format; `None` for Peregrine's own.
    variant: Option<&'static Variant>,
    part: TemporaryFile<'d>,
    /// Bytes that are not in the file yet.
    bytes: Vec<u8>,
    /// Height of the next block.
    next: u32,
    /// Whether the number of outputs is given for each block; `None` before the first block.
    has_outputs: Option<bool>,
    outputs: u64,
    body: Body,
}

struct TemporaryFile<'d> {
    file: AtomicFile<'d>,
    written: u64,
    sha256: Sha256,
}

enum Body {
    Plain,
    Gzip(GzEncoder<Vec<u8>>),
    /// The number of outputs of each block, from which the table is written at the end.
    Bitmap(Vec<u32>),
    Groups(GroupWriter),
}

impl<'d> HintWriter<'d> {
    /// Begins a file with the outputs that are unspent after the block at `height`. The first record is the
    /// genesis block's in `bip456`, as in the text of BIP-0456, and block 1's in `bip456-lsb`, as in the
    /// crates.
    ///
    /// # Errors
    /// [`HintsError::File`], also if the format needs the block hash and it is `None`;
    /// [`HintsError::Unfinished`], also if `path` exists.
    pub fn create(
        disk: &'d dyn Disk,
        path: &Path,
        format: HintFormat,
        network: Option<Network>,
        height: Height,
        block_hash: Option<BlockHash>,
    ) -> Result<Self, HintsError> {
        let body = match format {
            HintFormat::Peregrine => Body::Groups(GroupWriter::new()),
            HintFormat::Btcd => Body::Gzip(GzBuilder::new().write(Vec::new(), Compression::best())),
            HintFormat::Bitmap => Body::Bitmap(Vec::new()),
            _ => Body::Plain,
        };
        let variant = VARIANTS.iter().find(|variant| variant.format == format);
        let has_hash = variant.is_some_and(|variant| variant.has_hash);
        if has_hash && block_hash.is_none() {
            return Err(unsupported(path, format!("{format} needs the hash of the last block")));
        }
        let is_bip456 = variant.is_some_and(|variant| variant.genesis == Genesis::ByCount);
        let info = HintInfo {
            format,
            network: network.filter(|_| variant.is_none()),
            height,
            block_hash: block_hash.filter(|_| variant.is_none() || has_hash),
            hints: 0,
            outputs: None,
            bytes: 0,
            checksum: None,
            first_record_is_genesis: is_bip456.then_some(format == HintFormat::Bip456),
        };
        let suffix = if format == HintFormat::Bitmap { RECORDS_SUFFIX } else { SUFFIX };
        Ok(Self {
            disk,
            path: path.to_owned(),
            info,
            variant,
            part: TemporaryFile::create(disk, path, suffix)?,
            bytes: Vec::new(),
            next: 1,
            has_outputs: None,
            outputs: 0,
            body,
        })
    }

    /// Adds the next block, beginning with block 1: the number of its outputs in the format's numbering, and
    /// the ascending indices of the unspent ones. The formats `thestack` and `bitmap` need the number of
    /// outputs.
    ///
    /// # Errors
    /// [`HintsError::File`], also if the format cannot hold the block; [`HintsError::CallerError`] if the
    /// indices do not ascend or are not below `outputs`, or the block is one too many.
    pub fn push_block(&mut self, outputs: Option<u32>, unspent: &[u32]) -> Result<(), HintsError> {
        let height = self.next;
        let min_count = unspent.last().map_or(0, |last| last.saturating_add(1));
        let count = outputs.unwrap_or(min_count);
        if !unspent.is_sorted_by(|a, b| a < b) || min_count > count || count > MAX_OUTPUTS {
            let flaw = format!("the hints of block {height} are not an ascending list of its outputs");
            return Err(self.caller_error(flaw));
        }
        if height > self.info.height.0 {
            return Err(self.caller_error(format!("block {height} is beyond the end {}", self.info.height)));
        }
        if *self.has_outputs.get_or_insert(outputs.is_some()) != outputs.is_some() {
            let flaw = format!("block {height}: only some blocks have a number of outputs");
            return Err(self.caller_error(flaw));
        }
        if height == 1 {
            self.begin()?;
        }
        self.write_record(height, outputs, count, unspent)?;
        self.next += 1;
        self.info.hints += unspent.len() as u64;
        self.outputs += u64::from(count);
        if self.bytes.len() >= BUFFER_LEN { self.part.write(&mut self.bytes) } else { Ok(()) }
    }

    fn write_record(
        &mut self,
        height: u32,
        outputs: Option<u32>,
        count: u32,
        unspent: &[u32],
    ) -> Result<(), HintsError> {
        let (path, format) = (&self.path, self.info.format);
        let Some(variant) = self.variant else {
            let Body::Groups(groups) = &mut self.body else { return Ok(()) };
            groups.push(path, &mut self.bytes, count, unspent)?;
            return Ok(());
        };
        if variant.has_outputs && outputs.is_none() {
            let text = format!("{format} needs the number of outputs of block {height}");
            return Err(unsupported(path, text));
        }
        if format == HintFormat::TheStack && !(1..=u32::from(u16::MAX)).contains(&count) {
            let text = format!("block {height} has {count} outputs, thestack supports 1 to 65535");
            return Err(unsupported(path, text));
        }
        if let Body::Bitmap(sizes) = &mut self.body {
            sizes.push(count);
        }
        self.append(|bytes| (variant.write)(bytes, count, unspent))
    }

    /// Appends bytes of the format, compressed if it is.
    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), HintsError> {
        if let Body::Gzip(gzip) = &mut self.body {
            let mut plain = Vec::new();
            write(&mut plain);
            gzip.write_all(&plain).during("compress the hints", &self.path)?;
            self.bytes.append(gzip.get_mut());
        } else {
            write(&mut self.bytes);
        }
        Ok(())
    }

    /// Writes the header, and the genesis block's record if the format has one.
    fn begin(&mut self) -> Result<(), HintsError> {
        let HintInfo { network, height, block_hash, first_record_is_genesis, .. } = self.info;
        let Some(variant) = self.variant else {
            let has_outputs = self.has_outputs.unwrap_or(false);
            self.bytes = peregrine::header(network, height, block_hash, has_outputs);
            return Ok(());
        };
        // The header of a file with a table is written with it, at the end.
        let version = variant.version.filter(|_| !variant.has_table);
        let has_genesis = variant.genesis == Genesis::Always || first_record_is_genesis == Some(true);
        self.append(|bytes| {
            if let Some(version) = version {
                bip456::write_header(bytes, version, height.0);
            }
            if variant.has_hash {
                bytes.extend(block_hash.map(|hash| hash.0).unwrap_or_default());
            }
            if has_genesis {
                (variant.write)(bytes, 1, &[]);
            }
        })
    }

    /// Writes what follows the last block, and renames the file to its final name.
    ///
    /// # Errors
    /// [`HintsError::File`]; [`HintsError::CallerError`] if blocks are missing.
    pub fn finish(mut self) -> Result<HintInfo, HintsError> {
        if self.next - 1 != self.info.height.0 {
            let flaw = format!("{} of {} blocks were added", self.next - 1, self.info.height);
            return Err(self.caller_error(flaw));
        }
        if self.next == 1 {
            self.begin()?;
        }
        let Self { disk, path, mut info, mut part, mut bytes, has_outputs, outputs, body, .. } = self;
        info.outputs = has_outputs.filter(|knows| *knows).map(|_| outputs);
        match body {
            Body::Plain if info.format == HintFormat::TheStack => bytes.extend([0, 0]),
            Body::Plain => {}
            Body::Gzip(gzip) => bytes.extend(gzip.finish().during("compress the hints", &path)?),
            Body::Bitmap(sizes) => {
                part.write(&mut bytes)?;
                part = with_table(disk, &path, part, &sizes)?;
            }
            Body::Groups(groups) => {
                let sha256 = part.sha256.clone();
                let counts = (info.hints, outputs);
                info.checksum = Some(groups.finish(&path, &mut bytes, part.written, sha256, counts)?);
            }
        }
        part.write(&mut bytes)?;
        info.bytes = part.written;
        part.file.commit()?;
        Ok(info)
    }

    fn caller_error(&self, flaw: String) -> HintsError {
        HintsError::CallerError { path: self.path.clone(), flaw }
    }
}

/// Returns the error for hints that the format cannot represent.
fn unsupported(path: &Path, text: String) -> HintsError {
    let source = io::Error::new(io::ErrorKind::InvalidInput, text);
    FileError { path: path.to_owned(), action: "write the hints in this format", is_creation: false, source }
        .into()
}

/// Writes the table of a bitmap file, and copies the records after it.
fn with_table<'d>(
    disk: &'d dyn Disk,
    path: &Path,
    records: TemporaryFile<'d>,
    sizes: &[u32],
) -> Result<TemporaryFile<'d>, HintsError> {
    let mut part = TemporaryFile::create(disk, path, SUFFIX)?;
    let mut bytes = Vec::new();
    bip456::write_header(&mut bytes, bip456::VERSION, sizes.len() as u32);
    let mut offset = bip456::HEADER_LEN + sizes.len() as u64 * bitmap::ROW_LEN;
    for (&size, height) in sizes.iter().zip(1..) {
        bitmap::write_row(&mut bytes, height, offset);
        offset += bitmap::record_len(size);
        if bytes.len() >= BUFFER_LEN {
            part.write(&mut bytes)?;
        }
    }
    part.write(&mut bytes)?;
    let TemporaryFile { file: records, written: len, .. } = records;
    let from = records.temporary_path();
    let source = disk.open(from).during("open for reading", from)?;
    let mut at = 0;
    while at < len {
        bytes.resize((len - at).min(BUFFER_LEN as u64) as usize, 0);
        source.read_exact_at(&mut bytes, at).during("read", from)?;
        at += bytes.len() as u64;
        part.write(&mut bytes)?;
    }
    records.discard()?;
    debug_assert_eq!(part.written, offset, "the table has the lengths of the records");
    Ok(part)
}

impl<'d> TemporaryFile<'d> {
    fn create(disk: &'d dyn Disk, path: &Path, suffix: &str) -> Result<Self, HintsError> {
        Ok(Self { file: unfinished::create_new(disk, path, suffix)?, written: 0, sha256: Sha256::new() })
    }

    /// Writes all of `bytes` and empties it.
    fn write(&mut self, bytes: &mut Vec<u8>) -> Result<(), HintsError> {
        self.file.write_all(bytes)?;
        self.sha256.update(bytes);
        self.written += bytes.len() as u64;
        bytes.clear();
        Ok(())
    }
}

//! The formats that are a sequence of records: scanning a whole file, and reading from any height.
//!
//! None of these formats has an index or states its length, and some can only be distinguished because a file
//! would be invalid in all others. So a file is scanned once when it is opened; the scan builds an index of
//! bounded size.

use super::bip456::{self, BitOrder};
use super::input::{Input, InputError};
use super::{HintFormat, bitmap, btcd, swiftsync2140, thestack};
use crate::HintsError;
use digest::sha256::Sha256;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Disk, During as _, ReadAt, each_piece};
use wire::BlockHash;

/// Maximum number of positions in the index, 8 bytes each; when it is reached, every second one is dropped.
const MAX_POSITIONS: usize = 1 << 16;
/// Initial number of records from one position in the index to the next.
const FIRST_STRIDE: u32 = 16;
/// Maximum number of records of a file: the blocks of 300 years. In some formats a zero byte is a record, and
/// a sparse file or gzip can contain any number of zeros.
pub(super) const MAX_RECORDS: u32 = 1 << 24;

#[derive(Clone)]
pub(super) struct HintFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Arc<dyn ReadAt>,
    pub(super) len: u64,
}

impl HintFile {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, HintsError> {
        let bytes: Arc<dyn ReadAt> = disk.open(path).during("open for reading", path)?.into();
        let len = bytes.len().during("find the length", path)?;
        Ok(Self { path: path.to_owned(), bytes, len })
    }

    pub(super) fn input(&self, offset: u64) -> Input {
        Input::plain(Arc::clone(&self.bytes), offset, self.len)
    }

    /// Returns the SHA-256 of the first `len` bytes.
    pub(super) fn sha256(&self, len: u64) -> Result<[u8; 32], HintsError> {
        let mut sha256 = Sha256::new();
        each_piece(&*self.bytes, len, |piece| sha256.update(piece)).during("read the hints", &self.path)?;
        Ok(sha256.finalize())
    }

    pub(super) fn damaged(&self, offset: u64, text: &str) -> HintsError {
        InputError::Malformed(offset, text.to_owned()).at(&self.path, "hints")
    }
}

/// Whether the first record of a file is the genesis block's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Genesis {
    Always,
    /// If the file has one record more than its height.
    ByCount,
    Never,
}

type ReadRecord = fn(&mut Input, &mut Vec<u32>, &mut Vec<u8>) -> Result<Option<Option<u32>>, InputError>;

/// A format that is a sequence of records. One with a property that its files do not state, and that a scan
/// must determine, has a row for each case.
pub(super) struct Variant {
    pub(super) format: HintFormat,
    /// What messages add to the name of the format.
    note: &'static str,
    /// The version in the header, which has the height too; `None` if there is no such header.
    pub(super) version: Option<u8>,
    /// Whether the file begins with the hash of the last block.
    pub(super) has_hash: bool,
    /// Whether a table of the records' offsets follows the header.
    pub(super) has_table: bool,
    /// Whether a record has the number of outputs.
    pub(super) has_outputs: bool,
    pub(super) is_gzip: bool,
    pub(super) genesis: Genesis,
    /// Appends the hints of the next record, and returns the number of outputs, if the record has it; `None`
    /// at an end mark. The last argument is a scratch buffer.
    read: ReadRecord,
    /// Appends a record: the number of outputs, and the hints.
    pub(super) write: fn(&mut Vec<u8>, u32, &[u32]),
}

/// All formats but Peregrine's own. Of several rows of one format, the first is that which is written.
pub(super) static VARIANTS: [Variant; 7] = [
    BIP456,
    Variant {
        format: HintFormat::Bip456Lsb,
        read: |input, unspent, low| {
            bip456::read(input, BitOrder::LeastFirst, low, unspent).map(|()| Some(None))
        },
        write: |bytes, _, unspent| bip456::write(bytes, BitOrder::LeastFirst, unspent),
        ..BIP456
    },
    Variant {
        format: HintFormat::Bitmap,
        has_table: true,
        has_outputs: true,
        genesis: Genesis::Never,
        read: |input, unspent, _| bitmap::read(input, unspent).map(|outputs| Some(Some(outputs))),
        write: bitmap::write,
        ..BIP456
    },
    Variant {
        format: HintFormat::Btcd,
        version: Some(btcd::VERSION),
        is_gzip: true,
        genesis: Genesis::Never,
        read: |input, unspent, _| btcd::read(input, unspent).map(|()| Some(None)),
        write: |bytes, _, unspent| btcd::write(bytes, unspent),
        ..BIP456
    },
    Variant {
        format: HintFormat::TheStack,
        version: None,
        has_outputs: true,
        genesis: Genesis::Always,
        read: |input, unspent, _| Ok(thestack::read(input, unspent)?.map(Some)),
        write: |bytes, outputs, unspent| thestack::write(bytes, outputs as u16, unspent),
        ..BIP456
    },
    SWIFTSYNC_2140,
    Variant { note: " without a block hash", has_hash: false, ..SWIFTSYNC_2140 },
];

const BIP456: Variant = Variant {
    format: HintFormat::Bip456,
    note: "",
    version: Some(bip456::VERSION),
    has_hash: false,
    has_table: false,
    has_outputs: false,
    is_gzip: false,
    genesis: Genesis::ByCount,
    read: |input, unspent, low| bip456::read(input, BitOrder::MostFirst, low, unspent).map(|()| Some(None)),
    write: |bytes, _, unspent| bip456::write(bytes, BitOrder::MostFirst, unspent),
};

const SWIFTSYNC_2140: Variant = Variant {
    format: HintFormat::SwiftSync2140,
    note: " with a block hash",
    version: None,
    has_hash: true,
    genesis: Genesis::Never,
    read: |input, unspent, _| swiftsync2140::read(input, unspent).map(|()| Some(None)),
    write: |bytes, _, unspent| swiftsync2140::write(bytes, unspent),
    ..BIP456
};

impl Variant {
    /// The name of the variant in messages.
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.format, self.note)
    }
}

/// A cursor over the records of a file.
pub(super) struct Records {
    variant: &'static Variant,
    input: Input,
    low: Vec<u8>,
    /// Height of the next record; `None` before the first one, and after an error.
    at: Option<u32>,
    /// Number of outputs of the block of the last record, if the format contains it.
    pub(super) outputs: Option<u32>,
}

impl Records {
    pub(super) fn new(file: &HintFile, variant: &'static Variant) -> Self {
        let input = match variant.is_gzip {
            true => Input::gzip(Arc::clone(&file.bytes), file.len),
            false => file.input(0),
        };
        Self { variant, input, low: Vec::new(), at: None, outputs: None }
    }

    /// Reads the header: the height and the block hash, if the format has them.
    fn header(&mut self) -> Result<(Option<u32>, Option<BlockHash>), InputError> {
        let Variant { version, has_hash, .. } = *self.variant;
        let height = version.map(|version| bip456::read_header(&mut self.input, version)).transpose()?;
        let hash = has_hash.then(|| self.input.array().map(BlockHash)).transpose()?;
        Ok((height, hash))
    }

    /// Replaces the content of `unspent` by the hints of the next record. Returns false at an end mark.
    fn read(&mut self, unspent: &mut Vec<u32>) -> Result<bool, InputError> {
        unspent.clear();
        let outputs = (self.variant.read)(&mut self.input, unspent, &mut self.low)?;
        self.outputs = outputs.unwrap_or(self.outputs);
        Ok(outputs.is_some())
    }
}

/// The result of a scan.
pub(super) struct Layout {
    pub(super) variant: &'static Variant,
    /// Height of the first record.
    pub(super) first: u32,
    /// Height of the last record.
    pub(super) height: u32,
    pub(super) block_hash: Option<BlockHash>,
    pub(super) hints: u64,
    pub(super) outputs: Option<u64>,
    /// Offset of every `stride`-th record.
    positions: Vec<u64>,
    stride: u32,
}

/// The error of a scan, and the record at which it occurred.
pub(super) struct ScanFailure {
    pub(super) variant: &'static Variant,
    pub(super) record: u32,
    pub(super) error: InputError,
}

impl Layout {
    /// Reads the whole file as `variant`.
    pub(super) fn scan(file: &HintFile, variant: &'static Variant) -> Result<Self, ScanFailure> {
        let mut layout = Self {
            variant,
            first: 1,
            height: 0,
            block_hash: None,
            hints: 0,
            outputs: None,
            positions: Vec::new(),
            stride: FIRST_STRIDE,
        };
        let mut record = 0;
        match layout.walk(file, &mut record) {
            Ok(()) => Ok(layout),
            Err(error) => Err(ScanFailure { variant, record, error }),
        }
    }

    fn walk(&mut self, file: &HintFile, record: &mut u32) -> Result<(), InputError> {
        let mut records = Records::new(file, self.variant);
        let (stated, block_hash) = records.header()?;
        self.block_hash = block_hash;
        let mut table = self.table(file, &mut records.input, stated)?;
        let (mut unspent, mut hints_in_first) = (Vec::new(), 0);
        while !self.at_end(&mut records.input, *record, stated)? {
            let position = records.input.position();
            if let Some(table) = &mut table {
                bitmap::check_row(table, *record + 1, position)?;
            }
            self.index_position(*record, position);
            if !records.read(&mut unspent)? {
                // The end mark of a format that has one.
                if !records.input.is_end()? {
                    return Err(records.input.malformed("bytes follow the end mark"));
                }
                break;
            }
            if *record == 0 {
                hints_in_first = unspent.len();
            }
            self.hints += unspent.len() as u64;
            // Counts begin with block 1, but theStack's first record is the genesis block's.
            let is_genesis = self.variant.genesis == Genesis::Always && *record == 0;
            let counted = records.outputs.map(|outputs| if is_genesis { 0 } else { u64::from(outputs) });
            self.outputs = counted.map(|outputs| self.outputs.unwrap_or(0) + outputs).or(self.outputs);
            if *record == MAX_RECORDS {
                return Err(records.input.malformed(format!("there are more than {MAX_RECORDS} records")));
            }
            *record += 1;
        }
        let (count, input) = (*record, &records.input);
        let has_one_more = stated.is_some_and(|height| u64::from(count) == u64::from(height) + 1);
        self.first = match self.variant.genesis {
            Genesis::Always if count == 0 => return Err(input.malformed("the file has no block")),
            Genesis::Always => 0,
            Genesis::ByCount if has_one_more => 0,
            Genesis::ByCount | Genesis::Never => 1,
        };
        self.height = stated.unwrap_or(count + self.first - 1);
        if u64::from(count) + u64::from(self.first) != u64::from(self.height) + 1 {
            let text =
                format!("the file ends after {count} records, but its header has height {}", self.height);
            return Err(input.malformed(text));
        }
        if self.first == 0 && hints_in_first != 0 {
            return Err(input.malformed("the genesis block has a hint, but its coinbase is never a coin"));
        }
        Ok(())
    }

    /// Skips the table of a format that has one, and returns a cursor over it.
    fn table(
        &self,
        file: &HintFile,
        input: &mut Input,
        stated: Option<u32>,
    ) -> Result<Option<Input>, InputError> {
        let Some(height) = stated.filter(|_| self.variant.has_table) else { return Ok(None) };
        let start = bip456::HEADER_LEN + u64::from(height) * bitmap::ROW_LEN;
        if start > file.len {
            return Err(input.malformed(format!("the file is too short for a table of {height} blocks")));
        }
        input.seek(start);
        Ok(Some(file.input(bip456::HEADER_LEN)))
    }

    /// Whether all records were read. Bytes after them are an error.
    fn at_end(&self, input: &mut Input, record: u32, stated: Option<u32>) -> Result<bool, InputError> {
        let records_max = match (self.variant.genesis, stated) {
            (Genesis::Always, _) => return Ok(false),
            (Genesis::ByCount, Some(height)) => height.saturating_add(1),
            (_, Some(height)) if record < height => return Ok(false),
            (_, stated) => stated.unwrap_or(u32::MAX),
        };
        let is_end = input.is_end()?;
        if !is_end && record >= records_max {
            return Err(input.malformed(format!("bytes follow the {record} expected records")));
        }
        Ok(is_end)
    }

    /// Adds the position of every `stride`-th record to the index.
    fn index_position(&mut self, record: u32, position: u64) {
        if !record.is_multiple_of(self.stride) {
            return;
        }
        self.positions.push(position);
        if self.positions.len() == MAX_POSITIONS {
            let mut index = 0;
            self.positions.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Replaces the content of `unspent` by the hints of the block at `height`. Returns false at an end mark.
    pub(super) fn read(
        &self,
        file: &HintFile,
        records: &mut Records,
        height: u32,
        unspent: &mut Vec<u32>,
    ) -> Result<bool, InputError> {
        let (mut at, target) = (records.at.take().map(|at| at - self.first), height - self.first);
        if self.variant.is_gzip {
            if at.is_none_or(|at| at > target) {
                *records = Records::new(file, self.variant);
                records.header()?;
                at = Some(0);
            }
        } else if at.is_none_or(|at| at > target || target - at >= self.stride) {
            let kept = target / self.stride;
            let position = self.positions.get(kept as usize).copied();
            records.input.seek(position.unwrap_or(file.len));
            at = Some(kept * self.stride);
        }
        for _ in at.unwrap_or(target)..target {
            records.read(unspent)?;
        }
        let read = records.read(unspent)?;
        records.at = read.then_some(height + 1);
        Ok(read)
    }
}

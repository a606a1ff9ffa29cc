//! The formats that are one record after another: what a scan of the whole file tells of them, and reading
//! from any height.
//!
//! None of these formats has an index or tells its length, and some are told apart only by what would be
//! impossible. So a file is scanned once, when it is opened; on the way an index is made, of bounded size.

use super::bip456::{self, BitOrder};
use super::input::{Flaw, Input};
use super::{HintFormat, bitmap, btcd, swiftsync2140, thestack};
use crate::DiskError;
use crate::fs::{Disk, During as _, ReadAt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::BlockHash;

/// Positions kept of a file, 8 bytes each; when there are more, every second one goes.
const MAX_POSITIONS: usize = 1 << 16;
/// Records from one kept position to the next, at first.
const FIRST_STRIDE: u32 = 16;
/// The most records a file can have; at ten minutes each they are the blocks of 300 years. In some formats a
/// zero byte is a record, and zeros are cheap: a file with holes or gzip can have any number of them.
const MAX_RECORDS: u32 = 1 << 24;

/// An open file.
#[derive(Clone)]
pub(super) struct HintFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Arc<dyn ReadAt>,
    pub(super) len: u64,
}

impl HintFile {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, DiskError> {
        let bytes: Arc<dyn ReadAt> = disk.open(path).during("open for reading", path)?.into();
        let len = bytes.len().during("find the length", path)?;
        Ok(Self { path: path.to_owned(), bytes, len })
    }

    pub(super) fn input(&self, offset: u64) -> Input {
        Input::plain(Arc::clone(&self.bytes), offset, self.len)
    }

    pub(super) fn wrong(&self, offset: u64, text: &str) -> DiskError {
        Flaw::Wrong(offset, text.to_owned()).at(&self.path, "hints")
    }
}

/// A format with what its files do not say and must be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    TheStack,
    SwiftSync2140 { has_hash: bool },
    Bip456(BitOrder),
    Btcd,
    Bitmap,
}

impl Form {
    pub(super) fn format(self) -> HintFormat {
        match self {
            Self::TheStack => HintFormat::TheStack,
            Self::SwiftSync2140 { .. } => HintFormat::SwiftSync2140,
            Self::Bip456(BitOrder::MostFirst) => HintFormat::Bip456,
            Self::Bip456(BitOrder::LeastFirst) => HintFormat::Bip456Lsb,
            Self::Btcd => HintFormat::Btcd,
            Self::Bitmap => HintFormat::Bitmap,
        }
    }

    /// How users are told of the form.
    pub(super) fn name(self) -> String {
        let hash = match self {
            Self::SwiftSync2140 { has_hash: true } => " with a block hash",
            Self::SwiftSync2140 { has_hash: false } => " without a block hash",
            _ => "",
        };
        format!("{}{hash}", self.format())
    }
}

/// A cursor over records.
pub(super) struct Records {
    form: Form,
    input: Input,
    low: Vec<u8>,
    /// How many outputs the block of the last record has, if the format tells.
    pub(super) outputs: Option<u32>,
}

impl Records {
    pub(super) fn new(file: &HintFile, form: Form) -> Self {
        let input = match form {
            Form::Btcd => Input::gzip(Arc::clone(&file.bytes), file.len),
            _ => file.input(0),
        };
        Self { form, input, low: Vec::new(), outputs: None }
    }

    /// Reads what comes before the records: the height and the block hash, if they are told.
    fn header(&mut self) -> Result<(Option<u32>, Option<BlockHash>), Flaw> {
        match self.form {
            Form::TheStack | Form::SwiftSync2140 { has_hash: false } => Ok((None, None)),
            Form::SwiftSync2140 { has_hash: true } => Ok((None, Some(BlockHash(self.input.array()?)))),
            Form::Bip456(_) | Form::Bitmap => {
                bip456::read_header(&mut self.input, bip456::VERSION).map(|height| (Some(height), None))
            }
            Form::Btcd => {
                bip456::read_header(&mut self.input, btcd::VERSION).map(|height| (Some(height), None))
            }
        }
    }

    /// Puts the hints of the next record in place of those in `unspent`. False at an end mark.
    pub(super) fn read(&mut self, unspent: &mut Vec<u32>) -> Result<bool, Flaw> {
        unspent.clear();
        self.outputs = match self.form {
            Form::TheStack => match thestack::read(&mut self.input, unspent)? {
                Some(outputs) => Some(outputs),
                None => return Ok(false),
            },
            Form::Bitmap => Some(bitmap::read(&mut self.input, unspent)?),
            Form::SwiftSync2140 { .. } => swiftsync2140::read(&mut self.input, unspent).map(|()| None)?,
            Form::Btcd => btcd::read(&mut self.input, unspent).map(|()| None)?,
            Form::Bip456(order) => {
                bip456::read(&mut self.input, order, &mut self.low, unspent).map(|()| None)?
            }
        };
        Ok(true)
    }
}

/// What a scan found.
pub(super) struct Layout {
    pub(super) form: Form,
    /// Height of the first record.
    pub(super) first: u32,
    /// Height of the last one.
    pub(super) height: u32,
    pub(super) block_hash: Option<BlockHash>,
    pub(super) hints: u64,
    pub(super) outputs: Option<u64>,
    /// Where each `stride`-th record starts.
    positions: Vec<u64>,
    stride: u32,
}

/// How far a scan came before something was wrong.
pub(super) struct Failure {
    pub(super) form: Form,
    pub(super) record: u32,
    pub(super) flaw: Flaw,
}

impl Layout {
    /// Reads the whole file as `form`.
    pub(super) fn scan(file: &HintFile, form: Form) -> Result<Self, Failure> {
        let (height, first) = (0, 1);
        let mut layout = Self {
            form,
            first,
            height,
            block_hash: None,
            hints: 0,
            outputs: None,
            positions: Vec::new(),
            stride: FIRST_STRIDE,
        };
        let mut record = 0;
        match layout.walk(file, &mut record) {
            Ok(()) => Ok(layout),
            Err(flaw) => Err(Failure { form, record, flaw }),
        }
    }

    fn walk(&mut self, file: &HintFile, record: &mut u32) -> Result<(), Flaw> {
        let mut records = Records::new(file, self.form);
        let (stated, block_hash) = records.header()?;
        self.block_hash = block_hash;
        let mut table = self.table(file, &mut records, stated)?;
        let (mut unspent, mut hints_in_first) = (Vec::new(), 0);
        while !self.at_end(&mut records, *record, stated)? {
            let position = records.input.position();
            if let Some(table) = &mut table {
                bitmap::check_row(table, *record + 1, position)?;
            }
            self.keep(*record, position);
            if !records.read(&mut unspent)? {
                // The end mark of a format that has one.
                if !records.input.is_end()? {
                    return Err(records.input.wrong("bytes follow the end mark"));
                }
                break;
            }
            if *record == 0 {
                hints_in_first = unspent.len();
            }
            self.hints += unspent.len() as u64;
            // Counts are of block 1 and those after it; theStack's first record is the genesis block's.
            let is_genesis = self.form == Form::TheStack && *record == 0;
            let counted = records.outputs.map(|outputs| if is_genesis { 0 } else { u64::from(outputs) });
            self.outputs = counted.map(|outputs| self.outputs.unwrap_or(0) + outputs).or(self.outputs);
            if *record == MAX_RECORDS {
                return Err(records.input.wrong(format!("there are more than {MAX_RECORDS} records")));
            }
            *record += 1;
        }
        let count = *record;
        self.first = match (self.form, stated) {
            (Form::TheStack, _) if count == 0 => return Err(records.input.wrong("there is no block")),
            (Form::TheStack, _) => 0,
            (Form::Bip456(_), Some(height)) if u64::from(count) == u64::from(height) + 1 => 0,
            _ => 1,
        };
        self.height = stated.unwrap_or(count + self.first - 1);
        if u64::from(count) + u64::from(self.first) != u64::from(self.height) + 1 {
            return Err(records.input.wrong(format!(
                "the file ends after {count} records, it says to go to height {}",
                self.height
            )));
        }
        if self.first == 0 && hints_in_first != 0 {
            return Err(records.input.wrong("the genesis block has a hint, its coinbase is never unspent"));
        }
        Ok(())
    }

    /// Passes over the table of a format that has one.
    fn table(
        &self,
        file: &HintFile,
        records: &mut Records,
        stated: Option<u32>,
    ) -> Result<Option<Input>, Flaw> {
        let (Form::Bitmap, Some(height)) = (self.form, stated) else { return Ok(None) };
        let start = bip456::HEADER_LEN + u64::from(height) * bitmap::ROW_LEN;
        if start > file.len {
            return Err(records.input.wrong(format!("there is no room for a table of {height} blocks")));
        }
        records.input.seek(start);
        Ok(Some(file.input(bip456::HEADER_LEN)))
    }

    /// Whether all records were read; there must be nothing behind them.
    fn at_end(&self, records: &mut Records, record: u32, stated: Option<u32>) -> Result<bool, Flaw> {
        let most = match (self.form, stated) {
            (Form::TheStack, _) => return Ok(false),
            (Form::Bip456(_), Some(height)) => height.saturating_add(1),
            (_, Some(height)) if record < height => return Ok(false),
            (_, stated) => stated.unwrap_or(u32::MAX),
        };
        let is_end = records.input.is_end()?;
        if !is_end && record >= most {
            return Err(records.input.wrong(format!("bytes follow the {record} records there should be")));
        }
        Ok(is_end)
    }

    fn keep(&mut self, record: u32, position: u64) {
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

    /// Brings a cursor from the record of height `from` to that of `to`; `None` for a new cursor.
    pub(super) fn move_to(
        &self,
        file: &HintFile,
        records: &mut Records,
        from: Option<u32>,
        to: u32,
        scratch: &mut Vec<u32>,
    ) -> Result<(), Flaw> {
        let (mut at, target) = (from.map(|height| height - self.first), to - self.first);
        if self.form == Form::Btcd {
            if at.is_none_or(|at| at > target) {
                *records = Records::new(file, self.form);
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
            records.read(scratch)?;
        }
        Ok(())
    }
}

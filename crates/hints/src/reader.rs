//! Opens a hint file of any format and reads its blocks.
//!
//! The format is determined by the content of the file, not by its name, and never guessed: if a file can be
//! read in two ways that differ, it is refused until the user names the format.

use super::bip456;
use super::packed::GZIP_MAGIC;
use super::peregrine::{self, DecodedGroup, GroupIndex};
use super::stream::{Genesis, HintFile, Layout, Records, ScanFailure, VARIANTS, Variant};
use super::{HintFormat, HintInfo};
use crate::HintsError;
use std::path::Path;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _};
use wire::Height;

/// Bytes of decoded groups that a reader keeps: blocks are read nearly in order, and a group is decoded as a
/// whole.
const MAX_DECODED_BYTES: usize = 4 << 20;

/// A cursor over the hints of a file, in height order from block 1; [`HintReader::block`] reads any block.
pub struct HintReader {
    file: HintFile,
    info: HintInfo,
    body: Body,
    next: u32,
    outputs: Option<u32>,
}

/// The index of the blocks in a file, which all its cursors share, and the state of one of them.
enum Body {
    /// Each block by itself.
    Records { layout: Arc<Layout>, records: Records },
    /// Groups of blocks. Of the decoded ones, the one used last is the first.
    Groups { index: Arc<GroupIndex>, decoded: Vec<DecodedGroup>, buffer: Vec<u8> },
}

impl Body {
    fn records(file: &HintFile, layout: Arc<Layout>) -> Self {
        Self::Records { records: Records::new(file, layout.variant), layout }
    }

    fn groups(index: Arc<GroupIndex>) -> Self {
        Self::Groups { index, decoded: Vec::new(), buffer: Vec::new() }
    }
}

impl HintReader {
    /// Opens a hint file. `as_format` names its format, in case the file could be read as another one. Files
    /// of all formats but Peregrine's own are read completely here.
    ///
    /// # Errors
    /// [`HintsError::File`]; [`HintsError::Damaged`] if the file matches no format, or is truncated;
    /// [`HintsError::Ambiguous`] if it matches several.
    pub fn open(disk: &dyn Disk, path: &Path, as_format: Option<HintFormat>) -> Result<Self, HintsError> {
        let file = HintFile::open(disk, path)?;
        let mut start = [0; 8];
        let len = file.len.min(start.len() as u64) as usize;
        let start = start.get_mut(..len).unwrap_or_default();
        file.bytes.read_exact_at(start, 0).during("read the hints", path)?;
        if file.len == 0 {
            return Err(file.damaged(0, "the file is empty"));
        }
        let is_peregrine = start == peregrine::MAGIC && as_format.is_none();
        let (info, body) = if is_peregrine || as_format == Some(HintFormat::Peregrine) {
            let (index, info) = peregrine::open(&file)?;
            (info, Body::groups(Arc::new(index)))
        } else {
            let layout = detect(&file, start, as_format)?;
            (info(&file, &layout), Body::records(&file, Arc::new(layout)))
        };
        Ok(Self { file, info, body, next: 1, outputs: None })
    }

    /// Returns another cursor over the same open file, at block 1.
    pub fn fork(&self) -> Self {
        let Self { file, info, body, .. } = self;
        let body = match body {
            Body::Records { layout, .. } => Body::records(file, Arc::clone(layout)),
            Body::Groups { index, .. } => Body::groups(Arc::clone(index)),
        };
        Self { file: file.clone(), info: info.clone(), body, next: 1, outputs: None }
    }

    /// The facts about the file.
    pub fn info(&self) -> &HintInfo {
        &self.info
    }

    /// Returns the SHA-256 of the whole file.
    ///
    /// # Errors
    /// [`HintsError::File`].
    pub fn sha256(&self) -> Result<[u8; 32], HintsError> {
        self.file.sha256(self.file.len)
    }

    /// Number of outputs of the block read last, in the file's numbering; `None` if the file does not contain
    /// it.
    pub fn outputs(&self) -> Option<u32> {
        self.outputs
    }

    /// Replaces the content of `unspent` by the ascending indices of the next block's unspent outputs, and
    /// returns the block's height; `None` after the last block.
    ///
    /// # Errors
    /// [`HintsError::File`]; [`HintsError::Damaged`] if the block's hints cannot be decoded.
    pub fn next_block(&mut self, unspent: &mut Vec<u32>) -> Result<Option<Height>, HintsError> {
        unspent.clear();
        let height = self.next;
        if height > self.info.height.0 {
            return Ok(None);
        }
        self.block(Height(height), unspent)?;
        self.next = height + 1;
        Ok(Some(Height(height)))
    }

    /// Replaces the content of `unspent` by the ascending indices of a block's unspent outputs; none for the
    /// genesis block and after the last block. [`HintReader::next_block`] is not affected.
    ///
    /// # Errors
    /// The same errors as [`HintReader::next_block`].
    pub fn block(&mut self, height: Height, unspent: &mut Vec<u32>) -> Result<(), HintsError> {
        unspent.clear();
        self.outputs = None;
        let (file, info, height) = (&self.file, &self.info, height.0);
        if height == 0 || height > info.height.0 {
            return Ok(());
        }
        match &mut self.body {
            Body::Records { layout, records } => {
                let read = layout.read(file, records, height, unspent);
                if !read.map_err(|error| error.at(&file.path, format_args!("block {height}")))? {
                    return Err(file.damaged(file.len, "the file is shorter than when it was opened"));
                }
                self.outputs = records.outputs;
            }
            Body::Groups { index, decoded, buffer } => {
                let group = find_group(index, file, height, decoded, buffer)?;
                let (hints, outputs) = group.block(height).unwrap_or_default();
                unspent.extend_from_slice(hints);
                self.outputs = info.outputs.map(|_| outputs);
            }
        }
        Ok(())
    }

    /// Checks everything that can be checked without the chain. For Peregrine's own format, it reads the
    /// whole file and checks all checksums and totals; files of other formats were checked when they were
    /// opened. Ends early, with nothing proven, once `interrupt` is set: look at that afterwards.
    ///
    /// # Errors
    /// The same errors as [`HintReader::next_block`].
    pub fn verify(&self, interrupt: &AtomicBool) -> Result<(), HintsError> {
        let Self { file, info, body, .. } = self;
        let (Body::Groups { index, .. }, Some(sha256)) = (body, info.checksum) else { return Ok(()) };
        let content_len = file.len.saturating_sub(peregrine::SHA256_LEN as u64);
        if file.sha256(content_len)? != sha256 {
            return Err(file.damaged(content_len, "the SHA-256 of the file differs"));
        }
        let (mut decoded, mut buffer, mut height) = (DecodedGroup::default(), Vec::new(), 1);
        let (mut hints, mut outputs) = (0, 0);
        while height <= info.height.0 {
            if interrupt.load(Ordering::Relaxed) {
                return Ok(());
            }
            index.read(file, height, &mut buffer, &mut decoded)?;
            let (more_hints, more_outputs) = decoded.counts();
            (hints, outputs) = (hints + more_hints, outputs + more_outputs);
            while decoded.block(height).is_some() {
                height += 1;
            }
        }
        if hints != info.hints || info.outputs.is_some_and(|stated| stated != outputs) {
            let text = format!("{hints} hints of {outputs} outputs do not match the footer");
            return Err(file.damaged(file.len, &text));
        }
        Ok(())
    }
}

/// Returns the group of a block, from `kept` or from the file, and moves it to the front of `kept`.
fn find_group<'a>(
    groups: &GroupIndex,
    file: &HintFile,
    height: u32,
    kept: &'a mut Vec<DecodedGroup>,
    buffer: &mut Vec<u8>,
) -> Result<&'a DecodedGroup, HintsError> {
    match kept.iter().position(|group| group.block(height).is_some()) {
        Some(at) => kept.get_mut(..=at).unwrap_or_default().rotate_right(1),
        None => {
            let mut group = DecodedGroup::default();
            groups.read(file, height, buffer, &mut group)?;
            kept.insert(0, group);
            let mut bytes = 0;
            kept.retain(|group| {
                let is_first = bytes == 0;
                bytes += group.memory_bytes();
                is_first || bytes <= MAX_DECODED_BYTES
            });
        }
    }
    kept.first().ok_or_else(|| file.damaged(0, &format!("block {height} is not in the file")))
}

/// Scans the file as each of the variants that one with these first bytes may have, and returns the only one
/// that matches.
fn detect(file: &HintFile, start: &[u8], as_format: Option<HintFormat>) -> Result<Layout, HintsError> {
    let has_magic = start.starts_with(&bip456::MAGIC);
    let is_gzip = start.starts_with(&GZIP_MAGIC);
    let is_candidate = |variant: &&Variant| match as_format {
        Some(format) => variant.format == format,
        None => variant.is_gzip == is_gzip && (is_gzip || variant.version.is_some() == has_magic),
    };
    let (mut layouts, mut failures) = (Vec::new(), Vec::new());
    for variant in VARIANTS.iter().filter(is_candidate) {
        match Layout::scan(file, variant) {
            Ok(layout) => layouts.push(layout),
            Err(failure) => failures.push(failure),
        }
    }
    remove_equivalent(file, &mut layouts)?;
    match <[Layout; 1]>::try_from(layouts) {
        Ok([layout]) => Ok(layout),
        Err(none) if none.is_empty() => Err(no_variant_error(file, failures)),
        Err(several) => {
            let names: Vec<_> = several.iter().map(|layout| layout.variant.name()).collect();
            let flaw =
                format!("the hints can be read as {}, with different meanings", names.join(" and as "));
            Err(HintsError::Ambiguous { path: file.path.clone(), flaw })
        }
    }
}

/// Removes variants with the same hints as another, and those that match by chance.
fn remove_equivalent(file: &HintFile, layouts: &mut Vec<Layout>) -> Result<(), HintsError> {
    if let [first, second, ..] = layouts.as_slice()
        && [first, second].iter().all(|layout| layout.variant.genesis == Genesis::ByCount)
        && have_equal_hints(file, first, second)?
    {
        layouts.remove(1);
    }
    // The first 32 bytes are random if they are a hash: if they parse as records, there is no hash.
    let is_without_hash =
        |layout: &Layout| layout.variant.format == HintFormat::SwiftSync2140 && !layout.variant.has_hash;
    if layouts.iter().any(is_without_hash) {
        layouts.retain(|layout| !layout.variant.has_hash);
    }
    Ok(())
}

fn have_equal_hints(file: &HintFile, a: &Layout, b: &Layout) -> Result<bool, HintsError> {
    if (a.first, a.height, a.hints) != (b.first, b.height, b.hints) {
        return Ok(false);
    }
    let mut cursors = [a, b].map(|layout| (Records::new(file, layout.variant), layout));
    let mut hints = [Vec::new(), Vec::new()];
    for height in a.first..=a.height {
        for ((records, layout), unspent) in cursors.iter_mut().zip(&mut hints) {
            let read = layout.read(file, records, height, unspent);
            read.map_err(|error| error.at(&file.path, format_args!("block {height}")))?;
        }
        let [of_a, of_b] = &hints;
        if of_a != of_b {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the error for a file that matches no variant: the error of the scan that got furthest.
fn no_variant_error(file: &HintFile, mut failures: Vec<ScanFailure>) -> HintsError {
    failures.sort_by_key(|failure| failure.record);
    let unknown = || {
        let flaw = "not a hint file in any known format".to_owned();
        HintsError::Damaged { path: file.path.clone(), offset: 0, flaw }
    };
    let Some(furthest) = failures.pop() else { return unknown() };
    let record = u64::from(furthest.record);
    let mut part = match furthest.variant.genesis {
        Genesis::Always => format!("block {record}"),
        Genesis::ByCount => format!("record {record}"),
        Genesis::Never => format!("block {}", record + 1),
    };
    part += &format!(", read as {}", furthest.variant.name());
    if furthest.variant.is_gzip {
        part += ", offset after decompression";
    }
    let others: Vec<_> = failures.iter().map(|other| other.variant.name()).collect();
    if !others.is_empty() {
        part += &format!(" (the file is not {} either)", others.join(" or "));
    }
    if record == 0 {
        let format = furthest.variant.format;
        if failures.iter().any(|other| other.variant.format != format) {
            return unknown();
        }
        part = format!("not a hint file of this format; {part}");
    }
    furthest.error.at(&file.path, part)
}

fn info(file: &HintFile, layout: &Layout) -> HintInfo {
    let Variant { format, genesis, .. } = *layout.variant;
    HintInfo {
        format,
        network: None,
        height: Height(layout.height),
        block_hash: layout.block_hash,
        hints: layout.hints,
        outputs: layout.outputs,
        bytes: file.len,
        checksum: None,
        first_record_is_genesis: (genesis == Genesis::ByCount).then_some(layout.first == 0),
    }
}

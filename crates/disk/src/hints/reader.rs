//! Opening a hint file of any format and reading its blocks.
//!
//! The format is found by what the file holds, never by its name, and never guessed: a file that can be read
//! in two ways that differ is refused until the user says which it is.

use super::bip456::{self, BitOrder};
use super::peregrine::{self, Container, Decoded};
use super::stream::{Failure, Form, HintFile, Layout, Records};
use super::{HintFormat, HintInfo};
use crate::DiskError;
use crate::fs::{Disk, During as _};
use std::path::Path;
use std::sync::Arc;
use wire::Height;

/// Decoded groups a reader keeps, in bytes: blocks come nearly in order, and a group is decoded as a whole.
const MAX_DECODED: usize = 4 << 20;

/// A cursor over the hints of a file, in height order from block 1 on; [`HintReader::seek`] moves it.
pub struct HintReader {
    shared: Arc<Shared>,
    cursor: Cursor,
    next: u32,
    outputs: Option<u32>,
}

struct Shared {
    file: HintFile,
    info: HintInfo,
    body: Body,
}

/// How the blocks of a file are found.
enum Body {
    Records(Layout),
    Groups(Container),
}

enum Cursor {
    Records {
        records: Records,
        /// Height of the record it is at.
        at: Option<u32>,
        scratch: Vec<u32>,
    },
    Groups {
        /// The one used last comes first.
        decoded: Vec<Decoded>,
        room: Vec<u8>,
    },
}

impl HintReader {
    /// Opens a hint file; `as_format` says which format it is, if the file itself could be read as another.
    /// All formats but our own are read once from end to end here.
    ///
    /// # Errors
    /// [`DiskError::File`]; [`DiskError::Damaged`] if the file is of no format, of several, or not whole.
    pub fn open(disk: &dyn Disk, path: &Path, as_format: Option<HintFormat>) -> Result<Self, DiskError> {
        let file = HintFile::open(disk, path)?;
        let mut start = [0; 8];
        let len = file.len.min(start.len() as u64) as usize;
        let start = start.get_mut(..len).unwrap_or_default();
        file.bytes.read_exact_at(start, 0).during("read the hints", path)?;
        if file.len == 0 {
            return Err(file.wrong(0, "the file is empty"));
        }
        let is_work_file = start == peregrine::MAGIC && as_format.is_none();
        let (info, body) = if is_work_file || as_format == Some(HintFormat::Peregrine) {
            let (container, info) = peregrine::open(&file)?;
            (info, Body::Groups(container))
        } else {
            let layout = detect(&file, &forms(start, as_format))?;
            (info(&file, &layout), Body::Records(layout))
        };
        Ok(Self::over(Arc::new(Shared { file, info, body })))
    }

    fn over(shared: Arc<Shared>) -> Self {
        let cursor = match &shared.body {
            Body::Records(layout) => Cursor::Records {
                records: Records::new(&shared.file, layout.form),
                at: None,
                scratch: Vec::new(),
            },
            Body::Groups(_) => Cursor::Groups { decoded: Vec::new(), room: Vec::new() },
        };
        Self { shared, cursor, next: 1, outputs: None }
    }

    /// Another cursor over the same open file, at block 1.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::over(Arc::clone(&self.shared))
    }

    /// What is known of the file.
    #[must_use]
    pub fn info(&self) -> &HintInfo {
        &self.shared.info
    }

    /// Makes the block of `height` the next one.
    pub fn seek(&mut self, height: Height) {
        self.next = height.0;
    }

    /// How many outputs the block read last has, in the file's numbering; `None` if the file does not tell.
    #[must_use]
    pub fn outputs(&self) -> Option<u32> {
        self.outputs
    }

    /// Puts the ascending indices of the next block's unspent outputs in place of those in `unspent`. `None`
    /// behind the last block.
    ///
    /// # Errors
    /// [`DiskError::File`]; [`DiskError::Damaged`] if what is there cannot be hints.
    pub fn next_block(&mut self, unspent: &mut Vec<u32>) -> Result<Option<Height>, DiskError> {
        unspent.clear();
        let height = self.next;
        if height > self.shared.info.height.0 {
            return Ok(None);
        }
        self.block(Height(height), unspent)?;
        self.next = height + 1;
        Ok(Some(Height(height)))
    }

    /// Puts the ascending indices of a block's unspent outputs in place of those in `unspent`; there are none
    /// for the genesis block and beyond the end. The next block stays the same.
    ///
    /// # Errors
    /// As [`HintReader::next_block`].
    pub fn block(&mut self, height: Height, unspent: &mut Vec<u32>) -> Result<(), DiskError> {
        unspent.clear();
        self.outputs = None;
        let Shared { file, info, body } = &*self.shared;
        let height = height.0;
        if height == 0 || height > info.height.0 {
            return Ok(());
        }
        match (&mut self.cursor, body) {
            (Cursor::Records { records, at, scratch }, Body::Records(layout)) => {
                let from = at.take();
                let read = layout
                    .move_to(file, records, from, height, scratch)
                    .and_then(|()| records.read(unspent))
                    .map_err(|flaw| flaw.at(&file.path, format_args!("block {height}")))?;
                if !read {
                    return Err(file.wrong(file.len, "the file has become shorter"));
                }
                *at = Some(height + 1);
                self.outputs = records.outputs;
            }
            (Cursor::Groups { decoded, room }, Body::Groups(container)) => {
                let group = find_group(container, file, height, decoded, room)?;
                let (hints, outputs) = group.block(height).unwrap_or_default();
                unspent.extend_from_slice(hints);
                self.outputs = container.knows_outputs().then_some(outputs);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the whole file and checks what can be checked without the chain: of our own format all checksums
    /// and totals; the other formats have been read when they were opened.
    ///
    /// # Errors
    /// As [`HintReader::next_block`].
    pub fn verify(&self) -> Result<(), DiskError> {
        let Shared { file, info, body } = &*self.shared;
        let (Body::Groups(container), Some(sha256)) = (body, info.checksum) else { return Ok(()) };
        if !peregrine::has_true_sha256(file, sha256)? {
            return Err(file.wrong(file.len.saturating_sub(32), "the SHA-256 of the file differs"));
        }
        let (mut decoded, mut room, mut height) = (Decoded::default(), Vec::new(), 1);
        let (mut hints, mut outputs) = (0, 0);
        while height <= info.height.0 {
            container.read(file, height, &mut room, &mut decoded)?;
            let (more_hints, more_outputs) = decoded.counts();
            (hints, outputs) = (hints + more_hints, outputs + more_outputs);
            while decoded.block(height).is_some() {
                height += 1;
            }
        }
        if hints != info.hints || info.outputs.is_some_and(|stated| stated != outputs) {
            let text = format!("{hints} hints of {outputs} outputs are not as many as the footer says");
            return Err(file.wrong(file.len, &text));
        }
        Ok(())
    }
}

/// The group of a block, from those kept or from the file; the first of `kept` afterwards.
fn find_group<'a>(
    container: &Container,
    file: &HintFile,
    height: u32,
    kept: &'a mut Vec<Decoded>,
    room: &mut Vec<u8>,
) -> Result<&'a Decoded, DiskError> {
    match kept.iter().position(|group| group.block(height).is_some()) {
        Some(at) => kept.get_mut(..=at).unwrap_or_default().rotate_right(1),
        None => {
            let mut group = Decoded::default();
            container.read(file, height, room, &mut group)?;
            kept.insert(0, group);
            let mut size = 0;
            kept.retain(|group| {
                let is_first = size == 0;
                size += group.size();
                is_first || size <= MAX_DECODED
            });
        }
    }
    kept.first().ok_or_else(|| file.wrong(0, &format!("block {height} is not in the file")))
}

/// The forms that a file with these first bytes may have.
fn forms(start: &[u8], as_format: Option<HintFormat>) -> Vec<Form> {
    const ALL: [Form; 7] = [
        Form::Bip456(BitOrder::MostFirst),
        Form::Bip456(BitOrder::LeastFirst),
        Form::Bitmap,
        Form::Btcd,
        Form::TheStack,
        Form::SwiftSync2140 { has_hash: true },
        Form::SwiftSync2140 { has_hash: false },
    ];
    const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
    let has_magic = start.starts_with(&bip456::MAGIC);
    let is_gzip = start.starts_with(&GZIP);
    let fits = |form: &Form| match (as_format, form) {
        (Some(format), _) => form.format() == format,
        (None, Form::Bip456(_) | Form::Bitmap) => has_magic,
        (None, Form::Btcd) => is_gzip,
        (None, Form::TheStack | Form::SwiftSync2140 { .. }) => !has_magic && !is_gzip,
    };
    ALL.into_iter().filter(fits).collect()
}

/// Reads the file in each of the forms and returns the one that it has.
fn detect(file: &HintFile, forms: &[Form]) -> Result<Layout, DiskError> {
    let (mut layouts, mut failures) = (Vec::new(), Vec::new());
    for &form in forms {
        match Layout::scan(file, form) {
            Ok(layout) => layouts.push(layout),
            Err(failure) => failures.push(failure),
        }
    }
    settle(file, &mut layouts)?;
    match layouts.pop() {
        Some(layout) if layouts.is_empty() => Ok(layout),
        Some(last) => {
            layouts.push(last);
            let names: Vec<_> = layouts.iter().map(|layout| layout.form.name()).collect();
            Err(DiskError::Damaged {
                path: file.path.clone(),
                offset: 0,
                flaw: format!(
                    "the hints can be read as {}, and mean something else in each; name the format",
                    names.join(" and as ")
                ),
            })
        }
        None => Err(no_form(file, failures)),
    }
}

/// Takes away forms that mean the same, or that fit by chance.
fn settle(file: &HintFile, layouts: &mut Vec<Layout>) -> Result<(), DiskError> {
    if let [first, second, ..] = layouts.as_slice()
        && matches!((first.form, second.form), (Form::Bip456(_), Form::Bip456(_)))
        && say_the_same(file, first, second)?
    {
        layouts.remove(1);
    }
    // A hash is 32 bytes without order: if they are records all the way to the end, there is none.
    if layouts.iter().any(|layout| layout.form == Form::SwiftSync2140 { has_hash: false }) {
        layouts.retain(|layout| layout.form != Form::SwiftSync2140 { has_hash: true });
    }
    Ok(())
}

fn say_the_same(file: &HintFile, a: &Layout, b: &Layout) -> Result<bool, DiskError> {
    if (a.first, a.height, a.hints) != (b.first, b.height, b.hints) {
        return Ok(false);
    }
    let mut cursors = [a, b].map(|layout| (Records::new(file, layout.form), None, layout));
    let (mut scratch, mut hints) = (Vec::new(), [Vec::new(), Vec::new()]);
    for height in a.first..=a.height {
        for ((records, at, layout), unspent) in cursors.iter_mut().zip(&mut hints) {
            layout
                .move_to(file, records, *at, height, &mut scratch)
                .and_then(|()| records.read(unspent))
                .map_err(|flaw| flaw.at(&file.path, format_args!("block {height}")))?;
            *at = Some(height + 1);
        }
        let [of_a, of_b] = &hints;
        if of_a != of_b {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The error of a file that has none of the forms: of the one in which it could be read furthest.
fn no_form(file: &HintFile, mut failures: Vec<Failure>) -> DiskError {
    failures.sort_by_key(|failure| failure.record);
    let Some(furthest) = failures.pop() else { return file.wrong(0, "no format begins like that") };
    let record = u64::from(furthest.record);
    let name = furthest.form.name();
    let mut whose = match furthest.form {
        Form::TheStack => format!("block {record} as {name}"),
        Form::Bip456(_) => format!("record {record} as {name}"),
        Form::Btcd => format!("block {} as {name}, bytes counted without gzip", record + 1),
        Form::SwiftSync2140 { .. } | Form::Bitmap => format!("block {} as {name}", record + 1),
    };
    let others: Vec<_> = failures.iter().map(|other| other.form.name()).collect();
    if !others.is_empty() {
        whose += &format!(" (it is not {} either)", others.join(" or "));
    }
    furthest.flaw.at(&file.path, whose)
}

fn info(file: &HintFile, layout: &Layout) -> HintInfo {
    let format = layout.form.format();
    HintInfo {
        format,
        numbering: format.numbering(),
        network: None,
        height: Height(layout.height),
        block_hash: layout.block_hash,
        hints: layout.hints,
        outputs: layout.outputs,
        bytes: file.len,
        checksum: None,
        first_record_is_genesis: matches!(layout.form, Form::Bip456(_)).then_some(layout.first == 0),
        seekable: layout.form != Form::Btcd,
    }
}

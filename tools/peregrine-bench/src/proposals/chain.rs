//! The chain on which proposals are measured: two copies of its block files, one of them without
//! obfuscation, hints for it, and its blocks in memory.

use crate::{
    measure::{ProgramArgs, add_datadir},
    place::{copy_blocks, environment, files, warm},
};
use bench::StoredBlock;
use cli::output::print_message;
use digest::obfuscation::Obfuscation;
use disk::{
    block_files::{BlockFiles, RecordBuffer, RecordFile},
    datadir::{Datadir, FileKind},
    index::{IndexEntry, read_block_index},
    undo::{CHECKSUM_LEN, UndoArena, UndoView},
    xor::read_block_obfuscation,
};
use engine::{Error, ErrorKind, Network, RealDisk};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use testkit::{
    ChainSpec,
    datadir::{DatadirWriter, Layout},
    generate::generate,
};
use wire::{BlockArena, BlockHash, ByteOffset, FileNo};

/// Blocks without transactions at the end of a generated chain: Core assumes the blocks below them valid.
const EMPTY_TAIL: u32 = 2_100;
/// The key of the obfuscated copy, if the chain has none.
const KEY: [u8; 8] = [0x5c, 0x3a, 0x91, 0xe7, 0x0d, 0xb2, 0x46, 0x8f];

/// The chain on disk.
pub struct Chain {
    pub network: Network,
    /// The datadir whose block files are obfuscated.
    pub obfuscated: PathBuf,
    /// The datadir whose block files are not.
    pub plain: PathBuf,
    pub hints: PathBuf,
    /// The assumed-valid block of a generated chain.
    pub assumed_valid: Option<BlockHash>,
    pub stop_at_height: Option<u32>,
    hints_height: Option<u32>,
}

/// Where a block is stored.
#[derive(Clone, Copy)]
pub struct Place {
    pub file: FileNo,
    pub block: ByteOffset,
    pub prev: BlockHash,
}

impl Chain {
    /// Generates a chain of about `bytes` bytes in `dir`. Its blocks are assumed valid, except those at its
    /// end.
    pub fn generate(dir: &Path, bytes: u64, seed: u64) -> Result<Self, Error> {
        print_message("generating a chain");
        let datadir = dir.join("generated");
        let spec = ChainSpec { signed: false, empty_tail: EMPTY_TAIL, ..ChainSpec::new(seed, bytes) };
        let written = DatadirWriter::create(&datadir, Layout::new(seed)).and_then(|mut writer| {
            let totals = generate(&spec, |block| writer.push(block))?;
            writer.finish()?;
            Ok(totals)
        });
        let totals = written.map_err(|error| failed(format!("cannot generate a chain: {error}")))?;
        let chain = Self::copy(&datadir, Network::Regtest, dir)?;
        let hints_height = Some(totals.height - EMPTY_TAIL);
        Ok(Self { assumed_valid: Some(totals.before_tail), hints_height, ..chain })
    }

    /// Copies the blocks of a datadir twice into `dir`.
    pub fn copy(datadir: &Path, network: Network, dir: &Path) -> Result<Self, Error> {
        let folder = Path::new(network.subdirectory().unwrap_or("")).join("blocks");
        let (obfuscated, plain) = (dir.join("obfuscated"), dir.join("plain"));
        copy_blocks(datadir, &folder, &obfuscated)?;
        let old = read_block_obfuscation(&RealDisk, &obfuscated.join(&folder))?;
        convert(&obfuscated.join(&folder), &plain.join(&folder), old, Obfuscation::default())?;
        if old.is_zero() {
            let key = Obfuscation::from_key(KEY);
            convert(&plain.join(&folder), &obfuscated.join(&folder), Obfuscation::default(), key)?;
        }
        let (hints, assumed_valid, stop_at_height, hints_height) = (dir.join("hints"), None, None, None);
        Ok(Self { network, obfuscated, plain, hints, assumed_valid, stop_at_height, hints_height })
    }

    /// Uses the chain up to a height only, and hints up to another one.
    pub fn limited(self, stop_at_height: Option<u32>, hints_height: Option<u32>) -> Self {
        let hints_height = hints_height.or(self.hints_height).or(stop_at_height);
        Self { stop_at_height, hints_height, ..self }
    }

    /// Adds the arguments that select the chain and how much of it is checked.
    pub fn add_arguments(&self, command: &mut Command, datadir: &Path) {
        add_datadir(command, self.network, datadir);
        if let Some(hash) = self.assumed_valid {
            command.arg("--assumevalid").arg(hash.to_string());
        }
    }

    /// Makes hints for the chain.
    pub fn make_hints(&self, program: &Path, args: &ProgramArgs) -> Result<(), Error> {
        print_message("making hints");
        let mut command = Command::new(program);
        command.args(["hints", "make", "--progress", "none", "--output"]).arg(&self.hints);
        self.add_arguments(&mut command, &self.obfuscated);
        if let Some(height) = self.hints_height {
            command.args(["--height", &height.to_string()]);
        }
        let output = command.args(args.further()).output();
        let output = output.map_err(|error| failed(format!("cannot run {}: {error}", program.display())))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(failed(format!("no hints could be made; it said:\n{}", said.trim_end())));
        }
        Ok(())
    }

    /// Reads both copies once, so that their files are in the page cache.
    pub fn warm(&self) -> Result<(), Error> {
        for datadir in [&self.obfuscated, &self.plain] {
            let warmed = files(datadir).and_then(|files| warm(&files));
            warmed.map_err(|error| environment("read the files of", datadir, error))?;
        }
        Ok(())
    }

    /// The datadir with obfuscated block files.
    pub fn datadir(&self) -> Datadir {
        Datadir::at(&self.obfuscated, self.network)
    }

    /// Reads the blocks of the chain into memory, by height, and where each is stored.
    pub fn load(&self) -> Result<(Vec<StoredBlock>, Vec<Place>), Error> {
        print_message("reading the blocks into memory");
        let datadir = self.datadir();
        let entries = self.entries(&datadir)?;
        let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir())?;
        let mut records = Records::new(&datadir, obfuscation);
        let (mut blocks, mut places) = (Vec::new(), Vec::new());
        let (mut arena, mut undo_arena) = (BlockArena::default(), UndoArena::default());
        for entry in entries {
            let malformed = |kind, file, position: ByteOffset, flaw: String| {
                let detail = format!("{flaw}; peregrine doctor says how to repair the datadir");
                let error = Error::damaged(detail).at_block(entry.height, entry.hash);
                // Of the path, which is that of a copy, only the name says something.
                let path = datadir.block_file_path(kind, file);
                error.in_file(path.file_name().unwrap_or_default(), Some(position.0))
            };
            let (Some(file), Some(block)) = (entry.file, entry.data_pos) else {
                let detail = "this block is not stored; name a datadir that has it, or end below it";
                return Err(failed(detail).at_block(entry.height, entry.hash));
            };
            let undo = entry.undo_pos.filter(|_| entry.height.0 > 0);
            let bytes = records.read(FileKind::Blk, file, block)?.to_vec();
            let parsed = arena.parse(&bytes).map(drop);
            parsed.map_err(|flaw| malformed(FileKind::Blk, file, block, flaw.to_string()))?;
            let undo_data = match undo {
                Some(position) => records.read(FileKind::Rev, file, position)?,
                None => &[],
            };
            let undo_len = undo_data.len().saturating_sub(CHECKSUM_LEN);
            let undo_data = undo_data.get(..undo_len).unwrap_or_default().to_vec();
            if let Some(position) = undo {
                let parsed = UndoView::parse(&undo_data, &mut undo_arena).map(drop);
                parsed.map_err(|flaw| malformed(FileKind::Rev, file, position, flaw.to_string()))?;
            }
            let (hash, time, prev) = (entry.hash, entry.header.time, entry.header.prev);
            blocks.push(StoredBlock { hash, time, bytes, undo: undo_data });
            places.push(Place { file, block, prev });
        }
        Ok((blocks, places))
    }

    /// Returns the entries of the highest connected chain, from the genesis block to the wanted height.
    fn entries(&self, datadir: &Datadir) -> Result<Vec<IndexEntry>, Error> {
        let index = read_block_index(&RealDisk, &datadir.index_dir())?;
        let by_hash: HashMap<BlockHash, IndexEntry> =
            index.entries.into_iter().map(|entry| (entry.hash, entry)).collect();
        let connected = by_hash.values().filter(|entry| entry.status.has_undo() && entry.status.has_data());
        let mut next = connected.max_by_key(|entry| entry.height).map(|entry| entry.hash);
        let mut chain = Vec::new();
        while let Some(entry) = next.and_then(|hash| by_hash.get(&hash)) {
            chain.push(*entry);
            next = (entry.height.0 > 0).then_some(entry.header.prev);
        }
        chain.reverse();
        if chain.len() < 2 || chain.first().is_none_or(|entry| entry.height.0 > 0) {
            let detail = "has no chain of blocks with undo data; name a datadir that has one";
            return Err(failed(detail).in_file(datadir.net_dir(), None));
        }
        chain.truncate(self.stop_at_height.map_or(usize::MAX, |height| height as usize + 1));
        Ok(chain)
    }
}

/// Block and undo files, each opened once.
pub struct Records {
    files: BlockFiles<'static>,
    open: HashMap<(bool, FileNo), RecordFile>,
    buffer: RecordBuffer,
}

impl Records {
    pub fn new(datadir: &Datadir, obfuscation: Obfuscation) -> Self {
        let files = BlockFiles::new(&RealDisk, datadir, obfuscation);
        Self { files, open: HashMap::new(), buffer: RecordBuffer::default() }
    }

    /// Reads the record at a position: a block, or undo data and its checksum.
    pub fn read(&mut self, kind: FileKind, file: FileNo, position: ByteOffset) -> Result<&[u8], Error> {
        let key = (kind == FileKind::Rev, file);
        if !self.open.contains_key(&key) {
            self.open.insert(key, self.files.open(kind, file)?);
        }
        self.open[&key].read(position, &mut self.buffer)?;
        Ok(self.buffer.bytes())
    }
}

/// Copies block files to a folder, and replaces their obfuscation.
fn convert(from: &Path, to: &Path, old: Obfuscation, new: Obfuscation) -> Result<(), Error> {
    let copy = |path: &PathBuf| {
        let target = to.join(path.strip_prefix(from).map_err(std::io::Error::other)?);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        let mut bytes = fs::read(path)?;
        if path.parent() == Some(from) && path.extension() == Some(OsStr::new("dat")) {
            if path.ends_with("xor.dat") {
                bytes = new.key().to_vec();
            } else {
                old.apply(&mut bytes, 0);
                new.apply(&mut bytes, 0);
            }
        }
        fs::write(target, bytes)
    };
    let copied = files(from).and_then(|files| files.iter().try_for_each(copy));
    copied
        .and_then(|()| fs::write(to.join("xor.dat"), new.key()))
        .map_err(|error| environment("copy the block files to", to, error))
}

pub fn failed(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Environment, detail)
}

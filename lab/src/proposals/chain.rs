//! The chain on which proposals are measured: a copy of its block files, hints for it, and its
//! blocks in memory.

use super::ProposalsArgs;
use crate::{
    measure::{add_datadir, output},
    place::{copy_blocks, environment, failed, files},
    runs::BenchArgs,
};
use bench::{
    StoredBlock,
    steps::{Place, Records},
};
use clap::Args as ClapArgs;
use cli::{
    exit::Exit,
    output::{Done, print_message},
};
use digest::obfuscation::Obfuscation;
use disk::{
    datadir::{Datadir, FileKind},
    index::{IndexEntry, read_block_index},
    undo::{CHECKSUM_LEN, UndoArena, UndoView},
    xor::read_block_obfuscation,
};
use engine::{Error, Network, RealDisk};
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
/// The key of the copy, if the chain has none.
const KEY: [u8; 8] = [0x5c, 0x3a, 0x91, 0xe7, 0x0d, 0xb2, 0x46, 0x8f];

/// The chain on disk.
pub struct Chain {
    pub network: Network,
    /// The datadir with the copy. Its block files are obfuscated.
    pub folder: PathBuf,
    /// The assumed-valid block of a generated chain.
    assumed_valid: Option<BlockHash>,
    stop_at_height: Option<u32>,
    hints_height: Option<u32>,
}

/// How far the chain goes.
#[derive(Clone, Copy)]
pub struct Extent {
    pub height: u32,
    pub hash: BlockHash,
    /// Bytes of all blocks.
    pub bytes: usize,
}

impl Chain {
    /// Copies the blocks of the user's datadir into a folder, and obfuscates them if they are not. Without a
    /// datadir, generates a chain there, whose blocks are assumed valid, except those at its end.
    pub fn new(args: &ProposalsArgs, folder: PathBuf) -> Result<Self, Error> {
        let (stop_at_height, hints_height) = (args.stop_at_height, args.hints_height.or(args.stop_at_height));
        if let Some(datadir) = &args.datadir {
            let network = args.chain;
            copy_blocks(datadir, network, &folder)?;
            let blocks = Datadir::at(&folder, network).blocks_dir();
            if read_block_obfuscation(&RealDisk, &blocks)?.is_zero() {
                obfuscate(&blocks)
                    .map_err(|error| environment("obfuscate the block files in", &blocks, error))?;
            }
            return Ok(Self { network, folder, assumed_valid: None, stop_at_height, hints_height });
        }
        print_message("generating a chain");
        // Another process does it: memory that this one keeps counts towards the peaks of runs.
        let own = std::env::current_exe().map_err(|error| environment("find", &folder, error))?;
        let mut command = Command::new(own);
        command.arg("generate").arg(&folder).args([args.size, args.seed].map(|number| number.to_string()));
        let said = output(&mut command, "generate a chain")?;
        let (height, hash) = said.trim().split_once(' ').unwrap_or_default();
        let (hints_height, assumed_valid) = (height.parse().ok(), hash.parse().ok());
        Ok(Self { network: Network::Regtest, folder, assumed_valid, stop_at_height, hints_height })
    }

    /// Returns one of the files of commands: hints, the output.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.with_extension(name)
    }

    /// Returns a command of the program on this chain. Those that run scripts get the further arguments.
    pub fn command(&self, program: &Path, words: &[&str], args: &BenchArgs) -> Command {
        let mut command = Command::new(program);
        for word in words {
            let file = word.strip_prefix('{').and_then(|word| word.strip_suffix('}'));
            command.arg(file.map_or_else(|| PathBuf::from(word), |name| self.file(name)));
        }
        add_datadir(&mut command, self.network, &self.folder);
        if matches!(words, [_, "convert", ..]) {
            return command;
        }
        command.args(["--progress", "none"]).args(args.further());
        if let Some(hash) = self.assumed_valid {
            command.arg("--assumevalid").arg(hash.to_string());
        }
        if let (["reindex", ..], Some(height)) = (words, self.stop_at_height) {
            command.args(["--stop-at-height", &height.to_string()]);
        }
        command
    }

    /// Makes hints, which end at a height of their own.
    pub fn make_hints(&self, program: &Path, args: &BenchArgs) -> Result<(), Error> {
        print_message("making the hints");
        let height = self.hints_height.unwrap_or_default().to_string();
        let words = ["hints", "make", "--output", "{hints}", "--height", &height];
        output(&mut self.command(program, &words, args), "make the hints").map(drop)
    }

    /// The datadir with the block files.
    pub fn datadir(&self) -> Datadir {
        Datadir::at(&self.folder, self.network)
    }

    /// Reads all blocks once, so that they are in the page cache, and returns how far they go.
    pub fn extent(&self) -> Result<Extent, Error> {
        let datadir = self.datadir();
        let mut records = Records::new(&datadir, read_block_obfuscation(&RealDisk, &datadir.blocks_dir())?);
        let (mut bytes, mut last) = (0, None);
        for entry in self.entries(&datadir)?.into_iter().filter(|entry| entry.height.0 > 0) {
            let (file, position) = stored(&entry)?;
            bytes += records.read::<Error>(FileKind::Blk, file, position)?.len();
            last = Some(entry);
        }
        let last = last.ok_or_else(|| failed("there is no block above the genesis block"))?;
        Ok(Extent { height: last.height.0, hash: last.hash, bytes })
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
            let (file, block) = stored(&entry)?;
            let undo = entry.undo_pos.filter(|_| entry.height.0 > 0);
            let bytes = records.read::<Error>(FileKind::Blk, file, block)?.to_vec();
            let parsed = arena.parse(&bytes).map(drop);
            parsed.map_err(|flaw| malformed(FileKind::Blk, file, block, flaw.to_string()))?;
            let undo_data = match undo {
                Some(position) => records.read::<Error>(FileKind::Rev, file, position)?,
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

/// The chain that [`Chain::new`] asks for.
#[derive(ClapArgs, Debug)]
pub struct GenerateArgs {
    folder: PathBuf,
    bytes: u64,
    seed: u64,
}

/// Generates a chain, and returns height and hash of its last block with transactions.
pub fn generate_chain(args: &GenerateArgs) -> Done {
    let spec = ChainSpec { signed: false, empty_tail: EMPTY_TAIL, ..ChainSpec::new(args.seed, args.bytes) };
    let written = DatadirWriter::create(&args.folder, Layout::new(args.seed)).and_then(|mut writer| {
        let totals = generate(&spec, |block| writer.push(block))?;
        writer.finish()?;
        Ok(totals)
    });
    let totals = written.map_err(|error| failed(error.to_string()))?;
    Ok((format!("{} {}", totals.height - EMPTY_TAIL, totals.before_tail), Exit::Done))
}

/// Returns where a block is stored.
fn stored(entry: &IndexEntry) -> Result<(FileNo, ByteOffset), Error> {
    entry.file.zip(entry.data_pos).ok_or_else(|| {
        let detail = "this block is not stored; name a datadir that has it, or end below it";
        failed(detail).at_block(entry.height, entry.hash)
    })
}

/// Obfuscates block and undo files that are not.
fn obfuscate(blocks: &Path) -> std::io::Result<()> {
    let key = Obfuscation::from_key(KEY);
    for path in files(blocks)? {
        if path.parent() == Some(blocks) && path.extension() == Some(OsStr::new("dat")) {
            let mut bytes = fs::read(&path)?;
            key.apply(&mut bytes, 0);
            fs::write(path, bytes)?;
        }
    }
    fs::write(blocks.join("xor.dat"), KEY)
}

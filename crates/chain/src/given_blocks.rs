//! Stores blocks that the user passes in files, in the place of damaged or missing ones.
//!
//! Nothing vouches for such a file, and nothing needs to: the block index has the header, and the header
//! commits to the rest of the block. A block is appended to the last block file, as a download does it, and
//! then the block index is exchanged. After a crash in between, the appended bytes are beyond those in use.

use crate::{
    block_writer::{BlockOutcome, check_arrived},
    blocks::{block_hashes::BlockHashes, files::Files},
    header_chain::HeaderChain,
    plan::indexes,
    stored_blocks::{DatadirContents, PrunedBlocks, StoredBlocks, write_index},
};
use api::{error::Error, event::EventSink, options::ReindexOptions};
use digest::obfuscation::Obfuscation;
use disk::{
    blk::write_record,
    block_files::RecordBuffer,
    datadir::FileKind,
    keyed_search::{KeyedRecord, KeyedSearch},
};
use rules::ChainParams;
use std::path::Path;
use vfs::{AtomicFile, Disk, During as _};
use wire::{BlockArena, BlockHash, BlockTime, FileNo, Height};

/// Length in bytes that no file with a block exceeds: a block of 4 MB as hex digits, with some white space.
const MAX_FILE_LEN: u64 = 8_100_000;

/// Maximum number of wanted blocks that an error names.
const MAX_NAMED_BLOCKS: usize = 5;

/// A block that was passed, and that is wanted.
struct GivenBlock {
    height: Height,
    hash: BlockHash,
    bytes: Vec<u8>,
    time: BlockTime,
    tx_count: u32,
}

/// Stores the blocks in these files that are not stored and sound, and puts a block index in place that has
/// them. All files are checked before anything is written. Returns the number of blocks.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] for a file without a block of the chain;
/// [`api::error::ErrorKind::Consensus`] for a block that breaks a rule; a damaged index; any I/O error.
pub fn store(files: &Files<'_>, options: &ReindexOptions, sink: &dyn EventSink) -> Result<u32, Error> {
    let DatadirContents { chain, mut stored, infos, .. } =
        DatadirContents::read(files, PrunedBlocks::Refuse, None)?;
    let wanted = Wanted { files, chain: &chain, stored: &stored };
    let mut given: Vec<GivenBlock> = Vec::new();
    for path in &options.blocks {
        let found = wanted.read(path).map_err(|error| error.in_file(path, None))?;
        given.extend(found.filter(|found| given.iter().all(|other| other.hash != found.hash)));
    }
    if given.is_empty() {
        return Ok(0);
    }
    let mut moved: Vec<Height> = given.iter().map(|given| given.height).collect();
    moved.sort_unstable();
    indexes::before_moves(files, |height| chain.hash(height), &moved, &options.set_aside_indexes)?
        .apply(files, sink)?;
    let mut appender = files.appender(infos, options.chain.hooks.block_file_len);
    stored.forget_damaged(&chain, &[]);
    for GivenBlock { height, bytes, time, tx_count, .. } in &given {
        let (file, pos) = appender.append_block(*height, *time, bytes)?;
        stored.set(*height, file, pos, *tx_count);
    }
    appender.flush()?;
    write_index(files, &chain, &stored, appender.infos(), sink)?;
    Ok(given.len() as u32)
}

/// Writes the genesis block, which everybody knows, to a new block file if it was overwritten
/// ([`has_lost_genesis`]). Returns whether it was.
pub fn restore_genesis(files: &Files<'_>) -> Result<bool, Error> {
    let Files { disk, datadir, obfuscation, params, .. } = *files;
    let numbers = datadir.blk_files(disk)?;
    let Some(last) = numbers.last().filter(|_| has_lost_genesis(files, &numbers)) else { return Ok(false) };
    write_genesis(disk, params, obfuscation, &datadir.blk_path(FileNo(last.0 + 1)))?;
    Ok(true)
}

/// Writes a block file that has only the genesis block.
pub fn write_genesis(
    disk: &dyn Disk,
    params: &ChainParams,
    obfuscation: Obfuscation,
    path: &Path,
) -> Result<(), Error> {
    let mut record = Vec::new();
    write_record(&mut record, params.magic, &params.genesis_block());
    obfuscation.apply(&mut record, 0);
    Ok(AtomicFile::write(disk, path.with_extension("dat.peregrine"), path, &record)?)
}

/// Whether the genesis block was overwritten, as `bitcoind -reindex` does if `xor.dat` is lost: file 0 begins
/// with it under another key, then has the right key; no file begins with it under the right key.
pub fn has_lost_genesis(files: &Files<'_>, numbers: &[FileNo]) -> bool {
    let first_blocks = |file: FileNo| -> Result<Vec<KeyedRecord>, Error> {
        let (path, (open, _)) = (files.datadir.blk_path(file), files.open(FileKind::Blk, file)?);
        let mut search = KeyedSearch::new(&*open, &path, files.params.magic)?;
        Ok([search.next_record()?, search.next_record()?].into_iter().flatten().collect())
    };
    let has_key = |block: &KeyedRecord| block.obfuscation == files.obfuscation;
    let is_genesis = |block: &KeyedRecord| block.header.hash() == files.params.genesis_hash;
    // What cannot be read is reported later.
    let blocks = |file: FileNo| first_blocks(file).unwrap_or_default();
    let is_overwritten = numbers.first() == Some(&FileNo(0))
        && match &blocks(FileNo(0))[..] {
            [first, next] => is_genesis(first) && !has_key(first) && has_key(next),
            _ => false,
        };
    let begins =
        |file: &FileNo| blocks(*file).first().is_some_and(|block| is_genesis(block) && has_key(block));
    is_overwritten && !numbers.iter().any(begins)
}

/// What decides whether a block is wanted.
struct Wanted<'a> {
    files: &'a Files<'a>,
    chain: &'a HeaderChain,
    stored: &'a StoredBlocks,
}

impl Wanted<'_> {
    /// Returns the block in a file; `None` if it is stored and sound: an interrupted run has stored it.
    fn read(&self, path: &Path) -> Result<Option<GivenBlock>, Error> {
        let bytes = self.read_bytes(path)?;
        let mut arena = BlockArena::default();
        let block = arena.parse(&bytes).map_err(|error| {
            Error::usage(format!(
                "this is not a block as bytes or as hex digits, which bitcoin-cli getblock HASH 0 prints: \
                 {error}"
            ))
        })?;
        let hash = block.header().hash();
        let Some(height) = self.chain.height_of(&hash) else {
            let what = format!("this is block {hash}, which is not in the chain of the block index");
            return Err(self.unwanted(&what));
        };
        let mut hashes = BlockHashes::default();
        let (expected, verifier) = (self.chain.expected(height, hash), self.files.verifier);
        let checked = check_arrived(&expected, verifier, &bytes, &mut arena, &mut hashes);
        let (time, _) = checked.map_err(|outcome| match outcome {
            BlockOutcome::Invalid(violation) => Error::violation(&violation).at_block(height, hash),
            _ => {
                let detail = "the file has the header of this block, but not the transactions and witnesses \
                              to which the header commits; it is damaged, or lacks the witnesses";
                Error::usage(detail).at_block(height, hash)
            }
        })?;
        let tx_count = hashes.txids.len() as u32;
        let is_wanted = !self.is_sound(height, &bytes);
        Ok(is_wanted.then_some(GivenBlock { height, hash, bytes, time, tx_count }))
    }

    fn read_bytes(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let file = self.files.disk.open(path).during("open for reading", path)?;
        let len = file.len().during("measure", path)?;
        if len > MAX_FILE_LEN {
            return Err(Error::usage(format!("{len} bytes are more than a block can have")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).during("read", path)?;
        Ok(decode_hex(&bytes).unwrap_or(bytes))
    }

    /// Whether a block is where the block index places it.
    fn is_sound(&self, height: Height, bytes: &[u8]) -> bool {
        let mut record = RecordBuffer::default();
        self.stored.place(height).is_some_and(|(file, pos)| {
            let open = self.files.open_records(FileKind::Blk, file);
            open.is_ok_and(|open| open.read(pos, &mut record).is_ok()) && record.bytes().starts_with(bytes)
        })
    }

    fn unwanted(&self, what: &str) -> Error {
        let name = |height: Height| Some(format!("{} (height {height})", self.chain.hash(height)?));
        let named: Vec<String> = self.stored.missing().filter_map(name).take(MAX_NAMED_BLOCKS).collect();
        let wanted = match named.is_empty() {
            true => {
                "the block index places all blocks, and a rebuild names the one that is damaged".to_owned()
            }
            false => format!("the lowest missing blocks are {}", named.join(", ")),
        };
        Error::usage(format!("{what}; {wanted}"))
    }
}

/// Decodes hex digits, and ignores white space; `None` if there is anything else.
fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    let digits: Vec<u8> =
        digits.map(|&byte| char::from(byte).to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

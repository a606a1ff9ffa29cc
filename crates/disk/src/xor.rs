//! The keys with which Core obfuscates data: the file `blocks/xor.dat` for blk and rev files, a row in a
//! database for its values.
//!
//! `xor.dat` has 8 bytes, written by Core `node/blockstorage.cpp` `InitBlocksdirXorKey` when the blocks
//! directory is new; directories from before Core 28 have a key of zeros or no file, which both mean that the
//! files are not obfuscated. Byte `n` of a file is XORed with byte `n % 8` of the key.
//!
//! A database has the row `0e 00 "obfuscate_key"` (a string after its length) with the value `08` | key 8,
//! itself not obfuscated; byte `n` of any other value is XORed with byte `n % 8` of the key, keys of rows are
//! not obfuscated (Core `dbwrapper.cpp`). Core writes the row when it creates a chainstate; the block index
//! has none. Without the row, values are not obfuscated. Losing a key makes everything it covers unreadable,
//! so keys are never overwritten.

use crate::blk::RECORD_HEADER_LEN;
use crate::datadir::{Datadir, FileKind};
use crate::error::DiskError;
use crate::keyed_search::KeyedSearch;
use crate::replace::{KEPT_SUFFIX, free_name};
use digest::obfuscation::Obfuscation;
use hex_conservative::DisplayHex as _;
use leveldb::Database;
use std::{collections::BTreeMap, io::ErrorKind, path::Path};
use vfs::{AtomicFile, Disk, During as _, with_suffix};
use wire::{BlockHash, FileNo, Header, Network, Reader};

/// Key of the row that contains the obfuscation key of a database (Core `CDBWrapper::OBFUSCATION_KEY`).
pub const OBFUSCATION_ROW: &[u8] = b"\x0e\x00obfuscate_key";

/// Name of the file with the key of block files.
const KEY_FILE: &str = "xor.dat";
/// Its name until it is complete.
const NEW_KEY_FILE: &str = "xor.dat.peregrine";

/// Maximum number of ranges of files that an error names.
const MAX_NAMED_RANGES: usize = 8;

/// Bytes of a file in which its first block is searched for: what precedes that is at most a damaged block.
const SEARCHED_BYTES: u64 = 16 << 20;

/// Reads `xor.dat` in the directory `blocks_dir`. Without the file, there is no obfuscation.
///
/// # Errors
/// [`DiskError::Damaged`] if it has fewer than 8 bytes (of a longer file, the first 8 count, as in Core);
/// [`DiskError::File`] if it cannot be read.
pub fn read_block_obfuscation(disk: &dyn Disk, blocks_dir: &Path) -> Result<Obfuscation, DiskError> {
    let path = blocks_dir.join(KEY_FILE);
    if !disk.exists(&path).during("look at", &path)? {
        return Ok(Obfuscation::default());
    }
    let file = disk.open(&path).during("open for reading", &path)?;
    let len = file.len().during("measure", &path)?;
    let mut key = [0; 8];
    if len < key.len() as u64 {
        let flaw = format!(
            "the key has {len} bytes instead of 8; restore it: block files cannot be read without it"
        );
        return Err(DiskError::Damaged { path, offset: 0, flaw });
    }
    file.read_exact_at(&mut key, 0).during("read", &path)?;
    Ok(Obfuscation::from_key(key))
}

/// Like [`read_block_obfuscation`], but creates `xor.dat` with `new_key` if it is missing.
///
/// # Errors
/// The same errors, and those of writing the file.
pub fn read_or_create_block_obfuscation(
    disk: &dyn Disk,
    blocks_dir: &Path,
    new_key: [u8; 8],
) -> Result<Obfuscation, DiskError> {
    let (path, temporary) = (blocks_dir.join(KEY_FILE), blocks_dir.join(NEW_KEY_FILE));
    if !disk.exists(&path).during("look at", &path)? {
        AtomicFile::write(disk, temporary, &path, &new_key)?;
    }
    read_block_obfuscation(disk, blocks_dir)
}

/// Checks that `obfuscation` is the key of the first block in each of the block files, of all its bytes:
/// those of the magic are not enough. `None` is never their key. Of more than `files_max` files, some are
/// looked at. The errors contain the keys that the files reveal.
///
/// # Errors
/// [`DiskError::WrongKey`] if the files have another key; [`DiskError::MixedKeys`] if they have several, so
/// that no key is right; [`DiskError::OtherNetwork`] or [`DiskError::OtherSignet`] if the blocks are another
/// network's; [`DiskError::File`].
pub fn check_block_obfuscation(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Option<Obfuscation>,
    genesis: &BlockHash,
    files_max: usize,
) -> Result<(), DiskError> {
    let (own, numbers) = (obfuscation.unwrap_or_default(), datadir.blk_files(disk)?);
    check_network(disk, datadir, own, genesis)?;
    let (mut keys, mut of_genesis) = (BTreeMap::<_, Vec<FileNo>>::new(), None);
    let step = numbers.len().div_ceil(files_max.max(1)).max(1);
    let is_checked = |at: usize| at.is_multiple_of(step) || at + 1 == numbers.len();
    for (_, &number) in numbers.iter().enumerate().filter(|(at, _)| is_checked(*at)) {
        match key_of_file(disk, datadir, number, genesis)? {
            // If the file is missing, bitcoind writes this block anew, with whatever key it has then.
            Some((key, true)) => of_genesis = Some((key, vec![number])),
            Some((key, false)) => keys.entry(key).or_default().push(number),
            None => {}
        }
    }
    if keys.is_empty() {
        keys.extend(of_genesis);
    }
    let fits = obfuscation.is_some_and(|own| keys.contains_key(&own.key()));
    match keys.first_key_value() {
        None => Ok(()),
        Some(_) if keys.len() == 1 && fits => Ok(()),
        Some((&key, files)) if keys.len() == 1 => Err(wrong_key(disk, datadir, key, files)?),
        Some(_) => {
            let named: Vec<String> = keys.iter().map(|(key, files)| with_key(files, *key)).collect();
            let flaw = format!(
                "the block files have different keys: {}. A program that converts them may have been \
                 interrupted, or files of another node were copied here; leave xor.dat as it is",
                named.join("; ")
            );
            keys.remove(&own.key());
            let files = keys.into_values().flatten().collect();
            Err(DiskError::MixedKeys { path: datadir.blocks_dir(), flaw, files })
        }
    }
}

/// Checks that the first block file is not another network's.
fn check_network(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    genesis: &BlockHash,
) -> Result<(), DiskError> {
    let Some(start) = read_start(disk, &datadir.blk_path(FileNo(0)))? else { return Ok(()) };
    let (network, magic) = (datadir.network(), datadir.magic());
    let mut plain = start;
    obfuscation.apply(&mut plain, 0);
    if plain.starts_with(&magic) {
        return Ok(());
    }
    // All signets have the same genesis block.
    if network == Network::Signet && is_genesis(&plain, genesis) {
        let [a, b, c, d, ..] = plain;
        let (path, found) = (datadir.net_dir().to_owned(), [a, b, c, d]);
        return Err(DiskError::OtherSignet { path, found, expected: magic });
    }
    let is_other = |other: &Network| *other != network && plain.starts_with(&other.magic());
    match Network::ALL.into_iter().find(is_other) {
        Some(found) => {
            let path = datadir.net_dir().to_owned();
            Err(DiskError::OtherNetwork { path, found, expected: network })
        }
        None => Ok(()),
    }
}

/// Finds the key of one block file, as far as that can be read and has a block. Returns too whether the file
/// has only the genesis block.
fn key_of_file(
    disk: &dyn Disk,
    datadir: &Datadir,
    number: FileNo,
    genesis: &BlockHash,
) -> Result<Option<([u8; 8], bool)>, DiskError> {
    let path = datadir.blk_path(number);
    let file = match disk.open(&path) {
        // A link to nothing, or a running bitcoind has deleted it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.during("open for reading", &path)?,
    };
    let mut search = KeyedSearch::new(&*file, &path, datadir.magic())?;
    // The command that reads the file reports that it cannot be read.
    let Ok(Some((at, key))) = search.find_key(SEARCHED_BYTES) else { return Ok(None) };
    let Some(mut start) = read_start(disk, &path)?.filter(|_| at == 0 && number == FileNo(0)) else {
        return Ok(Some((key.key(), false)));
    };
    key.apply(&mut start, 0);
    if !is_genesis(&start, genesis) {
        return Ok(Some((key.key(), false)));
    }
    // What follows the genesis block is from before, if the block was written with another key.
    search.skip_to(start.len() as u64);
    let next = search.find_key(SEARCHED_BYTES).ok().flatten();
    Ok(Some(next.map_or((key.key(), true), |(_, key)| (key.key(), false))))
}

/// The error if the block files have this key, and not that of `xor.dat`.
fn wrong_key(
    disk: &dyn Disk,
    datadir: &Datadir,
    key: [u8; 8],
    files: &[FileNo],
) -> Result<DiskError, DiskError> {
    let path = datadir.blocks_dir().join(KEY_FILE);
    let found = disk.metadata(&path).during("look at", &path)?;
    let what = match found {
        None => "the file is missing".to_owned(),
        Some(found) if found.len < 8 => format!("the key has {} bytes instead of 8", found.len),
        Some(_) => "this is not the key of the block files".to_owned(),
    };
    // Octal, which each shell's printf knows.
    let escapes = key.map(|byte| format!("\\{byte:03o}")).concat();
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let keep = match found {
        Some(_) => {
            let kept = free_name(disk, with_suffix(&path, KEPT_SUFFIX))?;
            format!("mv -n {} {} && ", quoted(&path), quoted(&kept))
        }
        None => String::new(),
    };
    let flaw = format!(
        "{what}: {}; restore it, or create it: {keep}printf '{escapes}' > {}",
        with_key(files, key),
        quoted(&path)
    );
    Ok(DiskError::WrongKey { path, flaw, key })
}

/// Names files and their key.
fn with_key(files: &[FileNo], key: [u8; 8]) -> String {
    let are = if files.len() == 1 { "is" } else { "are" };
    match key {
        [0, 0, 0, 0, 0, 0, 0, 0] => format!("{} {are} not obfuscated", names(files)),
        _ => format!("{} {are} obfuscated with {}", names(files), key.to_lower_hex_string()),
    }
}

/// Names files; many files are named by the first and the last of each range.
fn names(files: &[FileNo]) -> String {
    let name = |file: &FileNo| FileKind::Blk.file_name(*file);
    let mut ranges: Vec<String> = files
        .chunk_by(|file, next| file.0 + 1 == next.0)
        .filter_map(|range| match range {
            [first, .., last] => Some(format!("{} to {}", name(first), name(last))),
            range => range.first().map(name),
        })
        .collect();
    if ranges.len() > MAX_NAMED_RANGES {
        ranges.truncate(MAX_NAMED_RANGES);
        ranges.push("others".to_owned());
    }
    ranges.join(", ")
}

/// The first record's frame and header.
type Start = [u8; RECORD_HEADER_LEN + Header::LEN];

/// Reads the start of a block file; `None` if it is missing or shorter.
fn read_start(disk: &dyn Disk, path: &Path) -> Result<Option<Start>, DiskError> {
    let mut start = [0; RECORD_HEADER_LEN + Header::LEN];
    let Some(found) = disk.metadata(path).during("look at", path)? else { return Ok(None) };
    if found.len < start.len() as u64 {
        return Ok(None);
    }
    let file = disk.open(path).during("open for reading", path)?;
    file.read_exact_at(&mut start, 0).during("read", path)?;
    Ok(Some(start))
}

/// Whether the first record is the genesis block.
fn is_genesis(plain: &Start, genesis: &BlockHash) -> bool {
    let header = plain.get(RECORD_HEADER_LEN..).and_then(|bytes| Header::read(&mut Reader::new(bytes)).ok());
    header.is_some_and(|header| header.hash() == *genesis)
}

/// Reads the obfuscation key of a database. Without one, there is no obfuscation.
pub(crate) fn read_database_obfuscation(
    database: &Database<'_>,
    dir: &Path,
) -> Result<Obfuscation, DiskError> {
    match database.get(OBFUSCATION_ROW)?.as_deref() {
        None => Ok(Obfuscation::default()),
        Some([8, key @ ..]) if key.len() == 8 => {
            Ok(Obfuscation::from_key(key.first_chunk().copied().unwrap_or_default()))
        }
        Some(_) => Err(DiskError::row(
            dir,
            OBFUSCATION_ROW,
            "the obfuscation key does not have 8 bytes; rebuild the database",
        )),
    }
}

/// The value of [`OBFUSCATION_ROW`].
pub(crate) fn obfuscation_row_value(obfuscation: Obfuscation) -> [u8; 9] {
    let [a, b, c, d, e, f, g, h] = obfuscation.key();
    [8, a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datadir::Location;
    use vfs::RealDisk;

    #[test]
    fn block_files_reveal_their_key() {
        let dir = tempfile::tempdir().unwrap();
        let datadir = Datadir::at(dir.path(), Network::Regtest);
        let genesis = Header { nonce: 7, time: wire::BlockTime(9), ..Header::default() };
        let key = [0x00, 0xa1, 0xff, 0x5c, 0x27, 0x0a, 1, 0x80];
        let lay_out = |magic: [u8; 4]| {
            let mut file = Vec::new();
            let coinbase = [&[1, 1, 0, 0, 0, 1][..], &[0; 32], &[0xff; 4], &[0; 60]].concat();
            crate::blk::write_record(&mut file, magic, &[&genesis.to_bytes()[..], &coinbase].concat());
            Obfuscation::from_key(key).apply(&mut file, 0);
            std::fs::write(datadir.blk_path(FileNo(0)), file).unwrap();
        };
        let check = |key: [u8; 8]| {
            let obfuscation = Some(Obfuscation::from_key(key));
            check_block_obfuscation(&RealDisk, &datadir, obfuscation, &genesis.hash(), 9)
                .map_err(|error| error.to_string())
        };
        RealDisk.create_dir_all(&datadir.blocks_dir()).unwrap();
        assert_eq!(check([0; 8]), Ok(()), "no file");
        for nothing in [&[][..], &[7; 7], &[0; 8], &[0; 5_000]] {
            std::fs::write(datadir.blk_path(FileNo(0)), nothing).unwrap();
            assert_eq!(check([1; 8]), Ok(()), "there is nothing to check");
        }
        lay_out(Network::Regtest.magic());
        assert_eq!(check(key), Ok(()));
        let text = check([0; 8]).unwrap_err();
        assert!(text.contains("the file is missing") && text.contains("00a1ff5c270a0180"), "{text}");
        // The command in the message works.
        let (_, command) = text.split_once("create it: ").unwrap();
        assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success());
        let made = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
        assert_eq!(made.key(), key);
        assert!(check([1; 8]).unwrap_err().contains("not the key of the block files"));
        lay_out(Network::Signet.magic());
        assert!(check(key).unwrap_err().contains("the blocks are of chain signet"));
        lay_out(*b"else");
        assert_eq!(check(key), Ok(()), "no block of regtest");
        let datadir =
            Datadir::new(&Location { magic: *b"SIGN", ..Location::new(dir.path(), Network::Signet) });
        std::fs::create_dir_all(datadir.blocks_dir()).unwrap();
        let from = dir.path().join("regtest/blocks/blk00000.dat");
        std::fs::copy(from, datadir.blk_path(FileNo(0))).unwrap();
        let key = Some(Obfuscation::from_key(key));
        let error = check_block_obfuscation(&RealDisk, &datadir, key, &genesis.hash(), 9);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("another challenge: they begin with 656c7365, not with 5349474e"), "{text}");
    }

    #[test]
    fn no_key_file_means_no_obfuscation_and_a_short_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let read = || read_block_obfuscation(&RealDisk, dir.path());
        assert!(read().unwrap().is_zero());
        let path = dir.path().join("xor.dat");
        for len in [0, 7] {
            RealDisk.create(&path).unwrap().write_all(&[1; 7][..len]).unwrap();
            let error = read().unwrap_err().to_string();
            assert!(error.contains("xor.dat") && error.contains("restore"), "{error}");
            RealDisk.remove_file(&path).unwrap();
        }
        let key = [1, 2, 3, 4, 5, 6, 7, 8];
        for behind in [&[][..], &[9]] {
            RealDisk.create(&path).unwrap().write_all(&[&key, behind].concat()).unwrap();
            assert_eq!(read().unwrap().key(), key, "as Core, which reads 8 bytes");
            assert_eq!(obfuscation_row_value(read().unwrap()), [8, 1, 2, 3, 4, 5, 6, 7, 8]);
            RealDisk.remove_file(&path).unwrap();
        }
    }
}

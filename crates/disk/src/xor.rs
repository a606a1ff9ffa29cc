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
use crate::datadir::Datadir;
use crate::error::DiskError;
use digest::obfuscation::Obfuscation;
use leveldb::Database;
use std::path::Path;
use vfs::{AtomicFile, Disk, During as _};
use wire::{BlockHash, FileNo, Header, Network, Reader};

/// Key of the row that contains the obfuscation key of a database (Core `CDBWrapper::OBFUSCATION_KEY`).
pub const OBFUSCATION_ROW: &[u8] = b"\x0e\x00obfuscate_key";

/// Name of the file with the key of block files.
const KEY_FILE: &str = "xor.dat";
/// Its name until it is complete.
const NEW_KEY_FILE: &str = "xor.dat.peregrine";

/// A range of zeros in the first block file, at a multiple of the key's length: within the parent hash of the
/// genesis block, which follows the record's header and the block's version.
const ZEROS: std::ops::Range<usize> = 16..24;

const _: () = assert!(ZEROS.start >= RECORD_HEADER_LEN + 4 && ZEROS.end <= RECORD_HEADER_LEN + 4 + 32);

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

/// Checks that the first block file, with `obfuscation` removed, begins like one of the network's. If not,
/// the error contains the right key where the file reveals it: block files begin with the genesis block,
/// whose parent hash is zeros, and obfuscated zeros are the key.
///
/// # Errors
/// [`DiskError::Damaged`] if `xor.dat` is missing or has another key; [`DiskError::OtherNetwork`] if the
/// blocks are another network's; [`DiskError::File`]. A file from which neither follows is not an error.
pub fn check_block_obfuscation(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    genesis: &BlockHash,
) -> Result<(), DiskError> {
    let Some(start) = read_start(disk, &datadir.blk_path(FileNo(0)))? else { return Ok(()) };
    let (network, magic) = (datadir.network(), datadir.magic());
    let begins = |magic: [u8; 4]| plain_start(start, obfuscation, magic).is_some();
    if begins(magic) {
        return Ok(());
    }
    let mut plain = start;
    obfuscation.apply(&mut plain, 0);
    // All signets have the same genesis block.
    if network == Network::Signet && is_genesis(&plain, genesis) {
        let [a, b, c, d, ..] = plain;
        let (path, found) = (datadir.net_dir().to_owned(), [a, b, c, d]);
        return Err(DiskError::OtherSignet { path, found, expected: magic });
    }
    let is_other = |other: &Network| *other != network && begins(other.magic());
    if let Some(found) = Network::ALL.into_iter().find(is_other) {
        let path = datadir.net_dir().to_owned();
        return Err(DiskError::OtherNetwork { path, found, expected: network });
    }
    let Some(key) = key_in(start, magic, genesis) else { return Ok(()) };
    let path = datadir.blocks_dir().join(KEY_FILE);
    let is_there = disk.exists(&path).during("look at", &path)?;
    let what = if is_there { "this is not the key of the block files" } else { "the file is missing" };
    let digits = key.map(|byte| format!("{byte:02x}")).concat();
    // Octal, which each shell's printf knows.
    let escapes = key.map(|byte| format!("\\{byte:03o}")).concat();
    let flaw = format!(
        "{what}, which are obfuscated with {digits}; restore the file, or create it: \
         printf '{escapes}' > '{}'",
        path.display()
    );
    Err(DiskError::Damaged { path, offset: 0, flaw })
}

/// Returns the key of the block files, if the `first` one reveals it.
///
/// # Errors
/// [`DiskError::File`].
pub fn revealed_key(
    disk: &dyn Disk,
    first: &Path,
    magic: [u8; 4],
    genesis: &BlockHash,
) -> Result<Option<[u8; 8]>, DiskError> {
    Ok(read_start(disk, first)?.and_then(|start| key_in(start, magic, genesis)))
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

/// Removes an obfuscation; `None` if the result is not the start of a file with that magic.
fn plain_start(mut start: Start, obfuscation: Obfuscation, magic: [u8; 4]) -> Option<Start> {
    obfuscation.apply(&mut start, 0);
    start.starts_with(&magic).then_some(start)
}

/// Returns the key with which the start of the first block file was obfuscated, if it is the genesis block.
fn key_in(start: Start, magic: [u8; 4], genesis: &BlockHash) -> Option<[u8; 8]> {
    let mut key = [0; 8];
    key.copy_from_slice(start.get(ZEROS)?);
    let plain = plain_start(start, Obfuscation::from_key(key), magic)?;
    is_genesis(&plain, genesis).then_some(key)
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
    let mut value = [8; 9];
    for (to, from) in value.iter_mut().skip(1).zip(obfuscation.key()) {
        *to = from;
    }
    value
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
            crate::blk::write_record(&mut file, magic, &[&genesis.to_bytes()[..], &[0; 200]].concat());
            Obfuscation::from_key(key).apply(&mut file, 0);
            std::fs::write(datadir.blk_path(FileNo(0)), file).unwrap();
        };
        let check = |key: [u8; 8]| {
            let obfuscation = Obfuscation::from_key(key);
            check_block_obfuscation(&RealDisk, &datadir, obfuscation, &genesis.hash())
                .map_err(|error| error.to_string())
        };
        assert_eq!(check([0; 8]), Ok(()), "no file");
        RealDisk.create_dir_all(&datadir.blocks_dir()).unwrap();
        std::fs::write(datadir.blk_path(FileNo(0)), [0; 87]).unwrap();
        assert_eq!(check([0; 8]), Ok(()), "the file is too short to check");
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
        assert_eq!(check(key), Ok(()));
        let datadir =
            Datadir::of(&Location { magic: *b"SIGN", ..Location::new(dir.path(), Network::Signet) });
        std::fs::create_dir_all(datadir.blocks_dir()).unwrap();
        let from = dir.path().join("regtest/blocks/blk00000.dat");
        std::fs::copy(from, datadir.blk_path(FileNo(0))).unwrap();
        let error = check_block_obfuscation(&RealDisk, &datadir, Obfuscation::from_key(key), &genesis.hash());
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

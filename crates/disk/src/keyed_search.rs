//! Finds blocks in a file whose key is not known, or that has parts with different keys.
//!
//! The first transaction of each block is its coinbase, whose outpoint is 32 zeros and `ffffffff`. Obfuscated
//! zeros are the key, repeated, so each block reveals the key of the bytes around it; the magic before the
//! block confirms it. So a key is found at each block by itself, whatever its file is called, and wherever
//! the block begins in it: in files that were joined, or overwritten in part, too.

use crate::{
    blk::{RECORD_HEADER_LEN, parse_record_header},
    datadir::{BLOCKS, Datadir, FileKind, file_no},
    departed,
    error::DiskError,
};
use digest::obfuscation::Obfuscation;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, ReadAt};
use wire::{BlockArena, Header, MAX_BLOCK_LEN, Reader};

/// Length of the outpoint of a coinbase in bytes.
const OUTPOINT_LEN: usize = 36;

/// Distances in bytes from the frame of a block's record to the outpoint of its first input: frame, header, a
/// number of transactions of 1, 3 or 5 bytes, version, marker and flag if there are witnesses, number of
/// inputs. The longer ones are those of [`departed`] blocks.
const OUTPOINT_AT: [u64; 8] = [94, 96, 98, 100, 178, 180, 182, 184];

/// Bytes that are searched at once.
const WINDOW_LEN: u64 = 256 << 10;

/// Bytes in which a block file of whatever name has its first block.
const NEAR_START: u64 = 64 << 10;

/// A record of a block, and its key. Of the block, only the header has been read.
#[derive(Clone, Copy, Debug)]
pub struct KeyedRecord {
    /// Offset of the block in the file.
    pub data_pos: u64,
    /// Length of the block as the record states it, or up to the end of the file: not to be relied on.
    pub size: u32,
    pub header: Header,
    /// The key, which counts from the file's first byte on.
    pub obfuscation: Obfuscation,
    /// Whether the record ends in the file, and is followed by another one, by zeros or by nothing.
    is_framed: bool,
}

/// Iterates over the blocks of a file.
pub struct KeyedSearch<'a> {
    file: &'a dyn ReadAt,
    path: PathBuf,
    magic: [u8; 4],
    len: u64,
    at: u64,
    obfuscation: Option<Obfuscation>,
    /// Whether all bytes are read, also those of records that seem to be whole: one with a false length hides
    /// others.
    pub is_thorough: bool,
}

impl<'a> KeyedSearch<'a> {
    /// Starts at the first byte of `file`; `path` is for error messages.
    ///
    /// # Errors
    /// [`DiskError::File`] if its length cannot be determined.
    pub fn new(file: &'a dyn ReadAt, path: &Path, magic: [u8; 4]) -> Result<Self, DiskError> {
        let len = file.len().during("measure", path)?;
        let (path, obfuscation, is_thorough) = (path.to_owned(), None, false);
        Ok(Self { file, path, magic, len, at: 0, obfuscation, is_thorough })
    }

    /// Continues at byte `at` of the file.
    pub const fn skip_to(&mut self, at: u64) {
        self.at = at;
    }

    /// Returns the next block; `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<KeyedRecord>, DiskError> {
        loop {
            let next = self.obfuscation.map(|key| self.record_at(self.at, key)).transpose()?.flatten();
            let record = match next.filter(|record| record.is_framed && !self.is_thorough) {
                Some(record) => Some(record),
                None => match self.find_key(self.len)? {
                    Some((frame, key)) => {
                        (self.at, self.obfuscation) = (frame, Some(key));
                        self.record_at(frame, key)?
                    }
                    None => {
                        self.at = self.len;
                        return Ok(None);
                    }
                },
            };
            let Some(record) = record else {
                self.at += 1;
                continue;
            };
            self.at = match record.is_framed && !self.is_thorough {
                true => record.data_pos + u64::from(record.size),
                false => self.at + 1,
            };
            return Ok(Some(record));
        }
    }

    /// Reads a block, whatever its record states about its length; `None` if none is there. The buffer
    /// contains the block then.
    pub fn read_block(
        &self,
        record: &KeyedRecord,
        arena: &mut BlockArena,
    ) -> Result<Option<Vec<u8>>, DiskError> {
        let longest = (self.len - record.data_pos).min(MAX_BLOCK_LEN as u64) as usize;
        for len in [record.size as usize, longest] {
            let mut bytes = vec![0; len];
            self.read(&mut bytes, record.data_pos, record.obfuscation)?;
            let parsed = arena.parse_first(&bytes).map(|block| block.bytes().len());
            if let Ok(len) = parsed {
                bytes.truncate(len);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Whether a record is a block of another chain ([`departed`]).
    pub fn is_departed(&self, record: &KeyedRecord) -> Result<bool, DiskError> {
        if record.header.version >= 0 || !record.is_framed {
            return Ok(false);
        }
        let mut bytes = vec![0; record.size as usize];
        self.read(&mut bytes, record.data_pos, record.obfuscation)?;
        Ok(departed::is_block(&bytes))
    }

    /// Returns where the first block from here on has its frame, and its key. The frame is not searched for
    /// at or beyond byte `end`.
    pub(crate) fn find_key(&self, end: u64) -> Result<Option<(u64, Obfuscation)>, DiskError> {
        let last = *OUTPOINT_AT.last().unwrap_or(&0);
        let mut start = self.at;
        while start < end.min(self.len) {
            // Windows overlap by the distance from a frame to its outpoint.
            let len = (self.len - start).min((end - start).min(WINDOW_LEN) + last + OUTPOINT_LEN as u64);
            let mut window = vec![0; len as usize];
            self.file.read_exact_at(&mut window, start).during("read", &self.path)?;
            let mut keys = window.windows(OUTPOINT_LEN).zip(0u64..).filter_map(|(bytes, at)| {
                let local = key_of_outpoint(bytes)?;
                let frames = OUTPOINT_AT.iter().filter_map(|distance| at.checked_sub(*distance));
                let key = Obfuscation::from_key(local).shifted(start + at);
                frames.filter(|&frame| start + frame < end).find_map(|frame| {
                    let mut magic = *window.get(frame as usize..)?.first_chunk::<4>()?;
                    key.apply(&mut magic, start + frame);
                    (magic == self.magic).then_some((start + frame, key))
                })
            });
            if let Some(found) = keys.next() {
                return Ok(Some(found));
            }
            start += WINDOW_LEN;
        }
        Ok(None)
    }

    /// Returns the record whose frame is there, if one is.
    fn record_at(&self, at: u64, obfuscation: Obfuscation) -> Result<Option<KeyedRecord>, DiskError> {
        let mut head = [0; RECORD_HEADER_LEN + Header::LEN];
        let data_pos = at + RECORD_HEADER_LEN as u64;
        if data_pos + Header::LEN as u64 > self.len {
            return Ok(None);
        }
        self.read(&mut head, at, obfuscation)?;
        let (frame, header) = head.split_at(RECORD_HEADER_LEN);
        let claimed = frame.first_chunk().and_then(|&frame| parse_record_header(frame, self.magic));
        let Some((claimed, header)) = claimed.zip(Header::read(&mut Reader::new(header)).ok()) else {
            return Ok(None);
        };
        let longest = (self.len - data_pos).min(MAX_BLOCK_LEN as u64);
        let is_possible = (Header::LEN as u64 + 1..=longest).contains(&u64::from(claimed));
        let size = if is_possible { claimed } else { longest as u32 };
        let is_framed = is_possible && self.ends_at(data_pos + u64::from(size), obfuscation)?;
        Ok(Some(KeyedRecord { data_pos, size, header, obfuscation, is_framed }))
    }

    /// Whether a record may end there.
    fn ends_at(&self, at: u64, obfuscation: Obfuscation) -> Result<bool, DiskError> {
        let mut next = [0; 4];
        if at + next.len() as u64 > self.len {
            return Ok(true);
        }
        self.file.read_exact_at(&mut next, at).during("read", &self.path)?;
        let is_reserved = next == [0; 4];
        obfuscation.apply(&mut next, at);
        Ok(is_reserved || next == self.magic)
    }

    fn read(&self, bytes: &mut [u8], at: u64, obfuscation: Obfuscation) -> Result<(), DiskError> {
        self.file.read_exact_at(bytes, at).during("read", &self.path)?;
        obfuscation.apply(bytes, at);
        Ok(())
    }
}

/// Whether a block of the network begins near the start of a file, with whatever key.
pub fn begins_with_block(disk: &dyn Disk, path: &Path, magic: [u8; 4]) -> Result<bool, DiskError> {
    let file = disk.open(path).during("open for reading", path)?;
    Ok(KeyedSearch::new(&*file, path, magic)?.find_key(NEAR_START)?.is_some())
}

/// Returns the names of the files in the directory of the block files that begin with a block but do not have
/// the name of a block file, so that bitcoind does not read them; and those of block files in a folder
/// `blocks` there, which `cp -r` makes if its target exists.
///
/// # Errors
/// [`DiskError::File`] if the directory cannot be listed.
pub fn other_block_files(disk: &dyn Disk, datadir: &Datadir) -> Result<Vec<String>, DiskError> {
    let dir = datadir.blocks_dir();
    let mut names = disk.list(&dir).during("list", &dir)?;
    let nested = disk.list(&dir.join(BLOCKS)).unwrap_or_default().into_iter();
    let nested = nested.filter(|name| file_no(FileKind::Blk, name).is_some());
    names.extend(nested.map(|name| Path::new(BLOCKS).join(name).into_os_string()));
    names.sort_unstable();
    names.retain(|name| {
        let is_numbered = [FileKind::Blk, FileKind::Rev].iter().any(|&kind| file_no(kind, name).is_some());
        // Closing a lock file would end the lock.
        !is_numbered
            && name != ".lock"
            && begins_with_block(disk, &dir.join(name), datadir.magic()).unwrap_or_default()
    });
    Ok(names.iter().map(|name| name.to_string_lossy().into_owned()).collect())
}

/// Returns the key of these bytes, counted from the first of them, if they are the outpoint of a coinbase.
fn key_of_outpoint(bytes: &[u8]) -> Option<[u8; 8]> {
    let (zeros, ones) = bytes.split_at_checked(32)?;
    let (words, _) = zeros.as_chunks::<8>();
    let [key, second, third, fourth] = words else { return None };
    let is_repeated = key == second && key == third && key == fourth;
    let is_outpoint = is_repeated && ones.iter().zip(key).all(|(byte, key)| byte ^ key == 0xff);
    is_outpoint.then_some(*key)
}

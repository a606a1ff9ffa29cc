//! Finds blocks in a file whose key is not known, or that has parts with different keys.
//!
//! The first transaction of each block is its coinbase, whose outpoint is 32 zeros and `ffffffff`. Obfuscated
//! zeros are the key, repeated, so each block reveals the key of the bytes around it; the magic before the
//! block confirms it. So a key is found at each block by itself, whatever its file is called, and wherever
//! the block begins in it: in files that were joined, or overwritten in part, too.

use crate::{
    blk::{RECORD_HEADER_LEN, RecordSearch, parse_record_header},
    datadir::{BLOCKS, Datadir, FileKind, file_no},
    departed,
    error::DiskError,
};
use digest::obfuscation::Obfuscation;
use std::path::Path;
use vfs::{Disk, During as _, ReadAt};
use wire::{BlockArena, Header, MAX_BLOCK_LEN, Reader};

/// Length of the outpoint of a coinbase in bytes.
const OUTPOINT_LEN: usize = 36;

/// Distances in bytes from the frame of a block's record to the outpoint of its first input: frame, header, a
/// number of transactions of 1, 3 or 5 bytes, version, marker and flag if there are witnesses, number of
/// inputs. The longer ones are those of [`departed`] blocks.
const OUTPOINT_AT: [u64; 8] = [94, 96, 98, 100, 178, 180, 182, 184];

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
    /// Reads the file without a key.
    search: RecordSearch<'a>,
    obfuscation: Option<Obfuscation>,
    /// Bytes of records that may still be read. After that, frames are believed.
    budget: u64,
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
        let search = RecordSearch::new(file, path, magic, Obfuscation::default())?;
        let budget = search.budget();
        Ok(Self { search, obfuscation: None, budget, is_thorough: false })
    }

    /// Continues at byte `at` of the file.
    pub const fn skip_to(&mut self, at: u64) {
        self.search.at = at;
    }

    /// Returns the next block; `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<KeyedRecord>, DiskError> {
        loop {
            let (at, is_thorough) = (self.search.at, self.is_thorough && self.budget > 0);
            let next = self.obfuscation.map(|key| self.record_at(at, key)).transpose()?.flatten();
            let record = match next.filter(|record| record.is_framed && !is_thorough) {
                Some(record) => Some(record),
                None => match self.find_key(self.search.file_len)? {
                    Some((frame, key)) => {
                        (self.search.at, self.obfuscation) = (frame, Some(key));
                        self.record_at(frame, key)?
                    }
                    None => {
                        self.search.at = self.search.file_len;
                        return Ok(None);
                    }
                },
            };
            let Some(record) = record.filter(|record| record.is_framed || self.budget > 0) else {
                self.search.at += 1;
                continue;
            };
            self.search.at = match record.is_framed && !is_thorough {
                true => record.data_pos + u64::from(record.size),
                false => self.search.at + 1,
            };
            return Ok(Some(record));
        }
    }

    /// Reads a block, whatever its record states about its length while the budget lasts; `None` if none is
    /// there. The buffer contains the block then.
    pub fn read_block(
        &mut self,
        record: &KeyedRecord,
        arena: &mut BlockArena,
    ) -> Result<Option<Vec<u8>>, DiskError> {
        let longest = (self.search.file_len - record.data_pos).min(MAX_BLOCK_LEN as u64) as usize;
        let longest = (self.budget > 0).then_some(longest);
        for len in [Some(record.size as usize), longest].into_iter().flatten() {
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
    pub fn is_departed(&mut self, record: &KeyedRecord) -> Result<bool, DiskError> {
        if record.header.version >= 0 || !record.is_framed {
            return Ok(false);
        }
        let mut bytes = vec![0; record.size as usize];
        self.read(&mut bytes, record.data_pos, record.obfuscation)?;
        Ok(departed::is_block(&bytes))
    }

    /// Returns where the first block from here on has its frame, and its key. The frame is not searched for
    /// at or beyond byte `end`.
    pub(crate) fn find_key(&mut self, end: u64) -> Result<Option<(u64, Obfuscation)>, DiskError> {
        let (magic, last) = (self.search.magic, *OUTPOINT_AT.last().unwrap_or(&0) as usize);
        let mut start = self.search.at;
        while start < end.min(self.search.file_len) {
            let window = self.search.bytes(start, last + OUTPOINT_LEN)?;
            let mut keys = window.windows(OUTPOINT_LEN).zip(0u64..).filter_map(|(bytes, at)| {
                let local = key_of_outpoint(bytes)?;
                let frames = OUTPOINT_AT.iter().filter_map(|distance| at.checked_sub(*distance));
                let key = Obfuscation::from_key(local).shifted(start + at);
                frames.filter(|&frame| start + frame < end).find_map(|frame| {
                    let mut found = *window.get(frame as usize..)?.first_chunk::<4>()?;
                    key.apply(&mut found, start + frame);
                    (found == magic).then_some((start + frame, key))
                })
            });
            if let Some(found) = keys.next() {
                return Ok(Some(found));
            }
            // The outpoints of later frames may be beyond this window.
            start += window.len().saturating_sub(last + OUTPOINT_LEN - 1).max(1) as u64;
        }
        Ok(None)
    }

    /// Returns the record whose frame is there, if one is.
    fn record_at(&mut self, at: u64, obfuscation: Obfuscation) -> Result<Option<KeyedRecord>, DiskError> {
        let mut head = [0; RECORD_HEADER_LEN + Header::LEN];
        let data_pos = at + RECORD_HEADER_LEN as u64;
        if data_pos + Header::LEN as u64 > self.search.file_len {
            return Ok(None);
        }
        self.read(&mut head, at, obfuscation)?;
        let (frame, header) = head.split_at(RECORD_HEADER_LEN);
        let claimed = frame.first_chunk().and_then(|&frame| parse_record_header(frame, self.search.magic));
        let Some((claimed, header)) = claimed.zip(Header::read(&mut Reader::new(header)).ok()) else {
            return Ok(None);
        };
        let longest = (self.search.file_len - data_pos).min(MAX_BLOCK_LEN as u64);
        let is_possible = (Header::LEN as u64 + 1..=longest).contains(&u64::from(claimed));
        let size = if is_possible { claimed } else { longest as u32 };
        let is_framed = is_possible && self.ends_at(data_pos + u64::from(size), obfuscation)?;
        Ok(Some(KeyedRecord { data_pos, size, header, obfuscation, is_framed }))
    }

    /// Whether a record may end there.
    fn ends_at(&self, at: u64, obfuscation: Obfuscation) -> Result<bool, DiskError> {
        let mut next = [0; 4];
        if at + next.len() as u64 > self.search.file_len {
            return Ok(true);
        }
        self.search.read(&mut next, at)?;
        let is_reserved = next == [0; 4];
        obfuscation.apply(&mut next, at);
        Ok(is_reserved || next == self.search.magic)
    }

    fn read(&mut self, bytes: &mut [u8], at: u64, obfuscation: Obfuscation) -> Result<(), DiskError> {
        self.budget = self.budget.saturating_sub(bytes.len() as u64);
        self.search.read(bytes, at)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io,
        sync::atomic::{AtomicU64, Ordering},
    };

    const MAGIC: [u8; 4] = [0xf9, 0xbe, 0xb4, 0xd9];

    /// A file that counts the bytes that are read.
    struct Counted {
        bytes: Vec<u8>,
        read: AtomicU64,
    }

    impl ReadAt for Counted {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
            self.bytes.read_exact_at(buf, offset)
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    /// Once, 8 MB were read for each record without a block, and 256 KiB to find the next.
    #[test]
    fn a_crafted_file_is_not_read_again_and_again() {
        let start = [&[1, 1, 0, 0, 0, 1][..], &[0; 32], &[0xff; 4]].concat();
        let frame = |size: u32| [&MAGIC[..], &size.to_le_bytes(), &[7; Header::LEN], &start].concat();
        // It would end in the header of another one.
        let mut bytes = frame(299_950).repeat(5_000);
        let block = [&[7; Header::LEN][..], &start, &[0], &[0xff; 4], &[1], &[0; 8], &[0], &[0; 4]].concat();
        bytes.extend([&MAGIC[..], &(block.len() as u32).to_le_bytes(), &block].concat());
        for is_thorough in [false, true] {
            let file = Counted { bytes: bytes.clone(), read: AtomicU64::new(0) };
            let mut search = KeyedSearch::new(&file, Path::new("blk"), MAGIC).unwrap();
            search.is_thorough = is_thorough;
            let (mut arena, mut last) = (BlockArena::default(), None);
            while let Some(record) = search.next_record().unwrap() {
                last = search.read_block(&record, &mut arena).unwrap();
            }
            assert_eq!(last, Some(block.clone()), "it is framed");
            let read = file.read.load(Ordering::Relaxed);
            assert!(read < 100_000_000, "{read} of {} bytes", bytes.len());
        }
    }
}

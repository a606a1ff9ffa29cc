//! Reads filters from the files of `blockfilterindex`.

use crate::block_filter::FilterPlace;
use api::error::Error;
use disk::node_indexes::filter_file;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, ReadAt};
use wire::{BlockHash, Reader};

/// Maximum length of the bytes before a filter in a file: the block hash and the length.
const HEAD_LEN: u64 = 32 + 9;

/// Reads filters. It keeps one file open, so it is fast if they are read in the order of their places.
pub struct FilterReader<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
    /// The file that was read last, with its number and length.
    open: Option<(u32, Box<dyn ReadAt>, u64)>,
}

impl<'a> FilterReader<'a> {
    /// Reads from the files in `dir`.
    pub fn new(disk: &'a dyn Disk, dir: &Path) -> Self {
        Self { disk, dir: dir.to_owned(), open: None }
    }

    /// Reads the filter of a block at a place. Returns `None` if it is not there.
    pub fn read(&mut self, block: &BlockHash, place: FilterPlace) -> Result<Option<Vec<u8>>, Error> {
        let path = self.dir.join(filter_file(place.file));
        if self.open.as_ref().is_none_or(|(file, ..)| *file != place.file) {
            if !self.disk.exists(&path).during("look for", &path)? {
                return Ok(None);
            }
            let file = self.disk.open(&path).during("open for reading", &path)?;
            let len = file.len().during("look at", &path)?;
            self.open = Some((place.file, file, len));
        }
        let Some((_, file, len)) = &self.open else { return Ok(None) };
        let (pos, len) = (u64::from(place.pos), *len);
        let mut head = vec![0; HEAD_LEN.min(len.saturating_sub(pos)) as usize];
        file.read_exact_at(&mut head, pos).during("read", &path)?;
        let mut reader = Reader::new(&head);
        let (found, size) = (reader.array(), reader.compact_size());
        let (Ok(found), Ok(size)) = (found, size) else { return Ok(None) };
        let start = pos + reader.position() as u64;
        if found != block.0 || size as u64 > len.saturating_sub(start) {
            return Ok(None);
        }
        let mut filter = vec![0; size];
        file.read_exact_at(&mut filter, start).during("read", &path)?;
        Ok(Some(filter))
    }
}

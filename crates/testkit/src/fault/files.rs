//! Files of a disk that fails on demand.

use super::State;
use std::{io, path::Path, sync::Arc};
use vfs::{Disk as _, IO_ERROR, ReadAt, RealDisk, WriteAt, WriteFile};

pub(super) struct FaultRead {
    pub file: Box<dyn ReadAt>,
    pub state: Arc<State>,
    /// A byte that cannot be read.
    pub unreadable: Option<u64>,
}

impl ReadAt for FaultRead {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.state.read()?;
        if self.unreadable.is_some_and(|at| (offset..offset + buf.len() as u64).contains(&at)) {
            return Err(io::Error::from_raw_os_error(IO_ERROR));
        }
        self.file.read_exact_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.state.read()?;
        self.file.len()
    }
}

pub(super) struct FaultWrite {
    pub file: Box<dyn WriteFile>,
    pub state: Arc<State>,
    /// Its index in [`State::synced`].
    pub number: usize,
    pub len: u64,
}

impl WriteFile for FaultWrite {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let reserved = |change| self.state.take_space(bytes.len() as u64).map(|()| change);
        match self.state.change().and_then(reserved) {
            Err(error) => {
                self.file.write_all(&bytes[..bytes.len() / 2])?;
                Err(error)
            }
            Ok(_change) => {
                self.len += bytes.len() as u64;
                self.file.write_all(bytes)
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let _change = self.state.change()?;
        if let Some((_, synced)) = self.state.synced().get_mut(self.number) {
            *synced = self.len;
        }
        Ok(())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }
}

/// A file that is written at offsets. What is written, and all that follows it, is unsynced.
pub(super) struct FaultWriteAt {
    pub file: Box<dyn WriteAt>,
    pub state: Arc<State>,
    /// Its index in [`State::synced`].
    pub number: usize,
    pub len: u64,
}

impl FaultWriteAt {
    fn touch(&mut self, from: u64, end: u64) {
        self.len = self.len.max(end);
        if let Some((_, synced)) = self.state.synced().get_mut(self.number) {
            *synced = from.min(*synced);
        }
    }
}

impl WriteAt for FaultWriteAt {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let state = Arc::clone(&self.state);
        let reserved = |change| state.take_space(end.saturating_sub(self.len)).map(|()| change);
        let change = state.change().and_then(reserved);
        if let Err(error) = change {
            let written = &bytes[..bytes.len() / 2];
            self.touch(offset, offset + written.len() as u64);
            self.file.write_all_at(written, offset)?;
            return Err(error);
        }
        self.touch(offset, end);
        self.file.write_all_at(bytes, offset)
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        let state = Arc::clone(&self.state);
        let _change = state.change()?;
        self.state.take_space(len.saturating_sub(self.len))?;
        self.touch(self.len, len);
        self.file.allocate(len)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let state = Arc::clone(&self.state);
        let _change = state.change()?;
        self.touch(len, len);
        self.len = len;
        self.file.truncate(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        let _change = self.state.change()?;
        if let Some((path, synced)) = self.state.synced().get_mut(self.number) {
            // Also what others have written to this file.
            *synced = RealDisk.metadata(path)?.map_or(self.len, |found| found.len);
        }
        Ok(())
    }
}

//! A read-only disk with a few files in memory, from which fuzz targets and tests read.

use crate::prelude::*;
use std::ffi::OsString;
use vfs::{Lock, Metadata, ReadAt, WriteFile};

/// Files by path; directories exist if a file's path contains them.
#[derive(Debug, Default)]
pub struct MemoryDisk(BTreeMap<PathBuf, Vec<u8>>);

impl MemoryDisk {
    /// The same disk with one more file.
    pub fn with(mut self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.insert(path.into(), bytes.into());
        self
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(self.0.get(path).ok_or(io::ErrorKind::NotFound)?.clone()))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let name = |path: &PathBuf| Some(path.strip_prefix(dir).ok()?.iter().next()?.to_os_string());
        let mut names: Vec<_> = self.0.keys().filter_map(name).collect();
        names.dedup();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let file =
            self.0.get(path).map(|bytes| Metadata { is_dir: false, len: bytes.len() as u64, modified: 0 });
        let is_dir = || self.0.keys().any(|file| file.starts_with(path));
        Ok(file.or_else(|| is_dir().then_some(Metadata { is_dir: true, len: 0, modified: 0 })))
    }

    fn share_space(&self, _: &Path, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        Ok(0)
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        Ok(None)
    }

    fn create(&self, _: &Path) -> io::Result<Box<dyn WriteFile>> {
        read_only()
    }

    fn sync_file(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn rename_new(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }
}

//! A file that is being written under a name which it will not keep.

use crate::fs::Disk;
use std::path::{Path, PathBuf};

/// Removes a file when it is dropped, unless it was given its name before: a run that fails or is interrupted
/// leaves nothing. What a crash leaves is removed by the next run that writes the same file.
pub(crate) struct Unfinished<'d> {
    disk: &'d dyn Disk,
    /// `None` once the file is to stay.
    path: Option<PathBuf>,
}

impl<'d> Unfinished<'d> {
    pub(crate) fn new(disk: &'d dyn Disk, path: &Path) -> Self {
        Self { disk, path: Some(path.to_owned()) }
    }

    /// The file has its name now, or is gone.
    pub(crate) fn settle(mut self) {
        self.path = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The error that ended the writing is the one to be told. The next run tries again.
            let _ = self.disk.remove_file(&path);
        }
    }
}

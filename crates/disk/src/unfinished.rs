//! A file that is written under a temporary name.

use crate::fs::Disk;
use std::path::{Path, PathBuf};

/// Removes the file when dropped, unless [`Unfinished::keep`] was called: a job that fails or is interrupted
/// leaves no file. What a crash leaves is removed by the next job that writes the same file.
pub(crate) struct Unfinished<'d> {
    disk: &'d dyn Disk,
    /// `None` once the file is kept.
    path: Option<PathBuf>,
}

impl<'d> Unfinished<'d> {
    pub(crate) fn new(disk: &'d dyn Disk, path: &Path) -> Self {
        Self { disk, path: Some(path.to_owned()) }
    }

    /// Does not remove the file: it has its final name now, or was removed already.
    pub(crate) fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The error that ended the writing is the one to report. The next job tries again.
            let _ = self.disk.remove_file(&path);
        }
    }
}

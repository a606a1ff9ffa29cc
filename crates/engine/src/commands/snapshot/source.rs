//! Where the chunks of a snapshot come from. What a source gives is checked by the caller, apart from its
//! length, so that no more is read than was asked for.

use api::{
    error::{Error, ErrorKind, io_text},
    options::{FileSource, Remote},
};
use disk::utxo_tree::{MAX_TREE_LEN, TREE_NAME, UtxoTree, chunk_name};
use pipeline::job::download::Download;
use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use vfs::{Disk, During as _, dir_of};

pub(super) struct Source<'a> {
    disk: &'a dyn Disk,
    place: Place,
    pub failures: AtomicU64,
    /// How often it took too long.
    pub delays: AtomicU64,
}

enum Place {
    Folder(PathBuf),
    File(PathBuf),
    Remote(Arc<dyn Remote>),
}

impl<'a> Source<'a> {
    pub fn new(disk: &'a dyn Disk, source: &FileSource) -> Result<Self, Error> {
        let place = match source {
            FileSource::Remote(folder) => Place::Remote(Arc::clone(folder)),
            FileSource::Path(path) => match disk.metadata(path).during("look for", path)? {
                Some(found) if !found.is_dir => Place::File(path.clone()),
                // If the folder is missing, so are its files, which is reported later.
                _ => Place::Folder(path.clone()),
            },
        };
        Ok(Self { disk, place, failures: AtomicU64::new(0), delays: AtomicU64::new(0) })
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        match &self.place {
            Place::Folder(path) | Place::File(path) => path.display().to_string(),
            Place::Remote(folder) => folder.name().to_owned(),
        }
    }

    /// Returns its tree, whose leaves nothing has proven.
    pub fn tree(&self, chunk_len: u64, interrupt: &AtomicBool) -> Result<UtxoTree, Error> {
        let (bytes, file) = match &self.place {
            Place::Folder(dir) => self.read_tree(dir.join(TREE_NAME))?,
            Place::File(file) => self.read_tree(dir_of(file).join(TREE_NAME))?,
            Place::Remote(folder) => {
                (download(folder, TREE_NAME, MAX_TREE_LEN, interrupt)?, path_in(folder, TREE_NAME))
            }
        };
        let tree = UtxoTree::decode(&bytes, chunk_len);
        tree.map_err(|(offset, flaw)| Error::damaged(flaw).in_file(file, Some(offset)))
    }

    fn read_tree(&self, path: PathBuf) -> Result<(Vec<u8>, PathBuf), Error> {
        Ok((self.disk.read(&path, MAX_TREE_LEN).during("read", &path)?, path))
    }

    /// Returns a chunk of the tree, which has the right length and may be wrong.
    pub fn chunk(&self, tree: &UtxoTree, index: u64, interrupt: &AtomicBool) -> Result<Vec<u8>, Error> {
        let (range, name) = (tree.range(index), chunk_name(index));
        let len = range.end - range.start;
        let wrong_len = |found: u64, expected: u64| {
            Error::damaged(format!("it has {found} bytes, and should have {expected}"))
        };
        let from_file = |path: &Path, start: u64, file_len: u64| {
            let file = self.disk.open(path).during("open for reading", path)?;
            let found = file.len().during("find the length", path)?;
            if found != file_len {
                return Err(wrong_len(found, file_len).in_file(path, None));
            }
            let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
            file.read_exact_at(&mut bytes, start).during("read", path)?;
            Ok(bytes)
        };
        match &self.place {
            Place::Folder(dir) => from_file(&dir.join(name), 0, len),
            Place::File(file) => from_file(file, range.start, tree.len),
            Place::Remote(folder) => {
                let bytes = download(folder, &name, len, interrupt)?;
                match bytes.len() as u64 {
                    found if found == len => Ok(bytes),
                    found => Err(wrong_len(found, len).in_file(path_in(folder, &name), None)),
                }
            }
        }
    }
}

/// The name of a file in messages.
fn path_in(folder: &Arc<dyn Remote>, name: &str) -> PathBuf {
    format!("{}/{name}", folder.name().trim_end_matches('/')).into()
}

/// Downloads a file of at most `max` bytes.
fn download(
    folder: &Arc<dyn Remote>,
    name: &str,
    max: u64,
    interrupt: &AtomicBool,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let result = Download::start(folder, name, max, &|_, _| {}, interrupt).and_then(|mut download| {
        bytes.reserve(usize::try_from(download.total.unwrap_or(max)).unwrap_or_default());
        download.read_to_end(&mut bytes)
    });
    match result {
        Ok(_) => Ok(bytes),
        Err(_) if interrupt.load(Ordering::Relaxed) => Err(Error::interrupted()),
        Err(error) => {
            let kind = match error.kind() {
                io::ErrorKind::FileTooLarge => ErrorKind::Damaged,
                _ => ErrorKind::Environment,
            };
            let detail = format!("cannot download: {}", io_text(&error));
            Err(Error::new(kind, detail).in_file(path_in(folder, name), None).caused_by(error))
        }
    }
}

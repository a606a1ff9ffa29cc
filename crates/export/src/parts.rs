//! A directory of files that are written one by one, in any order, and that a later run can complete.
//!
//! The files can be in folders of the directory.
//!
//! The directory has a temporary name until it is complete. Until then it has a file that states what it is
//! for: a run that wants the same keeps the files that are complete, and one that wants something else is
//! refused, unless it continues a directory, of which it keeps some files. In the end that file is beside the
//! directory, so that libraries take the directory for one table.

use crate::DIRECTORY_IN_USE;
use crate::columns::Columns;
use crate::rows::{FileFormat, RowFile};
use crate::table::Table;
use std::path::{Path, PathBuf};
use vfs::{
    Disk, During as _, FileError, Lock, UnfinishedError, dir_of, exists, remove_if_there, sync_dir_of,
    unfinished, unfinished::target,
};

/// The file that states what a directory is for: its name in the directory, and the end of its name beside
/// it.
pub const REQUEST: &str = "dataset.json";
/// Maximum length of that file, in bytes.
pub const REQUEST_LEN: u64 = 1 << 24;
/// How all of these files begin.
const REQUEST_START: &[u8] = b"{\n  \"program\": \"peregrine ";

/// Why a directory cannot be begun or continued.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// The disk failed, another process writes the directory, or it exists.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedError),
    #[error("{}: an interrupted run that wanted something else has left this", .0.display())]
    OtherRequest(PathBuf),
    #[error("{}: an interrupted run was continuing this, which was complete", .0.display())]
    WasComplete(PathBuf),
    /// The directory, or a file in it, is not what can be continued. `flaw` also says what to do.
    #[error("{}: {flaw}", .path.display())]
    Refused { path: PathBuf, flaw: String },
}

/// What a directory has that is continued.
#[derive(Default)]
pub struct Continued {
    /// All its files, with their sizes in bytes as far as they are known.
    pub files: Vec<(String, Option<u64>)>,
    /// Those that do not stay.
    pub outdated: Vec<String>,
    /// All files that it will have.
    pub to_come: Vec<String>,
}

impl From<FileError> for PartsError {
    fn from(error: FileError) -> Self {
        Self::Unfinished(error.into())
    }
}

pub struct Parts<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    temporary: PathBuf,
    /// The files that are made for a directory that was complete. It gets its name back if none is completed.
    made: Option<Vec<String>>,
    locks: Vec<Box<dyn Lock>>,
}

/// Reads a request, and locks its file until the lock is dropped.
fn read_and_lock(disk: &dyn Disk, file: &Path) -> Result<(Vec<u8>, Box<dyn Lock>), PartsError> {
    let state = || disk.metadata(file).during("look for", file);
    let in_use = || UnfinishedError::Refused { path: file.to_owned(), flaw: DIRECTORY_IN_USE };
    let before = state()?;
    // Closing any descriptor of the file ends its locks: it is read before it is locked, and not while
    // another thread has locked it.
    let shared = disk.lock_shared(file).during("lock", file)?.ok_or_else(in_use)?;
    let found = disk.read(file, REQUEST_LEN).during("read", file)?;
    drop(shared);
    let lock = unfinished::lock(disk, file, DIRECTORY_IN_USE)?;
    if state()? != before {
        // Another process has written it in between.
        return Err(in_use().into());
    }
    Ok((found, lock))
}

impl<'d> Parts<'d> {
    /// Begins the directory `path`, or continues it if an earlier run with the same `request` has begun it.
    /// `request` determines all files.
    pub fn open(disk: &'d dyn Disk, path: &Path, request: &str) -> Result<Self, PartsError> {
        let path = target(disk, path)?;
        let (beside, temporary) = (beside(&path), unfinished::temporary(&path, unfinished::SUFFIX));
        if disk.exists(&path).during("look for", &path)? {
            // A run that was killed at its end has left its request, which libraries take for a file of rows.
            // Directories of releases before have nothing beside them: there it stays.
            let request = path.join(REQUEST);
            if disk.exists(&beside).during("look for", &beside)?
                && let Ok((found, _lock)) = read_and_lock(disk, &request)
                && found.starts_with(REQUEST_START)
            {
                disk.remove_file(&request).during("remove", &request)?;
            }
            return Err(UnfinishedError::Exists(path).into());
        }
        if disk.exists(&beside).during("look for", &beside)?
            && !disk.read(&beside, REQUEST_LEN).during("read", &beside)?.starts_with(REQUEST_START)
        {
            return Err(UnfinishedError::Exists(beside).into());
        }
        disk.create_dir_all(&temporary).during_creation(&temporary)?;
        let file = temporary.join(REQUEST);
        if disk.exists(&file).during("look for", &file)? {
            let (found, lock) = read_and_lock(disk, &file)?;
            return match found == request.as_bytes() {
                true => Ok(Self { disk, path, temporary, made: None, locks: vec![lock] }),
                false => Err(left_by_another(disk, &path)(temporary)),
            };
        }
        // A crash may have left the request without its name, but nothing else.
        let leftover = format!("{REQUEST}{}", unfinished::SUFFIX);
        if disk.list(&temporary).during("list", &temporary)?.iter().any(|name| *name != *leftover) {
            return Err(left_by_another(disk, &path)(temporary));
        }
        Self { disk, path, temporary, made: None, locks: Vec::new() }.with_request(request)
    }

    /// Begins the directory `path`, or continues it if it is there, complete or not, whatever it was for:
    /// `continued` gets that, and returns what the directory has; `None`: it cannot be continued. Until the
    /// directory is complete again, it has its temporary name. A file whose size has changed does not stay;
    /// those that do not stay are removed when the directory is complete.
    pub fn append(
        disk: &'d dyn Disk,
        path: &Path,
        request: &str,
        continued: impl FnOnce(&[u8]) -> Result<Option<Continued>, String>,
    ) -> Result<Self, PartsError> {
        let path = &target(disk, path)?;
        let is_complete = disk.exists(path).during("look for", path)?;
        let temporary = unfinished::temporary(path, unfinished::SUFFIX);
        let dir = if is_complete { path } else { &temporary };
        if !disk.exists(dir).during("look for", dir)? {
            return Self::open(disk, path, request);
        }
        // Directories of releases before have it inside when they are complete.
        let places =
            if is_complete { [beside(path), dir.join(REQUEST)] } else { [dir.join(REQUEST), beside(path)] };
        let is_there = |file: &PathBuf| disk.exists(file).unwrap_or_default();
        // This refuses a directory that is complete.
        let Some(file) = places.into_iter().find(is_there) else { return Self::open(disk, path, request) };
        let (found, lock) = read_and_lock(disk, &file)?;
        let refused = |path, flaw| PartsError::Refused { path, flaw };
        let continued = continued(&found).map_err(|flaw| refused(dir.clone(), flaw))?;
        let Some(Continued { files, mut outdated, to_come }) = continued else {
            let flaw = "it has a complete export with other options; export into another directory";
            let left = left_by_another(disk, path)(dir.clone());
            return Err(if is_complete { refused(dir.clone(), flaw.to_owned()) } else { left });
        };
        let len = |name: &String| {
            let path = dir.join(name);
            Ok::<_, FileError>(disk.metadata(&path).during("look at", &path)?.map(|found| found.len))
        };
        for (name, known) in files.iter().filter(|(_, known)| known.is_some()) {
            outdated.extend((len(name)? != *known).then(|| name.clone()));
        }
        // A file of somebody else must not be taken for one that is complete.
        let is_new = |name: &&String| files.iter().all(|(known, _)| known != *name);
        for name in to_come.iter().filter(is_new) {
            if len(name)?.is_some() {
                let flaw = "a file belongs here, but no export has written this one; move it away";
                return Err(refused(dir.join(name), flaw.to_owned()));
            }
        }
        if is_complete && disk.exists(&temporary).during("look for", &temporary)? {
            return Err(PartsError::OtherRequest(temporary));
        }
        // Without a file beside it, the new request takes the place of the only one that states what it has.
        let made = (is_complete && file == beside(path))
            .then(|| to_come.iter().filter(is_new).chain(&outdated).cloned().collect());
        let parts = Self { disk, path: path.clone(), temporary, made, locks: vec![lock] };
        rename_if_there(disk, path, &parts.temporary)?;
        for file in outdated.iter().map(|name| parts.temporary.join(name)) {
            rename_if_there(disk, &file, &set_aside(&file))?;
        }
        parts.with_request(request)
    }

    /// Writes what a directory is for, and locks it.
    fn with_request(mut self, request: &str) -> Result<Self, PartsError> {
        let file = self.temporary.join(REQUEST);
        unfinished::write(self.disk, &file, request.as_bytes())?;
        let lock = unfinished::lock(self.disk, &file, DIRECTORY_IN_USE);
        // Another run has the directory now.
        self.locks.push(lock.inspect_err(|_| self.made = None)?);
        Ok(self)
    }

    /// Returns the size in bytes of a file, if it is complete. Then, the outdated one is removed.
    pub fn complete_len(&self, name: &str) -> Result<Option<u64>, FileError> {
        let path = self.temporary.join(name);
        let found = self.disk.metadata(&path).during("look for", &path)?;
        if found.is_some() {
            remove_if_there(self.disk, &set_aside(&path))?;
        }
        Ok(found.map(|found| found.len))
    }

    /// Begins a file. In its name, slashes divide the names of folders, which are created.
    pub fn begin<T: Table>(
        &self,
        name: &str,
        format: FileFormat,
        columns: &Columns,
    ) -> Result<RowFile<'d, T>, UnfinishedError> {
        let path = self.temporary.join(name);
        let folder = dir_of(&path);
        self.disk.create_dir_all(folder).during_creation(folder)?;
        RowFile::create(self.disk, &path, format, columns)
    }

    /// Gives the directory its name, when all files are complete, and writes what it has beside it.
    pub fn finish(mut self, content: &str) -> Result<(), UnfinishedError> {
        self.made = None;
        let Self { disk, path, temporary, .. } = &self;
        unfinished::write(*disk, &beside(path), content.as_bytes())?;
        disk.rename(temporary, path).during("rename to its final name", temporary)?;
        sync_dir_of(*disk, path)?;
        let request = path.join(REQUEST);
        Ok(disk.remove_file(&request).during("remove", &request)?)
    }

    /// Makes a directory that was complete what it was, unless one of the new files is complete.
    fn restore(&self) -> Result<(), FileError> {
        let Self { disk, path, temporary, made: Some(made), .. } = self else { return Ok(()) };
        let files = || made.iter().map(|name| temporary.join(name));
        if files().any(|file| disk.exists(&file).unwrap_or(true)) {
            return Ok(());
        }
        // After a crash in between, the next run finds what the directory has beside it.
        let request = temporary.join(REQUEST);
        remove_if_there(*disk, &request)?;
        sync_dir_of(*disk, &request)?;
        for file in files() {
            rename_if_there(*disk, &set_aside(&file), &file)?;
            if dir_of(&file) != temporary {
                // Only if it is empty.
                let _ = disk.remove_dir(dir_of(&file));
            }
        }
        rename_if_there(*disk, temporary, path)
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        // The run has failed, with an error that counts more.
        let _ = self.restore();
    }
}

/// Returns the error for the temporary directory of a run that wanted something else than this one. One that
/// was complete before has a file beside it.
fn left_by_another(disk: &dyn Disk, path: &Path) -> fn(PathBuf) -> PartsError {
    let was_complete = disk.exists(&beside(path)).unwrap_or(true);
    if was_complete { PartsError::WasComplete } else { PartsError::OtherRequest }
}

/// The name of an outdated file until the one that takes its place is complete.
fn set_aside(file: &Path) -> PathBuf {
    unfinished::temporary(file, &format!(".outdated{}", unfinished::SUFFIX))
}

/// Renames, if `from` is there, so that a power cut does not take that back: an outdated file that came back
/// would count as a complete one.
fn rename_if_there(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), FileError> {
    if exists(disk, from)? {
        disk.rename(from, to).during("rename", from)?;
        sync_dir_of(disk, to)?;
    }
    Ok(())
}

/// The file beside a directory that states what it has.
fn beside(path: &Path) -> PathBuf {
    unfinished::temporary(path, &format!(".{REQUEST}"))
}

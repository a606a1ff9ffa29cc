//! Hints that are not a plain file on this machine: downloads or unpacks them to a copy, which the run reads.
//!
//! The copy is in a directory of its own, `peregrine-hints` beside the work directory, since it may outlive a
//! job: a checkpoint is bound to the digest of the plain hints, and another download could be another file.
//! So a copy of downloaded hints stays after an interrupt or an error about something else, except an invalid
//! block, and the next run uses it. What is unpacked from a file on this machine does not stay: the next run
//! unpacks it again.

use super::download::Download;
use crate::stages::work_dir::{WorkDir, hint_copy_name, is_hint_copy, temp_dir};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    note::Note,
    options::{ChainOptions, FileSource, HintOptions, Remote},
    remedy::Remedy,
    size::HumanSize,
    subject::Subject,
};
use disk::datadir::Datadir;
use hints::packed::{self, PackedFile, Unpacked};
use std::{
    cell::Cell,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use vfs::{AtomicFile, Disk, During as _, FileError};

/// Name of the directory.
const HINTS_DIR: &str = "peregrine-hints";
/// Maximum length of a download, and of the hints that are unpacked, in bytes: four times those of mainnet in
/// the largest format.
const MAX_LEN: u64 = 2 << 30;
/// Bytes that are read or written at once.
const PIECE_LEN: usize = 256 << 10;
/// Interval between two notes about a download.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the directory for copies of hints, for a rebuild whose result is in `datadir`.
pub fn directory<'d>(disk: &'d dyn Disk, options: &ChainOptions, datadir: &Datadir) -> WorkDir<'d> {
    let path = match &options.work_dir {
        Some(dir) => dir.join(HINTS_DIR),
        None => datadir.chainstate_dir().with_file_name(HINTS_DIR),
    };
    WorkDir::new(disk, path)
}

/// Calls `run` with options whose hints are a plain file, which may be a copy in `dir`.
///
/// # Errors
/// Those of `run`; [`ErrorKind::Environment`] if the hints cannot be downloaded or are too long;
/// [`ErrorKind::Damaged`] if they cannot be unpacked; any I/O error.
pub fn with_plain_hints<T>(
    dir: &WorkDir<'_>,
    options: Option<&HintOptions>,
    restart: bool,
    watch: Watch<'_>,
    run: impl FnOnce(Option<HintOptions>) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(options) = options else { return run(None) };
    let copy = match &options.file {
        FileSource::Remote(remote) => download(dir, remote, restart, watch).map(Some),
        FileSource::Path(file) => unpack(dir, file, watch.interrupt),
    };
    let file = match copy {
        Ok(Some(file)) => file,
        Ok(None) => return run(Some(options.clone())),
        Err(error) => {
            // If that fails too, the first error is the one to report.
            let _ = dir.remove();
            return Err(error);
        }
    };
    let plain = HintOptions { file: FileSource::Path(file.clone()), ..options.clone() };
    let result = run(Some(plain)).map_err(|error| name_original(error, &file, &options.file.name()));
    // The hints may be what was wrong. Then the next run needs others; with an invalid block, it needs none.
    let is_kept = |error: &Error| {
        let is_of_others = error.file.as_deref() != Some(&*options.file.name());
        // With a wrong clock, the checkpoint stays too.
        let is_invalid =
            error.kind == ErrorKind::Consensus && !error.remedies.contains(&Remedy::CorrectClock);
        let is_final = error.kind == ErrorKind::Hints || is_invalid;
        error.kind == ErrorKind::Environment || !is_final && is_of_others
    };
    let is_remote = matches!(options.file, FileSource::Remote(_));
    if !(is_remote && result.as_ref().is_err_and(is_kept)) {
        watch.sink.warn_if_left(dir.remove());
    }
    result
}

/// Calls `read` with the path of plain hints: `file`, or a temporary copy below `parent`.
///
/// # Errors
/// Those of `read`, and those of [`with_plain_hints`].
pub fn with_plain_file<T>(
    disk: &dyn Disk,
    file: &Path,
    parent: Option<&Path>,
    interrupt: &AtomicBool,
    read: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<T, Error> {
    let dir = WorkDir::exclusive(disk, &parent.map_or_else(|| temp_dir(disk), Path::to_owned));
    let result = unpack(&dir, file, interrupt).and_then(|copy| match copy {
        None => read(file),
        Some(copy) => read(&copy).map_err(|error| name_original(error, &copy, file)),
    });
    // The next run of a command like this removes what is left.
    let _ = dir.remove();
    result
}

/// Replaces the name of a copy in an error by that of what was copied.
fn name_original(mut error: Error, copy: &Path, original: &Path) -> Error {
    if error.file.as_deref() == Some(copy) {
        error.file = Some(original.to_owned());
    }
    error
}

/// Locks `dir` and removes the copies in it, except one.
fn take(dir: &WorkDir<'_>, kept: Option<&Path>) -> Result<(), Error> {
    dir.take()?;
    for name in dir.disk().list(dir.path()).during("list", dir.path())? {
        let path = dir.path().join(name);
        if is_hint_copy(&path) && Some(path.as_path()) != kept {
            dir.disk().remove_file(&path).during("remove", &path)?;
        }
    }
    Ok(())
}

/// Unpacks a file. Returns the path of the copy, or `None` if the file is plain.
fn unpack(dir: &WorkDir<'_>, file: &Path, interrupt: &AtomicBool) -> Result<Option<PathBuf>, Error> {
    let unpacked = packed::open(dir.disk(), file)?;
    if unpacked.packing.is_none() {
        return Ok(None);
    }
    take(dir, None)?;
    let copy = dir.path().join(hint_copy_name(&file.to_string_lossy()));
    let failed = |source| {
        let path = file.to_owned();
        FileError { path, action: "read the hints", is_creation: false, source }.into()
    };
    write(dir, &copy, (unpacked, MAX_LEN), file, (&failed, interrupt))?;
    Ok(Some(copy))
}

/// Downloads hints, and unpacks them on the way. Returns the path of the copy, which may be that of an
/// earlier run.
fn download(
    dir: &WorkDir<'_>,
    remote: &Arc<dyn Remote>,
    restart: bool,
    Watch { sink, interrupt }: Watch<'_>,
) -> Result<PathBuf, Error> {
    let copy = dir.path().join(hint_copy_name(remote.name()));
    let from = || remote.name().to_owned();
    take(dir, (!restart).then_some(&copy))?;
    if dir.disk().exists(&copy).during("look for", &copy)? {
        sink.event(Event::Note(Note::ReusingHints { from: from(), copy: copy.clone() }));
        return Ok(copy);
    }
    let failed = |error: io::Error| {
        if interrupt.load(Ordering::Relaxed) {
            return Error::interrupted();
        }
        let why = if error.kind() == io::ErrorKind::FileTooLarge { too_long() } else { error.to_string() };
        let lacks_threads = error.kind() == io::ErrorKind::OutOfMemory;
        Error::environment(format!("cannot download the hints: {why}"))
            .in_file(remote.name(), None)
            .caused_by(error)
            .with_remedies(lacks_threads.then_some(Remedy::RaiseProcessLimit))
    };
    let last_note = Cell::new(None::<Instant>);
    let note = |received, total| {
        if last_note.get().is_none_or(|last| last.elapsed() >= NOTE_INTERVAL) {
            last_note.set(Some(Instant::now()));
            sink.event(Event::Note(Note::DownloadingHints { from: from(), received, total }));
        }
    };
    let pieces = Download::start(remote, "", MAX_LEN, &note, interrupt).map_err(failed)?;
    let free = dir.disk().free_space(dir.path()).during("measure the free space of", dir.path())?;
    if let Some(need) = pieces.total.filter(|need| *need > free) {
        let detail =
            format!("the hints take at least {}, {} are free here", HumanSize(need), HumanSize(free));
        return Err(Error::environment(detail)
            .in_file(dir.path(), None)
            .about(Subject::DiskSpace)
            .with_remedies([Remedy::OtherWorkDir]));
    }
    let unpacked = Unpacked::new(pieces).map_err(failed)?;
    let original = Path::new(remote.name());
    let unpacked = (unpacked, MAX_LEN);
    let PackedFile { bytes, sha256, .. } = write(dir, &copy, unpacked, original, (&failed, interrupt))?;
    sink.event(Event::Note(Note::HintsDownloaded { from: from(), bytes, sha256 }));
    Ok(copy)
}

/// Writes plain hints, up to a maximum length, to `copy`, which is complete or absent.
fn write<R: Read>(
    dir: &WorkDir<'_>,
    copy: &Path,
    (mut unpacked, max_len): (Unpacked<R>, u64),
    original: &Path,
    (failed, interrupt): (&dyn Fn(io::Error) -> Error, &AtomicBool),
) -> Result<PackedFile, Error> {
    let mut file = AtomicFile::create(dir.disk(), copy.with_extension("part"), copy)?;
    let (mut piece, mut total) = (vec![0; PIECE_LEN], 0);
    loop {
        Error::check_interrupt(interrupt)?;
        let len = match unpacked.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if unpacked.source_has_failed() => return Err(failed(error)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unpacked.damaged(original, &error).into()),
        };
        total += len as u64;
        if total > max_len {
            return Err(Error::damaged(too_long()).in_file(original, None));
        }
        file.write_all(piece.get(..len).unwrap_or_default())?;
    }
    file.commit()?;
    Ok(unpacked.packed())
}

fn too_long() -> String {
    format!("this is longer than hints can be, which is {} at most", HumanSize(MAX_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;
    use vfs::RealDisk;

    /// A few bytes can unpack to many.
    #[test]
    fn what_is_unpacked_is_cut_off_at_a_length() {
        let (root, mut gzip) =
            (tempfile::tempdir().unwrap(), GzEncoder::new(Vec::new(), Compression::best()));
        gzip.write_all(&vec![0; 8 << 20]).unwrap();
        let bomb = gzip.finish().unwrap();
        assert!(bomb.len() < 20_000);
        let dir = WorkDir::new(&RealDisk, root.path().join(HINTS_DIR));
        take(&dir, None).unwrap();
        let (copy, original) = (dir.path().join(hint_copy_name("bomb")), Path::new("bomb"));
        let (failed, never) = (|error| panic!("{error}"), AtomicBool::new(false));
        let write = |max_len| {
            let unpacked = Unpacked::new(bomb.as_slice()).unwrap();
            write(&dir, &copy, (unpacked, max_len), original, (&failed, &never))
        };
        let error = write((8 << 20) - 1).unwrap_err();
        assert_eq!((error.kind, error.file.as_deref()), (ErrorKind::Damaged, Some(original)), "{error}");
        assert!(!copy.exists() && !copy.with_extension("part").exists());
        assert_eq!(write(8 << 20).unwrap().bytes, bomb.len() as u64);
        assert_eq!(std::fs::metadata(&copy).unwrap().len(), 8 << 20);
        dir.remove().unwrap();
        assert!(std::fs::read_dir(root.path()).unwrap().next().is_none());
    }
}

//! A directory of files is complete, or can be completed by a run with the same request.

use peregrine_export::{Columns, Continued, FileFormat, OutputRow, OutputTable, Parts, PartsError};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use testkit::corrupt::snapshot;
use testkit::fault::{Crash, Crashes, FaultDisk, explore};
use vfs::{Disk, RealDisk, UnfinishedError};

const FORMATS: [FileFormat; 3] = [FileFormat::PARQUET, FileFormat::Arrow, FileFormat::Csv];

fn name(number: u32) -> String {
    format!("outputs-{number}")
}

/// How the requests of the program begin.
const REQUEST: &[u8] = b"{\n  \"program\": \"peregrine all";

/// The request of a run that writes this.
fn request_of(what: &str) -> String {
    String::from_utf8_lossy(REQUEST).replace("all", what)
}

/// Writes the files that are missing, of 0 to 2.
fn write(disk: &dyn Disk, path: &Path, format: FileFormat, request: &str) -> Result<u32, PartsError> {
    let request = &request_of(request);
    let (parts, mut written) = (Parts::open(disk, path, request)?, 0);
    for number in 0..3 {
        if parts.complete_len(&name(number))?.is_some() {
            continue;
        }
        let mut file =
            parts.begin::<OutputTable>(&name(number), format, &Columns::all::<OutputTable>(false))?;
        for vout in 0..number * 10 {
            file.add(OutputRow { height: number, vout, txid: [7; 32], ..OutputRow::default() })?;
        }
        file.finish(&[("part", number.to_string())])?;
        written += 1;
    }
    parts.finish(request)?;
    Ok(written)
}

#[test]
fn a_run_completes_what_a_crash_has_left() {
    for format in FORMATS {
        let dir = TempDir::new().unwrap();
        write(&RealDisk, &dir.path().join("whole"), format, "all").unwrap();
        let whole = snapshot(&dir.path().join("whole")).unwrap();
        assert!(whole.keys().eq(["outputs-0", "outputs-1", "outputs-2"].map(Path::new)), "{format}");
        assert_eq!(fs::read(dir.path().join("whole.dataset.json")).unwrap(), REQUEST);
        let (place, kept) = (TempDir::new().unwrap(), AtomicU32::new(0));
        let run = |disk: &FaultDisk| {
            write(disk, &place.path().join("out"), format, "all").unwrap();
        };
        let states = explore(place.path(), Crashes::default(), run, |Crash { dir, what, .. }| {
            let out = dir.path().join("out");
            if out.exists() {
                // Only the last sync, and the removal of the request, follow the rename. The next run, which
                // is refused, removes it.
                write(&RealDisk, &out, format, "all").unwrap_err();
            } else {
                kept.fetch_add(3 - write(&RealDisk, &out, format, "all").unwrap(), Ordering::Relaxed);
            }
            assert_eq!(snapshot(&out).unwrap(), whole, "{format}, {what}");
            assert!(!dir.path().join("out.peregrine-part").exists(), "{format}, {what}");
        });
        assert!(states > 10 && kept.into_inner() > 3, "{format}: {states}");
    }
}

/// Reading the file of a lock again ends the lock, and once another thread did that. The lock of the system
/// excludes only processes, so this test starts itself again as the other one.
#[test]
fn a_directory_that_is_continued_stays_locked() {
    const OTHER: &str = "PEREGRINE_TEST_PARTS";
    let request = &String::from_utf8_lossy(REQUEST);
    let append = |path: &Path| Parts::append(&RealDisk, path, request, |_| Ok(Some(Continued::default())));
    let is_refused = |path: &Path| {
        let errors = [Parts::open(&RealDisk, path, request).err(), append(path).err()];
        errors.iter().all(|error| matches!(error, Some(PartsError::Unfinished(_))))
    };
    if let Some(path) = std::env::var_os(OTHER) {
        std::process::exit(if is_refused(Path::new(&path)) { 10 } else { 11 });
    }
    let (_dir, out) = testkit::fresh_path("out");
    drop(Parts::open(&RealDisk, &out, request).unwrap());
    for begin in [&|path: &Path| Parts::open(&RealDisk, path, request), &append as &dyn Fn(&Path) -> _] {
        let parts = begin(&out).unwrap();
        assert!(is_refused(&out));
        let name = "parts::a_directory_that_is_continued_stays_locked";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", name]).env(OTHER, &out).output().unwrap();
        assert_eq!(output.status.code(), Some(10), "{output:?}");
        drop(parts);
    }
}

#[test]
fn other_requests_and_other_files_are_refused() {
    let (dir, out) = testkit::fresh_path("out");
    let disk = FaultDisk::killed_at(12);
    write(&disk, &out, FileFormat::Csv, "heights 0 to 2").unwrap_err();
    let error = write(&RealDisk, &out, FileFormat::Csv, "heights 0 to 3").unwrap_err();
    assert!(matches!(error, PartsError::OtherRequest(path) if path.ends_with("out.peregrine-part")));
    write(&RealDisk, &out, FileFormat::Csv, "heights 0 to 2").unwrap();
    let error = write(&RealDisk, &out, FileFormat::Csv, "heights 0 to 2").unwrap_err();
    assert!(matches!(error, PartsError::Unfinished(UnfinishedError::Exists(path)) if path == out));
    let mine = dir.path().join("mine.peregrine-part");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("photo"), "").unwrap();
    let error = write(&RealDisk, &dir.path().join("mine"), FileFormat::Csv, "all").unwrap_err();
    assert!(matches!(error, PartsError::OtherRequest(_)));
    assert_eq!(snapshot(&mine).unwrap().len(), 1);
}

/// The advice was to remove it, or to repeat a run up to the height in a file that it lacked.
#[test]
fn a_directory_that_was_complete_before_it_was_continued_is_not_to_be_removed() {
    for at in 0.. {
        let (_dir, out) = testkit::fresh_path("out");
        write(&RealDisk, &out, FileFormat::Csv, "heights 0 to 2").unwrap();
        let continue_on = |disk: &dyn Disk| {
            Parts::append(disk, &out, "heights 0 to 3", |_| Ok(Some(Continued::default()))).is_ok()
        };
        let is_begun = continue_on(&FaultDisk::killed_at(at));
        let error = write(&RealDisk, &out, FileFormat::Csv, "heights 0 to 4").unwrap_err();
        assert!(out.exists() || matches!(error, PartsError::WasComplete(_)), "change {at}: {error}");
        assert!(continue_on(&RealDisk), "change {at}");
        if is_begun {
            assert!(!out.exists() && at > 5, "{at}");
            break;
        }
    }
}

/// A file in a folder, which a longer one takes the place of.
const GROWN: &str = "from_height=2/outputs";
/// A file that is new, as is its folder.
const NEXT: &str = "from_height=3/outputs";

/// Writes the first one.
fn write_grown(parts: &Parts<'_>, rows: u32) -> u64 {
    let columns = Columns::all::<OutputTable>(false);
    let mut file = parts.begin::<OutputTable>(GROWN, FileFormat::Csv, &columns).unwrap();
    for vout in 0..rows {
        file.add(OutputRow { vout, ..OutputRow::default() }).unwrap();
    }
    file.finish(&[]).unwrap()
}

/// Makes a complete directory whose file has one row. Returns the size of that file.
fn make_small(path: &Path) -> u64 {
    let parts = Parts::open(&RealDisk, path, &request_of("1")).unwrap();
    let len = write_grown(&parts, 1);
    parts.finish(&request_of("1")).unwrap();
    len
}

/// Continues the directory for a file with two rows, in place of that with one, which has `small` bytes.
fn grow<'d>(disk: &'d dyn Disk, path: &Path, small: u64) -> Parts<'d> {
    let continued = |found: &[u8]| {
        let is_small = found == request_of("1").as_bytes();
        let (name, to_come) = (GROWN.to_owned(), vec![GROWN.to_owned(), NEXT.to_owned()]);
        let outdated = if is_small { vec![name.clone()] } else { Vec::new() };
        let next = (!is_small).then(|| (NEXT.to_owned(), None));
        let files = [(name, is_small.then_some(small))].into_iter().chain(next).collect();
        Ok(Some(Continued { files, outdated, to_come }))
    };
    Parts::append(disk, path, &request_of("2"), continued).unwrap()
}

/// Once, a block that could not be read took the complete directory away, and its last file. Later, the
/// folder of a new file stayed.
#[test]
fn a_run_that_completes_no_file_leaves_the_directory_as_it_was() {
    let (dir, out) = testkit::fresh_path("out");
    let small = make_small(&out);
    let before = snapshot(dir.path()).unwrap();
    let parts = grow(&RealDisk, &out, small);
    assert!(parts.complete_len(GROWN).unwrap().is_none() && !out.exists());
    drop(parts.begin::<OutputTable>(NEXT, FileFormat::Csv, &Columns::all::<OutputTable>(false)).unwrap());
    drop(parts);
    assert_eq!(snapshot(dir.path()).unwrap(), before);
    assert!(!out.join(NEXT).parent().unwrap().exists() && out.join(GROWN).exists());
    let parts = grow(&RealDisk, &out, small);
    write_grown(&parts, 2);
    drop(parts);
    // What it has completed stays, and so do the rows of before until all is complete.
    let left = snapshot(&dir.path().join("out.peregrine-part")).unwrap();
    assert!(!out.exists() && left.values().any(|bytes| before.values().any(|file| file == bytes)));
    let parts = grow(&RealDisk, &out, small);
    assert!(parts.complete_len(GROWN).unwrap() > Some(small));
    parts.finish(&request_of("2")).unwrap();
    assert!(snapshot(&out).unwrap().keys().eq([Path::new(GROWN)]));
}

/// Once, a run that did not get the lock took the directory away from the one that had it.
#[test]
fn a_directory_that_another_run_has_locked_stays() {
    let (_dir, out) = testkit::fresh_path("out");
    make_small(&out);
    let request = out.with_extension("peregrine-part").join("dataset.json");
    let (path, mut other) = (request.clone(), None);
    let disk = FaultDisk::healthy().watched(request.clone(), move || {
        other = other.take().or_else(|| RealDisk.lock(&path).unwrap());
    });
    let error = Parts::append(&disk, &out, &request_of("2"), |_| Ok(Some(Continued::default()))).err();
    assert!(matches!(error, Some(PartsError::Unfinished(UnfinishedError::Refused { .. }))), "{error:?}");
    assert!(!out.exists() && request.exists());
}

/// Once, a power cut brought the shorter file back, and the next run took it for a complete one.
#[test]
fn no_crash_makes_an_outdated_file_a_complete_one() {
    let place = TempDir::new().unwrap();
    let small = make_small(&place.path().join("out"));
    let complete = |disk: &dyn Disk, path: &Path| {
        let parts = grow(disk, path, small);
        if parts.complete_len(GROWN).unwrap().is_none() {
            write_grown(&parts, 2);
        }
        parts.complete_len(GROWN).unwrap();
        parts.finish(&request_of("2")).unwrap();
    };
    let run = |disk: &FaultDisk| complete(disk, &place.path().join("out"));
    let crashes = Crashes { cuts: 8, ..Crashes::default() };
    let states = explore(place.path(), crashes, run, |Crash { dir, what, .. }| {
        let out = dir.path().join("out");
        complete(&RealDisk, &out);
        let found = snapshot(&out).unwrap();
        assert!(found.keys().eq([Path::new(GROWN)]), "{what}: {:?}", found.keys());
        let text = String::from_utf8_lossy(&found[Path::new(GROWN)]);
        assert_eq!(text.lines().count(), 3, "{what}");
    });
    assert!(states > 10, "{states}");
}

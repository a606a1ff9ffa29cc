//! Helpers of the tests that start a program.

use std::path::{Path, PathBuf};
use testkit::corrupt::snapshot;

/// The program to measure. A test run of the whole workspace builds it; without it, tests that need it are
/// skipped.
pub fn peregrine() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_peregrine-bench")).with_file_name("peregrine");
    let exists = path.is_file();
    if !exists {
        testkit::data::skip(format!("there is no {}: cargo build -p peregrine", path.display()));
    }
    exists.then_some(path)
}

/// Block files, without the lock files.
pub fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = snapshot(dir).unwrap().into_iter();
    all.filter(|(path, _)| !path.ends_with(".lock") && !path.ends_with("LOCK")).collect()
}

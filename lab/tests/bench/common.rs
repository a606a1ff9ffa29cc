//! Helpers of the tests that start a program.

use crate::prelude::*;

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

/// Parses the report of a command that has succeeded.
#[track_caller]
pub fn done(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks the exit code of a command, and that its messages contain these words.
#[track_caller]
pub fn refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "no {word:?} in {stderr}"));
}

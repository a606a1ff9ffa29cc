//! What tests need and a machine may not have: real data, and Bitcoin Core's sources. A test that lacks
//! something is skipped, and says so here, so that `.ci/test` can list it.
#![forbid(unsafe_code)]

use std::{
    env,
    fmt::Display,
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

/// Records that the calling test, or a part of it, is skipped, and why: on stdout, which cargo shows with
/// `--nocapture`, and at the end of the file that PEREGRINE_SKIPS names.
///
/// # Panics
/// If the file cannot be written.
pub fn skip(reason: impl Display) {
    let reason = reason.to_string().replace('\n', " ");
    println!("skipped: {reason}");
    if let Some(path) = env::var_os("PEREGRINE_SKIPS") {
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{test}: {reason}\n").as_bytes()));
        written.expect("PEREGRINE_SKIPS names a file that can be written");
    }
}

/// Returns a file or folder of the shared test data: below `$PEREGRINE_DATA`, else `../shared/data` beside
/// the workspace. If it is missing, the test is skipped.
pub fn shared_data(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = env::var_os("PEREGRINE_DATA").map_or_else(beside, PathBuf::from).join(name);
    if !path.exists() {
        skip(format!("there is no shared test data at {}; PEREGRINE_DATA names its folder", path.display()));
    }
    path.exists().then_some(path)
}

/// Returns the folder of Bitcoin Core's sources in `libbitcoinkernel-sys`. If cargo has not downloaded that
/// crate, the test is skipped.
pub fn core_sources() -> Option<PathBuf> {
    let output = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let host = output("rustc", &["-vV"]).and_then(|text| Some(text.split_once("host: ")?.1.to_owned()));
    let host = host.unwrap_or_default();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let words = ["metadata", "--format-version=1", "--offline", "--locked", "--manifest-path", manifest];
    let filter = ["--filter-platform", host.lines().next().unwrap_or_default()];
    let metadata = output(env!("CARGO"), &[&words[..], &filter].concat()).unwrap_or_default();
    let mut names = metadata.split('"').map(Path::new);
    let is_of_kernel = |path: &Path| path.to_string_lossy().contains("/libbitcoinkernel-sys-");
    let found = names.find(|path| path.ends_with("Cargo.toml") && is_of_kernel(path));
    if found.is_none() {
        skip("cargo has not downloaded libbitcoinkernel-sys, which has Bitcoin Core's sources: cargo fetch");
    }
    Some(found?.with_file_name("bitcoin"))
}

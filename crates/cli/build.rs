//! Finds out which commit the sources are of, for `peregrine --version` and the logs of runs.
//!
//! In this order: the environment variable PEREGRINE_COMMIT, which packages set that are built from something
//! else; the file that cargo adds to a packed crate; the file that `git archive` fills in; the git checkout.
//! The crate gets the commit as PEREGRINE_COMMIT, empty if none of them has it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo:rerun-if-env-changed=PEREGRINE_COMMIT");
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = package.join("../..");
    let commit = env::var("PEREGRINE_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(|| of_packed_crate(&package))
        .or_else(|| of_archive(&root))
        .or_else(|| of_checkout(&root));
    println!("cargo:rustc-env=PEREGRINE_COMMIT={}", commit.unwrap_or_default());
}

/// Returns the commit that a packed crate was made from.
pub fn of_packed_crate(package: &Path) -> Option<String> {
    let info = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, value) = info.split_once("\"sha1\"")?;
    value.split('"').nth(1).map(str::to_owned)
}

/// Returns the commit that an archive of the sources was made from.
pub fn of_archive(root: &Path) -> Option<String> {
    let commit = fs::read_to_string(root.join("packaging/commit")).ok()?;
    let is_filled_in = commit.trim().bytes().all(|byte| byte.is_ascii_hexdigit());
    is_filled_in.then(|| commit.trim().to_owned())
}

/// Returns the commit that is checked out.
pub fn of_checkout(root: &Path) -> Option<String> {
    // Without it, git would look further up, and find the repository of others.
    if !root.join(".git").exists() {
        return None;
    }
    // The log has a new line after each commit.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "HEAD"])
}

/// Runs git, also in a checkout that belongs to another user. Returns what it prints, if it succeeds.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let output = command.args(["-c", "safe.directory=*", "-C"]).arg(root).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

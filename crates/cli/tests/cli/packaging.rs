//! The version and its commit, in a checkout, a packed crate and an archive.

#[allow(dead_code, reason = "the rest of the build script runs before this is compiled")]
#[path = "../../build.rs"]
mod build_script;

use crate::prelude::*;
use build_script::{of_archive, of_checkout, of_packed_crate};

/// Returns what git prints about this checkout; `None` if this is none.
fn git(args: &[&str]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("git").args(args).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn the_version_has_the_commit() {
    let printed = |flag| done(peregrine(&[flag]));
    assert_eq!(printed("-V"), concat!("peregrine ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = printed("--version");
    assert!(long.starts_with(&printed("-V")), "{long}");
    let commit = long.lines().find_map(|line| line.strip_prefix("commit       ")).unwrap();
    let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{commit}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if root.join(".git").exists() && std::env::var_os("PEREGRINE_COMMIT").is_none() {
        assert_eq!(Some(commit.to_owned()), git(&["rev-parse", "HEAD"]));
    }
}

#[test]
fn the_commit_is_that_of_a_packed_crate_or_an_archive_and_not_of_other_repositories() {
    let dir = TempDir::new().unwrap();
    let (commit, package) = ("0123456789abcdef0123456789abcdef01234567", dir.path());
    assert_eq!((of_packed_crate(package), of_archive(package), of_checkout(package)), (None, None, None));
    let info = format!(
        "{{\n  \"git\": {{\n    \"sha1\": \"{commit}\"\n  }},\n  \"path_in_vcs\": \"crates/cli\"\n}}"
    );
    fs::write(package.join(".cargo_vcs_info.json"), info).unwrap();
    assert_eq!(of_packed_crate(package).as_deref(), Some(commit));
    fs::create_dir(package.join("packaging")).unwrap();
    fs::write(package.join("packaging/commit"), "$Format:%H$\n").unwrap();
    assert_eq!(of_archive(package), None, "this is no archive");
    fs::write(package.join("packaging/commit"), format!("{commit}\n")).unwrap();
    assert_eq!(of_archive(package).as_deref(), Some(commit));
    let attributes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.gitattributes");
    assert!(fs::read_to_string(attributes).unwrap().contains("packaging/commit export-subst"));
}

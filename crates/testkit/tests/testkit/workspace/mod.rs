//! The packages of the workspace and of the laboratory, as cargo reports them, and the sources.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Returns the packages of the workspace and of the laboratory, which is a workspace of its own.
pub fn packages() -> Vec<Value> {
    ["Cargo.toml", "lab/Cargo.toml"].into_iter().flat_map(packages_of).collect()
}

fn packages_of(manifest: &str) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"]);
    let output = command.arg(root().join(manifest)).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// Returns the name of a package or dependency inside the project, which is the name of its folder.
pub fn name(value: &Value) -> &str {
    match value["name"].as_str().expect("a name") {
        "peregrine" => "cli",
        "peregrine-bench" => "peregrine-bench",
        name => name.strip_prefix("peregrine-").unwrap_or(name),
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files and folders of the project, relative to its root.
pub fn project() -> BTreeSet<PathBuf> {
    let (mut open, mut found) = (vec![root()], BTreeSet::new());
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).expect("folders can be listed") {
            let path = entry.expect("folders can be listed").path();
            if path.ends_with("target") || path.ends_with(".git") {
                continue;
            }
            found.insert(path.strip_prefix(root()).expect("it is below the root").to_owned());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    assert!(found.len() > 500, "the project was not found");
    found
}

/// Returns the files of the project that match `is_wanted`, each with its text.
pub fn texts(is_wanted: impl Fn(&Path) -> bool) -> Vec<(PathBuf, String)> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).expect("files can be read");
        (path, text)
    };
    project().into_iter().filter(|path| is_wanted(path)).map(read).collect()
}

pub fn sources() -> &'static [(PathBuf, String)] {
    static SOURCES: LazyLock<Vec<(PathBuf, String)>> =
        LazyLock::new(|| texts(|path| path.extension().is_some_and(|extension| extension == "rs")));
    &SOURCES
}

//! The packages of the workspace, as cargo reports them, and its sources.

use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the packages of the workspace.
pub fn packages() -> Vec<Value> {
    let manifest = root().join("Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// Returns the name of a package or dependency inside the workspace, which is the name of its folder.
pub fn name(value: &Value) -> &str {
    match value["name"].as_str().expect("a name") {
        "peregrine" => "cli",
        "peregrine-bench" => "peregrine-bench",
        name => name.strip_prefix("peregrine-").unwrap_or(name),
    }
}

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all sources, with their paths below the root.
pub fn sources() -> Vec<(PathBuf, String)> {
    let mut open: Vec<PathBuf> = ["crates", "oracle", "bench", "hostile", "tools", "fuzz"]
        .iter()
        .map(|dir| root().join(dir))
        .collect();
    let mut found = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.expect("folders can be listed").path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources can be read");
                found.push((path.strip_prefix(root()).expect("it is below the root").to_owned(), text));
            }
        }
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}

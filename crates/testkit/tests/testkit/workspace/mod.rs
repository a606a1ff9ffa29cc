//! The packages of the workspace, as cargo reports them.

use serde_json::Value;
use std::{path::Path, process::Command};

/// Returns the packages of the workspace.
pub fn packages() -> Vec<Value> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
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

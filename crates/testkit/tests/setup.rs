//! How `.ci/setup` gets Rust, on machines that are made up of scripts in place of `cargo`, `rustup` and so
//! on.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
};
use tempfile::TempDir;

/// A machine with a compiler and `apt-get`, but no Rust.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { dir: TempDir::new().unwrap() };
        fs::create_dir_all(machine.dir.path().join("bin")).unwrap();
        fs::create_dir_all(machine.dir.path().join("home")).unwrap();
        let found = |name: &str| {
            let path = std::env::var_os("PATH").unwrap();
            std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
        };
        for name in
            ["bash", "cat", "chmod", "cut", "dirname", "env", "grep", "id", "mkdir", "sed", "sh", "sort"]
        {
            symlink(found(name).unwrap(), machine.dir.path().join("bin").join(name)).unwrap();
        }
        for name in ["cc", "c++", "cmake"] {
            machine.program("bin", name, "true");
        }
        machine.program("bin", "sudo", "exec \"$@\"");
        machine.program("bin", "apt-get", "echo \"apt-get $*\"");
        machine.program("bin", "apt-cache", "echo '  Candidate: (none)'");
        machine.program("bin", "curl", "cat \"$HOME/installer\"");
        machine.program("home", "installer", "echo \"installer $*\" && . \"$HOME/new-rust\"");
        let new_rust = "mkdir -p \"$HOME/.cargo/bin\"; for name in cargo rustc; do \
                        echo \"echo $name 1.999.0\" > \"$HOME/.cargo/bin/$name\"; \
                        chmod +x \"$HOME/.cargo/bin/$name\"; done";
        machine.program("home", "new-rust", new_rust);
        machine
    }

    fn program(&self, folder: &str, name: &str, script: &str) {
        write_program(&self.dir.path().join(folder).join(name), script);
    }

    /// Installs a cargo of that version in the system's folder.
    fn with_cargo(self, version: &str) -> Self {
        for name in ["cargo", "rustc"] {
            self.program("bin", name, &format!("echo {name} {version}"));
        }
        self
    }

    /// Runs `.ci/setup`. Returns whether it succeeded, and what it printed.
    fn set_up(&self) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/setup");
        let mut command = Command::new("bash");
        command.arg(script).env_clear();
        command.env("PATH", self.dir.path().join("bin")).env("HOME", self.dir.path().join("home"));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

fn write_program(file: &Path, script: &str) {
    fs::write(file, format!("#!/usr/bin/env sh\n{script}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_cargo_that_is_new_enough_is_used() {
    for version in [env!("CARGO_PKG_RUST_VERSION"), "1.100.2", "2.0.0-nightly"] {
        let (succeeded, text) = Machine::new().with_cargo(version).set_up();
        assert!(succeeded && !text.contains("Rust"), "{version}: {text}");
    }
}

#[test]
fn an_old_cargo_without_rustup_stays_and_the_official_installer_is_run_once() {
    let machine = Machine::new().with_cargo("1.65.0");
    let (succeeded, text) = machine.set_up();
    assert!(succeeded && text.contains("found: rustc 1.65.0"), "{text}");
    assert!(text.contains("installer -y") && !text.contains("install -y -qq rustup"), "{text}");
    let (succeeded, text) = machine.set_up();
    assert!(succeeded && !text.contains("Rust"), "{text}");
}

#[test]
fn debians_rustup_is_installed_where_it_exists_and_there_is_no_cargo() {
    let machine = Machine::new();
    machine.program("bin", "apt-cache", "echo '  Candidate: 1.27.1-3'");
    machine.program("home", "rustup", "echo \"rustup $*\" && . \"$HOME/new-rust\"");
    let install = "case \"$*\" in *rustup*) mkdir -p \"$HOME/.cargo/bin\"; cd \"$HOME/.cargo/bin\"; \
                   sed '' \"$HOME/rustup\" > rustup; chmod +x rustup;; esac";
    machine.program("bin", "apt-get", install);
    let (succeeded, text) = machine.set_up();
    assert!(succeeded && text.contains("installing: rustup"), "{text}");
    assert!(text.contains("rustup toolchain install stable") && !text.contains("installer"), "{text}");
}

#[test]
fn a_rustup_with_an_old_toolchain_installs_the_stable_one() {
    let machine = Machine::new().with_cargo("1.80.1");
    machine.program("bin", "rustup", "echo \"rustup $*\" && . \"$HOME/new-rust\"");
    let (succeeded, text) = machine.set_up();
    assert!(succeeded && text.contains("rustup toolchain install stable"), "{text}");
    assert!(text.contains("rustup default stable") && !text.contains("installer"), "{text}");
}

#[test]
fn an_installer_that_fails_is_an_error_with_advice() {
    let without_connection = Machine::new();
    without_connection.program("bin", "curl", "exit 6");
    let with_rustup = Machine::new().with_cargo("1.80.1");
    with_rustup.program("bin", "rustup", "exit 1");
    for machine in [without_connection, with_rustup] {
        let (succeeded, text) = machine.set_up();
        assert!(!succeeded && text.contains("Rust could not be installed"), "{text}");
        assert!(text.contains(env!("CARGO_PKG_RUST_VERSION")) && !text.contains("still"), "{text}");
    }
}

#[test]
fn an_installer_that_installs_nothing_is_an_error() {
    let machine = Machine::new();
    machine.program("home", "new-rust", "true");
    let (succeeded, text) = machine.set_up();
    assert!(!succeeded && text.contains("cargo is still missing"), "{text}");
}

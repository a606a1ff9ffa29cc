//! What review should not have to say: length of lines and files, leftovers, openings, unsafe code.

use std::path::{Path, PathBuf};

/// Most characters of a line.
const LINE: usize = 110;
/// Most lines of a file.
const FILE: usize = 700;
/// Crates that may contain unsafe code: SIMD only.
const UNSAFE: &[&str] = &["digest"];
/// Where absolute paths in string literals may lead: the operating system's own.
const SYSTEM: &[&str] = &["proc", "sys", "dev"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources() -> Vec<(PathBuf, String)> {
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
    assert!(found.len() > 50, "the sources are where this test looks");
    found
}

/// Runs `check` over all lines and reports each at once.
fn assert_no_line(what: &str, check: impl Fn(&str) -> bool) {
    let mut flaws = String::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| check(line)) {
            flaws += &format!("\n{}:{}: {}", path.display(), number + 1, line.trim());
        }
    }
    assert!(flaws.is_empty(), "{what}:{flaws}");
}

#[test]
fn lines_are_short() {
    assert_no_line("lines are too long", |line| line.chars().count() > LINE);
}

#[test]
fn files_are_short() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= FILE, "{} has {lines} lines, more than {FILE}: split it", path.display());
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not hold them.
    let words = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X:"],
        ["to", "do!("],
        ["unimple", "mented!("],
        ["#[ig", "nore"],
    ];
    let words = words.map(|parts| parts.concat());
    assert_no_line("leftovers", |line| words.iter().any(|word| line.contains(word)));
}

#[test]
fn paths_of_one_machine_stay_out() {
    assert_no_line("absolute paths", |line| {
        line.match_indices("\"/").any(|(at, _)| {
            let rest = &line[at + 2..];
            let first = rest.split(['/', '"']).next().unwrap_or_default();
            let is_path = rest[first.len()..].starts_with('/');
            let is_name = !first.is_empty() && first.chars().all(|c| c.is_ascii_lowercase());
            is_path && is_name && !SYSTEM.contains(&first) && first != "peregrine"
        })
    });
}

#[test]
fn every_module_opens_with_its_purpose() {
    for (path, text) in sources() {
        let first = text.lines().find(|line| !line.starts_with("#!")).unwrap_or_default();
        assert!(first.starts_with("//!"), "{} does not open with //!", path.display());
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_its_rooms() {
    for (path, text) in sources() {
        let file = path.file_name().unwrap().to_str().unwrap();
        let in_src = path.parent().is_some_and(|dir| dir.ends_with("src"));
        let room = path.iter().rev().nth(2).and_then(|room| room.to_str()).unwrap_or_default();
        if in_src && file == "lib.rs" && !UNSAFE.contains(&room) {
            assert!(text.contains("#![forbid(unsafe_code)]"), "{} must forbid unsafe code", path.display());
        }
    }
}

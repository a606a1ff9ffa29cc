//! Style rules of the sources: length of lines and files, leftovers, absolute paths, module comments, unsafe
//! code.

use std::path::{Path, PathBuf};

/// Maximum number of characters in a line.
const MAX_LINE_LEN: usize = 110;
/// Maximum number of lines in a file.
const MAX_LINES: usize = 700;
/// Crates that may contain unsafe code: SIMD only.
const UNSAFE: &[&str] = &["digest"];
/// Top-level directories that absolute paths in string literals may name: the operating system's own.
const SYSTEM_DIRS: &[&str] = &["proc", "sys", "dev"];

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
    assert!(found.len() > 50, "the sources were not found");
    found
}

/// Fails if `is_wrong` returns true for any line, and lists all these lines.
fn assert_no_line(what: &str, is_wrong: impl Fn(&str) -> bool) {
    let mut found_lines = String::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| is_wrong(line)) {
            found_lines += &format!("\n{}:{}: {}", path.display(), number + 1, line.trim());
        }
    }
    assert!(found_lines.is_empty(), "{what}:{found_lines}");
}

#[test]
fn lines_are_short() {
    assert_no_line("lines are too long", |line| line.chars().count() > MAX_LINE_LEN);
}

#[test]
fn files_are_short() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines, more than {MAX_LINES}: split it", path.display());
    }
}

#[test]
fn no_leftovers() {
    // Assembled here, so that this file does not contain them.
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
fn no_absolute_paths() {
    assert_no_line("absolute paths", |line| {
        line.match_indices("\"/").any(|(at, _)| {
            let rest = &line[at + 2..];
            let first = rest.split(['/', '"']).next().unwrap_or_default();
            let is_path = rest[first.len()..].starts_with('/');
            let is_name = !first.is_empty() && first.chars().all(|c| c.is_ascii_lowercase());
            is_path && is_name && !SYSTEM_DIRS.contains(&first) && first != "peregrine"
        })
    });
}

#[test]
fn every_module_starts_with_a_doc_comment() {
    for (path, text) in sources() {
        let first = text.lines().find(|line| !line.starts_with("#!")).unwrap_or_default();
        assert!(first.starts_with("//!"), "{} does not start with //!", path.display());
    }
}

#[test]
fn unsafe_code_is_forbidden_in_other_crates() {
    for (path, text) in sources() {
        let file = path.file_name().unwrap().to_str().unwrap();
        let in_src = path.parent().is_some_and(|dir| dir.ends_with("src"));
        let crate_dir = path.iter().rev().nth(2).and_then(|dir| dir.to_str()).unwrap_or_default();
        if in_src && file == "lib.rs" && !UNSAFE.contains(&crate_dir) {
            assert!(text.contains("#![forbid(unsafe_code)]"), "{} must forbid unsafe code", path.display());
        }
    }
}

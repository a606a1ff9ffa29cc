//! Style rules of the sources: length of lines and files, leftovers, absolute paths, module comments, unsafe
//! code.

use crate::workspace::sources;
use proc_macro2::{TokenStream, TokenTree};
use syn::Lit;

/// Maximum number of characters in a line.
const MAX_LINE_LEN: usize = 110;
/// Maximum number of lines in a file.
const MAX_LINES: usize = 700;
/// Crates that may contain unsafe code: SIMD only.
const UNSAFE: &[&str] = &["digest", "sha256d"];
/// Top-level directories that absolute paths in string literals may name: the operating system's own.
const SYSTEM_DIRS: &[&str] = &["proc", "sys", "dev", "var"];

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

/// A thread that the system refuses is an error of `chain::threads::spawn`, and a panic of the standard
/// library's short form.
#[test]
fn threads_that_cannot_start_are_errors() {
    let (short, helpers) = (["scope", ".spawn("].concat(), ["testkit", "acceptance"]);
    for (path, text) in sources() {
        let [first, name, folder] = [0, 1, 2].map(|at| path.iter().nth(at).and_then(|it| it.to_str()));
        let is_product = first == Some("crates") && folder == Some("src");
        if is_product && name.is_some_and(|name| !helpers.contains(&name)) && !path.ends_with("tests.rs") {
            let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            assert!(!product.contains(&short), "{}", path.display());
        }
    }
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

/// Adds the string literals among these tokens to `found`, without documentation.
fn add_string_literals(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_doc = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_string_literals(group.stream(), found),
            TokenTree::Ident(ident) => is_doc = ident == "doc",
            TokenTree::Literal(literal) if !is_doc => {
                if let Lit::Str(text) = Lit::new(literal) {
                    found.push(text.value());
                }
            }
            _ => {}
        }
    }
}

/// Whether a text names a flag of a command line.
fn names_flag(text: &str) -> bool {
    text.match_indices("--").any(|(at, _)| {
        let is_word = text[..at].chars().next_back().is_none_or(|c| c == ' ' || c == '(');
        is_word && text[at + 2..].starts_with(|c: char| c.is_ascii_alphabetic())
    })
}

/// Only the command line has flags: libraries say what happened and offer remedies as data. Tests that start
/// their own program need flags of the test runner.
#[test]
fn only_the_command_line_names_flags() {
    let mut found = String::new();
    for (path, text) in sources() {
        let is_program = path.starts_with("crates/cli") || path.ends_with("testkit/src/main.rs");
        // The table of remedies has the command line's words too; the others start cargo and cp.
        let may = ["api/src/remedy.rs", "testdata/src/lib.rs", "testkit/src/node/datadirs.rs"];
        let is_program = is_program || may.iter().any(|file| path.ends_with(file));
        let is_library = path.starts_with("crates") && path.iter().any(|part| part == "src");
        if !is_library || is_program || path.ends_with("tests.rs") {
            continue;
        }
        let library = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut literals = Vec::new();
        add_string_literals(library.parse().expect("it is Rust"), &mut literals);
        for literal in literals.iter().filter(|text| names_flag(text)) {
            found += &format!("\n{}: {literal}", path.display());
        }
    }
    assert!(found.is_empty(), "libraries that name flags:{found}");
    let mut literals = Vec::new();
    add_string_literals(
        r##"f(r"a", '"', "--bc"); #[doc = "--d"] g("\"e --f")"##.parse().unwrap(),
        &mut literals,
    );
    assert_eq!(literals, ["a", "--bc", "\"e --f"]);
    assert_eq!(literals.iter().map(|text| names_flag(text)).collect::<Vec<_>>(), [false, true, true]);
}

/// Words that an earlier dialect of this project used for persons, pictures or several things at once
/// (`docs/glossary.md` has the words to use).
#[test]
fn comments_and_texts_use_the_words_of_the_glossary() {
    let this_file = "tests/testkit/tidy.rs";
    let words = ["whoever", "whomever", "misfit", "gone on with", "by hints", "ledger", "purse", "attic"];
    let is_word = |text: &str, word: &str| {
        text.match_indices(word).any(|(at, _)| {
            let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
            ends(text[..at].chars().next_back()) && ends(text[at + word.len()..].chars().next())
        })
    };
    let mut found = String::new();
    for (path, text) in sources().iter().filter(|(path, _)| !path.ends_with(this_file)) {
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            let prose = line.contains("//") || line.contains('"');
            for word in words.iter().filter(|word| prose && is_word(&line, word)) {
                found += &format!("\n{}:{}: {word}", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "words that the glossary replaces:{found}");
}

/// "Of each thread." or "As the other." is no sentence, and no phrase that documentation of Rust uses.
#[test]
fn doc_comments_do_not_begin_as_fragments() {
    let mut found = String::new();
    for (path, text) in sources() {
        let mut before = "";
        for (number, line) in text.lines().map(str::trim).enumerate() {
            let doc = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
            let opens = !before.starts_with("///") && !before.starts_with("//!");
            let is_fragment =
                |doc: &str| (doc.starts_with("Of ") || doc.starts_with("As ")) && doc.split(' ').count() < 6;
            if doc.is_some_and(|doc| opens && is_fragment(doc)) {
                found += &format!("\n{}:{}: {line}", path.display(), number + 1);
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "doc comments that are no sentences:{found}");
}

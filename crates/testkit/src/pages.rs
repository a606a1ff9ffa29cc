//! Pages and tables of the documentation that tests write.

use std::{env, fs, path::Path};

/// Asserts that a file of the documentation has this text; with `UPDATE_DOCS`, writes it.
///
/// # Panics
/// If it has another one.
#[track_caller]
pub fn assert_file(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).expect("the file can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{file} is out of date; run this test with UPDATE_DOCS=1");
}

/// Asserts that a table with a name in a page of the documentation is this one; with `UPDATE_DOCS`, puts it
/// there.
///
/// # Panics
/// If it is another one, or the page has none of this name.
#[track_caller]
pub fn assert_named_table(page: &str, name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(&path).expect("the page");
    let (begin, end) = (&format!("<!-- {name} -->\n"), &format!("<!-- end of {name} -->\n"));
    let (head, rest) = text.split_once(begin).expect("its table");
    let (old, tail) = rest.split_once(end).expect("its end");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).expect("the page");
    } else {
        assert_eq!(old, table, "{page} is out of date; run this test with UPDATE_DOCS=1");
    }
}

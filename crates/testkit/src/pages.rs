//! Tables of the documentation that tests write.

use std::path::Path;

/// Asserts that a table with a name in a page of the documentation is this one; with `UPDATE_DOCS`, puts it
/// there.
///
/// # Panics
/// If it is another one, or the page has none of this name.
#[track_caller]
pub fn assert_named_table(page: &str, name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&path).expect("the page");
    let (begin, end) = (&format!("<!-- {name} -->\n"), &format!("<!-- end of {name} -->\n"));
    let (head, rest) = text.split_once(begin).expect("its table");
    let (old, tail) = rest.split_once(end).expect("its end");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).expect("the page");
    } else {
        assert_eq!(old, table, "{page} is out of date; run this test with UPDATE_DOCS=1");
    }
}

//! Tables of the documentation in which every cell is the result of a run: of one of the rows, which a
//! datadir can be like, with one of the columns, which is a command.

use crate::prelude::*;
use std::fmt::Write as _;
use testkit::pages::assert_named_table;

/// Asserts that a page has a table with this name, whose cells `cell` returns for the numbers of its row and
/// its column; `corner` says what the rows are. With `UPDATE_DOCS`, puts it there.
#[track_caller]
pub fn assert_table(
    page: &str,
    name: &str,
    corner: &str,
    rows: &[&str],
    columns: &[&str],
    cell: impl Fn(usize, usize) -> String,
) {
    let line = |first: &str, others: Vec<String>| format!("| {first} | {} |\n", others.join(" | "));
    let mut table = line(corner, columns.iter().map(|column| quoted(column)).collect());
    let _ = writeln!(table, "| --- |{}", " --- |".repeat(columns.len()));
    for (row, what) in rows.iter().enumerate() {
        table += &line(what, (0..columns.len()).map(|column| cell(row, column)).collect());
    }
    assert_named_table(page, name, &table);
}

/// A cell with the exit code of a command that refuses, in bold type.
///
/// # Panics
/// If it is none with which a command refuses.
pub fn refuses(error: &Error, what: &str) -> String {
    let code = match error.kind {
        ErrorKind::Usage => 2,
        ErrorKind::Damaged => 4,
        ErrorKind::Environment => 5,
        kind => panic!("{what}: {kind:?} {error}"),
    };
    format!("**{code}**")
}

/// A command as code, unless the text has code already.
fn quoted(text: &str) -> String {
    if text.contains('`') { text.to_owned() } else { format!("`{text}`") }
}

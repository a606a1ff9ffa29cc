//! Tables of the documentation in which every cell is the result of a run: of one of the rows, which a
//! datadir can be like, with one of the columns, which is a command.

use engine::{Error, ErrorKind};
use std::fmt::Write as _;
use testkit::pages::assert_named_table;

/// A table, and how its cells are found.
pub struct Matrix<'a, R, C> {
    /// The page.
    pub page: &'a str,
    /// Name of the table in the page.
    pub name: &'a str,
    /// What the rows are.
    pub corner: &'a str,
    /// The rows.
    pub rows: &'a [R],
    /// The columns.
    pub columns: &'a [C],
    /// Returns the text of a row.
    pub of_row: fn(&R) -> &'static str,
    /// Returns the text of a column.
    pub of_column: fn(&C) -> &'static str,
    /// Runs a cell, and returns its text.
    pub cell: &'a dyn Fn(&R, &C) -> String,
}

impl<R, C> Matrix<'_, R, C> {
    /// Asserts that the page has this table; with `UPDATE_DOCS`, puts it there.
    #[track_caller]
    pub fn assert_is_documented(&self) {
        let Self { rows, columns, .. } = self;
        let line = |first: &str, others: Vec<String>| format!("| {first} | {} |\n", others.join(" | "));
        let head = columns.iter().map(|column| quoted((self.of_column)(column)));
        let mut table = line(self.corner, head.collect());
        let _ = writeln!(table, "| --- |{}", " --- |".repeat(columns.len()));
        for row in *rows {
            let cells = columns.iter().map(|column| (self.cell)(row, column));
            table += &line((self.of_row)(row), cells.collect());
        }
        assert_named_table(self.page, self.name, &table);
    }
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

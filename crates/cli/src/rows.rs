//! The lines of a report: most have a label and a value.

use std::fmt::{self, Display};

/// What begins the further lines of a value: it has the width of a label.
const NEXT_LINE: &str = "\n                   ";

/// The lines of a report.
#[derive(Default)]
pub struct Rows(Vec<String>);

impl Rows {
    /// Adds a line that has no label.
    pub fn line(mut self, text: impl Display) -> Self {
        self.0.push(text.to_string());
        self
    }

    /// Adds a row. Further lines of the value stand below the first one.
    pub fn row(self, label: &str, value: impl Display) -> Self {
        self.line(format!("{label:<18} {}", value.to_string().replace('\n', NEXT_LINE)))
    }

    /// Adds a row for each value: for an `Option`, if there is one.
    pub fn each<T: Display>(self, label: &str, values: impl IntoIterator<Item = T>) -> Self {
        values.into_iter().fold(self, |rows, value| rows.row(label, value))
    }

    /// Adds the rows of another report.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Adds another report after an empty line.
    pub fn then(self, other: Self) -> Self {
        self.line("").and(other)
    }

    /// Reports of the same kind, with empty lines between them.
    pub fn all(reports: impl IntoIterator<Item = Self>) -> Self {
        reports.into_iter().reduce(Self::then).unwrap_or_default()
    }
}

impl Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

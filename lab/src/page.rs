//! What all pages have in common: the frame, bars, tables and lists of facts. A page has no script and no
//! other file; its colours follow the reader's choice of light or dark.

use crate::{place::environment, text::duration};
use cli::run_log::create_new;
use engine::{Error, ErrorKind};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
};

/// What marks a page as made by this program, so that it may be overwritten.
pub const MARK: &str = "<meta name=\"generator\" content=\"peregrine-bench\">";
/// Number of colours for lines and bars.
pub const STYLES: usize = 6;
/// Percent of a bar's room that the shortest bar has, so that it can be seen.
const LEAST_BAR: f64 = 0.6;

/// Returns a page: a line of text, the number that matters most, what follows, and at its end the footer.
pub fn document(over: &str, big: &str, main: Markup, footer: Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                (PreEscaped(MARK))
                title { (big) ": " (over) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main {
                    header { p { (over) } h1 { (big) } }
                    (main)
                    footer { (footer) p { "Drawn by peregrine-bench " (env!("CARGO_PKG_VERSION")) "." } }
                }
            }
        }
    };
    document.into_string()
}

/// One bar of a picture of times.
pub struct Bar {
    pub style: usize,
    pub name: String,
    pub about: String,
    pub seconds: f64,
    /// The times of single runs, drawn as dots.
    pub runs: Vec<f64>,
}

/// Returns bars, as long as their times.
pub fn bars(bars: &[Bar]) -> Markup {
    let all = bars.iter().flat_map(|bar| bar.runs.iter().copied().chain([bar.seconds]));
    let longest = all.fold(0.0, f64::max).max(1e-9);
    let percent = |seconds: f64| seconds / longest * 100.0;
    html! {
        @for Bar { style, name, about, seconds, runs } in bars {
            div class="row" {
                span { (name) small { (about) } }
                span class="track" aria-hidden="true" {
                    span style=(format!(
                        "background:var(--c{});width:{:.2}%", style % STYLES, percent(*seconds).max(LEAST_BAR)
                    )) {}
                    @for run in runs { i style=(format!("left:{:.2}%", percent(*run))) {} }
                }
                b { (duration(*seconds)) }
            }
        }
    }
}

/// Returns names and what is known of them.
pub fn facts<N: AsRef<str>>(facts: impl IntoIterator<Item = (N, String)>) -> Markup {
    html! {
        dl {
            @for (name, fact) in facts {
                dt { (name.as_ref()) }
                // No line ends within a short word, such as an argument that begins with a hyphen.
                dd { @for word in fact.split(' ') { span { (word) } " " } }
            }
        }
    }
}

/// Returns a table that scrolls by itself where it is wider than the screen.
pub fn table(title: &str, heads: &[String], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        h2 { (title) }
        div class="scroll" tabindex="0" role="region" aria-label=(title) {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns whether a file exists. Without `force`, one that exists must begin as one that this program has
/// written: with `mark` in its first lines.
pub fn exists(path: &Path, mark: &str, force: bool) -> Result<bool, Error> {
    let exists = path.try_exists().map_err(|error| environment("look at", path, error))?;
    let is_ours = || -> std::io::Result<bool> {
        let mut start = Vec::new();
        engine::open_regular(path)?.take(1024).read_to_end(&mut start)?;
        Ok(String::from_utf8_lossy(&start).contains(mark))
    };
    if exists && !force && !is_ours().map_err(|error| environment("read", path, error))? {
        let detail = "exists, and is not of this command; give --force to overwrite it, or name another file";
        return Err(Error::new(ErrorKind::Environment, detail).in_file(path, None));
    }
    Ok(exists)
}

/// Writes a file, which [`exists`] has allowed.
pub fn write(path: &Path, mark: &str, force: bool, text: &str) -> Result<(), Error> {
    let file = if exists(path, mark, force)? {
        File::create(path).map_err(|error| environment("write", path, error))
    } else {
        create_new(path)
    };
    file?.write_all(text.as_bytes()).map_err(|error| environment("write", path, error))
}

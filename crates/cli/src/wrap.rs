//! Text for a terminal: lines that are too long end at a word.

use rustix::{fd::AsFd, termios::tcgetwinsize};
use textwrap::{Options, WordSplitter};

/// Number of digits of a block hash, a transaction id or another hash.
const HASH_DIGITS: usize = 64;
/// The label of a script in hex.
pub const SCRIPT: &str = "script";
/// Number of digits that stay of a hash that does not fit.
const SHORT_DIGITS: usize = 16;
/// With less space than this beside its label, a value is not wrapped.
const MIN_VALUE_WIDTH: usize = 16;
/// What begins a command to copy, which stays as it is: the terminal breaks it without a line break.
const COMMANDS: [&str; 2] = ["peregrine ", "sudo "];

/// Returns the text as it is written to `stream`: wrapped if it is a terminal.
pub fn for_stream(text: &str, stream: impl AsFd) -> String {
    match tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => wrapped(text, size.ws_col.into()),
        _ => text.to_owned(),
    }
}

/// Returns the text with lines of at most `width` columns, as far as words allow. Lines continue below the
/// value of their row.
pub fn wrapped(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| wrapped_line(line, width)).collect();
    lines.join("\n")
}

fn wrapped_line(line: &str, width: usize) -> String {
    if textwrap::core::display_width(line) <= width {
        return line.to_owned();
    }
    let indent = " ".repeat(value_column(line).filter(|at| at + MIN_VALUE_WIDTH <= width).unwrap_or(0));
    let value = line.get(indent.len()..).unwrap_or_default();
    if COMMANDS.iter().any(|word| value.starts_with(word)) {
        return line.to_owned();
    }
    let command = COMMANDS.iter().filter_map(|word| line.find(&format!(": {word}"))).min();
    let (words, command) = line.split_at(command.map_or(line.len(), |at| at + ": ".len()));
    let options = Options::new(width).subsequent_indent(&indent).break_words(false);
    let short = shortened(words, indent.len());
    let mut lines = textwrap::wrap(&short, options.word_splitter(WordSplitter::NoHyphenation));
    if !command.is_empty() {
        lines.push(format!("{indent}{command}").into());
    }
    lines.join("\n")
}

/// Returns the column of the value in a row: behind two or more spaces that follow a label, or that begin
/// the line.
fn value_column(line: &str) -> Option<usize> {
    let start = line.len() - line.trim_start().len();
    let label = line.get(start..)?.find("  ").map_or(0, |spaces| start + spaces);
    let rest = line.get(label..)?;
    Some(label + rest.find(|c| c != ' ').unwrap_or(0)).filter(|_| rest.starts_with("  "))
}

/// Returns a row with the first digits of the hash with which its value begins. Others stay whole: they may
/// be part of a command or an outpoint, to be copied; and a script of as many bytes is no hash.
fn shortened(line: &str, value_at: usize) -> String {
    let (label, value) = line.split_at(value_at);
    let (word, rest) =
        value.split_once(' ').map_or((value, String::new()), |(word, rest)| (word, format!(" {rest}")));
    let is_hash = label.trim_end() != SCRIPT
        && word.len() == HASH_DIGITS
        && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match word.get(..SHORT_DIGITS).filter(|_| is_hash && value_at > 0) {
        Some(first) => format!("{label}{first}..{rest}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_end_at_words_and_go_on_below_the_value() {
        let hash = "7".repeat(64);
        let text = format!(
            "block              {hash}\n\
             note               bitcoind checks the undo data of the last blocks when it starts\n\
             next               peregrine reindex --datadir /srv/bitcoin --assumevalid 0 --memory 1G\n\
             help: rebuild both databases from the block files with: peregrine reindex --scan\n\
             \x20 doctor       Examine a datadir without changing it"
        );
        assert_eq!(wrapped(&text, 120), text);
        let expected = format!(
            "block              {}..\n\
             note               bitcoind checks the\n\
             \x20                  undo data of the last\n\
             \x20                  blocks when it starts\n\
             next               peregrine reindex --datadir /srv/bitcoin --assumevalid 0 --memory 1G\n\
             help: rebuild both databases from the\nblock files with:\nperegrine reindex --scan\n\
             \x20 doctor       Examine a datadir without\n               changing it",
            "7".repeat(16)
        );
        assert_eq!(wrapped(&text, 40), expected);
        // What is to be copied stays whole.
        for line in [
            format!("script             {hash}"),
            format!("note               run bitcoin-cli reconsiderblock {hash}, or pass --reconsider {hash}"),
            format!("coin               {hash}:0"),
            format!("best chain: height 7, block {hash}"),
        ] {
            assert_eq!(wrapped(&line, 40).matches(&hash).count(), line.matches(&hash).count(), "{line}");
        }
    }
}

//! Progress and messages on a pseudo-terminal, whose screen an emulator reads.

use crate::{common::datadirs::busy, prelude::*};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::fs::OpenOptions;

const ROWS: u16 = 30;

/// What a terminal has shown.
struct Terminal {
    /// In the end.
    screen: vt100::Screen,
    /// The rows that begin as a bar does, each time that they have changed.
    bars: Vec<Vec<String>>,
    success: bool,
    stdout: String,
}

impl Terminal {
    /// The text on the screen in the end, in which long lines are whole.
    fn text(&self) -> String {
        self.screen.contents()
    }
}

/// Opens a terminal of that width: the end of the emulator, and the end of the program.
fn open_terminal(width: u16) -> (File, File) {
    let emulator = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&emulator).unwrap();
    unlockpt(&emulator).unwrap();
    let size = Winsize { ws_row: ROWS, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&emulator, size).unwrap();
    let name = ptsname(&emulator, Vec::new()).unwrap();
    let program = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (emulator.into(), program)
}

/// Runs the program with standard error on a terminal of that width.
fn run(words: &[&str], datadir: &Path, width: u16, environment: &[(&str, &str)]) -> Terminal {
    let (mut emulator, program) = open_terminal(width);
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(words).arg("--datadir").arg(datadir).env("TERM", "xterm-256color");
    // A machine of a CI service has `CI` set, which asks for colours on any terminal.
    for variable in ["NO_COLOR", "CI", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command.envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(program);
    let child = command.spawn().unwrap();
    // Otherwise, this process would keep the program's end open.
    drop(command);
    let mut parser = vt100::Parser::new(ROWS, width, 0);
    let (mut bytes, mut bars) = ([0; 1 << 16], Vec::new());
    // Reading fails when the program has closed its end.
    while let Ok(len @ 1..) = emulator.read(&mut bytes) {
        // On a busy machine, several bars come at once.
        for bar in bytes[..len].split_inclusive(|byte| *byte == b'\r') {
            parser.process(bar);
            let rows = parser.screen().rows(0, width);
            let shown: Vec<String> =
                rows.filter(|row| row.starts_with('[')).map(|row| row.trim_end().to_owned()).collect();
            if !shown.is_empty() && bars.last() != Some(&shown) {
                bars.push(shown);
            }
        }
    }
    let output = child.wait_with_output().unwrap();
    Terminal {
        screen: parser.screen().clone(),
        bars,
        success: output.status.success(),
        stdout: String::from_utf8(output.stdout).unwrap(),
    }
}

/// What stays on the screen is what was printed, whatever the bar has done in between.
#[test]
fn a_bar_fits_its_terminal_and_leaves_nothing_behind() {
    let (totals, before_tail) = (&busy().totals, busy().totals.before_tail.to_string());
    let words = ["reindex", "--chain", "regtest", "--threads", "1", "--checkpoint-every", "0"];
    let words = [&words[..], &["--assumevalid", &before_tail]].concat();
    let mut whole = None;
    for width in [200, 80, 60, 40] {
        let terminal = run(&words, given("busy").path(), width, &[]);
        let (text, bars) = (terminal.text(), &terminal.bars);
        assert!(terminal.success, "{width}: {text}");
        assert!(terminal.stdout.contains(&busy().model.stats().hash_hex()));
        assert!(bars.len() > 1, "{width}: no bar was seen");
        for rows in bars {
            assert_eq!(rows.len(), 1, "{width}: a bar is left behind: {rows:?}");
            assert!(rows[0].chars().count() < usize::from(width), "{width}: {rows:?}");
        }
        assert!(!bars[0][0].contains('%') && bars[0][0].starts_with("[1/5 plan]"), "{width}: {bars:?}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (hash, whole) = (totals.hash.to_string(), whole.get_or_insert_with(|| text.clone()));
        assert!(whole.starts_with("best chain: height ") && whole.contains(&hash), "{whole}");
        assert!(whole.ends_with(" for the new chainstate"), "{whole}");
        assert_eq!(text, *whole, "{width}: something is left behind");
    }
}

#[test]
fn errors_have_colours_on_terminals_that_want_them() {
    let words = ["reindex", "--chain", "regtest"];
    let dir = TempDir::new().unwrap();
    for (environment, colour) in [
        (&[][..], vt100::Color::Idx(1)),
        (&[("NO_COLOR", "1")], vt100::Color::Default),
        (&[("TERM", "dumb")], vt100::Color::Default),
    ] {
        let terminal = run(&words, dir.path(), 80, environment);
        let text = terminal.text();
        assert!(!terminal.success && text.starts_with("error: "), "{text}");
        assert_eq!(terminal.screen.cell(0, 0).unwrap().fgcolor(), colour, "{environment:?}");
    }
}

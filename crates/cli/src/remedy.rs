//! Words errors, notes and warnings of the engine for the command line: with the flags that help.

use crate::{
    running::{command, has_option, place},
    shell::{command_line, this_as_user},
};
use engine::{Error, Note, Remedy, Warning};
use std::env;

/// The commands that check a result, by the beginning of the name of the command that makes it.
const CHECKS: [(&str, &str); 3] = [
    ("hints ", "hints info"),
    ("snapshot ", "snapshot verify"),
    ("range plan", "range files --range 0 --plan"),
];

/// Words a remedy for the command that runs. The library's own wording is right where no flag helps. A
/// command that it names gets the options that choose the datadir: without them, it would work on another.
pub fn remedy_text(remedy: &Remedy) -> String {
    let text = remedy_text_for(remedy, has_option);
    // Those about hint files have no datadir, and ranges may be checked elsewhere.
    let is_here = |command: &str| !command.starts_with("hints ") && !command.starts_with("range ");
    let needs_place = text.split_once(": peregrine ").is_some_and(|(_, command)| is_here(command));
    if needs_place { here(text.trim_end()) } else { text }
}

/// Appends the options that choose the datadir, if they are known.
fn here(command: &str) -> String {
    let place = place();
    if place.is_empty() { command.to_owned() } else { format!("{command} {}", command_line(place)) }
}

/// Words a remedy for a command; `has_option` reports whether the command has an option.
pub fn remedy_text_for(remedy: &Remedy, has_option: impl Fn(&str) -> bool) -> String {
    match remedy {
        Remedy::RunAs(user) => format!("run it as the owner: {}", this_as_user(*user)),
        Remedy::KeepResult => {
            let made_by = command().unwrap_or_default();
            let check = CHECKS.into_iter().find(|(made, _)| made_by.starts_with(made));
            let check = check.map(|(_, check)| format!("; check it with: peregrine {check} FILE"));
            format!("{remedy}{}", check.unwrap_or_default())
        }
        Remedy::StopAtHeight(last) if !has_option("to") && has_option("at") => {
            format!("the highest one for --at is {last}")
        }
        // The same command would be refused.
        Remedy::Resume { .. } if has_log() => {
            format!("{} (with another --log: this one exists)", remedy.command_text(has_option))
        }
        _ => remedy.command_text(has_option),
    }
}

/// Whether the command line names a file for the log.
fn has_log() -> bool {
    env::args_os().any(|word| word.to_string_lossy().split('=').next() == Some("--log"))
}

pub fn error_text(error: &Error) -> String {
    error.text(remedy_text)
}

pub fn note_text(note: &Note) -> String {
    match note {
        Note::FewerThreads { .. } => format!("{note}; {} to use them", remedy_text(&Remedy::MoreMemory)),
        Note::AllScripts { .. } => {
            format!("{note}; with --assumevalid HASH, only those above are, which is faster")
        }
        Note::HintsFailed { error } => error_text(error),
        other => other.to_string(),
    }
}

pub fn warning_text(warning: &Warning) -> String {
    match warning {
        Warning::UnknownAssumedBlock { hash, .. } => format!(
            "block {hash}, which --assumevalid names, is not among the headers here; the scripts of all \
             blocks are checked"
        ),
        Warning::LowerTip(lower) if lower.is_by_damage => format!("{warning}; accepted by --until-damage"),
        Warning::LowerTip(_) => format!("{warning}; accepted by --accept-lower-tip"),
        Warning::MarkedInvalid { hash, .. } => match has_option("reconsider") {
            true => format!("{warning}, or pass --reconsider {hash} to have it checked"),
            false => format!("{warning}, or {}", here(&format!("peregrine reindex --reconsider {hash}"))),
        },
        Warning::BlocksBeyondIndex { .. } => match has_option("scan") {
            true => format!("{warning} (--scan includes them)"),
            false => format!("{warning} ({} includes them)", here("peregrine reindex --scan")),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::{as_json, begin, chain, command, set_chain, set_place};
    use engine::{BlockHash, Height};

    /// One test: a process runs one command at a time.
    #[test]
    fn words_are_those_of_the_command_that_runs() {
        let error = Error::environment("too little").with_remedies([Remedy::MoreMemory]);
        assert_eq!(error_text(&error), "too little; raise --memory");
        let error = error.with_remedies([Remedy::OtherWorkDir, Remedy::MoreMemory]);
        assert_eq!(error_text(&error), "too little; raise --memory, or pass another --work-dir");
        assert_eq!(error.to_string(), "too little; allow more memory, or use another work directory");
        let error = error.with_remedies([Remedy::OtherOutput]).in_file("there", None);
        assert_eq!(
            error_text(&error),
            "there: too little; raise --memory, pass another --work-dir, or write elsewhere with --output"
        );

        let few = Note::FewerThreads { threads: 2, wanted: 9, memory: 128 << 20 };
        assert_eq!(
            note_text(&few),
            "using 2 of 9 threads: 128 MiB of memory is not enough for more; raise --memory to use them"
        );
        let unknown = Warning::UnknownAssumedBlock { hash: BlockHash([7; 32]), is_default: false };
        assert!(warning_text(&unknown).contains(", which --assumevalid names, is not among the headers"));

        let above = Error::usage("too high").with_remedies([Remedy::StopAtHeight(Height(7))]);
        for (option, text) in [("to", "pass --to 7"), ("at", "the highest one for --at is 7")] {
            begin("export utxo".to_owned(), vec![option.to_owned()], true, false);
            assert_eq!((error_text(&above), as_json()), (format!("too high; {text}"), true));
            assert_eq!((command().as_deref(), chain()), (Some("export utxo"), None));
            set_chain("main");
        }

        // They once worked on `~/.bitcoin` if they were copied.
        set_place(["--datadir", "my node"].map(str::to_owned).to_vec());
        let recover = remedy_text(&Remedy::Recover);
        assert_eq!(recover, "finish or undo that with: peregrine recover --datadir 'my node'");
        // It was a rebuild up to the last block.
        let lower = remedy_text(&Remedy::AcceptLowerTipAt(Height(7)));
        assert!(lower.contains(": peregrine reindex --to 7 --accept-lower-tip --datadir "), "{lower}");
        assert_eq!(remedy_text(&Remedy::OtherName), "choose another name");
        // A command without the option was to use another work directory all the same.
        assert_eq!(remedy_text(&Remedy::OtherWorkDir), "set TMPDIR to another directory");
        assert!(remedy_text(&Remedy::CheckRangeAgain).ends_with("peregrine range check"));
    }
}

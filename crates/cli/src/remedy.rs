//! Words errors, notes and warnings of the engine for the command line: with the flags that help.

use engine::{Error, Note, Remedy, Warning};

/// Words a remedy. The library's own wording is right where no flag helps.
fn remedy_text(remedy: &Remedy) -> String {
    let text = match remedy {
        Remedy::RebuildIndex => "run again with --scan to rebuild without the block index",
        Remedy::StartOver => "pass --restart to start over",
        Remedy::RepeatOptions => "repeat the command of that run",
        Remedy::Resume { done, total, without_restart } => {
            let command =
                if *without_restart { "the same command without --restart" } else { "the same command" };
            return format!("{done} of {total} blocks are done, {command} resumes from there");
        }
        Remedy::MoreMemory => "raise --memory",
        Remedy::FewerThreads => "use fewer --threads",
        Remedy::OtherOutput => "write elsewhere with --output",
        Remedy::OtherWorkDir => "pass another --work-dir",
        Remedy::DropOldDatabases => "leave out --keep-old",
        Remedy::StopAtHeight(height) => return format!("pass --stop-at-height {height}"),
        Remedy::AcceptLowerTip => "pass --accept-lower-tip if the lower state is wanted",
        Remedy::ChooseNetwork(network) => return format!("give --chain {network}"),
        Remedy::LaterAssumedBlock => "pass a later block with --assumevalid",
        Remedy::FallBackToJoin => "with --on-hint-failure join to find the first wrong hint",
        Remedy::NameHintFormat => "name the format with peregrine hints convert --from",
        Remedy::GiveDatadir => "pass --datadir",
        other => return other.to_string(),
    };
    text.to_owned()
}

/// Returns the text of an error.
#[must_use]
pub fn error_text(error: &Error) -> String {
    error.text(remedy_text)
}

/// Returns what is wrong and what to do, without the place.
#[must_use]
pub fn explanation(error: &Error) -> String {
    error.explanation(remedy_text)
}

/// Returns the text of a note.
#[must_use]
pub fn note_text(note: &Note) -> String {
    match note {
        Note::FewerThreads { .. } => format!("{note}; {} to use them", remedy_text(&Remedy::MoreMemory)),
        Note::HintsFailed(error) => error_text(error),
        other => other.to_string(),
    }
}

/// Returns the text of a warning.
#[must_use]
pub fn warning_text(warning: &Warning) -> String {
    match warning {
        Warning::UnknownAssumedBlock { hash } => format!(
            "block {hash}, which --assumevalid names, is not among the headers here; the scripts of all \
             blocks are checked"
        ),
        Warning::LowerTip(_) => format!("{warning}; accepted by --accept-lower-tip"),
        Warning::BlocksBeyondIndex { .. } => format!("{warning} (--scan includes them)"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{BlockHash, ErrorKind};

    #[test]
    fn alternatives_are_listed_with_their_flags() {
        let error = Error::new(ErrorKind::Environment, "too little").with_remedies([Remedy::MoreMemory]);
        assert_eq!(error_text(&error), "too little; raise --memory");
        let error = error.with_remedies([Remedy::OtherWorkDir, Remedy::MoreMemory]);
        assert_eq!(error_text(&error), "too little; raise --memory, or pass another --work-dir");
        assert_eq!(error.to_string(), "too little; allow more memory, or use another work directory");
        let error = error.with_remedies([Remedy::OtherOutput]).in_file("there", None);
        assert_eq!(
            error_text(&error),
            "there: too little; raise --memory, pass another --work-dir, or write elsewhere with --output"
        );
        assert!(!explanation(&error).contains("there"));
    }

    #[test]
    fn notes_and_warnings_name_flags() {
        let few = Note::FewerThreads { threads: 2, wanted: 9, memory: 128 << 20 };
        assert_eq!(
            note_text(&few),
            "2 threads instead of 9: 128 MiB of memory are not enough for more; raise --memory to use them"
        );
        let unknown = Warning::UnknownAssumedBlock { hash: BlockHash([7; 32]) };
        assert!(warning_text(&unknown).contains(", which --assumevalid names, is not among the headers"));
    }
}

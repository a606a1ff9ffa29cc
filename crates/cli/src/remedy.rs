//! Words errors, notes and warnings of the engine for the command line: with the flags that help.

use crate::{running::has_option, shell::this_as_user};
use engine::{Error, ErrorKind, Note, Remedy, Warning};

/// Words a remedy for the command that runs. The library's own wording is right where no flag helps.
pub fn remedy_text(remedy: &Remedy) -> String {
    remedy_text_for(remedy, has_option)
}

/// Words a remedy for a command, of which `has_option` reports whether it has an option.
pub fn remedy_text_for(remedy: &Remedy, has_option: impl Fn(&str) -> bool) -> String {
    match remedy {
        Remedy::RepeatOptions => "repeat the command of that run to resume it".to_owned(),
        Remedy::Resume { done, total, without_restart } => {
            let without = *without_restart && has_option("restart");
            let without = if without { ", without --restart," } else { "" };
            format!("run the same command again{without} to resume: {done} of {total} blocks are saved")
        }
        Remedy::BringIndexes(kinds) if has_option("index") => {
            let options = kinds.iter().flatten().map(|kind| format!(" --index {}", kind.option()));
            format!("pass{} to make what is named anew in this run", options.collect::<String>())
        }
        Remedy::RunAs(user) => format!("run it as the owner: {}", this_as_user(*user)),
        _ => with_option(remedy, has_option)
            .or_else(|| with_command(remedy).map(str::to_owned))
            .unwrap_or_else(|| remedy.to_string()),
    }
}

/// Words a remedy that is an option of the command that has failed; `None` if it has no such option.
fn with_option(remedy: &Remedy, has_option: impl Fn(&str) -> bool) -> Option<String> {
    let (option, text) = match remedy {
        Remedy::RebuildIndex => ("scan", "run again with --scan to rebuild without the block index"),
        Remedy::StartOver => ("restart", "pass --restart to discard the checkpoint and start over"),
        Remedy::MoreMemory => ("memory", "raise --memory"),
        Remedy::FewerThreads => ("threads", "use fewer --threads"),
        Remedy::OtherOutput => ("output", "write elsewhere with --output"),
        Remedy::OtherWorkDir => ("work-dir", "pass another --work-dir"),
        Remedy::DropOldDatabases => ("keep-old", "leave out --keep-old"),
        Remedy::SetIndexesAside => (
            "set-aside-indexes",
            "pass --set-aside-indexes to set just these aside: bitcoind builds them again when it starts",
        ),
        Remedy::StopAtHeight(height) => {
            let text = format!("pass --stop-at-height {height}");
            return has_option("stop-at-height").then_some(text);
        }
        Remedy::Reconsider => {
            ("reconsider", "pass --reconsider if a mark is wrong: marked blocks are checked then")
        }
        Remedy::AcceptLowerTip => {
            ("accept-lower-tip", "pass --accept-lower-tip if the lower state is wanted")
        }
        Remedy::ChooseNetwork(network) => {
            return has_option("chain").then(|| format!("pass --chain {network}"));
        }
        Remedy::NameChallenge => ("signetchallenge", "pass this signet's --signetchallenge"),
        Remedy::LaterAssumedBlock => ("assumevalid", "pass a later block with --assumevalid"),
        Remedy::FallBackToJoin => {
            ("on-hint-failure", "pass --on-hint-failure join to find the first wrong hint")
        }
        Remedy::GiveDatadir => ("datadir", "pass --datadir"),
        Remedy::NamePeer => ("connect", "name a peer with --connect"),
        Remedy::Prune => ("prune", "pass --prune"),
        Remedy::Unprune => ("unprune", "pass --unprune to download them again"),
        Remedy::NameRoot => {
            ("root", "pass --root with a Merkle root of someone whom you trust with all coins")
        }
        Remedy::TrustSources => (
            "trust-sources",
            "pass --trust-sources if you trust those who made the sources: the coins could be forged",
        ),
        Remedy::WaitForPeers => ("wait", "pass --wait to try until a peer has it"),
        Remedy::WithoutPruning => ("prune", "download into another --datadir without --prune"),
        _ => return None,
    };
    has_option(option).then(|| text.to_owned())
}

/// Words a remedy that is a command.
const fn with_command(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::RebuildIndex | Remedy::ReindexByScan => {
            "rebuild both databases with: peregrine reindex --scan"
        }
        Remedy::Reconsider => {
            "if a mark is wrong, have the blocks checked with: peregrine reindex --reconsider"
        }
        Remedy::AcceptLowerTip | Remedy::ReindexToLowerTip => {
            "if the lower state is wanted, rebuild with: peregrine reindex --accept-lower-tip"
        }
        Remedy::SetIndexesAside => "set them aside and rebuild with: peregrine reindex --set-aside-indexes",
        Remedy::Recover => "finish or undo that with: peregrine recover",
        Remedy::NameHintFormat => "name the format with: peregrine hints convert --from",
        Remedy::Unprune => "download the deleted blocks again with: peregrine sync --unprune",
        Remedy::Repair => "download what is damaged with: peregrine repair",
        Remedy::GiveBlock => "pass the block with: peregrine reindex --block FILE",
        Remedy::EndBelowDamage => "rebuild up to the damage with: peregrine reindex --until-damage",
        Remedy::TakeFromFiles => {
            "take blocks from the files of a folder, each with its own key, with: peregrine repair --from DIR"
        }
        Remedy::MakeUndo => "make it with: peregrine undo make",
        Remedy::RebuildChainstate => "rebuild it with: peregrine reindex",
        Remedy::NameIndex => "name one, as in: peregrine index make txindex",
        Remedy::MakeIndex => "make it with: peregrine index make",
        Remedy::CheckRangeAgain => {
            "check the range again, into another directory, with: peregrine range check"
        }
        _ => return None,
    })
}

/// Returns an error about a height as a command puts it that has another flag for it than a rebuild.
pub fn about_height(error: Error, flag: &str) -> Error {
    match error.remedies[..] {
        [Remedy::StopAtHeight(tip)] => {
            let text = format!("{}; the highest one for {flag} is {tip}", error.detail);
            Error::new(ErrorKind::Usage, text)
        }
        _ => error,
    }
}

/// Returns the text of an error.
pub fn error_text(error: &Error) -> String {
    error.text(remedy_text)
}

/// Returns the text of a note.
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

/// Returns the text of a warning.
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
            false => format!("{warning}, or peregrine reindex --reconsider {hash}"),
        },
        Warning::BlocksBeyondIndex { .. } => match has_option("scan") {
            true => format!("{warning} (--scan includes them)"),
            false => format!("{warning} (peregrine reindex --scan includes them)"),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::BlockHash;

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
    }

    #[test]
    fn notes_and_warnings_name_flags() {
        let few = Note::FewerThreads { threads: 2, wanted: 9, memory: 128 << 20 };
        assert_eq!(
            note_text(&few),
            "using 2 of 9 threads: 128 MiB of memory are not enough for more; raise --memory to use them"
        );
        let unknown = Warning::UnknownAssumedBlock { hash: BlockHash([7; 32]), is_default: false };
        assert!(warning_text(&unknown).contains(", which --assumevalid names, is not among the headers"));
    }
}

//! The command to run next, as a line for a shell.

use crate::{core_args::Located, node_settings::MIN_PRUNE_TARGET, run_note::RunNote};
use engine::{
    Disk as _, IndexKind, Network, RealDisk,
    doctor::{Advice, ChainstatePosition, DatadirState, Diagnosis, FoundIndex, IndexStanding},
    free_name,
};
use peregrine::shell::{as_user, command_line, user_name};
use std::{
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

/// Words the command to run next for a datadir.
pub(super) struct NextLine<'a> {
    network: Network,
    /// What is in the datadir; `None` if it is not one.
    state: Option<&'a DatadirState>,
    located: &'a Located,
}

impl<'a> NextLine<'a> {
    pub(super) fn new(diagnosis: &'a Diagnosis, located: &'a Located) -> Self {
        Self { network: diagnosis.network, state: diagnosis.found.as_deref().ok(), located }
    }

    /// Returns the command to run next. A remark that is no command begins with `#`.
    pub(super) fn of(&self, advice: &Advice) -> String {
        match advice {
            Advice::LetItRun => "# nothing to do: bitcoind is running".to_owned(),
            Advice::Wait => "# wait until the other program has ended".to_owned(),
            Advice::NameDatadir => {
                "peregrine doctor --datadir DIR  # the directory that bitcoind uses as -datadir".to_owned()
            }
            Advice::NameChallenge => {
                let line = command_line(Self::doctor_of(&self.located.with_network(self.network)));
                format!("{line} --signetchallenge HEX  # the challenge that bitcoind uses")
            }
            Advice::NameBlocksdir { directory: None } => {
                let line = command_line(Self::doctor_of(&self.located.without_blocksdir()));
                format!("{line} --blocksdir DIR  # as for bitcoind -blocksdir; if it has none, the datadir")
            }
            Advice::CheckDisk => {
                "sudo dmesg --level=err,warn  # a damaged file system: unmount it, and run fsck".to_owned()
            }
            Advice::CorrectClock => {
                let time = self.state.and_then(|state| state.chainstate.time).map_or(0, |time| time.0);
                let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time.into()));
                format!("date -u  # correct the clock: the chainstate's best block is of {date}")
            }
            Advice::ProvideLocks { directory } => {
                let line = command_line(about(["df"], directory));
                format!("{line}  # mount this file system with locks, or move the datadir to another one")
            }
            Advice::FreeSpace { directory } => {
                let line = command_line(about(["df", "-h"], directory));
                format!("{line}  # move or delete other files there until 100 MiB are free")
            }
            Advice::CorrectSetting { file, line: None, .. } => {
                let line = command_line(about(["cat"], file));
                format!("{line}  # remove the setting from this file while bitcoind is stopped")
            }
            Advice::CorrectSetting { file, line: Some(number), is_removable: false } => {
                let words = about(["sed", "-n", &format!("{number}p")], file);
                format!("{}  # change this line", command_line(words))
            }
            Advice::RestoreLink { path } => {
                let line = command_line(about(["ls", "-l"], path));
                format!("{line}  # mount the disk with what this link leads to, or restore that")
            }
            Advice::ChangeOwner { directories } => {
                change_owner(self.state.map_or(0, |state| state.owner.uid), directories)
            }
            Advice::RestoreKey { key } => self.restore_key(key),
            Advice::StartBitcoind if self.state.is_some_and(|state| state.has_start_fault(advice)) => {
                format!("{}  # if what ended its last start is gone", self.for_owner(self.words(advice)))
            }
            Advice::MoveSnapshotAway => {
                // Without the snapshot, only that reads blocks above those that are not stored yet.
                let lines = [self.words(advice), self.peregrine(&["doctor", "--deep"])];
                lines.map(|words| self.for_owner(words)).join(" && ")
            }
            _ => self.for_owner(self.words(advice)),
        }
    }

    /// Returns the command to run instead of a repair, which ends below the damage and needs no peers, unless
    /// the genesis block is lost.
    pub(super) fn repair_offline(&self) -> Option<String> {
        let has_genesis = |state: &&DatadirState| state.blocks.first.is_none_or(|(lowest, _)| lowest.0 > 0);
        let state = self.state.filter(has_genesis)?;
        let is_stored = state.chainstate.position != Some(ChainstatePosition::NotStored);
        let scan: &[&str] = if state.index.state.is_sound() && is_stored { &[] } else { &["--scan"] };
        // bitcoind could not take back what these have above the damage.
        use IndexStanding::{Behind, OffChain, Synced};
        let has_blocks = |index: &FoundIndex| matches!(index.standing, Synced | Behind(_) | OffChain(_));
        let indexes = self.anew(|index| index.kind.needs_blocks_to_take_back() && has_blocks(index));
        let words = [&["reindex"], scan, &["--until-damage"], &indexes[..]].concat();
        Some(self.for_owner(self.peregrine(&words)))
    }

    /// Returns the command that trusts what the block index says of scripts, if that makes a rebuild faster.
    pub(super) fn reindex_checked(&self, advice: &Advice) -> Option<String> {
        self.state?.rebuild.checked_duration.as_ref().filter(|_| *advice == Advice::Reindex)?;
        Some(self.for_owner(self.peregrine(&["reindex", "--assumevalid", "checked"])))
    }

    /// Whether the command of an interrupted run does what is advised.
    pub(super) fn is_resumed(&self, advice: &Advice, note: &RunNote) -> bool {
        let (words, flags) = (self.words(advice), self.located.flags());
        words.strip_suffix(&*flags).is_some_and(|words| note.does(words.get(1..).unwrap_or_default()))
    }

    /// Returns the command that resumes an interrupted run.
    pub(super) fn resume(&self, note: &RunNote) -> String {
        self.for_owner(self.peregrine(&note.words().collect::<Vec<_>>()))
    }

    /// Returns the command that takes blocks from other files, whose folder the user must name.
    pub(super) fn repair_from(&self) -> String {
        let line = self.for_owner(self.repair());
        format!("{line} --from DIR  # a folder with block files, or another datadir")
    }

    /// Returns the words of a command that the owner of the datadir runs.
    fn words(&self, advice: &Advice) -> Vec<String> {
        match advice {
            Advice::NameBlocksdir { directory: Some(dir) } => {
                [Self::doctor_of(&self.located.without_blocksdir()), about(["--blocksdir"], dir)].concat()
            }
            Advice::CorrectSetting { file, line, .. } => {
                let number = line.unwrap_or_default();
                let kept = kept_name(file);
                let suffix = kept.strip_prefix(&*file.display().to_string()).unwrap_or(".old");
                about(["sed", &format!("-i{suffix}"), &format!("{number}d")], file)
            }
            Advice::LookDeeper => self.peregrine(&["doctor", "--deep"]),
            Advice::MoveAway { path } => move_away(path),
            Advice::MoveSnapshotAway => {
                let root = &self.located.root;
                let dir = self.state.map_or(root.clone(), |state| state.dir.join("chainstate_snapshot"));
                move_away(&dir)
            }
            Advice::StartBitcoind => self.core("bitcoind", None),
            Advice::StartWithoutUndo => self.core("bitcoind", Some("-checklevel=1")),
            Advice::StopBitcoind => self.core("bitcoin-cli", Some("stop")),
            Advice::BitcoindReindex => self.core("bitcoind", Some("-reindex")),
            Advice::ChooseNetwork { network } => Self::doctor_of(&self.located.with_network(*network)),
            Advice::FinishReplacement => self.peregrine(&["recover"]),
            Advice::TakeFromFiles { directory } => [self.repair(), about(["--from"], directory)].concat(),
            Advice::MakeIndexes { names } => {
                // The form of rows that cannot be read is not known, and all releases read this one.
                let is_unread = |index: &FoundIndex| {
                    index.kind == IndexKind::Tx && matches!(index.standing, IndexStanding::Damaged(_))
                };
                let is_unread = self.state.is_some_and(|state| state.indexes.iter().any(is_unread));
                let form: &[&str] = if is_unread { &["--txindex-rows", "by-txid"] } else { &[] };
                self.peregrine(&[&["index", "make"], &names[..], form].concat())
            }
            Advice::Sync if self.is_pruned() => self.words(&Advice::SyncPruned),
            Advice::Sync => self.peregrine(&[&["sync"], &self.indexes_with_places()[..]].concat()),
            Advice::SyncPruned => self.peregrine(&["sync", &self.prune_option()]),
            Advice::Repair => self.repair(),
            Advice::Reindex => self.peregrine(&["reindex"]),
            Advice::ReindexByScan => self.peregrine(&["reindex", "--scan"]),
            Advice::Update => self.peregrine(&["update"]),
            Advice::Reconsider { block: Some(block), rebuilds } => {
                let command = if *rebuilds { "reindex" } else { "update" };
                self.peregrine(&[command, "--reconsider", &block.to_string()])
            }
            Advice::Reconsider { block: None, rebuilds: true } => {
                self.peregrine(&["reindex", "--scan", "--accept-lower-tip"])
            }
            Advice::Reconsider { block: None, rebuilds: false } if self.is_pruned() => {
                self.peregrine(&["sync", &self.prune_option(), "--reconsider"])
            }
            Advice::Reconsider { block: None, rebuilds: false } => self.peregrine(&["sync", "--reconsider"]),
            Advice::MakeUndo => self.peregrine(&["undo", "make"]),
            _ => self.peregrine(&["doctor"]),
        }
    }

    /// The option with which `sync` keeps a node pruned.
    fn prune_option(&self) -> String {
        // Less is refused, and 1 lets bitcoind delete only what it is told to.
        format!("--prune={}M", self.located.prune_target().max(MIN_PRUNE_TARGET))
    }

    /// The command that stores blocks anew, and indexes that would be wrong then: otherwise it would refuse.
    fn repair(&self) -> Vec<String> {
        self.peregrine(&[&["repair"], &self.anew(|index| index.has_positions)[..]].concat())
    }

    /// The options that make these indexes anew.
    fn anew(&self, is_wrong: impl Fn(&FoundIndex) -> bool) -> Vec<&'static str> {
        let indexes = self.state.iter().flat_map(|state| &state.indexes);
        let wrong = indexes.filter(|index| index.kind != IndexKind::Unknown && is_wrong(index));
        wrong.flat_map(|index| ["--index", index.kind.option()]).collect()
    }

    /// The options that make the indexes anew beside which `sync` would refuse to store blocks: their rows
    /// have places of blocks. Where there are no blocks, none was examined.
    fn indexes_with_places(&self) -> Vec<&'static str> {
        let datadir = self.located.datadir();
        let is_there = |kind: &IndexKind| {
            !kind.needs_undo() && kind.is_in(&RealDisk, datadir.net_dir()).unwrap_or_default()
        };
        IndexKind::ALL.into_iter().filter(is_there).flat_map(|kind| ["--index", kind.option()]).collect()
    }

    /// A command of this program, for this datadir.
    fn peregrine(&self, words: &[&str]) -> Vec<String> {
        let words = ["peregrine"].iter().chain(words).map(|&word| word.to_owned());
        words.chain(self.located.flags()).collect()
    }

    /// The command that looks at another network's datadir, or at block files elsewhere.
    fn doctor_of(other: &Located) -> Vec<String> {
        owned(["peregrine", "doctor"]).chain(other.flags()).collect()
    }

    /// A command of Core, for this datadir.
    fn core(&self, program: &str, last: Option<&str>) -> Vec<String> {
        let dir = self.state.map_or(&*self.located.root, |state| core_datadir(&state.dir, self.network));
        let flags = match program {
            "bitcoind" => self.located.core_flags(dir),
            // bitcoin-cli does not know the option.
            _ => self.located.without_blocksdir().core_flags(dir),
        };
        let is_pruned = program == "bitcoind" && self.is_pruned();
        // Without this option, bitcoind asks for a new download of all blocks.
        let prune = is_pruned.then(|| format!("-prune={}", self.located.prune_target()));
        owned([program]).chain(flags).chain(prune).chain(last.map(str::to_owned)).collect()
    }

    /// Whether the node is pruned; without a block index that tells, whether it is to be.
    fn is_pruned(&self) -> bool {
        let state = self.state.filter(|state| state.index.state.is_sound());
        state.map_or_else(|| self.located.prunes_to().is_some(), |state| state.index.is_pruned)
    }

    /// A line that writes the key of the block files.
    fn restore_key(&self, key: &[u8]) -> String {
        let located = || self.located.datadir().blocks_dir();
        let file = self.state.map_or_else(located, |state| state.blocks_dir.clone()).join("xor.dat");
        let bytes: String = key.iter().map(|byte| format!("\\{byte:03o}")).collect();
        // A wrong key may belong to other files.
        let exists = file.exists();
        let [file, old] = [file.display().to_string(), kept_name(&file)].map(|path| command_line([path]));
        let keep = if exists { format!("mv {file} {old} && ") } else { String::new() };
        let line = format!("{keep}printf '{bytes}' > {file}");
        match self.other_owner() {
            Some(owner) => as_user(owner, owned(["sh", "-c", &line])),
            None => line,
        }
    }

    /// Returns the line that runs a command as the owner of the datadir.
    fn for_owner(&self, words: Vec<String>) -> String {
        match self.other_owner() {
            Some(owner) => as_user(owner, words),
            None => command_line(words),
        }
    }

    /// The owner of the datadir, if this user is another one.
    fn other_owner(&self) -> Option<u32> {
        let owner = &self.state?.owner;
        (owner.uid != owner.user).then_some(owner.uid)
    }
}

/// Returns the line that gives files to a user. Of a link, `chown -R` would change only the link; with `-H`,
/// it would also change, as root, whatever the links below it lead to.
fn change_owner(user: u32, paths: &[PathBuf]) -> String {
    let live = |path: &PathBuf| RealDisk.resolve(path).as_ref().unwrap_or(path).display().to_string();
    let line = |words: [&str; 4]| command_line(owned(words).chain(paths.iter().map(live)));
    let owner = line(["sudo", "chown", "-R", user_name(user).trim_start_matches('#')]);
    format!("{owner} && {}", line(["sudo", "chmod", "-R", "u+rwX"]))
}

fn owned<const N: usize>(words: [&str; N]) -> impl Iterator<Item = String> + use<N> {
    words.map(str::to_owned).into_iter()
}

/// A name beside a file or directory under which it can be kept.
fn kept_name(path: &Path) -> String {
    let kept = format!("{}.old", path.display());
    free_name(&RealDisk, kept.clone().into()).map_or(kept, |free| free.display().to_string())
}

/// Words about a file or directory, which comes last.
fn about<const N: usize>(words: [&str; N], path: &Path) -> Vec<String> {
    owned(words).chain([path.display().to_string()]).collect()
}

fn move_away(path: &Path) -> Vec<String> {
    about(["mv", &path.display().to_string()], Path::new(&kept_name(path)))
}

/// The datadir as bitcoind is told it, which contains the directory of a network.
fn core_datadir(net_dir: &Path, network: Network) -> &Path {
    match network.subdirectory().and(net_dir.parent()) {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => net_dir,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_leads_to_gets_the_owner_not_the_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let [there, link] = ["there", "chainstate"].map(|name| root.join(name));
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, &link).unwrap();
        let [there, lock] = [there, root.join(".lock")].map(|path| path.display().to_string());
        let line = change_owner(4_000_000_000, &[link, PathBuf::from(&lock)]);
        let expected = format!("chown -R 4000000000 {there} {lock} && sudo chmod -R u+rwX {there} {lock}");
        assert_eq!(line, format!("sudo {expected}"));
    }
}

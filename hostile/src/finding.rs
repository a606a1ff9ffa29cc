//! Detects what must not happen, by comparing the contents of a datadir before and after a step.

use crate::{
    block_files::{flaw_of_new, is_named},
    prelude::*,
    tree::{Class, class},
};

/// The directory in which made undo data waits.
const MADE_UNDO: &str = "blocks/peregrine-undo";

/// The checkpoint from which a later run resumes.
const CHECKPOINT: &str = "peregrine-work/manifest";

/// Something that must not happen.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its class. Findings of one class usually have the same cause.
    pub class: &'static str,
    /// What was observed.
    pub detail: String,
}

impl Finding {
    pub fn new(class: &'static str, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }
}

/// Which files a step may append records to, or add.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MayAppend {
    Nothing,
    /// `rev` files.
    Undo,
    /// `blk` files too.
    Blocks,
}

/// The contents of a folder before and after a step.
pub struct Comparison<'a> {
    /// The folder with the datadir and everything around it.
    pub live: &'a Path,
    pub before: &'a Tree,
    pub after: &'a Tree,
    /// Files of the user, with their content.
    pub foreign: &'a BTreeMap<PathBuf, Vec<u8>>,
    /// The block and undo files before the step, and whether it ignored the block index.
    pub files: (&'a BlockFiles, bool),
    /// What of them it may append to.
    pub may_append: MayAppend,
    /// Whether it may set indexes of the node aside.
    pub sets_aside: bool,
}

impl Comparison<'_> {
    /// Returns changes that no run may make, however it ends: of block files, files of the user, links,
    /// owners or modes.
    pub fn never(&self) -> Vec<Finding> {
        let mut found = self.foreign_gone();
        for (name, was) in self.before {
            let class = class(name);
            let is_link = matches!(was.what, What::Link(_));
            let what = match class {
                _ if is_link => "link",
                Class::Block => "block-files-changed",
                _ => "other-files-changed",
            };
            let is_index = class == Class::Index && !self.sets_aside;
            let bound = is_index || matches!(class, Class::Block | Class::Other) || is_link;
            let Some(is) = self.after.get(name) else {
                if bound {
                    found.push(Finding::new(what, format!("{} is gone", name.display())));
                }
                continue;
            };
            if self.may_be_longer(name, was, is) {
                let (files, scans) = self.files;
                let flaw = if is.what == was.what { None } else { files.flaw(self.live, name, scans) };
                let detail = flaw.map(|flaw| format!("{} {flaw}", name.display()));
                found.extend(detail.map(|detail| Finding::new("bytes-in-use-changed", detail)));
            } else if bound && is.what != was.what {
                let detail = format!("{} was {:?} and is {:?}", name.display(), was.what, is.what);
                found.push(Finding::new(what, detail));
            }
            found.extend(owner_and_mode(name, was, is));
        }
        found
    }

    /// Returns whether this is a block or undo file to which the step may append.
    fn may_be_longer(&self, name: &Path, was: &Seen, is: &Seen) -> bool {
        let needed = if is_named(name, "rev") { MayAppend::Undo } else { MayAppend::Blocks };
        let is_one = class(name) == Class::Block && !name.ends_with("xor.dat");
        let are_files = [was, is].iter().all(|seen| matches!(seen.what, What::File(..)));
        is_one && are_files && self.may_append >= needed
    }

    /// Returns whether `output` mentions this path of Peregrine's, or one of Peregrine's above it.
    fn is_mentioned(&self, name: &Path, output: &str) -> bool {
        let paths = name.ancestors().filter(|above| class(above) == Class::Peregrine);
        paths.map(|above| self.live.join(above)).any(|path| output.contains(&path.display().to_string()))
    }

    /// Returns whether `output` mentions this path, or a new one above it.
    fn is_announced(&self, name: &Path, output: &str) -> bool {
        let new =
            name.ancestors().filter(|above| !self.before.contains_key(*above) && above.parent().is_some());
        new.map(|above| self.live.join(above)).any(|path| output.contains(&path.display().to_string()))
    }

    fn foreign_gone(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (name, content) in self.foreign {
            let is_there = |path: &Path| fs::read(self.live.join(path)).is_ok_and(|bytes| bytes == *content);
            // A file inside a database may be moved with it.
            let moved = || {
                let last = name.file_name();
                class(name) == Class::Database
                    && self.after.keys().any(|other| other.file_name() == last && is_there(other))
            };
            if self.before.contains_key(name) && !is_there(name) && !moved() {
                found.push(Finding::new("foreign-gone", format!("{} is gone", name.display())));
            }
        }
        found
    }

    /// Returns changes that a refused run may not make: of databases and `rev` files. With a checkpoint, it
    /// may also leave undo data, to continue with.
    pub fn refused(&self) -> Vec<Finding> {
        let has_checkpoint = self.after.keys().any(|name| name.ends_with(CHECKPOINT));
        let bound = |tree: &Tree| -> BTreeMap<PathBuf, What> {
            let rows = tree.iter().filter(|(name, _)| {
                matches!(class(name), Class::Database | Class::Block | Class::Index)
                    || !has_checkpoint && name.ends_with(MADE_UNDO)
            });
            rows.map(|(name, seen)| (name.clone(), seen.what.clone())).collect()
        };
        let (was, mut is) = (bound(self.before), bound(self.after));
        // It may remove what an earlier run has left.
        if let Some((name, what)) = was.iter().find(|(name, _)| name.ends_with(MADE_UNDO)) {
            is.insert(name.clone(), what.clone());
        }
        let changed = was.iter().find(|(name, what)| is.get(*name) != Some(*what));
        let added = is.keys().find(|name| !was.contains_key(*name));
        let name = changed.map(|(name, _)| name).or(added);
        name.map(|name| Finding::new("refused-but-changed", format!("{} changed", name.display())))
            .into_iter()
            .collect()
    }

    /// Returns what a successful run may not leave: temporary files, and files with another owner or a wider
    /// mode. Files that its output mentions may stay, because they could not be removed.
    pub fn done(&self, datadir: &Path, output: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(home) = self.after.get(datadir) else { return found };
        // A file that could not be removed ends the cleaning.
        let must_clean_up = output.contains("but the next run must clean up");
        for (name, is) in self.after {
            let foreign = self.foreign.keys().any(|other| other.starts_with(name));
            let in_foreign = name.ancestors().any(|above| self.foreign.contains_key(above));
            // Without a mark, a directory that holds a file of others is theirs.
            let beside_foreign = self.foreign.keys().any(|other| other.parent() == name.parent());
            let is_left = !foreign && !in_foreign && !beside_foreign && !must_clean_up;
            match class(name) {
                Class::Peregrine if is_left && !self.is_mentioned(name, output) => {
                    found.push(Finding::new("leftover", format!("{} is left", name.display())));
                }
                Class::Block if self.may_append == MayAppend::Blocks && is_named(name, "blk") => {}
                Class::Block if self.may_append > MayAppend::Nothing && !self.before.contains_key(name) => {
                    found.extend(flaw_of_new(self.after, name, is));
                }
                // A replaced database stays if there is something in it that cannot be moved.
                Class::Other if self.is_announced(name, output) => {}
                Class::Index if self.sets_aside => {}
                Class::Other | Class::Block | Class::Index if !self.before.contains_key(name) => {
                    found.push(Finding::new("leftover", format!("{} is new", name.display())));
                }
                Class::Database | Class::Lock if !self.before.contains_key(name) => {
                    if (is.uid, is.gid) != (home.uid, home.gid) {
                        let detail = format!("{} belongs to {}, not {}", name.display(), is.uid, home.uid);
                        found.push(Finding::new("owner", detail));
                    }
                    // Core's umask excludes other users; a folder that was open to others may stay so.
                    let above = name.parent().and_then(|above| self.before.get(above));
                    let wide = above.map_or(0, |above| above.mode & 0o077);
                    let is_new = class(name) == Class::Database && !self.foreign.contains_key(name);
                    if is_new && is.mode & 0o077 & !wide != 0 {
                        let detail = format!("{} has mode {:o}", name.display(), is.mode);
                        found.push(Finding::new("mode", detail));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

fn owner_and_mode(name: &Path, was: &Seen, is: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    // A killed run may have left a folder of its own to the user who ran it; the next run corrects that. The
    // node could not open a database of the superuser.
    let is_own = matches!(class(name), Class::Peregrine | Class::Database | Class::Lock) && was.uid == 0;
    if (was.uid, was.gid) != (is.uid, is.gid) && !is_own {
        let detail = format!("{} belonged to {}, now to {}", name.display(), was.uid, is.uid);
        found.push(Finding::new("owner", detail));
    }
    // A database that replaces another one may have Core's own modes.
    let core = if is.what == What::Dir { 0o700 } else { 0o600 };
    let as_core = class(name) == Class::Database && is.mode == core;
    if was.mode != is.mode && !matches!(is.what, What::Link(_)) && !as_core {
        let detail = format!("{} had mode {:o}, now {:o}", name.display(), was.mode, is.mode);
        found.push(Finding::new("mode", detail));
    }
    found
}

//! What must not happen, and how two looks at a datadir are compared.

use crate::tree::{Class, Seen, Tree, What, class};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Something that must not happen.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its class: findings of one class have mostly one cause.
    pub class: &'static str,
    /// What was seen.
    pub detail: String,
}

impl Finding {
    /// A finding.
    pub fn new(class: &'static str, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }
}

/// What a step may have done to the tree.
pub struct Look<'a> {
    /// The folder of the datadir and of what stands around it.
    pub live: &'a Path,
    /// Before.
    pub before: &'a Tree,
    /// After.
    pub after: &'a Tree,
    /// Files of others, with their content.
    pub foreign: &'a BTreeMap<PathBuf, Vec<u8>>,
}

impl Look<'_> {
    /// What no run may do, however it ends: change blocks, others' files, links, owners or modes.
    pub fn never(&self) -> Vec<Finding> {
        let mut found = self.foreign_gone();
        for (name, was) in self.before {
            let class = class(name);
            let is_link = matches!(was.what, What::Link(_));
            let bound = matches!(class, Class::Block | Class::Other) || is_link;
            let Some(is) = self.after.get(name) else {
                if bound {
                    let what = if is_link { "link" } else { kind_of(class) };
                    found.push(Finding::new(what, format!("{} is gone", name.display())));
                }
                continue;
            };
            if bound && is.what != was.what {
                let what = if is_link { "link" } else { kind_of(class) };
                let told = format!("{} was {:?} and is {:?}", name.display(), was.what, is.what);
                found.push(Finding::new(what, told));
            }
            found.extend(owner_and_mode(name, was, is));
        }
        found
    }

    /// Whether the words name this path, or one above it that is not the datadir's own.
    fn is_told(&self, name: &Path, told: &str) -> bool {
        let ours = name.ancestors().filter(|above| class(above) == Class::Ours);
        ours.map(|above| self.live.join(above)).any(|path| told.contains(&path.display().to_string()))
    }

    fn foreign_gone(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (name, content) in self.foreign {
            let is_there = |path: &Path| fs::read(self.live.join(path)).is_ok_and(|bytes| bytes == *content);
            // What lay in a database may be moved with it.
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

    /// What a refusal may not do: change a database.
    pub fn refused(&self) -> Vec<Finding> {
        let databases = |tree: &Tree| -> BTreeMap<PathBuf, What> {
            let rows = tree.iter().filter(|(name, _)| class(name) == Class::Database);
            rows.map(|(name, seen)| (name.clone(), seen.what.clone())).collect()
        };
        let (was, is) = (databases(self.before), databases(self.after));
        let changed = was.iter().find(|(name, what)| is.get(*name) != Some(*what));
        let added = is.keys().find(|name| !was.contains_key(*name));
        let name = changed.map(|(name, _)| name).or(added);
        name.map(|name| Finding::new("refused-but-changed", format!("{} changed", name.display())))
            .into_iter()
            .collect()
    }

    /// What a run that is done may not leave: its own files, and files of another owner or a wider mode.
    /// What it tells of by name may stay: it could not be removed.
    pub fn done(&self, datadir: &Path, told: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(home) = self.after.get(datadir) else { return found };
        for (name, is) in self.after {
            let foreign = self.foreign.keys().any(|other| other.starts_with(name));
            let in_foreign = name.ancestors().any(|above| self.foreign.contains_key(above));
            match class(name) {
                Class::Ours if !foreign && !in_foreign && !self.is_told(name, told) => {
                    found.push(Finding::new("leftover", format!("{} is left", name.display())));
                }
                Class::Other | Class::Block if !self.before.contains_key(name) => {
                    found.push(Finding::new("leftover", format!("{} is new", name.display())));
                }
                Class::Database | Class::Lock if !self.before.contains_key(name) => {
                    if (is.uid, is.gid) != (home.uid, home.gid) {
                        let told = format!("{} belongs to {}, not {}", name.display(), is.uid, home.uid);
                        found.push(Finding::new("owner", told));
                    }
                    // Core's umask lets nobody else in; a folder that is open to others stays so.
                    let above = name.parent().and_then(|above| self.before.get(above));
                    let wide = above.map_or(0, |above| above.mode & 0o077);
                    if class(name) == Class::Database && is.mode & 0o077 & !wide != 0 {
                        let told = format!("{} has mode {:o}", name.display(), is.mode);
                        found.push(Finding::new("mode", told));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

const fn kind_of(class: Class) -> &'static str {
    match class {
        Class::Block => "block-files-changed",
        _ => "other-files-changed",
    }
}

fn owner_and_mode(name: &Path, was: &Seen, is: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    if (was.uid, was.gid) != (is.uid, is.gid) {
        let told = format!("{} belonged to {}, now to {}", name.display(), was.uid, is.uid);
        found.push(Finding::new("owner", told));
    }
    // A database that takes another's place may have Core's own modes.
    let core = if is.what == What::Dir { 0o700 } else { 0o600 };
    let as_core = class(name) == Class::Database && is.mode == core;
    if was.mode != is.mode && !matches!(is.what, What::Link(_)) && !as_core {
        let told = format!("{} had mode {:o}, now {:o}", name.display(), was.mode, is.mode);
        found.push(Finding::new("mode", told));
    }
    found
}

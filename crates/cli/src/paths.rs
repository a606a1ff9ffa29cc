//! Checks where a command may write: not among databases and block files. Runs before any file is created.

use crate::core_args::Located;
use engine::{Datadir, Disk as _, Error, RealDisk};
use std::{
    env,
    path::{Path, PathBuf},
};

/// Checks that a rebuild writes no file where it would be lost, or where bitcoind would find it.
pub fn check_reindex(
    located: &Located,
    work_dir: Option<&Path>,
    files: &[(&str, Option<&Path>)],
    output: Option<&Path>,
) -> Result<(), Error> {
    let folders = Folders::of(located, work_dir)?;
    let files = || files.iter().filter_map(|(flag, file)| Some((flag, (*file)?)));
    files().try_for_each(|(flag, file)| folders.check(flag, file))?;
    let mut named = Vec::new();
    for (flag, file) in files() {
        if named.contains(&resolve(file)) {
            return Err(refused(flag, file, "is another output of this command too: choose another name"));
        }
        named.push(resolve(file));
    }
    let Some(output) = output else { return Ok(()) };
    folders.check("--output", output)?;
    if folders.roots.contains(&resolve(output)) {
        let what = "is the datadir itself: choose another directory, or omit --output to rebuild in place";
        return Err(refused("--output", output, what));
    }
    let folders = Folders::new(&Datadir::at(output, located.network()), None);
    files().try_for_each(|(flag, file)| folders.check(flag, file))
}

/// The same, for a command that writes only temporary files and these `files`.
pub fn check(
    located: &Located,
    work_dir: Option<&Path>,
    files: &[(&str, Option<&Path>)],
) -> Result<(), Error> {
    check_reindex(located, work_dir, files, None)
}

/// Refuses an output that exists, before the work begins. What else is wrong with it shows when it is
/// created.
pub fn refuse_existing(path: &Path) -> Result<(), Error> {
    if RealDisk.exists(path).unwrap_or(false) {
        return Err(Error::exists(path));
    }
    Ok(())
}

/// The folders of a datadir, with symbolic links resolved.
struct Folders {
    /// The datadir, and the network's folder in it.
    roots: Vec<PathBuf>,
    /// Folders with data, and those that a rebuild creates and removes.
    reserved: Vec<PathBuf>,
    /// Databases, and the folders in which a rebuild builds new ones.
    databases: Vec<PathBuf>,
}

impl Folders {
    /// The folders of a datadir, and of a `work_dir` that is in none of its databases, and in a directory
    /// that exists: that of a disk which is not mounted is not created on another disk.
    fn of(located: &Located, work_dir: Option<&Path>) -> Result<Self, Error> {
        let mut folders = Self::new(&located.datadir(), work_dir);
        folders.roots.push(resolve(&located.root));
        let Some(dir) = work_dir else { return Ok(folders) };
        is_outside(&folders.databases, "--work-dir", dir)?;
        if let Some(parent) = resolve(dir).parent()
            && !RealDisk.exists(parent).unwrap_or(true)
        {
            let what =
                format!("is in {}, which does not exist: create it, or mount its disk", parent.display());
            return Err(refused("--work-dir", dir, &what));
        }
        Ok(folders)
    }

    fn new(datadir: &Datadir, work_dir: Option<&Path>) -> Self {
        let below = |names: &[&str]| -> Vec<PathBuf> {
            names.iter().map(|name| resolve(&datadir.net_dir().join(name))).collect()
        };
        let databases =
            below(&["chainstate", "chainstate.peregrine", "blocks/index", "blocks/index.peregrine"]);
        let mut reserved = below(&["blocks", "indexes", "peregrine-work", "peregrine-hints"]);
        reserved.push(resolve(&datadir.blocks_dir()));
        reserved.extend(databases.iter().cloned());
        let names = ["peregrine-work", "peregrine-hints"];
        reserved.extend(work_dir.iter().flat_map(|dir| names.map(|name| resolve(&dir.join(name)))));
        Self { roots: vec![resolve(datadir.net_dir())], reserved, databases }
    }

    fn check(&self, flag: &str, path: &Path) -> Result<(), Error> {
        is_outside(&self.reserved, flag, path)
    }
}

fn is_outside(folders: &[PathBuf], flag: &str, path: &Path) -> Result<(), Error> {
    let resolved = resolve(path);
    let Some(folder) = folders.iter().find(|folder| resolved.starts_with(folder)) else { return Ok(()) };
    let what = format!("is inside {}, which holds other data: choose another path", folder.display());
    Err(refused(flag, path, &what))
}

fn refused(flag: &str, path: &Path, what: &str) -> Error {
    Error::usage(format!("{flag} {} {what}", path.display()))
}

/// Resolves the symbolic links in the part of a path that exists, and a link that leads to nothing yet; the
/// rest is kept as written.
fn resolve(path: &Path) -> PathBuf {
    let path = match env::current_dir() {
        Ok(here) => here.join(path),
        Err(_) => path.to_owned(),
    };
    let existing = path.ancestors().find_map(|above| Some((above, RealDisk.resolve(above).ok()?)));
    match existing {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path,
    }
}

//! Checks where a command may write: not among databases and block files. Runs before any file is created.

use crate::args::{CheckArgs, DatadirArgs, ReindexArgs};
use engine::{Disk as _, Error, ErrorKind, RealDisk};
use std::{
    env,
    path::{Path, PathBuf},
};

/// Checks that a rebuild writes no file where it would be lost, or where bitcoind would find it.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_reindex(args: &ReindexArgs) -> Result<(), Error> {
    let CheckArgs { datadir, run, .. } = &args.check;
    let folders = Folders::of(datadir, run.work_dir.as_deref())?;
    if let Some(log) = &args.log {
        folders.check("--log", log)?;
    }
    let Some(output) = &args.output else { return Ok(()) };
    folders.check("--output", output)?;
    if folders.roots.contains(&resolve(output)) {
        let what = "is the datadir itself: choose another directory, or omit --output to rebuild in place";
        return Err(refused("--output", output, what));
    }
    if let Some(log) = &args.log {
        let there = DatadirArgs::network_folders(output, args.check.datadir.chain);
        Folders::new(&there, None).check("--log", log)?;
    }
    Ok(())
}

/// Like [`check_reindex`], for a command that reads a datadir and writes one file.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_output(args: &CheckArgs, output: &Path) -> Result<(), Error> {
    Folders::of(&args.datadir, args.run.work_dir.as_deref())?.check("--output", output)
}

/// Like [`check_reindex`], for a command that writes only temporary files.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_work_dir(datadir: &DatadirArgs, work_dir: Option<&Path>) -> Result<(), Error> {
    Folders::of(datadir, work_dir).map(drop)
}

/// The folders of a datadir, with symbolic links resolved.
struct Folders {
    /// The datadir, and the folders in it that may be the network's.
    roots: Vec<PathBuf>,
    /// Folders with data, and those that a rebuild creates and removes.
    reserved: Vec<PathBuf>,
    /// Databases, and the folders in which a rebuild builds new ones.
    databases: Vec<PathBuf>,
}

impl Folders {
    /// The folders of a datadir, and of a `work_dir` that is in none of its databases.
    fn of(datadir: &DatadirArgs, work_dir: Option<&Path>) -> Result<Self, Error> {
        let DatadirArgs { datadir, chain, .. } = datadir;
        let mut folders = Self::new(&DatadirArgs::network_folders(datadir, *chain), work_dir);
        folders.roots.push(resolve(datadir));
        work_dir.map_or(Ok(()), |dir| is_outside(&folders.databases, "--work-dir", dir))?;
        Ok(folders)
    }

    fn new(networks: &[PathBuf], work_dir: Option<&Path>) -> Self {
        let below = |names: &[&str]| -> Vec<PathBuf> {
            let paths = networks.iter().flat_map(|home| names.iter().map(move |name| home.join(name)));
            paths.map(|path| resolve(&path)).collect()
        };
        let databases =
            below(&["chainstate", "chainstate.peregrine", "blocks/index", "blocks/index.peregrine"]);
        let mut reserved = below(&["blocks", "peregrine-work"]);
        reserved.extend(databases.iter().cloned());
        reserved.extend(work_dir.map(|dir| resolve(&dir.join("peregrine-work"))));
        Self { roots: networks.iter().map(|home| resolve(home)).collect(), reserved, databases }
    }

    fn check(&self, flag: &str, path: &Path) -> Result<(), Error> {
        is_outside(&self.reserved, flag, path)
    }
}

fn is_outside(folders: &[PathBuf], flag: &str, path: &Path) -> Result<(), Error> {
    let resolved = resolve(path);
    match folders.iter().find(|folder| resolved.starts_with(folder)) {
        Some(folder) => {
            let what = format!("is inside {}, which holds other data: choose another path", folder.display());
            Err(refused(flag, path, &what))
        }
        None => Ok(()),
    }
}

fn refused(flag: &str, path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("{flag} {} {what}", path.display()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use std::fs;
    use tempfile::TempDir;

    fn check(root: &Path, more: &[&str]) -> Result<(), String> {
        let words = ["peregrine", "reindex", "--chain", "regtest", "--datadir"];
        let more = more.iter().map(|word| word.replace('@', &root.to_string_lossy()));
        let words = words.iter().map(|&word| word.to_owned()).chain([format!("{}/d", root.display())]);
        let Command::Reindex(args) = Args::try_parse_from(words.chain(more)).unwrap().command else {
            panic!("reindex")
        };
        check_reindex(&args).map_err(|error| {
            assert_eq!(error.kind, ErrorKind::Usage);
            error.to_string()
        })
    }

    /// Regression: a log inside the old chainstate was removed with it; an output in `blocks` was accepted.
    #[test]
    fn paths_inside_other_data_are_refused() {
        let root = TempDir::new().unwrap();
        let net = root.path().join("d/regtest");
        fs::create_dir_all(net.join("blocks/index")).unwrap();
        fs::create_dir_all(root.path().join("disk")).unwrap();
        std::os::unix::fs::symlink(root.path().join("disk"), net.join("chainstate")).unwrap();
        std::os::unix::fs::symlink(net.join("blocks"), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(net.join("blocks/new"), root.path().join("dangling")).unwrap();
        for good in [
            &[][..],
            &["--log", "@/log", "--output", "@/new", "--work-dir", "@/work"],
            &["--log", "@/d/regtest/log", "--work-dir", "@/d"],
            &["--log", "@/d/regtest/chainstate.log"],
            &["--output", "@/d/regtest/new"],
        ] {
            assert_eq!(check(root.path(), good), Ok(()), "{good:?}");
        }
        for (flag, path, words) in [
            ("--log", "@/d/regtest/chainstate/log", "disk, which holds other data"),
            ("--log", "@/disk/log", "is inside"),
            ("--log", "@/link/index/log", "blocks, which"),
            ("--log", "@/d/regtest/chainstate.peregrine/log", "is inside"),
            ("--log", "@/d/regtest/peregrine-work/log", "is inside"),
            ("--output", "@/link/new", "blocks, which"),
            ("--output", "@/dangling", "blocks, which"),
            ("--output", "@/d/regtest/chainstate", "is inside"),
            ("--output", "@/d", "is the datadir itself"),
            ("--output", "@/d/regtest/../../d/", "is the datadir itself"),
            ("--work-dir", "@/link/index", "index, which"),
            ("--work-dir", "@/disk", "is inside"),
        ] {
            let error = check(root.path(), &[flag, path]).unwrap_err();
            assert!(error.starts_with(flag) && error.contains(words), "{flag} {path}: {error}");
        }
        let error = check(root.path(), &["--output", "@/new", "--log", "@/new/regtest/chainstate/log"]);
        assert!(error.unwrap_err().starts_with("--log"));
        let error = check(root.path(), &["--work-dir", "@/w", "--log", "@/w/peregrine-work/log"]);
        assert!(error.unwrap_err().starts_with("--log"));
    }
}

//! Checks where a command may write: not among databases and block files. Runs before any file is created.

use crate::core_args::Located;
use engine::{Datadir, Disk as _, Error, ErrorKind, RealDisk};
use std::{
    env,
    path::{Path, PathBuf},
};

/// Checks that a rebuild writes no file where it would be lost, or where bitcoind would find it.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_reindex(
    located: &Located,
    work_dir: Option<&Path>,
    files: &[(&str, Option<&Path>)],
    output: Option<&Path>,
) -> Result<(), Error> {
    let folders = Folders::of(located, work_dir)?;
    let files = || files.iter().filter_map(|(flag, file)| Some((flag, (*file)?)));
    files().try_for_each(|(flag, file)| folders.check(flag, file))?;
    let Some(output) = output else { return Ok(()) };
    folders.check("--output", output)?;
    if folders.roots.contains(&resolve(output)) {
        let what = "is the datadir itself: choose another directory, or omit --output to rebuild in place";
        return Err(refused("--output", output, what));
    }
    let folders = Folders::new(&Datadir::at(output, located.network()), None);
    files().try_for_each(|(flag, file)| folders.check(flag, file))
}

/// Like [`check_reindex`], for a command that reads a datadir and writes one output.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_output(work_dir: Option<&Path>, located: &Located, output: &Path) -> Result<(), Error> {
    Folders::of(located, work_dir)?.check("--output", output)
}

/// Like [`check_reindex`], for a command that writes only temporary files and perhaps a report.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_verify(located: &Located, work_dir: Option<&Path>, report: Option<&Path>) -> Result<(), Error> {
    let folders = Folders::of(located, work_dir)?;
    report.map_or(Ok(()), |report| folders.check("--report", report))
}

/// Like [`check_reindex`], for a command that writes only temporary files.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn check_work_dir(located: &Located, work_dir: Option<&Path>) -> Result<(), Error> {
    Folders::of(located, work_dir).map(drop)
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
    /// The folders of a datadir, and of a `work_dir` that is in none of its databases.
    fn of(located: &Located, work_dir: Option<&Path>) -> Result<Self, Error> {
        let mut folders = Self::new(&located.datadir(), work_dir);
        folders.roots.push(resolve(&located.root));
        work_dir.map_or(Ok(()), |dir| is_outside(&folders.databases, "--work-dir", dir))?;
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
        let located = args.check.datadir.core.locate().unwrap();
        let files = [("--log", args.log.as_deref()), ("--report", args.report.as_deref())];
        let work_dir = args.check.run.work_dir.as_deref();
        check_reindex(&located, work_dir, &files, args.output.as_deref()).map_err(|error| {
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
            ("--output", "@/d/regtest/indexes/mine", "indexes, which"),
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

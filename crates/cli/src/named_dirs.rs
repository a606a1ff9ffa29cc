//! Checks directories that an option or a setting names, and finds the one that is probably meant.

use crate::bitcoin_conf::{Setting, unexpanded};
use engine::{Disk as _, Error, Location, Network, RealDisk};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Refuses a path that a shell would have changed, had it not been quoted or behind `=`.
pub fn refuse_unexpanded(what: &str, path: Option<&Path>) -> Result<(), Error> {
    let text = path.and_then(Path::to_str).unwrap_or_default();
    let Some(why) = unexpanded(text) else { return Ok(()) };
    Err(Error::usage(format!("{what} {text}: no such path{why} (./{text} for one with this name)")))
}

/// Refuses a word of the command line with a path that a shell expands only at the beginning of a word.
pub fn refuse_tildes(words: &[OsString]) -> Result<(), Error> {
    words.iter().filter_map(|word| word.to_str()).try_for_each(|word| {
        let (what, value) =
            word.split_once('=').filter(|(what, _)| what.starts_with('-')).unwrap_or(("", word));
        match value == "~" || value.starts_with("~/") {
            true => refuse_unexpanded(what, Some(Path::new(value))),
            false => Ok(()),
        }
    })
}

/// Returns the directory that a setting names, which bitcoind does not create.
pub fn existing_dir(setting: &Setting) -> Result<PathBuf, Error> {
    let (name, value) = (&setting.name, setting.value());
    if Path::new(value).is_dir() {
        return Ok(value.into());
    }
    let hint = match Path::new(value).is_relative() {
        true => "; a relative path starts at the current directory",
        false => "; is its disk mounted?",
    };
    let why = unexpanded(value).unwrap_or(hint.to_owned());
    let line = setting.line.map_or(String::new(), |line| format!("line {line}, "));
    Err(Error::usage(format!("{line}{name}={value}: no such directory{why}")).in_file(&setting.file, None))
}

/// Returns the directory to name with `--blocksdir`, if `dir` is not that but one of those below it that have
/// the block files.
pub fn right_blocksdir(dir: &Path, chain: Option<Network>) -> Option<PathBuf> {
    let has_files = |dir: &Path| {
        let is_block_file = |name: &OsString| {
            name.to_str().is_some_and(|name| name.starts_with("blk") && name.ends_with(".dat"))
        };
        RealDisk.list(dir).is_ok_and(|names| names.iter().any(is_block_file))
    };
    let of_network =
        |dir: &Path| Location::network_of_name(dir).filter(|own| chain.is_none_or(|chain| chain == *own));
    if has_files(dir) && dir.file_name()? == "blocks" && !has_files(&dir.join("blocks")) {
        let above = dir.parent()?;
        let right = if of_network(above).is_some() { above.parent()? } else { above };
        return Some(right.to_owned());
    }
    let right = of_network(dir).filter(|_| has_files(&dir.join("blocks"))).and(dir.parent());
    right.map(Path::to_owned)
}

/// Returns the network whose own folder in a datadir `dir` is, by its name and because it has block files.
pub fn own_network(dir: &Path) -> Option<Network> {
    let network = Location::network_of_name(dir)?;
    let has_blocks = |dir: &Path| dir.join("blocks").is_dir() || dir.join("chainstate").is_dir();
    let below = dir.join(network.subdirectory()?);
    (has_blocks(dir) && !has_blocks(&below) && !dir.join("bitcoin.conf").exists()).then_some(network)
}

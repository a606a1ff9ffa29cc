//! The `blk` and `rev` files before a step, and what a run that stores blocks or makes undo data may do with
//! them: it appends records behind the bytes in use, and adds files that are missing.

use crate::prelude::*;

struct BlockFile {
    len: u64,
    /// Its bytes, without the zeros at its end, which may be preallocated.
    bytes: Vec<u8>,
    /// Bytes in use according to the block index; `None` if that cannot be read.
    in_use: Option<u64>,
}

/// The `blk` and `rev` files of a datadir, by their paths below the folder of the case.
#[derive(Default)]
pub struct BlockFiles {
    files: BTreeMap<PathBuf, BlockFile>,
}

impl BlockFiles {
    pub fn of(scene: &Scene<'_>) -> Res<Self> {
        let sizes = sizes_in_use(scene);
        let mut files = BTreeMap::new();
        for path in scene.block_files() {
            let Ok(target) = fs::canonicalize(&path) else { continue };
            if !is_file(&target) {
                continue;
            }
            let mut bytes = fs::read(&target)?;
            let len = bytes.len() as u64;
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            let kind = usize::from(is_named(&path, "rev"));
            let in_use = sizes.as_ref().map(|sizes| sizes.get(number(&path)).map_or(0, |sizes| sizes[kind]));
            files.insert(target.strip_prefix(&scene.live)?.to_owned(), BlockFile { len, bytes, in_use });
        }
        Ok(Self { files })
    }

    /// Returns what is wrong with the file `name` below `live` after a run that may append to it. `scans`:
    /// whether the run ignored the block index. Then no byte may change, except preallocated zeros.
    pub fn flaw(&self, live: &Path, name: &Path, scans: bool) -> Option<String> {
        let Some(was) = self.files.get(name) else { return Some("is not a file to append to".to_owned()) };
        let Ok(is) = fs::read(live.join(name)) else { return Some("cannot be read any more".to_owned()) };
        if (is.len() as u64) < was.len {
            return Some(format!("had {} bytes, now {}", was.len, is.len()));
        }
        let all = was.bytes.len();
        let in_use = was.in_use.filter(|_| !scans).map_or(all, |size| all.min(size as usize));
        let at = was.bytes[..in_use].iter().zip(&is).position(|(was, is)| was != is)?;
        Some(format!("byte {at} changed, {in_use} of {} bytes were in use", was.len))
    }
}

/// Returns the bytes in use of each `blk` and `rev` file by the block index; `None` if that cannot be read.
fn sizes_in_use(scene: &Scene<'_>) -> Option<Vec<[u64; 2]>> {
    let dir = scene.paths.index_dir();
    // A FIFO would block.
    let mut entries = fs::read_dir(&dir).ok()?.flatten();
    if scene.fifo && !entries.all(|entry| is_file(&entry.path())) {
        return None;
    }
    let index = read_block_index(&RealDisk, &dir).ok()?;
    Some(index.files.iter().map(|info| [info.size.into(), info.undo_size.into()]).collect())
}

/// Returns whether the name of a file begins with these letters.
pub fn is_named(path: &Path, kind: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(kind))
}

/// Returns the number in the name of a file.
fn number(path: &Path) -> usize {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.trim_start_matches(char::is_alphabetic).parse().unwrap_or(usize::MAX)
}

/// Returns the `blk` file that belongs to a `rev` file.
fn blk_of<'a>(tree: &'a Tree, rev: &Path) -> Option<&'a Seen> {
    let name = rev.file_name()?.to_str()?.replacen("rev", "blk", 1);
    tree.get(&rev.with_file_name(name))
}

/// Returns what is wrong with a block file that a run which makes undo data has added. It must be the `rev`
/// file of a `blk` file, with its owner and mode.
pub fn flaw_of_new(tree: &Tree, name: &Path, new: &Seen) -> Option<Finding> {
    if !is_named(name, "rev") {
        return Some(Finding::new("leftover", format!("{} is new", name.display())));
    }
    let Some(blk) = blk_of(tree, name) else {
        // Where a link leads that had no file.
        let to_link = name.starts_with("elsewhere");
        let detail = format!("{} is new, but there is no block file", name.display());
        return (!to_link).then(|| Finding::new("leftover", detail));
    };
    if (blk.uid, blk.gid) != (new.uid, new.gid) {
        let detail = format!("{} belongs to {}, its block file to {}", name.display(), new.uid, blk.uid);
        return Some(Finding::new("owner", detail));
    }
    let is_link = matches!(blk.what, What::Link(_));
    (blk.mode != new.mode && !is_link).then(|| {
        let detail = format!("{} has mode {:o}, its block file {:o}", name.display(), new.mode, blk.mode);
        Finding::new("mode", detail)
    })
}

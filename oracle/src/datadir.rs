//! Copies of datadirs, so that each test has one of its own to let Core write in.

use std::{fs, io, path::Path};

/// Copies a directory with all that is in it, but for what `keep` refuses (it is given paths relative to
/// `from`).
///
/// # Errors
/// As the file system has them.
pub fn copy(from: &Path, to: &Path, keep: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    copy_below(from, to, Path::new(""), keep)
}

fn copy_below(from: &Path, to: &Path, at: &Path, keep: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    fs::create_dir_all(to.join(at))?;
    for entry in fs::read_dir(from.join(at))? {
        let entry = entry?;
        let path = at.join(entry.file_name());
        if !keep(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_below(from, to, &path, keep)?;
        } else {
            fs::copy(entry.path(), to.join(&path))?;
        }
    }
    Ok(())
}

/// Whether `path` is one of the files that hold blocks: with nothing else at hand, Core must find out the
/// rest.
#[must_use]
pub fn is_block_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path == Path::new("blocks") || name == "xor.dat" || name.starts_with("blk") && name.ends_with(".dat")
}

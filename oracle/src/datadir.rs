//! Copies datadirs, so that each test has its own in which Core can write.

use std::{fs, io, path::Path};

/// Copies a directory with its contents, except the paths, relative to `from`, for which `keep` returns
/// false.
///
/// # Errors
/// Any I/O error.
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

/// Returns whether `path` is a block file or `xor.dat`: Core can make everything else from these.
#[must_use]
pub fn is_block_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path == Path::new("blocks") || name == "xor.dat" || name.starts_with("blk") && name.ends_with(".dat")
}

//! What was found in a source of blocks.

use disk::departed::WRITTEN_BY;
use std::{fmt, path::PathBuf};

reported! {
/// What was found in a file or folder from which blocks were to be taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceReport {
    /// The file or folder.
    pub path as "source" with "crate::json::PathText": PathBuf,
    /// Number of files that may be block files.
    pub files: u32,
    /// Number of these that were read; the others were no longer needed.
    pub files_read: u32,
    /// Number of these that have no block.
    pub files_without_blocks: u32,
    /// Number of blocks that were found.
    pub blocks: u32,
    /// Number of these that were missing or damaged, and were taken.
    pub used as "blocks_used": u32,
    /// Number of blocks of another chain, which are passed over ([`disk::departed`]).
    pub departed as "blocks_departed": u32,
}
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, files, files_read, files_without_blocks, blocks, used, departed } = self;
        let plural = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        write!(f, "{}: {}", path.display(), plural(*files, "file"))?;
        if *files_read == 0 {
            return f.write_str(", not read: nothing was missing any more");
        }
        write!(f, ", {}, {used} used", plural(*blocks, "block"))?;
        if *files_without_blocks > 0 {
            write!(
                f,
                "; {files_without_blocks} without a block of this chain (another chain, an unknown key, or \
                 no block file)"
            )?;
        }
        if *departed > 0 {
            write!(f, "; {} more were {WRITTEN_BY}", plural(*departed, "block"))?;
        }
        let is_useless = *blocks > 0 && *used == 0;
        f.write_str(if is_useless { "; none of these blocks is missing here" } else { "" })
    }
}

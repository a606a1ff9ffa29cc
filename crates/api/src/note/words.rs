//! Parts of the texts of notes and warnings.

use disk::replace::Recovery;
use wire::FileNo;

/// Words how many blocks are damaged, of which some are in files that do not exist, and how many in no file.
pub(super) fn damage_text(damaged: u32, (lost, lost_files): (u32, u32), missing: u32) -> String {
    let parts = [
        (damaged - lost, "damaged".to_owned()),
        (lost, format!("in {lost_files} missing file{}", if lost_files == 1 { "" } else { "s" })),
        (missing, "in no file".to_owned()),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "none is damaged or missing".to_owned() } else { parts.join(", ") }
}

pub(super) fn missing_files_text(files: &[FileNo]) -> String {
    let first = files.first().copied().unwrap_or_default().0;
    let others = match files.len() {
        0 | 1 => String::new(),
        count => format!(" and {} other files", count - 1),
    };
    format!(
        "the block index places blocks outside the chain in blk{first:05}.dat{others}, which do not exist, \
         so that bitcoind does not start; the new block index has only their headers"
    )
}

pub(super) const fn why_unconnected(may_be_lost: bool) -> &'static str {
    match may_be_lost {
        false => "were never connected",
        true => "have no undo data: they were never connected, or their undo data is lost",
    }
}

pub(super) fn outcome(recovery: Recovery) -> &'static str {
    match recovery {
        Recovery::Finished => "; the replacement is finished now",
        Recovery::Undone => ", and the datadir was used after that; the old databases were put back in place",
        Recovery::Abandoned => {
            ", and the datadir was used after that; the databases in use were kept, and the others of that \
             run were removed"
        }
    }
}

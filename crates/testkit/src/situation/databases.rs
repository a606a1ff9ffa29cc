//! Damage to the chainstate and the block index.

use super::{OLDER, Situation, TIP, break_file, cut_file, row};
use crate::{corrupt::copy_dir, prelude::*};

pub(super) const CHAINSTATE: &[Situation] = &[
    row("nothing", |_| Ok(())),
    row("chainstate: CURRENT", |at| at.write("chainstate/CURRENT", "nothing")),
    row("chainstate: CURRENT missing", |at| at.remove("chainstate/CURRENT")),
    row("chainstate: absent", |at| at.remove("chainstate")),
    row("chainstate: empty folder", |at| {
        at.remove("chainstate")?;
        fs::create_dir(at.path("chainstate"))
    }),
    row("chainstate: a table flipped", |at| break_file(&at.largest("chainstate")?)),
    row("chainstate: a table cut", |at| cut_file(&at.largest("chainstate")?)),
    row("chainstate: a table missing", |at| fs::remove_file(at.largest("chainstate")?)),
    row("chainstate: a file", |at| at.exchange_kind("chainstate")),
    row("chainstate: a link to nothing", |at| at.unmount("chainstate")),
    row("chainstate: of another chain", |at| {
        at.remove("chainstate")?;
        copy_dir(&at.store.join("foreign"), &at.path("chainstate"))
    }),
    row("chainstate: older", |at| {
        at.remove("chainstate")?;
        copy_dir(&at.store.join("older"), &at.path("chainstate"))
    }),
];

pub(super) const INDEX: &[Situation] = &[
    row("index: CURRENT missing", |at| at.remove("blocks/index/CURRENT")),
    row("index: absent", |at| at.remove("blocks/index")),
    row("index: a table flipped", |at| break_file(&at.largest("blocks/index")?)),
    row("index: a table missing", |at| fs::remove_file(at.largest("blocks/index")?)),
    row("index: a file", |at| at.exchange_kind("blocks/index")),
    row("index: older", |at| at.edit_index(|index| index.entries.retain(|entry| entry.height.0 <= OLDER))),
    row("index: a -reindex was interrupted", |at| at.edit_index(|index| index.reindexing = true)),
    row("index: too small sizes", |at| {
        at.edit_index(|index| index.files.iter_mut().for_each(|info| info.size /= 2))
    }),
    row("index: empty", |at| at.edit_index(|index| *index = BlockIndex::default())),
    row("index: without the undo data of a block", |at| {
        at.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.height.0 == 70) {
                entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
                entry.undo_pos = None;
            }
        })
    }),
    row("index and chainstate: CURRENT missing", |at| {
        at.remove("blocks/index/CURRENT")?;
        at.remove("chainstate/CURRENT")
    }),
    row("index: absent, and the last block file", |at| {
        at.remove(&format!("blocks/blk{:05}.dat", at.last()?))?;
        at.remove("blocks/index")
    }),
    row("index: CURRENT missing, and the files of the last block", |at| {
        for number in at.block(TIP)?.0.0..=at.last()? {
            at.remove(&format!("blocks/blk{number:05}.dat"))?;
            at.remove(&format!("blocks/rev{number:05}.dat"))?;
        }
        at.remove("blocks/index/CURRENT")
    }),
];

//! The table of all kinds of damage.

mod blocks;
mod databases;
mod node_indexes;
mod places;
mod situation;
mod undo;

use crate::{Res, scene::Scene};
use std::path::Path;

/// A description of a damage; `None` if there is nothing that can be damaged in this way.
type Description = Res<Option<String>>;

/// Damages a datadir.
type Damage = fn(&mut Scene<'_>) -> Description;

/// A kind of damage.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name of this kind.
    pub name: &'static str,
    /// The function that does it.
    pub act: Damage,
}

const fn kind(name: &'static str, act: Damage) -> Kind {
    Kind { name, act }
}

/// Returns the name of a file without its folder.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Any of the situations that testkit lists.
pub const SITUATION: Kind = kind("situation", situation::situation);

/// All kinds.
pub const KINDS: &[Kind] = &[
    kind("blk-delete-last", blocks::blk_delete_last),
    kind("blk-delete-any", blocks::blk_delete_any),
    kind("blk-delete-all", blocks::blk_delete_all),
    kind("blk-truncate", blocks::blk_truncate),
    kind("blk-cut-at-record", blocks::blk_cut_at_record),
    kind("blk-zeros", blocks::blk_zeros),
    kind("blk-flip", blocks::blk_flip),
    kind("blk-garbage-behind", blocks::blk_garbage_behind),
    kind("blk-duplicate-record", blocks::blk_duplicate_record),
    kind("blk-record-length", blocks::blk_record_length),
    kind("blk-sibling-record", blocks::blk_sibling_record),
    kind("blk-swap", blocks::blk_swap),
    kind("blk-of-another-chain", blocks::blk_of_another_chain),
    kind("blk-from-backup", blocks::blk_from_backup),
    kind("blk-far-number", blocks::blk_far_number),
    kind("sparse-tails", blocks::sparse_tails),
    kind("rev-delete-all", blocks::rev_delete_all),
    kind("rev-delete-one", blocks::rev_delete_one),
    kind("rev-truncate", blocks::rev_truncate),
    kind("rev-zero-tail", blocks::rev_zero_tail),
    kind("rev-flip", blocks::rev_flip),
    kind("rev-garbage-behind", blocks::rev_garbage_behind),
    kind("rev-swap", blocks::rev_swap),
    kind("rev-flip-record", undo::rev_flip_record),
    kind("rev-shorten-record", undo::rev_shorten_record),
    kind("rev-swap-records", undo::rev_swap_records),
    kind("rev-repeat-record", undo::rev_repeat_record),
    kind("rev-record-length", undo::rev_record_length),
    kind("rev-of-another-datadir", undo::rev_of_another_datadir),
    kind("rev-from-backup", undo::rev_from_backup),
    kind("rev-empty", undo::rev_empty),
    kind("rev-link", undo::rev_link),
    kind("undo-file", undo::undo_file),
    kind("undo-folder-with-notes", undo::undo_folder_with_notes),
    kind("undo-leftover", undo::undo_leftover),
    kind("xor-delete", blocks::xor_delete),
    kind("xor-change", blocks::xor_change),
    kind("index-delete", databases::index_delete),
    kind("index-truncate", databases::index_truncate),
    kind("index-flip", databases::index_flip),
    kind("index-table-delete", databases::index_table_delete),
    kind("index-current-missing", databases::index_current_missing),
    kind("index-older", databases::index_older),
    kind("index-reindexing", databases::index_reindexing),
    kind("index-rows", databases::index_rows),
    kind("index-marks", databases::index_marks),
    kind("chainstate-delete", databases::chainstate_delete),
    kind("chainstate-empty", databases::chainstate_empty),
    kind("chainstate-older", databases::chainstate_older),
    kind("chainstate-of-another", databases::chainstate_of_another),
    kind("chainstate-current-missing", databases::chainstate_current_missing),
    kind("chainstate-table-delete", databases::chainstate_table_delete),
    kind("chainstate-flip", databases::chainstate_flip),
    kind("chainstate-truncate", databases::chainstate_truncate),
    kind("node-index-delete", node_indexes::node_index_delete),
    kind("node-index-truncate", node_indexes::node_index_truncate),
    kind("node-index-flip", node_indexes::node_index_flip),
    kind("node-index-table-delete", node_indexes::node_index_table_delete),
    kind("node-index-current-missing", node_indexes::node_index_current_missing),
    kind("node-index-older", node_indexes::node_index_older),
    kind("node-index-row", node_indexes::node_index_row),
    kind("node-index-filter", node_indexes::node_index_filter),
    kind("link-chainstate", places::link_chainstate),
    kind("link-index", places::link_index),
    kind("link-blocks", places::link_blocks),
    kind("link-dangling", places::link_dangling),
    kind("mount-chainstate", places::mount_chainstate),
    kind("mount-index", places::mount_index),
    kind("mount-blocks", places::mount_blocks),
    kind("leftover-file", places::leftover_file),
    kind("leftover-folder-of-user", places::leftover_folder_of_user),
    kind("leftover-with-notes", places::leftover_with_notes),
    kind("work-file", places::work_file),
    kind("work-folder-with-notes", places::work_folder_with_notes),
    kind("notes-in-database", places::notes_in_database),
    kind("read-only", places::read_only),
    kind("unreadable", places::unreadable),
    kind("owned-by-node-user", places::owned_by_node_user),
    kind("owned-by-root", places::owned_by_root),
    kind("lock-missing", places::lock_missing),
    kind("fifo", places::fifo),
    kind("folder-for-file", places::folder_for_file),
    SITUATION,
];

//! The table of all kinds of damage.

mod blocks;
mod databases;
mod node_indexes;
mod places;
mod situation;
mod undo;

use crate::prelude::*;

/// A description of a damage; `None` if there is nothing that can be damaged in this way.
type Description = Res<Option<String>>;

type Damage = fn(&mut Scene<'_>) -> Description;

#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
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

/// All kinds. What is not random is in the list of situations.
pub const KINDS: &[Kind] = &[
    kind("blk-delete-any", |scene| blocks::delete_any(scene, "blk")),
    kind("blk-truncate", |scene| blocks::cut(scene, "blk")),
    kind("blk-cut-at-record", blocks::blk_cut_at_record),
    kind("blk-zeros", |scene| blocks::zeros(scene, "blk", 3)),
    kind("blk-flip", |scene| blocks::flip(scene, "blk")),
    kind("blk-garbage-behind", |scene| blocks::garbage(scene, "blk")),
    kind("blk-duplicate-record", blocks::blk_duplicate_record),
    kind("blk-record-length", |scene| blocks::record_length(scene, "blk")),
    kind("blk-sibling-record", blocks::blk_sibling_record),
    kind("blk-swap", |scene| blocks::swap(scene, "blk")),
    kind("blk-of-another-chain", |scene| blocks::of_another(scene, "blk")),
    kind("blk-from-backup", |scene| blocks::from_backup(scene, &["blk", "rev"])),
    kind("blk-far-number", blocks::blk_far_number),
    kind("sparse-tails", blocks::sparse_tails),
    kind("rev-delete-one", |scene| blocks::delete_any(scene, "rev")),
    kind("rev-truncate", |scene| blocks::cut(scene, "rev")),
    kind("rev-zero-tail", |scene| blocks::zeros(scene, "rev", 1)),
    kind("rev-flip", |scene| blocks::flip(scene, "rev")),
    kind("rev-garbage-behind", |scene| blocks::garbage(scene, "rev")),
    kind("rev-swap", |scene| blocks::swap(scene, "rev")),
    kind("rev-flip-record", undo::rev_flip_record),
    kind("rev-shorten-record", undo::rev_shorten_record),
    kind("rev-swap-records", undo::rev_swap_records),
    kind("rev-repeat-record", undo::rev_repeat_record),
    kind("rev-record-length", |scene| blocks::record_length(scene, "rev")),
    kind("rev-of-another-datadir", |scene| blocks::of_another(scene, "rev")),
    kind("rev-from-backup", |scene| blocks::from_backup(scene, &["rev"])),
    kind("rev-empty", undo::rev_empty),
    kind("rev-link", places::rev_link),
    kind("undo-file", |scene| scene.add_note(&scene.blocks().join("peregrine-undo"))),
    kind("undo-folder-with-notes", |scene| scene.add_note(&scene.blocks().join("peregrine-undo/notes.txt"))),
    kind("undo-leftover", undo::undo_leftover),
    kind("xor-change", blocks::xor_change),
    kind("index-truncate", |scene| databases::cut(scene, &scene.paths.index_dir())),
    kind("index-flip", |scene| databases::flip(scene, &scene.paths.index_dir())),
    kind("index-table-delete", |scene| databases::delete_data(scene, &scene.paths.index_dir())),
    kind("index-older", databases::index_older),
    kind("index-rows", databases::index_rows),
    kind("index-marks", databases::index_marks),
    kind("chainstate-table-delete", |scene| databases::delete_data(scene, &scene.paths.chainstate_dir())),
    kind("chainstate-flip", |scene| databases::flip(scene, &scene.paths.chainstate_dir())),
    kind("chainstate-truncate", |scene| databases::cut(scene, &scene.paths.chainstate_dir())),
    kind("node-index-delete", node_indexes::node_index_delete),
    kind("node-index-truncate", |scene| node_indexes::in_database(scene, databases::cut)),
    kind("node-index-flip", |scene| node_indexes::in_database(scene, databases::flip)),
    kind("node-index-table-delete", |scene| node_indexes::in_database(scene, databases::delete_data)),
    kind("node-index-current-missing", |scene| node_indexes::in_database(scene, databases::delete_current)),
    kind("node-index-older", node_indexes::node_index_older),
    kind("node-index-row", node_indexes::node_index_row),
    kind("node-index-filter", node_indexes::node_index_filter),
    kind("link-chainstate", |scene| places::link(scene, &scene.paths.chainstate_dir(), "chainstate")),
    kind("link-index", |scene| places::link(scene, &scene.paths.index_dir(), "index")),
    kind("link-blocks", |scene| places::link(scene, &scene.blocks(), "blocks")),
    kind("link-dangling", places::link_dangling),
    kind("mount-chainstate", |scene| places::mount(scene, &scene.paths.chainstate_dir())),
    kind("mount-index", |scene| places::mount(scene, &scene.paths.index_dir())),
    kind("mount-blocks", |scene| places::mount(scene, &scene.blocks())),
    kind("leftover-file", places::leftover_file),
    kind("leftover-folder-of-user", places::leftover_folder_of_user),
    kind("leftover-with-notes", places::leftover_with_notes),
    kind("work-file", |scene| scene.add_note(&scene.net().join("peregrine-work"))),
    kind("work-folder-with-notes", |scene| scene.add_note(&scene.net().join("peregrine-work/notes.txt"))),
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

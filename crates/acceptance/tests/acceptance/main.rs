//! Tests of the engine, of downloads and of ranges from outside: one program, since each program would
//! contain all of them once more. `cargo test -p acceptance sync::` runs a group, `sync::prune::` those of a
//! file.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

/// Every way from blocks to a chainstate, compared.
mod ways {
    mod coins;
    mod cores_datadirs;
    mod undo;
    mod verdicts;
}

/// What a rebuild reads: blocks, undo data and the block index, sound and damaged.
mod input {
    mod bad_input;
    mod chainstate_branch;
    mod damage_table;
    mod flipped_bits;
    mod given_blocks;
    mod in_place;
    mod plan_memory;
    mod read_blocks;
    mod read_history;
    mod scripts;
    mod siblings;
    mod situations;
    mod spending_inputs;
    mod unreadable;
    mod until_damage;
    mod verdicts;
}

/// Interrupts, crashes, failing disks and little memory.
mod faults {
    mod bounded;
    mod cache_engine;
    mod every_operation;
    mod lower_tip;
    mod lying_disk;
    mod resume;
    mod safety;
}

/// Rebuilds with hints.
mod hints {
    mod files;
    mod lies;
    pub mod sources;
    mod without_undo;
}

/// Downloads from peers.
mod sync {
    mod behind;
    mod branches;
    mod download;
    mod files;
    mod follow;
    mod invalid;
    mod peers;
    pub mod prune;
    mod resume;
    mod spent_coins;
    pub mod unprune;
}

/// Undo data that is missing or damaged.
mod undo {
    mod commands;
    mod exported;
    mod faults;
    mod rebuild;
    mod resume;
    mod tips;
}

/// bitcoind's indexes.
mod indexes {
    mod changes;
    mod doctor;
    mod faults;
    pub mod in_pass;
    mod make;
    mod pruned;
    mod update;
}

/// Ranges of a chain that are checked apart.
mod ranges {
    mod lies;
    mod merge;
}

/// The other commands.
mod commands {
    mod coins_on_disk;
    mod doctor;
    mod fetched_snapshots;
    mod fill;
    mod load_snapshot;
    mod made_files;
    mod marks;
    mod no_datadir;
    mod node_indexes;
    mod repair;
    mod second_chainstate;
    mod shared_snapshots;
    mod snapshots;
    mod stats_at;
    pub mod update;
    pub mod update_branches;
    mod update_faults;
    mod verify;
}

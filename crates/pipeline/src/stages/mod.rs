//! The stages of a rebuild, in order. One file each; control flow between them is in the engine's
//! `commands/reindex.rs`.
//!
//! | stage | input | output |
//! | --- | --- | --- |
//! | plan | the datadir | the chain, with valid headers, and the positions of each block and its undo data |
//! | read | the chain | raw blocks with their undo data, each read by the worker that checks it |
//! | check | blocks | effects: coins created, and claims of coins spent |
//! | scripts | inputs of checked blocks | nothing: each script was run and succeeded |
//! | match | effects, in any order | each claim matched with its coin (in [`coins::Join`]) |
//! | undo | coins routed to their spenders, and those blocks once more | undo data, and its claims checked |
//! | finish | the survivors | the new chainstate's tables, `hash_serialized_3` |
//! | prove | the new chainstate on disk | the same hash, from the bytes read back |
//! | commit | the proven chainstate | the datadir with the new chainstate in place |
//!
//! If check, scripts or match finds something that may be wrong with the chain, `job::verdict` finds out what
//! it is.

pub mod apply;
pub mod block_fault;
pub mod block_parts;
pub mod block_source;
pub mod check;
pub mod coin_hash;
pub mod coin_reader;
pub mod coin_sink;
pub mod completed_blocks;
pub mod conflicts;
pub mod connect;
pub mod deliveries;
pub mod finish;
pub mod history;
pub mod make_undo;
pub mod method;
pub mod partial_state;
pub mod parts;
pub mod read;
pub mod scripts;
pub mod spending_inputs;
pub mod spill;
pub mod stats_change;
pub mod stored_coins;
pub mod turns;
pub mod undo_survey;
pub mod unspent;
pub mod walk;
pub mod window;
pub mod work_dir;

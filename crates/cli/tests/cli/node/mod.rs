//! A real bitcoind before and after what Peregrine does; without one, these tests are skipped. All tests
//! beside bitcoind are in modules named `node`, also in other files: `make test-node` runs these.

mod advice;
mod indexes;
mod made_indexes;
mod releases;
mod snapshots;
mod stored_blocks;
mod sync;
mod unprune;

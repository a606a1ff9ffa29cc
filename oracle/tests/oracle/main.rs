//! Peregrine against Bitcoin Core's own code.

mod bytes;
mod carry_on;
mod generated;
mod mutants;
mod mutations;
mod odd_outputs;
mod prelude;
mod real_datadirs;
mod refused_blocks;
mod scanned_index;
mod synced;

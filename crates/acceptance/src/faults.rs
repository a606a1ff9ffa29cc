//! Shared by tests that let each operation fail: a small datadir, and the loop over all operations.

use super::{Case, Template};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use testkit::{Chain, ChainSpec};

/// A small chain with some spends.
pub fn tiny() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(21, 40_000) }))
}

/// A datadir of it.
pub fn tiny_case() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| Template::of(tiny())).case()
}

/// Calls `trial` with 0, `stride`, 2 * `stride`, ..., on several threads, until it returns true.
pub fn each_operation(stride: u64, trial: impl Fn(u64) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    if trial(next.fetch_add(stride, Ordering::Relaxed)) {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

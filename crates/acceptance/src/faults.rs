//! Shared by tests that let each operation fail, or crash before each: a small datadir, and the loops over
//! all operations.

use super::{Case, Template};
use engine::{Error, ErrorKind};
use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use testkit::{
    Chain, ChainSpec,
    fault::{Crashes, FaultDisk, InjectedFault, Operations, explore},
    rng::Rng,
};

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

/// What a crash during a command may leave, and what must follow.
pub struct Scenario<'a> {
    /// The datadir before the command.
    pub before: &'a (dyn Fn() -> Case + Sync),
    /// The command.
    pub run: &'a (dyn Fn(&FaultDisk, &Case) -> Result<(), Error> + Sync),
    /// Asserts that what a crash has left is whole, and that it is the result if the command had succeeded.
    pub is_whole: &'a (dyn Fn(&Case, bool, &str) + Sync),
    /// Asserts that the command succeeds now.
    pub succeeds: &'a (dyn Fn(&Case, &str) + Sync),
}

impl Scenario<'_> {
    /// Lets each operation of this kind fail once, or one in `stride`. Returns how many of them have failed
    /// the command.
    pub fn fail_each(&self, operations: Operations, stride: u64) -> u64 {
        let failures = AtomicU64::new(0);
        each_operation(stride, |at| {
            let (case, what) = ((self.before)(), format!("operation {at}, {operations:?}"));
            let disk = FaultDisk::fail_at(at, InjectedFault::Once, operations, io::ErrorKind::Other);
            let done = (self.run)(&disk, &case);
            (self.is_whole)(&case, done.is_ok(), &what);
            if !disk.has_failed() {
                done.unwrap();
                return true;
            }
            if let Err(error) = done {
                let is_of_disk = matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged);
                assert!(is_of_disk, "{what}: {error}");
                failures.fetch_add(1, Ordering::Relaxed);
            }
            (self.succeeds)(&case, &what);
            false
        });
        failures.into_inner()
    }

    /// Tries each crash, and after it another one, unless once is enough. Returns the number of states that
    /// were found.
    pub fn explore(&self, crashes: Crashes) -> u64 {
        let Self { before, run, is_whole, succeeds } = self;
        let case = before();
        let first = |disk: &FaultDisk| run(disk, &case).unwrap();
        explore(case.root(), crashes, first, |crash| {
            let (case, mut what) = (Case::of(crash.dir), crash.what);
            is_whole(&case, crash.is_done, &what);
            if crashes.twice {
                let mut rng = Rng::new(crash.changes, &what);
                let at = rng.below(crash.changes + 50);
                let (fault, kind) = (InjectedFault::Sticky, io::ErrorKind::Other);
                let disk = FaultDisk::fail_at(at, fault, Operations::Changes, kind)
                    .with_names_at_risk(case.root().parent().unwrap());
                let disk = if crashes.in_steps { disk.without_exchange() } else { disk };
                let done = run(&disk, &case);
                disk.cut_power(rng.next_u64()).unwrap();
                what += &format!(", then a power cut after {at}");
                is_whole(&case, done.is_ok(), &what);
            }
            succeeds(&case, &what);
        })
    }
}

//! Shared by tests that let each operation fail, or crash before each: a small datadir, and the loops over
//! all operations.

use crate::prelude::*;
use testkit::fault::explore;

/// A small chain with some spends.
pub fn tiny() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(21, 40_000) }))
}

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

/// What goes wrong with the disk while a command runs.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// One of these operations fails in this way.
    Fault(InjectedFault, Operations, io::ErrorKind),
    /// It is full after some bytes.
    Full,
    /// The run is interrupted at an operation that changes something.
    Interrupt,
}

impl Trouble {
    /// An operation that changes something fails once.
    pub const CHANGE: Self = Self::Fault(InjectedFault::Once, Operations::Changes, io::ErrorKind::Other);
    /// Any operation fails once.
    pub const ANY: Self = Self::Fault(InjectedFault::Once, Operations::All, io::ErrorKind::Other);
    /// From an operation on that changes something, all of them fail.
    pub const NO_CHANGES: Self =
        Self::Fault(InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other);

    /// The same, because it is full.
    pub const NO_SPACE: Self =
        Self::Fault(InjectedFault::Sticky, Operations::Changes, io::ErrorKind::StorageFull);

    /// A disk with this trouble at an operation, or after so many bytes.
    fn disk(self, at: u64) -> FaultDisk {
        match self {
            Self::Fault(fault, operations, kind) => FaultDisk::fail_at(at, fault, operations, kind),
            Self::Full => FaultDisk::full_after(at),
            Self::Interrupt => FaultDisk::interrupting_at(at),
        }
    }

    /// Whether a run has come to its end before the trouble.
    fn is_over(self, disk: &FaultDisk, done: &Result<(), Error>) -> bool {
        match self {
            Self::Fault(..) | Self::Interrupt => !disk.has_failed(),
            Self::Full => done.is_ok(),
        }
    }

    /// Asserts that an error says what has gone wrong. What cannot be read may count as damage.
    fn assert_explains(self, error: &Error, what: &str) {
        if matches!(self, Self::Interrupt) {
            return assert_eq!(error.kind, ErrorKind::Interrupted, "{what}: {error}");
        }
        let is_read = matches!(self, Self::Fault(_, Operations::All, _));
        let is_fit = error.kind == ErrorKind::Environment || is_read && error.kind == ErrorKind::Damaged;
        assert!(is_fit, "{what}: {error}");
        if matches!(self, Self::Full | Self::Fault(_, _, io::ErrorKind::StorageFull)) {
            let offers_space = error.remedies.contains(&Remedy::FreeDiskSpace);
            assert!(error.file.is_some() && offers_space, "{what}: {error}");
        }
    }
}

/// What a fault or a crash during a command may leave, and what must follow.
pub struct Scenario<'a> {
    pub before: &'a (dyn Fn() -> Case + Sync),
    pub run: &'a (dyn Fn(&FaultDisk, &Case) -> Result<(), Error> + Sync),
    /// Asserts that what a fault or a crash has left is whole, and that it is the result if the command had
    /// succeeded.
    pub is_whole: &'a (dyn Fn(&Case, bool, &str) + Sync),
    /// Asserts that the command succeeds now.
    pub succeeds: &'a (dyn Fn(&Case, &str) + Sync),
}

impl Scenario<'_> {
    /// Lets each operation have this trouble, `stride` apart, and then one of the next run if `twice`, until
    /// there is none. Returns the number of runs that failed.
    pub fn suffer(&self, trouble: Trouble, stride: u64, twice: bool) -> u64 {
        let (Self { before, run, is_whole, succeeds }, failures) = (self, AtomicU64::new(0));
        each_operation(stride, |at| {
            let (case, disk, mut what) = (before(), trouble.disk(at), format!("{trouble:?} at {at}"));
            let done = run(&disk, &case);
            is_whole(&case, done.is_ok(), &what);
            if trouble.is_over(&disk, &done) {
                done.unwrap();
                return true;
            }
            if let Err(error) = &done {
                trouble.assert_explains(error, &what);
                failures.fetch_add(1, Ordering::Relaxed);
            }
            if twice {
                let at = Rng::new(at, "second fault").below(disk.count() + 50);
                what += &format!(", then at {at}");
                is_whole(&case, run(&trouble.disk(at), &case).is_ok(), &what);
            }
            succeeds(&case, &what);
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
                let disk = FaultDisk::killed_at(at).with_names_at_risk(case.root().parent().unwrap());
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

//! Starts threads, and reports an error if the system refuses; locks what they share.

use api::{error::Error, event::PROGRESS_INTERVAL, remedy::Remedy};
use crossbeam::channel::{RecvTimeoutError, bounded};
use std::{
    iter::once,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, Builder, Scope, ScopedJoinHandle},
};

/// Starts a thread in `scope`, named `name`.
///
/// # Errors
/// [`api::error::ErrorKind::Environment`] if the system cannot start another thread.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Started<'scope, T> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work).map_err(|error| {
        Error::environment(format!("the system cannot start another thread: {error}"))
            .with_remedies([Remedy::FewerThreads, Remedy::RaiseProcessLimit])
            .caused_by(error)
    })
}

/// A thread, or the error for one that could not be started.
pub type Started<'scope, T> = Result<ScopedJoinHandle<'scope, T>, Error>;

/// Waits for all threads, and returns what each has returned, or [`api::error::ErrorKind::Internal`] if it
/// has panicked. No thread is left to the scope: that would panic too if one of them has.
pub fn join_all<T>(threads: Vec<Started<'_, T>>) -> Vec<Result<T, Error>> {
    threads.into_iter().map(|thread| thread?.join().map_err(|_| Error::panicked())).collect()
}

/// Calls `work` on each of `threads` threads, and `tick` a few times a second until all have returned. If a
/// thread cannot be started, `failed` is set, so that the others stop. Returns what each has returned, or
/// [`api::error::ErrorKind::Internal`] if it has panicked.
pub fn on_all<T: Send>(
    threads: usize,
    name: &str,
    failed: &AtomicBool,
    work: impl Fn() -> Result<T, Error> + Sync,
    tick: impl Fn(),
) -> Vec<Result<T, Error>> {
    thread::scope(|scope| {
        let (busy, all_done) = bounded::<()>(0);
        let start = |_| {
            let (busy, work) = (busy.clone(), &work);
            let work = move || {
                let _busy = busy;
                work()
            };
            spawn(scope, name, work).inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let started = (0..threads).map(start).collect();
        // The threads hold the only ends: the channel closes when all have ended, or one has panicked.
        drop(busy);
        while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(PROGRESS_INTERVAL) {
            tick();
        }
        join_all(started).into_iter().map(|done| done?).collect()
    })
}

/// Calls `each` with all numbers below `count`, on `threads` threads, which take them in order, each with a
/// state of its own that `begin` makes. Numbers above one with an error are not begun. Once a thread has
/// panicked, only numbers that are already taken are begun.
///
/// # Errors
/// The error of the lowest number that has one; the same errors as [`spawn`], if not even one thread can be
/// started; [`api::error::ErrorKind::Internal`] if a thread panics.
pub fn each_number<S>(
    threads: usize,
    count: u32,
    begin: impl Fn() -> S + Sync,
    each: impl Fn(&mut S, u32) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let (next, bound) = (AtomicU32::new(0), AtomicU32::new(count));
    let lowest = Mutex::new(None::<(u32, Error)>);
    let work = || {
        let _stop_others = StopIfPanicking { next: &next, count };
        let mut state = begin();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= bound.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = each(&mut state, number) {
                bound.fetch_min(number, Ordering::Relaxed);
                let lowest = &mut *lock(&lowest);
                if lowest.as_ref().is_none_or(|(at, _)| number < *at) {
                    *lowest = Some((number, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        let start = || spawn(scope, "worker", work);
        let first = start().inspect_err(|_| _ = next.fetch_max(count, Ordering::Relaxed));
        // Fewer threads have the same result.
        let others = (1..threads).map_while(|_| start().ok().map(Ok));
        join_all(once(first).chain(others).collect()).into_iter().collect::<Result<(), _>>()
    })?;
    lowest.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, error)| Err(error))
}

/// Lets the other threads of [`each_number`] take no more numbers if this one panics. What is taken is begun:
/// others may wait for it.
struct StopIfPanicking<'a> {
    next: &'a AtomicU32,
    count: u32,
}

impl Drop for StopIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.next.fetch_max(self.count, Ordering::Relaxed);
        }
    }
}

/// Calls `work` with each item, on up to `threads` threads, and returns the results in any order.
///
/// # Errors
/// The same errors as [`spawn`]; [`api::error::ErrorKind::Internal`] if a thread panics.
pub fn for_all<T: Send, R: Send>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
) -> Result<Vec<R>, Error> {
    Ok(for_all_beside(threads, items, work, || ())?.0)
}

/// Like [`for_all`], while this thread first calls `own`, whose result is returned too.
pub fn for_all_beside<T: Send, R: Send, O>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
    own: impl FnOnce() -> O,
) -> Result<(Vec<R>, O), Error> {
    let others = threads.min(items.size_hint().1.unwrap_or(usize::MAX)).saturating_sub(1);
    let items = Mutex::new(items);
    let next = || lock(&items).next();
    let work_all = || std::iter::from_fn(next).map(&work).collect::<Vec<R>>();
    thread::scope(|scope| {
        let started = (0..others).map(|_| spawn(scope, "checker", work_all));
        let started = started.collect::<Result<Vec<_>, _>>()?;
        let own = own();
        let mut results = work_all();
        for others in join_all(started.into_iter().map(Ok).collect()) {
            results.extend(others?);
        }
        Ok((results, own))
    })
}

/// Locks a mutex, also if a thread has panicked while it held it: the panic is reported when that thread is
/// joined.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Starts threads, and reports an error if the system refuses; locks what they share.

use crate::api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{Builder, Scope, ScopedJoinHandle},
};

/// Starts a thread in `scope`, named `name`.
///
/// # Errors
/// [`ErrorKind::Environment`] if the system cannot start another thread.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work).map_err(|error| {
        Error::new(ErrorKind::Environment, format!("the system cannot start another thread: {error}"))
            .with_remedies([Remedy::FewerThreads, Remedy::RaiseProcessLimit])
            .caused_by(error)
    })
}

/// Locks a mutex, also if a thread has panicked while it held it: the panic is reported when that thread is
/// joined.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Threads that may not be had.

use crate::error::{Error, ErrorKind};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread in `scope`, named for what it does.
///
/// # Errors
/// [`ErrorKind::Environment`] if the system starts no more.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work).map_err(|error| {
        let detail = format!(
            "the system starts no more threads: {error}; give fewer --threads, or raise the limit of \
             processes (ulimit -u, or pids.max of the control group)"
        );
        Error::new(ErrorKind::Environment, detail)
    })
}

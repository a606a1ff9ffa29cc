//! Starts threads, and reports an error if the system refuses.

use crate::error::{Error, ErrorKind};
use std::thread::{Builder, Scope, ScopedJoinHandle};

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
        let detail = format!(
            "the system cannot start another thread: {error}; use fewer --threads, or raise the limit on \
             processes (ulimit -u, or pids.max of the control group)"
        );
        Error::new(ErrorKind::Environment, detail)
    })
}

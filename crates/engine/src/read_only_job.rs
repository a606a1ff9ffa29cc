//! Jobs that read the blocks of a datadir and leave the datadir unchanged.

use crate::{
    chain::{self, Files},
    clock::Clock,
    error::{Error, ErrorKind},
    event::{Event, EventSink},
    job::{self, ChainPreferences, Job},
    machine,
    options::ReindexOptions,
    stages::{Stage, apply::Method, commit},
    work_dir::WorkDir,
};
use disk::{
    fs::Disk,
    lock::{DatadirLock, LockMode},
};
use std::{path::Path, sync::atomic::AtomicBool};

/// Opens a datadir for reading, makes a plan, and calls `work`. If the result is a file, `beside` names it;
/// an interrupted job can then be resumed.
///
/// # Errors
/// The same errors as [`crate::reindex()`], and those of `work`.
pub fn with_read_only_job<T>(
    disk: &dyn Disk,
    options: &ReindexOptions,
    beside: Option<&Path>,
    method: &Method,
    (sink, interrupt): (&dyn EventSink, &AtomicBool),
    mut work: impl FnMut(&Job<'_>, &mut Clock) -> Result<T, Error>,
) -> Result<T, Error> {
    let clock = &mut Clock::start();
    sink.event(Event::Started(Stage::Plan));
    machine::sha256_kernel()?;
    let datadir = commit::open_datadir(disk, &options.datadir, options.network)?;
    commit::recover_before_reading(disk, &datadir, sink)?;
    let _locks = DatadirLock::take(disk, &datadir, LockMode::Read)?;
    let obfuscation = chain::obfuscation(disk, &datadir)?;
    let files = &Files { disk, datadir: &datadir, obfuscation, network: options.network };
    job::retry_without_invalid(sink, |invalid| {
        let preferences = ChainPreferences { invalid, ..ChainPreferences::default() };
        let plan = &job::plan(files, options, &preferences, sink, interrupt)?;
        clock.lap(Stage::Plan);
        let work_dir = &WorkDir::for_result(disk, options, beside);
        // A job that creates no file leaves no checkpoint either.
        let resumable = beside.is_some();
        let job = Job { files, plan, options, method, work: work_dir, resumable, sink, interrupt };
        let result = work(&job, clock);
        let can_resume = matches!(
            result.as_ref().map_err(|error| error.kind),
            Err(ErrorKind::Damaged | ErrorKind::Environment | ErrorKind::Interrupted)
        );
        if !(resumable && can_resume) {
            work_dir.remove()?;
        }
        result
    })
}

//! Jobs that read the blocks of a datadir and leave the datadir unchanged.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        options::ReindexOptions,
        stage::Stage,
    },
    job::{self, ChainPreferences, Job, clock::Clock, memory::MemoryBudget, session::Session},
    stages::{method::Method, work_dir::WorkDir},
};
use std::{path::Path, sync::atomic::AtomicBool};
use vfs::Disk;

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
    let session = Session::open_for_reading(disk, &options.datadir, options.network, sink)?;
    let files = &session.files()?;
    job::retry_without_invalid(sink, |invalid| {
        let preferences = ChainPreferences { invalid, ..ChainPreferences::default() };
        let plan = &job::plan(files, options, &preferences, sink, interrupt)?;
        let budget = MemoryBudget::after_plan(options, plan.chain.block_count());
        clock.lap(Stage::Plan);
        let work_dir = &WorkDir::for_result(disk, options, beside);
        // A job that creates no file leaves no checkpoint either.
        let resumable = beside.is_some();
        let job = Job { files, plan, budget, options, method, work: work_dir, resumable, sink, interrupt };
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

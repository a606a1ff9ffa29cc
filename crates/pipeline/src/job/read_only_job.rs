//! Jobs that read the blocks of a datadir and leave the datadir unchanged.

use crate::{
    job::{self, ChainRequest, Job, checkpoint::with_resume_hint, clock::Clock},
    stages::{method::Method, work_dir::WorkDir},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::ChainOptions,
    stage::Stage,
};
use chain::{
    blocks::files::Files,
    plan::{existing_state::ExistingState, planner::Plan},
    session::Session,
};
use disk::datadir::INDEX;
use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use vfs::{Disk, During as _, dir_of};
use wire::Height;

/// How often the block index of a running bitcoind is read again.
const LIVE_ATTEMPTS: u32 = 20;
/// Pause before that.
const LIVE_PAUSE: Duration = Duration::from_millis(50);

/// Returns an error if a file exists at `path`.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is one; any I/O error.
pub fn require_absent(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    if disk.exists(path).during_creation(path)? {
        return Err(Error::exists(path));
    }
    Ok(())
}

/// Calls `read`, which reads the block index; again for a while, if a bitcoind that uses it has meanwhile
/// merged its tables and removed some.
///
/// # Errors
/// The error of the last call.
pub fn read_live<T>(options: &ChainOptions, read: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..LIVE_ATTEMPTS {
        match read() {
            Err(error) if options.live && is_of_index(&error) => thread::sleep(LIVE_PAUSE),
            done => return done,
        }
    }
    read()
}

/// Chooses the chain up to the chainstate's best block, or, without a chainstate, the most-work chain; beside
/// a running bitcoind, the blocks that it has connected.
///
/// # Errors
/// Those of [`job::plan`].
pub fn plan_for_reading(files: &Files<'_>, options: &ChainOptions, watch: Watch<'_>) -> Result<Plan, Error> {
    // A bitcoind that runs has not written what it knows of its chainstate.
    let best = if options.live { None } else { ExistingState::read(files, false)?.best_block };
    let plan = read_live(options, || job::plan_to_best_block(files, options, best, watch))?;
    // It may have stored many blocks above those.
    let tip = plan.chain.tip_height();
    let first = plan.never_connected_from.filter(|&first| options.live && first <= tip);
    Ok(first.map(|first| plan.up_to(Height(first.0 - 1))).unwrap_or(plan))
}

/// Whether an error is about a file of the block index.
fn is_of_index(error: &Error) -> bool {
    let is_index = |file: &PathBuf| file.ends_with(INDEX) || dir_of(file).ends_with(INDEX);
    error.file.as_ref().is_some_and(is_index)
}

/// Opens a datadir for reading, makes a plan, and calls `work`. If the result is the file `result`, a job
/// that was interrupted can be resumed.
///
/// # Errors
/// The same errors as `reindex`, and those of `work`.
pub fn with_read_only_job<T>(
    disk: &dyn Disk,
    options: &ChainOptions,
    result: Option<&Path>,
    watch: Watch<'_>,
    work: impl FnMut(&Job<'_>, &mut Clock) -> Result<T, Error>,
) -> Result<T, Error> {
    watch.sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, options)?;
    on_files(&session.files()?, options, &ChainRequest::of(options), result, watch, work)
}

/// The same with files that are open, for the chain that is requested.
pub fn on_files<T>(
    files: &Files<'_>,
    options: &ChainOptions,
    request: &ChainRequest<'_>,
    result: Option<&Path>,
    watch: Watch<'_>,
    mut work: impl FnMut(&Job<'_>, &mut Clock) -> Result<T, Error>,
) -> Result<T, Error> {
    let (clock, method) = (&mut Clock::start(), &Method::of(options.undo));
    job::retry_without_invalid(watch.sink, |invalid| {
        let request = ChainRequest { invalid, makes_undo: method.makes_undo(), ..*request };
        let plan = &read_live(options, || job::plan(files, options, &request, watch))?;
        job::note_all_scripts(options, plan, watch.sink);
        clock.lap(Stage::Plan);
        let work_dir = &WorkDir::for_file(files.disk, options, result);
        // A job that creates no file leaves no checkpoint either.
        let resume = result.map(|_| &options.resume);
        let job = Job { resume, ..Job::new(files, plan, options, method, work_dir, watch) };
        let result = work(&job, clock)
            .map_err(|error| with_resume_hint(work_dir.explain(error), work_dir, options.resume.restart));
        // A job that is refused because the checkpoint belongs to other options must not remove it.
        let can_resume = result
            .as_ref()
            .is_err_and(|error| !matches!(error.kind, ErrorKind::Consensus | ErrorKind::Hints));
        let is_kept = resume.is_some() && can_resume && work_dir.may_have_checkpoint();
        let removed = if is_kept { Ok(()) } else { work_dir.remove() };
        if result.is_ok() {
            watch.sink.warn_if_left(removed);
        }
        result
    })
}

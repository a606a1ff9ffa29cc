//! Jobs that read the blocks of a datadir and leave the datadir unchanged.

use crate::{
    job::{self, ChainRequest, Job, clock::Clock, memory::MemoryBudget},
    stages::{make_undo::UndoSink, method::Method, work_dir::WorkDir},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::{AtHeightsOptions, ChainOptions, MakeOptions, ResumeOptions},
    remedy::Remedy,
    stage::Stage,
};
use chain::session::Session;
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

/// What a read-only job works on.
#[derive(Clone, Copy)]
pub struct JobRequest<'a> {
    /// The blocks, and how to check them.
    pub chain: &'a ChainOptions,
    /// Whether to find blocks by scanning the block files.
    pub scan: bool,
    /// Height of the last block; `None` for the last block on disk.
    pub stop_at_height: Option<Height>,
    /// The file that is the result. If there is one, an interrupted job can be resumed.
    pub result: Option<(&'a Path, &'a ResumeOptions)>,
    /// How effects are matched.
    pub method: &'a Method,
    /// Where undo data that the method makes goes; `None`: it is only checked.
    pub undo_sink: Option<&'a dyn UndoSink>,
}

impl<'a> JobRequest<'a> {
    /// The request of a job that makes the file at `path`.
    pub const fn making(options: &'a MakeOptions, path: &'a Path, method: &'a Method) -> Self {
        let MakeOptions { chain, resume, stop_at_height, scan } = options;
        let (stop_at_height, scan, result) = (*stop_at_height, *scan, Some((path, resume)));
        Self { chain, scan, stop_at_height, result, method, undo_sink: None }
    }

    /// The request of a job that connects the blocks up to the highest of the heights.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is no height.
    pub fn at_heights(options: &'a AtHeightsOptions, method: &'a Method) -> Result<Self, Error> {
        let AtHeightsOptions { chain, scan, heights } = options;
        let none = || Error::new(ErrorKind::Usage, "there is no height to report on");
        let (scan, stop_at_height) = (*scan, Some(*heights.last().ok_or_else(none)?));
        Ok(Self { chain, scan, stop_at_height, result: None, method, undo_sink: None })
    }
}

/// Returns an error if a file exists at `path`.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is one; any I/O error.
pub fn require_absent(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    if disk.exists(path).during("look for", path)? {
        let error = Error::new(ErrorKind::Usage, "a file exists there already");
        return Err(error.in_file(path, None).with_remedies([Remedy::OtherName]));
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

/// Whether an error is about a file of the block index.
fn is_of_index(error: &Error) -> bool {
    let is_index = |file: &PathBuf| file.ends_with(INDEX) || dir_of(file).ends_with(INDEX);
    error.file.as_ref().is_some_and(is_index)
}

/// Opens a datadir for reading, makes a plan, and calls `work`.
///
/// # Errors
/// The same errors as `reindex`, and those of `work`.
pub fn with_read_only_job<T>(
    disk: &dyn Disk,
    request: JobRequest<'_>,
    Watch { sink, interrupt }: Watch<'_>,
    mut work: impl FnMut(&Job<'_>, &mut Clock) -> Result<T, Error>,
) -> Result<T, Error> {
    let JobRequest { chain: options, scan, stop_at_height, result, method, undo_sink } = request;
    let clock = &mut Clock::start();
    sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, options)?;
    let files = &session.files()?;
    job::retry_without_invalid(sink, |invalid| {
        let makes_undo = method.makes_undo();
        let request = ChainRequest { scan, stop_at_height, invalid, makes_undo, ..ChainRequest::default() };
        let plan = &read_live(options, || job::plan(files, options, &request, sink, interrupt))?;
        job::note_all_scripts(options, plan, sink);
        let budget = MemoryBudget::after_plan(options, plan.chain.block_count());
        clock.lap(Stage::Plan);
        let work_dir = &WorkDir::for_result(disk, options, result.map(|(path, _)| path));
        // A job that creates no file leaves no checkpoint either.
        let resume = result.map(|(_, resume)| resume);
        let job = Job {
            files,
            plan,
            budget,
            options,
            scan,
            method,
            hints: None,
            work: work_dir,
            undo_sink,
            goes_on_below: None,
            pacing: None,
            resume,
            sink,
            interrupt,
        };
        let result = work(&job, clock).map_err(|error| work_dir.explain(error));
        let can_resume = matches!(
            result.as_ref().map_err(|error| error.kind),
            Err(ErrorKind::Damaged | ErrorKind::Environment | ErrorKind::Interrupted)
        );
        let is_kept = resume.is_some() && can_resume && work_dir.may_have_checkpoint();
        let removed = if is_kept { Ok(()) } else { work_dir.remove() };
        // If both failed, the first error is the one to report.
        result.and_then(|result| removed.map(|()| result))
    })
}

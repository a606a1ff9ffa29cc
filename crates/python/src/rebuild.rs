//! A rebuild of the chainstate, with events for a function of the caller.

use crate::{error::raised, report::rebuild_report, work::Work};
use engine::{CoinProgress, Event, Progress, RealDisk, Stage, reindex, reindex::ReindexOptions};
use pyo3::{prelude::*, types::PyDict};

/// Maximum number of events that wait for the caller's function. Others are dropped; the report has warnings
/// too.
const EVENTS_QUEUED_MAX: usize = 256;

/// Rebuilds a chainstate, and calls `progress` with a dictionary for each event.
pub fn rebuild<'py>(
    py: Python<'py>,
    options: ReindexOptions,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let work = Work::begin(EVENTS_QUEUED_MAX, move |events, interrupt| {
        let sink = |event: Event| {
            // A caller that is slow does not stop the workers.
            let _ = events.try_send(event);
        };
        reindex(&RealDisk, &options, &sink, interrupt)
    });
    let mut work = work.map_err(|error| raised(py, &error))?;
    let mut stage = None;
    let watched = loop {
        match work.receive_with_signals(py) {
            Ok(Some(event)) => {
                let called = progress.map_or(Ok(()), |progress| call(progress, &event, &mut stage));
                if called.is_err() {
                    break called;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let finished = py.detach(|| if watched.is_ok() { work.finish() } else { work.stop() });
    match (watched, finished) {
        (Ok(()), Ok(report)) => rebuild_report(py, &report),
        (Ok(()), Err(error)) => Err(raised(py, &error)),
        (Err(exception), finished) => {
            // How the rebuild ended, such as what it has saved.
            exception.set_cause(py, finished.err().map(|error| raised(py, &error)));
            Err(exception)
        }
    }
}

/// Calls the caller's function with an event, if it is one for people.
fn call(progress: &Bound<'_, PyAny>, event: &Event, stage: &mut Option<Stage>) -> PyResult<()> {
    let fields = PyDict::new(progress.py());
    if let Event::Started(started) = event {
        *stage = Some(*started);
    }
    fields.set_item("stage", stage.map(Stage::name))?;
    match event {
        Event::Started(_) => fields.set_item("event", "stage")?,
        Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }) => {
            fields.set_item("event", "progress")?;
            fields.set_item("blocks", blocks)?;
            fields.set_item("blocks_total", blocks_total)?;
            fields.set_item("bytes", bytes)?;
            fields.set_item("bytes_total", bytes_total)?;
        }
        Event::Coins(CoinProgress { coins, coins_total }) => {
            fields.set_item("event", "progress")?;
            fields.set_item("coins", coins)?;
            fields.set_item("coins_total", coins_total)?;
        }
        Event::Note(note) => {
            fields.set_item("event", "message")?;
            fields.set_item("text", note.to_string())?;
        }
        Event::Warning(warning) => {
            fields.set_item("event", "message")?;
            fields.set_item("text", warning.to_string())?;
        }
        _ => return Ok(()),
    }
    progress.call1((fields,)).map(|_| ())
}

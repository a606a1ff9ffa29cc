//! A rebuild of the chainstate, with events for a function of the caller.

use crate::{
    error::raised,
    report::{dictionary, rebuild_report},
    work::Work,
};
use engine::{
    CoinProgress, Error, ErrorKind, Event, Progress, RealDisk, Stage, Watch, reindex, reindex::ReindexOptions,
};
use pyo3::{prelude::*, types::PyDict};
use serde_json::json;

/// Maximum number of events that wait for the caller's function. Others than stages are dropped; the report
/// has warnings too.
const EVENTS_QUEUED_MAX: usize = 256;

/// Rebuilds a chainstate, and calls `progress` with a dictionary for each event.
pub fn rebuild<'py>(
    py: Python<'py>,
    options: ReindexOptions,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let work = Work::begin(EVENTS_QUEUED_MAX, move |events, interrupt| {
        let sink = |event: Event| {
            // A caller that is slow does not stop the workers, but learns of each stage.
            let _ = match event {
                Event::Started(_) => events.send(event).ok(),
                _ => events.try_send(event).ok(),
            };
        };
        reindex(&RealDisk, &options, Watch { sink: &sink, interrupt })
    });
    let mut work = work.map_err(raised)?;
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
        (Ok(()), Err(error)) => Err(raised(error)),
        (Err(exception), finished) => {
            let detail = "the rebuild had finished when it was interrupted, and this is its result";
            // How the rebuild ended, such as what it has saved.
            let ended = match finished {
                Ok(report) => Error::new(ErrorKind::Interrupted, detail).in_file(report.chainstate, None),
                Err(error) => error,
            };
            if exception.cause(py).is_none() {
                exception.set_cause(py, Some(raised(ended)));
            } else {
                // Python 3.10 has no notes.
                let _ = exception.value(py).call_method1("add_note", (ended.to_string(),));
            }
            Err(exception)
        }
    }
}

/// Calls the caller's function with an event, if it is one for people.
fn call(progress: &Bound<'_, PyAny>, event: &Event, stage: &mut Option<Stage>) -> PyResult<()> {
    if let Event::Started(started) = event {
        *stage = Some(*started);
    }
    let fields = match event {
        Event::Started(_) => json!({ "event": "stage" }),
        Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }) => json!({
            "event": "progress",
            "blocks": blocks,
            "blocks_total": blocks_total,
            "bytes": bytes,
            "bytes_total": bytes_total,
        }),
        Event::Coins(CoinProgress { coins, coins_total }) => {
            json!({ "event": "progress", "coins": coins, "coins_total": coins_total })
        }
        Event::Note(note) => json!({ "event": "message", "text": note.to_string() }),
        Event::Warning(warning) => json!({ "event": "message", "text": warning.to_string() }),
        _ => return Ok(()),
    };
    let fields = dictionary(progress.py(), &fields)?;
    fields.set_item("stage", stage.map(Stage::name))?;
    progress.call1((fields,)).map(drop)
}

//! What all commands that work with the engine do alike.

use crate::{
    limits,
    progress::{Progress, Style},
    run_note::NoteKeeper,
};
use engine::{ChainOptions, Error, Event, EventSink as _, Stage, Warning};
use peregrine::{output, running};
use std::sync::atomic::AtomicBool;

/// Calls the engine. Refuses `chain` if the limits of the system do not allow it, passes signals on as an
/// interrupt, and shows progress until the call returns.
///
/// # Errors
/// Those of `call`; [`engine::ErrorKind::Environment`] for limits that are too low.
pub fn run<T>(
    chain: Option<&ChainOptions>,
    style: Style,
    stages: &'static [Stage],
    call: impl FnOnce(&Progress, &AtomicBool) -> Result<T, Error>,
) -> Result<T, Error> {
    chain.map_or(Ok(()), limits::check)?;
    let interrupt = output::interrupt(running::as_json())?;
    let progress = Progress::new(style, stages, chain.and_then(NoteKeeper::new));
    let done = call(&progress, &interrupt);
    if let Some(dir) = engine::unsynced_dir() {
        progress.event(Event::Warning(Warning::DirectoryNotSynced { dir: dir.to_owned() }));
    }
    progress.close();
    done
}

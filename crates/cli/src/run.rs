//! What all commands that work with the engine do alike.

use crate::{
    limits,
    progress::{Recorder, Style},
};
use engine::{ChainOptions, Error, Event, EventSink as _, Stage, Warning, Watch};
use peregrine::{output, running};
use std::sync::atomic::AtomicBool;

/// Calls the engine. Refuses `chain` if the limits of the system do not allow it, passes signals on as an
/// interrupt, and records events until the call returns.
///
/// # Errors
/// Those of `call`; [`engine::ErrorKind::Environment`] for limits that are too low.
pub fn run<T>(
    chain: Option<&ChainOptions>,
    style: Style,
    stages: &'static [Stage],
    call: impl FnOnce(Watch<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    record(chain, style, stages, |recorder, interrupt| call(Watch { sink: recorder, interrupt }))
}

/// Like [`run`], for a call that also records what peers do, or that asks what was recorded.
pub fn record<T>(
    chain: Option<&ChainOptions>,
    style: Style,
    stages: &'static [Stage],
    call: impl FnOnce(&Recorder, &AtomicBool) -> Result<T, Error>,
) -> Result<T, Error> {
    chain.map_or(Ok(()), limits::check)?;
    let interrupt = output::interrupt(running::as_json())?;
    // A signal at the end of an earlier call may have come too late for it.
    Error::check_interrupt(interrupt)?;
    let recorder = Recorder::new(style, stages, chain);
    let done = call(&recorder, interrupt);
    if let Some(dir) = engine::unsynced_dir() {
        recorder.event(Event::Warning(Warning::DirectoryNotSynced { dir: dir.to_owned() }));
    }
    recorder.close();
    let is_scan = chain.is_some_and(|chain| chain.scan);
    done.map_err(|error| if is_scan { error.of_scan() } else { error })
}

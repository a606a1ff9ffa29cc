//! Work of the engine on a thread of its own, while Python waits for it without its lock.

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, never};
use engine::Error;
use pyo3::prelude::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, ThreadId},
    time::Duration,
};

/// How often a thread that waits lets Python run the handlers of signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Work that sends messages, and has a result. It is stopped when this is dropped.
pub struct Work<M: Send, R> {
    messages: Receiver<M>,
    interrupt: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<R, Error>>>,
    begun_by: ThreadId,
}

impl<M: Send + 'static, R: Send + 'static> Work<M, R> {
    /// Begins `work`, which gets what it sends messages with, and the flag that interrupts it. It waits while
    /// `queued_max` messages have not been received.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if there can be no further thread.
    pub fn begin(
        queued_max: usize,
        work: impl FnOnce(&Sender<M>, &AtomicBool) -> Result<R, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (sender, messages) = bounded(queued_max);
        let interrupt = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupt);
        let thread = thread::Builder::new().name("peregrine".to_owned());
        let thread = thread.spawn(move || work(&sender, &flag)).map_err(|error| {
            Error::environment(format!("cannot start a thread: {error}")).caused_by(error)
        })?;
        Ok(Self { messages, interrupt, thread: Some(thread), begun_by: thread::current().id() })
    }

    /// Waits for the next message; `None` if there are no more.
    pub fn receive(&self) -> Option<M> {
        self.messages.recv().ok()
    }

    /// Like [`Work::receive`], on Python's main thread.
    ///
    /// # Errors
    /// The exception that the handler of a signal raises, such as `KeyboardInterrupt`.
    pub fn receive_with_signals(&self, py: Python<'_>) -> PyResult<Option<M>> {
        loop {
            match py.detach(|| self.messages.recv_timeout(SIGNAL_INTERVAL)) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }
}

impl<M: Send, R> Work<M, R> {
    /// Waits for the result; there must be no more messages.
    pub fn finish(&mut self) -> Result<R, Error> {
        let thread = self.thread.take().ok_or_else(Error::interrupted)?;
        thread.join().unwrap_or_else(|_| Err(Error::panicked()))
    }

    /// Interrupts the work, and waits for its end.
    pub fn stop(&mut self) -> Result<R, Error> {
        self.interrupt.store(true, Ordering::Relaxed);
        // Without a receiver, no message waits.
        self.messages = never();
        self.finish()
    }
}

impl<M: Send, R> Drop for Work<M, R> {
    fn drop(&mut self) {
        // Nobody wants the result. The thread needs nothing of Python, whose other threads run meanwhile. On
        // a library's own thread, Python's lock can be held by one that waits for this thread.
        if self.thread.is_some() && thread::current().id() == self.begun_by {
            Python::try_attach(|py| py.detach(|| drop(self.stop())));
        }
        // If there is no Python any more.
        let _ = self.stop();
    }
}

//! Record batches, which Python's libraries take by Arrow's C interface.

use crate::{
    error::raised,
    report::{RowsReport, dictionary},
    work::Work,
};
use arrow_array::{RecordBatch, RecordBatchReader, ffi_stream::FFI_ArrowArrayStream};
use arrow_schema::{ArrowError, SchemaRef, ffi::FFI_ArrowSchema};
use crossbeam::channel::Sender;
use engine::{Error, ErrorKind};
use export::{Batches, Table};
use pyo3::{
    exceptions::PyKeyboardInterrupt,
    prelude::*,
    types::{PyCapsule, PyDict},
};
use std::{
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool},
    thread::{self, ThreadId},
};

/// Maximum number of batches that wait for a library.
const BATCHES_QUEUED_MAX: usize = 2;

type Outcome = Arc<OnceLock<Result<RowsReport, Error>>>;

/// Rows that are read while they are consumed, once, by any library that takes Arrow data.
#[pyclass(frozen, module = "peregrine")]
pub struct RowStream {
    schema: SchemaRef,
    reader: Mutex<Option<Reader>>,
    outcome: Outcome,
}

impl RowStream {
    /// Begins to read rows of a table: `read` sends them. Waits until there is a batch, so that an error in
    /// the beginning is raised here.
    pub fn begin<T: Table>(
        py: Python<'_>,
        addresses: bool,
        read: impl FnOnce(&Sender<RecordBatch>, &AtomicBool) -> Result<RowsReport, Error> + Send + 'static,
    ) -> PyResult<Self> {
        let schema = Arc::clone(Batches::<T>::new(addresses).schema());
        let outcome = Outcome::default();
        let work = Work::begin(BATCHES_QUEUED_MAX, read).map_err(|error| raised(py, &error))?;
        let mut reader = Reader {
            schema: Arc::clone(&schema),
            first: work.receive_with_signals(py)?,
            main_thread: is_main_thread(py)?.then(|| thread::current().id()),
            work: Some(work),
            outcome: Arc::clone(&outcome),
        };
        if reader.first.is_none() {
            py.detach(|| reader.end()).map_err(|error| raised(py, &error))?;
        }
        Ok(Self { schema, reader: Mutex::new(Some(reader)), outcome })
    }
}

#[pymethods]
impl RowStream {
    /// The columns, as a capsule of Arrow's C interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema);
        let schema = schema.map_err(|error| raised(py, &internal(&error)))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows, as a capsule of Arrow's C interface. They can be taken once. The types of the columns are
    /// those of the schema, whatever is requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reader = reader.ok_or_else(|| {
            let detail = "the rows were taken already, and can be taken only once; call the function again";
            raised(py, &Error::new(ErrorKind::Usage, detail))
        })?;
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// What was read, when all rows were taken; raises the error that ended the rows early.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let unfinished = || Error::new(ErrorKind::Usage, "the rows have not been read to their end yet");
        let outcome = self.outcome.get().cloned().unwrap_or_else(|| Err(unfinished()));
        dictionary(py, &outcome.map_err(|error| raised(py, &error))?)
    }
}

/// Gives the batches to a library, on any thread.
struct Reader {
    schema: SchemaRef,
    first: Option<RecordBatch>,
    /// Python's main thread, if it is known: only there, Python runs the handlers of signals.
    main_thread: Option<ThreadId>,
    /// `None` if it is at its end.
    work: Option<Work<RecordBatch, RowsReport>>,
    outcome: Outcome,
}

impl Reader {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(work) = &self.work else { return Ok(None) };
        let is_main = self.main_thread == Some(thread::current().id());
        let receive = |py: Python<'_>| work.receive_with_signals(py).map_err(|error| interrupt(py, &error));
        match is_main.then(|| Python::try_attach(receive)).flatten().unwrap_or_else(|| Ok(work.receive())) {
            Ok(Some(batch)) => Ok(Some(batch)),
            Ok(None) => self.end().map(|()| None),
            Err(error) => {
                self.work = None;
                let _ = self.outcome.set(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Records the result of the work, which sends nothing more.
    fn end(&mut self) -> Result<(), Error> {
        let Some(mut work) = self.work.take() else { return Ok(()) };
        let outcome = self.outcome.get_or_init(|| work.finish());
        outcome.as_ref().map(|_| ()).map_err(Error::clone)
    }
}

/// Returns the error for what the handler of a signal has raised. A library that takes rows raises its own
/// exception for it; `KeyboardInterrupt` follows as soon as Python continues.
fn interrupt(py: Python<'_>, exception: &PyErr) -> Error {
    if exception.is_instance_of::<PyKeyboardInterrupt>(py) {
        let _ = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
    }
    Error::interrupted()
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        next.map_err(|error| ArrowError::IoError(error.to_string(), io::Error::other(error))).transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Sends a batch, if there is one.
///
/// # Errors
/// [`ErrorKind::Internal`] if Arrow refuses it; [`ErrorKind::Interrupted`] if nobody takes it anymore.
pub fn send(
    batch: Result<Option<RecordBatch>, ArrowError>,
    sender: &Sender<RecordBatch>,
) -> Result<(), Error> {
    match batch.map_err(|error| internal(&error))? {
        Some(batch) => sender.send(batch).map_err(|_| Error::interrupted()),
        None => Ok(()),
    }
}

/// The error for batches that Arrow refuses.
pub fn internal(error: &ArrowError) -> Error {
    Error::new(ErrorKind::Internal, format!("{error}; please report this bug"))
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let (current, main) = (threading.call_method0("current_thread")?, threading.call_method0("main_thread")?);
    Ok(current.is(&main))
}

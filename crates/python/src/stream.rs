//! Record batches, which Python's libraries take by Arrow's C interface.

use crate::{
    error::raised,
    report::{RowsReport, dictionary},
    work::Work,
};
use arrow_array::{RecordBatch, RecordBatchReader, ffi_stream::FFI_ArrowArrayStream};
use arrow_schema::{ArrowError, SchemaRef, ffi::FFI_ArrowSchema};
use crossbeam::channel::Sender;
use engine::{Error, ErrorKind, Watch};
use export::{Columns, Table};
use pyo3::{
    exceptions::PyKeyboardInterrupt,
    prelude::*,
    types::{PyCapsule, PyDict},
};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, ThreadId},
};

/// Maximum number of batches that wait for a library.
const BATCHES_QUEUED_MAX: usize = 2;

type Outcome = Arc<OnceLock<Result<RowsReport, Error>>>;

/// Reads rows, and sends them.
type Read = dyn Fn(&Sender<RecordBatch>, Watch<'_>) -> Result<RowsReport, Error> + Send + Sync;

/// Rows that are read while they are consumed, by any library that takes Arrow data. Each time that they are
/// taken, they are read again.
#[pyclass(frozen, module = "peregrine")]
pub struct RowStream {
    schema: SchemaRef,
    read: Arc<Read>,
    taking: Mutex<Taking>,
}

/// The first reader, until it is taken, and the outcome of the last one.
struct Taking {
    first: Option<Reader>,
    outcome: Outcome,
}

impl RowStream {
    /// Begins to read rows: `read` sends them. Waits until there is a batch, so that an error in the
    /// beginning is raised here.
    pub fn begin(
        py: Python<'_>,
        schema: &SchemaRef,
        read: impl Fn(&Sender<RecordBatch>, Watch<'_>) -> Result<RowsReport, Error> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        let read: Arc<Read> = Arc::new(read);
        let reader = Reader::begin(py, Arc::clone(schema), Arc::clone(&read))?;
        let taking = Mutex::new(Taking { outcome: Arc::clone(&reader.outcome), first: Some(reader) });
        Ok(Self { schema: Arc::clone(schema), read, taking })
    }

    fn taking(&self) -> MutexGuard<'_, Taking> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl RowStream {
    /// The columns, as a capsule of Arrow's C interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema);
        PyCapsule::new_with_value(py, schema.map_err(internal).map_err(raised)?, c"arrow_schema")
    }

    /// The rows, as a capsule of Arrow's C interface. The types of the columns are those of the schema,
    /// whatever is requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let first = self.taking().first.take();
        let reader = match first {
            Some(reader) => reader,
            None => {
                let reader = Reader::begin(py, Arc::clone(&self.schema), Arc::clone(&self.read))?;
                self.taking().outcome = Arc::clone(&reader.outcome);
                reader
            }
        };
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// What was read, when all rows were taken, the last time; raises the error that ended the rows early.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let unfinished = || Error::usage("the rows have not been read to their end yet");
        let outcome = Arc::clone(&self.taking().outcome);
        let outcome = outcome.get().cloned().unwrap_or_else(|| Err(unfinished()));
        dictionary(py, &outcome.map_err(raised)?)
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
    /// Begins to read, and waits until there is a batch.
    fn begin(py: Python<'_>, schema: SchemaRef, read: Arc<Read>) -> PyResult<Self> {
        let work = Work::begin(BATCHES_QUEUED_MAX, move |sender, interrupt| {
            read(sender, Watch { sink: &|_| {}, interrupt })
        });
        let work = work.map_err(raised)?;
        let mut reader = Self {
            schema,
            first: work.receive_with_signals(py)?,
            main_thread: is_main_thread(py)?.then(|| thread::current().id()),
            work: Some(work),
            outcome: Outcome::default(),
        };
        if reader.first.is_none() {
            py.detach(|| reader.end()).map_err(raised)?;
        }
        Ok(reader)
    }

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
/// exception for it; `KeyboardInterrupt` follows as soon as Python continues, and others are printed.
fn interrupt(py: Python<'_>, exception: &PyErr) -> Error {
    if exception.is_instance_of::<PyKeyboardInterrupt>(py) {
        let _ = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
    } else {
        exception.clone_ref(py).write_unraisable(py, None);
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

/// The columns with these names; all if there are none, with `address` if `addresses`, and with those of
/// spends if `spent`.
///
/// # Errors
/// [`ErrorKind::Usage`] for a name that is not one of the table's, or for names and one of the others.
pub fn columns_of<T: Table>(
    names: Option<&[String]>,
    addresses: bool,
    spent: bool,
) -> Result<Columns, Error> {
    if names.is_some() && (addresses || spent) {
        let detail = "columns= names all columns; name address among them instead of addresses=True, and \
                      spent_height and the like instead of spent=True";
        return Err(Error::usage(detail));
    }
    tables::columns_of::<T>(names, addresses, spent)
}

/// Sends a batch, if there is one.
///
/// # Errors
/// [`ErrorKind::Internal`] if Arrow refuses it; [`ErrorKind::Interrupted`] if nobody takes it anymore.
pub fn send(
    batch: Result<Option<RecordBatch>, ArrowError>,
    sender: &Sender<RecordBatch>,
) -> Result<(), Error> {
    match batch.map_err(internal)? {
        Some(batch) => sender.send(batch).map_err(|_| Error::interrupted()),
        None => Ok(()),
    }
}

/// The error for batches that Arrow refuses.
pub fn internal(error: ArrowError) -> Error {
    Error::new(ErrorKind::Internal, format!("{error}; please report this bug"))
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let (current, main) = (threading.call_method0("current_thread")?, threading.call_method0("main_thread")?);
    Ok(current.is(&main))
}

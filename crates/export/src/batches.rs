//! Rows that become Arrow record batches.

use crate::table::Table;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use std::sync::Arc;

/// Number of rows of a batch: about as many as DuckDB has in a row group.
const BATCH_ROWS: usize = 1 << 17;
/// Bytes of scripts and addresses after which a batch ends earlier.
const BATCH_BYTES: usize = 16 << 20;

/// Takes rows, and gives them back as record batches.
pub struct Batches<T> {
    table: T,
    schema: SchemaRef,
}

impl<T: Table> Batches<T> {
    /// No rows. `addresses`: whether rows have an address.
    #[must_use]
    pub fn new(addresses: bool) -> Self {
        let is_written = |field: &Field| addresses || field.name() != "address";
        let fields: Vec<Field> = T::fields().into_iter().filter(is_written).collect();
        Self { table: T::default(), schema: Arc::new(Schema::new(fields)) }
    }

    /// The columns.
    #[must_use]
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends a row. Returns a batch if there are enough rows for one.
    ///
    /// # Errors
    /// Those of Arrow; none is known.
    pub fn add(&mut self, row: T::Row<'_>) -> Result<Option<RecordBatch>, ArrowError> {
        self.table.add(row);
        match self.table.rows() >= BATCH_ROWS || self.table.bytes() >= BATCH_BYTES {
            true => self.take(),
            false => Ok(None),
        }
    }

    /// Takes the rows that are in no batch yet; `None` if there are none.
    ///
    /// # Errors
    /// Those of Arrow; none is known.
    pub fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.table.rows() == 0 {
            return Ok(None);
        }
        let mut columns = self.table.take();
        columns.truncate(self.schema.fields().len());
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map(Some)
    }
}

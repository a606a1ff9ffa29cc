//! Rows that become Arrow record batches.

use crate::{columns::Columns, table::Table};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use std::sync::Arc;

/// Bytes of scripts and addresses after which a batch ends earlier.
const BATCH_BYTES: usize = 16 << 20;

/// Takes rows, and gives them back as record batches.
pub struct Batches<T> {
    table: T,
    schema: SchemaRef,
}

impl<T: Table> Batches<T> {
    pub fn new(columns: &Columns) -> Self {
        let fields = T::fields().into_iter().zip(&columns.0);
        let written: Vec<Field> =
            fields.filter_map(|(field, &is_written)| is_written.then_some(field)).collect();
        Self { table: T::with(&columns.0), schema: Arc::new(Schema::new(written)) }
    }

    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends a row. Returns a batch if there are enough rows for one.
    pub fn add(&mut self, row: T::Row<'_>) -> Result<Option<RecordBatch>, ArrowError> {
        self.table.add(row);
        match self.table.rows() >= T::BATCH_ROWS || self.table.bytes() >= BATCH_BYTES {
            true => self.take(),
            false => Ok(None),
        }
    }

    /// Takes the rows that are in no batch yet; `None` if there are none.
    pub fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.table.rows() == 0 {
            return Ok(None);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.table.rows()));
        let columns = self.table.take();
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map(Some)
    }
}

//! CSV (RFC 4180, with line feeds): a header line, then one line for each row. Hashes and scripts are in hex,
//! hashes with their bytes reversed, as Bitcoin Core prints them; times have the form of ISO 8601, in UTC;
//! true is 1, false is 0, and what is missing is empty. No value contains a comma or a quote.

use arrow_array::cast::AsArray as _;
use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
use arrow_array::types::{Int8Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayAccessor, RecordBatch};
use arrow_schema::{DataType, Schema};
use std::fmt::{Display, Write as _};

/// Appends the value of a column in a row.
type Cell<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

pub fn header(schema: &Schema) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.join(",") + "\n"
}

/// Appends the lines of all rows.
pub fn write(batch: &RecordBatch, text: &mut String) {
    let cells: Vec<Cell<'_>> = batch.columns().iter().map(|column| cell(column)).collect();
    for row in 0..batch.num_rows() {
        for (index, (cell, column)) in cells.iter().zip(batch.columns()).enumerate() {
            if index > 0 {
                text.push(',');
            }
            if !column.is_null(row) {
                cell(row, text);
            }
        }
        text.push('\n');
    }
}

fn push(text: &mut String, value: impl Display) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{value}");
}

fn push_hex<'a>(text: &mut String, bytes: impl Iterator<Item = &'a u8>) {
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' - 10 + value });
    text.extend(bytes.flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

/// Returns what appends the values of a column that are not missing.
fn cell(column: &dyn Array) -> Cell<'_> {
    match column.data_type() {
        DataType::FixedSizeBinary(_) => {
            with(column.as_fixed_size_binary(), |text, hash| push_hex(text, hash.iter().rev()))
        }
        DataType::Int32 => with(column.as_primitive::<Int32Type>(), push),
        DataType::Timestamp(..) => with(column.as_primitive::<TimestampMillisecondType>(), |text, time| {
            // Each time of 32 bits has a date.
            if let Some(time) = timestamp_ms_to_datetime(time) {
                push(text, time.format("%Y-%m-%dT%H:%M:%SZ"));
            }
        }),
        DataType::Int64 => with(column.as_primitive::<Int64Type>(), push),
        DataType::Boolean => with(column.as_boolean(), |text, flag| text.push(if flag { '1' } else { '0' })),
        DataType::Binary => with(column.as_binary::<i32>(), |text, bytes| push_hex(text, bytes.iter())),
        DataType::Dictionary(..) => {
            let names = column.as_dictionary::<Int8Type>();
            let (keys, names) = (names.keys(), names.values().as_string::<i32>());
            with(keys, |text, key: i8| text.push_str(names.value(usize::from(key.unsigned_abs()))))
        }
        // The last type of a column.
        _ => with(column.as_string::<i32>(), String::push_str),
    }
}

/// Returns what appends one of these values.
fn with<'a, V: ArrayAccessor + 'a>(values: V, push: impl Fn(&mut String, V::Item) + 'a) -> Cell<'a> {
    Box::new(move |row, text| push(text, values.value(row)))
}

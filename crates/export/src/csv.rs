//! CSV (RFC 4180, with line feeds): a header line, then one line for each coin. Txids and scripts are in hex,
//! txids with their bytes reversed, as Bitcoin Core prints them. No value contains a comma or a quote.

use crate::{Row, Written};
use hex_conservative::DisplayHex as _;
use std::fmt::Write as _;
use std::path::Path;
use vfs::{AtomicFile, Disk, UnfinishedError, unfinished};

/// Bytes that are written at once.
const BUFFER_LEN: usize = 1 << 20;

pub struct CsvWriter<'d> {
    file: AtomicFile<'d>,
    addresses: bool,
    buffer: String,
    rows: u64,
    /// Bytes written before the buffer.
    written: u64,
}

impl<'d> CsvWriter<'d> {
    pub fn create(disk: &'d dyn Disk, path: &Path, addresses: bool) -> Result<Self, UnfinishedError> {
        let file = unfinished::create(disk, path, unfinished::SUFFIX)?;
        let mut buffer = "txid,vout,height,coinbase,value,script_type,script".to_owned();
        buffer += if addresses { ",address\n" } else { "\n" };
        Ok(Self { file, addresses, buffer, rows: 0, written: 0 })
    }

    pub fn add(&mut self, row: &Row<'_>) -> Result<(), UnfinishedError> {
        let Row { txid, vout, height, is_coinbase, value, script_type, script, address } = *row;
        let coinbase = u8::from(is_coinbase);
        let script = script.as_hex();
        // Writing to a string cannot fail.
        let _ = write!(self.buffer, "{txid},{vout},{height},{coinbase},{value},{script_type},{script}");
        if self.addresses {
            self.buffer.push(',');
            self.buffer.push_str(address.unwrap_or_default());
        }
        self.buffer.push('\n');
        self.rows += 1;
        if self.buffer.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    pub fn finish(mut self) -> Result<Written, UnfinishedError> {
        self.flush()?;
        self.file.commit()?;
        Ok(Written { files: 1, rows: self.rows, bytes: self.written })
    }

    fn flush(&mut self) -> Result<(), UnfinishedError> {
        self.file.write_all(self.buffer.as_bytes())?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

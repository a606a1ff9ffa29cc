//! What blocks contain, in order of height. Several threads make rows of consecutive parts of the chain; a
//! lock decides whose turn it is to send them.

use crate::{
    report::RowsReport,
    stream::{RowStream, internal, send},
};
use arrow_array::RecordBatch;
use crossbeam::channel::Sender;
use engine::{
    ChainOptions, Error, Event, Height, RealDisk,
    blocks::{BlockConsumer, BlockData, BlockRange, HashAt, PartConsumer, ReadBlocksOptions},
};
use export::{Batches, Columns};
use pyo3::prelude::*;
use std::{
    marker::PhantomData,
    ops::RangeInclusive,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};
use tables::{BlockRows, read_options};

/// Number of parts into which the blocks are divided that are one file of an export.
const PARTS_OF_FILE: u32 = 20;
/// Maximum number of batches of a part that wait for its turn.
const BATCHES_READY_MAX: usize = 2;
/// Memory in bytes of a worker: these batches, and the rows of the next one.
const WORKER_BYTES: u64 = 96 << 20;

/// Begins to read rows of blocks.
pub fn rows<T: BlockRows + 'static>(
    py: Python<'_>,
    chain: ChainOptions,
    from: u32,
    to: Option<u32>,
    columns: Columns,
) -> PyResult<RowStream> {
    let chain = ChainOptions { stop_at_height: to.map(Height), ..chain };
    let part_blocks = T::FILE_BLOCKS / PARTS_OF_FILE;
    let options = read_options::<T>(chain, &columns, Height(from), None, WORKER_BYTES);
    let options = ReadBlocksOptions { part_blocks, ..options };
    RowStream::begin::<T>(py, &columns.clone(), move |sender, interrupt| {
        let begin = |range: &BlockRange, _: &HashAt<'_>| {
            Ok(InOrder::<T> {
                sender,
                columns: columns.clone(),
                part_blocks,
                turn: Mutex::new(Turn { next: range.from.0 / part_blocks, failed: u32::MAX }),
                changed: Condvar::new(),
                table: PhantomData,
            })
        };
        let (range, _) = engine::blocks::read(&RealDisk, &options, begin, &|_: Event| (), interrupt)?;
        Ok(RowsReport::Blocks(range))
    })
}

/// Sends the rows of parts in their order.
struct InOrder<'a, T> {
    sender: &'a Sender<RecordBatch>,
    columns: Columns,
    part_blocks: u32,
    turn: Mutex<Turn>,
    changed: Condvar,
    table: PhantomData<fn() -> T>,
}

/// Which part may send.
struct Turn {
    /// Number of the lowest part that has not ended.
    next: u32,
    /// Number of the lowest part that has failed. Those below are completed, those above never have their
    /// turn.
    failed: u32,
}

impl<T: BlockRows> InOrder<'_, T> {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is the turn of a part, and sends its batches.
    fn send(&self, part: u32, ready: &mut Vec<RecordBatch>) -> Result<(), Error> {
        let waits = |turn: &mut Turn| turn.next != part && turn.failed > part;
        let turn = self.changed.wait_while(self.turn(), waits).unwrap_or_else(PoisonError::into_inner);
        if turn.next != part {
            return Err(Error::interrupted());
        }
        // Only this part sends: others need not wait for the lock meanwhile.
        drop(turn);
        ready.drain(..).try_for_each(|batch| send(Ok(Some(batch)), self.sender))
    }
}

impl<T: BlockRows> BlockConsumer for InOrder<'_, T> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        Ok(Some(Box::new(Part {
            rows: self,
            number: heights.start() / self.part_blocks,
            batches: Batches::<T>::new(&self.columns),
            ready: Vec::new(),
            is_complete: false,
        })))
    }
}

/// A part of the chain.
struct Part<'a, T: BlockRows> {
    rows: &'a InOrder<'a, T>,
    number: u32,
    batches: Batches<T>,
    ready: Vec<RecordBatch>,
    is_complete: bool,
}

impl<T: BlockRows> PartConsumer for Part<'_, T> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        let Self { rows, number, batches, ready, .. } = self;
        T::each_row(block, &rows.columns, |row| {
            ready.extend(batches.add(row).map_err(|error| internal(&error))?);
            if ready.len() < BATCHES_READY_MAX { Ok(()) } else { rows.send(*number, ready) }
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        let rest = self.batches.take().map_err(|error| internal(&error))?;
        self.ready.extend(rest);
        self.rows.send(self.number, &mut self.ready)?;
        self.is_complete = true;
        Ok(())
    }
}

impl<T: BlockRows> Drop for Part<'_, T> {
    fn drop(&mut self) {
        let mut turn = self.rows.turn();
        match self.is_complete {
            true => turn.next = self.number + 1,
            false => turn.failed = turn.failed.min(self.number),
        }
        self.rows.changed.notify_all();
    }
}

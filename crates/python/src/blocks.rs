//! What blocks contain, in order of height. Several threads make rows of consecutive parts of the chain, and
//! send them when it is their turn.

use crate::{
    report::RowsReport,
    stream::{RowStream, internal, send},
};
use arrow_array::RecordBatch;
use crossbeam::channel::Sender;
use engine::{
    ChainOptions, Error, Height, RealDisk,
    blocks::{BlockConsumer, BlockData, BlockRange, HashAt, PartConsumer, ReadBlocksOptions, Turn, Turns},
};
use export::{Batches, Columns};
use pyo3::prelude::*;
use std::{marker::PhantomData, ops::RangeInclusive};
use tables::{BlockRows, read_options};

/// Number of parts into which the blocks are divided that are one file of an export.
const PARTS_OF_FILE: u32 = 20;
/// Maximum number of batches of a part that wait for its turn.
const BATCHES_READY_MAX: usize = 2;
/// Memory in bytes of a worker: these batches, and the rows of the next one.
const WORKER_BYTES: u64 = 96 << 20;

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
    RowStream::begin(py, Batches::<T>::new(&columns).schema(), move |sender, watch| {
        let begin = |range: &BlockRange, _: &HashAt<'_>| {
            let (columns, turns) = (columns.clone(), Turns::new(range.from.0));
            Ok(InOrder::<T> { sender, columns, turns, table: PhantomData })
        };
        let (range, _) = engine::blocks::read(&RealDisk, &options, begin, watch)?;
        Ok(RowsReport::Blocks(range))
    })
}

/// Sends the rows of parts in their order.
struct InOrder<'a, T> {
    sender: &'a Sender<RecordBatch>,
    columns: Columns,
    turns: Turns,
    table: PhantomData<fn() -> T>,
}

impl<T: BlockRows> BlockConsumer for InOrder<'_, T> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let (batches, turn) = (Batches::<T>::new(&self.columns), self.turns.of(heights));
        Ok(Some(Box::new(Part { rows: self, turn, batches, ready: Vec::new() })))
    }
}

struct Part<'a, T: BlockRows> {
    rows: &'a InOrder<'a, T>,
    turn: Turn<'a>,
    batches: Batches<T>,
    ready: Vec<RecordBatch>,
}

impl<T: BlockRows> PartConsumer for Part<'_, T> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        let Self { rows, turn, batches, ready } = self;
        T::each_row(block, &rows.columns, |row| {
            ready.extend(batches.add(row).map_err(internal)?);
            if ready.len() < BATCHES_READY_MAX { Ok(()) } else { send_all(turn, ready, rows.sender) }
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.ready.extend(self.batches.take().map_err(internal)?);
        send_all(&self.turn, &mut self.ready, self.rows.sender)?;
        self.turn.end();
        Ok(())
    }
}

/// Sends batches when it is the turn of their part. Others need not wait for a lock meanwhile.
fn send_all(
    turn: &Turn<'_>,
    ready: &mut Vec<RecordBatch>,
    sender: &Sender<RecordBatch>,
) -> Result<(), Error> {
    turn.wait()?;
    ready.drain(..).try_for_each(|batch| send(Ok(Some(batch)), sender))
}

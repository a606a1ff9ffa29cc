//! Stage undo: the coins that were delivered to the inputs of a block become its undo data.
//!
//! The blocks are read a second time. What was delivered to a block is encoded as undo data, and then used
//! like undo data from a file: its claims are checked against the rules of spends, and scripts are run.
//! Exactly one coin must have been delivered for each input, each tagged with the input's outpoint, so that a
//! fault in the matching or in a temporary file does not lead to wrong undo data.
//!
//! Workers take parts of the chain ([`Deliveries`]) in order. The positions of new undo data are assigned
//! part by part in the same order, so that the files do not depend on which worker is faster.

use crate::stages::{
    block_fault::{BlockFault, BlockFaults},
    check::SpendCheck,
    deliveries::{Deliveries, SortedDeliveries},
    partial_state::RoutedBlock,
    read::{BlockBuffers, BlockReader},
    scripts::ScriptQueue,
    turns::Turns,
};
use api::{
    block_observer::{BlockObserver, ObservedBlock},
    error::{Error, ErrorKind},
    event::BlockMeter,
    spend_ages::SpendAges,
};
use chain::{
    blocks::{
        chain::Chain,
        claims::PeerClaims,
        damage::{Damage, UndoDefect},
    },
    threads::on_all,
};
use coins::Delivery;
use disk::undo::UndoView;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};
use wire::{BlockHash, BlockView, ByteOffset, Coin, FileNo, Height, read::write_compact_size};

/// The undo data of a block, and where it goes.
pub struct PlacedUndo<'a> {
    pub height: Height,
    pub file: FileNo,
    /// Its position there, after the record's frame.
    pub pos: ByteOffset,
    /// Hash of the block's parent.
    pub prev: &'a BlockHash,
    /// The undo data, without its checksum.
    pub data: &'a [u8],
}

/// Where undo data that was made goes. A sink that keeps none needs only [`UndoSink::write`].
pub trait UndoSink: Sync {
    /// Forgets all undo data, so that it is made again.
    fn start_over(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Continues after an interrupt, at which undo data of these lengths had been made and synced. Returns
    /// false if it was put in place or given up since then, so that the job must start over.
    ///
    /// # Errors
    /// Any I/O error; an error if that undo data is damaged.
    fn resume(&self, _: &Chain, _: &[(Height, u32)]) -> Result<bool, Error> {
        Ok(true)
    }

    /// Forgets the undo data of blocks in files that were deleted.
    fn forget(&self, _: &Chain, _: &[FileNo]) -> Result<(), Error> {
        Ok(())
    }

    /// Assigns the next position in a file to undo data of `len` bytes, of the block at `height`. Calls have
    /// ascending heights.
    fn reserve(&self, _height: Height, _file: FileNo, _len: usize) -> Result<ByteOffset, Error> {
        Ok(ByteOffset(0))
    }

    /// Writes undo data at the position that was assigned to it. `buffer` is reused.
    fn write(&self, undo: &PlacedUndo<'_>, buffer: &mut Vec<u8>) -> Result<(), Error>;

    /// Returns when all that was written is on the medium.
    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// What all workers share.
pub struct UndoMaker<'a> {
    pub reader: &'a BlockReader<'a>,
    /// What was delivered to the blocks.
    pub deliveries: &'a Deliveries<'a>,
    pub scripts: Option<&'a ScriptQueue<'a>>,
    /// Who is given the blocks, which are those whose coins were not known before.
    pub observer: Option<&'a dyn BlockObserver>,
    pub faults: &'a BlockFaults,
    /// What peers claim that blocks spend.
    pub claims: Option<&'a PeerClaims>,
    /// Where the undo data goes; `None`: it is only checked.
    pub sink: Option<&'a dyn UndoSink>,
    pub meter: BlockMeter<'a>,
    /// Set by the caller to stop.
    pub interrupt: &'a AtomicBool,
}

/// What was made.
#[derive(Default)]
pub struct MadeUndoData {
    /// Lengths of the undo data that went to the sink, or was checked without one, by block, in any order.
    pub lens: Vec<(Height, u32)>,
    /// Time spent running scripts, summed over all threads.
    pub scripting: Duration,
    /// Ages of the coins that were delivered.
    pub ages: SpendAges,
}

/// Undo data of a block that is to be written.
struct NewUndo {
    height: Height,
    prev: BlockHash,
    undo: Vec<u8>,
}

impl UndoMaker<'_> {
    /// Makes the undo data of `blocks`, which are in order of height, with `threads` threads. Faults of
    /// blocks are recorded.
    pub fn make(&self, blocks: &[RoutedBlock], threads: usize) -> Result<MadeUndoData, Error> {
        // Parts that have such blocks, with these blocks.
        let parts: Vec<(usize, &[RoutedBlock])> = (0..self.deliveries.parts.count())
            .map(|part| {
                let heights = self.deliveries.parts.heights(part);
                let begin = blocks.partition_point(|block| block.height.0 < heights.start);
                let end = blocks.partition_point(|block| block.height.0 < heights.end);
                (part, &blocks[begin..end])
            })
            .filter(|(_, blocks)| !blocks.is_empty())
            .collect();
        let (next, turns, failed) = (AtomicU32::new(0), Turns::new(0), AtomicBool::new(false));
        let work = || {
            let mut worker = Worker::new(self);
            let mut work = || -> Result<(), Error> {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(part, blocks)) = parts.get(at as usize) else { return Ok(()) };
                    // Positions are assigned in the order of the parts.
                    let turn = turns.of(at..=at);
                    worker.make_part(part, blocks, &failed)?;
                    if turn.wait().is_err() {
                        // A lower part has failed, whose error counts.
                        return Ok(());
                    }
                    let positions = worker.reserve()?;
                    turn.end();
                    worker.write(positions)?;
                }
            };
            work().inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            Ok(worker.finish(&failed))
        };
        let outcomes = on_all(threads.min(parts.len()), "undo", &failed, work, || ());
        let mut all = MadeUndoData::default();
        for outcome in outcomes {
            let outcome = outcome?;
            all.lens.extend(outcome.lens);
            all.scripting += outcome.scripting;
            all.ages += outcome.ages;
        }
        Ok(all)
    }
}

struct Worker<'a> {
    shared: &'a UndoMaker<'a>,
    /// The current block, and the undo data that it has already.
    buffers: BlockBuffers,
    /// Undo data of the current part.
    new: Vec<NewUndo>,
    /// The record that is written, reused.
    record: Vec<u8>,
    done: MadeUndoData,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a UndoMaker<'a>) -> Self {
        let (buffers, new, record, done) = Default::default();
        Self { shared, buffers, new, record, done }
    }

    /// Makes the undo data of the blocks of one part.
    fn make_part(&mut self, part: usize, blocks: &[RoutedBlock], failed: &AtomicBool) -> Result<(), Error> {
        let shared = self.shared;
        let deliveries = shared.deliveries.take(part)?;
        for block in blocks {
            Error::check_interrupt(shared.interrupt)?;
            if failed.load(Ordering::Relaxed) || !shared.faults.matters(block.height) {
                continue;
            }
            if block.is_claimed {
                self.take_claimed(block.height)?;
                continue;
            }
            let _busy = shared.scripts.map(ScriptQueue::enter);
            shared.reader.read_block(block.height, &mut self.buffers.block)?;
            shared.meter.add(1, self.buffers.block.bytes().len() as u64);
            match self.make_block(block, &deliveries) {
                Ok(new) => {
                    let NewUndo { height, prev, undo } = &new;
                    if shared.sink.is_none() {
                        // Counts as made: a run that resumes must not require unusable undo data on disk.
                        self.done.lens.push((*height, undo.len() as u32));
                    } else if !shared.reader.has_undo(*height, prev, undo, &mut self.buffers.undo)? {
                        self.new.push(new);
                    }
                }
                Err(fault) => shared.faults.record(block.height, fault),
            }
            if let Some(scripts) = shared.scripts {
                self.done.scripting += scripts.drain(shared.faults, failed);
            }
        }
        Ok(())
    }

    /// Takes undo data that a peer claims: its spends were checked, and will be matched.
    fn take_claimed(&mut self, height: Height) -> Result<(), Error> {
        self.shared.meter.add(1, 0);
        if self.shared.sink.is_none() {
            return Ok(());
        }
        let claimed = self.shared.claims.map(|claims| claims.read(height)).transpose()?.flatten();
        let (Some(undo), Some(below)) = (claimed, height.0.checked_sub(1)) else {
            let detail = "the spent coins that a peer has sent are gone; please report this bug";
            return Err(Error::new(ErrorKind::Internal, detail));
        };
        self.new.push(NewUndo { height, prev: self.shared.reader.chain.block(Height(below)).hash, undo });
        Ok(())
    }

    /// Makes the undo data of a block, and checks it.
    fn make_block(
        &mut self,
        routed: &RoutedBlock,
        deliveries: &SortedDeliveries,
    ) -> Result<NewUndo, BlockFault> {
        let Self { shared, buffers, done, .. } = self;
        let BlockBuffers { block, arena, undo_arena, hashes, .. } = buffers;
        let (params, height) = (shared.reader.files.params, routed.height);
        let located = shared.reader.located(height);
        if block.crc32c() != routed.checksum {
            return Err(located.damaged(&Damage::Changed).into());
        }
        let block = &located.parse(block.bytes(), arena)?;
        let undo = undo_of(block, deliveries.of_block(height)).ok_or(BlockFault::Suspect)?;
        let malformed = |error| located.damaged(&Damage::Undo(UndoDefect::Malformed(error)));
        let claims: Vec<Coin<'_>> = UndoView::parse(&undo, undo_arena).map_err(malformed)?.coins().collect();
        let spends = SpendCheck { located, block, legacy_sigops: routed.legacy_sigops };
        spends.check(&claims, shared.scripts, shared.faults, &mut done.scripting)?;
        done.ages.add(height, &claims);
        if let Some(observer) = shared.observer {
            hashes.without_wtxids(block, &[]);
            let (hash, txids) = (hashes.block, &hashes.txids[..]);
            let observed = ObservedBlock { params, height, hash, block, txids, claims: &claims };
            observer.take(&observed)?;
        }
        if let Some(claims) = shared.claims {
            claims.compare(height, &undo);
        }
        Ok(NewUndo { height, prev: block.header().prev, undo })
    }

    /// Assigns positions to the undo data of the current part.
    fn reserve(&self) -> Result<Vec<ByteOffset>, Error> {
        let Some(sink) = self.shared.sink else { return Ok(Vec::new()) };
        let file = |height: Height| self.shared.reader.block(height).file;
        let reserve = |new: &NewUndo| sink.reserve(new.height, file(new.height), new.undo.len());
        self.new.iter().map(reserve).collect()
    }

    /// Writes the undo data of the current part.
    fn write(&mut self, positions: Vec<ByteOffset>) -> Result<(), Error> {
        let Some(sink) = self.shared.sink else { return Ok(()) };
        for (new, pos) in self.new.drain(..).zip(positions) {
            let NewUndo { height, ref prev, undo: ref data } = new;
            let file = self.shared.reader.block(height).file;
            sink.write(&PlacedUndo { height, file, pos, prev, data }, &mut self.record)?;
            self.done.lens.push((height, data.len() as u32));
        }
        Ok(())
    }

    /// Runs scripts until no worker queues more.
    fn finish(mut self, failed: &AtomicBool) -> MadeUndoData {
        if let Some(scripts) = self.shared.scripts {
            self.done.scripting += scripts.drain_to_end(self.shared.faults, failed);
        }
        self.done
    }
}

/// Encodes what was delivered to a block as its undo data. Returns `None` if it is not one coin for each
/// input.
fn undo_of<'d>(
    block: &BlockView<'_>,
    deliveries: impl ExactSizeIterator<Item = Delivery<'d>>,
) -> Option<Vec<u8>> {
    let mut deliveries = deliveries.zip(0..);
    let mut undo = Vec::new();
    write_compact_size(&mut undo, block.tx_count().checked_sub(1)? as u64);
    for tx in block.txs().skip(1) {
        write_compact_size(&mut undo, tx.input_count() as u64);
        for input in tx.inputs() {
            let (delivery, number) = deliveries.next()?;
            if delivery.spender.input() != number || delivery.tag != Delivery::tag_of(&input.prevout()) {
                return None;
            }
            undo.extend_from_slice(delivery.undo);
        }
    }
    deliveries.next().is_none().then_some(undo)
}

//! Makes the undo data of the blocks that were routed, when all coins that they spend have been delivered.
//!
//! This happens at the end, and before that when the deliveries and sorted runs have become large: so
//! temporary files are bounded, and errors are found early. All blocks up to one height are then complete, so
//! each open spend has its coin in the join or in a run.

use crate::{
    job::Job,
    stages::{
        block_fault::{BlockFault, BlockFaults},
        check::{Outcome, Routing},
        deliveries::Deliveries,
        make_undo::{MadeUndoData, UndoMaker},
        partial_state::RoutedBlock,
        read::BlockReader,
        scripts::ScriptQueue,
        spill::Spill,
    },
};
use api::{error::Error, event::Event, stage::Stage};
use chain::blocks::awaited::AwaitedBlocks;
use coins::{Join, SHARDS};
use std::{convert::Infallible, time::Instant};
use wire::Height;

impl Job<'_> {
    /// Makes the undo data of all routed blocks, and returns the lowest block fault. If a spend has no coin,
    /// that is recorded as a mismatch of the spill.
    pub fn settle(
        &self,
        routing: &Routing<'_>,
        outcome: &mut Outcome,
    ) -> Result<Option<(Height, BlockFault)>, Error> {
        let Routing { join, spill, deliveries, scripts } = *routing;
        let partial = &mut outcome.partial;
        let Some(deliveries) = deliveries.filter(|_| !partial.routed.is_empty()) else { return Ok(None) };
        let started = Instant::now();
        self.watch.sink.event(Event::Started(Stage::Undo));
        let is_any_made = partial.routed.iter().any(|block| !block.is_claimed);
        if is_any_made && !spill.is_empty() {
            spill.match_all(join, self.threads(), self.watch.interrupt)?;
        }
        // The join can have mismatches of its own, even if all else was in runs.
        if is_any_made && (join.open().1 > 0 || join.has_mismatches()) {
            record_open_spends(join, spill);
        }
        if spill.has_mismatch() {
            return Ok(None);
        }
        let mut blocks = std::mem::take(&mut partial.routed);
        blocks.sort_unstable();
        let (new, fault) = self.make_undo(&blocks, deliveries, scripts)?;
        if let Some(claims) = self.files.awaited.and_then(AwaitedBlocks::claims) {
            claims.settle(partial.completed.first_missing());
        }
        partial.made.extend(new.lens);
        partial.counts.scripts += scripts.map_or(0, ScriptQueue::take_inputs);
        outcome.scripting += new.scripting;
        outcome.ages += new.ages;
        outcome.making_undo += started.elapsed();
        if partial.completed.count() < self.plan.chain.block_count() as u32 {
            self.watch.sink.event(Event::Started(Stage::Check));
        }
        Ok(fault)
    }

    /// Makes the undo data of `blocks`, which are in order of height and to which all coins that they spend
    /// have been delivered. Returns what was made, and the lowest block fault.
    pub fn make_undo(
        &self,
        blocks: &[RoutedBlock],
        deliveries: &Deliveries<'_>,
        scripts: Option<&ScriptQueue<'_>>,
    ) -> Result<(MadeUndoData, Option<(Height, BlockFault)>), Error> {
        let (chain, faults) = (&self.plan.chain, BlockFaults::default());
        let maker = UndoMaker {
            reader: &BlockReader::new(chain, self.files),
            deliveries,
            scripts,
            observer: self.options.observer.as_deref().filter(|observer| observer.needs_coins()),
            faults: &faults,
            claims: self.files.awaited.and_then(AwaitedBlocks::claims),
            sink: self.undo_sink,
            meter: self.plan.meter(blocks.len(), self.watch.sink),
            interrupt: self.watch.interrupt,
        };
        let made = maker.make(blocks, self.threads())?;
        deliveries.parts.remove_file()?;
        Ok((made, faults.into_lowest()))
    }
}

/// Records what is wrong with a join that has open spends or mismatches.
fn record_open_spends(join: &Join, spill: &Spill<'_>) {
    for mismatch in join.mismatches() {
        spill.add_mismatches(mismatch.outpoint().into_iter());
    }
    for shard in 0..SHARDS {
        let Ok(()) = join.each_open(shard, |entry| -> Result<(), Infallible> {
            if entry.is_spend {
                spill.record_mismatch(entry.outpoint);
            }
            Ok(())
        });
    }
    spill.set_mismatch();
}

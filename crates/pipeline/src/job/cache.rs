//! The engine with the coins cache: connects all blocks in order to a new chainstate, as Bitcoin Core does.
//!
//! It shares no step with the join but the rules themselves: each spend takes its coin from the cache or from
//! the database below it, whose changes are written whenever the cache has used up its memory. So its result
//! is a second opinion, and its speed the one to beat.

use crate::{
    job::{
        Job, MatchStats, check_pinned_hash,
        clock::Clock,
        in_order::{BlockSink, InOrder},
        memory::CacheMemory,
    },
    stages::{
        finish::read_back,
        make_undo::{PlacedUndo, UndoSink},
        read::BlockReader,
        stored_coins::{StoredCoins, TipCoins, flush, merge},
        window::{BlockResult, BufferPool, ConnectedBlock, Window},
    },
};
use api::{
    counts::Counts, error::Error, event::Event, machine::random_key, note::Note, options::Matching,
    remedy::Remedy, stage::Stage,
};
use coins::CoinsCache;
use digest::obfuscation::Obfuscation;
use disk::{chainstate::ChainstateReader, utxo_stats::UtxoCounts};
use std::{ops::Range, path::Path};
use wire::{BlockHash, Height};

/// Takes a block that was connected.
pub type EachBlock<'e> = dyn FnMut(&ConnectedBlock) -> Result<(), Error> + 'e;

/// What the blocks up to some height amount to.
#[derive(Clone, Copy)]
struct Connected {
    counts: Counts,
    /// The coins after the last of them.
    coins: UtxoCounts,
}

/// Heights at which the coins in the directory are wanted.
pub struct Stops<'a> {
    /// The heights of the blocks after which the coins are wanted, in ascending order.
    pub heights: &'a [Height],
    /// Is called with each of them, and the number of transactions up to there.
    pub at: &'a mut dyn FnMut(Height, u64) -> Result<(), Error>,
}

impl Job<'_> {
    /// Connects all blocks in order to a new chainstate in the directory `dir`, which is obfuscated with
    /// `key`. At each height on the way whose UTXO set has a hash in Core's source, compares the two, so that
    /// a run ends where they differ. Returns the counts of the coins, computed from what the blocks create
    /// and spend, without the number of transactions, and how the coins were obtained.
    ///
    /// # Errors
    /// The first violation of the chain; damage; any I/O error; [`api::error::ErrorKind::Usage`] if an
    /// interrupted run has left a checkpoint; [`api::error::ErrorKind::Internal`] for another UTXO set than
    /// Core's; [`api::error::ErrorKind::Interrupted`].
    pub fn connect_all(
        &self,
        dir: &Path,
        key: [u8; 8],
        clock: &mut Clock,
    ) -> Result<(UtxoCounts, MatchStats), Error> {
        if self.work.may_have_checkpoint() && self.resume.is_some_and(|resume| !resume.discard_other) {
            let detail = "an interrupted run has left a checkpoint here, which the engine with the coins \
                          cache cannot resume";
            return Err(Error::usage(detail)
                .in_file(self.work.path(), None)
                .with_remedies([Remedy::RepeatOptions, Remedy::StartOver]));
        }
        self.work.remove()?;
        self.undo_sink.map_or(Ok(()), UndoSink::start_over)?;
        let each = &mut |block: &ConnectedBlock| self.record_undo(block);
        let pinned = self.pinned_heights();
        let at = &mut |height, _| self.check_pinned_at(height, dir);
        let stops = Some(Stops { heights: &pinned, at });
        self.connect_each(dir, key, clock, BlockResult::Undo, each, stops)
    }

    /// The heights below the last block whose UTXO sets have hashes in Core's source.
    fn pinned_heights(&self) -> Vec<Height> {
        let chain = &self.plan.chain;
        let all = self.files.params.assume_utxo.iter();
        let on_the_way = all.filter(|pinned| {
            pinned.height < chain.tip_height() && chain.has(pinned.height, &pinned.block_hash)
        });
        on_the_way.map(|pinned| pinned.height).collect()
    }

    fn check_pinned_at(&self, height: Height, dir: &Path) -> Result<(), Error> {
        self.watch.sink.event(Event::Started(Stage::Prove));
        let reader = ChainstateReader::open(self.work.disk(), dir)?;
        let found = read_back(&reader, None, self.threads(), self.watch)?;
        let (hash, found) = (self.plan.chain.block(height).hash, found.hash_serialized_3);
        check_pinned_hash(self.files.params, height, &hash, &found)?;
        self.watch.sink.event(Event::Note(Note::PinnedHash { height }));
        Ok(())
    }

    /// Like [`Job::connect_all`], with `stops` on the way. Passes each block to `each`, in order, with what
    /// is made of it.
    ///
    /// # Errors
    /// The first violation of the chain; damage; any I/O error; [`api::error::ErrorKind::Interrupted`]; those
    /// of `each` and of the stops.
    pub fn connect_each(
        &self,
        dir: &Path,
        key: [u8; 8],
        clock: &mut Clock,
        result: BlockResult<'_>,
        each: &mut EachBlock<'_>,
        stops: Option<Stops<'_>>,
    ) -> Result<(UtxoCounts, MatchStats), Error> {
        self.watch.sink.event(Event::Started(Stage::Connect));
        let disk = self.work.disk();
        ChainstateReader::create(disk, dir, Obfuscation::from_key(key))?
            .update(BlockHash::default())?
            .commit([])?;
        let mut committed = Connected { counts: Counts::default(), coins: UtxoCounts::ZERO };
        let mut passed = 0;
        let mut each = |block: &ConnectedBlock| {
            if block.height.0 >= passed {
                each(block)?;
                passed = block.height.0 + 1;
            }
            Ok(())
        };
        // To find out what is wrong with a block, the blocks of its window are connected one by one, from the
        // last commit on.
        let mut connect_to = |end: u32| {
            let mut suspect = Some(0..0);
            while let Some(exactly) = suspect {
                let chainstate = ChainstateReader::open(disk, dir)?;
                let pass = self.connect_from(chainstate, &mut committed, (end, exactly), (result, &mut each));
                suspect = pass.map_err(|error| self.mark_contested(error))?;
            }
            Ok::<_, Error>(committed.counts.transactions)
        };
        if let Some(Stops { heights, at }) = stops {
            for &height in heights {
                let transactions = connect_to(height.0 + 1)?;
                at(height, transactions)?;
                self.watch.sink.event(Event::Started(Stage::Connect));
            }
        }
        connect_to(self.plan.chain.block_count() as u32)?;
        clock.lap(Stage::Connect);
        Ok((committed.coins, MatchStats::in_order(committed.counts, Matching::Cache)))
    }

    /// Connects the blocks above those that are committed and below the height `end`, and commits them.
    /// Returns the heights of a window in which something is wrong.
    fn connect_from(
        &self,
        mut chainstate: ChainstateReader<'_>,
        committed: &mut Connected,
        (end, exactly): (u32, Range<u32>),
        (result, each): (BlockResult<'_>, &mut EachBlock<'_>),
    ) -> Result<Option<Range<u32>>, Error> {
        let memory = self.budget.cache();
        chainstate.keep_open(memory.tables);
        let best_block = chainstate.best_block();
        let coins = CoinsCache::new(StoredCoins(chainstate), best_block, random_key()?);
        let reader = &BlockReader::new(&self.plan.chain, self.files);
        let window = self.window(reader, BufferPool::new(memory.window), result);
        let (done, next) = (*committed, committed.counts.blocks as u32);
        let has_more = (end as usize) < self.plan.chain.block_count();
        let mut cache = Cache { job: self, coins, memory, done, committed, has_more, each };
        let meter = self.plan.meter((next..end).len(), self.watch.sink);
        let blocks = InOrder::new(window, next..end, exactly, meter);
        blocks.connect_to(&mut cache, memory, self.watch.interrupt)
    }

    /// What connects blocks of the chain.
    pub fn window<'w>(
        &'w self,
        reader: &'w BlockReader<'w>,
        buffers: BufferPool,
        result: BlockResult<'w>,
    ) -> Window<'w> {
        let (chain, params, scripts) = (&self.plan.chain, self.files.params, self.scripts());
        Window { chain, reader, params, scripts, threads: self.threads(), buffers, result }
    }

    /// Makes the undo data of a block, unless the undo file has it. If undo data is not made, it is an error
    /// that the file has other undo data.
    pub fn record_undo(&self, block: &ConnectedBlock) -> Result<(), Error> {
        let &ConnectedBlock { height, ref prev, ref undo, is_undo_stored, .. } = block;
        let chain = &self.plan.chain;
        // The genesis block has no undo data.
        if is_undo_stored || height == Height(0) {
            return Ok(());
        }
        let Some(sink) = self.undo_sink else {
            // A rebuild without undo data has none to compare.
            let is_compared = !self.method.makes_undo() && chain.block(height).undo_pos.is_some();
            return if is_compared { Err(self.false_undo(height, undo)) } else { Ok(()) };
        };
        let file = self.files.block(chain, height).file;
        let pos = sink.reserve(height, file, undo.len())?;
        sink.write(&PlacedUndo { height, file, pos, prev, data: undo }, &mut Vec::new())
    }
}

/// The coins of a new chainstate.
struct Cache<'c, 'd> {
    job: &'c Job<'c>,
    coins: TipCoins<'d>,
    memory: CacheMemory,
    /// The blocks that are connected.
    done: Connected,
    /// Those whose changes are written.
    committed: &'c mut Connected,
    /// Whether more blocks are connected later.
    has_more: bool,
    each: &'c mut EachBlock<'c>,
}

impl<'d> BlockSink<'d> for Cache<'_, 'd> {
    fn coins(&mut self) -> &mut TipCoins<'d> {
        &mut self.coins
    }

    fn connected(&mut self, blocks: &[ConnectedBlock], counts: Counts) -> Result<(), Error> {
        self.done.counts += counts;
        for block in blocks {
            self.done.coins.merge(block.created);
            self.done.coins = self.done.coins.without(&block.spent);
            (self.each)(block)?;
        }
        Ok(())
    }

    fn commit(&mut self, is_last: bool) -> Result<(), Error> {
        let (threads, interrupt) = (self.job.threads(), self.job.watch.interrupt);
        flush(&mut self.coins, threads, if is_last { 0 } else { self.memory.staying }, interrupt)?;
        if !is_last || self.has_more {
            merge(&mut self.coins, threads, interrupt)?;
        }
        *self.committed = self.done;
        Ok(())
    }
}

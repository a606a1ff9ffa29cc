//! The blocks of a chain of which some are stored while a job runs, as a source of blocks.

use crate::stages::{
    block_source::{Block, BlockSource, Stop},
    read::FileSource,
};
use api::error::Error;
use chain::blocks::{awaited::AwaitedBlocks, chain::Chain, damage::Damage};
use wire::Height;

/// Waits for each block until it is stored, and takes it from memory if it is kept there.
pub struct AwaitedSource<'a> {
    chain: &'a Chain,
    awaited: &'a AwaitedBlocks,
    stored: FileSource<'a>,
}

impl<'a> AwaitedSource<'a> {
    /// Delivers the blocks that `stored` would, of the same chain.
    pub const fn new(chain: &'a Chain, awaited: &'a AwaitedBlocks, stored: FileSource<'a>) -> Self {
        Self { chain, awaited, stored }
    }
}

impl BlockSource for AwaitedSource<'_> {
    fn read(&self, into: &mut Block, stop: &dyn Fn(u32) -> Stop) -> Result<bool, Error> {
        let Self { chain, awaited, stored } = self;
        while let Some(height) = stored.next(&mut into.batch, stop) {
            let was_stored = chain.was_stored(height);
            let give_up = || stop(stored.read_count()) == Stop::Now;
            if !awaited.wait_for(height, was_stored, &give_up) {
                return Ok(false);
            }
            let hash = &chain.block(height).hash;
            let kept = if was_stored { None } else { awaited.take(height, hash) };
            if stored.deliver(height, kept, into)? {
                if let Some(claims) = awaited.claims().filter(|_| !was_stored && stored.uses_undo(height)) {
                    into.claims = claims.read(height)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn damaged(&self, height: Height, damage: &Damage) -> Error {
        self.stored.damaged(height, damage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::{block_fault::BlockFaults, completed_blocks::CompletedBlocks, read::UndoReading};
    use chain::blocks::{
        block_check::{BlockFacts, CheckedBlock},
        chain::ChainBlock,
        files::Files,
    };
    use digest::obfuscation::Obfuscation;
    use disk::{
        block_files::{AppendOptions, BlockFiles},
        datadir::Datadir,
    };
    use rules::ChainParams;
    use testkit::fault::FaultDisk;
    use wire::{ByteOffset, FileNo, Network, Txid};

    /// Two blocks, which happen to be equal, are stored after the chain was chosen, and memory suffices for
    /// one of them.
    #[test]
    fn a_block_comes_from_memory_or_from_where_it_was_stored() {
        let dir = tempfile::tempdir().unwrap();
        let (datadir, disk) = (&Datadir::at(dir.path(), Network::Regtest), &FaultDisk::healthy());
        std::fs::create_dir_all(datadir.blocks_dir()).unwrap();
        let (params, obfuscation) = (ChainParams::of(Network::Regtest), Obfuscation::default());
        let (hash, time, bytes) = (params.genesis_hash, params.genesis.time, params.genesis_block());
        let block = ChainBlock { hash, file: FileNo(0), data_pos: ByteOffset(0), undo_pos: None };
        let chain = &Chain::new(vec![block; 2], vec![time; 2]);
        let awaited = &AwaitedBlocks::new(2, bytes.len() as u64 + 100, None);
        let files = &Files { disk, datadir, obfuscation, params, awaited: Some(awaited) };
        let (faults, none) = (BlockFaults::default(), CompletedBlocks::none(2));
        let undo = UndoReading { from: Height(u32::MAX), skips_damaged: true };
        let stored = FileSource::new(chain, files, &faults, &none, undo, 1);
        let source = AwaitedSource::new(chain, awaited, stored);
        let (mut read, not) = (Block::default(), |_| Stop::Not);

        let block_files = BlockFiles::new(disk, datadir, obfuscation);
        let mut appender = block_files.append_after(Vec::new(), AppendOptions::default());
        let facts = BlockFacts { txids: vec![Txid([1; 32])], legacy_sigops: 7 };
        for height in [0, 1].map(Height) {
            let (file, data_pos) = appender.append_block(height, time, &bytes).unwrap();
            let (bytes, facts) = (bytes.clone(), facts.clone());
            awaited.place(height, file, data_pos, CheckedBlock { hash, bytes, facts });
        }
        appender.flush().unwrap();
        for (height, facts) in [(Height(0), Some(facts)), (Height(1), None)] {
            assert_eq!(chain.block(height).data_pos, ByteOffset(0), "the chain is a value");
            assert!(files.block(chain, height).data_pos > ByteOffset(0));
            assert!(source.read(&mut read, &not).unwrap());
            assert_eq!((read.height, read.block.bytes(), &read.facts), (height, &bytes[..], &facts));
        }
        assert!(!source.read(&mut read, &not).unwrap() && faults.into_lowest().is_none());
    }

    #[test]
    fn a_worker_that_must_stop_does_not_wait() {
        let block = |hash| ChainBlock { hash, file: FileNo(0), data_pos: ByteOffset(0), undo_pos: None };
        let chain = &Chain::new(vec![block(Default::default())], vec![Default::default()]);
        let dir = tempfile::tempdir().unwrap();
        let (datadir, disk) = (&Datadir::at(dir.path(), Network::Regtest), &FaultDisk::healthy());
        let (params, obfuscation) = (ChainParams::of(Network::Regtest), Obfuscation::default());
        let awaited = &AwaitedBlocks::new(1, 0, None);
        let files = &Files { disk, datadir, obfuscation, params, awaited: Some(awaited) };
        let (faults, none) = (BlockFaults::default(), CompletedBlocks::none(1));
        let undo = UndoReading { from: Height(u32::MAX), skips_damaged: true };
        let stored = FileSource::new(chain, files, &faults, &none, undo, 1);
        let source = AwaitedSource::new(chain, awaited, stored);
        let asked = std::cell::Cell::new(false);
        let stop = |_| if asked.replace(true) { Stop::Now } else { Stop::Not };
        assert!(!source.read(&mut Block::default(), &stop).unwrap());
    }
}

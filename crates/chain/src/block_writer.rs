//! Checks the blocks that peers send, and appends them to the block files.
//!
//! If the bytes of a block are not those to which its header commits, its peer has sent a mutated block. If
//! they are, and break a rule, the block is invalid, and the peer has done nothing wrong (Core
//! `IsBlockMutated`).

use crate::{
    blocks::{
        block_check::{BlockFacts, BlockFlaw, CheckedBlock, ExpectedBlock, may_be_merkle_nodes},
        block_hashes::BlockHashes,
    },
    threads::{lock, spawn},
};
use api::error::Error;
use crossbeam::channel::{Receiver, Sender};
use disk::{block_files::BlockAppender, index::FileInfo};
use rules::{ChainParams, Violation};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    thread::Scope,
};
use wire::{
    BlockArena, BlockHash, BlockTime, ByteOffset, FileNo, Height, ScriptVerifier, SpentCoinsError,
    SpentCoinsForm,
};

pub struct ArrivedBlock {
    /// What it must be; its hash is that of its first 80 bytes.
    pub expected: ExpectedBlock,
    pub bytes: Vec<u8>,
    /// The coins that it spends, as a peer has sent them.
    pub coins: Option<(SpentCoinsForm, Vec<u8>)>,
}

pub enum BlockOutcome {
    Stored {
        file: FileNo,
        /// Its position there, after the record's frame.
        data_pos: ByteOffset,
        block: CheckedBlock,
        /// The undo data that the coins make, or what is wrong with them, if there are any.
        undo: Option<Box<Result<Vec<u8>, SpentCoinsError>>>,
    },
    /// These are not the bytes to which its header commits.
    Mutated,
    Invalid(Violation),
    /// It could not be written, or what checked it has panicked.
    Failed(Error),
}

pub struct HandledBlock {
    pub height: Height,
    pub hash: BlockHash,
    /// Its size in bytes.
    pub len: usize,
    /// Size in bytes of the coins that came with it.
    pub coins_len: usize,
    pub outcome: BlockOutcome,
}

pub struct BlockWriter<'a> {
    params: &'static ChainParams,
    verifier: Option<&'a dyn ScriptVerifier>,
    appender: Mutex<BlockAppender<'a>>,
}

impl<'a> BlockWriter<'a> {
    /// A writer that appends with `appender`. `verifier` runs the solutions of a signed network.
    pub const fn new(
        params: &'static ChainParams,
        verifier: Option<&'a dyn ScriptVerifier>,
        appender: BlockAppender<'a>,
    ) -> Self {
        Self { params, verifier, appender: Mutex::new(appender) }
    }

    /// Starts `threads` threads that handle the blocks of `arrived`, and send the results to `handled`. They
    /// end when `arrived` is closed. `wake` is called after each block.
    ///
    /// # Errors
    /// If the system starts no more threads.
    pub fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        arrived: &Receiver<ArrivedBlock>,
        handled: &Sender<HandledBlock>,
        wake: &'scope (dyn Fn() + Sync),
    ) -> Result<(), Error> {
        for _ in 0..threads {
            let (arrived, handled) = (arrived.clone(), handled.clone());
            spawn(scope, "store", move || {
                let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
                for block in arrived {
                    if !self.handle(block, &mut arena, &mut hashes, &handled) {
                        return;
                    }
                    wake();
                }
            })?;
        }
        Ok(())
    }

    /// Checks a block, and appends it if it is valid as far as that can be known without other blocks.
    /// Returns false if nobody takes the result.
    fn handle(
        &self,
        block: ArrivedBlock,
        arena: &mut BlockArena,
        hashes: &mut BlockHashes,
        handled: &Sender<HandledBlock>,
    ) -> bool {
        let (ExpectedBlock { height, hash, .. }, len) = (block.expected, block.bytes.len());
        let coins_len = block.coins.as_ref().map_or(0, |(_, bytes)| bytes.len());
        let send = |outcome| handled.send(HandledBlock { height, hash, len, coins_len, outcome }).is_ok();
        let failed = |error: Error| BlockOutcome::Failed(error.at_block(height, hash));
        let store = || match check_arrived(&block.expected, self.verifier, &block.bytes, arena, hashes) {
            Err(outcome) => send(outcome),
            Ok((time, legacy_sigops)) => {
                let undo = claimed_undo(&block, arena).map(Box::new);
                let (bytes, txids) = (block.bytes, std::mem::take(&mut hashes.txids));
                let block = CheckedBlock { hash, bytes, facts: BlockFacts { txids, legacy_sigops } };
                // The lock is held until the result is sent, so that nobody flushes before.
                let appender = &mut *lock(&self.appender);
                send(match appender.append_block(height, time, &block.bytes) {
                    Ok((file, data_pos)) => BlockOutcome::Stored { file, data_pos, block, undo },
                    Err(error) => failed(error.into()),
                })
            }
        };
        // The verifier is the caller's code and may panic, and the download waits for a result of each block.
        catch_unwind(AssertUnwindSafe(store)).unwrap_or_else(|_| send(failed(Error::panicked())))
    }

    /// Appends the genesis block, whose file is going to be deleted: bitcoind never downloads it.
    pub fn append_genesis(&self) -> Result<(FileNo, ByteOffset), Error> {
        let genesis = &self.params.genesis;
        Ok(lock(&self.appender).append_block(Height(0), genesis.time, &self.params.genesis_block())?)
    }

    /// Records that files were deleted, which are not the last ones.
    pub fn forget(&self, files: &[FileNo]) {
        let appender = &mut *lock(&self.appender);
        files.iter().for_each(|&file| appender.forget(file));
    }

    /// What the block index must record about each pair of files once all that was appended is flushed.
    pub fn infos(&self) -> Vec<FileInfo> {
        lock(&self.appender).infos().to_vec()
    }

    /// Changes what the block index must record about each pair of files, when blocks were found in them, and
    /// before any was appended.
    pub fn change_infos<T>(
        &self,
        change: impl FnOnce(&mut Vec<FileInfo>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        change(lock(&self.appender).infos_mut())
    }

    /// Calls `take_handled` when all that was appended is on the medium; the results of all these blocks have
    /// been sent by then. Returns what a block index with these blocks must record about each pair of files.
    ///
    /// # Errors
    /// Any I/O error; those of `take_handled`.
    pub fn flush(&self, take_handled: impl FnOnce() -> Result<(), Error>) -> Result<Vec<FileInfo>, Error> {
        let appender = &mut *lock(&self.appender);
        appender.flush()?;
        take_handled()?;
        Ok(appender.infos().to_vec())
    }
}

/// Checks that bytes are a certain block, and all its rules that need no other block than the headers below
/// it. Returns its time and the result of [`rules::check_block`]; `hashes` are those of the block then.
///
/// # Errors
/// [`BlockOutcome::Mutated`] or [`BlockOutcome::Invalid`].
pub fn check_arrived(
    expected: &ExpectedBlock,
    verifier: Option<&dyn ScriptVerifier>,
    bytes: &[u8],
    arena: &mut BlockArena,
    hashes: &mut BlockHashes,
) -> Result<(BlockTime, u32), BlockOutcome> {
    let view = arena.parse(bytes).map_err(|_| BlockOutcome::Mutated)?;
    match expected.check(verifier, &view, &[], hashes) {
        Ok(legacy_sigops) => Ok((view.header().time, legacy_sigops)),
        Err(BlockFlaw::Invalid(violation)) if !may_be_merkle_nodes(&view) => {
            Err(BlockOutcome::Invalid(violation))
        }
        Err(_) => Err(BlockOutcome::Mutated),
    }
}

/// Returns the undo data that the coins of a checked block make.
fn claimed_undo(block: &ArrivedBlock, arena: &mut BlockArena) -> Option<Result<Vec<u8>, SpentCoinsError>> {
    let (form, coins) = block.coins.as_ref()?;
    let view = arena.parse(&block.bytes).ok()?;
    let inputs: Vec<usize> = view.txs().skip(1).map(|tx| tx.input_count()).collect();
    Some(form.read_undo(coins, &block.expected.hash, inputs.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header_chain::HeaderChain;
    use api::error::ErrorKind;
    use crossbeam::channel::unbounded;
    use digest::obfuscation::Obfuscation;
    use disk::{
        block_files::{BlockFiles, MAX_BLOCK_FILE_LEN},
        datadir::Datadir,
    };
    use std::{io, path::Path, sync::Arc, thread};
    use testkit::{
        Chain, ChainSpec,
        fault::{FaultDisk, InjectedFault, Operations},
    };
    use wire::{Network, Sats, ScriptFault, TxVerifier, TxView};

    fn writer<'d>(disk: &'d FaultDisk, root: &Path) -> BlockWriter<'d> {
        let datadir = Datadir::at(root, Network::Regtest);
        std::fs::create_dir_all(datadir.blocks_dir()).unwrap();
        let files = BlockFiles::new(disk, &datadir, Obfuscation::default());
        let appender = files.append_after(Vec::new(), MAX_BLOCK_FILE_LEN);
        BlockWriter::new(ChainParams::of(Network::Regtest), None, appender)
    }

    /// Appends the genesis block and flushes twice. Returns the results, and the number of operations.
    fn flush_twice(disk: &FaultDisk, root: &Path) -> ([Result<(), Error>; 3], u64) {
        let writer = writer(disk, root);
        let appended = writer.append_genesis().map(drop);
        let before = disk.count();
        let flushes = [(); 2].map(|()| writer.flush(|| Ok(())).map(drop));
        let [first, second] = flushes;
        ([appended, first, second], before)
    }

    #[test]
    fn what_the_index_records_of_files_is_known_by_block() {
        let (dir, disk) = (tempfile::tempdir().unwrap(), FaultDisk::healthy());
        let writer = writer(&disk, dir.path());
        let params = writer.params;
        let (arrived_in, arrived) = unbounded();
        let (outcomes_in, outcomes) = unbounded();
        for _ in 0..500 {
            let expected = HeaderChain::new(params).expected(Height(0), params.genesis_hash);
            let (bytes, coins) = (params.genesis_block(), None);
            arrived_in.send(ArrivedBlock { expected, bytes, coins }).unwrap();
        }
        drop(arrived_in);
        thread::scope(|scope| {
            writer.start(scope, 3, &arrived, &outcomes_in, &|| {}).unwrap();
            let mut handled = 0;
            while handled < 500 {
                let count = || {
                    handled += outcomes.try_iter().count();
                    Ok(())
                };
                let infos = writer.flush(count).unwrap();
                assert_eq!(infos.iter().map(|info| info.blocks as usize).sum::<usize>(), handled);
            }
        });
    }

    #[derive(Debug)]
    struct Panicking;

    impl ScriptVerifier for Panicking {
        fn transaction(
            &self,
            _: &TxView<'_>,
            _: &[(Sats, Vec<u8>)],
        ) -> Result<Arc<dyn TxVerifier>, ScriptFault> {
            panic!("the caller's verifier")
        }
    }

    /// A download waited for ever for the result of a block whose solution the caller's verifier had run.
    #[test]
    fn a_panic_is_the_result_of_its_block() {
        let (dir, disk) = (tempfile::tempdir().unwrap(), FaultDisk::healthy());
        let signed = ChainParams { signet_challenge: Some(&[]), ..ChainParams::of(Network::Regtest).clone() };
        let params: &'static ChainParams = Box::leak(Box::new(signed));
        let writer = BlockWriter { params, verifier: Some(&Panicking), ..writer(&disk, dir.path()) };
        let chain = Chain::generate(&ChainSpec { blocks: Some(20), ..ChainSpec::new(1, 10_000) });
        let (arrived_in, arrived) = unbounded();
        let (outcomes_in, outcomes) = unbounded();
        for block in chain.main().skip(1) {
            let (height, hash, time) = (Height(block.height), block.hash, params.genesis.time);
            let expected = ExpectedBlock { params, height, hash, median_time_past_prev: time };
            arrived_in.send(ArrivedBlock { expected, bytes: block.bytes.clone(), coins: None }).unwrap();
        }
        drop(arrived_in);
        thread::scope(|scope| writer.start(scope, 2, &arrived, &outcomes_in, &|| {})).unwrap();
        let outcomes: Vec<BlockOutcome> = outcomes.try_iter().map(|block| block.outcome).collect();
        assert_eq!(outcomes.len(), chain.main().count() - 1);
        // Of a block without a commitment to witnesses, no solution is run.
        let is_internal = |error: &Error| error.kind == ErrorKind::Internal;
        assert!(outcomes.iter().any(|it| matches!(it, BlockOutcome::Failed(error) if is_internal(error))));
    }

    #[test]
    fn after_a_failed_flush_no_other_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let (done, sync_at) = flush_twice(&FaultDisk::healthy(), dir.path());
        assert!(done.iter().all(Result::is_ok));
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultDisk::fail_at(sync_at, InjectedFault::Once, Operations::All, io::ErrorKind::Other);
        let ([appended, first, second], _) = flush_twice(&disk, dir.path());
        assert!(appended.is_ok() && disk.has_failed());
        assert!(first.is_err() && second.unwrap_err().to_string().contains("may not have reached the disk"));
    }
}

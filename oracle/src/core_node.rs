//! Runs Bitcoin Core's `ChainstateManager` on a datadir: submits blocks, returns its verdicts, reads what it
//! wrote.

use crate::log::{self, Reason};
use bitcoinkernel::{
    Block, BlockValidationResult, BlockValidationStateRef, ChainType, ChainstateManager, Context,
    ContextBuilder, KernelError, ProcessBlockHeaderResult, ProcessBlockResult, ValidationMode, prelude::*,
};
use std::{
    mem,
    path::Path,
    sync::{Arc, Mutex},
};
use wire::{BlockHash, BlockTime, Height, Network};

/// Why Core could not be used. (A rejected block is a [`Verdict`], not an error.)
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    #[error("Core does not open {path}: {log}")]
    Open {
        /// The network folder.
        path: String,
        /// Core's log: only the errors, if there are any.
        log: String,
    },
    /// Core did not import the block files; contains its log.
    #[error("Core does not import the block files: {0}")]
    Import(String),
    /// Core has no such block on its active chain, or cannot read it.
    #[error("Core does not read the block of height {height}: {source}")]
    Read { height: Height, source: KernelError },
}

/// What to delete before Core opens a datadir.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wipe {
    /// Nothing: Core starts like a node that was stopped, and connects the blocks that its chainstate lacks.
    Nothing,
    /// The chainstate, like `-reindex-chainstate`.
    Chainstate,
    /// The chainstate and the block index, like `-reindex`: only the `blk` files are used.
    All,
}

/// Core's verdict on a submitted block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Valid, and now the tip.
    Connected,
    /// Stored but not connected: another branch has at least as much work.
    Stored,
    Duplicate,
    /// The bytes are not a block.
    Malformed,
    /// A rule is broken, by this block or by another one on the branch that this block gave the most work.
    Rejected(Rejection),
}

impl Verdict {
    /// Returns Core's reject string, if it rejected the block.
    pub fn reject(&self) -> Option<&str> {
        match self {
            Self::Rejected(rejection) => Some(&rejection.reason.reject),
            _ => None,
        }
    }
}

/// A block that Core rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The block that breaks a rule.
    pub hash: BlockHash,
    /// The reason, from Core's log.
    pub reason: Reason,
    /// The class of the failure.
    pub result: BlockValidationResult,
    /// Whether the chain is invalid ([`ValidationMode::Invalid`]) or the machine failed.
    pub mode: ValidationMode,
}

/// A notification from Core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A block was validated.
    Checked(BlockHash, ValidationMode, BlockValidationResult),
    /// A block became part of the active chain.
    Connected(Height, BlockHash),
    /// A block left the active chain.
    Disconnected(Height, BlockHash),
}

/// A coin that a block spent, as Core reads it from undo data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpentCoin {
    /// Height of the block that created it.
    pub height: Height,
    pub is_coinbase: bool,
    /// Amount in satoshis.
    pub amount: i64,
    pub script: Vec<u8>,
}

type Events = Arc<Mutex<Vec<Event>>>;

/// Core, running on one datadir. It flushes and closes when dropped.
pub struct CoreNode {
    // First, because it must be dropped before the context that it uses.
    chainman: ChainstateManager,
    _context: Context,
    events: Events,
}

impl CoreNode {
    /// Opens the network folder `net_dir` (the one that contains `blocks`), or creates one with the genesis
    /// block. Core then connects every valid block in the index to its chainstate, and verifies the last six
    /// blocks as a node does at start.
    ///
    /// # Errors
    /// [`CoreError::Open`] if Core refuses the databases, [`CoreError::Import`] if it fails in a reindex.
    pub fn open(net_dir: &Path, network: Network, wipe: Wipe) -> Result<Self, CoreError> {
        Self::with_workers(net_dir, network, wipe, 1)
    }

    /// Opens a node that runs scripts in block order; other nodes report whichever failing script ends first.
    /// Unlike a real node, it reports a failing script before violations of later transactions.
    ///
    /// # Errors
    /// The same errors as [`CoreNode::open`].
    pub fn open_in_order(net_dir: &Path, network: Network) -> Result<Self, CoreError> {
        Self::with_workers(net_dir, network, Wipe::Nothing, 0)
    }

    fn with_workers(net_dir: &Path, network: Network, wipe: Wipe, workers: i32) -> Result<Self, CoreError> {
        let events = Events::default();
        let (opened, lines) = log::listen(|| open(net_dir, network, wipe, workers, &events));
        let (chainman, context) = opened.map_err(|error| CoreError::Open {
            path: net_dir.display().to_string(),
            log: error_lines(&lines).unwrap_or_else(|| error.to_string()),
        })?;
        if wipe != Wipe::Nothing {
            let (imported, lines) = log::listen(|| chainman.import_blocks());
            imported.map_err(|error| {
                CoreError::Import(error_lines(&lines).unwrap_or_else(|| error.to_string()))
            })?;
        }
        Ok(Self { chainman, _context: context, events })
    }

    /// Submits a serialised block as a peer would: first the header, then the block. (If a block is submitted
    /// without its header, Core checks its own bytes before its header's context, and may report another
    /// violation.)
    #[must_use]
    pub fn submit(&self, block: &[u8]) -> Verdict {
        let Ok(block) = Block::new(block) else { return Verdict::Malformed };
        let hash = BlockHash(block.hash().to_bytes());
        let (header, lines) = log::listen(|| self.chainman.process_block_header(&block.header()));
        match header {
            Ok(ProcessBlockHeaderResult::Valid) => self.submit_whole(&block, hash),
            Ok(ProcessBlockHeaderResult::Invalid(state)) => {
                rejected(hash, state.result(), state.mode(), &lines)
            }
            Err(_) => rejected(hash, BlockValidationResult::Unset, ValidationMode::InternalError, &lines),
        }
    }

    fn submit_whole(&self, block: &Block, hash: BlockHash) -> Verdict {
        let before = lock(&self.events).len();
        let (result, lines) = log::listen(|| self.chainman.process_block(block));
        let failed = lock(&self.events).iter().skip(before).find_map(|event| match event {
            Event::Checked(hash, mode, result) if *mode != ValidationMode::Valid => {
                Some((*hash, *mode, *result))
            }
            _ => None,
        });
        if let Some((hash, mode, result)) = failed {
            return rejected(hash, result, mode, &lines);
        }
        match result {
            ProcessBlockResult::Duplicate => Verdict::Duplicate,
            ProcessBlockResult::NewBlock if self.tip().1 == hash => Verdict::Connected,
            ProcessBlockResult::NewBlock => Verdict::Stored,
            // If no check failed, the machine failed (for example, the disk is full).
            ProcessBlockResult::Rejected => {
                rejected(hash, BlockValidationResult::Unset, ValidationMode::InternalError, &lines)
            }
        }
    }

    /// Returns and clears the events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        mem::take(&mut *lock(&self.events))
    }

    /// Returns height and hash of the active chain's last block.
    pub fn tip(&self) -> (Height, BlockHash) {
        let tip = self.chainman.active_chain().tip();
        (Height(tip.height().unsigned_abs()), BlockHash(tip.block_hash().to_bytes()))
    }

    /// Returns the hash of the active chain's block at `height`.
    pub fn block_hash(&self, height: Height) -> Option<BlockHash> {
        let entry = self.chainman.active_chain().at_height(height.0 as usize)?;
        Some(BlockHash(entry.block_hash().to_bytes()))
    }

    /// Returns the header time of the active chain's block at `height`.
    pub fn block_time(&self, height: Height) -> Option<BlockTime> {
        let entry = self.chainman.active_chain().at_height(height.0 as usize)?;
        Some(BlockTime(entry.header().timestamp()))
    }

    /// Reads the active chain's block at `height` from the `blk` files, at its position in the index.
    ///
    /// # Errors
    /// [`CoreError::Read`] if there is none or Core cannot read it.
    pub fn read_block(&self, height: Height) -> Result<Vec<u8>, CoreError> {
        let failed = |source| CoreError::Read { height, source };
        let entry = self.chainman.active_chain().at_height(height.0 as usize);
        let entry = entry.ok_or_else(|| failed(KernelError::OutOfBounds))?;
        self.chainman.read_block_data(&entry).and_then(|block| block.consensus_encode()).map_err(failed)
    }

    /// Reads the coins that the active chain's block at `height` spent, by transaction (without the coinbase)
    /// and input, from the `rev` files, at its position in the index. Core checks the record's checksum.
    ///
    /// # Errors
    /// [`CoreError::Read`] if there is no such block or Core cannot read its record.
    pub fn read_spent(&self, height: Height) -> Result<Vec<Vec<SpentCoin>>, CoreError> {
        let failed = |source| CoreError::Read { height, source };
        let entry = self.chainman.active_chain().at_height(height.0 as usize);
        let entry = entry.ok_or_else(|| failed(KernelError::OutOfBounds))?;
        let spent = self.chainman.read_spent_outputs(&entry).map_err(failed)?;
        let coin = |coin: bitcoinkernel::CoinRef<'_>| SpentCoin {
            height: Height(coin.confirmation_height()),
            is_coinbase: coin.is_coinbase(),
            amount: coin.output().value(),
            script: coin.output().script_pubkey().to_bytes(),
        };
        Ok(spent.iter().map(|tx| tx.coins().map(coin).collect()).collect())
    }
}

fn rejected(
    hash: BlockHash,
    result: BlockValidationResult,
    mode: ValidationMode,
    lines: &[String],
) -> Verdict {
    let nothing = || Reason { reject: String::new(), detail: lines.join(" | ") };
    let reason = log::reason_in(lines).unwrap_or_else(nothing);
    Verdict::Rejected(Rejection { hash, reason, result, mode })
}

fn open(
    net_dir: &Path,
    network: Network,
    wipe: Wipe,
    workers: i32,
    events: &Events,
) -> Result<(ChainstateManager, Context), KernelError> {
    let context = context(network, events)?;
    let text = |path: &Path| path.display().to_string();
    let chainman = ChainstateManager::builder(&context, &text(net_dir), &text(&net_dir.join("blocks")))?
        .wipe_db(wipe == Wipe::All, wipe != Wipe::Nothing)?
        .worker_threads(workers)
        .build()?;
    Ok((chainman, context))
}

fn context(network: Network, events: &Events) -> Result<Context, KernelError> {
    let [checked, connected, disconnected] = [events, events, events].map(Arc::clone);
    let hash_of = |block: &Block| BlockHash(block.hash().to_bytes());
    let height_of = |entry: &bitcoinkernel::BlockTreeEntry<'_>| Height(entry.height().unsigned_abs());
    ContextBuilder::new()
        .chain_type(chain_type(network))
        .with_block_checked_validation(move |block: Block, state: BlockValidationStateRef<'_>| {
            lock(&checked).push(Event::Checked(hash_of(&block), state.mode(), state.result()));
        })
        .with_block_connected_validation(move |block: Block, entry: bitcoinkernel::BlockTreeEntry<'_>| {
            lock(&connected).push(Event::Connected(height_of(&entry), hash_of(&block)));
        })
        .with_block_disconnected_validation(move |block: Block, entry: bitcoinkernel::BlockTreeEntry<'_>| {
            lock(&disconnected).push(Event::Disconnected(height_of(&entry), hash_of(&block)));
        })
        .build()
}

const fn chain_type(network: Network) -> ChainType {
    match network {
        Network::Main => ChainType::Mainnet,
        Network::Test => ChainType::Testnet,
        Network::Testnet4 => ChainType::Testnet4,
        Network::Signet => ChainType::Signet,
        Network::Regtest => ChainType::Regtest,
    }
}

/// Returns the lines that contain an error; `None` if there are none.
fn error_lines(lines: &[String]) -> Option<String> {
    let words = ["error", "Error", "ERROR", "ailed", "orrupt"];
    let is_bad = |line: &&str| words.iter().any(|word| line.contains(word));
    let bad: Vec<&str> = lines.iter().map(String::as_str).filter(is_bad).collect();
    (!bad.is_empty()).then(|| bad.join(" | "))
}

fn lock(events: &Events) -> std::sync::MutexGuard<'_, Vec<Event>> {
    // The list is consistent even if a test panicked while it held the lock.
    events.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

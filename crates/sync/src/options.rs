//! Options, events and report of a download.

use api::{
    event::{Event, EventSink, Warnings},
    follow::FollowReport,
    note::Warning,
    options::{ChainOptions, HintOptions, ReindexOptions, ResumeOptions, ScriptChecks, SetAsideIndexes},
    report::{ReindexReport, UpdateReport},
};
use engine::undo::MadeUndoReport;
pub use net::pool::PeerOptions;
use net::{addresses::KnownPeer, transport::TransportVersion};
use std::{ops::AddAssign, path::Path, time::Duration};
use wire::{BlockHash, Height, Network};

/// Minimum of [`SyncOptions::prune_bytes`] (Core `MIN_DISK_SPACE_FOR_BLOCK_FILES`).
pub const MIN_PRUNE_BYTES: u64 = 550 << 20;

#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// The datadir, and how its blocks are checked. Without a height of the last block, all blocks are
    /// downloaded that the peers have.
    pub chain: ChainOptions,
    pub hints: Option<HintOptions>,
    /// Only download: the chainstate stays as it is.
    pub blocks_only: bool,
    /// Delete block and undo files that are no longer needed, so that they take about this many bytes, but
    /// keep the last 288 blocks (Core `-prune`). At least [`MIN_PRUNE_BYTES`]; `None`: keep all files.
    pub prune_bytes: Option<u64>,
    /// Make a full node of a pruned one: download the blocks again that were deleted, and rebuild chainstate
    /// and undo data from them. Until then, the datadir stays that of a pruned node. Not with pruning,
    /// without a chainstate or with a last block. No effect on a datadir that is not pruned.
    pub unprune: bool,
    /// Ask peers that offer them for the coins that blocks spend (BIP-0455, a draft), if the chainstate is
    /// rebuilt behind the download, without hints and without deleting block files. They take the place of
    /// undo data that would be made, and are proven by the rebuild.
    pub spent_coins: bool,
    /// Stay at the tip, and connect new blocks, until the caller interrupts or another process uses the
    /// datadir. Not with a last block, with pruning or without a chainstate.
    pub follow: bool,
    /// Which indexes of the node are set aside if they would become wrong.
    pub set_aside_indexes: SetAsideIndexes,
    pub peers: PeerOptions,
}

impl SyncOptions {
    /// The default options, with one thread.
    pub fn new(datadir: &Path, network: Network, scripts: ScriptChecks) -> Self {
        Self::of(ChainOptions::new(datadir, network, scripts))
    }

    pub(crate) fn of(chain: ChainOptions) -> Self {
        Self {
            chain,
            hints: None,
            blocks_only: false,
            prune_bytes: None,
            unprune: false,
            spent_coins: false,
            follow: false,
            set_aside_indexes: SetAsideIndexes::None,
            peers: PeerOptions::default(),
        }
    }

    pub(crate) fn rebuild(&self) -> ReindexOptions {
        // The best chain may have changed since. With pruning, all blocks would be downloaded again.
        let resume = ResumeOptions { discard_other: self.prune_bytes.is_none(), ..self.chain.resume };
        let chain = ChainOptions { resume, scan: false, stop_at_height: None, ..self.chain.clone() };
        ReindexOptions {
            hints: self.hints.clone(),
            set_aside_indexes: self.set_aside_indexes.clone(),
            ..ReindexOptions::of(chain)
        }
    }
}

api::reported! {
/// What a connected peer does.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerStatus {
    /// Address or name, and port.
    pub peer: String,
    /// What it calls its program; only printable characters.
    pub user_agent: String,
    /// The transport that is used.
    pub transport with "TransportName": TransportVersion,
    /// Shortest round trip that was measured.
    pub round_trip as "round_trip_ms" with "api::json::Milliseconds": Duration,
    /// Number of blocks that it has sent.
    pub blocks: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes per second at present; `None` if it has not sent enough to tell.
    pub bytes_per_second: Option<f64>,
    /// Estimated bytes of the blocks that are asked of it.
    pub bytes_in_flight: u64,
}
}

api::json::written! {
    TransportName: TransportVersion => &'static str, |transport| transport.name();
}

wire::named! {
/// What limits the speed of a download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownloadLimit {
    /// No peer that has the blocks is connected.
    NoPeers = "missing peers",
    /// The network, or what peers send.
    Network = "the network",
    /// Checking and storing blocks: the processor or the disk.
    Storing = "checking and storing blocks",
}
}

/// What happened with a peer. It is named by its address or name, and port.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PeerEvent {
    /// The handshake is done.
    Connected {
        /// Address or name, and port.
        peer: String,
        /// What it calls its program; only printable characters.
        user_agent: String,
        /// The transport that is used.
        transport: TransportVersion,
        /// Height of its best block, as it said.
        height: i32,
    },
    /// The connection ended or could not be opened.
    Closed { peer: String, reason: String },
    /// What the connected peers do, the one that has delivered the most bytes first, and what limits the
    /// speed; sent about once in a second while blocks are downloaded.
    Status { peers: Vec<PeerStatus>, limit: DownloadLimit },
    /// The download has ended; this is what is known of addresses now.
    Known(Vec<KnownPeer>),
}

/// Receives the events of a download. Called from several threads.
pub trait SyncSink: EventSink {
    /// Takes what happened with a peer; must not block for long.
    fn peer(&self, event: PeerEvent);
}

/// A sink that collects the warnings of a download.
pub(crate) type SyncWarnings<'a> = Warnings<'a, dyn SyncSink + 'a>;

/// For a caller to whom the peers do not matter.
impl<F: Fn(Event) + Sync> SyncSink for F {
    fn peer(&self, _: PeerEvent) {}
}

impl<S: SyncSink + ?Sized> SyncSink for Warnings<'_, S> {
    fn peer(&self, event: PeerEvent) {
        self.sink().peer(event);
    }
}

api::reported! {
/// Blocks that peers claim to have, and that a download could not get.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shortfall {
    /// Height of the last of them.
    pub claimed as "claimed_height": Height,
    /// Whether some have times that are too far ahead of this machine's clock.
    pub is_clock_behind: bool,
    /// Why they are not there, for each peer that claims to have some.
    pub reasons: Vec<String>,
}

/// How much was downloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DownloadReport {
    /// Number of blocks that were downloaded and stored.
    pub blocks as "blocks_downloaded": u32,
    /// Their bytes.
    pub bytes as "bytes_downloaded": u64,
    /// Bytes of blocks that came twice.
    pub duplicate_bytes as "bytes_downloaded_twice": u64,
    /// Number of blocks that an interrupted download had stored, and that the block index did not place.
    pub found as "blocks_found": u32,
    /// Number of blocks whose spent coins peers have sent.
    pub blocks_with_coins: u32,
    /// Bytes of these coins.
    pub coins_bytes: u64,
    /// Number of peers that were connected.
    pub peers: u32,
    /// Time until all blocks were stored.
    pub elapsed as "download_seconds" with "api::json::Seconds": Duration,
    /// Number of blocks that were deleted.
    pub pruned as "blocks_deleted": u32,
}
}

impl AddAssign for DownloadReport {
    /// Adds what a later part of the same download has done.
    fn add_assign(&mut self, later: Self) {
        self.blocks += later.blocks;
        self.bytes += later.bytes;
        self.duplicate_bytes += later.duplicate_bytes;
        self.found += later.found;
        self.blocks_with_coins += later.blocks_with_coins;
        self.coins_bytes += later.coins_bytes;
        // Most are the same in each part.
        self.peers = self.peers.max(later.peers);
        self.elapsed += later.elapsed;
        self.pruned += later.pruned;
    }
}

api::reported! {
/// Blocks that a download leaves out because the block index marks one as invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkedBranch {
    /// Height of that block.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Height of the last block of a peer's chain that contains it.
    pub tip as "tip_height": Height,
}

/// Result of a download.
#[derive(Clone, Debug)]
pub struct SyncReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the last block that is stored.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Height of the last header that the peers have.
    pub header_height as "headers": Height,
    /// Height of the chainstate's best block, if it is one of the chain.
    pub chainstate_height: Option<Height>,
    /// What was downloaded.
    pub download [flatten]: DownloadReport,
    /// The peers that have sent blocks, the one that has sent the most bytes first.
    pub peers as "senders": Vec<PeerStatus>,
    /// The space for block files, if they were deleted behind the rebuild.
    pub prune_bytes: Option<u64>,
    /// Whether the datadir was that of a pruned node, and all blocks are stored again.
    pub unpruned: bool,
    /// The rebuild of the chainstate; `None` if only blocks were downloaded, or if the chainstate was at the
    /// last block already.
    pub rebuild: Option<ReindexReport>,
    /// The undo data that was made, if the chainstate was not rebuilt and its last blocks lacked some.
    pub undo: Option<MadeUndoReport>,
    /// The blocks that were connected to the chainstate after the rebuild, or without one; `None` if none
    /// were missing.
    pub update: Option<UpdateReport>,
    /// The branch that all peers follow above the last block, if the block index marks it as invalid: because
    /// of `invalidateblock`, or because this call or an earlier one has found that it is.
    pub left_out: Option<MarkedBranch>,
    /// The blocks above the last one that peers claim to have; `None` if there are none.
    pub shortfall as "ends_below": Option<Shortfall>,
    /// Time until all of that was done.
    pub elapsed as "seconds" with "api::json::Seconds": Duration,
    /// What happened at the tip; `None` if the call was not to stay there.
    pub follow: Option<FollowReport>,
    /// Warnings of the download for the operator.
    pub notes with "api::note::Notes": Vec<Warning>,
}
}

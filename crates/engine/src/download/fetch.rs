//! The loop of a download: hands what peers send to the header chain and the block writer, and asks for more.

use super::{
    block_writer::{ArrivedBlock, BlockOutcome, BlockWriter, HandledBlock},
    header_chain::HeaderChain,
    pruning::Pruning,
    status::Peers,
    stored_blocks::{DatadirContents, StoredBlocks, write_index},
};
use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink, PROGRESS_INTERVAL, Progress},
        note::{Note, Warning},
        options::ChainOptions,
        remedy::Remedy,
        size::HumanSize,
        stage::Stage,
        sync::{DownloadReport, KnownPeer, MarkedBranch, PeerEvent, PeerOptions, PeerStatus, SyncOptions},
    },
    blocks::{damage::KnownDamage, files::Files},
    plan::indexes,
};
use crossbeam::channel::{Receiver, Sender, unbounded};
use disk::{
    block_files::{AppendOptions, BlockFiles},
    index::FileInfo,
};
use net::{
    client::{Client, ClientEvent, ClientOptions},
    download::{DownloadOptions, SizeEstimate},
    headers::locator_heights,
    message::{AddressRecord, Services},
    peer::PeerId,
    pool::{PoolOptions, Target},
};
use seeds::Seeds;
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use vfs::During as _;
use wire::{BlockHash, FileNo, Height, Network};

mod at_tip;
mod follower;
mod headers;
mod prune;
mod seeds;
mod withheld;

pub use follower::{Follower, TipFollower};

/// Longest time for which the loop waits for peers.
const POLL_TIME: Duration = Duration::from_millis(200);
/// Bytes of blocks after which the block index is written.
const SAVE_BYTES: u64 = 16_000_000_000;
/// Time for which further peers are asked for headers when one has no more.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two notes that nothing happens, and why.
const NOTE_INTERVAL: Duration = Duration::from_secs(30);
/// Time after which a complete download ends although no peer has said whether there are new headers.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// The part of the memory that blocks in hand get: one in this many.
const POOL_SHARE: u64 = 4;
/// Bounds of that memory, in bytes.
const POOL_BYTES: std::ops::RangeInclusive<u64> = 12 << 20..=96 << 20;
/// Maximum number of threads that check and store blocks.
const MAX_WRITERS: usize = 8;
/// Memory of each of them in bytes, for views and hashes of a block.
const WRITER_BYTES: u64 = 4 << 20;

/// What a download has reached.
pub struct Fetched {
    /// What was downloaded.
    pub report: DownloadReport,
    /// Height of the last block that is stored with all blocks below it.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The peers that have sent blocks.
    pub peers: Vec<PeerStatus>,
    /// The header chain.
    pub chain: HeaderChain,
    /// What is known of the peers' addresses.
    pub known: Vec<KnownPeer>,
    /// The branch with which all peers go on, if the block index marks it as invalid.
    pub left_out: Option<MarkedBranch>,
}

/// What the loop does at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It asks for headers.
    Headers,
    /// It asks for blocks.
    Blocks,
    /// All blocks are stored; it has asked whether there are new headers.
    Ending(Instant),
    /// It is at the tip, and stays there. It has asked then whether there are new headers.
    AtTip(Instant),
}

/// Downloads the headers of the best chain and its missing blocks, and leaves a block index that has them.
///
/// `damage`: blocks that are downloaded although they are stored; their entries stay until then.
///
/// # Errors
/// Any I/O error; [`ErrorKind::Interrupted`], after which the block index has all blocks that were stored.
pub fn fetch(
    files: &Files<'_>,
    (options, damage): (&SyncOptions, Option<&KnownDamage>),
    follower: &mut dyn Follower,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<Fetched, Error> {
    let stays = follower.at_tip().is_some();
    sink.event(Event::Started(if stays { Stage::Follow } else { Stage::Headers }));
    let prunes = options.prune_bytes.is_some();
    let DatadirContents { mut chain, mut stored, infos, found, mut has_lost } =
        DatadirContents::read(files, prunes)?;
    follower.known_invalid().iter().for_each(|hash| chain.note_invalid(*hash));
    if let Some(damage) = damage {
        stored.forget_damaged(&chain, &damage.blocks);
        has_lost = false;
    }
    // Blocks above the known headers will be stored too.
    let moved: Vec<Height> = stored.missing().chain([Height(chain.tip_height().0 + 1)]).collect();
    indexes::before_moves(files, |height| chain.hash(height), &moved, options.set_aside_indexes)?
        .apply(files, sink)?;
    if found > 0 {
        sink.event(Event::Note(Note::FoundBlocks { blocks: found }));
        write_index(files, &chain, &stored, &infos, &[], sink)?;
    }
    let max_file_len = options.chain.hooks.block_file_len;
    let append_options = AppendOptions { max_file_len, ..AppendOptions::default() };
    let appender =
        BlockFiles::new(files.disk, files.datadir, files.obfuscation).append_after(infos, append_options);
    let writer = &BlockWriter::new(files.params, appender);
    let (arrived_in, arrived) = unbounded();
    let (outcomes_in, outcomes) = unbounded();
    let client = client(options, &chain, stays)?;
    let waker = client.waker();
    let wake = move || {
        // A loop that is not woken looks a little later.
        let _ = waker.wake();
    };
    if damage.is_some() && !stored.has(Height(0)) {
        // No peer is asked for it.
        let (file, data_pos) = writer.append_genesis()?;
        stored.set(Height(0), file, data_pos, 1);
        has_lost = true;
    }
    thread::scope(|scope| {
        let threads = options.chain.threads.get().min(MAX_WRITERS);
        writer.start(scope, threads, &arrived, &outcomes_in, &wake)?;
        drop((arrived, outcomes_in));
        let (start, chain_tip) = (Instant::now(), chain.tip_height());
        let report = DownloadReport { found, ..DownloadReport::default() };
        let mut fetch = Fetch {
            files,
            options,
            follower,
            sink,
            writer,
            outcomes: &outcomes,
            client,
            chain,
            stored,
            report,
            phase: Phase::Headers,
            next: Height(1),
            in_hand: 0,
            unsaved: 0,
            is_index_behind: has_lost,
            stays,
            // Without a last height, the chain goes on above what the block index knows.
            keeps_chain: damage.is_some() && options.stop_at_height.is_some(),
            index_true_to: (!has_lost).then_some(chain_tip),
            changed_files: Vec::new(),
            reorganised: None,
            announced_at: None,
            first_finished: None,
            last_peer: start,
            last_note: start,
            has_noted_future: false,
            has_noted_unreachable: false,
            last_closed: None,
            last_progress: None,
            missing: (0, 0),
            pruning: None,
            announced: None,
            peers: Peers::default(),
            targets: HashSet::new(),
            offers_invalid: HashSet::new(),
            offers_marked: HashSet::new(),
            marked: None,
        };
        let seeds = Seeds::ask(options, &mut fetch.client);
        let mut done = fetch.run(&arrived_in, seeds, interrupt);
        drop(arrived_in);
        let known = fetch.known_peers();
        sink.event(Event::Peer(PeerEvent::Known(known.clone())));
        // What is in hand is stored or not; the index has it if it is.
        for block in &outcomes {
            done = done.and(fetch.handled(block));
        }
        done.and(fetch.save())?;
        fetch.report.elapsed = start.elapsed();
        fetch.report.duplicate_bytes = fetch.client.download().totals().duplicate_bytes;
        let height = Height(fetch.first_missing().0.saturating_sub(1));
        let hash = fetch.chain.hash(height).unwrap_or_default();
        let left_out = fetch.left_out();
        let peers = fetch.peers.into_senders();
        Ok(Fetched { report: fetch.report, height, hash, peers, chain: fetch.chain, known, left_out })
    })
}

/// Memory budget, in bytes, for blocks in hand.
fn pool_bytes(options: &ChainOptions) -> u64 {
    (options.memory_bytes / POOL_SHARE).clamp(*POOL_BYTES.start(), *POOL_BYTES.end())
}

/// Memory in bytes that a download takes besides its headers.
#[must_use]
pub fn memory_bytes(options: &ChainOptions) -> u64 {
    pool_bytes(options) + options.threads.get().min(MAX_WRITERS) as u64 * WRITER_BYTES
}

/// Creates the client, with the peers that the user named.
fn client(options: &SyncOptions, chain: &HeaderChain, hears_announcements: bool) -> Result<Client, Error> {
    let PeerOptions { connect, add, known, peers_max, proxy, i2p_sam, networks, use_v2, .. } = &options.peers;
    let memory_bytes = pool_bytes(&options.chain);
    let client = Client::new(
        ClientOptions {
            pool: PoolOptions {
                network: options.chain.params.network,
                magic: options.chain.params.magic,
                user_agent: concat!("/peregrine:", env!("CARGO_PKG_VERSION"), "/").to_owned(),
                height: chain.tip_height().0 as i32,
                needed: Services::FULL,
                proxy: *proxy,
                i2p_sam: *i2p_sam,
                memory_bytes: memory_bytes as usize,
                bytes_per_second: options.peers.bytes_per_second,
            },
            download: DownloadOptions { memory_bytes, ..DownloadOptions::default() },
            first_height: 1,
            peers_max: *peers_max,
            networks: networks.clone(),
            only_user_targets: !connect.is_empty(),
            use_v2: *use_v2,
            hears_announcements,
        },
        locator(chain),
    );
    let mut client = client.map_err(poll_failed)?;
    for target in connect.iter().chain(add) {
        client.add_target(target.clone());
    }
    for peer in known {
        let KnownPeer { address, services, bytes_per_second, needs_v1, failures } = *peer;
        let record = AddressRecord { time: 0, services: Services(services), address };
        client.restore_address(&record, bytes_per_second, needs_v1, failures);
    }
    Ok(client)
}

fn poll_failed(error: std::io::Error) -> Error {
    let detail = format!("the system cannot wait for connections: {error}");
    Error::new(ErrorKind::Environment, detail).caused_by(error)
}

fn locator(chain: &HeaderChain) -> Vec<BlockHash> {
    let heights = locator_heights(chain.tip_height().0);
    heights.into_iter().filter_map(|height| chain.hash(Height(height))).collect()
}

/// The state of the loop.
struct Fetch<'a> {
    files: &'a Files<'a>,
    options: &'a SyncOptions,
    follower: &'a mut dyn Follower,
    sink: &'a dyn EventSink,
    writer: &'a BlockWriter<'a>,
    /// What became of the blocks that the writer had.
    outcomes: &'a Receiver<HandledBlock>,
    client: Client,
    chain: HeaderChain,
    stored: StoredBlocks,
    report: DownloadReport,
    phase: Phase,
    /// The next block that the client gets.
    next: Height,
    /// Number of blocks that the writer has.
    in_hand: u32,
    /// Bytes that were stored since the block index was written.
    unsaved: u64,
    /// Whether the block index lacks headers of the chain, places blocks that are lost, or does not know that
    /// a block is invalid.
    is_index_behind: bool,
    /// Whether it stays at the tip.
    stays: bool,
    /// Whether only blocks of the chain in the block index are wanted.
    keeps_chain: bool,
    /// The last block up to which the block index has all that is known; `None`: it must be written anew.
    index_true_to: Option<Height>,
    /// The block index's entries for the files that have changed since blocks were last connected.
    changed_files: Vec<(FileNo, FileInfo)>,
    /// The lowest fork of a reorganisation whose blocks were not looked for in the block index.
    reorganised: Option<Height>,
    /// When the first header was announced that is not connected.
    announced_at: Option<Instant>,
    /// When the first peer had no more headers.
    first_finished: Option<Instant>,
    /// When a peer was last connected.
    last_peer: Instant,
    last_note: Instant,
    /// Whether a note has said that a header is too far in the future.
    has_noted_future: bool,
    /// Whether a note has said that none of the named peers can be reached.
    has_noted_unreachable: bool,
    /// Why the last connection was closed.
    last_closed: Option<String>,
    last_progress: Option<Instant>,
    /// Number and estimated bytes of the blocks that were missing when the download of blocks began.
    missing: (u32, u64),
    /// Which files are deleted, if any are.
    pruning: Option<Pruning>,
    /// The last arguments of [`Follower::given`].
    announced: Option<(Height, bool)>,
    /// Peers with which the handshake was done.
    peers: Peers,
    /// What they were, and those before them.
    targets: HashSet<Target>,
    /// Peers that were closed because they offer a block that this run has found invalid.
    offers_invalid: HashSet<Target>,
    /// Peers whose chains have a block that the block index marks as invalid.
    offers_marked: HashSet<PeerId>,
    /// The highest chain of those, and that block.
    marked: Option<MarkedBranch>,
}

impl Fetch<'_> {
    fn run(
        &mut self,
        arrived: &Sender<ArrivedBlock>,
        mut seeds: Seeds,
        interrupt: &AtomicBool,
    ) -> Result<(), Error> {
        loop {
            if interrupt.load(Ordering::Relaxed) {
                if self.stays {
                    return Ok(());
                }
                let detail = "interrupted; the blocks that were downloaded are kept";
                return Err(Error::new(ErrorKind::Interrupted, detail));
            }
            seeds.add(self.options, &mut self.client, self.sink);
            let events = self.client.poll(POLL_TIME).map_err(poll_failed)?;
            if events.iter().any(|event| matches!(event, ClientEvent::Block { .. })) && !self.take_lock()? {
                return Ok(());
            }
            for event in events {
                self.event(event, arrived);
            }
            if !self.find_reorganised()? {
                return Ok(());
            }
            for block in self.outcomes.try_iter() {
                self.handled(block)?;
            }
            self.leave_withheld_branch()?;
            self.prune()?;
            if self.is_at_end()? || self.ends_below() {
                return Ok(());
            }
            if self.unsaved >= SAVE_BYTES {
                self.save()?;
            }
            self.show_progress();
            self.note_what_is_missing();
        }
    }

    fn event(&mut self, event: ClientEvent, arrived: &Sender<ArrivedBlock>) {
        match event {
            ClientEvent::Ready { peer, target, info, transport } => {
                self.peers.add(peer, target.to_string(), info.user_agent.clone(), transport);
                self.peers.measure(&self.client);
                if self.targets.insert(target.clone()) {
                    // It may have what the others lack.
                    self.chain.forget_withheld();
                }
                self.report.peers += 1;
                self.sink.event(Event::Peer(PeerEvent::Connected {
                    peer: target.to_string(),
                    user_agent: info.user_agent,
                    transport,
                    height: info.height,
                }));
            }
            ClientEvent::Closed { peer, target, reason } => {
                self.last_closed = Some(format!("{target}: {reason}"));
                let was_connected = peer.is_some_and(|peer| self.peers.close(peer));
                let PeerOptions { connect, add, .. } = &self.options.peers;
                // Many of the addresses that are found lead nowhere.
                if was_connected || connect.iter().chain(add).any(|named| *named == target) {
                    let (peer, reason) = (target.to_string(), reason.to_string());
                    self.sink.event(Event::Peer(PeerEvent::Closed { peer, reason }));
                }
            }
            ClientEvent::Headers(batch) => self.headers(&batch),
            ClientEvent::Block { peer, height, hash, bytes } => {
                let height = Height(height);
                self.peers.count_block(peer, bytes.len());
                let median_time_past_prev = self.chain.median_time_before(height);
                self.in_hand += 1;
                let block = ArrivedBlock { height, hash, median_time_past_prev, bytes };
                // The writers run until this end is dropped.
                let _ = arrived.send(block);
            }
        }
    }

    /// Goes on with the blocks of another branch above `fork`.
    fn leave_branch(&mut self, fork: Height) {
        self.stored.truncate(fork);
        self.index_true_to = self.index_true_to.map(|height| height.min(fork));
        self.reorganised = self.reorganised.map_or(Some(fork), |other| Some(other.min(fork)));
        self.follower.chain_changed(fork, self.target());
        self.client.leave_branch(fork.0);
        let first = Height(fork.0 + 1);
        if self.next > first {
            self.next = first;
            self.client.truncate_download(first.0);
            self.count_blocks_to_come();
        }
    }

    /// Records what became of a block that the writer had.
    fn handled(&mut self, block: HandledBlock) -> Result<(), Error> {
        let HandledBlock { height, hash, len, outcome } = block;
        self.in_hand -= 1;
        match outcome {
            BlockOutcome::Stored { file, data_pos, block } => {
                self.client.accept_block(height.0, hash, len);
                if self.chain.hash(height) == Some(hash) {
                    self.stored.set(height, file, data_pos, block.facts.txids.len() as u32);
                    let below = Height(height.0.saturating_sub(1));
                    self.index_true_to = self.index_true_to.map(|height| height.min(below));
                    self.follower.stored(height, (file, data_pos), block);
                }
                self.pruning.iter_mut().for_each(|pruning| pruning.stored(height, len));
                self.report.blocks += 1;
                self.report.bytes += len as u64;
                self.unsaved += len as u64;
            }
            BlockOutcome::Mutated => self.client.reject_block(height.0, hash, len),
            BlockOutcome::Invalid(violation) => {
                self.client.accept_block(height.0, hash, len);
                if self.chain.hash(height) == Some(hash) {
                    let error = Error::violation(&violation).at_block(height, hash);
                    self.sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
                    self.chain.invalidate(height);
                    self.is_index_behind = true;
                    self.leave_branch(self.chain.tip_height());
                    self.client.ask_headers(locator(&self.chain));
                }
            }
            BlockOutcome::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Moves to the next phase if the present one is complete. Returns whether the download is.
    fn is_at_end(&mut self) -> Result<bool, Error> {
        if self.phase == Phase::Headers {
            if !(self.peers_have_no_more() && self.chain.has_minimum_work()) {
                return Ok(false);
            }
            let missing = self.first_missing();
            let may_come = self.client.download().peers().any(|(_, peer)| peer.may_have(missing.0));
            if self.keeps_chain && missing <= self.target() && !may_come {
                return Err(self.nobody_has(missing));
            }
            self.phase = Phase::Blocks;
            self.find_reorganised()?;
            self.save()?;
            self.missing = self.missing_blocks();
            match self.follower.headers_known(&self.chain, self.target(), self.missing)? {
                Some(end) => {
                    let (network, file_len) =
                        (self.options.chain.params.network, self.options.chain.hooks.block_file_len);
                    let new = |bytes| Pruning::new(network, bytes, file_len, end, &self.writer.infos());
                    self.pruning = self.options.prune_bytes.map(new);
                }
                None => self.check_space()?,
            }
            if !self.stays {
                self.sink.event(Event::Started(Stage::Download));
            }
        }
        self.give_hashes();
        let is_complete = self.next > self.target() && self.client.download().is_done() && self.in_hand == 0;
        if self.stays {
            return if is_complete { self.at_tip() } else { Ok(false) };
        }
        if !is_complete {
            self.phase = Phase::Blocks;
            return Ok(false);
        }
        if self.target() < self.chain.tip_height() {
            return Ok(true);
        }
        if let Phase::Ending(since) = self.phase {
            return Ok(self.peers_have_no_more() || since.elapsed() >= END_PATIENCE);
        }
        self.phase = Phase::Ending(Instant::now());
        self.first_finished = None;
        self.client.ask_headers(locator(&self.chain));
        Ok(false)
    }

    /// The last block to download.
    fn target(&self) -> Height {
        let tip = self.chain.tip_height();
        self.options.stop_at_height.map_or(tip, |stop| stop.min(tip))
    }

    /// The lowest block that is not stored.
    fn first_missing(&self) -> Height {
        let missing = (0..=self.target().0).map(Height).find(|&height| !self.stored.has(height));
        missing.unwrap_or(Height(self.target().0 + 1))
    }

    /// Whether all blocks are stored that the follower has a use for.
    fn ends_below(&self) -> bool {
        let end = self.follower.ends_below();
        end.is_some_and(|end| self.phase != Phase::Headers && self.first_missing() >= end)
    }

    /// Gives the client as many blocks as it can take.
    fn give_hashes(&mut self) {
        let target = self.target();
        let mut is_held = false;
        while self.next <= target && self.client.wanted_hashes() > 0 {
            is_held = self.pruning.as_ref().is_some_and(|pruning| !pruning.has_space_for(self.next));
            if is_held {
                break;
            }
            let Some(hash) = self.chain.hash(self.next) else { return };
            let is_last = self.next == target;
            if self.stored.has(self.next) {
                self.client.extend_stored(hash, is_last);
            } else {
                self.client.extend([hash], is_last);
                self.pruning.iter_mut().for_each(Pruning::given);
            }
            self.next.0 += 1;
        }
        if self.pruning.is_some() && self.announced != Some((self.next, is_held)) {
            self.announced = Some((self.next, is_held));
            self.follower.given(self.next, is_held);
        }
    }

    /// Returns when all that was appended is on the medium and in `stored`, with what the block index must
    /// record about each pair of files.
    fn flush(&mut self) -> Result<Vec<FileInfo>, Error> {
        let (writer, outcomes) = (self.writer, self.outcomes);
        writer.flush(|| outcomes.try_iter().try_for_each(|block| self.handled(block)))
    }

    /// Writes what is stored to the medium, and then to the block index.
    fn save(&mut self) -> Result<(), Error> {
        if self.stays {
            return self.save_new();
        }
        if self.unsaved > 0 || self.is_index_behind {
            let infos = self.flush()?;
            write_index(self.files, &self.chain, &self.stored, &infos, &[], self.sink)?;
            (self.unsaved, self.is_index_behind) = (0, false);
        }
        Ok(())
    }

    /// Number and estimated bytes of the blocks to download.
    fn missing_blocks(&self) -> (u32, u64) {
        let sizes = SizeEstimate::new(self.options.chain.params.network);
        let missing = (0..=self.target().0).filter(|&height| !self.stored.has(Height(height)));
        missing.fold((0, 0), |(count, bytes), height| (count + 1, bytes + sizes.bytes(height)))
    }

    /// Checks that the blocks fit on the disk. Only mainnet's sizes are known before they come.
    fn check_space(&self) -> Result<(), Error> {
        let (disk, dir, (_, missing)) = (self.files.disk, self.files.datadir.blocks_dir(), self.missing);
        let need = self.options.prune_bytes.map_or(missing, |bytes| bytes.min(missing));
        let free = disk.free_space(&dir).during("measure the free space of", &dir)?;
        if self.options.chain.params.network != Network::Main || need <= free {
            return Ok(());
        }
        let detail = format!(
            "the blocks that are missing take about {}, and {} are free here",
            HumanSize(need),
            HumanSize(free)
        );
        Err(Error::new(ErrorKind::Environment, detail)
            .in_file(dir, None)
            .with_remedies([Remedy::FreeDiskSpace]))
    }

    fn show_progress(&mut self) {
        if self.phase == Phase::Blocks {
            let writers = self.options.chain.threads.get().min(MAX_WRITERS) as u32;
            let status = self.peers.report(&self.client, self.in_hand, writers);
            status.into_iter().for_each(|status| self.sink.event(Event::Peer(status)));
        }
        if matches!(self.phase, Phase::Headers | Phase::AtTip(_))
            || self.report.blocks == 0
            || self.last_progress.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL)
        {
            return;
        }
        self.last_progress = Some(Instant::now());
        let (blocks_total, estimate) = self.missing;
        let DownloadReport { blocks, bytes, .. } = self.report;
        // Where the sizes of blocks are unknown, they are like those that have come.
        let by_mean = bytes / u64::from(blocks.max(1)) * u64::from(blocks_total.saturating_sub(blocks));
        let is_known = self.options.chain.params.network == Network::Main;
        let to_come = if is_known { estimate.saturating_sub(bytes) } else { by_mean };
        let bytes_total = bytes + to_come;
        let blocks_total = blocks_total.max(blocks);
        self.sink.event(Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }));
    }

    /// What is known of the peers' addresses.
    fn known_peers(&self) -> Vec<KnownPeer> {
        let entries = self.client.addresses().entries();
        let known = entries.map(|entry| KnownPeer {
            address: entry.address,
            services: entry.services.0,
            bytes_per_second: entry.speed,
            needs_v1: entry.needs_v1,
            failures: entry.failures,
        });
        known.collect()
    }

    /// Explains from time to time why nothing happens.
    fn note_what_is_missing(&mut self) {
        if self.client.download().peers().next().is_some() {
            self.last_peer = Instant::now();
        }
        // The user who has named peers is told at once that none of them can be reached.
        let is_unreachable = !self.options.peers.connect.is_empty()
            && self.report.peers == 0
            && self.client.opening() == 0
            && self.last_closed.is_some();
        let is_first = is_unreachable && !std::mem::replace(&mut self.has_noted_unreachable, is_unreachable);
        if self.last_note.elapsed() < NOTE_INTERVAL && !is_first {
            return;
        }
        if self.last_peer.elapsed() >= NOTE_INTERVAL || is_first {
            self.sink.event(Event::Note(Note::NoPeers { last: self.last_closed.clone() }));
        } else if self.phase == Phase::Headers
            && self.client.headers().is_complete()
            && !self.chain.has_minimum_work()
        {
            self.sink.event(Event::Note(Note::LowWork { height: self.chain.tip_height() }));
        } else {
            return;
        }
        self.last_note = Instant::now();
    }
}

//! Gives all coins of a chainstate or a snapshot on disk, or those after a block, to the caller, in order,
//! and hashes them on the way.

use api::{
    error::{Error, ErrorKind},
    event::{CoinMeter, Event, EventSink, Watch},
    note::Warning,
    options::ChainOptions,
    stage::Stage,
    utxo_stats::UtxoStatsReport,
};
use chain::threads::spawn;
use disk::{
    DiskError,
    chainstate::ChainstateReader,
    datadir::Datadir,
    index::{IndexRows, find_height},
    snapshot::SnapshotReader,
    utxo_stats::{READER_BYTES, StatsPart, UtxoHasher, UtxoStats},
};
use pipeline::{
    job::{coins_after::with_coins_after, stored_chainstate::StoredChainstate},
    stages::{coin_reader::other_network, finish::read_elements},
};
use rules::{ChainParams, median_times};
use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        atomic::AtomicBool,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};
use vfs::Disk;
use wire::{BlockHash, BlockTime, Height, Reader, UtxoElement};

/// Coins on disk.
#[derive(Clone, Debug)]
pub enum StoredCoins {
    /// Those of a chainstate. Its number of threads is a maximum.
    Chainstate(ChainOptions),
    /// Those of a snapshot.
    Snapshot {
        /// The file.
        file: PathBuf,
        /// The datadir in which the height of its block is looked up. Without one it is known only for
        /// blocks whose UTXO set has a hash in Core's source.
        datadir: Option<ChainOptions>,
    },
}

/// The times of the block that created a coin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreationTimes {
    /// Its time.
    pub block_time: BlockTime,
    /// The median of its time and those of the ten blocks below (Core `GetMedianTimePast`).
    pub median_time: BlockTime,
}

/// Called with each coin: in the order of txids, and for each transaction in that of `vout`. The times of its
/// block are `None` if they were not asked for, or if there is no block index with all blocks up to the last
/// one.
pub type EachCoin<'a> = dyn FnMut(&UtxoElement<'_>, Option<CreationTimes>) -> Result<(), Error> + 'a;

/// Bytes of the coins of a snapshot that are passed on at once.
const CHUNK_LEN: usize = 1 << 20;
/// Maximum number of chunks that wait for the thread that hashes.
const CHUNKS_QUEUED_MAX: usize = 4;

/// Gives all coins to `each`, which is called on this thread, while other threads read, and compute MuHash;
/// `with_times`: with the times of their blocks, which take 8 bytes of memory for each block of the chain.
/// Writes nothing. `memory_bytes` limits the number of threads; one is always used.
///
/// # Errors
/// The same errors as [`crate::utxo::stats()`], or [`crate::snapshot::info()`]; errors of `each`;
/// [`ErrorKind::Interrupted`]; [`ErrorKind::Usage`] if a snapshot is not for the network of the datadir.
pub fn read(
    disk: &dyn Disk,
    coins: &StoredCoins,
    memory_bytes: u64,
    with_times: bool,
    each: &mut EachCoin<'_>,
    watch: Watch<'_>,
) -> Result<UtxoStatsReport, Error> {
    watch.sink.event(Event::Started(Stage::Export));
    match coins {
        StoredCoins::Chainstate(options) => {
            let chainstate = StoredChainstate::open(disk, options)?;
            let index_dir = with_times.then_some(&*chainstate.index_dir);
            let times = BlockTimes::read(disk, index_dir, &chainstate.reader.best_block(), watch.sink)?;
            let mut each_of = elements(each, &times);
            let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX).saturating_sub(times.bytes());
            let affordable = memory / READER_BYTES;
            let threads = options.threads.min(NonZeroUsize::new(affordable).unwrap_or(NonZeroUsize::MIN));
            let stats = read_elements(&chainstate.reader, None, true, threads.get(), &mut each_of, watch)?;
            let best_block = chainstate.reader.best_block();
            UtxoStatsReport::new(&stats, options.params.network, chainstate.height, best_block)
                .ok_or_else(|| chainstate.too_large_amounts())
        }
        StoredCoins::Snapshot { file, datadir } => {
            let reader = SnapshotReader::open(disk, file)?;
            let metadata = *reader.metadata();
            let (network, block) = (metadata.network(), metadata.base_block);
            let index_dir = datadir.as_ref().map(|options| match options.params.network == network {
                true => Ok(Datadir::of(disk, &options.location())?.index_dir()),
                false => Err(other_network(&metadata, options.params)),
            });
            let index_dir = index_dir.transpose()?;
            let pinned = ChainParams::of(network).pinned_utxo_set(&block).map(|pinned| pinned.height);
            // The caller asked for coins: without an index, only the height is unknown.
            let index = index_dir.as_deref().filter(|_| pinned.is_none());
            let found = index.map(|dir| known(find_height(disk, dir, &block), watch.sink)).transpose()?;
            let height = pinned.or(found.flatten());
            height.map_or(Ok(()), |height| metadata.check_height(file, height))?;
            let times =
                BlockTimes::read(disk, index_dir.as_deref().filter(|_| with_times), &block, watch.sink)?;
            let mut each_of = elements(each, &times);
            let meter = CoinMeter::new(watch.sink, metadata.coins);
            let stats = read_snapshot(reader, &mut each_of, (&meter, watch.interrupt))?;
            UtxoStatsReport::new(&stats, network, height, block).ok_or_else(|| {
                Error::damaged("the amounts exceed 64 bits; the snapshot is damaged").in_file(file, None)
            })
        }
    }
}

/// What the block index has; a warning if it is missing or damaged, or only bitcoind can read it.
fn known<T>(read: Result<Option<T>, DiskError>, sink: &dyn EventSink) -> Result<Option<T>, Error> {
    match read.map_err(Error::from) {
        Err(error) if error.kind != ErrorKind::Environment || error.needs_bitcoind() => {
            sink.event(Event::Warning(Warning::IndexUnread { error }));
            Ok(None)
        }
        found => found,
    }
}

/// The times of the blocks of a chain, by height; none if they are unknown.
struct BlockTimes {
    times: Vec<BlockTime>,
    median_times: Vec<BlockTime>,
}

impl BlockTimes {
    /// Those up to the block `last`. The coins are what was asked for: without an index, only the times are
    /// unknown.
    fn read(
        disk: &dyn Disk,
        index_dir: Option<&Path>,
        last: &BlockHash,
        sink: &dyn EventSink,
    ) -> Result<Self, Error> {
        let read = |dir| known(IndexRows::open(disk, dir).and_then(|rows| rows.chain_times(last)), sink);
        let times = index_dir.map(read).transpose()?.flatten().unwrap_or_default();
        Ok(Self { median_times: median_times(times.clone()), times })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.times) + size_of_val(&*self.median_times)
    }

    fn at(&self, height: Height) -> Option<CreationTimes> {
        let at = height.0 as usize;
        let (&block_time, &median_time) = self.times.get(at).zip(self.median_times.get(at))?;
        Some(CreationTimes { block_time, median_time })
    }
}

/// Returns what takes elements of the UTXO set, many at once, and gives each to `each`.
fn elements(each: &mut EachCoin<'_>, times: &BlockTimes) -> impl FnMut(&[u8]) -> Result<(), Error> {
    |elements| {
        let mut reader = Reader::new(elements);
        while reader.position() < elements.len() {
            // This process has just written these bytes.
            let coin = UtxoElement::read(&mut reader).map_err(|error| {
                Error::new(ErrorKind::Internal, format!("an element of the UTXO set cannot be read: {error}"))
            })?;
            each(&coin, times.at(coin.height()))?;
        }
        Ok(())
    }
}

/// Gives all coins of a set to its argument, as [`crate::utxo::read()`] does.
pub type GiveCoins<'a> = dyn FnMut(&mut EachCoin<'_>) -> Result<UtxoStatsReport, Error> + 'a;

/// Called with a height, and with what gives the coins after the block there.
pub type EachSet<'a> = dyn FnMut(Height, &mut GiveCoins<'_>) -> Result<(), Error> + 'a;

/// Gives the coins after the blocks at some heights to `each_set`, in ascending order, in one pass over the
/// blocks. All blocks up to the highest one are checked. Their coins go to a temporary chainstate in the work
/// directory: for one height as by [`crate::reindex()`], for several by connecting the blocks in order,
/// without undo data. `with_times` is that of [`crate::utxo::read()`].
///
/// # Errors
/// The same errors as [`crate::utxo::stats_at()`]; those of `each_set`; [`ErrorKind::Environment`] if a block
/// above a set that was given is invalid, and the best chain without it branches off below.
pub fn read_after(
    disk: &dyn Disk,
    options: &ChainOptions,
    heights: &BTreeSet<Height>,
    with_times: bool,
    each_set: &mut EachSet<'_>,
    watch: Watch<'_>,
) -> Result<(), Error> {
    with_coins_after(
        disk,
        options,
        heights,
        &mut |job, dir, after| {
            let index_dir = with_times.then(|| job.files.datadir.index_dir());
            let times = BlockTimes::read(disk, index_dir.as_deref(), &after.hash, job.watch.sink)?;
            each_set(after.height, &mut |each| {
                job.watch.sink.event(Event::Started(Stage::Export));
                let reader = ChainstateReader::open(disk, dir)?;
                let each_of = &mut elements(each, &times);
                let stats = read_elements(&reader, None, true, job.threads(), each_of, job.watch)?;
                let network = options.params.network;
                UtxoStatsReport::new(&stats, network, Some(after.height), after.hash).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "the amounts exceed 64 bits; please report this bug")
                })
            })
        },
        watch,
    )
}

/// What the thread that reads a snapshot sends.
enum Message {
    Elements { bytes: Vec<u8>, coins: u64 },
    End(Result<Box<StatsPart>, Error>),
}

/// Reads a snapshot on another thread, which also computes MuHash.
fn read_snapshot(
    reader: SnapshotReader,
    each_of: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    (meter, interrupt): (&CoinMeter<'_>, &AtomicBool),
) -> Result<UtxoStats, Error> {
    let (sender, receiver) = sync_channel(CHUNKS_QUEUED_MAX);
    thread::scope(|scope| {
        spawn(scope, "snapshot", move || {
            if let Some(end) = send_elements(reader, &sender).transpose() {
                // If the receiver is gone, another error has been reported already.
                let _ = sender.send(Message::End(end.map(Box::new)));
            }
        })?;
        let mut hasher = UtxoHasher::new(true);
        // Returning early drops the channel, which stops the other thread.
        while let Ok(message) = receiver.recv() {
            match message {
                Message::Elements { bytes, coins } => {
                    hasher.hash(&bytes);
                    each_of(&bytes)?;
                    meter.add(coins);
                }
                Message::End(part) => {
                    hasher.merge(*part?);
                    return Ok(hasher.finish());
                }
            }
            Error::check_interrupt(interrupt)?;
        }
        Err(Error::panicked())
    })
}

/// Sends the elements of a snapshot, and returns their statistics; `None` if the receiver is gone.
fn send_elements(
    mut reader: SnapshotReader,
    sender: &SyncSender<Message>,
) -> Result<Option<StatsPart>, Error> {
    let (mut part, mut sent) = (StatsPart::new(true), 0);
    let mut send = |part: &StatsPart, bytes| {
        let coins = part.counts().txouts - sent;
        sent += coins;
        sender.send(Message::Elements { bytes, coins }).is_ok()
    };
    while let Some((outpoint, coin)) = reader.advance()? {
        part.add(&outpoint, &coin).map_err(|flaw| Error::damaged(format!("coin {outpoint}: {flaw}")))?;
        if part.ready_len() >= CHUNK_LEN {
            let elements = part.take_elements(Vec::with_capacity(CHUNK_LEN + CHUNK_LEN / 8));
            if !send(&part, elements) {
                return Ok(None);
            }
        }
    }
    let rest = part.take_rest();
    Ok(send(&part, rest).then_some(part))
}

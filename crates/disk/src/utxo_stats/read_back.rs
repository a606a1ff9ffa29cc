//! Reads a chainstate back: threads read ranges of txids and make elements, one hashes these in order.

use super::{StatsPart, UtxoHasher, UtxoStats};
use crate::chainstate::ChainstateReader;
use crate::error::DiskError;
use crate::fs::{Disk, During as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Elements that go to the hashing thread at once, in bytes.
const CHUNK_LEN: usize = 1 << 20;
/// Chunks that wait for the hashing thread per range; a reader that is ahead waits.
const CHUNKS_WAITING: usize = 4;
/// Ranges, besides one for each reader, that are begun before those in front of them are hashed: if hashing
/// falls behind, it gets the processor.
const RANGES_AHEAD: usize = 2;

enum Message {
    Elements(Vec<u8>),
    End(Box<StatsPart>),
    Failed(DiskError),
}

/// Buffers that were hashed, for those who read.
#[derive(Default)]
struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    fn take(&self) -> Vec<u8> {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        room.unwrap_or_else(|| Vec::with_capacity(CHUNK_LEN + CHUNK_LEN / 8))
    }

    fn give(&self, mut room: Vec<u8>) {
        room.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }
}

/// Computes the statistics of the chainstate in `dir` with `threads` (1 or more) threads that read, and this
/// one that hashes. Ranges are by the first byte of the txid. Memory: about 8 MiB per thread.
///
/// # Errors
/// As [`ChainstateReader`] and its cursor.
pub fn stats_of_chainstate(
    disk: &dyn Disk,
    dir: &Path,
    muhash: bool,
    threads: usize,
) -> Result<UtxoStats, DiskError> {
    stats_of_coins(&ChainstateReader::open(disk, dir)?, muhash, threads)
}

/// [`stats_of_chainstate`] of an open one.
///
/// # Errors
/// As [`ChainstateReader`] and its cursor.
pub fn stats_of_coins(
    reader: &ChainstateReader<'_>,
    muhash: bool,
    threads: usize,
) -> Result<UtxoStats, DiskError> {
    let stats = stats_unless_stopped(reader, muhash, threads, &AtomicBool::new(false))?;
    Ok(stats.expect("nobody sets the flag"))
}

/// [`stats_of_coins`]; nothing if `stop` is set before the end.
///
/// # Errors
/// As [`stats_of_coins`].
pub fn stats_unless_stopped(
    reader: &ChainstateReader<'_>,
    muhash: bool,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Option<UtxoStats>, DiskError> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..=u8::MAX).map(|_| sync_channel(CHUNKS_WAITING)).unzip();
    let (hashed, begin) = channel();
    (0..threads + RANGES_AHEAD).for_each(|_| hashed.send(()).unwrap_or_default());
    // Ranges are taken in order, so the one that is hashed next is always read by someone.
    let ranges = Mutex::new((begin, (0..=u8::MAX).zip(senders)));
    let next = || {
        let (begin, ranges) = &mut *ranges.lock().unwrap_or_else(PoisonError::into_inner);
        begin.recv().ok().and_then(|()| ranges.next())
    };
    let back = ReadBack { reader, muhash, rooms: BufferPool::default() };
    thread::scope(|scope| {
        let read = || {
            while let Some((range, sender)) = next()
                && back.send_range(range, &sender)
            {}
        };
        for number in 0..threads.max(1) {
            match thread::Builder::new().name("read back".to_owned()).spawn_scoped(scope, read) {
                Ok(_) => {}
                // Any number gives the same answer.
                Err(_) if number > 0 => break,
                Err(source) => return Err(source).during("start a thread to read", reader.dir())?,
            }
        }
        back.hash_ranges(receivers, hashed, stop)
    })
}

struct ReadBack<'a> {
    reader: &'a ChainstateReader<'a>,
    muhash: bool,
    rooms: BufferPool,
}

impl ReadBack<'_> {
    /// Hashes what the readers send; dropping the channels, as an error does, stops them.
    fn hash_ranges(
        &self,
        receivers: Vec<Receiver<Message>>,
        hashed: Sender<()>,
        stop: &AtomicBool,
    ) -> Result<Option<UtxoStats>, DiskError> {
        let mut hasher = UtxoHasher::new(self.muhash);
        for receiver in receivers {
            // A range without its last message is one whose reader panicked, which the scope passes on.
            while let Ok(message) = receiver.recv() {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                match message {
                    Message::Elements(elements) => {
                        hasher.hash(&elements);
                        self.rooms.give(elements);
                    }
                    Message::End(part) => {
                        hasher.merge(*part);
                        hashed.send(()).unwrap_or_default(); // unless there is nobody left to read more
                        break;
                    }
                    Message::Failed(error) => return Err(error),
                }
            }
        }
        Ok(Some(hasher.finish()))
    }

    /// Reads one range; false if nobody listens any more or it failed.
    fn send_range(&self, range: u8, sender: &SyncSender<Message>) -> bool {
        match self.read_range(range, sender) {
            Ok(listened) => listened,
            Err(error) => {
                // If nobody listens any more, another error has been reported already.
                let _ = sender.send(Message::Failed(error));
                false
            }
        }
    }

    fn read_range(&self, range: u8, sender: &SyncSender<Message>) -> Result<bool, DiskError> {
        let end = range.checked_add(1).map(|end| [end]);
        let mut coins = self.reader.coins_between(&[range], end.as_ref().map(<[u8; 1]>::as_slice))?;
        let mut part = StatsPart::with_buffer(self.rooms.take(), self.muhash);
        while coins.step()? {
            part.add(coins.outpoint(), &coins.coin()).map_err(|flaw| coins.flaw(flaw))?;
            if part.ready_len() >= CHUNK_LEN
                && sender.send(Message::Elements(part.take_elements(self.rooms.take()))).is_err()
            {
                return Ok(false);
            }
        }
        let rest = Message::Elements(part.take_rest());
        Ok(sender.send(rest).is_ok() && sender.send(Message::End(Box::new(part))).is_ok())
    }
}

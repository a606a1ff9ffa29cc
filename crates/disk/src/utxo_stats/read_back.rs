//! Reads a chainstate back: several threads read ranges of txids and encode elements, one hashes these in
//! order.

use super::{StatsPart, UtxoHasher, UtxoStats};
use crate::chainstate::ChainstateReader;
use crate::error::DiskError;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use vfs::During as _;

/// Bytes of elements that are sent to the hashing thread at once.
const CHUNK_LEN: usize = 1 << 20;
/// Maximum number of chunks per range that wait for the hashing thread; a reader that is further ahead
/// blocks.
const CHUNKS_QUEUED_MAX: usize = 4;
/// Number of ranges that may be begun but not hashed, in addition to one per reader: if hashing falls behind,
/// readers block and leave it the processor.
const RANGES_AHEAD: usize = 2;

enum Message {
    Elements(Vec<u8>),
    End(Box<StatsPart>),
    Failed(DiskError),
}

/// Buffers returned by the hashing thread for reuse by the readers.
#[derive(Default)]
struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    fn take(&self) -> Vec<u8> {
        let buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        buffer.unwrap_or_else(|| Vec::with_capacity(CHUNK_LEN + CHUNK_LEN / 8))
    }

    fn put_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// How much of a chainstate has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadBackProgress {
    /// Number of coins in the ranges that are complete.
    pub coins: u64,
    /// Number of these ranges, of 256: a share, because txids are uniformly distributed.
    pub ranges: u64,
}

/// Called with the elements of all coins, many at once, before they are hashed: in the order of the hash, and
/// now and then with none. Reading stops if it returns true.
pub type ElementSink<'a> = dyn FnMut(ReadBackProgress, &[u8]) -> bool + 'a;

/// Memory of one reading thread, in bytes: its own chunks, and its share of those that wait.
pub const READER_BYTES: usize = 2 * (CHUNKS_QUEUED_MAX + 1) * (CHUNK_LEN + CHUNK_LEN / 8);

/// Computes the statistics of a chainstate with `threads` reading threads (at least 1); the calling thread
/// hashes. Ranges are by the first byte of the txid. Memory: [`READER_BYTES`] per thread. Gives the elements
/// to `sink`, and returns `None` if that stops it before the end.
///
/// # Errors
/// The errors of [`ChainstateReader`] and its cursor.
pub fn stats_unless_stopped(
    reader: &ChainstateReader<'_>,
    muhash: bool,
    threads: usize,
    sink: &mut ElementSink<'_>,
) -> Result<Option<UtxoStats>, DiskError> {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..=u8::MAX).map(|_| sync_channel(CHUNKS_QUEUED_MAX)).unzip();
    let (hashed, begin) = channel();
    (0..threads + RANGES_AHEAD).for_each(|_| hashed.send(()).unwrap_or_default());
    // Ranges are taken in order, so a reader always works on the one that is hashed next.
    let ranges = Mutex::new((begin, (0..=u8::MAX).zip(senders)));
    let next = || {
        let (begin, ranges) = &mut *ranges.lock().unwrap_or_else(PoisonError::into_inner);
        begin.recv().ok().and_then(|()| ranges.next())
    };
    let buffers = BufferPool::default();
    thread::scope(|scope| {
        let read = || {
            while let Some((range, sender)) = next() {
                match read_range(reader, muhash, &buffers, range, &sender) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        // If the receiver is gone, another error has been reported already.
                        let _ = sender.send(Message::Failed(error));
                        break;
                    }
                }
            }
        };
        for number in 0..threads.max(1) {
            match thread::Builder::new().name("read back".to_owned()).spawn_scoped(scope, read) {
                Ok(_) => {}
                // Fewer threads compute the same result.
                Err(_) if number > 0 => break,
                Err(source) => return Err(source).during("start a thread to read", reader.dir())?,
            }
        }
        hash_ranges(muhash, &buffers, receivers, hashed, sink)
    })
}

/// Reads one range. Returns false if the receiver is gone.
fn read_range(
    reader: &ChainstateReader<'_>,
    muhash: bool,
    buffers: &BufferPool,
    range: u8,
    sender: &SyncSender<Message>,
) -> Result<bool, DiskError> {
    let end = range.checked_add(1).map(|end| [end]);
    let mut coins = reader.coins_between(&[range], end.as_ref().map(<[u8; 1]>::as_slice))?;
    let mut part = StatsPart::with_buffer(buffers.take(), muhash);
    while coins.step()? {
        part.add(coins.outpoint(), &coins.coin()).map_err(|flaw| coins.flaw(flaw))?;
        if part.ready_len() >= CHUNK_LEN
            && sender.send(Message::Elements(part.take_elements(buffers.take()))).is_err()
        {
            return Ok(false);
        }
    }
    let rest = Message::Elements(part.take_rest());
    Ok(sender.send(rest).is_ok() && sender.send(Message::End(Box::new(part))).is_ok())
}

/// Hashes what the readers send. Returning early, as on an error, drops the channels and stops the readers.
fn hash_ranges(
    muhash: bool,
    buffers: &BufferPool,
    receivers: Vec<Receiver<Message>>,
    hashed: Sender<()>,
    sink: &mut ElementSink<'_>,
) -> Result<Option<UtxoStats>, DiskError> {
    let mut hasher = UtxoHasher::new(muhash);
    for (ranges, receiver) in (0..).zip(receivers) {
        loop {
            // If the last message of a range is missing, its reader panicked, and the scope propagates that:
            // it must not wait for the next range, which nobody may read.
            let Ok(message) = receiver.recv() else { return Ok(None) };
            let elements = if let Message::Elements(elements) = &message { elements.as_slice() } else { &[] };
            if sink(ReadBackProgress { coins: hasher.txouts(), ranges }, elements) {
                return Ok(None);
            }
            match message {
                Message::Elements(elements) => {
                    hasher.hash(&elements);
                    buffers.put_back(elements);
                }
                Message::End(part) => {
                    hasher.merge(*part);
                    hashed.send(()).unwrap_or_default(); // fails if no reader is left
                    break;
                }
                Message::Failed(error) => return Err(error),
            }
        }
    }
    Ok(Some(hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_an_end_is_not_followed_by_others() {
        let (lost, first) = sync_channel(1);
        drop(lost);
        // The reader of this one is never started.
        let (_waiting, second) = sync_channel(1);
        let hashed = channel().0;
        let done = hash_ranges(false, &BufferPool::default(), vec![first, second], hashed, &mut |_, _| false);
        assert!(done.unwrap().is_none());
    }
}

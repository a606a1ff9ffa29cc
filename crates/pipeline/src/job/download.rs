//! Downloads a file from another machine: hints, or a chunk of a snapshot.
//!
//! The bytes come from a thread of its own, so that an interrupt does not wait for the network; that thread
//! ends by itself when nobody takes them. A connection that breaks is opened again where it ended, if the
//! length of the file is known. What is downloaded is checked by the caller.

use api::options::Remote;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::{
    io::{self, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes that are read at once.
const PIECE_LEN: usize = 256 << 10;
/// Maximum number of pieces that wait to be taken.
const MAX_PIECES: usize = 8;
/// Time in which as many bytes must come, over however many connections, so that no source holds up a run for
/// ever. That another is faster is the caller's affair.
const MAX_PIECE_TIME: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 300 });
/// Interval at which an interrupt is looked for.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of attempts to continue without a new byte. The n-th waits n times this long before it.
const MAX_ATTEMPTS: u32 = 3;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);

/// What the thread that downloads sends.
enum Piece {
    /// The length of the file in bytes, if it is known; comes first.
    Length(Option<u64>),
    Bytes(Vec<u8>),
    End,
}

/// The bytes of a download. An error of kind `FileTooLarge` means that there are more than the maximum.
pub struct Download<'a> {
    pieces: Receiver<io::Result<Piece>>,
    piece: Cursor<Vec<u8>>,
    /// Length of the file in bytes, if it is known.
    pub total: Option<u64>,
    received: u64,
    /// Time that the piece which is coming has taken so far.
    waited: Duration,
    max_len: u64,
    is_at_end: bool,
    on_piece: &'a dyn Fn(u64, Option<u64>),
    interrupt: &'a AtomicBool,
}

impl<'a> Download<'a> {
    /// Begins to download a file of at most `max_len` bytes ([`Remote::open`]), and waits until it comes.
    /// `on_piece` is told how many bytes have come, and of how many.
    ///
    /// # Errors
    /// `OutOfMemory` if the system starts no more threads; `FileTooLarge` for a longer file; the errors of
    /// [`Remote::open`].
    pub fn start(
        remote: &Arc<dyn Remote>,
        file: &str,
        max_len: u64,
        on_piece: &'a dyn Fn(u64, Option<u64>),
        interrupt: &'a AtomicBool,
    ) -> io::Result<Self> {
        let (sender, pieces) = bounded(MAX_PIECES);
        let (remote, file) = (Arc::clone(remote), file.to_owned());
        let send = move || {
            if let Err(error) = send_pieces(&*remote, &file, &sender) {
                // Nobody takes it after an interrupt.
                let _ = sender.send(Err(error));
            }
        };
        let spawned = thread::Builder::new().name("download".to_owned()).spawn(send);
        spawned.map_err(|error| {
            let text = format!("the system cannot start another thread: {error}");
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        })?;
        let (total, received, waited, is_at_end, piece) = (None, 0, Duration::ZERO, false, Cursor::default());
        let mut new =
            Self { pieces, piece, total, received, waited, max_len, is_at_end, on_piece, interrupt };
        let Piece::Length(total) = new.next()? else { return Err(io::ErrorKind::InvalidInput.into()) };
        if total.is_some_and(|total| total > max_len) {
            return Err(new.too_long());
        }
        new.total = total;
        on_piece(0, total);
        Ok(new)
    }

    fn too_long(&self) -> io::Error {
        io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {} bytes", self.max_len))
    }

    fn next(&mut self) -> io::Result<Piece> {
        let (begun, before) = (Instant::now(), self.waited);
        loop {
            if self.waited > MAX_PIECE_TIME {
                let text = format!("fewer than {PIECE_LEN} bytes came in {MAX_PIECE_TIME:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(io::Error::other("interrupted"));
            }
            let received = self.pieces.recv_timeout(INTERRUPT_INTERVAL);
            self.waited = before + begun.elapsed();
            match received {
                Ok(piece) => return piece,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that downloads has ended"));
                }
            }
        }
    }
}

impl Read for Download<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.piece.read(buf)?;
            if len > 0 || self.is_at_end {
                return Ok(len);
            }
            match self.next()? {
                Piece::Length(_) => {}
                Piece::End => self.is_at_end = true,
                Piece::Bytes(bytes) => {
                    let pieces = self.received / PIECE_LEN as u64;
                    self.received += bytes.len() as u64;
                    if self.received / PIECE_LEN as u64 > pieces {
                        self.waited = Duration::ZERO;
                    }
                    if self.received > self.max_len {
                        return Err(self.too_long());
                    }
                    self.piece = Cursor::new(bytes);
                    (self.on_piece)(self.received, self.total);
                }
            }
        }
    }
}

/// Sends a file in pieces. Ends early, without an error, if nobody takes them.
fn send_pieces(remote: &dyn Remote, file: &str, sender: &Sender<io::Result<Piece>>) -> io::Result<()> {
    let mut body = remote.open(file, 0)?;
    let total = body.len;
    let (mut sent, mut attempts) = (0, 0);
    let mut is_taken = sender.send(Ok(Piece::Length(total))).is_ok();
    while is_taken {
        let mut bytes = Vec::with_capacity(PIECE_LEN);
        let read = body.bytes.by_ref().take(PIECE_LEN as u64).read_to_end(&mut bytes);
        if !bytes.is_empty() {
            (sent, attempts) = (sent + bytes.len() as u64, 0);
            is_taken = sender.send(Ok(Piece::Bytes(bytes))).is_ok();
        }
        let broken = match (read, total) {
            (Ok(0), Some(total)) if sent < total => {
                let text = format!("the connection ended after {sent} of {total} bytes");
                io::Error::new(io::ErrorKind::UnexpectedEof, text)
            }
            (Ok(0), _) => return sender.send(Ok(Piece::End)).or(Ok(())),
            (Ok(_), _) => continue,
            (Err(error), _) => error,
        };
        body = loop {
            if total.is_none() || attempts == MAX_ATTEMPTS {
                return Err(broken);
            }
            attempts += 1;
            thread::sleep(ATTEMPT_PAUSE * attempts);
            match remote.open(file, sent) {
                Ok(mut body) if body.len == total && body.from <= sent => {
                    let before = sent - body.from;
                    if io::copy(&mut body.bytes.by_ref().take(before), &mut io::sink()).is_ok() {
                        break body;
                    }
                }
                // The file may have changed.
                Ok(_) => return Err(broken),
                Err(_) => {}
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::options::RemoteBody;
    use std::sync::Mutex;

    /// A server that names no length, or a false one, can send bytes without end, or late.
    #[derive(Debug)]
    struct Endless(Duration);

    impl Remote for Endless {
        fn name(&self) -> &str {
            "endless"
        }

        fn open(&self, _: &str, from: u64) -> io::Result<RemoteBody> {
            thread::sleep(self.0);
            Ok(RemoteBody { from, len: None, bytes: Box::new(io::repeat(7)) })
        }
    }

    /// A server of 1,000 bytes whose connections end after so many; with ranges, or without.
    #[derive(Debug)]
    struct Breaking {
        after: usize,
        has_ranges: bool,
        asked: Mutex<Vec<u64>>,
    }

    impl Remote for Breaking {
        fn name(&self) -> &str {
            "breaking"
        }

        fn open(&self, _: &str, from: u64) -> io::Result<RemoteBody> {
            self.asked.lock().unwrap().push(from);
            let from = if self.has_ranges { from as usize } else { 0 };
            let bytes: Vec<u8> = (0..1000).map(|number| number as u8).skip(from).take(self.after).collect();
            Ok(RemoteBody { from: from as u64, len: Some(1000), bytes: Box::new(Cursor::new(bytes)) })
        }
    }

    fn downloaded(remote: Arc<dyn Remote>, max_len: u64) -> (Vec<u8>, io::Result<usize>) {
        let (never, mut bytes) = (AtomicBool::new(false), Vec::new());
        let download = Download::start(&remote, "", max_len, &|_, _| {}, &never);
        let result = download.and_then(|mut download| download.read_to_end(&mut bytes));
        (bytes, result)
    }

    #[test]
    fn what_is_downloaded_is_cut_off_at_a_length() {
        let (bytes, result) = downloaded(Arc::new(Endless(Duration::ZERO)), 3 << 20);
        assert_eq!((bytes.len(), result.unwrap_err().kind()), (3 << 20, io::ErrorKind::FileTooLarge));
        let (_, result) = downloaded(Arc::new(Endless(2 * MAX_PIECE_TIME)), 3 << 20);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let whole = Breaking { after: 1000, has_ranges: true, asked: Mutex::default() };
        let (bytes, result) = downloaded(Arc::new(whole), 999);
        assert_eq!((bytes.len(), result.unwrap_err().kind()), (0, io::ErrorKind::FileTooLarge));
    }

    /// Each connection with a byte began the time anew: one chunk could take years.
    #[test]
    fn connections_that_break_after_each_byte_are_too_slow() {
        let server = Breaking { after: 1, has_ranges: true, asked: Mutex::default() };
        let (bytes, result) = downloaded(Arc::new(server), 1000);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!((1..100).contains(&bytes.len()), "{}", bytes.len());
    }

    #[test]
    fn a_connection_that_breaks_is_continued_where_it_ended() {
        let server = Arc::new(Breaking { after: 400, has_ranges: true, asked: Mutex::default() });
        let (bytes, result) = downloaded(server.clone(), 1000);
        assert_eq!((bytes.len(), result.unwrap()), (1000, 1000));
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert_eq!(*server.asked.lock().unwrap(), [0, 400, 800]);
        // Without ranges, no new byte comes, and it is given up.
        let server = Arc::new(Breaking { after: 400, has_ranges: false, asked: Mutex::default() });
        let (bytes, result) = downloaded(server.clone(), 1000);
        assert_eq!(bytes.len(), 400);
        assert_eq!(result.unwrap_err().to_string().as_str(), "the connection ended after 400 of 1000 bytes");
        assert_eq!(server.asked.lock().unwrap().len(), 1 + MAX_ATTEMPTS as usize);
    }
}

//! Hints that are packed, or on another machine: the result is that of the plain file; what was downloaded
//! stays for the next run as long as that can use it, and nothing stays otherwise.

use acceptance::prelude::*;
use engine::{Remote, RemoteBody, hints::Packing};
use flate2::{Compression, write::GzEncoder};
use std::{
    io::{Read, Write as _},
    sync::atomic::AtomicUsize,
};

/// What a server sends.
#[derive(Clone, Debug)]
pub enum Answer {
    Bytes(Vec<u8>),
    /// Another length or none, and then these bytes.
    Length(Option<u64>, Vec<u8>),
    Refusal,
    /// These bytes, and then nothing for as long as the test runs.
    Stall(Vec<u8>),
    /// These bytes, and then an error of the connection.
    Broken(Vec<u8>),
}

/// Hints on another machine, and how often they were asked for.
#[derive(Debug)]
pub struct Server {
    answer: Mutex<Answer>,
    opened: AtomicUsize,
}

impl Server {
    pub fn new(answer: Answer) -> Arc<Self> {
        Arc::new(Self { answer: Mutex::new(answer), opened: AtomicUsize::new(0) })
    }

    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

const URL: &str = "https://hints.example/file";

impl Remote for Server {
    fn name(&self) -> &str {
        URL
    }

    fn open(&self, _: &str, _: u64) -> io::Result<RemoteBody> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let stall = || {
            thread::sleep(Duration::from_secs(600));
            Ok(0)
        };
        let reset = || Err(io::Error::from(io::ErrorKind::ConnectionReset));
        let body = |len, bytes: Box<dyn Read + Send>| Ok(RemoteBody { from: 0, len, bytes });
        match self.answer.lock().unwrap().clone() {
            Answer::Bytes(bytes) => body(Some(bytes.len() as u64), Box::new(io::Cursor::new(bytes))),
            Answer::Length(len, bytes) => body(len, Box::new(io::Cursor::new(bytes))),
            Answer::Refusal => Err(io::Error::other("the server answered with status 404")),
            Answer::Stall(bytes) => body(None, Box::new(io::Cursor::new(bytes).chain(End(stall)))),
            Answer::Broken(bytes) => body(None, Box::new(io::Cursor::new(bytes).chain(End(reset)))),
        }
    }
}

/// What a stream does at its end.
struct End(fn() -> io::Result<usize>);

impl Read for End {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        (self.0)()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A datadir, and true hints for a height in a format.
fn hints(format: HintFormat, height: u32) -> (Case, TempDir, Vec<u8>) {
    let (case, files, truth) = (Case::new(), scratch(), Truth::of(chain()));
    let path = files.path().join("hints");
    truth.write(&path, format, &truth.hints(height));
    let bytes = std::fs::read(&path).unwrap();
    (case, files, bytes)
}

fn remote(options: &ReindexOptions, server: &Arc<Server>) -> ReindexOptions {
    let mut options = with_hints(options, Path::new(""), AGGREGATES[0]);
    options.hints.as_mut().unwrap().file = FileSource::Remote(server.clone());
    options
}

/// Runs to the end with hints; nothing is left.
fn succeeds(options: &ReindexOptions) -> engine::reindex::ReindexReport {
    let report = run(options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert!(report.hints.is_some());
    assert_eq!(leftovers(&options.chain.datadir), [] as [&Path; 0]);
    report
}

#[test]
fn packed_files_and_downloads_give_the_result_of_the_plain_file() {
    for format in [HintFormat::Peregrine, HintFormat::Btcd, HintFormat::TheStack] {
        let (case, files, plain) = hints(format, 120);
        let (packed, file) = (gzip(&plain), files.path().join("packed"));
        std::fs::write(&file, &packed).unwrap();
        let expected = succeeds(&with_hints(&case.options(), &files.path().join("hints"), AGGREGATES[0]));
        let digest = Some(digest::sha256::sha256(&plain));
        assert_eq!(expected.hints.as_ref().map(|hints| hints.sha256), digest, "{format}");
        for options in [
            with_hints(&case.options(), &file, AGGREGATES[0]),
            remote(&case.options(), &Server::new(Answer::Bytes(plain.clone()))),
            remote(&case.options(), &Server::new(Answer::Bytes(packed.clone()))),
        ] {
            assert_eq!(succeeds(&options).hints, expected.hints, "{format}");
        }
        let info = engine::hints::info(&FaultDisk::healthy(), &file, None).unwrap();
        assert_eq!((info.hints.format, Some(info.sha256)), (format, digest));
        let as_it_is = info.packed.map(|packed| (packed.packing, packed.bytes, packed.sha256));
        let len = packed.len() as u64;
        assert_eq!(as_it_is, Some((Some(Packing::Gzip), len, digest::sha256::sha256(&packed))));
        let converted = files.path().join("converted");
        let (to, to_format) = (&converted, HintFormat::Peregrine);
        let chain = case.options().chain;
        engine::hints::convert(&vfs::RealDisk, &file, None, to, to_format, Some(&chain), unwatched())
            .unwrap();
        for file in [&file, &converted] {
            let check = engine::hints::check(&vfs::RealDisk, &chain, file, None, unwatched()).unwrap();
            assert_eq!(check.wrong_blocks, 0, "{format}");
        }
        assert_eq!(leftovers(files.path()), [] as [&Path; 0]);
    }
}

/// Returns the copies of hints that a run has left.
fn copies(case: &Case) -> usize {
    let dir = case.net("peregrine-hints");
    let names = std::fs::read_dir(dir).map_or(Vec::new(), |dir| dir.collect());
    names.iter().filter(|entry| entry.as_ref().unwrap().file_name() != "peregrine.lock").count()
}

#[test]
fn a_run_that_resumes_uses_the_hints_that_it_has_downloaded() {
    let (case, _files, bytes) = hints(HintFormat::Peregrine, 120);
    let server = Server::new(Answer::Bytes(gzip(&bytes)));
    let options = bounded(&remote(&case.options(), &server));
    let error = run_on(&FaultDisk::interrupting_at(420), &options).map(|_| ()).unwrap_err();
    assert_eq!((error.kind, copies(&case), server.opened()), (ErrorKind::Interrupted, 1, 1), "{error}");
    // Once, an option that was forgotten cost the copy, and with it the checkpoint.
    let other = changed(options.clone(), |it| it.chain.assume_valid = AssumeValid::Block(TRUTH.hash(120)));
    assert_fails(run(&other), ErrorKind::Usage, &["other options"]);
    assert_eq!(copies(&case), 1);
    // Another file is there by now.
    *server.answer.lock().unwrap() = Answer::Refusal;
    let report = succeeds(&options);
    assert!(report.resumed > 0 && server.opened() == 1);
    // The next run has to ask again.
    refused(&options, ErrorKind::Environment, &[URL, "cannot download the hints", "404"]);
}

#[test]
fn hints_that_are_wrong_or_unwanted_are_downloaded_again() {
    let (case, _files, bytes) = hints(HintFormat::Bip456, 120);
    let mut lower = bytes.clone();
    // The hints of this block are those of another chain.
    lower[5..9].copy_from_slice(&121_u32.to_le_bytes());
    lower.push(0);
    let server = Server::new(Answer::Bytes(lower));
    let options = remote(&case.options(), &server);
    for opened in 1..3 {
        let error = refused(&options, ErrorKind::Hints, &[]);
        assert_eq!(error.file.as_deref(), Some(Path::new(URL)), "{error}");
        assert_eq!((server.opened(), copies(&case)), (opened, 0));
    }
    *server.answer.lock().unwrap() = Answer::Bytes(b"<html>not hints</html>".to_vec());
    let error = refused(&options, ErrorKind::Damaged, &[]);
    assert_eq!((error.file.as_deref(), copies(&case)), (Some(Path::new(URL)), 0), "{error}");
    *server.answer.lock().unwrap() = Answer::Bytes(bytes);
    // A disk that is not ready leaves the copy; `restart` gives it up.
    let options = bounded(&options);
    run_on(&FaultDisk::interrupting_at(420), &options).map(|_| ()).unwrap_err();
    assert_eq!((copies(&case), server.opened()), (1, 4));
    succeeds(&changed(options, |it| it.chain.resume.restart = true));
    assert_eq!(server.opened(), 5);
}

/// They stayed for good: the same command finds the same block.
#[test]
fn downloaded_hints_do_not_stay_after_an_invalid_block() {
    let (base, files) = (base_chain(6), scratch());
    let (truth, path) = (Truth::of(&base), files.path().join("hints"));
    truth.write(&path, HintFormat::Peregrine, &truth.hints(60));
    let greedy = mutations().find(|mutation| mutation.name == "reward-1-too-much").unwrap();
    let dir = datadir_of(&greedy.apply(&base).chain);
    let server = Server::new(Answer::Bytes(std::fs::read(&path).unwrap()));
    refused(&remote(&options(dir.path()), &server), ErrorKind::Consensus, &[]);
    assert_eq!(server.opened(), 1);
}

#[test]
fn downloads_that_fail_leave_nothing() {
    let (case, files, bytes) = hints(HintFormat::Peregrine, 120);
    let before = tree(case.root());
    let (half, whole) = (bytes[..bytes.len() / 2].to_vec(), Some(bytes.len() as u64));
    let packed = gzip(&bytes);
    for (answer, kind, words) in [
        (Answer::Refusal, ErrorKind::Environment, "status 404"),
        (Answer::Length(whole, half.clone()), ErrorKind::Environment, "the connection ended after"),
        (Answer::Length(Some(3 << 30), bytes.clone()), ErrorKind::Environment, "longer than hints can be"),
        (Answer::Broken(half.clone()), ErrorKind::Environment, "connection reset"),
        (Answer::Broken(packed[..packed.len() / 2].to_vec()), ErrorKind::Environment, "connection reset"),
        (Answer::Bytes(packed[..packed.len() / 2].to_vec()), ErrorKind::Damaged, "gzip:"),
        (Answer::Bytes(half), ErrorKind::Damaged, "at byte"),
        (Answer::Bytes(Vec::new()), ErrorKind::Damaged, "the file is empty"),
    ] {
        let server = Server::new(answer.clone());
        refused(&remote(&case.options(), &server), kind, &[URL, words]);
        assert_same_tree(&before, case.root(), &format!("{answer:?}"));
    }
    let file = files.path().join("packed");
    std::fs::write(&file, &packed[..packed.len() / 2]).unwrap();
    refused(&with_hints(&case.options(), &file, AGGREGATES[0]), ErrorKind::Damaged, &["packed", "gzip:"]);
    assert_same_tree(&before, case.root(), "a truncated file");
}

#[test]
fn an_interrupt_does_not_wait_for_the_network() {
    let (case, _files, bytes) = hints(HintFormat::Peregrine, 120);
    let options = remote(&case.options(), &Server::new(Answer::Stall(bytes)));
    let (interrupt, started) = (AtomicBool::new(false), Instant::now());
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            interrupt.store(true, Ordering::Relaxed);
        });
        engine::reindex(&vfs::RealDisk, &options, quiet(&interrupt)).map(|_| ()).unwrap_err()
    });
    assert_eq!((error.kind, copies(&case)), (ErrorKind::Interrupted, 0));
    assert!(started.elapsed() < Duration::from_secs(30));
}

/// Each operation that changes something fails once, until the download is complete and the run reads it.
#[test]
fn a_failing_disk_leaves_the_datadir_as_it_was() {
    let (case, _files, bytes) = hints(HintFormat::Peregrine, 120);
    let (packed, before) = (gzip(&bytes), tree(case.root()));
    for at in 0..12 {
        let options = remote(&case.options(), &Server::new(Answer::Bytes(packed.clone())));
        let disk = FaultDisk::failing_at(at);
        let done = engine::reindex(&disk, &options, unwatched());
        assert_eq!(done.map(|_| ()).unwrap_err().kind, ErrorKind::Environment, "operation {at}");
        assert!(copies(&case) <= 1);
        // What has been downloaded may stay; the next run takes it or asks again.
        let _ = std::fs::remove_dir_all(case.net("peregrine-hints"));
        assert_same_tree(&before, case.root(), &format!("operation {at}"));
    }
}

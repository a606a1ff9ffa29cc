//! `--hints` with URLs: HTTPS with a certificate that is trusted or not, through a proxy,
//! redirects, errors of the server, and an interrupt.
#![cfg(feature = "hints-url")]

use crate::prelude::*;
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivatePkcs8KeyDer};
use std::net::SocketAddr;
use testkit::sockets::{listen, socks_proxy};

/// Hints end at this height.
const HEIGHT: &str = "60";

/// The bytes of a hint file for the chain, in xz.
fn packed_hints() -> &'static (Vec<u8>, Vec<u8>) {
    static HINTS: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    HINTS.get_or_init(|| {
        let fixture = Fixture::new();
        let path = fixture.files.path().join("hints");
        done(fixture.run(&["hints", "make", "--to", HEIGHT, "-o", text(&path)]));
        let plain = std::fs::read(path).unwrap();
        let packed = liblzma::encode_all(plain.as_slice(), 6).unwrap();
        (plain, packed)
    })
}

/// A datadir and a folder for other files.
struct Fixture {
    datadir: TempDir,
    files: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { datadir: given("small"), files: TempDir::new().unwrap() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let words = [words, &["--chain", "regtest", "--progress", "log"]].concat();
        let mut command = command(&words, self.datadir.path());
        // They would name another proxy, or other authorities.
        for name in ["ALL_PROXY", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn reindex(&self, hints: &str, more: &[&str]) -> Output {
        self.run(&[&["reindex", "--json", "--hints", hints], more].concat())
    }

    /// Does so, and trusts this certificate.
    fn trusting(&self, certificate: &str, hints: &str, more: &[&str]) -> Output {
        let authorities = self.files.path().join("authorities.pem");
        std::fs::write(&authorities, certificate).unwrap();
        let words = [&["reindex", "--json", "--hints", hints], more].concat();
        self.command(&words).env("SSL_CERT_FILE", &authorities).output().unwrap()
    }

    fn copies(&self) -> PathBuf {
        self.datadir.path().join("regtest/peregrine-hints")
    }

    /// Checks that a rebuild succeeded and left no copy.
    fn assert_done(&self, output: &Output) {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = json(output);
        assert_eq!(report["hash_serialized_3"], datadirs::small().model.stats().hash_hex());
        let sha256 = digest_of(&packed_hints().0);
        assert_eq!(report["hints"]["sha256"], sha256);
        assert!(!self.copies().exists());
    }

    /// Checks that a rebuild failed with this code and these words, and left no copy.
    fn assert_refused(&self, output: &Output, code: i32, words: &[&str]) {
        refused(output, code, words);
        assert!(!self.copies().exists(), "{output:?}");
    }
}

fn digest_of(bytes: &[u8]) -> String {
    sha256(bytes).to_lower_hex_string()
}

/// A stream that a server reads and writes.
trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

/// Answers requests; `answers` gets the path. An answer that ends with a line `STALL` leaves the connection
/// open.
fn serve(
    answers: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    wrap: impl Fn(TcpStream) -> Box<dyn Socket> + Send + Sync + 'static,
) -> SocketAddr {
    listen(move |socket| {
        let mut reader = BufReader::new(wrap(socket));
        let (mut first, mut line) = (String::new(), String::new());
        reader.read_line(&mut first)?;
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let answer = answers(first.split(' ').nth(1).unwrap_or_default());
        let stall = answer.strip_suffix(b"STALL");
        reader.get_mut().write_all(stall.unwrap_or(&answer))?;
        reader.get_mut().flush()?;
        if stall.is_some() {
            thread::sleep(Duration::from_secs(600));
        }
        Ok(())
    })
}

pub fn http(answers: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    serve(answers, |socket| Box::new(socket))
}

/// An HTTPS server for `localhost`. Returns its certificate too.
fn https(answers: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (SocketAddr, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().with_no_client_auth();
    let config = Arc::new(builder.with_single_cert(vec![cert.der().clone()], key).unwrap());
    let address = serve(answers, move |socket| {
        Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket))
    });
    (address, cert.pem())
}

pub fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

pub fn ok(body: &[u8]) -> Vec<u8> {
    answer("200 OK", &format!("Content-Length: {}\r\n", body.len()), body)
}

#[test]
fn hints_are_downloaded_by_https_from_a_server_whose_certificate_is_trusted() {
    let (address, certificate) = https(|path| match path {
        "/hints.xz" => ok(&packed_hints().1),
        // The address of this server is not known here.
        "/moved" => answer("302 Found", "Location: /hints.xz\r\nContent-Length: 0\r\n", b""),
        "/down" => answer("302 Found", "Location: http://127.0.0.1:1/\r\nContent-Length: 0\r\n", b""),
        _ => answer("404 Not Found", "Content-Length: 0\r\n", b""),
    });
    let fixture = Fixture::new();
    let url = |path: &str| format!("https://localhost:{}{path}", address.port());
    let trusting = |path: &str| fixture.trusting(&certificate, &url(path), &[]);
    let done = trusting("/hints.xz");
    fixture.assert_done(&done);
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    let (len, digest) = (packed_hints().1.len(), digest_of(&packed_hints().1));
    assert!(stderr.contains(&format!("/hints.xz: {len} bytes, sha256 {digest}")), "{stderr}");
    fixture.assert_done(&trusting("/moved"));
    let words = ["cannot download the hints", "which is not https", "/down"];
    fixture.assert_refused(&trusting("/down"), 5, &words);
    fixture.assert_refused(&trusting("/other"), 5, &["the server answered with status 404"]);
    // Nobody vouches for the certificate.
    let untrusted = fixture.reindex(&url("/hints.xz"), &[]);
    let other_name = fixture.trusting(&certificate, &format!("https://{address}/hints.xz"), &[]);
    for output in [untrusted, other_name] {
        fixture.assert_refused(&output, 5, &["cannot download the hints", "ertificate"]);
    }
}

#[test]
fn answers_that_are_no_hints_are_refused() {
    let address = http(|path| match path {
        "/short" => answer("200 OK", "Content-Length: 100000\r\n", &packed_hints().1),
        "/chunks" => answer("200 OK", "Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n"),
        "/long" => answer("200 OK", "Content-Length: 3000000000\r\n", b"x"),
        "/page" => ok(b"<html>log in first</html>"),
        "/moved" => answer("301 Moved", "Location: /plain\r\nContent-Length: 0\r\n", b""),
        "/mute" => Vec::new(),
        "/plain" => ok(&packed_hints().0),
        _ => b"SSH-2.0-OpenSSH\r\n".to_vec(),
    });
    let fixture = Fixture::new();
    let run = |path: &str| fixture.reindex(&format!("http://{address}{path}"), &[]);
    for (path, code, words) in [
        ("/short", 5, &["cannot download the hints"][..]),
        ("/chunks", 5, &["cannot download the hints"]),
        ("/long", 5, &["longer than hints can be, which is 2.1 GB"]),
        ("/page", 4, &["not a hint file in any known format", "/page, byte"]),
        ("/moved", 5, &["the server redirects to another address"]),
        ("/mute", 5, &["cannot download the hints"]),
        ("/ssh", 5, &["cannot download the hints"]),
    ] {
        fixture.assert_refused(&run(path), code, words);
    }
    fixture.assert_done(&run("/plain"));
    let http = fixture.reindex("http://example.org/hints", &[]);
    fixture.assert_refused(&http, 2, &["http is not encrypted"]);
}

#[test]
fn an_interrupt_ends_a_download_that_stalls() {
    let address = http(|_| answer("200 OK", "Content-Length: 100000\r\n", b"UTXO\x00 and thenSTALL"));
    let fixture = Fixture::new();
    let url = format!("http://{address}/hints");
    let line = format!("downloading the hints from {url}: 0 bytes of 100 kB");
    let running = Running::until_line(fixture.command(&["reindex", "--hints", &url]), &line);
    let started = Instant::now();
    let (_, stderr) = running.interrupt(&[Signal::INT]);
    assert!(started.elapsed() < Duration::from_secs(30) && !fixture.copies().exists(), "{stderr}");
}

/// No name server is asked: no such name exists, and the download succeeds.
#[test]
fn a_proxy_gets_the_name_of_the_server() {
    let without_password = |name: &str| vec![(Vec::<u8>::new(), Vec::<u8>::new(), name.to_owned())];
    let (proxy, asked) = socks_proxy(http(|_| ok(&packed_hints().1)));
    let fixture = Fixture::new();
    let url = "http://hintsexample.onion/hints.xz";
    fixture.assert_done(&fixture.reindex(url, &["--proxy", &proxy.to_string()]));
    assert_eq!(*asked.lock().unwrap(), without_password("hintsexample.onion:80"));
    let (server, certificate) = https(|_| ok(&packed_hints().1));
    let (proxy, asked) = socks_proxy(server);
    let more = ["--proxy", &proxy.to_string()];
    fixture.assert_done(&fixture.trusting(&certificate, "https://localhost/hints", &more));
    assert_eq!(*asked.lock().unwrap(), without_password("localhost:443"));
}

/// `sync` uses the same options.
#[test]
fn sync_reports_hints_that_it_cannot_get_before_anything_else() {
    let address = http(|_| answer("404 Not Found", "Content-Length: 0\r\n", b""));
    let root = TempDir::new().unwrap();
    let url = format!("http://{address}/hints");
    let words = ["sync", "--chain", "regtest", "--connect", "127.0.0.1:1", "--hints", &url];
    let output = command(&words, root.path()).output().unwrap();
    refused(&output, 5, &["the server answered with status 404"]);
    let left: Vec<_> = std::fs::read_dir(root.path().join("regtest")).unwrap().collect();
    let names = left.iter().map(|entry| entry.as_ref().unwrap().file_name());
    assert!(!names.into_iter().any(|name| Path::new(&name).starts_with("peregrine-hints")));
}

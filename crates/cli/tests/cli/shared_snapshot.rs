//! `snapshot share` and `snapshot fetch` as a user calls them: folders, files and URLs, what is trusted, and
//! a real bitcoind that loads what was fetched.

use crate::hint_sources::{answer, http, ok};
use crate::prelude::*;

/// A snapshot of three chunks, cut. Returns the file, the folder and the root.
fn three_chunks(dir: &Path) -> (PathBuf, PathBuf, String) {
    let (file, count) = (dir.join("utxo.dat"), 1000u32);
    let head = [&b"utxo\xff\x02\x00"[..], &Network::Regtest.magic(), &[3; 32]].concat();
    let mut bytes = [&head[..], &u64::from(count).to_le_bytes()].concat();
    for number in 0..count {
        bytes.extend([&number.to_be_bytes()[..], &[0; 28]].concat());
        // One coin: output 0, height 1, 5 satoshis, a script of 9,000 bytes.
        bytes.extend([1, 0, 2, 41, 0xc5, 0x2e]);
        bytes.extend([number as u8; 9_000]);
    }
    fs::write(&file, bytes).unwrap();
    let cut =
        peregrine(&["snapshot", "share", "--from", text(&file), "-o", text(&dir.join("sets")), "--json"]);
    let set = json(&cut)["sets"][0].clone();
    assert_eq!((&set["chunks"], &set["height"]), (&3.into(), &serde_json::Value::Null));
    (file, set["folder"].as_str().unwrap().into(), set["merkle_root"].as_str().unwrap().to_owned())
}

#[cfg(feature = "hints-url")]
#[test]
fn a_wrong_chunk_of_a_url_is_named_and_taken_from_a_folder() {
    let dir = TempDir::new().unwrap();
    let (file, folder, root) = three_chunks(dir.path());
    let served = folder.clone();
    let address = http(move |path| match path {
        "/000001.chunk" => ok(b"wrong"),
        path => match fs::read(served.join(path.trim_start_matches('/'))) {
            Ok(bytes) => ok(&bytes),
            Err(_) => answer("404 Not Found", "Content-Length: 0\r\n", b""),
        },
    });
    let (url, out) = (format!("http://{address}"), dir.path().join("out.dat"));
    let fetch = |sources: &[&str]| {
        peregrine(&[&["snapshot", "fetch", "-o", text(&out), "--root", &root], sources].concat())
    };
    let flaw = "chunk 1 (from byte 3900000 of the snapshot): it has 5 bytes";
    let alone = fetch(&[&url]);
    refused(&alone, 4, &[flaw, "/000001.chunk"]);
    refused(&alone, 4, &["2 of 3 chunks are proven and kept in", "name another source too"]);
    let report = done(fetch(&[&url, text(&folder)]));
    for line in ["3 chunks, 2 of them from an earlier run", "wrong              http://127.0.0.1", flaw] {
        assert!(report.contains(line), "no {line:?} in {report}");
    }
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
    fs::remove_file(&out).unwrap();
    let other = fetch(&[&format!("http://{address}/other")]);
    refused(&other, 5, &["other/utxotree", "cannot download", "status 404"]);
    refused(&fetch(&["http://example.org/set"]), 2, &["http is not encrypted"]);
}

#[cfg(feature = "hints-url")]
#[test]
fn an_interrupt_keeps_what_was_fetched() {
    let dir = TempDir::new().unwrap();
    let (file, folder, root) = three_chunks(dir.path());
    let (served, (last_asked, is_last_asked)) = (folder.clone(), std::sync::mpsc::channel());
    let address = http(move |path| match path {
        "/000002.chunk" => {
            let _ = last_asked.send(());
            answer("200 OK", "Content-Length: 100000\r\n", b"and thenSTALL")
        }
        path => ok(&fs::read(served.join(path.trim_start_matches('/'))).unwrap()),
    });
    let (url, out) = (format!("http://{address}"), dir.path().join("out.dat"));
    let words = ["snapshot", "fetch", &url, "-o", text(&out), "--root", &root, "--progress", "lines"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    // One thread asks for a chunk when those before it are proven.
    command.args(words).args(["--threads", "1"]);
    let running = Running::start(command);
    let part = dir.path().join("out.dat.peregrine-fetch");
    is_last_asked.recv().unwrap();
    let (_, stderr) = running.interrupt(&[Signal::INT]);
    assert!(stderr.contains("2 of 3 chunks are proven and kept in"), "{stderr}");
    let words = ["snapshot", "fetch", text(&folder), "-o", text(&out), "--root", &root, "--json"];
    let report = json(&peregrine(&words));
    assert_eq!((&report["chunks_kept"], &report["is_root_given"]), (&2.into(), &true.into()));
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap() && !part.exists());
}

mod node {
    use super::*;

    /// bitcoind's own snapshot, cut and joined, is what bitcoind loads.
    #[test]
    fn bitcoind_loads_what_was_fetched_from_its_own_snapshot() {
        let Some(program) = program() else { return };
        let writer = Writer { program: &program, flags: &[], patience: PATIENCE };
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut from = SnapshotDatadirs::new(writer, dir.path()).unwrap();
        from.begin(&at("full"), SNAPSHOT_HEIGHT).unwrap();
        let (dumped, of_file) = (from.file.clone(), at("file"));
        let words = ["snapshot", "share", "--from", text(&dumped), "-o", text(&of_file), "--json"];
        let cut = json(&peregrine(&words));
        let (height, of_blocks) = (SNAPSHOT_HEIGHT.to_string(), at("blocks"));
        let words = ["snapshot", "share", "--at", &height, "-o", text(&of_blocks), "--json"];
        let of_blocks = json(&run(&at("full"), &words));
        for sets in [&cut, &of_blocks] {
            let set = &sets["sets"][0];
            assert_eq!(set["height"], SNAPSHOT_HEIGHT);
            assert_eq!(set["matches_core_assumeutxo_hash"], true);
            assert_eq!(set["merkle_root"], cut["sets"][0]["merkle_root"]);
        }
        let (folder, out) = (of_blocks["sets"][0]["folder"].as_str().unwrap(), at("fetched.dat"));
        let report = done(peregrine(&["snapshot", "fetch", folder, "-o", text(&out)]));
        assert!(report.contains("trust rests on     the hash in Bitcoin Core's source"), "{report}");
        assert!(fs::read(&out).unwrap() == fs::read(&dumped).unwrap());
        from.file = out;
        from.begin(&at("new"), 0).unwrap();
        from.load(&at("new")).unwrap();
        assert_eq!(Node::start(&at("new"), &[]).unwrap().height(), SNAPSHOT_HEIGHT);
    }
}

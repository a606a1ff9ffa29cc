//! Of what sources give, nothing but the right bytes is taken, and what is wrong is named with its source.

use super::shared_snapshots::{SMALL, Shared, fetch, fetching, from, part, with_height};
use acceptance::prelude::*;
use digest::sha256::sha256d;
use disk::utxo_tree::{UtxoTree, chunk_name};
use engine::{RemoteBody, snapshot::FetchOptions};
use std::io::Read as _;
use std::os::unix::fs::symlink;
use testkit::snapshot_chain::{self, SNAPSHOT_HEIGHT};
use wire::coin::compress_output;

/// All ways in which a source can be wrong: the other source's chunk is taken, and the first is named.
#[test]
fn wrong_chunks_are_named_and_taken_from_another_source() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let good = shared.copy(&files, "good");
    let chunks = shared.report.chunks;
    type Damage<'a> = &'a dyn Fn(&Path);
    let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).unwrap();
    let cases: [(u64, &str, Damage<'_>); 7] = [
        (0, "does not have the hash", &|path| write(path, &[0; SMALL as usize])),
        (1, "it has 999 bytes, and should have 1000", &|path| write(path, &shared.chunk(1)[1..])),
        (2, "it has 1001 bytes, and should have 1000", &|path| {
            write(path, &[&shared.chunk(2)[..], &[0]].concat())
        }),
        (3, "it is chunk 5", &|path| write(path, &shared.chunk(5))),
        (4, "cannot open for reading", &|path| fs::remove_file(path).unwrap()),
        (chunks - 1, "and should have", &|path| write(path, &[])),
        (6, "does not have the hash", &|path| flip_bit(path, 999, 0).unwrap()),
    ];
    for (number, (index, flaw, damage)) in cases.into_iter().enumerate() {
        let bad = shared.copy(&files, &format!("bad-{number}"));
        damage(&bad.join(chunk_name(index)));
        for threads in THREADS {
            let output = files.path().join(format!("{number}-{threads}"));
            let threads = NonZeroUsize::new(threads).unwrap();
            let options = FetchOptions { threads, ..shared.fetching(&[&bad, &good], &output) };
            let report = fetch(&options).unwrap();
            assert!(fs::read(&output).unwrap() == shared.bytes());
            let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
            assert_eq!((fault.chunk, Path::new(&fault.source)), (Some(index), &*bad));
            let from = format!("chunk {index} (from byte {} of the snapshot)", index * SMALL);
            assert_mentions(&fault.error, &[flaw, &from, bad.to_str().unwrap()]);
            // Alone, it is not enough; what is proven stays, and the next run takes the rest.
            let output = files.path().join(format!("{number}-{threads}-alone"));
            let options = FetchOptions { threads, ..shared.fetching(&[&bad], &output) };
            let error = assert_fails(fetch(&options), ErrorKind::Damaged, &[]);
            assert_offers(&error, &[Remedy::AddSource, Remedy::RepeatOptions]);
            let kept = format!("{} of {chunks} chunks are proven and kept", chunks - 1);
            assert_mentions(&error, &[flaw, &from, &kept, bad.to_str().unwrap()]);
            assert!(!output.exists());
            let report = fetch(&shared.fetching(&[&good], &output)).unwrap();
            assert_eq!(report.chunks_kept, chunks - 1);
            assert!(fs::read(&output).unwrap() == shared.bytes() && !part(&output).exists());
        }
    }
    // Two sources with different wrong chunks make a right one.
    let (one, two) = (shared.copy(&files, "one"), shared.copy(&files, "two"));
    for index in 0..chunks {
        write(&[&one, &two][index as usize % 2].join(chunk_name(index)), b"wrong");
    }
    let output = files.path().join("both");
    // Several threads may each begin with the source that is right.
    let options = FetchOptions { threads: NonZeroUsize::MIN, ..shared.fetching(&[&one, &two], &output) };
    let report = fetch(&options).unwrap();
    assert!(fs::read(&output).unwrap() == shared.bytes());
    assert!(report.faults.len() as u64 >= chunks / 2, "{}", report.faults.len());
}

#[test]
fn a_file_with_its_tree_is_a_source() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let (source, output) = (files.path().join("utxo.dat"), files.path().join("joined.dat"));
    fs::write(&source, shared.bytes()).unwrap();
    let options = shared.fetching(&[&source], &output);
    assert_says(fetch(&options), &["utxotree: cannot read"]);
    fs::copy(shared.report.folder.join("utxotree"), files.path().join("utxotree")).unwrap();
    fetch(&options).unwrap();
    assert!(fs::read(&output).unwrap() == shared.bytes());
    assert_eq!(fetch(&options).unwrap_err().kind, ErrorKind::Usage, "an existing file is kept");
    fs::remove_file(&output).unwrap();
    fs::write(&source, [shared.bytes(), vec![0]].concat()).unwrap();
    assert_says(fetch(&options), &["bytes, and should have"]);
    assert!(!output.exists() && !part(&output).exists(), "nothing was proven, and nothing is kept");
}

/// What vouches for the coins: the root, or nothing for a block that Core's source does not know.
#[test]
fn wrong_trees_and_missing_trust_are_refused() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let (good, output) = (shared.copy(&files, "good"), files.path().join("out"));
    let words = ["nothing vouches for these coins", &shared.report.hash.to_string()];
    let unknown = assert_fails(fetch(&fetching(&[&good], &output)), ErrorKind::Usage, &words);
    assert_offers(&unknown, &[Remedy::NameRoot, Remedy::TrustSources]);
    let trusting = FetchOptions { trust_sources: true, ..fetching(&[&good], &output) };
    let report = fetch(&trusting).unwrap();
    assert!(!report.is_root_given && !report.is_pinned);
    fs::remove_file(&output).unwrap();
    // Without the first chunk of a trusted source, the others were not fetched.
    let first = good.join(chunk_name(0));
    fs::write(&first, "wrong").unwrap();
    assert_fails(fetch(&trusting), ErrorKind::Damaged, &["chunk 0", "chunks are proven and kept"]);
    fs::write(&first, shared.chunk(0)).unwrap();
    assert_eq!(fetch(&trusting).unwrap().chunks_kept, report.chunks - 1);
    fs::remove_file(&output).unwrap();
    let wrong = FetchOptions { root: Some([1; 32]), ..fetching(&[&good], &output) };
    assert_says(fetch(&wrong), &["its tree has the root", &hex_reversed(&shared.report.merkle_root)]);
    // A source with another tree is named, and not used.
    let other = shared.copy(&files, "other");
    flip_bit(&other.join("utxotree"), 50, 0).unwrap();
    let report = fetch(&shared.fetching(&[&other, &good], &output)).unwrap();
    assert_eq!((report.faults[0].chunk, &*report.faults[0].source), (None, other.to_str().unwrap()));
    fs::remove_file(&output).unwrap();
    let both = FetchOptions { trust_sources: true, ..fetching(&[&good, &other], &output) };
    let words = ["other: it has the tree of block", "good has that of block"];
    assert_fails(fetch(&both), ErrorKind::Usage, &words);
    // Trees of all lengths, and a tree of a set that does not end.
    let tree = fs::read(good.join("utxotree")).unwrap();
    for len in [0, 1, 41, 42, tree.len() - 1, tree.len() - 32] {
        fs::write(other.join("utxotree"), &tree[..len]).unwrap();
        let error = assert_fails(fetch(&shared.fetching(&[&other], &output)), ErrorKind::Damaged, &[]);
        assert!(error.file.as_deref().is_some_and(|file| file.ends_with("other/utxotree")), "{error}");
    }
    let hostile = [&tree[..34], &u64::MAX.to_le_bytes(), &tree[42..]].concat();
    fs::write(other.join("utxotree"), hostile).unwrap();
    let options = shared.fetching(&[&other], &output);
    assert_mentions(&fetch(&options).unwrap_err(), &["at byte 42", "bytes of leaves"]);
    truncate(&other.join("utxotree"), 1 << 40).unwrap();
    assert_mentions(&fetch(&options).unwrap_err(), &["more than the limit of 4000000"]);
    assert!(!output.exists() && !part(&output).exists());
}

/// Writes chunks of any bytes with their tree. Returns the root.
fn write_set(dir: &Path, block: wire::BlockHash, bytes: &[u8]) -> [u8; 32] {
    let leaves = bytes.chunks(SMALL as usize).map(sha256d).collect();
    let tree = UtxoTree { block, len: bytes.len() as u64, leaves, chunk_len: SMALL };
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("utxotree"), tree.encode()).unwrap();
    for (chunk, index) in bytes.chunks(SMALL as usize).zip(0..) {
        fs::write(dir.join(chunk_name(index)), chunk).unwrap();
    }
    tree.root()
}

/// Chunks that are those of their tree and no snapshot, or the draft's form of one.
#[test]
fn what_the_chunks_make_up_must_be_a_snapshot() {
    let (shared, files, tip) = (Shared::of_chain(), scratch(), chain().tip());
    let core = shared.bytes();
    let sets: [(&str, wire::BlockHash, Vec<u8>, &str); 5] = [
        ("short", tip.hash, core[..core.len() - 1].to_vec(), "no snapshot: the file ends inside a coin"),
        ("long", tip.hash, [&core[..], &[0]].concat(), "1 bytes follow the last coin"),
        ("words", tip.hash, vec![b'w'; 3000], "not a UTXO snapshot"),
        ("block", wire::BlockHash([5; 32]), core.clone(), "the tree is of 0505"),
        ("low", tip.hash, with_height(&core, 5), "is above the snapshot's height 5"),
    ];
    for (name, block, bytes, flaw) in sets {
        let (dir, output) = (files.path().join(name), files.path().join("out"));
        let root = Some(write_set(&dir, block, &bytes));
        let done = fetch(&FetchOptions { root, ..fetching(&[&dir], &output) });
        assert_fails(done, ErrorKind::Damaged, &[flaw, name]);
        assert!(!output.exists() && !part(&output).exists(), "{name}: it would be the same again");
        assert!(!vfs::unfinished::temporary(&output, ".peregrine-part").exists());
    }
    let (dir, output) = (files.path().join("draft"), files.path().join("joined"));
    let root = Some(write_set(&dir, tip.hash, &with_height(&core, tip.height)));
    let options = FetchOptions { root, ..fetching(&[&dir], &output) };
    let report = fetch(&options).unwrap();
    assert!(report.height_removed && report.height == Some(Height(tip.height)));
    assert!(fs::read(&output).unwrap() == core, "the file is as Core writes it");
    assert!(!part(&output).exists());
    // Chunks that another run has fetched stay if it is refused.
    fs::write(part(&output), with_height(&core, tip.height)).unwrap();
    refused_by(files.path(), ErrorKind::Usage, &["it exists already"], || fetch(&options));
    fs::remove_file(part(&output)).unwrap();
    // Its metadata is read where the draft has it.
    let draft = files.path().join("draft.dat");
    fs::write(&draft, with_height(&core, tip.height)).unwrap();
    let [with, without] = [&draft, &output].map(|path| engine::snapshot::info(&RealDisk, path).unwrap());
    assert_eq!((with.base_height, without.base_height), (Some(Height(tip.height)), None));
    assert_eq!((with.coins, with.base_block), (without.coins, without.base_block));
}

/// A false tree of 487 GB was fetched whole, and the disk was full before anything was compared.
#[test]
fn what_cannot_be_right_or_has_no_space_ends_after_the_first_chunk() {
    let (shared, files, tip) = (Shared::of_chain(), scratch(), chain().tip());
    let core = shared.bytes();
    for (name, block, bytes, flaw) in [
        ("words", tip.hash, vec![b'w'; 3000], "not a UTXO snapshot"),
        ("block", wire::BlockHash([5; 32]), core.clone(), "the tree is of 0505"),
    ] {
        let dir = files.path().join(name);
        let root = Some(write_set(&dir, block, &bytes));
        fs::remove_file(dir.join(chunk_name(1))).unwrap();
        let options = FetchOptions { root, ..fetching(&[&dir], &files.path().join("out")) };
        refused_by(files.path(), ErrorKind::Damaged, &[flaw, name], || fetch(&options));
    }
    // The other chunks of an earlier run stay.
    let (output, good) = (files.path().join("kept"), shared.copy(&files, "good"));
    fs::write(part(&output), &core).unwrap();
    let words = fetching(&[&files.path().join("words")], &output);
    assert_says(fetch(&FetchOptions { trust_sources: true, ..words }), &["not a UTXO snapshot"]);
    let report = fetch(&shared.fetching(&[&good], &output)).unwrap();
    assert_eq!(report.chunks_kept, report.chunks - 1);
    // The draft's form is written anew while its chunks are there.
    for (name, bytes, copies) in [("core", core.clone(), 1), ("draft", with_height(&core, tip.height), 2)] {
        let (dir, output) = (files.path().join(name), files.path().join(format!("{name}.dat")));
        let root = Some(write_set(&dir, tip.hash, &bytes));
        let options = FetchOptions { root, ..fetching(&[&dir], &output) };
        let need = copies * bytes.len() as u64 - SMALL;
        let with_free = |free| {
            let disk = FaultDisk::healthy().with_free_space(files.path(), free);
            engine::snapshot::fetch(&disk, &options, unwatched())
        };
        let words = ["not enough disk space: the snapshot needs"];
        let full = refused_by(files.path(), ErrorKind::Environment, &words, || with_free(need - 1));
        assert_offers(&full, &[Remedy::FreeDiskSpace, Remedy::OtherOutput]);
        with_free(need).unwrap();
    }
    // Only the coins could prove it, at the end.
    let block = ChainParams::of(Network::Regtest).assume_utxo[1].block_hash;
    let (long, chunk_len) = (files.path().join("long"), 1 << 40);
    let tree = UtxoTree { block, len: 25_000_000_001, leaves: vec![[7; 32]], chunk_len };
    fs::create_dir(&long).unwrap();
    fs::write(long.join("utxotree"), tree.encode()).unwrap();
    let options = FetchOptions { chunk_len, ..fetching(&[&long], &files.path().join("out")) };
    let words = ["long: its tree is of 25 GB, and without a root at most"];
    let error = refused_by(files.path(), ErrorKind::Damaged, &words, || fetch(&options));
    assert_offers(&error, &[Remedy::NameRoot, Remedy::AddSource]);
}

/// It ended the whole fetch, with the advice to name the root, which was named.
#[test]
fn a_source_that_lies_about_what_the_root_leaves_open_does_not_stop_the_others() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let [lying, good] = ["lying", "good"].map(|name| shared.copy(&files, name));
    let tree = lying.join("utxotree");
    for (at, what) in [(0, "block"), (34, "length")] {
        flip_bit(&tree, at, 0).unwrap();
        let output = files.path().join(what);
        let report = fetch(&shared.fetching(&[&lying, &good], &output)).unwrap();
        assert!(fs::read(&output).unwrap() == shared.bytes() && !part(&output).exists(), "{what}");
        // The first chunk shows that the tree is that of another block.
        assert!(what == "length" || report.chunks_kept == 0, "{report:?}");
        assert!(!report.faults.is_empty(), "{what}");
        assert!(report.faults.iter().all(|fault| fault.source.ends_with("lying")), "{:?}", report.faults);
        flip_bit(&tree, at, 0).unwrap();
    }
}

/// It was about the tree that was tried last, even that of a liar.
#[test]
fn an_error_is_about_the_tree_that_most_sources_have() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let [lying, good, twin] = ["lying", "good", "twin"].map(|name| shared.copy(&files, name));
    flip_bit(&lying.join("utxotree"), 0, 0).unwrap();
    for source in [&lying, &good, &twin] {
        fs::remove_file(source.join(chunk_name(3))).unwrap();
    }
    for sources in [[&*lying, &*good, &*twin], [&*good, &*twin, &*lying]] {
        let error = fetch(&shared.fetching(&sources, &files.path().join("joined"))).unwrap_err();
        assert!(error.to_string().contains("chunk 3") && !error.to_string().contains("lying"), "{error}");
    }
}

/// Coins of a block whose UTXO set hash Core's source has need no root, and must be those.
#[test]
fn coins_that_core_pins_are_proven_by_their_hash() {
    let blocks = snapshot_chain::blocks(SNAPSHOT_HEIGHT);
    let mut coins: Vec<(OutPoint, u32, i64, Vec<u8>)> = Vec::new();
    for block in &blocks[1..] {
        let parsed: bitcoin::Block = bitcoin::consensus::deserialize(&block.bytes).unwrap();
        let txid = Txid(*AsRef::<[u8; 32]>::as_ref(&parsed.txdata[0].compute_txid()));
        for (output, vout) in parsed.txdata[0].output.iter().zip(0..) {
            let code = block.height * 2 + 1;
            let amount = output.value.to_sat() as i64;
            coins.push((OutPoint { txid, vout }, code, amount, output.script_pubkey.to_bytes()));
        }
    }
    coins.sort_by(|a, b| chainstate_key_order(&a.0, &b.0));
    let (files, hash) = (scratch(), blocks.last().unwrap().hash);
    let write = |name: &str, forged: i64| {
        let path = files.path().join(name);
        let stored = coins.iter().map(|(outpoint, code, amount, script)| {
            let mut out = Vec::new();
            compress_output(&mut out, Sats(amount + forged), script);
            (*outpoint, *code, out)
        });
        write_snapshot(&path, hash, &stored.collect::<Vec<_>>());
        path
    };
    let (right, forged) = (write("right.dat", 0), write("forged.dat", 1));
    let report = from(&right, &files.path().join("sets")).unwrap();
    assert!(report.is_pinned && report.height == Some(Height(SNAPSHOT_HEIGHT)));
    let error = from(&right, &files.path().join("sets")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage, "a folder is never replaced");
    assert_fails(from(&forged, &files.path().join("forged")), ErrorKind::Damaged, &[]);
    assert!(!files.path().join("forged").exists(), "no folder of forged coins");
    let output = files.path().join("joined.dat");
    let fetched = fetch(&fetching(&[&report.folder], &output)).unwrap();
    assert!(fetched.is_pinned && fetched.height == report.height);
    assert!(fs::read(&output).unwrap() == fs::read(&right).unwrap());
    fs::remove_file(&output).unwrap();
    let lying = files.path().join("lying");
    let root = write_set(&lying, hash, &fs::read(&forged).unwrap());
    for root in [None, Some(root)] {
        let done = fetch(&FetchOptions { root, ..fetching(&[&lying], &output) });
        assert_fails(done, ErrorKind::Damaged, &["but Bitcoin Core's source has", "lying"]);
        assert!(!output.exists() && !part(&output).exists());
    }
    // Both sources: the root is asked for, and settles it.
    let both = fetching(&[&lying, &report.folder], &output);
    assert_offers(&fetch(&both).unwrap_err(), &[Remedy::NameRoot]);
    fetch(&FetchOptions { root: Some(report.merkle_root), ..both }).unwrap();
    // A wrong height in the draft's form.
    let dir = files.path().join("height");
    let root = Some(write_set(&dir, hash, &with_height(&fs::read(&right).unwrap(), SNAPSHOT_HEIGHT + 1)));
    let output = files.path().join("other.dat");
    assert_says(fetch(&FetchOptions { root, ..fetching(&[&dir], &output) }), &["the height is 201"]);
}

/// It opened the chunks before it locked them: if another run had just given them their name, it wrote to a
/// complete snapshot.
#[test]
fn a_fetch_does_not_write_to_what_another_run_has_completed() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let good = shared.copy(&files, "good");
    let mut other = shared.bytes();
    other[2500] ^= 1;
    for at in 0..4 {
        let output = files.path().join(at.to_string());
        fs::write(part(&output), &other).unwrap();
        let (from, to, mut changes) = (part(&output), output.clone(), 0);
        let complete = move || {
            if changes == at && RealDisk.lock_holder(&from).unwrap().is_none() {
                fs::rename(&from, &to).unwrap();
            }
            changes += 1;
        };
        let disk = FaultDisk::healthy().watched(part(&output), complete);
        let done = engine::snapshot::fetch(&disk, &shared.fetching(&[&good], &output), unwatched());
        // Two changes come before it has the lock: a sync, and the creation of the file if it is gone.
        assert_eq!(done.is_err(), at < 2, "change {at}: {done:?}");
        assert!(fs::read(&output).unwrap() == if at < 2 { other.clone() } else { shared.bytes() });
        assert!(!part(&output).exists());
        if let Err(error) = done {
            assert_eq!(error.kind, ErrorKind::Usage, "{error}");
        }
    }
}

/// Coins of a pinned block were said to be pinned with any magic, with which bitcoind does not load them.
#[test]
fn a_custom_signet_has_no_pinned_coins() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let (block, core) = (ChainParams::of(Network::Signet).assume_utxo[0].block_hash, shared.bytes());
    let (dir, output) = (files.path().join("signet"), files.path().join("out"));
    write_set(&dir, block, &[&core[..7], &[1, 2, 3, 4], &block.0, &core[43..]].concat());
    let words = ["the magic 01020304 is not that of the network of block", &block.to_string()];
    assert_fails(fetch(&fetching(&[&dir], &output)), ErrorKind::Damaged, &words);
}

/// What is proven is not fetched again, and the file is the same.
#[test]
fn a_fetch_resumes_after_interrupts_and_power_cuts() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let good = shared.copy(&files, "good");
    for threads in THREADS {
        let of = |case: &Case| {
            let threads = NonZeroUsize::new(threads).unwrap();
            FetchOptions { threads, ..shared.fetching(&[&good], &case.root().join("out")) }
        };
        let scenario = Scenario {
            before: &|| Case::of(scratch()),
            run: &|disk, case| match case.root().join("out").exists() {
                true => Ok(()),
                false => engine::snapshot::fetch(disk, &of(case), quiet(disk.interrupt())).map(drop),
            },
            is_whole: &|case, is_done, what| {
                let output = case.root().join("out");
                assert!(output.exists() || !is_done, "{what}: it reported success");
                assert!(!output.exists() || fs::read(&output).unwrap() == shared.bytes(), "{what}");
            },
            succeeds: &|case, what| {
                let output = case.root().join("out");
                if !output.exists() {
                    fetch(&of(case)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
                }
                assert!(fs::read(&output).unwrap() == shared.bytes(), "{what}");
                assert!(!part(&output).exists(), "{what}");
            },
        };
        for trouble in [Trouble::NO_CHANGES, Trouble::Interrupt] {
            assert!(scenario.suffer(trouble, 5, true) > 5, "{trouble:?}");
        }
        let states = scenario.explore(Crashes { stride: 3, ..Crashes::default() });
        assert!(states > 10, "{states}");
    }
    // A run that proves nothing keeps what an earlier one has proven.
    let output = files.path().join("kept");
    fs::write(part(&output), shared.bytes()).unwrap();
    let options = shared.fetching(&[&good], &output);
    let interrupted = engine::snapshot::fetch(&FaultDisk::healthy(), &options, quiet(&AtomicBool::new(true)));
    assert_eq!(interrupted.unwrap_err().kind, ErrorKind::Interrupted);
    let report = fetch(&options).unwrap();
    assert_eq!(report.chunks_kept, report.chunks);
    // What is kept is counted; a torn chunk is fetched again; what is too long is cut.
    let output = files.path().join("out");
    let mut left = shared.bytes();
    left[2500] ^= 1;
    left.extend([7; 5000]);
    fs::write(part(&output), left).unwrap();
    let report = fetch(&shared.fetching(&[&good], &output)).unwrap();
    assert_eq!(report.chunks_kept, report.chunks - 1);
    assert!(fs::read(&output).unwrap() == shared.bytes());
    // What somebody else has put there is neither followed nor written.
    let output = files.path().join("another");
    let mine = files.path().join("mine");
    for is_link in [false, true] {
        fs::write(&mine, "mine").unwrap();
        if is_link {
            symlink(&mine, part(&output)).unwrap()
        } else {
            fs::rename(&mine, part(&output)).unwrap()
        }
        assert_says(fetch(&shared.fetching(&[&good], &output)), &["has the name of a temporary file"]);
        assert!(fs::read(part(&output)).unwrap() == b"mine" && !output.exists());
        fs::remove_file(part(&output)).unwrap();
    }
}

/// Once, chunks that only memory had were kept: the earlier sync had failed, and the next one succeeds.
#[test]
fn chunks_that_are_not_on_the_medium_are_fetched_again() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let (good, output) = (shared.copy(&files, "good"), files.path().join("out"));
    fs::write(part(&output), shared.bytes()).unwrap();
    let disk = FaultDisk::healthy().with_end_in_memory(&part(&output), 2 * SMALL + 500);
    let report = engine::snapshot::fetch(&disk, &shared.fetching(&[&good], &output), unwatched()).unwrap();
    assert_eq!(report.chunks_kept, 2);
    assert!(fs::read(&output).unwrap() == shared.bytes());
}

/// Once, it was replaced.
#[test]
fn a_file_that_gets_the_name_during_a_fetch_stays() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let (good, output) = (shared.copy(&files, "good"), files.path().join("out"));
    let (mine, chunks) = (output.clone(), part(&output));
    let write = move || {
        if fs::metadata(&chunks).unwrap().len() > 0 {
            fs::write(&mine, "mine").unwrap();
        }
    };
    let disk = FaultDisk::healthy().watched(part(&output), write);
    let done = engine::snapshot::fetch(&disk, &shared.fetching(&[&good], &output), unwatched());
    assert_fails(done, ErrorKind::Environment, &["something else has that name by now"]);
    assert_eq!(fs::read(&output).unwrap(), b"mine");
    assert!(part(&output).exists(), "the proven chunks are kept");
}

/// A folder on another machine that answers as a test wants.
#[derive(Debug)]
struct Remote {
    folder: PathBuf,
    /// What to do with a chunk: see [`Remote::open`].
    way: &'static str,
    is_asked: AtomicBool,
}

impl engine::Remote for Remote {
    fn name(&self) -> &str {
        "https://sets.example/set/"
    }

    fn open(&self, file: &str, _: u64) -> io::Result<RemoteBody> {
        let mut bytes = fs::read(self.folder.join(file))?;
        let is_bad = file == "000002.chunk";
        let mut len = Some(bytes.len() as u64);
        match self.way {
            "gone" if file != "utxotree" => {
                return Err(io::Error::other("the server answered with status 404"));
            }
            "short" if is_bad => drop(bytes.pop()),
            "long" if is_bad => len = Some(u64::MAX),
            way if way == "endless" && is_bad || way == "endless tree" && file == "utxotree" => {
                return Ok(RemoteBody { from: 0, len: None, bytes: Box::new(io::repeat(7)) });
            }
            "unstated" => len = None,
            "wrong" if is_bad => bytes[3] ^= 1,
            "late" if file != "utxotree" => match self.is_asked.swap(true, Ordering::Relaxed) {
                false => thread::sleep(Duration::from_secs(5)),
                true => return Err(io::Error::other("it is asked again")),
            },
            "slow" if is_bad => {
                self.is_asked.store(true, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(20));
            }
            _ => {}
        }
        Ok(RemoteBody { from: 0, len, bytes: Box::new(io::Cursor::new(bytes).take(u64::MAX)) })
    }
}

#[test]
fn a_remote_folder_gives_no_more_than_was_asked_for() {
    let (shared, files) = (Shared::of_chain(), scratch());
    let good = shared.copy(&files, "good");
    let remote = |way| {
        let (folder, is_asked) = (good.clone(), AtomicBool::new(false));
        Arc::new(Remote { folder, way, is_asked })
    };
    for (number, (way, flaw)) in [
        ("", ""),
        ("unstated", ""),
        ("short", "cannot download: the connection ended after 999 of 1000 bytes"),
        ("long", "cannot download: it has more than 1000 bytes"),
        ("endless", "cannot download: it has more than 1000 bytes"),
        ("wrong", "does not have the hash that the tree has for it"),
    ]
    .into_iter()
    .enumerate()
    {
        let output = files.path().join(number.to_string());
        let source = FileSource::Remote(remote(way));
        let alone = FetchOptions { sources: vec![source.clone()], ..shared.fetching(&[], &output) };
        if flaw.is_empty() {
            fetch(&alone).unwrap();
        } else {
            assert_says(fetch(&alone), &[flaw, "https://sets.example/set", "chunk 2 (from byte 2000"]);
            let both = vec![source, FileSource::Path(good.clone())];
            let report = fetch(&FetchOptions { sources: both, ..alone }).unwrap();
            assert_mentions(&report.faults[0].error, &[flaw]);
        }
        assert!(fs::read(&output).unwrap() == shared.bytes());
    }
    let output = files.path().join("out");
    let with = |way| FetchOptions {
        sources: vec![FileSource::Remote(remote(way))],
        ..shared.fetching(&[], &output)
    };
    let done = fetch(&with("gone"));
    assert_fails(done, ErrorKind::Environment, &["the server answered with status 404", "0 of"]);
    assert!(!part(&output).exists(), "there is nothing to keep");
    assert_mentions(&fetch(&with("endless tree")).unwrap_err(), &["it has more than 4000000 bytes"]);
    // A source that gave each piece just in time was asked for all chunks: 11 GB took a month.
    let late = remote("late");
    let sources = vec![FileSource::Remote(late.clone()), FileSource::Path(good.clone())];
    let output = files.path().join("late");
    let faults = fetch(&FetchOptions { sources, ..shared.fetching(&[], &output) }).unwrap().faults;
    assert!(faults.is_empty(), "a slow source is asked again while another is fast: {faults:?}");
    assert!(late.is_asked.load(Ordering::Relaxed));
    // An interrupt does not wait for the network.
    let slow = remote("slow");
    let options = FetchOptions { sources: vec![FileSource::Remote(slow.clone())], ..with("") };
    let interrupt = AtomicBool::new(false);
    let started = Instant::now();
    thread::scope(|scope| {
        let run = scope.spawn(|| engine::snapshot::fetch(&FaultDisk::healthy(), &options, quiet(&interrupt)));
        wait_until("a chunk is asked for", || slow.is_asked.load(Ordering::Relaxed));
        interrupt.store(true, Ordering::Relaxed);
        let done = run.join().unwrap();
        assert_fails(done, ErrorKind::Interrupted, &["interrupted", "chunks are proven and kept in"]);
    });
    assert!(started.elapsed() < Duration::from_secs(15));
    assert!(fetch(&with("")).unwrap().chunks_kept > 0);
}

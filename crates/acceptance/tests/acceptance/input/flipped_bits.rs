//! Single flipped bits in blocks, undo data, the block index and the key of the block files: each is reported
//! with location and remedy, and the datadir is unchanged.

use acceptance::{assert_names, prelude::*};

#[test]
fn a_flipped_bit_anywhere_in_a_block_is_found() {
    let case = Case::new();
    let hit = entry(&case, BUSY);
    let (path, pos) = (blk(&case, &hit), hit.data_pos.unwrap().0);
    let bytes = &block_at(BUSY).bytes;
    assert!(bytes.len() > 1_000, "a block with several transactions");
    // Frame (magic, length), the fields of the header, then transactions and witnesses to the last byte.
    let head = (0..96).map(|at| at as u64);
    let body = (96..bytes.len() as u64 + 8).step_by(bytes.len() / 40);
    let end = bytes.len() as u64 + 7;
    for (number, at) in head.step_by(5).chain(body).chain([end]).enumerate() {
        let offset = pos - 8 + at;
        flip_bit(&path, offset, number as u32 % 8).unwrap();
        let options = with_threads(&case.options(), THREADS[number % 3]);
        // A record may be longer than its block.
        let len = bytes.len() as u64;
        let claimed = if (4..8).contains(&at) { len ^ (1 << ((at - 4) * 8 + number as u64 % 8)) } else { 0 };
        if claimed > len && pos + claimed <= std::fs::metadata(&path).unwrap().len() {
            run(&options).unwrap();
            flip_bit(&path, offset, number as u32 % 8).unwrap();
            continue;
        }
        let error = run(&options).map(|report| report.height).expect_err("a flipped bit must be found");
        assert_eq!(error.kind, ErrorKind::Damaged, "byte {at}: {error}");
        assert_names(&error, &path, BUSY);
        flip_bit(&path, offset, number as u32 % 8).unwrap();
    }
    run(&case.options()).unwrap();
}

#[test]
fn a_flipped_bit_anywhere_in_undo_data_is_found() {
    let case = Case::new();
    let hit = entry(&case, BUSY);
    let (path, pos) = (rev(&case, &hit), hit.undo_pos.unwrap().0);
    let len = block_at(BUSY).undo.as_ref().unwrap().len() as u64;
    assert!(len > 100, "a block that spends something");
    // Frame, undo data, checksum.
    let all = (0..8).chain((8..8 + len).step_by(len as usize / 30)).chain((8 + len..40 + len).step_by(3));
    for (number, at) in all.enumerate() {
        let offset = pos - 8 + at;
        flip_bit(&path, offset, number as u32 % 8).unwrap();
        let options = with_threads(&trusting(&case.options()), THREADS[number % 3]);
        let error = run(&options).map(|report| report.height).expect_err("a flipped bit must be found");
        assert_eq!(error.kind, ErrorKind::Damaged, "byte {at}: {error}");
        assert_names(&error, &path, BUSY);
        if number % 8 == 0 {
            let words = ["undo data of the block is not on disk"];
            let error = refused(&trusting(&case.scan()), ErrorKind::Damaged, &words);
            assert_eq!(error.height, Some(Height(BUSY)), "{error}");
        }
        flip_bit(&path, offset, number as u32 % 8).unwrap();
    }
    run(&case.options()).unwrap();
}

/// Inverts bits all over a file. A flip without effect (in a name that is not used) changes nothing; any
/// other is damage, whose error is checked.
fn flip_all_over(path: &Path, options: &ReindexOptions, expected: [u8; 32], check: impl Fn(&Error)) {
    let (len, mut seen) = (fs::metadata(path).unwrap().len(), 0);
    for number in 0..24 {
        let at = len * number / 24;
        flip_bit(path, at, number as u32 % 8).unwrap();
        let output = scratch();
        match run(&elsewhere(options.clone(), output.path())) {
            Ok(report) => assert_eq!(report.hash_serialized_3, expected, "{} byte {at}", path.display()),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
                check(&error);
                seen += 1;
            }
        }
        flip_bit(path, at, number as u32 % 8).unwrap();
    }
    assert!(seen > 0, "no flip in {} was found", path.display());
}

#[test]
fn a_flipped_bit_in_the_index_table_is_found() {
    let case = Case::new();
    let expected = chain().model.stats().hash_serialized_3;
    let remedies = ["make the undo data", "scanning the block files", "restore"];
    let has_remedy = |error: &Error| {
        assert!(remedies.iter().any(|words| error.to_string().contains(words)), "{error}");
    };
    for (path, bytes) in tree(&case.blocks("index")) {
        if bytes.is_some_and(|bytes| !bytes.is_empty()) {
            flip_all_over(&path, &case.options(), expected, has_remedy);
        }
    }
    // Without the index it succeeds.
    let table = tree(&case.blocks("index")).into_keys().find(|path| path.extension() == Some("ldb".as_ref()));
    flip_bit(&table.unwrap(), 50, 1).unwrap();
    run(&case.scan()).unwrap();
}

/// A node that was just stopped has its last index entries in the log, not yet in a table.
#[test]
fn a_flipped_bit_in_the_index_log_is_found() {
    let Some(dir) = testkit::data::unpack_core_datadir("signet") else { return };
    let index = dir.path().join("signet/blocks/index");
    let log = tree(&index).into_iter().find(|(path, bytes)| {
        path.extension() == Some("log".as_ref()) && bytes.as_ref().is_some_and(|bytes| bytes.len() > 200)
    });
    let Some((path, _)) = log else {
        return testkit::data::skip("the index of this datadir has an empty log");
    };
    let base = ReindexOptions::new(dir.path(), Network::Signet, ScriptChecks::LeftOut);
    let expected = run(&elsewhere(base.clone(), &dir.path().join("whole"))).unwrap();
    flip_all_over(&path, &base, expected.hash_serialized_3, |error| {
        assert_offers(error, &[Remedy::RebuildIndex]);
    });
}

/// Half of the bits flipped in a header of regtest leave it without proof of work; Core stores no such block.
#[test]
fn a_header_without_proof_of_work_is_damage() {
    let case = Case::new();
    let place = entry(&case, BUSY);
    let (path, nonce) = (blk(&case, &place), place.data_pos.unwrap().0 + 76);
    let mut found = 0;
    for bit in 0..8 {
        flip_bit(&path, nonce, bit).unwrap();
        let error = refused(&case.scan(), ErrorKind::Damaged, &[]);
        if error.core.as_deref() == Some("high-hash") {
            found += 1;
            let name = path.file_name().unwrap().to_string_lossy();
            assert_mentions(&error, &["proof-of-work", "was altered", &name]);
        }
        flip_bit(&path, nonce, bit).unwrap();
    }
    assert!(found > 0, "no bit out of 8 breaks the proof of work");
}

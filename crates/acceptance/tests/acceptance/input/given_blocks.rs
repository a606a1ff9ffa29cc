//! Blocks that the user passes take the place of damaged and missing ones. Only their own header vouches for
//! them.

use acceptance::prelude::*;

/// Writes files with the blocks at these heights: as bytes, and as hex digits.
fn write(dir: &Path, heights: impl IntoIterator<Item = u32>) -> Vec<PathBuf> {
    let write = |height: u32| {
        let (path, bytes) = (dir.join(format!("{height}.blk")), &block_at(height).bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = if height.is_multiple_of(2) { bytes.clone() } else { format!("{hex}\n").into_bytes() };
        fs::write(&path, text).unwrap();
        path
    };
    heights.into_iter().map(write).collect()
}

fn with_blocks(options: &ReindexOptions, blocks: Vec<PathBuf>) -> ReindexOptions {
    ReindexOptions { blocks, ..options.clone() }
}

#[test]
fn a_passed_block_takes_the_place_of_a_damaged_one() {
    for heights in [vec![125], vec![60, 61, 125], vec![140], vec![137]] {
        let (case, dir, what) = (Case::new(), scratch(), format!("{heights:?}"));
        heights.iter().for_each(|&height| case.flip_block(height, 100));
        let before = case.index();
        let damaged: Vec<_> =
            heights.iter().map(|&height| fs::read(blk(&case, &entry(&case, height))).unwrap()).collect();
        let places: Vec<_> = heights.iter().map(|&height| entry(&case, height)).collect();
        let blocks = write(dir.path(), heights.iter().copied());
        let (done, events) = run_seen(&with_blocks(&case.options(), blocks));
        let report = done.unwrap();
        let stored = events.iter().filter_map(|event| match event {
            Event::Note(Note::StoredGivenBlocks { blocks }) => Some(*blocks),
            _ => None,
        });
        assert_eq!(report.height, Height(140), "{what}");
        assert!(stored.eq([heights.len() as u32]), "{what}");
        assert_sound(case.root(), chain(), &what);
        let last = FileNo(before.files.len() as u32 - 1);
        for ((place, bytes), &height) in places.iter().zip(&damaged).zip(&heights) {
            let now = entry(&case, height);
            let has_moved = (now.file, now.data_pos) != (place.file, place.data_pos);
            assert!(now.file >= Some(last) && has_moved, "{what}");
            // What is damaged stays where it was.
            let used = before.files[place.file.unwrap().0 as usize].size as usize;
            assert!(fs::read(blk(&case, place)).unwrap()[..used] == bytes[..used], "{what}");
        }
        let again = run(&case.options()).unwrap();
        assert_eq!((again.height, again.notes.len()), (Height(140), 0), "{what}: {:?}", again.notes);
    }
}

/// Once, it said that the datadir is unchanged, and later that blocks are stored even if they were before.
#[test]
fn an_interrupt_after_passed_blocks_were_stored_says_so() {
    let (case, dir, flag) = (Case::new(), scratch(), AtomicBool::new(false));
    case.flip_block(125, 100);
    let options = with_blocks(&case.options(), write(dir.path(), [125]));
    let sink = |event: Event| {
        let is_stored = matches!(event, Event::Note(Note::StoredGivenBlocks { .. }));
        flag.fetch_or(is_stored, Ordering::Relaxed);
    };
    for text in ["blocks are stored, the chainstate is unchanged", "the datadir is unchanged"] {
        let watch = Watch { sink: &sink, interrupt: &flag };
        let done = engine::reindex(&FaultDisk::healthy(), &options, watch);
        assert_fails(done, ErrorKind::Interrupted, &[text]);
    }
}

#[test]
fn all_blocks_of_a_missing_file_can_be_passed() {
    let (case, dir) = (Case::new(), scratch());
    let in_file = |file: u32| {
        (0..=140).filter(|&height| entry(&case, height).file == Some(FileNo(file))).collect::<Vec<_>>()
    };
    let (file, heights): (u32, Vec<u32>) =
        (1..5).map(|file| (file, in_file(file))).max_by_key(|(_, heights)| heights.len()).unwrap();
    fs::remove_file(case.blocks(&format!("blk{file:05}.dat"))).unwrap();
    let blocks = write(dir.path(), heights.iter().copied());
    assert!(blocks.len() > 3);
    // One is not enough, and changes nothing that bitcoind would miss.
    let one = with_blocks(&case.options(), blocks[..1].to_vec());
    assert_fails(run(&one), ErrorKind::Damaged, &[]);
    assert_eq!(entry(&case, heights[1]).file, Some(FileNo(file)), "it keeps its entry until it is stored");
    run(&with_blocks(&case.options(), blocks[1..].to_vec())).unwrap();
    assert_sound(case.root(), chain(), "a missing file");
}

#[test]
fn a_block_can_be_passed_after_the_chain_was_ended_below_it() {
    let (case, dir) = (Case::new(), scratch());
    case.flip_block(100, 100);
    let lower = run(&ReindexOptions { until_damage: true, ..case.options() }).unwrap();
    assert_eq!(lower.height, Height(99));
    let report = run(&with_blocks(&case.options(), write(dir.path(), [100]))).unwrap();
    assert_eq!((report.height, report.lost_blocks), (Height(140), 0));
    assert_sound(case.root(), chain(), "after the chain was ended below");
}

#[test]
fn a_file_that_is_not_wanted_is_refused_before_anything_is_written() {
    let (case, dir) = (Case::new(), scratch());
    case.flip_block(100, 100);
    let good = write(dir.path(), [100]).remove(0);
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let whole = &block_at(100).bytes;
    let mut flipped = whole.clone();
    flipped[120] ^= 1;
    let stale = chain().blocks.iter().find(|block| block.stale).unwrap();
    let other_header = [&[9; 4], &whole[4..]].concat();
    let cases = [
        (file("flipped", &flipped), "not the transactions and witnesses to which the header commits"),
        (file("empty", &[]), "not a block as bytes or as hex digits"),
        (file("text", b"no block"), "not a block as bytes or as hex digits"),
        (file("odd", b"00112"), "not a block as bytes or as hex digits"),
        (file("cut", &whole[..whole.len() - 1]), "not a block as bytes or as hex digits"),
        (file("longer", &[&whole[..], &[0]].concat()), "not a block as bytes or as hex digits"),
        (file("stale", &stale.bytes), "the chain of the block index; the block index places all blocks"),
        (file("unknown", &other_header), "which is not in the chain of the block index"),
        (file("huge", &vec![0; 8_100_001]), "more than a block can have"),
    ];
    for (path, text) in cases {
        let both = with_blocks(&case.options(), vec![good.clone(), path.clone()]);
        let error = refused(&both, ErrorKind::Usage, &[text]);
        assert_eq!(error.file, Some(path), "{error}");
    }
    let absent = with_blocks(&case.options(), vec![dir.path().join("absent")]);
    refused(&absent, ErrorKind::Damaged, &["absent", "cannot open"]);
    for options in [changed(absent.clone(), |it| it.chain.scan = true), absent] {
        let output = Some(scratch().path().to_owned()).filter(|_| !options.chain.scan);
        refused(&ReindexOptions { output, ..options.clone() }, ErrorKind::Usage, &[]);
    }
}

#[test]
fn missing_blocks_are_named_if_another_one_is_passed() {
    let (case, dir) = (Case::new(), scratch());
    case.flip_block(100, 100);
    run(&ReindexOptions { until_damage: true, ..case.options() }).unwrap();
    let missing = format!("the lowest missing blocks are {} (height 100)", block_at(100).hash);
    let stale = chain().blocks.iter().find(|block| block.stale).unwrap();
    let path = dir.path().join("stale");
    fs::write(&path, &stale.bytes).unwrap();
    refused(&with_blocks(&case.options(), vec![path]), ErrorKind::Usage, &[&missing]);
}

/// After an interrupt, the command that was to be repeated was refused.
#[test]
fn a_passed_block_that_is_stored_and_sound_is_passed_over() {
    let (case, dir) = (Case::new(), scratch());
    case.flip_block(100, 100);
    let both = with_blocks(&case.options(), write(dir.path(), [99, 100]));
    for expected in [1, 0] {
        let (done, events) = run_seen(&both);
        assert_eq!(done.unwrap().height, Height(140), "{expected}");
        let is_it = |event: &Event| match event {
            Event::Note(Note::StoredGivenBlocks { blocks }) => *blocks == expected,
            _ => false,
        };
        assert!(events.iter().any(is_it), "{expected}");
        assert_sound(case.root(), chain(), "passed");
    }
}

/// Between the appended block and the new index, there is nothing that a crash can break.
#[test]
fn after_a_crash_at_any_moment_the_same_command_completes() {
    let dir = scratch();
    let blocks = write(dir.path(), [100]);
    let states = Scenario {
        before: &|| changed(Case::new(), |case| case.flip_block(100, 100)),
        run: &|disk, case| run_on(disk, &with_blocks(&case.options(), blocks.clone())).map(drop),
        is_whole: &|case, _, _| drop(index(case.root())),
        succeeds: &|case, what| {
            let again = run(&with_blocks(&case.options(), blocks.clone()));
            again.unwrap_or_else(|error| panic!("{what}: {error}"));
            // Removes what could not be removed.
            run(&case.options()).unwrap();
            assert_sound(case.root(), chain(), what);
        },
    }
    .explore(Crashes { stride: 3, ..Crashes::default() });
    assert!(states > 20, "{states}");
}

/// The run that names the damaged block saves what it has done.
#[test]
fn the_run_that_gets_the_block_resumes_from_the_one_that_lacked_it() {
    let (case, dir) = (Case::new(), scratch());
    case.flip_block(139, 100);
    run(&bounded(&case.options())).map(|report| report.height).unwrap_err();
    let report = run(&with_blocks(&bounded(&case.options()), write(dir.path(), [139]))).unwrap();
    assert_eq!(report.height, Height(140));
    assert!(report.resumed > 0, "{} blocks resumed", report.resumed);
    assert_sound(case.root(), chain(), "resumed");
}

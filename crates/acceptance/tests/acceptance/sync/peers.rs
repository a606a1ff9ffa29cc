//! Peers with every fault beside an honest one: the download ends with the right datadir, and who breaks the
//! protocol is named with the reason. What each fault does alone is tested in `crates/net`.

use acceptance::{prelude::*, sync::run};
use testkit::{block::header_of, peer::End};

/// Blocks that the honest peer sends before the others are closed.
const FIRST: usize = 5;

fn all_faults() -> impl Iterator<Item = Fault> {
    Fault::IN_ANSWERS.into_iter().chain(Fault::IN_BYTES).chain([Fault::HeaderWithoutWork])
}

/// Until all faulty peers are closed, the honest one has few headers and blocks to give.
#[test]
fn peers_that_break_the_protocol_are_closed_for_it() {
    for use_v2 in [false, true] {
        let (dir, few) = (scratch(), serving(chain().main().take(121)));
        let start = |fault: Fault| {
            let End::Closed(words) = fault.end() else { return None };
            // Only who has more headers than the others shows a fault in them.
            let in_headers = [Fault::HeaderGap, Fault::TooManyHeaders, Fault::HeaderWithoutWork];
            let chain = if in_headers.contains(&fault) { served() } else { Arc::clone(&few) };
            Some((fault, words, ScriptedPeer::start(&chain, fault)))
        };
        let faulty: Vec<_> =
            all_faults().filter(|fault| !use_v2 || !fault.is_of_v1()).filter_map(start).collect();
        let honest = ScriptedPeer::start(&few, Fault::None);
        honest.hold_at(FIRST);
        let peers: Vec<_> = faulty.iter().map(|(.., peer)| peer).chain([&honest]).collect();
        let mut options = from(dir.path(), &peers);
        options.peers.use_v2 = use_v2;
        let (report, seen) = run_while(&options, |seen| {
            let start = Instant::now();
            for (fault, _, peer) in &faulty {
                wait_until(&format!("{fault:?} is closed"), || {
                    // A peer that sends nothing for ten seconds would be closed.
                    honest.hold_at(FIRST + start.elapsed().as_secs() as usize);
                    !seen.reasons(peer).is_empty()
                });
            }
            honest.serve(&served());
            honest.hold_at(usize::MAX);
        });
        assert_synced(dir.path(), chain(), "beside faulty peers");
        assert_eq!(report.notes.len(), 0, "{:?}", report.notes);
        assert_eq!(seen.reasons(&honest), [] as [&str; 0], "the honest peer was closed");
        for (fault, words, peer) in &faulty {
            let found = seen.reasons(peer);
            assert!(found[0].contains(words), "{fault:?}, version 2: {use_v2}: {found:?}");
        }
    }
}

/// All of them at once, with one whose longer chain has an invalid block, beside an honest one.
#[test]
fn all_kinds_of_peers_at_once_do_not_keep_the_download_from_its_end() {
    let honest = serving(&main_to(tip() - 2));
    let mut peers: Vec<ScriptedPeer> =
        all_faults().map(|fault| ScriptedPeer::start(&honest, fault)).collect();
    peers.push(peer_with(&greedy_branch(tip() - 10, tip() - 9, tip(), 1)));
    peers.push(ScriptedPeer::start(&honest, Fault::None));
    let (dir, start) = (scratch(), Instant::now());
    let (report, seen) = run(&from(dir.path(), &peers.iter().collect::<Vec<_>>()));
    assert_synced_to(TIP - 2, dir.path(), chain(), "all kinds of peers");
    assert_eq!(report.header_height, report.height);
    let reasons = seen.reasons(&peers[peers.len() - 1]);
    assert!(reasons.iter().all(|reason| reason == "no longer needed"), "the honest peer: {reasons:?}");
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
}

/// No report.
const NONE: (u32, u32) = (u32::MAX, 0);

/// A chain of which a pruned peer lacks the first blocks.
static LONG: LazyLock<Vec<GeneratedBlock>> = LazyLock::new(|| {
    let spec = ChainSpec { blocks: Some(420), stale: false, ..ChainSpec::new(22, 40_000) };
    Chain::generate(&spec).main().cloned().collect()
});

fn long_to(height: usize) -> Arc<ServedChain> {
    serving(&LONG[..=height])
}

/// Such runs ended with success at what there was, or never.
#[test]
fn runs_end_below_what_peers_offer_with_the_reason() {
    let (all, half) = (long_to(420), long_to(200));
    let mut early = long_to(300).blocks.clone();
    let mut header = header_of(&LONG[301].bytes);
    header.time.0 = u32::MAX;
    mine(&mut header, has_work);
    early.push([&header.to_bytes()[..], &LONG[301].bytes[80..]].concat());
    let early = Arc::new(ServedChain::new(early));
    let closed = Fault::NoWitnesses;
    // The last height, the one that is claimed, and why it is not there, or why the run ends so.
    let cases = [
        ("syncing", vec![(&all, Fault::IsSyncing)], (0, 420), "it is probably syncing itself"),
        ("two", vec![(&all, Fault::IsSyncing), (&half, Fault::None)], (200, 420), "syncing itself"),
        ("clock", vec![(&early, Fault::None)], (300, 301), "ahead of this machine's clock"),
        ("pruned", vec![(&all, Fault::Limited)], NONE, "is pruned, and has blocks 135 to 420 only"),
        ("services", vec![(&all, closed), (&half, closed)], NONE, "blocks without witnesses only"),
        ("nobody", vec![], NONE, "no address of a peer is known"),
        ("pruned, and one behind", vec![(&all, Fault::Limited), (&half, Fault::None)], (420, 0), ""),
    ];
    each_operation(1, |number| {
        let Some((what, peers, expected, why)) = cases.get(number as usize) else { return true };
        let dir = scratch();
        let peers: Vec<_> = peers.iter().map(|(chain, fault)| ScriptedPeer::start(chain, *fault)).collect();
        let options = from(dir.path(), &peers.iter().collect::<Vec<_>>());
        let (found, reasons) = match try_run(&options) {
            Ok(report) => {
                let shortfall = report.shortfall.unwrap_or_default();
                assert_eq!(report.chainstate_height, Some(report.height), "{what}");
                assert_eq!(shortfall.is_clock_behind, *what == "clock");
                ((report.height.0, shortfall.claimed.0), shortfall.reasons.concat())
            }
            Err(error) => {
                assert_eq!((error.kind, error.remedies[0]), (ErrorKind::Environment, Remedy::NamePeer));
                (NONE, error.detail.clone())
            }
        };
        assert!(found == *expected && reasons.contains(why), "{what}: {found:?}, {reasons}");
        false
    });
}

/// Blocks that nobody had for half a minute were refused from then on, so that a run which waits never ended.
#[test]
fn blocks_that_nobody_had_are_downloaded_once_a_peer_has_them() {
    let (dir, all) = (scratch(), long_to(420));
    let pruned = ScriptedPeer::start(&all, Fault::Limited);
    let behind = ScriptedPeer::start(&long_to(130), Fault::None);
    let mut options = impatient(from(dir.path(), &[&pruned, &behind]));
    options.peers.wait = true;
    let (report, _) = run_while(&options, |seen| {
        wait_until("nobody has block 131", || seen.has_withheld());
        behind.serve(&all);
        wait_until("somebody has it", || behind.asked().contains(&all.hashes[131]));
    });
    assert_eq!((report.chainstate_height, report.shortfall), (Some(Height(420)), None));
    let again = report.download.blocks.saturating_sub(420);
    assert!(again < 100, "{again} blocks were downloaded twice: those above had come before");
}

/// A peer that was away while nobody had its last blocks was refused, since it offered no more than before.
#[test]
fn a_peer_that_comes_back_brings_the_blocks_that_nobody_had() {
    let (dir, all) = (scratch(), long_to(420));
    let complete = ScriptedPeer::start(&all, Fault::None);
    let behind = ScriptedPeer::start(&long_to(415), Fault::None);
    complete.hold_at(0);
    behind.set_offline(true);
    let mut options = impatient(from(dir.path(), &[&complete, &behind]));
    options.peers.wait = true;
    let (report, _) = run_while(&options, |seen| {
        wait_until("all headers", || !complete.asked().is_empty());
        complete.set_offline(true);
        behind.set_offline(false);
        wait_until("nobody has block 416", || seen.has_withheld());
        complete.hold_at(usize::MAX);
        complete.set_offline(false);
    });
    assert_eq!((report.chainstate_height, report.shortfall), (Some(Height(420)), None));
}

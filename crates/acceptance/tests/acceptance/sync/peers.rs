//! Peers with every fault beside an honest one: the download ends with the right datadir, and who breaks the
//! protocol is closed for what it did.

use acceptance::prelude::*;
use acceptance::sync::{
    assert_synced, assert_synced_to, from, run, run_on, run_while, served, serving, wait_until,
};
use std::{sync::atomic::AtomicUsize, time::Instant};
use testkit::{
    block::{has_work, header_of, mine},
    peer::{Fault, ScriptedPeer, ServedChain, without_witnesses},
    sibling::{greedy_sibling, rebase},
};

/// Faults for which a peer is closed soon, and the reason that is reported.
const CLOSED: [(Fault, bool, &str); 18] = [
    (Fault::OnlyV1, true, "closed by the peer"),
    (Fault::ClosesInBlock, true, "closed by the peer"),
    (Fault::Oversized, false, "4000001"),
    (Fault::ManyEarlyMessages, true, "handshake: 33 other messages"),
    (Fault::SecondVersion, false, "handshake: a second version message"),
    (Fault::NoWitnesses, true, "handshake: the peer offers blocks without witnesses only"),
    (Fault::NoBlocks, true, "has none of the blocks"),
    (Fault::NotFound, false, "has none of the blocks"),
    (Fault::Mutates, true, "changed contents"),
    (Fault::Mutates, false, "changed contents"),
    (Fault::Strips, true, "changed contents"),
    (Fault::Strips, false, "changed contents"),
    (Fault::Unrequested, true, "not asked for"),
    (Fault::HeaderGap, false, "headers: header 3 of the batch does not follow"),
    (Fault::TooManyHeaders, true, "2001"),
    (Fault::HeaderWithoutWork, true, "headers: the headers break a consensus rule"),
    (Fault::TooMuchInventory, false, "50001"),
    (Fault::PingFlood, false, "does not read our messages"),
];

/// Faults of peers that are of use all the same, or that cost only time.
const KEPT: [(Fault, bool); 12] = [
    (Fault::Limited, true),
    (Fault::IsSyncing, false),
    (Fault::Stall(3), true),
    (Fault::Drip, false),
    (Fault::Mute, true),
    (Fault::WrongChecksum, false),
    (Fault::EarlyMessages, true),
    (Fault::NoHeaders, true),
    (Fault::AddressFlood, false),
    (Fault::Chatter, true),
    (Fault::SplitBytes, false),
    (Fault::SaysHeightZero, true),
];

/// Blocks that the honest peer sends before the other one is closed.
const FIRST: usize = 20;

fn check(fault: Fault, use_v2: bool, reason: Option<&str>) {
    let what = format!("{fault:?}, version 2: {use_v2}");
    // Until the faulty one is closed, the honest one has few headers and blocks to give.
    let few = if reason.is_some() { serving(chain().main().take(101)) } else { served() };
    let (dir, faulty) = (scratch(), ScriptedPeer::start(&served(), fault));
    let honest = ScriptedPeer::start(&few, Fault::None);
    let mut options = from(dir.path(), &[&faulty, &honest]);
    options.peers.use_v2 = use_v2;
    if reason.is_some() {
        honest.hold_at(FIRST);
    }
    let (report, seen) = run_while(&options, |seen| {
        if reason.is_some() {
            wait_until(&what, || !seen.reasons(&faulty).is_empty());
            honest.serve(&served());
        }
        honest.hold_at(usize::MAX);
    });
    assert_synced(dir.path(), chain(), &what);
    assert_eq!(report.notes.len(), 0, "{what}: {:?}", report.notes);
    assert_eq!(seen.reasons(&honest), [] as [&str; 0], "{what}: the honest peer was closed");
    if let Some(reason) = reason {
        let found = seen.reasons(&faulty);
        assert!(found[0].contains(reason), "{what}: {found:?}");
    }
}

/// Runs all cases, some at a time.
fn check_all<T: Copy + Sync>(cases: &[T], check: impl Fn(T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(*case);
                }
            });
        }
    });
}

#[test]
fn peers_that_break_the_protocol_are_closed_for_it() {
    check_all(&CLOSED, |(fault, use_v2, reason)| check(fault, use_v2, Some(reason)));
}

#[test]
fn odd_and_slow_peers_do_no_harm() {
    check_all(&KEPT, |(fault, use_v2)| check(fault, use_v2, None));
}

/// Once, the only peer was not dialled again for a day.
#[test]
fn a_named_peer_that_strips_a_block_once_is_asked_again() {
    let mut blocks = served().blocks.clone();
    blocks[90] = without_witnesses(&blocks[90]);
    let (dir, peer) = (scratch(), ScriptedPeer::start(&Arc::new(ServedChain::new(blocks)), Fault::None));
    let (_, seen) = run_while(&from(dir.path(), &[&peer]), |seen| {
        wait_until("closed", || !seen.reasons(&peer).is_empty());
        peer.serve(&served());
    });
    assert!(seen.reasons(&peer)[0].contains("changed contents"), "{:?}", seen.reasons(&peer));
    assert_synced(dir.path(), chain(), "stripped once");
}

/// No report.
const NONE: (u32, u32) = (u32::MAX, 0);

/// Such runs ended with success at what there was, or never.
#[test]
fn runs_end_below_what_peers_offer_with_the_reason() {
    let spec = ChainSpec { blocks: Some(420), stale: false, ..ChainSpec::new(22, 40_000) };
    let blocks: Vec<_> = Chain::generate(&spec).main().cloned().collect();
    let to = |height: usize| serving(&blocks[..=height]);
    let (all, half) = (to(420), to(200));
    let mut early = to(300).blocks.clone();
    let mut header = header_of(&blocks[301].bytes);
    header.time.0 = u32::MAX;
    mine(&mut header, has_work);
    early.push([&header.to_bytes()[..], &blocks[301].bytes[80..]].concat());
    let early = Arc::new(ServedChain::new(early));
    let closed = Fault::NoWitnesses;
    // The last height, the one that is claimed, and why it is not there, or why the run ends so.
    for (what, peers, expected, why) in [
        ("syncing", vec![(&all, Fault::IsSyncing)], (0, 420), "it is probably syncing itself"),
        ("two", vec![(&all, Fault::IsSyncing), (&half, Fault::None)], (200, 420), "syncing itself"),
        ("clock", vec![(&early, Fault::None)], (300, 301), "ahead of this machine's clock"),
        ("pruned", vec![(&all, Fault::Limited)], NONE, "is pruned, and has blocks 135 to 420 only"),
        ("services", vec![(&all, closed), (&half, closed)], NONE, "blocks without witnesses only"),
        ("nobody", vec![], NONE, "no address of a peer is known"),
        ("pruned, and one behind", vec![(&all, Fault::Limited), (&half, Fault::None)], (420, 0), ""),
    ] {
        let (dir, disk) = (scratch(), FaultDisk::healthy());
        let peers: Vec<_> = peers.iter().map(|(chain, fault)| ScriptedPeer::start(chain, *fault)).collect();
        let options = from(dir.path(), &peers.iter().collect::<Vec<_>>());
        let (found, reasons) = match run_on(&disk, &options, &AtomicBool::new(false)).0 {
            Ok(report) => {
                let shortfall = report.shortfall.unwrap_or_default();
                assert_eq!(report.chainstate_height, Some(report.height), "{what}");
                assert_eq!(shortfall.is_clock_behind, what == "clock");
                ((report.height.0, shortfall.claimed.0), shortfall.reasons.concat())
            }
            Err(error) => {
                assert_eq!((error.kind, error.remedies[0]), (ErrorKind::Environment, Remedy::NamePeer));
                (NONE, error.detail.clone())
            }
        };
        assert!(found == expected && reasons.contains(why), "{what}: {found:?}, {reasons}");
    }
}

/// All of them at once, with one whose longer chain has an invalid block, beside an honest one.
#[test]
fn all_kinds_of_peers_at_once_do_not_keep_the_download_from_its_end() {
    let main: Vec<_> = chain().main().cloned().collect();
    let (mut evil, at) = (main.clone(), main.len() - 10);
    evil[at] = greedy_sibling(&evil[at], 1);
    let onto = evil[at].hash;
    rebase(evil[at + 1..].iter_mut(), onto);
    let honest = serving(&main[..main.len() - 2]);
    let faults = CLOSED.iter().map(|(fault, ..)| *fault).chain(KEPT.iter().map(|(fault, _)| *fault));
    let mut peers: Vec<ScriptedPeer> = faults.map(|fault| ScriptedPeer::start(&honest, fault)).collect();
    peers.push(ScriptedPeer::start(&serving(&evil), Fault::None));
    peers.push(ScriptedPeer::start(&honest, Fault::None));
    let (dir, start) = (scratch(), Instant::now());
    let (report, seen) = run(&from(dir.path(), &peers.iter().collect::<Vec<_>>()));
    assert_synced_to(main.len() as u32 - 3, dir.path(), chain(), "all kinds of peers");
    assert_eq!(report.header_height, report.height);
    let reasons = seen.reasons(&peers[peers.len() - 1]);
    assert!(reasons.iter().all(|reason| reason == "no longer needed"), "the honest peer: {reasons:?}");
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
}

//! Peers send the coins that blocks spend (BIP 455). The result is that of a download without them, whatever
//! they send; who sends false or no coins is named.

use acceptance::{prelude::*, sync::run};
use disk::undo::{UndoArena, UndoView};
use testkit::verifiers::Deciding;

/// Options for a download that asks these peers for spent coins.
fn asking(root: &Path, peers: &[&ScriptedPeer]) -> SyncOptions {
    SyncOptions { spent_coins: true, ..from(root, peers) }
}

/// The peer that a report calls false, and the height.
fn false_coins(report: &SyncReport) -> Vec<(u32, String)> {
    let named = report.notes.iter().filter_map(|note| match note {
        Warning::FalseSpentCoins { height, peer, .. } => Some((height.0, peer.clone())),
        _ => None,
    });
    named.collect()
}

/// The same options, with a verifier that, like a signature, accepts only the coin that was really created.
fn with_scripts(mut options: SyncOptions) -> SyncOptions {
    static COINS: LazyLock<HashMap<OutPoint, (Sats, Vec<u8>)>> = LazyLock::new(|| {
        let (mut arena, mut undo_arena, mut coins) = <(BlockArena, UndoArena, HashMap<_, _>)>::default();
        for block in chain().main().skip(1) {
            let view = arena.parse(&block.bytes).unwrap();
            let undo = UndoView::parse(block.undo.as_ref().unwrap(), &mut undo_arena).unwrap();
            for (prevout, coin) in view.prevouts().zip(undo.coins()) {
                let ModelCoin { amount, script, .. } = ModelCoin::of(&coin);
                coins.insert(prevout, (Sats(amount), script));
            }
        }
        coins
    });
    let verifier = Deciding(|tx, coins| {
        tx.inputs().zip(coins).map(|(input, coin)| COINS[&input.prevout()] == *coin).collect()
    });
    options.chain.scripts = ScriptChecks::By(Arc::new(verifier));
    options
}

#[test]
fn all_coins_come_from_a_peer_and_the_result_is_the_same() {
    for threads in THREADS {
        for (memory_bytes, scripts) in [(192 << 20, true), (512 << 20, false)] {
            let what = format!("{threads} threads, {memory_bytes} bytes, scripts {scripts}");
            let (dir, peer) = (scratch(), honest());
            let mut options = asking(dir.path(), &[&peer]);
            if scripts {
                options = with_scripts(options);
            }
            options.chain.threads = NonZeroUsize::new(threads).unwrap();
            options.chain.memory_bytes = memory_bytes;
            let (report, seen) = run(&options);
            assert_sound(dir.path(), chain(), &what);
            let download = report.download;
            assert_eq!((download.blocks, download.blocks_with_coins), (TIP, TIP), "{what}");
            assert!(download.coins_bytes > 33 * u64::from(TIP), "{what}");
            assert_eq!((report.notes.len(), seen.notes_about(&peer).len()), (0, 0), "{what}");
            let rebuild = report.rebuild.unwrap();
            assert_eq!(rebuild.undo.unwrap().blocks, TIP, "{what}");
            let runs = rebuild.scripts.map(|scripts| scripts.inputs);
            assert_eq!(runs.is_some_and(|runs| runs > 0), scripts, "{what}");
            assert_eq!(peer.coins_asked() as u32, TIP, "{what}: one question for each block");
        }
    }
    let (dir, peer) = (scratch(), honest());
    let (report, _) = run(&from(dir.path(), &[&peer]));
    assert_eq!((report.download.blocks_with_coins, peer.coins_asked()), (0, 0), "they were not wanted");
}

#[test]
fn the_reference_code_of_the_draft_is_understood_and_so_is_its_absence() {
    for (fault, blocks) in [(Fault::ReferenceCoins, TIP), (Fault::OffersNoCoins, 0)] {
        let (dir, peer) = (scratch(), ScriptedPeer::start(&served(), fault));
        let (report, seen) = run(&asking(dir.path(), &[&peer]));
        assert_eq!(report.download.blocks_with_coins, blocks, "{fault:?}");
        assert_eq!(seen.reasons(&peer).len() + seen.notes_about(&peer).len(), 0, "{fault:?}");
        assert_synced(dir.path(), chain(), &format!("{fault:?}"));
    }
}

/// What is seen of a peer with a fault.
enum Named {
    /// It is closed for this.
    Closed(&'static str),
    /// A note says this.
    Noted(&'static str),
    /// The report calls its coins false.
    False,
}

const FAULTS: [(Fault, Named); 9] = [
    (Fault::FalseCoins, Named::False),
    (Fault::FalseScripts, Named::False),
    (Fault::SwappedCoins, Named::Closed("malformed spent coins: ")),
    (Fault::ShortCoins, Named::Closed("malformed spent coins: ")),
    (Fault::MalformedCoins, Named::Closed("malformed spent coins: ")),
    (Fault::ForeignCoins, Named::Closed("spent coins that were not asked for")),
    (Fault::LateCoins, Named::Noted("does not send those of its blocks")),
    (Fault::SilentCoins, Named::Noted("does not send those of its blocks")),
    (Fault::MuteCoins, Named::Noted("within 10 seconds")),
];

fn check_named(report: &SyncReport, seen: &Seen, peer: &ScriptedPeer, named: &Named, what: &str) {
    match named {
        Named::Closed(words) => {
            let reasons = seen.reasons(peer);
            assert!(reasons.iter().any(|reason| reason.contains(words)), "{what}: {reasons:?}");
        }
        Named::Noted(words) => {
            let notes = seen.notes_about(peer);
            assert!(notes.iter().any(|note| note.contains(words)), "{what}: {notes:?}");
        }
        Named::False => {
            let named = false_coins(report);
            let is_it = |(_, name): &(u32, String)| *name == peer.address().to_string();
            assert!(!named.is_empty() && named.iter().all(is_it), "{what}: {named:?}");
        }
    }
}

#[test]
fn a_faulty_peer_alone_or_beside_an_honest_one_is_named_and_does_no_harm() {
    thread::scope(|scope| {
        for (number, (fault, named)) in FAULTS.iter().enumerate() {
            scope.spawn(move || {
                for (threads, with, is_alone) in [(1, false, true), (8, true, true), (2, false, false)] {
                    let what = format!("{fault:?}, {threads} threads, scripts {with}, alone {is_alone}");
                    let (dir, good) = (scratch(), honest());
                    let faulty = ScriptedPeer::start(&served(), *fault);
                    let peers: &[_] = if is_alone { &[&faulty] } else { &[&faulty, &good] };
                    let mut options = asking(dir.path(), peers);
                    if *fault == Fault::MuteCoins {
                        options = impatient(options);
                    }
                    if with {
                        options = with_scripts(options);
                    }
                    options.chain.threads = NonZeroUsize::new(threads).unwrap();
                    options.peers.use_v2 = number % 2 == 0;
                    let started = Instant::now();
                    good.hold_at(20);
                    let (report, seen) = run_while(&options, |_| {
                        wait_until(&what, || faulty.asked().len() >= 20);
                        good.hold_at(usize::MAX);
                    });
                    assert_sound(dir.path(), chain(), &what);
                    check_named(&report, &seen, &faulty, named, &what);
                    assert_eq!(seen.notes_about(&good).len(), 0, "{what}");
                    let closed = seen.reasons(&good);
                    assert!(closed.iter().all(|reason| !reason.contains("coins")), "{what}: {closed:?}");
                    assert!(started.elapsed() < Duration::from_secs(50), "{what}: the download stalled");
                }
            });
        }
    });
}

#[test]
fn the_first_false_block_is_named() {
    let (dir, peer) = (scratch(), ScriptedPeer::start(&served(), Fault::FalseCoins));
    let (report, _) = run(&asking(dir.path(), &[&peer]));
    let spends = |undo: &[u8]| {
        let mut arena = UndoArena::default();
        UndoView::parse(undo, &mut arena).unwrap().coin_count() > 0
    };
    let first = chain().main().skip(1).find(|block| spends(block.undo.as_ref().unwrap())).unwrap();
    let [(height, ref name)] = false_coins(&report)[..] else { panic!("named once: {:?}", report.notes) };
    assert_eq!((height, name), (first.height, &peer.address().to_string()));
    assert_sound(dir.path(), chain(), "false coins");
    assert!(report.rebuild.unwrap().undo.unwrap().blocks > 0);
}

/// Blocks come from a peer without coins too; some of their coins come from the other one.
#[test]
fn coins_are_asked_of_another_peer_than_the_block() {
    let (dir, plain) = (scratch(), ScriptedPeer::start(&served(), Fault::OffersNoCoins));
    let offering = honest();
    let options = asking(dir.path(), &[&plain, &offering]);
    // The other one holds its own blocks, and so all that is asked behind them.
    let (report, seen) = run(&options);
    let sent = offering.asked().len() as u32;
    assert!(report.download.blocks_with_coins >= sent.min(TIP), "{:?}, {sent}", report.download);
    assert_eq!(seen.notes_about(&offering).len() + seen.notes_about(&plain).len(), 0);
    assert_sound(dir.path(), chain(), "two peers");
}

#[test]
fn an_interrupted_download_with_coins_goes_on() {
    for (number, checkpoint) in [(0, true), (1, false), (2, true)] {
        let (dir, peer) = (scratch(), honest());
        let mut options = asking(dir.path(), &[&peer]);
        if checkpoint {
            options.chain.resume.checkpoint_interval = Duration::ZERO;
        }
        let blocks = 40 + 40 * number;
        interrupt_at(&options, &peer, blocks, Duration::from_secs(1));
        assert_index_is_true(dir.path(), "interrupted");
        let (report, _) = run(&options);
        assert_eq!(report.download.blocks_with_coins, report.download.blocks);
        assert!(report.download.blocks < TIP);
        assert_sound(dir.path(), chain(), &format!("after {blocks} blocks"));
    }
}

/// The interrupted run had false coins; the next one has none of them.
#[test]
fn a_run_that_had_false_coins_is_resumed_beside_an_honest_peer() {
    for threads in [1, 8] {
        let (dir, peer) = (scratch(), ScriptedPeer::start(&served(), Fault::FalseCoins));
        let mut options = asking(dir.path(), &[&peer]);
        options.chain.resume.checkpoint_interval = Duration::ZERO;
        options.chain.threads = NonZeroUsize::new(threads).unwrap();
        interrupt_at(&options, &peer, 130, Duration::from_secs(1));
        let good = honest();
        let next = SyncOptions { peers: from(dir.path(), &[&good]).peers, ..options };
        let (report, seen) = run(&next);
        assert_eq!(seen.notes_about(&good).len() + false_coins(&report).len(), 0);
        assert_sound(dir.path(), chain(), &format!("{threads} threads, resumed"));
    }
}

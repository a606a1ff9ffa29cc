//! Tests of the header state machine with small chains.

use super::*;

/// Returns headers of a chain above the zero hash; `salt` makes chains differ from height `fork` on.
fn chain(len: usize, fork: usize, salt: u32) -> Vec<Header> {
    let mut prev = BlockHash::default();
    let make = |height: usize| {
        let nonce = if height >= fork { salt } else { 0 };
        let header = Header { prev, nonce, ..Header::default() };
        prev = header.hash();
        header
    };
    (0..len).map(make).collect()
}

fn hashes(chain: &[Header]) -> Vec<BlockHash> {
    chain.iter().map(Header::hash).collect()
}

fn locator(hashes: &[BlockHash]) -> Vec<BlockHash> {
    locator_heights(hashes.len() as u32 - 1).into_iter().map(|height| hashes[height as usize]).collect()
}

/// What an honest peer answers.
fn answer(chain: &[Header], locator: &[BlockHash]) -> Vec<Header> {
    let hashes = hashes(chain);
    let start =
        locator.iter().find_map(|hash| hashes.iter().position(|known| known == hash)).unwrap_or(0) + 1;
    chain.iter().skip(start).take(MAX_HEADERS).copied().collect()
}

/// Lets peers with these chains answer until the caller has all headers. Returns whose batches came, and the
/// best chain.
fn sync_all(sync: &mut HeaderSync, chains: &[&[Header]], now: Instant) -> (Vec<PeerId>, Vec<BlockHash>) {
    let (mut batches, mut best) = (Vec::new(), vec![chains[0][0].hash()]);
    while !sync.is_complete_after(REPLY_TIMEOUT, now) {
        let requests = sync.poll(now);
        assert!(!requests.is_empty(), "nothing is asked although it is not complete");
        for request in requests {
            let reply = answer(chains[request.peer.0 as usize], &request.locator);
            let Some(batch) = sync.receive(request.peer, reply).unwrap() else { continue };
            batches.push(request.peer);
            let at =
                best.iter().position(|hash| *hash == batch.parent).expect("it connects to the best chain");
            let known = best.len();
            if at + 1 + batch.hashes.len() > known {
                best.truncate(at + 1);
                best.extend(&batch.hashes);
            }
            let height = (at + batch.hashes.len()) as u32;
            sync.accept(request.peer, height, best.len().saturating_sub(known), locator(&best));
        }
    }
    (batches, best)
}

#[test]
fn locators_are_those_of_core() {
    assert_eq!(locator_heights(0), [0]);
    assert_eq!(locator_heights(3), [3, 2, 1, 0]);
    assert_eq!(locator_heights(30), [30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 17, 13, 5, 0]);
    assert!(locator_heights(u32::MAX).len() <= 43);
}

/// Three peers: the nearest leads, then the others are asked from the tip; one has a longer fork.
#[test]
fn all_peers_are_asked_from_the_leaders_tip() {
    let now = Instant::now();
    let (short, long) = (chain(4_500, usize::MAX, 0), chain(4_700, 4_400, 1));
    let mut sync = HeaderSync::new(vec![short[0].hash()]);
    for (id, round_trip) in [(0, 80), (1, 20), (2, 50)] {
        sync.add_peer(PeerId(id), Duration::from_millis(round_trip));
    }
    let (batches, best) = sync_all(&mut sync, &[&short, &short, &long], now);
    assert_eq!(best.last(), Some(&long[4_699].hash()));
    assert_eq!(batches, [1, 1, 1, 2].map(PeerId), "peer 0 has nothing new");
    assert_eq!(sync.finished_peers(), 3);
    sync.restart(locator(&best));
    assert_eq!(sync.poll(now).len(), 3);
}

/// What does not connect any more, because the chain has changed, says nothing of what the peer has.
#[test]
fn a_batch_that_does_not_connect_any_more_is_asked_for_again() {
    let now = Instant::now();
    let headers = chain(10, usize::MAX, 0);
    let genesis = headers[0].hash();
    let mut sync = HeaderSync::new(vec![headers[4].hash(), genesis]);
    sync.add_peer(PeerId(1), Duration::ZERO);
    for times in 1.. {
        let requests = sync.poll(now);
        assert_eq!(requests[0].locator.last(), Some(&genesis));
        assert!(sync.receive(PeerId(1), headers[5..].to_vec()).unwrap().is_some());
        sync.ask_again(PeerId(1), vec![headers[4].hash(), genesis]);
        assert_eq!(sync.is_complete_after(REPLY_TIMEOUT, now), times == MAX_STALE_BATCHES, "{times} times");
        if sync.is_complete_after(REPLY_TIMEOUT, now) {
            break;
        }
    }
}

/// Its headers were lost with the branch, and when it sent them again, they seemed to lead no further.
#[test]
fn a_peer_that_begins_its_branch_anew_is_asked_to_the_end() {
    let (now, headers) = (Instant::now(), chain(5 * MAX_HEADERS + 1, usize::MAX, 0));
    let genesis = vec![headers[0].hash()];
    let mut sync = HeaderSync::new(genesis.clone());
    sync.add_peer(PeerId(1), Duration::ZERO);
    for (batch, is_lost) in
        [(0, false), (1, false), (2, false), (3, false), (4, true), (0, false), (1, false)]
    {
        assert_eq!(sync.poll(now).len(), 1, "batch {batch}");
        let end = (batch + 1) * MAX_HEADERS;
        let reply = headers[end - MAX_HEADERS + 1..=end].to_vec();
        assert!(sync.receive(PeerId(1), reply).unwrap().is_some());
        match is_lost {
            true => sync.ask_again(PeerId(1), genesis.clone()),
            false => sync.accept(PeerId(1), end as u32, MAX_HEADERS, genesis.clone()),
        }
        assert!(!sync.has_finished(PeerId(1)), "batch {batch}");
    }
}

#[test]
fn a_silent_leader_is_replaced() {
    let now = Instant::now();
    let mut sync = HeaderSync::new(vec![BlockHash([1; 32])]);
    sync.add_peer(PeerId(1), Duration::from_millis(10));
    sync.add_peer(PeerId(2), Duration::from_millis(20));
    assert_eq!(sync.poll(now)[0].peer, PeerId(1));
    assert_eq!(sync.poll(now + *LEADER_PATIENCE.start() / 2), []);
    assert_eq!(sync.poll(now + *LEADER_PATIENCE.start())[0].peer, PeerId(2));
    sync.remove_peer(PeerId(2));
    assert_eq!(sync.poll(now + REPLY_TIMEOUT), [], "the silent one is left alone for a while");
    assert_eq!(sync.poll(now + REPLY_TIMEOUT + SILENT_RETRY)[0].peer, PeerId(1));
    assert!(!sync.is_complete_after(REPLY_TIMEOUT, now));
}

#[test]
fn a_leader_that_was_slow_has_more_time_for_the_next_batch() {
    let (start, headers) = (Instant::now(), chain(MAX_HEADERS + 1, usize::MAX, 0));
    let hashes = hashes(&headers);
    let mut sync = HeaderSync::new(locator(&hashes[..1]));
    sync.add_peer(PeerId(1), Duration::ZERO);
    assert_eq!(sync.poll(start).len(), 1);
    let late = start + *LEADER_PATIENCE.start();
    assert_eq!(sync.poll(late), []);
    assert!(sync.receive(PeerId(1), headers[1..].to_vec()).unwrap().is_some());
    sync.accept(PeerId(1), MAX_HEADERS as u32, MAX_HEADERS, locator(&hashes));
    sync.add_peer(PeerId(2), Duration::ZERO);
    assert_eq!(sync.poll(late)[0].peer, PeerId(1));
    assert_eq!(sync.poll(late + *LEADER_PATIENCE.start()), []);
}

/// One that answered just in time kept the lead: all headers of mainnet took 40 minutes.
#[test]
fn headers_come_as_fast_as_the_fastest_peer_sends_them() {
    let (start, headers) = (Instant::now(), chain(10 * MAX_HEADERS + 1, usize::MAX, 0));
    let (hashes, step) = (hashes(&headers), Duration::from_millis(50));
    let times = [step * 98, step];
    let mut sync = HeaderSync::new(locator(&hashes[..1]));
    (0..2).for_each(|id| sync.add_peer(PeerId(id), Duration::from_millis(10 + id)));
    let (mut now, mut known, mut answers) = (start, 0, BTreeMap::new());
    while known + 1 < headers.len() {
        for HeaderRequest { peer, locator } in sync.poll(now) {
            let known = |hash: &BlockHash| hashes.iter().position(|known| known == hash);
            answers.insert((now + times[peer.0 as usize], peer), locator.iter().find_map(known).unwrap());
        }
        now += step;
        while let Some(answer) = answers.first_entry().filter(|answer| answer.key().0 <= now) {
            let ((_, peer), from) = answer.remove_entry();
            let end = (from + MAX_HEADERS).min(headers.len() - 1);
            assert!(sync.receive(peer, headers[from + 1..=end].to_vec()).unwrap().is_some());
            let new = end.saturating_sub(known);
            known += new;
            sync.accept(peer, end as u32, new, locator(&hashes[..=known]));
        }
    }
    assert!(now - start < Duration::from_secs(3), "{:?}", now - start);
}

#[test]
fn wrong_headers_are_faults_of_the_peer() {
    let now = Instant::now();
    let good = chain(10, usize::MAX, 0);
    let ask = || {
        let mut sync = HeaderSync::new(vec![good[0].hash()]);
        sync.add_peer(PeerId(1), Duration::ZERO);
        assert_eq!(sync.receive(PeerId(1), good[1..].to_vec()), Ok(None), "stray headers are ignored");
        assert_eq!(sync.poll(now).len(), 1);
        sync
    };
    assert_eq!(ask().receive(PeerId(1), good[2..].to_vec()), Err(HeaderFault::NotConnected));
    let gap = [&good[1..4], &good[5..]].concat();
    assert_eq!(ask().receive(PeerId(1), gap), Err(HeaderFault::NotContinuous { at: 3 }));
    assert_eq!(ask().receive(PeerId(9), good[1..].to_vec()), Ok(None));
    let mut sync = ask();
    let batch = sync.receive(PeerId(1), good[1..].to_vec()).unwrap().unwrap();
    assert_eq!((batch.parent, batch.headers.len()), (good[0].hash(), 9));
    assert_eq!(batch.hashes, hashes(&good)[1..]);
    sync.remove_peer(PeerId(1));
    assert!(!sync.is_complete_after(REPLY_TIMEOUT, now) && sync.poll(now).is_empty());
}

#[test]
fn a_peer_that_repeats_itself_is_not_asked_for_ever() {
    let now = Instant::now();
    let headers = chain(MAX_HEADERS + 1, usize::MAX, 0);
    let genesis = headers[0].hash();
    // Of two branches that it sends in turns, each replaces the other, and has new headers every time.
    for new_again in [0, 1] {
        let mut sync = HeaderSync::new(vec![genesis]);
        sync.add_peer(PeerId(1), Duration::ZERO);
        for batches in 0.. {
            if sync.poll(now).is_empty() {
                assert_eq!(batches, 4, "one batch with news and three without");
                break;
            }
            // The locator always has the genesis block, so that the same batch connects again and again.
            let batch = sync.receive(PeerId(1), headers[1..].to_vec()).unwrap().unwrap();
            let new = if batches == 0 { batch.headers.len() } else { new_again };
            sync.accept(PeerId(1), MAX_HEADERS as u32, new, vec![genesis]);
        }
        assert!(sync.is_complete_after(REPLY_TIMEOUT, now));
    }
}

/// A peer that had sent a branch in part and then vanished kept the others from sending the rest.
#[test]
fn a_peer_goes_on_in_a_branch_of_which_many_batches_are_known() {
    let (now, headers) = (Instant::now(), chain(6 * MAX_HEADERS + 1, usize::MAX, 0));
    let (hashes, known) = (hashes(&headers), 5 * MAX_HEADERS);
    let mut sync = HeaderSync::new(locator(&hashes[..1]));
    sync.add_peer(PeerId(1), Duration::ZERO);
    let mut end = 0;
    while let [request] = &sync.poll(now)[..] {
        let batch = sync.receive(PeerId(1), answer(&headers, &request.locator)).unwrap();
        let Some(batch) = batch else { break };
        end = hashes.iter().position(|hash| Some(hash) == batch.hashes.last()).unwrap();
        sync.accept(PeerId(1), end as u32, end.saturating_sub(known), locator(&hashes[..1]));
    }
    assert_eq!(end, 6 * MAX_HEADERS);
}

/// A leader that hides its headers does not make all others send the same ones.
#[test]
fn a_peer_with_many_more_headers_leads_alone() {
    let now = Instant::now();
    let long = chain(3 * MAX_HEADERS + 500, usize::MAX, 0);
    let mut sync = HeaderSync::new(vec![long[0].hash()]);
    (0..5).for_each(|id| sync.add_peer(PeerId(id), Duration::from_millis(id)));
    let liar = sync.poll(now);
    assert_eq!(sync.receive(liar[0].peer, vec![]), Ok(None));
    let (batches, best) = sync_all(&mut sync, &[long.as_slice(); 5], now);
    assert_eq!(best.len(), long.len());
    assert!(batches.len() <= 4 + 3, "{batches:?}: 4 of one peer, and the first of three others");
}

/// A peer needs hours for a branch with little work, a batch at a time. The others are asked meanwhile.
#[test]
fn at_the_tip_no_peer_leads_alone() {
    let now = Instant::now();
    let headers = chain(MAX_HEADERS + 1, usize::MAX, 0);
    let hashes = hashes(&headers);
    let mut sync = HeaderSync::new(locator(&hashes[..1]));
    sync.hear_announcements();
    (1..3).for_each(|id| sync.add_peer(PeerId(id), Duration::ZERO));
    assert_eq!(sync.poll(now).len(), 2);
    assert!(sync.receive(PeerId(1), headers[1..].to_vec()).unwrap().is_some());
    assert_eq!(sync.receive(PeerId(2), vec![]), Ok(None));
    sync.accept(PeerId(1), MAX_HEADERS as u32, MAX_HEADERS, locator(&hashes));
    sync.restart(locator(&hashes));
    let asked: Vec<_> = sync.poll(now).iter().map(|request| request.peer).collect();
    assert_eq!(asked, [PeerId(1), PeerId(2)]);
}

/// At the tip, a peer sends headers unasked, or names a block: then it is asked, at most once in a second.
#[test]
fn announcements_are_batches_or_cause_a_request() {
    let now = Instant::now();
    let headers = chain(6, usize::MAX, 0);
    let hashes = hashes(&headers);
    let finished = |hears: bool| {
        let mut sync = HeaderSync::new(locator(&hashes[..5]));
        if hears {
            sync.hear_announcements();
        }
        sync.add_peer(PeerId(1), Duration::ZERO);
        assert_eq!(sync.poll(now).len(), 1);
        assert_eq!(sync.receive(PeerId(1), vec![]), Ok(None));
        sync
    };
    let mut deaf = finished(false);
    deaf.named(PeerId(1), &hashes[5]);
    assert_eq!((deaf.receive(PeerId(1), headers[5..].to_vec()), deaf.poll(now)), (Ok(None), vec![]));

    let mut sync = finished(true);
    let batch = sync.receive(PeerId(1), headers[5..].to_vec()).unwrap().unwrap();
    assert_eq!((batch.parent, batch.hashes.as_slice()), (hashes[4], &hashes[5..]));
    sync.accept(PeerId(1), 5, 1, locator(&hashes));
    // What does not connect is for the caller to say, who has all blocks.
    let unknown = chain(9, 6, 1).split_off(8);
    let batch = sync.receive(PeerId(1), unknown).unwrap().unwrap();
    sync.ask_again(batch.peer, locator(&hashes));
    assert_eq!(sync.poll(now).len(), 1);
    assert_eq!(sync.receive(PeerId(1), vec![]), Ok(None));
    // Nor is an announcement lost that comes while the one before is checked.
    let later = now + ANNOUNCED_INTERVAL;
    assert!(sync.receive(PeerId(1), headers[5..].to_vec()).unwrap().is_some());
    assert_eq!(sync.receive(PeerId(1), chain(9, 6, 1).split_off(8)), Ok(None));
    sync.accept(PeerId(1), 5, 0, locator(&hashes));
    assert_eq!((sync.poll(now).len(), sync.poll(later).len()), (0, 1));
    assert_eq!(sync.receive(PeerId(1), vec![]), Ok(None));
    // One that crosses our question does not follow the locator. It once cost an honest peer its connection.
    sync.named(PeerId(1), &chain(9, 6, 1)[8].hash());
    let later = later + ANNOUNCED_INTERVAL;
    assert_eq!(sync.poll(later).len(), 1);
    assert_eq!(sync.receive(PeerId(1), chain(9, 6, 1).split_off(8)), Ok(None));
    assert_eq!(sync.receive(PeerId(1), vec![]), Ok(None));
    assert_eq!((sync.poll(later).len(), sync.poll(later + ANNOUNCED_INTERVAL).len()), (0, 1));
    assert_eq!(sync.receive(PeerId(1), vec![]), Ok(None));
    // Headers that do not follow each other are a fault.
    let gap = vec![headers[4], headers[2]];
    assert_eq!(sync.receive(PeerId(1), gap), Err(HeaderFault::NotContinuous { at: 1 }));

    let mut sync = finished(true);
    sync.named(PeerId(1), &hashes[4]);
    assert_eq!(sync.poll(now), [], "the block is known");
    let mut asked = 0;
    for millis in 0..2_500 {
        sync.named(PeerId(1), &hashes[5]);
        asked += sync.poll(now + Duration::from_millis(millis)).len();
        assert_eq!(sync.receive(PeerId(1), vec![]), Ok(None));
    }
    assert_eq!(asked, 3);
}

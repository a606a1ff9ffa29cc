//! The client against scripted peers over loopback sockets.

use crate::common::{chain::of_sizes, *};
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
};
use testkit::sockets::{listen, relay, socks_proxy};

fn driver(chain: &Arc<ServedChain>, use_v2: bool, peers: &[&ScriptedPeer]) -> Driver {
    let mut driver = Driver::new(chain, |options| options.pool.peers.use_v2 = use_v2);
    peers.iter().for_each(|peer| driver.add(peer));
    driver
}

#[test]
fn everything_is_downloaded_once_from_several_peers() {
    let chain = tiny(4_500, 3_000);
    let peers: Vec<ScriptedPeer> = (0..3).map(|_| ScriptedPeer::start(&chain, Fault::None)).collect();
    for use_v2 in [false, true] {
        let mut driver = driver(&chain, use_v2, &peers.iter().collect::<Vec<_>>());
        driver.run_until("three peers", |driver| driver.ready.len() == 3);
        driver.download_all();
        let expected = if use_v2 { TransportVersion::V2 } else { TransportVersion::V1 };
        assert!(driver.ready.iter().all(|(version, _)| *version == expected));
        assert_eq!(driver.ready[0].1, "/Scripted:131m/", "the user agent is sanitised");
        let totals = driver.client.download.totals();
        assert!(totals.duplicate_bytes * 50 <= totals.bytes, "{totals:?}");
        assert_eq!((totals.blocks, driver.known.len(), driver.closed.len()), (4_499, 4_500, 0));
    }
}

#[test]
fn a_peer_that_knows_only_version_1_is_dialled_again() {
    let chain = tiny(50, 2_000);
    let peer = ScriptedPeer::start(&chain, Fault::OnlyV1);
    let mut driver = driver(&chain, true, &[&peer]);
    driver.download_all();
    assert_eq!(driver.ready[0].0, TransportVersion::V1);
    assert_eq!(driver.reason(&peer), Some(&CloseReason::ClosedByPeer));
    assert_eq!(peer.accepted(), 2);
}

/// A firewall lets only version 1 pass: a peer behind it was dialled with version 2 for ever.
#[test]
fn version_1_follows_version_2_that_gets_no_answer() {
    let chain = tiny(50, 2_000);
    let peer = ScriptedPeer::start(&chain, Fault::None);
    let address = peer.address();
    let firewall = listen(move |mut socket| {
        let mut first = [0; 4];
        socket.peek(&mut first)?;
        match first == Network::Regtest.magic() {
            true => relay(&socket, &socket, &TcpStream::connect(address)?),
            false => io::copy(&mut socket, &mut io::sink()).map(drop),
        }
    });
    let mut driver = driver(&chain, true, &[]);
    driver.client.dialer.add_target(Target::Address(PeerAddress::from_socket(firewall)), false);
    driver.idle_time = Duration::from_secs(1);
    driver.run_until("the handshake", |driver| !driver.ready.is_empty());
    driver.idle_time = Duration::ZERO;
    driver.download_all();
    assert_eq!(driver.ready[0].0, TransportVersion::V1);
}

#[test]
fn odd_but_allowed_peers_are_served() {
    let chain = tiny(300, 2_000);
    let odd = Fault::IN_BYTES.into_iter().filter(|fault| fault.end() == End::Kept && *fault != Fault::OnlyV1);
    for (fault, use_v2) in odd.flat_map(|fault| [(fault, false), (fault, true)]) {
        if use_v2 && fault.is_of_v1() {
            continue;
        }
        let peer = ScriptedPeer::start(&chain, fault);
        let mut driver = driver(&chain, use_v2, &[&peer]);
        driver.download_all();
        assert_eq!(driver.closed, [], "{fault:?}");
    }
}

/// After so many small blocks, all large ones are asked for at once: no further request makes the peer look.
#[test]
fn a_peer_whose_send_buffer_was_full_is_woken() {
    let sizes = (0..1_000).map(|_| 300).chain((0..30).map(|_| 400_000));
    let chain = of_sizes(sizes);
    for use_v2 in [false, true] {
        let peer = ScriptedPeer::start(&chain, Fault::WaitsWhenFull);
        let mut driver = driver(&chain, use_v2, &[&peer]);
        driver.download_all();
        assert_eq!((driver.client.download.totals().blocks, driver.closed.len()), (1_029, 0));
        assert_eq!(peer.accepted(), 1);
    }
}

/// Each is alone at first. Then an honest one helps.
#[test]
fn peers_that_break_the_protocol_or_send_too_little_are_closed_for_it() {
    let chain = tiny(100, 2_000);
    // Alone, a peer that stalls after some blocks is too slow before it is silent for long enough; and there
    // are no witnesses.
    let shows = |fault: &Fault| !matches!(fault, Fault::Stall(3) | Fault::Strips);
    let answers = Fault::IN_ANSWERS.into_iter().filter(shows);
    let faults = answers.chain(Fault::IN_BYTES);
    for (fault, use_v2) in faults.flat_map(|fault| [(fault, false), (fault, true)]) {
        let (End::Closed(words) | End::ClosedLate(words)) = fault.end() else { continue };
        if use_v2 && fault.is_of_v1() {
            continue;
        }
        let faulty = ScriptedPeer::start(&chain, fault);
        let mut driver = driver(&chain, use_v2, &[&faulty]);
        if matches!(fault.end(), End::ClosedLate(_)) {
            let is_open = |driver: &Driver| fault == Fault::Mute || !driver.ready.is_empty();
            driver.run_until("the handshake", is_open);
            driver.idle_time = Duration::from_secs(1);
        }
        driver.run_until(&format!("{fault:?} closed"), |driver| driver.reason(&faulty).is_some());
        let reason = driver.reason(&faulty).unwrap().to_string();
        assert!(reason.contains(words), "{fault:?}, version 2: {use_v2}: {reason}");
        driver.idle_time = Duration::ZERO;
        let honest = ScriptedPeer::start(&chain, Fault::None);
        driver.add(&honest);
        driver.download_all();
        assert!(driver.reason(&honest).is_none(), "{fault:?}: the honest peer was closed");
    }
}

#[test]
fn a_flood_of_addresses_adds_few() {
    let chain = tiny(20, 500);
    let peer = ScriptedPeer::start(&chain, Fault::AddressFlood);
    let mut driver = Driver::new(&chain, |options| {
        options.only_user_targets = false;
        // Nothing of what the peer sends is dialled.
        options.pool.peers.networks = vec![];
    });
    driver.add(&peer);
    driver.download_all();
    driver.run_until("addresses", |driver| driver.client.dialer.table.len() == 64);
    (0..20).for_each(|_| driver.step());
    assert_eq!(driver.client.dialer.table.len(), 64);
}

/// They kept their places, so that nobody else was dialled.
#[test]
fn peers_that_were_found_and_have_no_more_headers_can_be_replaced() {
    let chain = tiny(2, 500);
    let peers = [(); 3].map(|()| ScriptedPeer::start(&chain, Fault::None));
    let mut driver = driver(&chain, false, &[&peers[0]]);
    // A seed is nobody that the user has named.
    peers[1..].iter().for_each(|peer| driver.client.dialer.add_target(peer.target(), true));
    driver.run_until("no more headers", |driver| driver.client.headers.finished_peers() == 3);
    let (download, pool) = (&driver.client.download, &driver.client.pool);
    let ids = download.peers().map(|(id, _)| id);
    let kept: Vec<_> = ids.filter(|id| pool.target(*id) == Some(&peers[2].target())).collect();
    driver.client.replace_finished(|id| kept.contains(&id));
    driver.step();
    assert_eq!(driver.closed, [(peers[1].target(), CloseReason::NotNeeded)]);
    // The others are asked again, so that it is not known whether they have more.
    driver.client.headers.restart(driver.known.iter().rev().copied().collect());
    driver.client.replace_finished(|_| false);
    driver.step();
    assert_eq!(driver.closed.len(), 1);
}

/// It held up to two megabytes: a few such peers stopped the reading of all others.
#[test]
fn a_peer_that_does_not_read_holds_little_memory() {
    let chain = tiny(2, 500);
    let peer = ScriptedPeer::start(&chain, Fault::PingFlood);
    let mut driver = driver(&chain, false, &[&peer]);
    driver.run_until("closed", |driver| driver.reason(&peer).is_some());
    assert_eq!(driver.reason(&peer), Some(&CloseReason::DoesNotRead));
    assert!(driver.most_memory <= 512 << 10, "{}", driver.most_memory);
}

#[test]
fn a_proxy_gets_names_and_other_credentials_each_time() {
    let chain = tiny(50, 2_000);
    let peer = ScriptedPeer::start(&chain, Fault::None);
    let (address, requests) = socks_proxy(peer.address());
    let mut driver = Driver::new(&chain, |options| options.pool.peers.proxy = Some(address));
    let names = ["seed.invalid", "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion"];
    names
        .iter()
        .for_each(|name| driver.client.dialer.add_target(Target::Name((*name).to_owned(), 8333), false));
    driver.run_until("two connections", |driver| driver.ready.len() == 2);
    driver.download_all();
    let requests = requests.lock().unwrap();
    let mut asked: Vec<&str> = requests.iter().map(|(_, _, name)| name.as_str()).collect();
    asked.sort_unstable();
    assert_eq!(asked, [format!("{}:8333", names[1]), format!("{}:8333", names[0])]);
    assert_ne!((&requests[0].0, &requests[0].1), (&requests[1].0, &requests[1].1));
}

mod long {
    use super::*;

    /// While others had their turn, a peer was not read, and closed for its silence.
    #[test]
    fn peers_are_not_closed_for_pauses_of_this_program() {
        let chain = tiny(10, 300_000);
        let peers: Vec<ScriptedPeer> = (0..10).map(|_| ScriptedPeer::start(&chain, Fault::None)).collect();
        let mut driver = Driver::new(&chain, |options| options.pool.peers.bytes_per_second = Some(120_000));
        peers.iter().for_each(|peer| driver.add(peer));
        driver.download_all();
        let asked: usize = peers.iter().map(|peer| peer.asked().len()).sum();
        assert_eq!((&*driver.closed, asked), (&[] as &[_], 9));
    }
}

#[test]
fn the_caller_resolves_names_without_a_proxy() {
    let chain = tiny(2, 500);
    let peer = ScriptedPeer::start(&chain, Fault::None);
    let mut driver = Driver::new(&chain, |_| ());
    let name = Target::Name("seed.invalid".to_owned(), 8333);
    driver.client.dialer.add_target(name.clone(), false);
    driver.step();
    assert_eq!(driver.client.dialer.unresolved(driver.client.pool.now()), std::slice::from_ref(&name));
    let dead = Target::Address(PeerAddress::from_socket(unused()));
    driver.client.dialer.resolved(&name, &[dead.clone(), peer.target()], driver.client.pool.now());
    driver.download_all();
    assert_eq!(driver.closed, [(dead, CloseReason::Connect(std::io::ErrorKind::ConnectionRefused))]);
    assert_eq!(driver.client.dialer.named(&peer.target()), Some(&name));
}

#[test]
fn memory_stays_within_its_limit() {
    let chain = tiny(120, 900_000);
    let peers: Vec<ScriptedPeer> = (0..8).map(|_| ScriptedPeer::start(&chain, Fault::None)).collect();
    let mut driver = Driver::new(&chain, |options| options.pool.memory_bytes = 12 << 20);
    driver.hold = 8;
    peers.iter().for_each(|peer| driver.add(peer));
    driver.download_all();
    // Buffers for sending are beyond the limit.
    assert!(driver.most_memory <= 13 << 20, "{}", driver.most_memory);
    assert!(driver.closed.is_empty(), "{:?}", driver.closed);
}

/// An address on which nobody listens.
fn unused() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A peer was blamed for its proxy.
#[test]
fn what_refuses_is_named() {
    for is_proxy in [false, true] {
        let (chain, address) = (tiny(2, 500), unused());
        let mut driver =
            Driver::new(&chain, |options| options.pool.peers.proxy = is_proxy.then_some(address));
        driver.client.dialer.add_target(Target::Address(PeerAddress::from_socket(address)), false);
        driver.run_until("refused", |driver| !driver.closed.is_empty());
        let expected = match is_proxy {
            true => format!("the proxy at {address} cannot be reached: connection refused"),
            false => "could not connect: connection refused".to_owned(),
        };
        assert_eq!(driver.closed[0].1.to_string(), expected);
    }
}

//! The client against scripted peers over loopback sockets.

use crate::common;

use common::{
    chain::{of_sizes, tiny},
    drive::{Driver, options},
    proxy,
};
use peregrine_net::{
    addresses::Source,
    frame::FrameError,
    handshake::HandshakeError,
    headers::HeaderFault,
    message::{AddressRecord, MessageError, Services},
    peer::CloseReason,
    pool::Target,
    transport::{TransportError, TransportVersion},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testkit::peer::{Fault, ScriptedPeer, ServedChain};

const LIMIT: Duration = Duration::from_secs(90);

fn chain(count: usize, size: usize) -> Arc<ServedChain> {
    Arc::new(tiny(count, size))
}

fn driver(chain: &Arc<ServedChain>, use_v2: bool, peers: &[&ScriptedPeer]) -> Driver {
    let mut options = options();
    options.use_v2 = use_v2;
    let mut driver = Driver::new(chain, options);
    peers.iter().for_each(|peer| driver.add(peer));
    driver
}

#[test]
fn everything_is_downloaded_once_from_several_peers() {
    let chain = chain(4_500, 3_000);
    let peers: Vec<ScriptedPeer> = (0..3).map(|_| ScriptedPeer::start(&chain, Fault::None)).collect();
    for use_v2 in [false, true] {
        let mut driver = driver(&chain, use_v2, &peers.iter().collect::<Vec<_>>());
        driver.run_until(LIMIT, "three peers", |driver| driver.ready.len() == 3);
        driver.download_all(LIMIT);
        let expected = if use_v2 { TransportVersion::V2 } else { TransportVersion::V1 };
        assert!(driver.ready.iter().all(|(_, _, version, _)| *version == expected));
        assert_eq!(driver.ready[0].3, "/Scripted:131m/", "the user agent is sanitised");
        let totals = driver.client.download().totals();
        assert!(totals.duplicate_bytes * 50 <= totals.bytes, "{totals:?}");
        assert_eq!((totals.blocks, driver.known.len(), driver.closed.len()), (4_499, 4_500, 0));
    }
}

#[test]
fn a_peer_that_knows_only_version_1_is_dialled_again() {
    let chain = chain(50, 2_000);
    let peer = ScriptedPeer::start(&chain, Fault::OnlyV1);
    let mut driver = driver(&chain, true, &[&peer]);
    driver.download_all(LIMIT);
    assert_eq!(driver.ready[0].2, TransportVersion::V1);
    assert_eq!(driver.reason(&peer), Some(&CloseReason::ClosedByPeer));
    assert_eq!(peer.accepted(), 2);
}

#[test]
fn odd_but_allowed_peers_are_served() {
    let chain = chain(300, 2_000);
    for fault in [Fault::EarlyMessages, Fault::WrongChecksum, Fault::Chatter, Fault::SplitBytes] {
        for use_v2 in [false, true] {
            if use_v2 && fault == Fault::WrongChecksum {
                continue;
            }
            let peer = ScriptedPeer::start(&chain, fault);
            let mut driver = driver(&chain, use_v2, &[&peer]);
            driver.download_all(LIMIT);
            assert_eq!(driver.closed, [], "{fault:?}");
        }
    }
}

/// Each peer with a fault is alone at first, until it is closed or for three seconds. Then an honest one
/// helps: the download ends, and the faulty peer was closed for what it did.
/// After so many small blocks, all large ones are asked for at once: no further request makes the peer look.
#[test]
fn a_peer_whose_send_buffer_was_full_is_woken() {
    let sizes = (0..1_000).map(|_| 300).chain((0..30).map(|_| 400_000));
    let chain = Arc::new(of_sizes(sizes));
    for use_v2 in [false, true] {
        let peer = ScriptedPeer::start(&chain, Fault::WaitsWhenFull);
        let mut options = options();
        options.use_v2 = use_v2;
        let mut driver = Driver::new(&chain, options);
        driver.add(&peer);
        driver.download_all(LIMIT);
        assert_eq!((driver.client.download().totals().blocks, driver.closed.len()), (1_029, 0));
        assert_eq!(peer.accepted(), 1);
    }
}

fn check_fault(fault: Fault, use_v2: bool, is_expected: impl Fn(&CloseReason) -> bool) {
    let chain = chain(200, 20_000);
    let (faulty, honest) = (ScriptedPeer::start(&chain, fault), ScriptedPeer::start(&chain, Fault::None));
    let mut driver = driver(&chain, use_v2, &[&faulty]);
    let start = Instant::now();
    while driver.closed.is_empty() && start.elapsed() < Duration::from_secs(3) {
        driver.step();
    }
    driver.add(&honest);
    driver.download_all(LIMIT);
    driver.run_until(LIMIT, &format!("{fault:?} closed"), |driver| driver.reason(&faulty).is_some());
    let reason = driver.reason(&faulty).unwrap();
    assert!(is_expected(reason), "{fault:?}: {reason:?}");
    assert!(driver.reason(&honest).is_none(), "{fault:?}: the honest peer was closed");
}

#[test]
fn stalling_peers_are_closed() {
    check_fault(Fault::Stall(3), true, |reason| *reason == CloseReason::Stalled);
}

#[test]
fn peers_that_send_a_byte_a_second_are_closed() {
    check_fault(Fault::Drip, false, |reason| *reason == CloseReason::TooSlow);
}

#[test]
fn mute_peers_are_closed() {
    check_fault(Fault::Mute, false, |reason| *reason == CloseReason::Handshake(HandshakeError::TimedOut));
}

#[test]
fn peers_without_blocks_are_closed() {
    check_fault(Fault::NoBlocks, true, |reason| *reason == CloseReason::HasNoBlocks);
    check_fault(Fault::NotFound, false, |reason| *reason == CloseReason::HasNoBlocks);
}

#[test]
fn peers_that_break_the_protocol_are_closed() {
    check_fault(Fault::Mutates, true, |reason| *reason == CloseReason::Mutated);
    check_fault(Fault::ClosesInBlock, true, |reason| *reason == CloseReason::ClosedByPeer);
    check_fault(Fault::Unrequested, false, |reason| *reason == CloseReason::Unrequested);
    let oversized = TransportError::Frame(FrameError::TooLong { len: 4_000_001 });
    check_fault(Fault::Oversized, false, |reason| *reason == CloseReason::Transport(oversized));
    check_fault(Fault::HeaderGap, true, |reason| {
        *reason == CloseReason::Headers(HeaderFault::NotContinuous { at: 3 })
    });
    let is_too_many =
        |reason: &CloseReason| matches!(reason, CloseReason::Message(MessageError::TooMany { .. }));
    check_fault(Fault::TooManyHeaders, true, is_too_many);
    check_fault(Fault::TooMuchInventory, false, is_too_many);
}

#[test]
fn unsuitable_peers_are_closed_in_the_handshake() {
    let is =
        |expected: HandshakeError| move |reason: &CloseReason| *reason == CloseReason::Handshake(expected);
    check_fault(Fault::SecondVersion, false, is(HandshakeError::SecondVersion));
    check_fault(Fault::ManyEarlyMessages, true, is(HandshakeError::EarlyMessages(33)));
    check_fault(Fault::Limited, false, is(HandshakeError::Services { got: 0x408, needed: 9 }));
}

#[test]
fn pings_that_are_never_read_do_not_fill_the_memory() {
    check_fault(Fault::PingFlood, false, |reason| *reason == CloseReason::DoesNotRead);
}

#[test]
fn a_flood_of_addresses_adds_few() {
    let chain = chain(20, 500);
    let peer = ScriptedPeer::start(&chain, Fault::AddressFlood);
    let mut options = options();
    options.only_user_targets = false;
    // Nothing of what the peer sends is dialled.
    options.networks = vec![];
    let mut driver = Driver::new(&chain, options);
    driver.add(&peer);
    driver.download_all(LIMIT);
    driver.run_until(LIMIT, "addresses", |driver| driver.client.addresses().len() == 64);
    (0..20).for_each(|_| driver.step());
    assert_eq!(driver.client.addresses().len(), 64);
}

#[test]
fn one_connection_is_opened_in_each_group_of_addresses() {
    let chain = chain(100, 2_000);
    let ips = ["127.1.0.1", "127.1.0.2", "127.2.0.1"];
    let peers = ips.map(|ip| ScriptedPeer::start_at(ip, &chain, Fault::None));
    let mut options = options();
    options.only_user_targets = false;
    let mut driver = Driver::new(&chain, options);
    let services = Services::FULL.with(Services::P2P_V2);
    let record = |peer: &ScriptedPeer| AddressRecord { time: 0, services, address: peer.peer_address() };
    driver.client.add_addresses(&peers.each_ref().map(record), Source::User);
    driver.download_all(LIMIT);
    (0..10).for_each(|_| driver.step());
    let accepted = peers.each_ref().map(|peer| peer.accepted());
    assert_eq!((accepted[0] + accepted[1], accepted[2]), (1, 1));
}

#[test]
fn a_proxy_gets_names_and_other_credentials_each_time() {
    let chain = chain(50, 2_000);
    let peer = ScriptedPeer::start(&chain, Fault::None);
    let (address, requests) = proxy::start(peer.address());
    let mut options = options();
    options.pool.proxy = Some(address);
    let mut driver = Driver::new(&chain, options);
    let names = ["seed.invalid", "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion"];
    names.iter().for_each(|name| driver.client.add_target(Target::Name((*name).to_owned(), 8333)));
    driver.run_until(LIMIT, "two connections", |driver| driver.ready.len() == 2);
    driver.download_all(LIMIT);
    let requests = requests.lock().unwrap();
    let mut asked: Vec<&str> = requests.iter().map(|(_, _, name)| name.as_str()).collect();
    asked.sort_unstable();
    assert_eq!(asked, [format!("{}:8333", names[1]), format!("{}:8333", names[0])]);
    assert_ne!((&requests[0].0, &requests[0].1), (&requests[1].0, &requests[1].1));
}

#[test]
fn names_are_not_resolved_without_a_proxy() {
    let chain = chain(2, 500);
    let mut driver = Driver::new(&chain, options());
    driver.client.add_target(Target::Name("seed.invalid".to_owned(), 8333));
    driver.run_until(LIMIT, "refused", |driver| !driver.closed.is_empty());
    assert_eq!(driver.closed[0].1, CloseReason::Connect(std::io::ErrorKind::Unsupported));
}

#[test]
fn memory_stays_within_its_limit() {
    let chain = chain(120, 900_000);
    let peers: Vec<ScriptedPeer> = (0..8).map(|_| ScriptedPeer::start(&chain, Fault::None)).collect();
    let mut options = options();
    options.pool.memory_bytes = 12 << 20;
    options.download.memory_bytes = 12 << 20;
    let mut driver = Driver::new(&chain, options);
    driver.hold = 8;
    peers.iter().for_each(|peer| driver.add(peer));
    driver.download_all(LIMIT);
    // Buffers for sending are beyond the limit.
    assert!(driver.most_memory <= 13 << 20, "{}", driver.most_memory);
    assert!(driver.closed.is_empty(), "{:?}", driver.closed);
}

#[test]
fn an_address_that_refuses_is_reported() {
    let chain = chain(2, 500);
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut driver = Driver::new(&chain, options());
    driver.client.add_target(Target::Address(peregrine_net::address::PeerAddress::from_socket(refused)));
    driver.run_until(LIMIT, "refused", |driver| !driver.closed.is_empty());
    assert_eq!(driver.closed[0].1, CloseReason::Connect(std::io::ErrorKind::ConnectionRefused));
}

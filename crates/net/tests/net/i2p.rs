//! Peers behind an I2P router: one session for all streams, nothing outside it, and errors that name the
//! router.

use crate::common::{router::Router, *};
use peregrine_net::{address::NetworkKind, sam::SamError};
use std::sync::atomic::Ordering;

fn target(number: u8, port: u16) -> Target {
    Target::Address(PeerAddress { host: Host::I2p([number; 32]), port })
}

/// A client with an I2P router in front of an honest peer, to be connected to these I2P addresses.
fn behind_router(numbers: &[u8]) -> (Driver, ScriptedPeer, Arc<Router>) {
    let chain = tiny(60, 2_000);
    let peer = ScriptedPeer::start(&chain, Fault::None);
    let (address, router) = router::start(peer.address());
    let mut driver = Driver::new(&chain, |options| {
        options.pool.peers.i2p_sam = Some(address);
        options.pool.peers.networks = vec![NetworkKind::I2p];
    });
    numbers.iter().for_each(|&number| driver.client.dialer.add_target(target(number, 0), false));
    (driver, peer, router)
}

#[test]
fn streams_to_several_peers_share_one_session() {
    let (mut driver, peer, router) = behind_router(&[1, 2, 3]);
    driver.run_until("three peers", |driver| driver.ready.len() == 3);
    driver.download_all();
    assert_eq!((peer.accepted(), router.created.load(Ordering::Relaxed)), (3, 1));
    assert_eq!(driver.closed, []);
    let requests = router.requests.lock().unwrap().clone();
    let count = |start: &str| requests.iter().filter(|request| request.starts_with(start)).count();
    assert_eq!((count("HELLO"), count("SESSION"), count("NAMING"), count("STREAM")), (4, 1, 3, 3));
    for number in [1, 2, 3] {
        let name = Host::I2p([number; 32]).to_string();
        assert!(requests.contains(&format!("NAMING LOOKUP NAME={name}")), "{requests:?}");
    }
}

#[test]
fn a_session_that_has_ended_is_created_again() {
    let (mut driver, _peer, router) = behind_router(&[1]);
    router.forgets.store(true, Ordering::Relaxed);
    driver.run_until("the stream is refused", |driver| !driver.closed.is_empty());
    assert_eq!(driver.closed[0].1, CloseReason::I2p(SamError::NoSession));
    router.forgets.store(false, Ordering::Relaxed);
    driver.client.dialer.add_target(target(2, 0), false);
    driver.download_all();
    assert_eq!(router.created.load(Ordering::Relaxed), 2);
}

#[test]
fn a_router_that_refuses_or_is_absent_is_named() {
    let (mut driver, _peer, router) = behind_router(&[1, 2]);
    router.refuses.store(true, Ordering::Relaxed);
    driver.run_until("both streams end", |driver| driver.closed.len() >= 2);
    for (_, reason) in &driver.closed[..2] {
        let expected = "the I2P router: refused the request: RESULT=I2P_ERROR MESSAGE=\"no tunnels\"";
        assert_eq!(reason.to_string(), expected);
    }
    let chain = tiny(2, 500);
    // Nobody listens there.
    let nowhere = Some("127.0.0.1:1".parse().unwrap());
    let mut driver = Driver::new(&chain, |options| options.pool.peers.i2p_sam = nowhere);
    driver.client.dialer.add_target(target(1, 0), false);
    driver.run_until("no router", |driver| !driver.closed.is_empty());
    assert!(driver.closed[0].1.to_string().starts_with("the I2P router at 127.0.0.1:1 cannot"));
}

#[test]
fn i2p_addresses_are_not_dialled_with_a_port_or_without_a_router() {
    let (mut driver, _peer, router) = behind_router(&[]);
    driver.client.dialer.add_target(target(1, 8333), false);
    driver.run_until("a port", |driver| !driver.closed.is_empty());
    assert!(router.requests.lock().unwrap().is_empty());
    let chain = tiny(2, 500);
    let mut driver = Driver::new(&chain, |_| ());
    driver.client.dialer.add_target(target(1, 0), false);
    driver.run_until("no router", |driver| !driver.closed.is_empty());
    assert_eq!(driver.closed[0].1, CloseReason::Connect(std::io::ErrorKind::Unsupported));
}

//! Tests of the state of a connection.

use super::*;
use crate::address::Host;

fn peer() -> (Peer, Instant) {
    (Peer::new(Host::V4([1, 2, 3, 4].into()).group(), 1_000, ms(100)), Instant::now())
}

fn request(height: u32, bytes: u64, now: Instant) -> Request {
    let hash = BlockHash([height as u8; 32]);
    Request { height, hash, bytes, bytes_when_asked: bytes, asked: now, expected: now }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_pong_without_the_block_is_a_definite_no() {
    let (mut peer, now) = peer();
    peer.request(request(1, 10, now));
    peer.request(request(2, 20, now));
    peer.requests.mark(7, now);
    peer.request(request(3, 30, now));
    peer.requests.mark(8, now);
    assert_eq!(peer.received_block(BlockHash([1; 32]), 10, now).unwrap().height, 1);
    assert_eq!(peer.received_pong(99, now), []);
    let denied: Vec<u32> = peer.received_pong(7, now + ms(40)).iter().map(|request| request.height).collect();
    assert_eq!(denied, [2]);
    denied.into_iter().for_each(|height| peer.note_lack(height));
    assert_eq!(peer.round_trip, ms(40), "the shortest round trip counts");
    assert!(!peer.may_have(2) && peer.may_have(3) && !peer.may_have(1_001));
    assert_eq!((peer.in_flight_bytes(), peer.denials_in_a_row), (30, 1));
    assert_eq!(peer.received_pong(7, now), [], "a second pong says nothing");
    assert_eq!(peer.received_not_found(BlockHash([3; 32]), now).unwrap().height, 3);
    peer.note_lack(3);
    assert_eq!((peer.in_flight_bytes(), peer.denials_in_a_row), (0, 2));
    peer.forget_below(3);
    assert!(peer.may_have(2) && !peer.may_have(3));
    peer.forget_from(3);
    assert!(peer.may_have(3));
}

/// A peer that says of block after block that it does not have it is not slow, though no block comes.
#[test]
fn a_denial_is_an_answer() {
    let (mut peer, now) = peer();
    for at in 0..100 {
        peer.request(request(at, 10, now + ms(u64::from(at) * 500)));
        peer.requests.mark(at.into(), now);
        if at > 0 {
            let then = now + ms(u64::from(at) * 500 + 1);
            peer.received_bytes(32, then);
            assert_eq!(peer.received_pong(u64::from(at) - 1, then).len(), 1);
            assert!(!peer.speed.is_measured(), "pongs say nothing of the speed of blocks");
        }
    }
    assert!(peer.busy_for(now + ms(50_000)) <= ms(500));
}

#[test]
fn blocks_that_were_not_asked_for_are_counted() {
    let (mut peer, now) = peer();
    peer.request(request(1, 10, now));
    assert!(peer.received_block(BlockHash([9; 32]), 10, now).is_none());
    assert!(peer.received_block(BlockHash([1; 32]), 10, now).is_some());
    assert!(peer.received_block(BlockHash([1; 32]), 10, now).is_none());
    assert_eq!((peer.unrequested, peer.delivered), (2, (1, 10)));
}

#[test]
fn silence_counts_only_while_requests_are_open() {
    let (mut peer, now) = peer();
    assert_eq!(peer.silent_for(now + ms(5_000)), ms(0));
    peer.request(request(1, 10, now + ms(5_000)));
    assert_eq!(peer.silent_for(now + ms(6_000)), ms(1_000));
    peer.received_bytes(5, now + ms(6_500));
    assert_eq!(peer.silent_for(now + ms(7_000)), ms(500));
    assert_eq!(peer.blockless_for(now + ms(7_000)), ms(2_000));
    peer.received_block(BlockHash([1; 32]), 10, now + ms(7_000));
    assert_eq!(peer.silent_for(now + ms(9_000)), ms(0));
}

#[test]
fn speed_is_measured_at_the_socket_and_without_the_first_round_trip() {
    let (mut peer, now) = peer();
    assert!(!peer.speed.is_measured());
    peer.request(request(1, 1_000_000, now));
    for at in 1..=100 {
        // 10,000 bytes each 10 ms: 1 MB/s from 100 ms on.
        peer.received_bytes(10_000, now + ms(100 + at * 10));
    }
    let speed = peer.speed.bytes_per_second();
    assert!((950_000.0..1_050_000.0).contains(&speed), "{speed}");
    assert_eq!(peer.forecast_of(2), None);
    let left = peer.forecast_of(1).unwrap();
    assert!(left > ms(900) && left < ms(1_100), "{left:?}");
    // Then nothing for two seconds: the average falls.
    peer.speed.update(now + ms(3_100));
    assert!(peer.speed.bytes_per_second() < 400_000.0);
    assert!(peer.speed.peak() >= peer.speed.bytes_per_second());
    // A fast sample is believed at once by the peak only.
    peer.received_bytes(750_000, now + ms(3_350));
    assert_eq!(peer.speed.peak(), 3_000_000.0);
    assert!(peer.speed.bytes_per_second() < 1_000_000.0);
}

#[test]
fn a_small_answer_at_once_is_a_sample_too() {
    let (mut peer, now) = peer();
    peer.request(request(1, 500, now));
    peer.received_bytes(500, now + ms(110));
    peer.received_block(BlockHash([1; 32]), 500, now + ms(110));
    assert!(peer.speed.is_measured());
    assert_eq!(peer.speed.bytes_per_second().round(), 50_000.0);
}

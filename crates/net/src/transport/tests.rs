//! Tests of both transports, against themselves and against the crate `bip324`. What is sent before the
//! keys are known, and what a flipped bit does, is tried by the fuzz target `net_v2_stream`
//! (`testkit::fuzz`).

use super::*;
use crate::{
    frame::{Command, DropReason, MAX_PAYLOAD_LEN},
    message::{Message, command},
};
use bip324::{GarbageResult, Handshake, PacketType, VersionResult};

const MAGIC: [u8; 4] = [0xfa, 0xbf, 0xb5, 0xda];

/// Moves all bytes that are to be sent, in pieces of these sizes in turn.
fn deliver(
    from: &mut Transport,
    to: &mut Transport,
    pieces: &[usize],
) -> Result<Vec<Received>, TransportError> {
    let mut found = Vec::new();
    for &piece in pieces.iter().cycle() {
        let bytes = from.outgoing().to_vec();
        if bytes.is_empty() {
            break;
        }
        let mut part = &bytes[..piece.min(bytes.len())];
        from.mark_sent(part.len());
        while let Some(received) = to.receive(&mut part)? {
            found.push(received);
        }
    }
    Ok(found)
}

fn pair(garbage: (usize, usize)) -> (Transport, Transport) {
    let side = |role, garbage| Transport::v2_with(MAGIC, role, KeyPair::random(), vec![7; garbage]);
    (side(Role::Initiator, garbage.0), side(Role::Responder, garbage.1))
}

fn session_id(side: &Transport) -> Option<[u8; 32]> {
    let Protocol::V2(v2) = &side.protocol else { return None };
    v2.session.as_ref().map(|session| session.id)
}

/// Exchanges keys and version packets.
fn open(initiator: &mut Transport, responder: &mut Transport) {
    assert_eq!(deliver(initiator, responder, &[9]), Ok(vec![]));
    assert_eq!(deliver(responder, initiator, &[1000]), Ok(vec![]));
    assert_eq!(deliver(initiator, responder, &[77]), Ok(vec![]));
    assert!(session_id(initiator).is_some() && session_id(initiator) == session_id(responder));
}

fn raw(name: &str, payload: Vec<u8>) -> RawMessage {
    RawMessage { command: Command::new(name), payload }
}

#[test]
fn a_responder_does_not_speak_first() {
    let (_, mut theirs) = pair((0, 0));
    assert!(theirs.outgoing().is_empty());
    theirs.receive(&mut &[1u8][..]).unwrap();
    assert_eq!(theirs.outgoing().len(), 64);
}

#[test]
fn garbage_without_end_closes() {
    let (mut ours, mut theirs) = pair((0, 0));
    deliver(&mut ours, &mut theirs, &[64]).unwrap();
    let key = theirs.outgoing()[..64].to_vec();
    assert_eq!(ours.receive(&mut key.as_slice()), Ok(None));
    let garbage = vec![1; 4_095 + 15];
    assert_eq!(ours.receive(&mut garbage.as_slice()), Ok(None));
    assert_eq!(ours.receive(&mut &[1u8][..]), Err(TransportError::GarbageTooLong));
}

#[test]
fn an_unasked_version_closes_without_a_second_try() {
    let mut ours = Transport::v2(MAGIC, Role::Initiator);
    ours.mark_sent(64);
    assert!(ours.should_retry_with_v1());
    let mut v1 = Transport::v1(MAGIC);
    v1.send(raw("version", vec![0; 100]));
    let bytes = v1.outgoing().to_vec();
    assert_eq!(ours.receive(&mut &bytes[..10]), Ok(None));
    assert_eq!(ours.receive(&mut &bytes[10..20]), Err(TransportError::UnaskedV1));
    assert!(!ours.should_retry_with_v1());
}

#[test]
fn version_1_is_tried_only_after_silence() {
    let mut ours = Transport::v2(MAGIC, Role::Initiator);
    assert!(!ours.should_retry_with_v1(), "nothing was sent");
    ours.mark_sent(23);
    assert!(!ours.should_retry_with_v1(), "less than a frame's head was sent");
    ours.mark_sent(1);
    assert!(ours.should_retry_with_v1());
    ours.receive(&mut &[0u8][..]).unwrap();
    assert!(!ours.should_retry_with_v1(), "a byte was received");
    let mut v1 = Transport::v1(MAGIC);
    v1.mark_sent(100);
    assert!(!v1.should_retry_with_v1());
}

/// A connection kept up to two megabytes for as long as it was open.
#[test]
fn memory_is_given_back_when_all_is_sent() {
    let mut v1 = Transport::v1(MAGIC);
    v1.send(raw("ping", vec![0; 1 << 20]));
    assert!(v1.memory_bytes() > 1 << 20);
    v1.mark_sent(v1.outgoing().len());
    assert!(v1.memory_bytes() <= KEPT_OUT, "{}", v1.memory_bytes());
}

#[test]
fn hostile_packets_close_or_are_dropped() {
    let sent = |contents: &[u8]| {
        let (mut ours, mut theirs) = pair((3, 2));
        open(&mut ours, &mut theirs);
        let Protocol::V2(v2) = &mut theirs.protocol else { unreachable!() };
        let session = v2.session.as_mut().unwrap();
        v2::seal(session, &[], contents, &[], &mut theirs.out);
        deliver(&mut theirs, &mut ours, &[50])
    };
    let dropped = |reason| Ok(vec![Received::Dropped(reason)]);
    assert_eq!(sent(&[]), dropped(DropReason::ShortId));
    assert_eq!(sent(&[29]), dropped(DropReason::ShortId));
    assert_eq!(sent(&[255, 1]), dropped(DropReason::ShortId));
    assert_eq!(sent(&[0, b'p']), dropped(DropReason::Command));
    assert_eq!(sent(b"\0ping\0x\0\0\0\0\0\0"), dropped(DropReason::Command));
    assert_eq!(sent(&[&[18][..], &[1; 8]].concat()), Ok(vec![Received::Message(raw("ping", vec![1; 8]))]));
    assert_eq!(sent(&vec![2; MAX_PAYLOAD_LEN + 14]), Err(TransportError::PacketTooLong { len: 4_000_014 }));
}

/// Garbage and decoys of the other side; then packets both ways, beyond the change of keys at 224.
#[test]
fn the_crate_bip324_understands_us() {
    let garbage = vec![3; 1_234];
    let mut ours = Transport::v2(MAGIC, Role::Initiator);
    let mut sent = ours.outgoing().to_vec();
    ours.mark_sent(sent.len());
    let mut key = vec![0; 64 + garbage.len()];
    let their = Handshake::new(MAGIC, bip324::Role::Responder).unwrap();
    let their = their.send_key(Some(&garbage), &mut key).unwrap();
    let their = their.receive_key(*sent.first_chunk().unwrap()).unwrap();
    let decoys: &[&[u8]] = &[b"nothing", b""];
    let mut version = vec![0; Handshake::<bip324::ReceivedKey>::send_version_len(Some(decoys))];
    let their = their.send_version(&mut version, Some(decoys)).unwrap();
    let (mut bytes, mut found) = ([key, version].concat(), Vec::new());
    for piece in bytes.chunks_mut(33) {
        let mut piece = &piece[..];
        while let Some(received) = ours.receive(&mut piece).unwrap() {
            found.push(received);
        }
    }
    assert_eq!(found, [Received::Dropped(DropReason::Decoy), Received::Dropped(DropReason::Decoy)]);
    sent.extend_from_slice(ours.outgoing());
    ours.mark_sent(usize::MAX / 2);
    let GarbageResult::FoundGarbage { handshake: mut their, consumed_bytes } =
        their.receive_garbage(&sent[64..]).unwrap()
    else {
        panic!("no garbage")
    };
    let mut rest = sent[64 + consumed_bytes..].to_vec();
    let len = their.decrypt_packet_len(*rest.first_chunk().unwrap()).unwrap();
    assert_eq!(rest.len(), 3 + len);
    let VersionResult::Complete { cipher } = their.receive_version(&mut rest[3..]).unwrap() else { panic!() };
    let (mut inbound, mut outbound) = cipher.into_split();
    for number in 0..700u64 {
        let message =
            if number % 3 == 0 { raw("sendaddrv2", vec![]) } else { Message::Ping(number).encode() };
        ours.send(message.clone());
        let packet = ours.outgoing().to_vec();
        ours.mark_sent(packet.len());
        let len = inbound.decrypt_packet_len(*packet.first_chunk().unwrap());
        let (kind, contents) = inbound.decrypt_to_vec(&packet[3..3 + len], None).unwrap();
        assert_eq!(kind, PacketType::Genuine);
        let expected = if number % 3 == 0 {
            b"\0\0sendaddrv2\0\0".to_vec()
        } else {
            [&[0, 18], &message.payload[..]].concat()
        };
        assert_eq!(contents, expected);
        let reply = outbound.encrypt_to_vec(&contents[1..], PacketType::Genuine, None);
        let received = ours.receive(&mut reply.as_slice()).unwrap();
        assert_eq!(received, Some(Received::Message(message)));
    }
}

#[test]
fn unsent_bytes_are_kept_in_order() {
    let mut transport = Transport::v1(MAGIC);
    transport.send(Message::Ping(1).encode());
    let first = transport.outgoing().to_vec();
    transport.mark_sent(20);
    transport.send(raw("x", vec![9; 30]));
    assert!(transport.outgoing().starts_with(&first[20..]));
    assert_eq!(transport.outgoing().len(), 32 - 20 + 24 + 30);
    transport.mark_sent(usize::MAX / 2);
    assert!(transport.outgoing().is_empty());
    assert_eq!(command::PING.name(), "ping");
}

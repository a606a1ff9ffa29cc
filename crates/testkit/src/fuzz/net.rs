//! Fuzz targets for `net`: what peers and proxies send.

use net::{
    frame::{Command, RawMessage, Received, write_frame},
    message::{AddressRecord, Inventory, Message, Services, Version},
    sam::Sam,
    socks::{Socks, Step},
    transport::{Role, Transport, TransportError},
};
use wire::{BlockHash, Header, SpentCoinsForm};

const MAGIC: [u8; 4] = [0xfa, 0xbf, 0xb5, 0xda];

/// Gives a stream to a transport in pieces of `piece` bytes. Returns what was found in it, and the error that
/// ended it.
fn receive(
    transport: &mut Transport,
    stream: &[u8],
    piece: usize,
) -> (Vec<Received>, Option<TransportError>) {
    let (mut found, mut taken) = (Vec::new(), 0);
    for mut bytes in stream.chunks(piece) {
        loop {
            let before = bytes.len();
            let received = transport.receive(&mut bytes);
            taken += before - bytes.len();
            // What a message claims to have must not be reserved before it comes.
            assert!(transport.memory_bytes() <= 4 * taken + (1 << 20), "memory follows claims");
            match received {
                Ok(Some(received)) => found.push(received),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(bytes.is_empty(), "bytes are left although nothing was found");
    }
    (found, None)
}

/// The messages of a version 1 stream do not depend on how it is cut.
pub fn frames(bytes: &[u8]) -> bool {
    let whole = receive(&mut Transport::v1(MAGIC), bytes, usize::MAX);
    for piece in [1, 7, 1000] {
        assert_eq!(receive(&mut Transport::v1(MAGIC), bytes, piece), whole);
    }
    let (found, error) = whole;
    error.is_none() && found.iter().any(|received| matches!(received, Received::Message(_)))
}

/// A message that is decoded and encoded again is the same. The first bytes are its command.
pub fn message(bytes: &[u8]) -> bool {
    let Some((command, payload)) = bytes.split_first_chunk() else { return false };
    let Some(command) = Command::from_bytes(*command) else { return false };
    let Ok(message) = Message::decode(RawMessage { command, payload: payload.to_vec() }) else {
        return false;
    };
    let again = message.encode();
    assert_eq!(Message::decode(again), Ok(message));
    true
}

/// A version 2 connection delivers what was sent, and nothing if a bit of it was flipped; and any bytes may
/// come instead of a handshake. Keys are random: what fails for few keys only is not repeated by its input.
pub fn v2_stream(bytes: &[u8]) -> bool {
    for role in [Role::Initiator, Role::Responder] {
        let (found, _) = receive(&mut Transport::v2(MAGIC, role), bytes, 100);
        assert_eq!(found, [], "nobody without the keys can send a message");
    }
    let [mut ours, mut theirs] = [Role::Initiator, Role::Responder].map(|role| Transport::v2(MAGIC, role));
    let sent = RawMessage { command: Command::new("headers"), payload: bytes.to_vec() };
    ours.send(sent.clone());
    let carry = |from: &mut Transport, to: &mut Transport| {
        let bytes = from.outgoing().to_vec();
        from.mark_sent(bytes.len());
        receive(to, &bytes, 33)
    };
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(carry(&mut ours, &mut theirs).0);
        assert_eq!(carry(&mut theirs, &mut ours), (Vec::new(), None));
    }
    assert_eq!(found, [Received::Message(sent.clone())]);
    theirs.send(sent);
    let mut packet = theirs.outgoing().to_vec();
    let at = bytes.iter().fold(0usize, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let bit = at % (packet.len() * 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(receive(&mut ours, &packet, 100).0, [], "bit {bit} was flipped");
    true
}

/// A proxy's answers do not depend on how they are cut, and what follows them is left to the peer.
pub fn proxy(bytes: &[u8]) -> bool {
    let run = |piece: usize| {
        let (mut socks, _) = Socks::start("node.example", 8333).expect("a short name");
        // The credentials are random.
        dial(bytes, piece, |chunk| socks.receive(chunk), |request| request.len())
    };
    let whole = run(bytes.len().max(1));
    assert_eq!(run(1), whole);
    whole.1.is_some()
}

/// An I2P router's answers do not depend on how they are cut, and what follows them is left to the peer.
pub fn i2p_router(bytes: &[u8]) -> bool {
    let run = |piece: usize| {
        let (mut sam, _) = Sam::stream("session", "peer.b32.i2p");
        let _ = sam.session_ready();
        let check = |request: Vec<u8>| {
            let lines = request.iter().filter(|byte| **byte == b'\n').count();
            assert!(lines == 1 && request.ends_with(b"\n"), "one request, however it was answered");
            request
        };
        dial(bytes, piece, |chunk| sam.receive(chunk), check)
    };
    let whole = run(bytes.len().max(1));
    assert_eq!(run(1), whole);
    whole.1.is_some()
}

/// Gives what dials for us the answer `bytes`, `piece` bytes at a time. Returns its requests and its error,
/// and how many bytes it took until the peer was connected.
fn dial<E: std::fmt::Display, T>(
    bytes: &[u8],
    piece: usize,
    mut receive: impl FnMut(&mut &[u8]) -> Result<Step, E>,
    request: impl Fn(Vec<u8>) -> T,
) -> (Vec<Result<T, String>>, Option<usize>) {
    let mut steps = Vec::new();
    for (at, chunk) in bytes.chunks(piece).enumerate() {
        let mut chunk = chunk;
        while !chunk.is_empty() {
            match receive(&mut chunk) {
                Ok(Step::Send(bytes)) => steps.push(Ok(request(bytes))),
                Ok(Step::Wait) => assert!(chunk.is_empty()),
                Ok(Step::Connected) => {
                    let end = (at * piece + piece).min(bytes.len());
                    return (steps, Some(end - chunk.len()));
                }
                Err(error) => {
                    steps.push(Err(error.to_string()));
                    return (steps, None);
                }
            }
        }
    }
    (steps, None)
}

/// A message of each kind.
fn some_messages() -> Vec<Message> {
    let hash = BlockHash([7; 32]);
    let header = Header { version: 4, prev: hash, nonce: 9, ..Header::default() };
    let inventory = vec![Inventory::witness_block(hash), Inventory { kind: 1, hash: [8; 32] }];
    let onion = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion";
    let i2p = "ukeu3k5oycgaauneqgtnvselmt4yemvoilkln7jpvamvfx7dnkdq.b32.i2p";
    let addresses =
        ["1.2.3.4", "2a01::7", "fc00::1", onion, i2p].into_iter().filter_map(|host| host.parse().ok());
    let addresses = addresses.map(|host| AddressRecord {
        time: 1_700_000_000,
        services: Services(9),
        address: net::address::PeerAddress { host, port: 8333 },
    });
    vec![
        Message::Version(Version {
            version: 70016,
            services: Services(0x409),
            time: 1_700_000_000,
            nonce: 5,
            user_agent: "/Satoshi:31.0.0/".to_owned(),
            height: 900_000,
            relay: false,
        }),
        Message::Verack,
        Message::SendAddrV2,
        Message::SendHeaders,
        Message::GetAddr,
        Message::Ping(1),
        Message::Pong(2),
        Message::GetHeaders { locator: vec![hash; 3], stop: BlockHash([0; 32]) },
        Message::Headers(vec![header; 2]),
        Message::GetData(inventory.clone()),
        Message::NotFound(inventory.clone()),
        Message::Inv(inventory),
        Message::Block(vec![1; 100]),
        Message::Addresses(addresses.collect()),
        Message::Feature { id: b"BIP434-test".to_vec(), data: vec![1; 9] },
        Message::GetSpentCoins { form: SpentCoinsForm::Draft, block: hash },
        Message::GetSpentCoins { form: SpentCoinsForm::Reference, block: hash },
        Message::SpentCoins { form: SpentCoinsForm::Draft, bytes: vec![2; 50] },
    ]
}

fn frame(raw: &RawMessage) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, MAGIC, raw.command, &raw.payload);
    out
}

pub fn streams() -> Vec<Vec<u8>> {
    let frames: Vec<_> = some_messages().iter().map(|message| frame(&message.encode())).collect();
    frames.chunks(4).map(<[_]>::concat).collect()
}

pub fn messages() -> Vec<Vec<u8>> {
    // The command is after the magic, as 12 bytes.
    let with_command = |raw: RawMessage| [&frame(&raw)[4..16], &raw.payload].concat();
    some_messages().iter().map(|message| with_command(message.encode())).collect()
}

pub fn payloads() -> Vec<Vec<u8>> {
    [5, 25, 125, 625, 3_125, 15_625].map(|size| vec![size as u8; size]).into()
}

pub fn i2p_router_answers() -> Vec<Vec<u8>> {
    let answers = "HELLO REPLY RESULT=OK VERSION=3.1\nNAMING REPLY RESULT=OK NAME=a VALUE=abc~-=\n\
                   STREAM STATUS RESULT=OK\npeer";
    vec![answers.into()]
}

pub fn proxy_answers() -> Vec<Vec<u8>> {
    let bound = |kind: u8, len: usize| [&[5, 0, 0, kind][..], &vec![1; len + 2]].concat();
    let named = [&[5, 0, 0, 3, 4][..], b"host", &[1, 2]].concat();
    let replies = [bound(1, 4), bound(4, 16), named];
    let with_method = |reply: &Vec<u8>| {
        [[&[5, 0][..], reply, b"peer"].concat(), [&[5, 2, 1, 0][..], reply, b"peer"].concat()]
    };
    replies.iter().flat_map(with_method).collect()
}

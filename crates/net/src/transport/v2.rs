//! The version 2 transport as a state machine (BIP 324; Core `V2Transport` in `net.cpp`).
//!
//! Each side sends: key 64 | garbage 0 to 4,095 | terminator 16 | packets, of which the first that is no
//! decoy is the version packet. Packet: enciphered length 3 | enciphered header 1 (bit 7: decoy) and contents
//! | tag 16. The first packet also authenticates the garbage. Contents of a message: short id 1, or 0 and the
//! command 12 | payload.

use super::TransportError;
use crate::{
    cipher::{KEY_LEN, KeyPair, Role, Session, TAG_LEN},
    frame::{Command, DropReason, MAX_PAYLOAD_LEN, RawMessage, Received, fill},
};

/// Maximum length of the garbage, in bytes.
pub(super) const MAX_GARBAGE_LEN: usize = 4_095;
/// Maximum length of a packet's contents: short id 0, command, payload.
const MAX_CONTENTS_LEN: usize = 1 + Command::LEN + MAX_PAYLOAD_LEN;
/// Length of the enciphered length.
const LENGTH_LEN: usize = 3;
/// Bit of the header that marks a decoy.
const DECOY: u8 = 0x80;
/// The first bytes of a version 1 connection after the magic.
const V1_OPENING: &[u8; Command::LEN] = b"version\0\0\0\0\0";

/// Commands with a short id, from id 1 on (BIP 324). Those that are empty have none.
const SHORT_IDS: [&str; 37] = [
    "addr",
    "block",
    "blocktxn",
    "cmpctblock",
    "feefilter",
    "filteradd",
    "filterclear",
    "filterload",
    "getblocks",
    "getblocktxn",
    "getdata",
    "getheaders",
    "headers",
    "inv",
    "mempool",
    "merkleblock",
    "notfound",
    "ping",
    "pong",
    "sendcmpct",
    "tx",
    "getcfilters",
    "cfilter",
    "getcfheaders",
    "cfheaders",
    "getcfcheckpt",
    "cfcheckpt",
    "addrv2",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "feature",
];

enum State {
    /// Collecting the peer's key.
    Key { keys: KeyPair, garbage: Vec<u8>, theirs: Vec<u8> },
    /// Collecting garbage until its terminator.
    Garbage(Vec<u8>),
    /// Receiving packets.
    Packets,
}

pub(super) struct V2 {
    magic: [u8; 4],
    role: Role,
    state: State,
    pub(super) session: Option<Box<Session>>,
    /// Messages that wait for the keys.
    waiting: Vec<RawMessage>,
    /// The peer's garbage, until the first packet has authenticated it.
    associated: Vec<u8>,
    has_version: bool,
    /// The enciphered length of the next packet.
    length: Vec<u8>,
    /// Length of the contents of the packet in `packet`.
    contents_len: Option<usize>,
    packet: Vec<u8>,
}

impl V2 {
    pub(super) fn new(
        magic: [u8; 4],
        role: Role,
        keys: KeyPair,
        garbage: Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Self {
        if role == Role::Initiator {
            out.extend_from_slice(&keys.public());
            out.extend_from_slice(&garbage);
        }
        Self {
            magic,
            role,
            state: State::Key { keys, garbage, theirs: Vec::with_capacity(KEY_LEN) },
            session: None,
            waiting: Vec::new(),
            associated: Vec::new(),
            has_version: false,
            length: Vec::with_capacity(LENGTH_LEN),
            contents_len: None,
            packet: Vec::new(),
        }
    }

    pub(super) fn is_initiator(&self) -> bool {
        self.role == Role::Initiator
    }

    pub(super) fn incoming(&self) -> Option<(usize, usize)> {
        self.contents_len.map(|len| (self.packet.len(), 1 + len + TAG_LEN))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.packet.capacity() + self.associated.capacity()
    }

    pub(super) fn send(&mut self, message: RawMessage, out: &mut Vec<u8>) {
        match &mut self.session {
            Some(session) => seal_message(session, &message, out),
            None => self.waiting.push(message),
        }
    }

    pub(super) fn receive(
        &mut self,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Received>, TransportError> {
        while !bytes.is_empty() {
            match self.state {
                State::Key { .. } => self.receive_key(bytes, out)?,
                State::Garbage(_) => self.receive_garbage(bytes)?,
                State::Packets => {
                    if let Some(received) = self.receive_packet(bytes)? {
                        return Ok(Some(received));
                    }
                }
            }
        }
        Ok(None)
    }

    fn receive_key(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> Result<(), TransportError> {
        let State::Key { keys, garbage, theirs } = &mut self.state else { return Ok(()) };
        if self.role == Role::Responder && theirs.is_empty() {
            out.extend_from_slice(&keys.public());
            out.extend_from_slice(garbage);
        }
        let is_whole = fill(theirs, bytes, KEY_LEN);
        let opening = self.magic.len() + V1_OPENING.len();
        if theirs
            .get(..opening)
            .is_some_and(|head| head.starts_with(&self.magic) && head.ends_with(V1_OPENING))
        {
            return Err(TransportError::UnaskedV1);
        }
        let Some(&key) = theirs.first_chunk().filter(|_| is_whole) else { return Ok(()) };
        let mut session = Box::new(keys.derive(key, self.role, self.magic));
        out.extend_from_slice(&session.our_terminator);
        seal(&mut session, garbage, &[], &[], out);
        for message in self.waiting.drain(..) {
            seal_message(&mut session, &message, out);
        }
        self.session = Some(session);
        self.state = State::Garbage(Vec::new());
        Ok(())
    }

    fn receive_garbage(&mut self, bytes: &mut &[u8]) -> Result<(), TransportError> {
        let (State::Garbage(garbage), Some(session)) = (&mut self.state, &self.session) else {
            return Ok(());
        };
        let terminator = &session.their_terminator;
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            garbage.push(byte);
            if garbage.ends_with(terminator) {
                garbage.truncate(garbage.len() - terminator.len());
                self.associated = std::mem::take(garbage);
                self.state = State::Packets;
                return Ok(());
            }
            if garbage.len() >= MAX_GARBAGE_LEN + terminator.len() {
                return Err(TransportError::GarbageTooLong);
            }
        }
        Ok(())
    }

    fn receive_packet(&mut self, bytes: &mut &[u8]) -> Result<Option<Received>, TransportError> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let contents_len = match self.contents_len {
            Some(len) => len,
            None if !fill(&mut self.length, bytes, LENGTH_LEN) => return Ok(None),
            None => {
                let mut length = self.length.first_chunk().copied().unwrap_or_default();
                self.length.clear();
                session.receive.lengths.apply(&mut length);
                let [low, middle, high] = length;
                let len = u32::from_le_bytes([low, middle, high, 0]) as usize;
                if len > MAX_CONTENTS_LEN {
                    return Err(TransportError::PacketTooLong { len });
                }
                *self.contents_len.insert(len)
            }
        };
        if !fill(&mut self.packet, bytes, 1 + contents_len + TAG_LEN) {
            return Ok(None);
        }
        self.contents_len = None;
        let mut packet = std::mem::take(&mut self.packet);
        let tag = packet.last_chunk().copied().unwrap_or_default();
        packet.truncate(1 + contents_len);
        let associated = std::mem::take(&mut self.associated);
        if !session.receive.packets.decrypt(&associated, &mut packet, tag) {
            return Err(TransportError::Tag);
        }
        if packet.first().is_none_or(|header| header & DECOY != 0) {
            return Ok(Some(Received::Dropped(DropReason::Decoy)));
        }
        if !self.has_version {
            self.has_version = true;
            return Ok(None);
        }
        Ok(Some(open_message(packet)))
    }
}

/// Reads the contents of a packet: header 1 | short id 1 | payload.
fn open_message(mut packet: Vec<u8>) -> Received {
    let (command, start) = match packet.get(1) {
        None => return Received::Dropped(DropReason::ShortId),
        Some(0) => {
            let name = packet.get(2..).and_then(|rest| rest.first_chunk()).copied();
            match name.and_then(Command::from_bytes) {
                Some(command) => (command, 2 + Command::LEN),
                None => return Received::Dropped(DropReason::Command),
            }
        }
        Some(&id) => match SHORT_IDS.get(usize::from(id) - 1) {
            Some(name) if !name.is_empty() => (Command::new(name), 2),
            _ => return Received::Dropped(DropReason::ShortId),
        },
    };
    packet.drain(..start);
    Received::Message(RawMessage { command, payload: packet })
}

fn seal_message(session: &mut Session, message: &RawMessage, out: &mut Vec<u8>) {
    debug_assert!(message.payload.len() <= MAX_PAYLOAD_LEN, "a message is too long for a packet");
    let id = SHORT_IDS.iter().position(|name| !name.is_empty() && *name == message.command.name());
    match id {
        Some(at) => seal(session, &[], &[at as u8 + 1], &message.payload, out),
        None => {
            let name = message.command.to_bytes();
            seal(session, &[], &[&[0], &name[..]].concat(), &message.payload, out);
        }
    }
}

/// Appends a packet, no decoy, whose contents are `head` and `payload`.
pub(super) fn seal(session: &mut Session, associated: &[u8], head: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    let len = head.len() + payload.len();
    let [low, middle, high, _] = (len as u32).to_le_bytes();
    let mut length = [low, middle, high];
    session.send.lengths.apply(&mut length);
    out.extend_from_slice(&length);
    let start = out.len();
    out.push(0);
    out.extend_from_slice(head);
    out.extend_from_slice(payload);
    let tag = session.send.packets.encrypt(associated, out.get_mut(start..).unwrap_or_default());
    out.extend_from_slice(&tag);
}

//! Messages as frames of the version 1 transport, and the decoder that finds them in a stream of bytes.
//!
//! Frame: magic 4 | command 12, padded with zeros | length of the payload u32 LE | first 4 bytes of
//! SHA-256d(payload) | payload. The limits are Core's (`V1Transport` in `net.cpp`): a wrong magic or a length
//! above [`MAX_PAYLOAD_LEN`] ends the connection; a wrong checksum or a malformed command drops one message.

use std::fmt;
use wire::MAX_BLOCK_LEN;

/// Length of a frame without its payload, in bytes.
pub const HEAD_LEN: usize = 24;
/// Maximum length of a payload, in bytes (Core `MAX_PROTOCOL_MESSAGE_LENGTH`): a block must fit.
pub const MAX_PAYLOAD_LEN: usize = MAX_BLOCK_LEN;
/// Bytes that a buffer reserves at first for a longer message; it doubles as bytes arrive.
const FIRST_RESERVE: usize = 64 << 10;

/// The name of a kind of message, such as `getdata`: at most 12 printable ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command([u8; Self::LEN]);

impl Command {
    /// Length of a command in a frame, in bytes.
    pub const LEN: usize = 12;

    /// Creates the command of that name.
    ///
    /// # Panics
    /// If the name has more than 12 bytes. Names are constants, so that this is found when compiling.
    #[expect(clippy::indexing_slicing, reason = "constant evaluation has no other access; both are bounded")]
    pub const fn new(name: &str) -> Self {
        let name = name.as_bytes();
        assert!(name.len() <= Self::LEN, "a command has at most 12 bytes");
        let mut bytes = [0; Self::LEN];
        let mut at = 0;
        while at < name.len() {
            bytes[at] = name[at];
            at += 1;
        }
        Self(bytes)
    }

    /// Reads a command as it is in a frame. Returns `None` if it has other than printable ASCII characters,
    /// or anything but zeros after the first zero (Core `CMessageHeader::IsMessageTypeValid`).
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(Self::LEN);
        let (name, padding) = bytes.split_at(len);
        let is_valid = name.iter().all(|byte| (0x20..0x7f).contains(byte)) && padding.iter().all(|&b| b == 0);
        is_valid.then_some(Self(bytes))
    }

    /// Returns the command as it is in a frame.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// Returns the name without its padding.
    pub fn name(&self) -> &str {
        let len = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::LEN);
        std::str::from_utf8(self.0.get(..len).unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A message whose payload has not been read yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawMessage {
    pub command: Command,
    /// The bytes after the head of the frame.
    pub payload: Vec<u8>,
}

/// An item that a transport found in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    Message(RawMessage),
    /// A message that is ignored, as Core does, for this reason.
    Dropped(DropReason),
}

/// Why a message was dropped although the connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The checksum is not that of the payload.
    Checksum,
    /// The command is not printable ASCII, or is followed by other bytes than zeros.
    Command,
    /// The version 2 short id is unknown, or the contents are empty.
    ShortId,
    /// A version 2 packet that only hides the shape of the traffic.
    Decoy,
}

/// The error for bytes that no frame can begin with. It ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the frame begins with {got:02x?} instead of the network's {expected:02x?}")]
    Magic { got: [u8; 4], expected: [u8; 4] },
    #[error("a message of {len} bytes is above the limit of {MAX_PAYLOAD_LEN}")]
    TooLong { len: usize },
}

#[derive(Clone, Debug)]
struct Head {
    command: Option<Command>,
    len: usize,
    checksum: [u8; 4],
}

/// Finds frames in a stream of bytes that arrives in pieces of any size.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    magic: [u8; 4],
    head_bytes: Vec<u8>,
    head: Option<Head>,
    payload: Vec<u8>,
}

impl FrameDecoder {
    /// Creates a decoder for the network with this magic.
    pub fn new(magic: [u8; 4]) -> Self {
        Self { magic, head_bytes: Vec::with_capacity(HEAD_LEN), head: None, payload: Vec::new() }
    }

    /// Takes bytes from the front of `bytes` until a message is complete. Returns `None` when all bytes were
    /// taken and the message is not complete.
    ///
    /// The checksum of a `block` is not compared: its header hash, merkle root and witness commitment cover
    /// every byte, and the receiver of the block must check these.
    ///
    /// # Errors
    /// [`FrameError`]; the connection must then be closed.
    pub fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Received>, FrameError> {
        let len = match &self.head {
            Some(head) => head.len,
            None if !fill(&mut self.head_bytes, bytes, HEAD_LEN) => return Ok(None),
            None => {
                let head = read_head(&self.head_bytes, self.magic)?;
                self.head_bytes.clear();
                self.head.insert(head).len
            }
        };
        if !fill(&mut self.payload, bytes, len) {
            return Ok(None);
        }
        let payload = std::mem::take(&mut self.payload);
        let Some(Head { command, checksum: expected, .. }) = self.head.take() else { return Ok(None) };
        Ok(Some(match command {
            None => Received::Dropped(DropReason::Command),
            Some(command) if command != crate::message::command::BLOCK && checksum(&payload) != expected => {
                Received::Dropped(DropReason::Checksum)
            }
            Some(command) => Received::Message(RawMessage { command, payload }),
        }))
    }

    /// Returns how many bytes of the incomplete message have come, and how many it has.
    pub fn incoming(&self) -> Option<(usize, usize)> {
        self.head.as_ref().map(|head| (self.payload.len(), head.len))
    }

    /// Returns the memory that the incomplete message has taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.payload.capacity()
    }
}

fn read_head(bytes: &[u8], expected: [u8; 4]) -> Result<Head, FrameError> {
    let mut reader = wire::Reader::new(bytes);
    // The caller collected `HEAD_LEN` bytes; what is missing would be zero and fail as a wrong magic.
    let got = reader.array().unwrap_or_default();
    let command = Command::from_bytes(reader.array().unwrap_or_default());
    let len = reader.u32().unwrap_or_default() as usize;
    let checksum = reader.array().unwrap_or_default();
    if got != expected {
        return Err(FrameError::Magic { got, expected });
    }
    if len > MAX_PAYLOAD_LEN {
        return Err(FrameError::TooLong { len });
    }
    Ok(Head { command, len, checksum })
}

/// Moves bytes from the front of `from` to `buffer` until it has `len`; returns whether it has. The buffer's
/// capacity is never more than twice what arrived, or [`FIRST_RESERVE`].
pub(crate) fn fill(buffer: &mut Vec<u8>, from: &mut &[u8], len: usize) -> bool {
    let missing = len.saturating_sub(buffer.len());
    let (taken, rest) = from.split_at(missing.min(from.len()));
    let needed = buffer.len() + taken.len();
    if needed > buffer.capacity() {
        let capacity = (2 * needed).max(FIRST_RESERVE).min(len);
        buffer.reserve_exact(capacity - buffer.len());
    }
    buffer.extend_from_slice(taken);
    *from = rest;
    buffer.len() >= len
}

/// Returns the first 4 bytes of the payload's SHA-256d.
pub fn checksum(payload: &[u8]) -> [u8; 4] {
    let hash = digest::sha256::sha256d(payload);
    hash.first_chunk().copied().unwrap_or_default()
}

/// Appends a message as a frame.
pub fn write_frame(out: &mut Vec<u8>, magic: [u8; 4], command: Command, payload: &[u8]) {
    debug_assert!(payload.len() <= MAX_PAYLOAD_LEN, "{command} is too long");
    out.extend_from_slice(&magic);
    out.extend_from_slice(&command.to_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum(payload));
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::command;

    const MAGIC: [u8; 4] = [0xfa, 0xbf, 0xb5, 0xda];

    fn decode_all(decoder: &mut FrameDecoder, mut bytes: &[u8]) -> Result<Vec<Received>, FrameError> {
        let mut found = Vec::new();
        while let Some(received) = decoder.receive(&mut bytes)? {
            found.push(received);
        }
        assert!(bytes.is_empty(), "the decoder left bytes");
        Ok(found)
    }

    fn frame(command: Command, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_frame(&mut out, MAGIC, command, payload);
        out
    }

    #[test]
    fn a_frame_has_the_bytes_of_the_protocol() {
        let expected = [&MAGIC[..], b"verack\0\0\0\0\0\0", &[0, 0, 0, 0], &[0x5d, 0xf6, 0xe0, 0xe2]].concat();
        assert_eq!(frame(command::VERACK, &[]), expected);
    }

    #[test]
    fn a_wrong_magic_or_length_ends_the_connection() {
        let mut bytes = frame(command::PING, &[1; 8]);
        bytes[0] ^= 1;
        let error = decode_all(&mut FrameDecoder::new(MAGIC), &bytes).unwrap_err();
        assert!(matches!(error, FrameError::Magic { got: [0xfb, ..], .. }));
        for (len, is_ok) in
            [(MAX_PAYLOAD_LEN, true), (MAX_PAYLOAD_LEN + 1, false), (u32::MAX as usize, false)]
        {
            let mut bytes = frame(command::BLOCK, &[]);
            bytes[16..20].copy_from_slice(&(len as u32).to_le_bytes());
            let mut decoder = FrameDecoder::new(MAGIC);
            let result = decoder.receive(&mut bytes.as_slice());
            assert_eq!(result, if is_ok { Ok(None) } else { Err(FrameError::TooLong { len }) });
            assert!(decoder.memory_bytes() <= FIRST_RESERVE, "memory is taken as bytes arrive");
        }
    }

    #[test]
    fn a_wrong_checksum_or_command_drops_only_that_message() {
        let mut bytes = frame(command::PING, &[1; 8]);
        bytes[20] ^= 1;
        let mut bad_command = frame(Command(*b"ping\0x\0\0\0\0\0\0"), &[2; 8]);
        bytes.append(&mut bad_command);
        bytes.append(&mut frame(Command(*b"pi\x01g\0\0\0\0\0\0\0\0"), &[2; 8]));
        bytes.append(&mut frame(command::PING, &[3; 8]));
        let found = decode_all(&mut FrameDecoder::new(MAGIC), &bytes).unwrap();
        let dropped = |reason| Received::Dropped(reason);
        let ping = Received::Message(RawMessage { command: command::PING, payload: vec![3; 8] });
        assert_eq!(
            found,
            [dropped(DropReason::Checksum), dropped(DropReason::Command), dropped(DropReason::Command), ping]
        );
    }

    #[test]
    fn the_checksum_of_a_block_is_left_to_the_receiver() {
        let mut bytes = frame(command::BLOCK, &[7; 90]);
        bytes[20] ^= 1;
        let found = decode_all(&mut FrameDecoder::new(MAGIC), &bytes).unwrap();
        assert_eq!(found, [Received::Message(RawMessage { command: command::BLOCK, payload: vec![7; 90] })]);
    }

    #[test]
    fn a_slow_long_message_takes_at_most_twice_the_memory_of_what_arrived() {
        let bytes = frame(command::BLOCK, &vec![0; MAX_PAYLOAD_LEN]);
        let mut decoder = FrameDecoder::new(MAGIC);
        let mut arrived = 0;
        for piece in bytes.chunks(9_999) {
            arrived += piece.len();
            let received = decoder.receive(&mut &piece[..]).unwrap();
            assert_eq!(received.is_some(), arrived == bytes.len());
            assert!(decoder.memory_bytes() <= (2 * arrived).max(FIRST_RESERVE));
        }
        assert_eq!(decoder.memory_bytes(), 0);
    }
}

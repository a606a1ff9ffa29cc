//! Connecting through an I2P router by SAM 3.1, as a state machine (Core `i2p.cpp`).
//!
//! A session is a connection to the router that stays open: the router makes a destination of its own for it,
//! which ends with it. Each stream to a peer is another connection, which names the session. What the router
//! answers is one line for each request.

use crate::socks::Step;

/// Maximum length of a line of the router, in bytes (Core `MAX_MSG_SIZE`).
const MAX_LINE_LEN: usize = 64 << 10;
/// Maximum length of a destination in the router's base 64, in bytes; most have 516 or 524.
const MAX_DESTINATION_LEN: usize = 4096;
/// Number of tunnels of a session in each direction, as in Core's sessions that accept connections.
const TUNNELS: u32 = 3;

/// Why an I2P router did not connect us.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SamError {
    #[error("the answer is not that of an I2P router with SAM 3.1")]
    NotSam,
    /// The router does not know the session any more.
    #[error("the session has ended")]
    NoSession,
    #[error("refused the request: {0}")]
    Refused(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Hello,
    /// The session is being created.
    Create,
    /// The destination of a peer is looked up.
    Lookup,
    /// It is known, and the session is not there yet.
    WaitForSession(String),
    /// The stream is being opened.
    Connect,
    Done,
}

/// The requests of one connection to the router.
#[derive(Clone, Debug)]
pub struct Sam {
    state: State,
    line: Vec<u8>,
    session: String,
    /// The address of the peer; `None` for a session.
    peer: Option<String>,
    session_is_ready: bool,
}

/// Returns a name for a session that no other program has given to one of its own.
pub fn session_name() -> String {
    let letters = crate::random::bytes::<16>().map(|byte| char::from(b'a' + byte % 26));
    letters.into_iter().collect()
}

impl Sam {
    /// Starts the session with this name. The bytes are to be sent first; [`Step::Connected`] means that the
    /// session is ready. It ends when the connection is closed.
    pub fn session(session: &str) -> (Self, Vec<u8>) {
        Self::start(session, None)
    }

    /// Starts a stream to a peer, whose address ends with `.b32.i2p`. The bytes are to be sent first. It
    /// waits until [`Sam::session_ready`] was called.
    pub fn stream(session: &str, peer: &str) -> (Self, Vec<u8>) {
        Self::start(session, Some(peer.to_owned()))
    }

    fn start(session: &str, peer: Option<String>) -> (Self, Vec<u8>) {
        let session = session.to_owned();
        let sam = Self { state: State::Hello, line: Vec::new(), session, peer, session_is_ready: false };
        (sam, b"HELLO VERSION MIN=3.1 MAX=3.1\n".to_vec())
    }

    /// Notes that the session is ready. Returns what is to be sent now.
    pub fn session_ready(&mut self) -> Option<Vec<u8>> {
        self.session_is_ready = true;
        let State::WaitForSession(destination) = &self.state else { return None };
        let session = &self.session;
        let request = format!("STREAM CONNECT ID={session} DESTINATION={destination} SILENT=false\n");
        self.state = State::Connect;
        Some(request.into_bytes())
    }

    /// Takes bytes of the router from the front of `bytes`, and none of the peer that follow them.
    ///
    /// # Errors
    /// [`SamError`]; the connection must then be closed.
    pub fn receive(&mut self, bytes: &mut &[u8]) -> Result<Step, SamError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.state == State::Done {
                return Ok(Step::Connected);
            }
            *bytes = rest;
            if byte != b'\n' {
                if self.line.len() == MAX_LINE_LEN {
                    return Err(SamError::NotSam);
                }
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            match self.answer(&String::from_utf8_lossy(&line))? {
                Step::Wait => {}
                step => return Ok(step),
            }
        }
        Ok(Step::Wait)
    }

    fn answer(&mut self, line: &str) -> Result<Step, SamError> {
        let (kind, state) = match &self.state {
            State::Hello => ("HELLO REPLY ", State::Hello),
            State::Create => ("SESSION STATUS ", State::Create),
            State::Lookup => ("NAMING REPLY ", State::Lookup),
            State::Connect => ("STREAM STATUS ", State::Connect),
            State::WaitForSession(_) | State::Done => return Err(SamError::NotSam),
        };
        let fields = line.strip_prefix(kind).ok_or(SamError::NotSam)?;
        let field = |key: &str| fields.split(' ').find_map(|field| field.strip_prefix(key));
        match field("RESULT=") {
            Some("OK") => {}
            Some("INVALID_ID") if state == State::Connect => return Err(SamError::NoSession),
            Some(_) => return Err(SamError::Refused(printable(fields))),
            None => return Err(SamError::NotSam),
        }
        match (state, &self.peer) {
            (State::Hello, None) => {
                self.state = State::Create;
                let session = &self.session;
                Ok(Step::Send(
                    format!(
                        "SESSION CREATE STYLE=STREAM ID={session} DESTINATION=TRANSIENT SIGNATURE_TYPE=7 \
                         i2cp.leaseSetEncType=4,0 inbound.quantity={TUNNELS} outbound.quantity={TUNNELS}\n"
                    )
                    .into_bytes(),
                ))
            }
            (State::Hello, Some(peer)) => {
                self.state = State::Lookup;
                Ok(Step::Send(format!("NAMING LOOKUP NAME={peer}\n").into_bytes()))
            }
            (State::Lookup, _) => {
                let destination = field("VALUE=").filter(|value| is_destination(value));
                let destination = destination.ok_or(SamError::NotSam)?.to_owned();
                self.state = State::WaitForSession(destination);
                let request = self.session_is_ready.then(|| self.session_ready()).flatten();
                Ok(request.map_or(Step::Wait, Step::Send))
            }
            _ => {
                self.state = State::Done;
                Ok(Step::Connected)
            }
        }
    }
}

/// Whether the text can be a destination in I2P's base 64, so that it cannot be another request.
fn is_destination(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'~' | b'=');
    !text.is_empty() && text.len() <= MAX_DESTINATION_LEN && text.bytes().all(is_digit)
}

/// Returns the beginning of what the router says, fit for a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ').take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "HELLO REPLY RESULT=OK VERSION=3.1\n";
    const FOUND: &str = "NAMING REPLY RESULT=OK NAME=peer.b32.i2p VALUE=abc-~XYZ09==\n";

    fn feed(sam: &mut Sam, text: &str) -> Result<(Step, usize), SamError> {
        let mut rest = text.as_bytes();
        sam.receive(&mut rest).map(|step| (step, rest.len()))
    }

    fn send(text: &str) -> Result<(Step, usize), SamError> {
        Ok((Step::Send(text.as_bytes().to_vec()), 0))
    }

    fn stream() -> Sam {
        let (mut sam, hello) = Sam::stream("mine", "peer.b32.i2p");
        assert_eq!(hello, b"HELLO VERSION MIN=3.1 MAX=3.1\n");
        assert_eq!(feed(&mut sam, "HELLO REPLY RES"), Ok((Step::Wait, 0)));
        assert_eq!(feed(&mut sam, "ULT=OK VERSION=3.1\n"), send("NAMING LOOKUP NAME=peer.b32.i2p\n"));
        sam
    }

    const CONNECT: &str = "STREAM CONNECT ID=mine DESTINATION=abc-~XYZ09== SILENT=false\n";

    #[test]
    fn a_session_gets_a_destination_of_its_own() {
        let (mut sam, _) = Sam::session("mine");
        let create = "SESSION CREATE STYLE=STREAM ID=mine DESTINATION=TRANSIENT SIGNATURE_TYPE=7 \
                      i2cp.leaseSetEncType=4,0 inbound.quantity=3 outbound.quantity=3\n";
        assert_eq!(feed(&mut sam, HELLO), send(create));
        assert_eq!(feed(&mut sam, "SESSION STATUS RESULT=OK DESTINATION=priv\n"), Ok((Step::Connected, 0)));
        let (a, b) = (session_name(), session_name());
        assert!(a != b && a.len() == 16);
    }

    #[test]
    fn a_stream_waits_for_the_session_and_leaves_the_peers_bytes() {
        let mut sam = stream();
        assert_eq!(feed(&mut sam, FOUND), Ok((Step::Wait, 0)));
        assert_eq!(sam.session_ready(), Some(CONNECT.as_bytes().to_vec()));
        assert_eq!(sam.session_ready(), None, "it is asked for once");
        assert_eq!(feed(&mut sam, "STREAM STATUS RESULT=OK\npeer"), Ok((Step::Connected, 4)));
        let mut sam = stream();
        assert_eq!(sam.session_ready(), None);
        assert_eq!(feed(&mut sam, FOUND), send(CONNECT));
    }

    #[test]
    fn refusals_name_what_the_router_says() {
        let mut sam = stream();
        let error = feed(&mut sam, "NAMING REPLY RESULT=KEY_NOT_FOUND NAME=peer.b32.i2p\n").unwrap_err();
        assert_eq!(error.to_string(), "refused the request: RESULT=KEY_NOT_FOUND NAME=peer.b32.i2p");
        let connecting = || {
            let mut sam = stream();
            sam.session_ready();
            feed(&mut sam, FOUND).unwrap();
            sam
        };
        let gone = feed(&mut connecting(), "STREAM STATUS RESULT=INVALID_ID\n");
        assert_eq!(gone, Err(SamError::NoSession));
        let error =
            feed(&mut connecting(), "STREAM STATUS RESULT=TIMEOUT MESSAGE=\"a\x1b[1m\"\n").unwrap_err();
        assert_eq!(error, SamError::Refused("RESULT=TIMEOUT MESSAGE=\"a[1m\"".to_owned()));
    }

    #[test]
    fn other_answers_and_endless_lines_are_refused() {
        for text in
            ["HTTP/1.1 400 Bad Request\n", "HELLO REPLY VERSION=3.1\n", "STREAM STATUS RESULT=OK\n", "\n"]
        {
            let (mut sam, _) = Sam::session("mine");
            assert_eq!(feed(&mut sam, text), Err(SamError::NotSam), "{text:?}");
        }
        let (mut sam, _) = Sam::session("mine");
        assert_eq!(feed(&mut sam, &"x".repeat(MAX_LINE_LEN)), Ok((Step::Wait, 0)));
        assert_eq!(feed(&mut sam, "x"), Err(SamError::NotSam));
        for value in ["", "a b", "a\nSTREAM", &"a".repeat(MAX_DESTINATION_LEN + 1)] {
            let answer = feed(&mut stream(), &format!("NAMING REPLY RESULT=OK VALUE={value}\n"));
            assert_eq!(answer.is_ok(), value == "a b");
        }
    }
}

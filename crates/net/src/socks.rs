//! Connecting through a SOCKS5 proxy, such as Tor's, as a state machine (RFC 1928, RFC 1929; Core `Socks5` in
//! `netbase.cpp`).
//!
//! Names and addresses are always sent to the proxy as text, so that nothing is resolved here. A random user
//! and password for each connection make Tor use another circuit for each.

use wire::Reader;

/// Why a proxy did not connect us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SocksError {
    /// The name is empty or too long.
    #[error("a name of {0} bytes cannot be sent to a proxy")]
    Name(usize),
    #[error("the answer is not that of a SOCKS5 proxy")]
    NotSocks,
    /// The proxy accepts neither no authentication nor a password.
    #[error("no acceptable way to authenticate")]
    NoMethod,
    /// The proxy refused the random user and password.
    #[error("refused to authenticate")]
    Authentication,
    /// The proxy could not connect; the number is RFC 1928's or Tor's.
    #[error("could not connect ({}, code {code})", reason(.code))]
    Refused { code: u8 },
}

fn reason(code: &u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "command not supported",
        8 => "address type not supported",
        0xf0 => "onion service not found",
        0xf1 => "onion service descriptor is invalid",
        0xf2 => "onion service introduction failed",
        0xf3 => "onion service rendezvous failed",
        0xf4 | 0xf5 => "onion service needs authorisation",
        0xf6 => "onion service address is invalid",
        0xf7 => "onion service introduction timed out",
        _ => "unknown reason",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Method,
    Password,
    Reply,
}

/// The consequence of the proxy's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// More bytes are needed.
    Wait,
    /// These bytes are to be sent.
    Send(Vec<u8>),
    /// The connection is open; what follows comes from the peer.
    Connected,
}

/// A request to a proxy.
#[derive(Clone, Debug)]
pub struct Socks {
    state: State,
    received: Vec<u8>,
    user: [u8; 16],
    password: [u8; 16],
    request: Vec<u8>,
}

impl Socks {
    /// Starts a request with random credentials. The bytes are to be sent first.
    ///
    /// # Errors
    /// [`SocksError::Name`] if the name is empty or longer than 255 bytes.
    pub fn start(name: &str, port: u16) -> Result<(Self, Vec<u8>), SocksError> {
        let len = u8::try_from(name.len()).ok().filter(|len| *len > 0).ok_or(SocksError::Name(name.len()))?;
        let mut request = vec![5, 1, 0, 3, len];
        request.extend_from_slice(name.as_bytes());
        request.extend_from_slice(&port.to_be_bytes());
        let credential = || crate::random::bytes::<16>().map(|byte| b'a' + byte % 26);
        let (user, password) = (credential(), credential());
        Ok((Self { state: State::Method, received: Vec::new(), user, password, request }, vec![5, 2, 0, 2]))
    }

    /// Takes bytes of the proxy from the front of `bytes`, and none of the peer that follow them.
    ///
    /// # Errors
    /// [`SocksError`]; the connection must then be closed.
    pub fn receive(&mut self, bytes: &mut &[u8]) -> Result<Step, SocksError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            self.received.push(byte);
            match self.step()? {
                Step::Wait => {}
                step => {
                    self.received.clear();
                    return Ok(step);
                }
            }
        }
        Ok(Step::Wait)
    }

    fn step(&mut self) -> Result<Step, SocksError> {
        match (self.state, self.received.as_slice()) {
            (State::Method, [5, 0]) | (State::Password, [1, 0]) => {
                self.state = State::Reply;
                Ok(Step::Send(self.request.clone()))
            }
            (State::Method, [5, 2]) => {
                self.state = State::Password;
                let [user, password] = [&self.user, &self.password];
                Ok(Step::Send([&[1, 16], &user[..], &[16], &password[..]].concat()))
            }
            (State::Method, [5, 0xff]) => Err(SocksError::NoMethod),
            (State::Password, [1, _]) => Err(SocksError::Authentication),
            (State::Reply, [5, code, ..]) if *code != 0 => Err(SocksError::Refused { code: *code }),
            (State::Reply, [5, 0, _, ..]) => self.reply(),
            (State::Method | State::Reply, [5] | [5, 0]) | (State::Password, [1]) => Ok(Step::Wait),
            _ => Err(SocksError::NotSocks),
        }
    }

    /// Reads version 1 | code 1 | zero 1 | kind of address 1 | address | port 2.
    fn reply(&self) -> Result<Step, SocksError> {
        let mut reader = Reader::new(&self.received);
        let mut read = || {
            let [_, _, _, kind] = reader.array()?;
            let len = match kind {
                1 => 4,
                4 => 16,
                3 => reader.u8()?.into(),
                _ => return Ok(false),
            };
            reader.bytes(len)?;
            reader.bytes(2)?;
            Ok::<bool, wire::WireError>(true)
        };
        match read() {
            Ok(true) => Ok(Step::Connected),
            Ok(false) => Err(SocksError::NotSocks),
            Err(_) => Ok(Step::Wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Socks {
        let (socks, greeting) = Socks::start("seed.example.org", 8333).unwrap();
        assert_eq!(greeting, [5, 2, 0, 2]);
        socks
    }

    fn feed(socks: &mut Socks, bytes: &[u8]) -> Result<(Step, usize), SocksError> {
        let mut rest = bytes;
        socks.receive(&mut rest).map(|step| (step, rest.len()))
    }

    #[test]
    fn names_go_to_the_proxy_with_random_credentials() {
        let mut socks = start();
        assert_eq!(feed(&mut socks, &[5]), Ok((Step::Wait, 0)));
        let Ok((Step::Send(login), 0)) = feed(&mut socks, &[2]) else { panic!("no login") };
        assert_eq!((login.len(), &login[..2], login[18]), (35, &[1, 16][..], 16));
        let (mut other, _) = Socks::start("x", 1).unwrap();
        assert_ne!(feed(&mut other, &[5, 2]), Ok((Step::Send(login), 0)));
        let request = [&[5, 1, 0, 3, 16][..], b"seed.example.org", &[0x20, 0x8d]].concat();
        assert_eq!(feed(&mut socks, &[1, 0]), Ok((Step::Send(request), 0)));
        assert_eq!(feed(&mut socks, &[5, 0, 0, 1, 1, 2, 3]), Ok((Step::Wait, 0)));
        assert_eq!(feed(&mut socks, &[4, 0, 80, b'p', b'e']), Ok((Step::Connected, 2)));
    }

    #[test]
    fn a_proxy_may_need_no_password_and_answer_with_a_name() {
        let mut socks = start();
        assert!(matches!(feed(&mut socks, &[5, 0]), Ok((Step::Send(_), 0))));
        assert_eq!(feed(&mut socks, &[5, 0, 0, 3, 2, b'a', b'b', 1]), Ok((Step::Wait, 0)));
        assert_eq!(feed(&mut socks, &[2]), Ok((Step::Connected, 0)));
    }

    #[test]
    fn refusals_name_the_reason() {
        assert_eq!(Socks::start("", 1).unwrap_err(), SocksError::Name(0));
        assert_eq!(Socks::start(&"a".repeat(256), 1).unwrap_err(), SocksError::Name(256));
        assert_eq!(feed(&mut start(), b"HTTP"), Err(SocksError::NotSocks));
        assert_eq!(feed(&mut start(), &[5, 0xff]), Err(SocksError::NoMethod));
        assert_eq!(feed(&mut start(), &[5, 1]), Err(SocksError::NotSocks));
        let mut socks = start();
        feed(&mut socks, &[5, 2]).unwrap();
        assert_eq!(feed(&mut socks, &[1, 1]), Err(SocksError::Authentication));
        let mut socks = start();
        feed(&mut socks, &[5, 0]).unwrap();
        let error = feed(&mut socks, &[5, 5]).unwrap_err();
        assert_eq!(error.to_string(), "could not connect (connection refused, code 5)");
        let mut socks = start();
        feed(&mut socks, &[5, 0]).unwrap();
        assert_eq!(feed(&mut socks, &[5, 0, 0, 9]), Err(SocksError::NotSocks));
    }
}

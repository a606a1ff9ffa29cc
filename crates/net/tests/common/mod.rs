//! Scripted peers on loopback sockets: they serve a generated chain, honestly or with one fault.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod chain;
pub mod drive;
pub mod proxy;

use chain::Chain;
use peregrine_net::{
    address::{Host, PeerAddress},
    frame::{Command, HEAD_LEN, RawMessage, Received, write_frame},
    message::{AddressRecord, Inventory, MAX_HEADERS, Message, PROTOCOL_VERSION, Services, Version, command},
    transport::{Role, Transport},
};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use wire::{BlockHash, Network};

/// What a peer does wrong, or how it differs from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Knows only version 1 of the transport, and closes at other bytes.
    OnlyV1,
    /// Sends nothing after this number of blocks.
    Stall(usize),
    /// Sends a byte a second when a block is asked for.
    Drip,
    /// Closes in the middle of a block.
    ClosesInBlock,
    /// Sends a `headers` with a wrong checksum before each right one.
    WrongChecksum,
    /// Sends the head of a frame of 4,000,001 bytes after the handshake.
    Oversized,
    /// Sends other messages, among them a block, before `verack`.
    EarlyMessages,
    /// Sends a hundred messages before `verack`.
    ManyEarlyMessages,
    /// Accepts and says nothing.
    Mute,
    /// Sends two `version` messages.
    SecondVersion,
    /// Offers only the last blocks.
    Limited,
    /// Answers a ping but no `getdata`.
    NoBlocks,
    /// Answers `getdata` with `notfound`.
    NotFound,
    /// Changes a byte of each block behind the header.
    Mutates,
    /// Sends blocks that were not asked for.
    Unrequested,
    /// Sends headers of which one is missing.
    HeaderGap,
    /// Sends 2,001 headers.
    TooManyHeaders,
    /// Sends 50,001 inventory entries.
    TooMuchInventory,
    /// Sends address after address.
    AddressFlood,
    /// Sends pings and reads no pongs.
    PingFlood,
    /// Sends unknown messages, `feature`, `inv`, `alert` and the like between all others.
    Chatter,
    /// Writes three bytes at a time.
    SplitBytes,
}

/// A listening peer. It ends when it is dropped.
pub struct ScriptedPeer {
    pub address: SocketAddr,
    /// Connections that were accepted.
    pub accepted: Arc<AtomicUsize>,
    /// Blocks that were sent.
    pub sent: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl ScriptedPeer {
    pub fn start(chain: &Arc<Chain>, fault: Fault) -> Self {
        Self::start_at("127.0.0.1", chain, fault)
    }

    pub fn start_at(ip: &str, chain: &Arc<Chain>, fault: Fault) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (accepted, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let shared = (Arc::clone(chain), Arc::clone(&stop), Arc::clone(&accepted), Arc::clone(&sent));
        thread::spawn(move || {
            let (chain, stop, accepted, sent) = shared;
            for socket in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                accepted.fetch_add(1, Ordering::Relaxed);
                let (chain, stop, sent) = (Arc::clone(&chain), Arc::clone(&stop), Arc::clone(&sent));
                let socket = socket.unwrap();
                // The end of a connection, from whichever side, is part of what is tested.
                thread::spawn(move || Session::run(socket, chain, fault, stop, sent).ok());
            }
        });
        Self { address, accepted, sent, stop }
    }

    pub fn peer_address(&self) -> PeerAddress {
        PeerAddress::from_socket(self.address)
    }
}

impl Drop for ScriptedPeer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

/// One accepted connection.
struct Session {
    socket: TcpStream,
    transport: Transport,
    chain: Arc<Chain>,
    fault: Fault,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
}

impl Session {
    fn run(
        mut socket: TcpStream,
        chain: Arc<Chain>,
        fault: Fault,
        stop: Arc<AtomicBool>,
        sent: Arc<AtomicUsize>,
    ) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut first = vec![0; 4];
        socket.read_exact(&mut first)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let magic = Network::Regtest.magic();
        let is_v1 = first == magic || fault == Fault::OnlyV1;
        let transport = if is_v1 { Transport::v1(magic) } else { Transport::v2(magic, Role::Responder) };
        let mut session = Self { socket, transport, chain, fault, stop, sent };
        session.receive(&first)?;
        let mut buffer = vec![0; 1 << 16];
        while !session.stop.load(Ordering::Relaxed) {
            match session.socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => session.receive(&buffer[..len])?,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let received = self.transport.receive(&mut bytes).map_err(io::Error::other)?;
            self.flush()?;
            match received {
                None => return Ok(()),
                Some(Received::Message(raw)) => {
                    self.answer(Message::decode(raw).map_err(io::Error::other)?)?
                }
                Some(_) => {}
            }
        }
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        if self.fault == Fault::Chatter {
            for name in ["feature", "alert", "unknown", "sendcmpct", "feefilter"] {
                self.transport.send(RawMessage { command: Command::new(name), payload: vec![1; 9] });
            }
            let list = vec![Inventory { kind: 1, hash: [7; 32] }; 20];
            self.transport.send(Message::Inv(list).encode());
        }
        self.transport.send(message.encode());
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.fault == Fault::SplitBytes && self.transport.outgoing().len() < 3_000 {
            while !self.transport.outgoing().is_empty() {
                let piece = self.transport.outgoing().len().min(3);
                self.socket.write_all(&self.transport.outgoing()[..piece])?;
                self.transport.mark_sent(piece);
            }
            return Ok(());
        }
        let len = self.transport.outgoing().len();
        self.socket.write_all(self.transport.outgoing())?;
        self.transport.mark_sent(len);
        Ok(())
    }

    fn answer(&mut self, message: Message) -> io::Result<()> {
        match message {
            Message::Version(_) => self.introduce(),
            Message::Verack => self.after_handshake(),
            Message::Ping(number) if self.fault != Fault::PingFlood => self.send(&Message::Pong(number)),
            Message::GetHeaders { locator, .. } => self.headers(&locator),
            Message::GetData(list) => {
                list.iter().filter_map(Inventory::block_hash).try_for_each(|hash| self.block(hash))
            }
            Message::GetAddr => self.send(&Message::Addresses(addresses(1, 9))),
            _ => Ok(()),
        }
    }

    fn introduce(&mut self) -> io::Result<()> {
        if self.fault == Fault::Mute {
            return Ok(());
        }
        let services = match self.fault {
            Fault::Limited => Services::NETWORK_LIMITED.with(Services::WITNESS),
            _ => Services::FULL.with(Services::P2P_V2),
        };
        let version = Message::Version(Version {
            version: PROTOCOL_VERSION,
            services,
            time: 1_700_000_000,
            nonce: 1 + u64::from(self.address_port()),
            user_agent: "/Scripted:1\x1b[31m/".to_owned(),
            height: self.chain.height() as i32,
            relay: true,
        });
        let early = match self.fault {
            Fault::EarlyMessages => 3,
            Fault::ManyEarlyMessages => 100,
            _ => 0,
        };
        self.send(&version)?;
        if self.fault == Fault::SecondVersion {
            self.send(&version)?;
        }
        for _ in 0..early {
            self.send(&Message::Block(self.chain.blocks[1].clone()))?;
        }
        self.send(&Message::WtxidRelay)?;
        self.send(&Message::SendAddrV2)?;
        self.send(&Message::Verack)
    }

    fn address_port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |address| address.port())
    }

    /// Sends what Core sends after the handshake, and what the fault wants.
    fn after_handshake(&mut self) -> io::Result<()> {
        self.transport.send(RawMessage { command: Command::new("sendcmpct"), payload: vec![0; 9] });
        self.send(&Message::Ping(77))?;
        match self.fault {
            Fault::Oversized => {
                let mut head = Vec::new();
                write_frame(&mut head, Network::Regtest.magic(), command::BLOCK, &[]);
                head[16..20].copy_from_slice(&4_000_001_u32.to_le_bytes());
                self.socket.write_all(&head[..HEAD_LEN])
            }
            Fault::TooMuchInventory => {
                self.send(&Message::Inv(vec![Inventory { kind: 1, hash: [1; 32] }; 50_001]))
            }
            Fault::Unrequested => {
                (1..5).try_for_each(|height| self.send(&Message::Block(self.chain.blocks[height].clone())))
            }
            Fault::AddressFlood => {
                (0..40).try_for_each(|seed| self.send(&Message::Addresses(addresses(1_000, seed))))
            }
            Fault::PingFlood => {
                let mut ping = Vec::new();
                write_frame(&mut ping, Network::Regtest.magic(), command::PING, &[1; 8]);
                let pings = ping.repeat(1_000_000);
                self.socket.write_all(&pings)
            }
            _ => Ok(()),
        }
    }

    fn headers(&mut self, locator: &[BlockHash]) -> io::Result<()> {
        let start = locator.iter().find_map(|hash| self.chain.find(hash)).unwrap_or(0) + 1;
        let mut headers: Vec<_> = self.chain.headers.iter().skip(start).take(MAX_HEADERS).copied().collect();
        match self.fault {
            Fault::HeaderGap if headers.len() > 5 => drop(headers.remove(3)),
            Fault::TooManyHeaders => headers.resize(MAX_HEADERS + 1, self.chain.headers[1]),
            Fault::WrongChecksum => {
                let mut bytes = Vec::new();
                let bad = Message::Headers(vec![self.chain.headers[0]]).encode();
                write_frame(&mut bytes, Network::Regtest.magic(), bad.command, &bad.payload);
                bytes[20] ^= 1;
                self.socket.write_all(&bytes)?;
            }
            _ => {}
        }
        self.send(&Message::Headers(headers))
    }

    fn block(&mut self, hash: BlockHash) -> io::Result<()> {
        let Some(height) = self.chain.find(&hash) else { return Ok(()) };
        let mut block = self.chain.blocks[height].clone();
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::NoBlocks => return Ok(()),
            Fault::NotFound => return self.send(&Message::NotFound(vec![Inventory::witness_block(hash)])),
            Fault::Mutates => *block.last_mut().unwrap() ^= 1,
            Fault::Stall(after) if sent >= after => return self.idle(None),
            Fault::Drip => return self.idle(Some(block)),
            Fault::ClosesInBlock => {
                self.transport.send(Message::Block(block).encode());
                let half = self.transport.outgoing().len() / 2;
                self.socket.write_all(&self.transport.outgoing()[..half])?;
                return Err(io::Error::other("closed on purpose"));
            }
            _ => {}
        }
        self.send(&Message::Block(block))
    }

    /// Sends nothing more, or a block with one byte a second, until the test ends.
    fn idle(&mut self, block: Option<Vec<u8>>) -> io::Result<()> {
        if let Some(block) = block {
            self.transport.send(Message::Block(block).encode());
        }
        for tick in 0u32.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(Duration::from_millis(50));
            if tick % 20 == 0 && !self.transport.outgoing().is_empty() {
                self.socket.write_all(&self.transport.outgoing()[..1])?;
                self.transport.mark_sent(1);
            }
        }
        Ok(())
    }
}

/// Returns public addresses that nobody has, in as many groups as possible.
fn addresses(count: usize, seed: u8) -> Vec<AddressRecord> {
    let at = |number: usize| [100 + seed / 100, seed, (number >> 8) as u8, number as u8];
    let record = |number| AddressRecord {
        time: 1_700_000_000,
        services: Services::FULL,
        address: PeerAddress { host: Host::V4(at(number).into()), port: 9 },
    };
    (0..count).map(record).collect()
}

//! One connection to a scripted peer.

use super::{Asked, BlockAnswer, Fault, POLL_INTERVAL, Shared, coins::SpentCoinsServer, lock};
use crate::prelude::*;
use net::{
    address::{Host, PeerAddress},
    frame::{Command, HEAD_LEN, RawMessage, Received, write_frame},
    message::{
        AddressRecord, FEATURE_VERSION, Inventory, Message, PROTOCOL_VERSION, SPENT_COINS_FEATURE, Services,
        Version, command,
    },
    transport::{Role, Transport},
};
use std::{
    collections::VecDeque,
    io::{Read, Write},
    sync::{Arc, atomic::Ordering},
};

/// Time between two bytes of a peer that sends one at a time.
const DRIP: Duration = Duration::from_secs(1);

/// Maximum number of headers in an announcement (Core `MAX_BLOCKS_TO_ANNOUNCE`).
const MAX_ANNOUNCED: usize = 8;

/// Size of the send buffer of a peer that waits when it is full, in bytes (Core `DEFAULT_MAXSENDBUFFER`).
const FULL: usize = 1_000_000;

/// An accepted connection.
pub(super) struct Session {
    socket: TcpStream,
    transport: Transport,
    shared: Arc<Shared>,
    fault: Fault,
    /// The chain that the client knows of, when the handshake is done.
    announced: Option<Arc<ServedChain>>,
    /// Whether the client wants new blocks to be announced by `headers`.
    sends_headers: bool,
    /// Messages that were not answered.
    unanswered: VecDeque<Message>,
    /// Blocks that the client has asked for and that were not sent. No further message is answered before.
    wanted: VecDeque<Inventory>,
    /// The same, of a peer that answers the next ping first.
    put_off: VecDeque<Inventory>,
    coins: SpentCoinsServer,
}

impl Session {
    /// Answers messages until either side ends.
    pub(super) fn run(mut socket: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut first = vec![0; 4];
        socket.read_exact(&mut first)?;
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        let (magic, fault) = (Network::Regtest.magic(), shared.fault);
        let is_v1 = first == magic || fault == Fault::OnlyV1;
        let transport = if is_v1 { Transport::v1(magic) } else { Transport::v2(magic, Role::Responder) };
        let mut session = Self {
            socket,
            transport,
            shared,
            fault,
            announced: None,
            sends_headers: false,
            unanswered: VecDeque::new(),
            wanted: VecDeque::new(),
            put_off: VecDeque::new(),
            coins: SpentCoinsServer::new(fault),
        };
        session.receive(&first)?;
        let mut buffer = vec![0; 1 << 16];
        while !session.shared.is_over() {
            session.announce()?;
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
                    self.unanswered.push_back(Message::decode(raw).map_err(io::Error::other)?);
                    self.answer_all()?;
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
        let is_split = self.fault == Fault::SplitBytes && self.transport.outgoing().len() < 3_000;
        while !self.transport.outgoing().is_empty() {
            let outgoing = self.transport.outgoing();
            let len = if is_split { outgoing.len().min(3) } else { outgoing.len() };
            self.socket.write_all(&outgoing[..len])?;
            self.transport.mark_sent(len);
        }
        Ok(())
    }

    /// Answers what has come, in order, unless blocks are left.
    fn answer_all(&mut self) -> io::Result<()> {
        self.send_wanted()?;
        while self.wanted.is_empty() {
            let Some(message) = self.unanswered.pop_front() else { break };
            self.answer(message)?;
            self.send_wanted()?;
        }
        Ok(())
    }

    fn answer(&mut self, message: Message) -> io::Result<()> {
        let is_delayed = matches!(message, Message::Version(_) | Message::GetHeaders { .. });
        if self.fault == Fault::LateHeaders && is_delayed {
            thread::sleep(Duration::from_millis(300));
        }
        match message {
            Message::Version(theirs) => self.introduce(&theirs),
            Message::Verack => self.after_handshake(),
            Message::Ping(number) if self.fault != Fault::PingFlood && !self.coins.is_mute => {
                self.wanted.append(&mut self.put_off);
                self.send(&Message::Pong(number))
            }
            Message::GetSpentCoins { form, block } => {
                self.shared.coins_asked.fetch_add(1, Ordering::Relaxed);
                let chain = self.shared.chain();
                self.coins.answer(&chain, form, block).iter().try_for_each(|message| self.send(message))
            }
            Message::GetHeaders { locator, .. } => {
                self.shared.headers_asked.fetch_add(1, Ordering::Relaxed);
                self.headers(&locator)
            }
            Message::GetData(list) => {
                let wanted =
                    if self.fault == Fault::LyingPong { &mut self.put_off } else { &mut self.wanted };
                wanted.extend(list.iter().filter(|item| item.block_hash().is_some()));
                Ok(())
            }
            Message::SendHeaders => {
                self.sends_headers = self.fault != Fault::AnnouncesByInv;
                Ok(())
            }
            Message::GetAddr => self.send(&Message::Addresses(addresses(1, 9))),
            _ => Ok(()),
        }
    }

    fn introduce(&mut self, theirs: &Version) -> io::Result<()> {
        if self.fault == Fault::Mute {
            return Ok(());
        }
        let chain = self.shared.chain();
        let services = match self.fault {
            Fault::Limited => Services::NETWORK_LIMITED.with(Services::WITNESS),
            Fault::NoWitnesses => Services::NETWORK,
            Fault::ReferenceCoins => Services::FULL.with(Services::BLOCK_UNDO),
            _ => Services::FULL.with(Services::P2P_V2),
        };
        let has_coins = chain.undo.iter().any(|undo| !undo.is_empty())
            && !matches!(self.fault, Fault::OffersNoCoins | Fault::ReferenceCoins);
        let port = self.socket.local_addr().map_or(0, |address| address.port());
        let version = Message::Version(Version {
            version: if has_coins { FEATURE_VERSION } else { PROTOCOL_VERSION },
            services,
            time: 1_700_000_000,
            nonce: 1 + u64::from(port),
            user_agent: "/Scripted:1\x1b[31m/".to_owned(),
            height: if self.fault == Fault::SaysHeightZero { 0 } else { chain.height() as i32 },
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
            self.send(&Message::Block(chain.blocks[1].clone()))?;
        }
        self.send(&Message::Ignored(Command::new("wtxidrelay")))?;
        self.send(&Message::SendAddrV2)?;
        if has_coins && theirs.version >= FEATURE_VERSION {
            let unknown = Message::Feature { id: b"BIP434-test".to_vec(), data: vec![7; 512] };
            self.send(&unknown)?;
            self.send(&Message::Feature { id: SPENT_COINS_FEATURE.to_vec(), data: Vec::new() })?;
        }
        self.send(&Message::Verack)
    }

    /// Sends what Core sends after the handshake, and what the fault wants.
    fn after_handshake(&mut self) -> io::Result<()> {
        self.announced = Some(self.shared.chain());
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

    /// Announces the blocks of a chain that is served since a short time, as Core does: up to eight headers,
    /// or the last block's hash.
    fn announce(&mut self) -> io::Result<()> {
        let chain = self.shared.chain();
        let Some(known) = self.announced.as_mut().filter(|known| !Arc::ptr_eq(known, &chain)) else {
            return Ok(());
        };
        let shared = known.hashes.iter().zip(&chain.hashes).take_while(|(old, new)| old == new).count();
        *known = Arc::clone(&chain);
        let new = chain.headers.get(shared..).unwrap_or_default();
        let Some(tip) = chain.hashes.last().filter(|_| !new.is_empty()) else { return Ok(()) };
        let by_headers = self.sends_headers && new.len() <= MAX_ANNOUNCED;
        self.send(&match by_headers {
            true => Message::Headers(new.to_vec()),
            false => Message::Inv(vec![Inventory { kind: Inventory::BLOCK, hash: tip.0 }]),
        })
    }

    fn headers(&mut self, locator: &[BlockHash]) -> io::Result<()> {
        let chain = self.shared.chain();
        if self.fault == Fault::WrongChecksum {
            let mut bytes = Vec::new();
            let bad = Message::Headers(vec![chain.headers[0]]).encode();
            write_frame(&mut bytes, Network::Regtest.magic(), bad.command, &bad.payload);
            bytes[20] ^= 1;
            self.socket.write_all(&bytes)?;
        }
        let headers = self.fault.headers(&chain, locator);
        headers.map_or(Ok(()), |headers| self.send(&Message::Headers(headers)))
    }

    fn send_wanted(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < FULL || self.fault != Fault::WaitsWhenFull {
            let Some(item) = self.wanted.pop_front() else { break };
            let (chain, hash) = (self.shared.chain(), BlockHash(item.hash));
            sent += chain.find(&hash).map_or(0, |height| chain.blocks[height].len());
            self.block(hash, item.kind == Inventory::BLOCK)?;
        }
        Ok(())
    }

    /// Sends a block, as Core without its witnesses unless they were asked for.
    fn block(&mut self, hash: BlockHash, is_stripped: bool) -> io::Result<()> {
        let chain = self.shared.chain();
        let Some(height) = chain.find(&hash) else { return Ok(()) };
        let mut block = chain.blocks[height].clone();
        if is_stripped {
            block = without_witnesses(&block);
        }
        let before = {
            let mut asked = lock(&self.shared.asked);
            asked.push(hash);
            asked.len() - 1
        };
        while before >= self.shared.hold_at.load(Ordering::Relaxed) {
            if self.shared.is_over() {
                return Err(io::Error::other("ended while it was held"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        match self.fault.block(Asked { height, tip: chain.height(), before }) {
            BlockAnswer::Block => {}
            BlockAnswer::Changed => block.iter_mut().last().into_iter().for_each(|byte| *byte ^= 1),
            BlockAnswer::Stripped => block = without_witnesses(&block),
            BlockAnswer::Another => block = chain.blocks[0].clone(),
            BlockAnswer::Nothing => return Ok(()),
            BlockAnswer::NotFound => {
                return self.send(&Message::NotFound(vec![Inventory::witness_block(hash)]));
            }
            BlockAnswer::Silence => return self.idle(None),
            BlockAnswer::Drip => return self.idle(Some(block)),
            BlockAnswer::Closes => return Err(io::Error::other("the block is deleted")),
            BlockAnswer::Half => {
                self.transport.send(Message::Block(block).encode());
                let half = self.transport.outgoing().len() / 2;
                self.socket.write_all(&self.transport.outgoing()[..half])?;
                return Err(io::Error::other("closed on purpose"));
            }
        }
        self.send(&Message::Block(block))
    }

    /// Sends nothing more, or a block with one byte a second, until the test ends.
    fn idle(&mut self, block: Option<Vec<u8>>) -> io::Result<()> {
        if let Some(block) = block {
            self.transport.send(Message::Block(block).encode());
        }
        let looks = DRIP.as_millis() / POLL_INTERVAL.as_millis();
        for look in 0.. {
            if self.shared.is_over() {
                break;
            }
            thread::sleep(POLL_INTERVAL);
            if look % looks == 0 && !self.transport.outgoing().is_empty() {
                self.socket.write_all(&self.transport.outgoing()[..1])?;
                self.transport.mark_sent(1);
            }
        }
        Ok(())
    }
}

/// Returns a block as nodes without witnesses know it.
pub fn without_witnesses(block: &[u8]) -> Vec<u8> {
    let mut block: bitcoin::Block = bitcoin::consensus::deserialize(block).expect("the block is well-formed");
    for input in block.txdata.iter_mut().flat_map(|tx| &mut tx.input) {
        input.witness.clear();
    }
    bitcoin::consensus::serialize(&block)
}

/// Returns public addresses that nobody has, in as many groups as possible.
fn addresses(count: usize, seed: u8) -> Vec<AddressRecord> {
    let at = |number: usize| [100 + seed / 100, seed, (number >> 8) as u8, number as u8];
    let record = |number| AddressRecord {
        time: 1_700_000_000,
        services: Services::FULL,
        address: PeerAddress { host: Host::V4(at(number).into()), port: 8_333 },
    };
    (0..count).map(record).collect()
}

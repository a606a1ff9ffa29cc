//! Downloads all headers and blocks of regtest nodes into nothing, and reports the speed: `fetch v1|v2
//! ADDRESS:PORT..`. Headers are not validated. Of each block the merkle root is checked if `CHECK=1` is in
//! the environment.

use digest::sha256::{Message, sha256d_many, sha256d_pairs};
use peregrine_net::{
    address::{NetworkKind, PeerAddress},
    client::{Client, ClientEvent, ClientOptions},
    download::DownloadOptions,
    headers::{HeaderBatch, locator_heights},
    message::Services,
    pool::{PoolOptions, Target},
};
use std::{
    error::Error,
    time::{Duration, Instant},
};
use wire::{BlockArena, BlockHash, Network};

const GENESIS: &str = "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206";

struct Fetch {
    client: Client,
    known: Vec<BlockHash>,
    given: usize,
    arena: BlockArena,
    is_checking: bool,
}

impl Fetch {
    fn headers(&mut self, batch: &HeaderBatch) {
        let Some(at) = self.known.iter().rposition(|hash| *hash == batch.parent) else {
            self.client.reject_headers(batch);
            return;
        };
        let before = self.known.len();
        if at + 1 + batch.hashes.len() > before {
            self.known.truncate(at + 1);
            self.known.extend(&batch.hashes);
        }
        let heights = locator_heights(self.known.len() as u32 - 1).into_iter();
        let locator = heights.filter_map(|height| self.known.get(height as usize).copied()).collect();
        let (height, new) = (at + batch.hashes.len(), self.known.len().saturating_sub(before));
        self.client.accept_headers(batch, height as u32, new, locator);
    }

    fn give(&mut self) {
        let count = self.client.wanted_hashes().min(self.known.len() - self.given);
        let hashes: Vec<BlockHash> = self.known.iter().skip(self.given).take(count).copied().collect();
        self.given += count;
        self.client.extend(hashes, self.given == self.known.len());
    }

    fn is_intact(&mut self, bytes: &[u8]) -> bool {
        let Ok(view) = self.arena.parse(bytes) else { return false };
        let messages: Vec<Message<'_>> = view.txs().map(|tx| tx.txid_message()).collect();
        let (mut nodes, mut parents) = (Vec::new(), Vec::new());
        sha256d_many(&messages, &mut nodes);
        while nodes.len() > 1 {
            if nodes.len() % 2 == 1 {
                nodes.extend(nodes.last().copied());
            }
            parents.clear();
            sha256d_pairs(&nodes, &mut parents);
            std::mem::swap(&mut nodes, &mut parents);
        }
        nodes.first() == Some(&view.header().merkle_root)
    }

    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        for event in self.client.poll(Duration::from_millis(100))? {
            match event {
                ClientEvent::Headers(batch) => self.headers(&batch),
                ClientEvent::Block { height, hash, bytes, .. } => {
                    if self.is_checking && !self.is_intact(&bytes) {
                        self.client.reject_block(height, hash, bytes.len());
                    } else {
                        self.client.accept_block(height, hash, bytes.len());
                    }
                }
                ClientEvent::Ready { target, info, transport, .. } => {
                    println!("{target}: {transport:?}, {}, height {}", info.user_agent, info.height);
                }
                ClientEvent::Closed { target, reason, .. } => println!("{target}: {reason}"),
                ClientEvent::CoinsRefused { target, fault } => println!("{target}: {fault}"),
            }
        }
        Ok(())
    }
}

fn options(use_v2: bool) -> ClientOptions {
    ClientOptions {
        pool: PoolOptions {
            network: Network::Regtest,
            magic: Network::Regtest.magic(),
            user_agent: "/peregrine:fetch/".to_owned(),
            height: 0,
            needed: Services::FULL,
            wants_spent_coins: false,
            proxy: None,
            i2p_sam: None,
            memory_bytes: 64 << 20,
            bytes_per_second: None,
        },
        download: DownloadOptions { in_flight_max_bytes: 32_000_000, ..DownloadOptions::default() },
        first_height: 1,
        peers_max: 64,
        networks: vec![NetworkKind::Ipv4],
        only_user_targets: true,
        use_v2,
        hears_announcements: false,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let use_v2 = args.next().as_deref() == Some("v2");
    let genesis: BlockHash = GENESIS.parse()?;
    let client = Client::new(options(use_v2), vec![genesis])?;
    let is_checking = std::env::var_os("CHECK").is_some_and(|value| value == "1");
    let mut fetch =
        Fetch { client, known: vec![genesis], given: 1, arena: BlockArena::default(), is_checking };
    for address in args {
        fetch.client.add_target(Target::Address(PeerAddress::from_socket(address.parse()?)));
    }
    let start = Instant::now();
    while !fetch.client.headers().is_complete() {
        fetch.step()?;
    }
    println!("{} headers in {:.2} s", fetch.known.len() - 1, start.elapsed().as_secs_f64());
    let start = Instant::now();
    fetch.give();
    while fetch.given < fetch.known.len() || !fetch.client.download().is_done() {
        fetch.step()?;
        fetch.give();
    }
    let totals = fetch.client.download().totals();
    let seconds = start.elapsed().as_secs_f64();
    let speed = totals.bytes as f64 / 1e6 / seconds;
    println!("{} blocks, {} bytes in {seconds:.2} s: {speed:.0} MB/s", totals.blocks, totals.bytes);
    println!("{} bytes came twice, {} blocks were asked twice", totals.duplicate_bytes, totals.hedged_blocks);
    Ok(())
}

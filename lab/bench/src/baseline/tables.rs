//! Tables of coins, composed of a hash, a place for the nodes and a form of the coins, so that each can be
//! exchanged by itself; and the connection of blocks to such a table, in order.

use super::hashers::{Jumbo, OutpointHasher};
use crate::{Answers, Block};
use coins::OwnedCoin;
use hashbrown::{HashTable, hash_table::Entry};
use std::{hint::black_box, marker::PhantomData};
use wire::{
    Coin, OutPoint,
    coin::{chainstate_key_order, compress_output},
    script::is_unspendable,
};

/// A coin in a form that a table keeps.
pub trait KeptCoin {
    /// Copies a coin.
    fn keep(coin: Coin<'_>) -> Self;

    /// Returns the coin.
    fn coin(&self) -> Coin<'_>;

    /// Returns how many bytes the allocator gives for the coin: a multiple of 16, with the length beside it.
    fn heap_bytes(&self) -> usize;
}

const fn allocated(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16)
}

/// The output is on the heap.
impl KeptCoin for OwnedCoin {
    fn keep(coin: Coin<'_>) -> Self {
        coin.into()
    }

    fn coin(&self) -> Coin<'_> {
        self.as_coin()
    }

    fn heap_bytes(&self) -> usize {
        allocated(self.as_coin().out.len())
    }
}

/// A coin whose output is beside it, unless its script is longer than `SCRIPT` bytes. `ROOM` is that and 10
/// bytes for amount and length.
#[derive(Clone, Debug)]
pub struct InlineCoin<const SCRIPT: usize, const ROOM: usize> {
    code: u32,
    out: InlineOut<ROOM>,
}

/// As Bitcoin Core's until #32279: scripts of 28 bytes are inline.
pub type Narrow = InlineCoin<28, 38>;
/// As Bitcoin Core's since #32279: scripts of 36 bytes are inline.
pub type Wide = InlineCoin<36, 46>;

#[derive(Clone, Debug)]
enum InlineOut<const ROOM: usize> {
    Inline(u8, [u8; ROOM]),
    Heap(Box<[u8]>),
}

impl<const SCRIPT: usize, const ROOM: usize> KeptCoin for InlineCoin<SCRIPT, ROOM> {
    fn keep(Coin { code, out }: Coin<'_>) -> Self {
        // The amount ends with the first byte whose highest bit is not set.
        let amount = out.iter().position(|byte| byte & 0x80 == 0).map_or(out.len(), |at| at + 1);
        let mut bytes = [0; ROOM];
        let out = match bytes.get_mut(..out.len()).filter(|_| out.len() - amount <= SCRIPT + 1) {
            Some(room) => {
                room.copy_from_slice(out);
                InlineOut::Inline(out.len() as u8, bytes)
            }
            None => InlineOut::Heap(out.into()),
        };
        Self { code, out }
    }

    fn coin(&self) -> Coin<'_> {
        let out = match &self.out {
            InlineOut::Inline(len, bytes) => &bytes[..usize::from(*len)],
            InlineOut::Heap(bytes) => bytes,
        };
        Coin { code: self.code, out }
    }

    fn heap_bytes(&self) -> usize {
        match &self.out {
            InlineOut::Inline(..) => 0,
            InlineOut::Heap(bytes) => allocated(bytes.len()),
        }
    }
}

/// Where the nodes of a table are.
pub trait Nodes: Default {
    /// The form of the coins.
    type Coin: KeptCoin;
    /// Bytes of a node outside of the table.
    const NODE_BYTES: usize;
    /// What the table has of a node.
    type Handle;

    /// Adds a node.
    fn put(&mut self, node: (OutPoint, Self::Coin)) -> Self::Handle;

    /// Returns a node.
    fn get<'n>(&'n self, handle: &'n Self::Handle) -> &'n (OutPoint, Self::Coin);

    /// Removes a node.
    fn take(&mut self, handle: Self::Handle) -> (OutPoint, Self::Coin);
}

/// The nodes are in the table itself, as those of a `HashMap`.
#[derive(Clone, Debug)]
pub struct InTable<C>(PhantomData<C>);

/// Each node is an allocation of its own, as those of C++'s `unordered_map`.
#[derive(Clone, Debug)]
pub struct Allocated<C>(PhantomData<C>);

/// The nodes are in one pool; a place that becomes free is used again.
#[derive(Clone, Debug)]
pub struct Pooled<C> {
    nodes: Vec<Option<(OutPoint, C)>>,
    free: Vec<u32>,
}

impl<C> Default for InTable<C> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<C> Default for Allocated<C> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<C> Default for Pooled<C> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }
}

impl<C: KeptCoin> Nodes for InTable<C> {
    type Coin = C;
    type Handle = (OutPoint, C);
    const NODE_BYTES: usize = 0;

    fn put(&mut self, node: (OutPoint, C)) -> Self::Handle {
        node
    }

    fn get<'n>(&'n self, handle: &'n Self::Handle) -> &'n (OutPoint, C) {
        handle
    }

    fn take(&mut self, handle: Self::Handle) -> (OutPoint, C) {
        handle
    }
}

impl<C: KeptCoin> Nodes for Allocated<C> {
    type Coin = C;
    type Handle = Box<(OutPoint, C)>;
    const NODE_BYTES: usize = allocated(size_of::<(OutPoint, C)>());

    fn put(&mut self, node: (OutPoint, C)) -> Self::Handle {
        Box::new(node)
    }

    fn get<'n>(&'n self, handle: &'n Self::Handle) -> &'n (OutPoint, C) {
        handle
    }

    fn take(&mut self, handle: Self::Handle) -> (OutPoint, C) {
        *handle
    }
}

impl<C: KeptCoin> Nodes for Pooled<C> {
    type Coin = C;
    type Handle = u32;
    const NODE_BYTES: usize = size_of::<Option<(OutPoint, C)>>();

    fn put(&mut self, node: (OutPoint, C)) -> u32 {
        if let Some(place) = self.free.pop() {
            self.nodes[place as usize] = Some(node);
            return place;
        }
        self.nodes.push(Some(node));
        self.nodes.len() as u32 - 1
    }

    fn get<'n>(&'n self, handle: &'n u32) -> &'n (OutPoint, C) {
        self.nodes[*handle as usize].as_ref().expect("the table has only places in use")
    }

    fn take(&mut self, handle: u32) -> (OutPoint, C) {
        self.free.push(handle);
        self.nodes[handle as usize].take().expect("the table has only places in use")
    }
}

/// Coins to which blocks are connected.
pub trait Coins {
    /// Adds a coin, or replaces it.
    fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>);

    /// Removes a coin; returns whether it was there and equal to `claim`.
    fn spend(&mut self, outpoint: &OutPoint, claim: &Coin<'_>) -> bool;

    /// Returns a hash of all coins.
    fn answer(&self) -> String;

    /// Returns the bytes that all coins take in memory, without free places of the table; `None` if that is
    /// not the question.
    fn bytes(&self) -> Option<usize> {
        None
    }
}

/// A table of coins.
pub struct CoinTable<H, N: Nodes> {
    hasher: H,
    handles: HashTable<N::Handle>,
    nodes: N,
}

impl<H: OutpointHasher, N: Nodes> Default for CoinTable<H, N> {
    fn default() -> Self {
        Self { hasher: H::new(1, 2), handles: HashTable::new(), nodes: N::default() }
    }
}

impl<H: OutpointHasher, N: Nodes> CoinTable<H, N> {
    /// Number of coins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether it has no coins.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Removes all coins and returns them. The table keeps its memory.
    pub fn drain(&mut self) -> impl Iterator<Item = (OutPoint, N::Coin)> {
        let Self { handles, nodes, .. } = self;
        handles.drain().map(|handle| nodes.take(handle))
    }

    /// Returns a coin.
    fn find(&self, outpoint: &OutPoint) -> Option<&N::Coin> {
        let is_it = |handle: &&N::Handle| self.nodes.get(handle).0 == *outpoint;
        let handle = self.handles.find(self.hasher.hash(outpoint), |handle| is_it(&handle))?;
        Some(&self.nodes.get(handle).1)
    }

    /// Removes a coin and returns it.
    pub fn take(&mut self, outpoint: &OutPoint) -> Option<N::Coin> {
        let Self { hasher, handles, nodes } = self;
        let found = handles.find_entry(hasher.hash(outpoint), |handle| nodes.get(handle).0 == *outpoint);
        let (handle, _) = found.ok()?.remove();
        Some(nodes.take(handle).1)
    }

    fn add(&mut self, outpoint: OutPoint, coin: N::Coin) {
        let Self { hasher, handles, nodes } = self;
        let is_it = |handle: &N::Handle| nodes.get(handle).0 == outpoint;
        match handles.entry(hasher.hash(&outpoint), is_it, |handle| hasher.hash(&nodes.get(handle).0)) {
            Entry::Occupied(mut place) => {
                let old = std::mem::replace(place.get_mut(), nodes.put((outpoint, coin)));
                nodes.take(old);
            }
            Entry::Vacant(place) => {
                place.insert(nodes.put((outpoint, coin)));
            }
        }
    }
}

impl<H: OutpointHasher, N: Nodes> Coins for CoinTable<H, N> {
    fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) {
        self.add(outpoint, N::Coin::keep(coin));
    }

    fn spend(&mut self, outpoint: &OutPoint, claim: &Coin<'_>) -> bool {
        self.take(outpoint).is_some_and(|kept| kept.coin() == *claim)
    }

    fn answer(&self) -> String {
        let mut coins: Vec<_> = self.handles.iter().map(|handle| self.nodes.get(handle)).collect();
        coins.sort_unstable_by(|(a, _), (b, _)| chainstate_key_order(a, b));
        let (mut answers, mut bytes) = (Answers::default(), Vec::new());
        for (outpoint, kept) in coins {
            bytes.extend_from_slice(&outpoint.txid.0);
            bytes.extend_from_slice(&outpoint.vout.to_le_bytes());
            kept.coin().write_chainstate_value(&mut bytes);
        }
        answers.add("coins", &bytes);
        answers.hash()
    }

    fn bytes(&self) -> Option<usize> {
        let each = N::NODE_BYTES + size_of::<N::Handle>();
        let heap: usize = self.handles.iter().map(|handle| self.nodes.get(handle).1.heap_bytes()).sum();
        Some(self.len() * each + heap)
    }
}

/// A table in which each coin is looked up before it is added or removed, which looks it up again.
#[derive(Default)]
pub struct LookedUpTwice<T>(T);

impl<H: OutpointHasher, N: Nodes> Coins for LookedUpTwice<CoinTable<H, N>> {
    fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) {
        if black_box(self.0.find(&outpoint)).is_none() {
            self.0.create(outpoint, coin);
        }
    }

    fn spend(&mut self, outpoint: &OutPoint, claim: &Coin<'_>) -> bool {
        black_box(self.0.find(outpoint)).is_some() && self.0.spend(outpoint, claim)
    }

    fn answer(&self) -> String {
        self.0.answer()
    }
}

type Plain = CoinTable<Jumbo, InTable<OwnedCoin>>;

/// What becomes of a cache when it is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// A new table takes the place of the emptied one.
    Frees,
    /// It is emptied and keeps its memory.
    Empties,
    /// Its coins stay.
    Keeps,
}

/// A table whose new coins are copied into another one from time to time, as a cache is flushed into a
/// database.
pub struct FlushedTable {
    cache: Plain,
    below: Plain,
    /// Coins to be copied, and those to be removed because they were spent.
    created: Vec<OutPoint>,
    spent: Vec<OutPoint>,
    most: usize,
    flush: Flush,
}

impl FlushedTable {
    /// Creates a table that is flushed whenever `most` coins were created.
    #[must_use]
    pub fn new(most: usize, flush: Flush) -> Self {
        let (cache, below) = (Plain::default(), Plain::default());
        Self { cache, below, created: Vec::new(), spent: Vec::new(), most, flush }
    }

    fn flush(&mut self) {
        for outpoint in self.spent.drain(..) {
            self.below.take(&outpoint);
        }
        if self.flush == Flush::Keeps {
            for outpoint in self.created.drain(..) {
                if let Some(coin) = self.cache.find(&outpoint) {
                    self.below.create(outpoint, coin.as_coin());
                }
            }
            return;
        }
        self.created.clear();
        for (outpoint, coin) in self.cache.drain() {
            self.below.add(outpoint, coin);
        }
        if self.flush == Flush::Frees {
            self.cache = Plain::default();
        }
    }
}

impl Coins for FlushedTable {
    fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) {
        if self.created.len() >= self.most {
            self.flush();
        }
        self.created.push(outpoint);
        self.cache.create(outpoint, coin);
    }

    fn spend(&mut self, outpoint: &OutPoint, claim: &Coin<'_>) -> bool {
        let cached = self.cache.take(outpoint);
        // A coin of before the last flush is in the other table too, if it stayed.
        if cached.is_none() || self.flush == Flush::Keeps {
            self.spent.push(*outpoint);
        }
        match cached {
            Some(kept) => kept.coin() == *claim,
            None => self.below.find(outpoint).is_some_and(|kept| kept.coin() == *claim),
        }
    }

    fn answer(&self) -> String {
        let mut all = Plain::default();
        for table in [&self.below, &self.cache] {
            for (outpoint, kept) in &table.handles {
                all.create(*outpoint, kept.coin());
            }
        }
        self.spent.iter().for_each(|outpoint| drop(all.take(outpoint)));
        all.answer()
    }
}

/// Spends and creates the coins of all blocks, in order.
///
/// # Panics
/// If a coin is missing, or is not the one in the undo data.
pub fn connect(blocks: &[Block<'_>], coins: &mut impl Coins) {
    let mut out = Vec::new();
    for block in blocks {
        let mut claims = block.claims.iter();
        for (index, (tx, txid)) in block.view.txs().zip(&block.txids).enumerate() {
            if index > 0 {
                for (input, claim) in tx.inputs().zip(claims.by_ref()) {
                    assert!(coins.spend(&input.prevout(), claim), "{} is not the claim", input.prevout());
                }
            }
            let code = Coin::code_of(block.height, index == 0);
            for (vout, output) in (0..).zip(tx.outputs()) {
                if !is_unspendable(output.script_pubkey()) {
                    out.clear();
                    compress_output(&mut out, output.value(), output.script_pubkey());
                    coins.create(OutPoint { txid: *txid, vout }, Coin { code, out: &out });
                }
            }
        }
    }
}

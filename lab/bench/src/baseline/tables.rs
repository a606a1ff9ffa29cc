//! Tables of coins, composed of a hash, a place for the nodes and a form of the coins, so that each can be
//! exchanged by itself; and the connection of blocks to such a table, in order.

use super::hashers::OutpointHasher;
use crate::{Answers, Block};
use coins::OwnedCoin;
use hashbrown::{HashTable, hash_table::Entry};
use std::marker::PhantomData;
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
}

/// The output is on the heap.
impl KeptCoin for OwnedCoin {
    fn keep(coin: Coin<'_>) -> Self {
        coin.into()
    }

    fn coin(&self) -> Coin<'_> {
        self.as_coin()
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
}

/// Where the nodes of a table are.
pub trait Nodes: Default {
    /// The form of the coins.
    type Coin: KeptCoin;
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

impl<C> Default for Pooled<C> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }
}

impl<C: KeptCoin> Nodes for InTable<C> {
    type Coin = C;
    type Handle = (OutPoint, C);

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

impl<C: KeptCoin> Nodes for Pooled<C> {
    type Coin = C;
    type Handle = u32;

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

impl<H: OutpointHasher, N: Nodes> CoinTable<H, N> {
    /// Adds a coin, or replaces it.
    pub fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) {
        self.add(outpoint, N::Coin::keep(coin));
    }

    /// Removes a coin; returns whether it was there and equal to `claim`.
    pub fn spend(&mut self, outpoint: &OutPoint, claim: &Coin<'_>) -> bool {
        self.take(outpoint).is_some_and(|kept| kept.coin() == *claim)
    }

    /// Returns a hash of all coins.
    #[must_use]
    pub fn answer(&self) -> String {
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
}

/// Spends and creates the coins of all blocks, in order.
///
/// # Panics
/// If a coin is missing, or is not the one in the undo data.
pub fn connect<H: OutpointHasher, N: Nodes>(blocks: &[Block<'_>], coins: &mut CoinTable<H, N>) {
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

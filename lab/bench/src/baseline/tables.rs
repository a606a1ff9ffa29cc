//! Tables of coins, composed of a hash and a form of the coins, so that each can be exchanged by itself; and
//! the connection of blocks to such a table, in order.

use super::hashers::OutpointHasher;
use crate::{Answers, Block};
use hashbrown::{HashTable, hash_table::Entry};
use wire::{
    Coin, OutPoint,
    coin::{chainstate_key_order, compress_output},
    script::is_unspendable,
};

/// A coin in a form that a table keeps.
pub trait KeptCoin {
    /// Copies a coin.
    fn keep(coin: Coin<'_>) -> Self;

    fn coin(&self) -> Coin<'_>;
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

/// The nodes of a table, in one pool; a place that becomes free is used again.
struct Pool<C> {
    nodes: Vec<Option<(OutPoint, C)>>,
    free: Vec<u32>,
}

impl<C> Pool<C> {
    fn put(&mut self, node: (OutPoint, C)) -> u32 {
        if let Some(place) = self.free.pop() {
            self.nodes[place as usize] = Some(node);
            return place;
        }
        self.nodes.push(Some(node));
        self.nodes.len() as u32 - 1
    }

    fn get(&self, place: u32) -> &(OutPoint, C) {
        self.nodes[place as usize].as_ref().expect("the table has only places in use")
    }

    fn take(&mut self, place: u32) -> (OutPoint, C) {
        self.free.push(place);
        self.nodes[place as usize].take().expect("the table has only places in use")
    }
}

pub struct CoinTable<H, C> {
    hasher: H,
    places: HashTable<u32>,
    pool: Pool<C>,
}

impl<H: OutpointHasher, C> Default for CoinTable<H, C> {
    fn default() -> Self {
        let pool = Pool { nodes: Vec::new(), free: Vec::new() };
        Self { hasher: H::new(1, 2), places: HashTable::new(), pool }
    }
}

impl<H: OutpointHasher, C: KeptCoin> CoinTable<H, C> {
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Removes all coins and returns them. The table keeps its memory.
    pub fn drain(&mut self) -> impl Iterator<Item = (OutPoint, C)> {
        let Self { places, pool, .. } = self;
        places.drain().map(|place| pool.take(place))
    }

    pub fn take(&mut self, outpoint: &OutPoint) -> Option<C> {
        let Self { hasher, places, pool } = self;
        let found = places.find_entry(hasher.hash(outpoint), |place| pool.get(*place).0 == *outpoint);
        let (place, _) = found.ok()?.remove();
        Some(pool.take(place).1)
    }

    /// Adds a coin, or replaces it.
    pub fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) {
        let Self { hasher, places, pool } = self;
        let is_it = |place: &u32| pool.get(*place).0 == outpoint;
        let entry = places.entry(hasher.hash(&outpoint), is_it, |place| hasher.hash(&pool.get(*place).0));
        let new = pool.put((outpoint, C::keep(coin)));
        match entry {
            Entry::Occupied(mut place) => drop(pool.take(std::mem::replace(place.get_mut(), new))),
            Entry::Vacant(place) => drop(place.insert(new)),
        }
    }

    /// Removes a coin; returns whether it was there and equal to `claim`.
    pub fn spend(&mut self, outpoint: &OutPoint, claim: &Coin<'_>) -> bool {
        self.take(outpoint).is_some_and(|kept| kept.coin() == *claim)
    }

    /// Returns a hash of all coins.
    pub fn answer(&self) -> String {
        let mut coins: Vec<_> = self.places.iter().map(|place| self.pool.get(*place)).collect();
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
pub fn connect<H: OutpointHasher, C: KeptCoin>(blocks: &[Block<'_>], coins: &mut CoinTable<H, C>) {
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

//! What a block spends and creates, prepared by any thread for the one that changes the cache.

use crate::coin_list::CoinList;
use digest::siphash::{SipHash13Uj, SipKey};
use wire::{Coin, OutPoint};

/// The hash function of a cache's table: keyed, so that nobody can choose outpoints that collide.
#[derive(Clone, Copy, Debug)]
pub struct OutPointHasher(SipHash13Uj);

impl OutPointHasher {
    pub(super) fn new(SipKey(k0, k1): SipKey) -> Self {
        Self(SipHash13Uj::new(k0, k1))
    }

    #[inline]
    pub fn hash(&self, outpoint: OutPoint) -> HashedOutPoint {
        HashedOutPoint { hash: self.0.hash_outpoint(&outpoint.txid.0, outpoint.vout), outpoint }
    }
}

/// An outpoint and its hash in one cache.
#[derive(Clone, Copy, Debug)]
pub struct HashedOutPoint {
    pub outpoint: OutPoint,
    pub(super) hash: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MoveKind {
    Spend,
    Create { possible_overwrite: bool },
}

/// The coins that a block spends and creates, in its order.
#[derive(Debug)]
pub struct Moves {
    hasher: OutPointHasher,
    pub(super) moves: Vec<(HashedOutPoint, MoveKind)>,
    pub(super) created: CoinList,
}

impl Moves {
    /// Creates an empty list for the cache with this hash function, with room for `spends` and `creations`.
    pub fn with_capacity(hasher: OutPointHasher, spends: usize, creations: usize) -> Self {
        let moves = Vec::with_capacity(spends + creations);
        Self { hasher, moves, created: CoinList::with_capacity(creations) }
    }

    #[inline]
    pub fn spend(&mut self, outpoint: OutPoint) {
        self.moves.push((self.hasher.hash(outpoint), MoveKind::Spend));
    }

    /// Adds the creation of a coin; see [`CoinsCache::add_coin`](crate::CoinsCache::add_coin).
    #[inline]
    pub fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>, possible_overwrite: bool) {
        self.moves.push((self.hasher.hash(outpoint), MoveKind::Create { possible_overwrite }));
        self.created.push(coin);
    }

    /// Returns the outpoints that are spent, in order.
    pub fn spent(&self) -> impl Iterator<Item = &HashedOutPoint> {
        self.moves.iter().filter(|(_, kind)| matches!(kind, MoveKind::Spend)).map(|(outpoint, _)| outpoint)
    }

    /// Returns the outpoints that are created, in order.
    pub fn created(&self) -> impl Iterator<Item = &HashedOutPoint> {
        let created = self.moves.iter().filter(|(_, kind)| matches!(kind, MoveKind::Create { .. }));
        created.map(|(outpoint, _)| outpoint)
    }

    pub const fn memory_bytes(&self) -> usize {
        self.moves.capacity() * size_of::<(HashedOutPoint, MoveKind)>() + self.created.memory_bytes()
    }
}

/// Coins that were looked up in the database, for a cache that does not keep them.
#[derive(Debug, Default)]
pub struct FoundCoins {
    pub(super) outpoints: Vec<HashedOutPoint>,
    pub(super) coins: CoinList,
}

impl FoundCoins {
    pub fn push(&mut self, outpoint: HashedOutPoint, coin: Coin<'_>) {
        self.outpoints.push(outpoint);
        self.coins.push(coin);
    }
}

//! The coins of a chain: which are created, which are spent, and which remain.
//!
//! The crate has two methods over the same compressed coins ([`wire::coin`]): the [`join`] matches creations
//! with spends from all threads in any order and reports whether all of them match; a [`CoinsCache`] has the
//! coins at one block, to which the next one is connected: over the coins of a chainstate in an update, and
//! alone ([`MemoryCoins`]) in sequential validation, which finds what is wrong. [`Delta`] first removes coins
//! that are created and spent within a few blocks. Both methods leave [`Survivors`]: the UTXO set, sorted
//! shard by shard in the order of the chainstate's keys. What exceeds the memory is taken out in
//! sorted form ([`Join::take_oldest`]) and matched later by a [`merge`]. This crate does not access files,
//! does not check rules and does not start threads.
//!
//! ```
//! use peregrine_coins::{Entry, Join, SipKey};
//! use wire::{Coin, Height, OutPoint, Txid};
//!
//! let join = Join::new(SipKey(1, 2)); // a real one takes a random key
//! let mut effects = join.effects();
//! let spent = OutPoint { txid: Txid([7; 32]), vout: 0 };
//! let kept = OutPoint { txid: Txid([7; 32]), vout: 1 };
//! let coin = Coin { code: Coin::code_of(Height(1), true), out: &[50, 6] };
//! effects.push_spend(&spent, coin, Height(101));
//! effects.push_creation(&kept, coin);
//! effects.push_creation(&spent, coin);
//! drop(effects);
//!
//! let survivors = join.finish().expect("each spend matches its creation");
//! let shard = survivors.into_shards().swap_remove(7).sort();
//! assert_eq!(shard.iter().collect::<Vec<_>>(), [Entry { is_spend: false, outpoint: kept, coin }]);
//! ```
#![forbid(unsafe_code)]

pub mod aggregate;
mod cache;
mod cell;
mod coin_list;
mod coin_source;
mod coinbase;
mod delivery;
mod delta;
pub mod hinted;
mod index;
pub mod join;
pub mod merge;
mod mismatch;
mod shard;
mod slab;
mod survivors;

pub use cache::{
    CacheError, Changes, CoinChange, CoinsCache, FoundCoins, HashedOutPoint, MemoryCoins, Moves,
    OutPointHasher,
};
pub use coin_list::CoinList;
pub use coin_source::{CoinSource, NoCoins, OwnedCoin};
pub use coinbase::CoinbaseTxids;
pub use delivery::{Delivery, Spender};
pub use delta::{Delta, EffectSink, OutputStatus};
pub use digest::siphash::SipKey;
pub use join::{Effects, Join};
pub use merge::Merge;
pub use mismatch::Mismatch;
pub use survivors::{SortedShard, SurvivorShard, Survivors};
pub use wire::{Entry, NetSize};

/// Number of shards. The first byte of the txid selects the shard, so that shards are in the order of the
/// chainstate's keys.
pub const SHARDS: usize = 256;

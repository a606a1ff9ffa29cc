//! The coins of a chain: which are made, which are spent, and which are left.
//!
//! Two engines over the same compressed coins ([`wire::coin`]): the [`join`] matches creations with spends
//! from all threads in any order and says whether all is well; [`ordered`] goes block by block and says what
//! is not. A block's own coming and going is taken off first ([`Delta`]). Both leave [`Survivors`]: the
//! UTXO set, sorted shard by shard as the chainstate sorts its keys. What the memory does not hold is taken
//! out sorted ([`Join::take_oldest`]) and met again by a [`merge`]. This room knows neither files nor rules
//! nor threads of its own.
//!
//! ```
//! use coins::{Entry, Join};
//! use wire::{Coin, Height, OutPoint, Txid};
//!
//! let join = Join::new((1, 2)); // a real one takes a random key
//! let mut effects = join.effects();
//! let spent = OutPoint { txid: Txid([7; 32]), vout: 0 };
//! let kept = OutPoint { txid: Txid([7; 32]), vout: 1 };
//! let coin = Coin { code: Coin::code_of(Height(1), true), out: &[50, 6] };
//! effects.push_spend(&spent, coin, Height(101));
//! effects.push_creation(&kept, coin);
//! effects.push_creation(&spent, coin);
//! drop(effects);
//!
//! let survivors = join.finish().expect("each spend met its creation");
//! let shard = survivors.into_shards().swap_remove(7).sort();
//! assert_eq!(shard.iter().collect::<Vec<_>>(), [Entry { spend: false, outpoint: kept, coin }]);
//! ```
#![forbid(unsafe_code)]

pub mod aggregate;
mod cell;
mod coinbase;
mod delta;
pub mod hinted;
mod index;
pub mod join;
pub mod merge;
mod mismatch;
pub mod ordered;
pub mod output_indices;
mod shard;
mod slab;
mod survivors;

pub use coinbase::CoinbaseTxids;
pub use delta::{Delta, EffectSink, OutputStatus};
pub use join::{Effects, Join};
pub use merge::Merge;
pub use mismatch::Mismatch;
pub use ordered::{OrderedCoins, OwnedCoin, UnspentCoinExists};
pub use survivors::{SortedShard, SurvivorShard, Survivors};
pub use wire::{Entry, NetSize};

/// Shards are by the first byte of the txid, so that their order is the chainstate's.
pub const SHARDS: usize = 256;

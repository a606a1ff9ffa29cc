//! Random walks of a coins cache: blocks are connected and disconnected, changes are written, the process
//! dies and begins again with what the database has. The coins are always those of a naive model of the
//! branch, and those of the database those of the block that was written last.

use peregrine_coins::SipKey;
use peregrine_coins::{Changes, CoinList, CoinSource, CoinsCache, CoinsView, FoundCoins, Moves, OwnedCoin};
use std::{collections::BTreeMap, convert::Infallible, ops::Range};
use wire::{BlockHash, Coin, Height, OutPoint, Txid};

/// Number of walks, and of those among them that are not left to `make test-long`.
const SEEDS: u64 = 10_000;
const SHORT: u64 = 1_000;
const STEPS: u32 = 24;

/// A pseudorandom number generator (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

type Coins = BTreeMap<OutPoint, OwnedCoin>;

/// The database below the cache.
#[derive(Clone, Default)]
struct Stored {
    coins: Coins,
    best_block: BlockHash,
}

impl CoinSource for Stored {
    type Error = Infallible;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Infallible> {
        Ok(self.coins.get(outpoint).cloned())
    }
}

fn write(stored: &mut Stored, best: BlockHash, changes: &Changes<'_>) -> Result<(), &'static str> {
    // In two parts, as two threads would write it.
    let middle = changes.len() / 2;
    for (outpoint, coin) in changes.range(0..middle).chain(changes.range(middle..changes.len())) {
        match coin {
            Some(coin) => drop(stored.coins.insert(outpoint, coin.into())),
            None => assert!(stored.coins.remove(&outpoint).is_some(), "{outpoint} was fresh"),
        }
    }
    stored.best_block = best;
    Ok(())
}

/// The effects of a transaction of a block.
#[derive(Clone, Default)]
struct Tx {
    spent: Vec<(OutPoint, OwnedCoin)>,
    created: Vec<(OutPoint, OwnedCoin)>,
}

/// A block and the coins after it.
#[derive(Clone, Default)]
struct Block {
    hash: BlockHash,
    txs: Vec<Tx>,
    after: Coins,
}

struct Walk {
    rng: Rng,
    cache: CoinsCache<Stored>,
    /// The branch from the genesis block on.
    branch: Vec<Block>,
    /// The branch that the database has.
    written: Vec<Block>,
    /// The next block, whose coins were looked up.
    ahead: Option<(Block, Moves, FoundCoins)>,
    next_hash: u32,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let genesis = Block::default();
        Self {
            rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            cache: CoinsCache::new(Stored::default(), BlockHash::default(), SipKey(seed, 7)),
            branch: vec![genesis.clone()],
            written: vec![genesis],
            ahead: None,
            next_hash: 0,
        }
    }

    fn number(&mut self) -> [u8; 32] {
        self.next_hash += 1;
        // Spread over the keys, in an order of its own.
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&self.next_hash.wrapping_mul(0x9e37_79b1).to_be_bytes());
        bytes
    }

    /// Makes a block on top of the branch, or on top of the next block.
    fn make_block(&mut self) -> Block {
        let tip = self.ahead.as_ref().map(|(block, ..)| block).or(self.branch.last()).unwrap();
        let (mut after, height) = (tip.after.clone(), self.branch.len() as u32);
        let mut spendable: Vec<OutPoint> = after.keys().copied().collect();
        let mut txs = Vec::new();
        for index in 0..1 + self.rng.below(4) {
            let mut tx = Tx::default();
            for _ in 0..if index == 0 { 0 } else { self.rng.below(4).min(spendable.len()) } {
                let outpoint = spendable.swap_remove(self.rng.below(spendable.len()));
                tx.spent.push((outpoint, after.remove(&outpoint).unwrap()));
            }
            let txid = Txid(self.number());
            for vout in 0..self.rng.below(4) as u32 {
                let len = if self.rng.chance(6) { 60 } else { 20 };
                let code = Coin::code_of(Height(height), index == 0);
                let coin = OwnedCoin { code, out: vec![height as u8; len].into() };
                after.insert(OutPoint { txid, vout }, coin.clone());
                spendable.push(OutPoint { txid, vout });
                tx.created.push((OutPoint { txid, vout }, coin));
            }
            txs.push(tx);
        }
        Block { hash: BlockHash(self.number()), txs, after }
    }

    fn moves(&self, block: &Block) -> Moves {
        let mut moves = Moves::with_capacity(self.cache.hasher(), 0, 0);
        for tx in &block.txs {
            tx.spent.iter().for_each(|(outpoint, _)| moves.spend(*outpoint));
            tx.created.iter().for_each(|(outpoint, coin)| moves.create(*outpoint, coin.as_coin(), false));
        }
        moves
    }

    /// Looks up what the next block spends, while others may still come.
    fn look_up(&mut self) {
        if self.ahead.is_none() {
            let block = self.make_block();
            let (moves, mut found) = (self.moves(&block), FoundCoins::default());
            for wanted in self.cache.not_kept(&moves) {
                let Ok(coin) = self.cache.source().coin(&wanted.outpoint);
                coin.iter().for_each(|coin| found.push(*wanted, coin.as_coin()));
            }
            self.ahead = Some((block, moves, found));
        }
    }

    fn connect(&mut self) {
        let (block, moves, found) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => {
                let block = self.make_block();
                let moves = self.moves(&block);
                (block, moves, FoundCoins::default())
            }
        };
        self.cache.keep(&found);
        let mut spent = CoinList::default();
        assert!(self.cache.apply(&moves, block.hash, &mut spent).unwrap());
        let expected = block.txs.iter().flat_map(|tx| &tx.spent).map(|(_, coin)| coin.as_coin());
        assert!(spent.iter().eq(expected));
        self.branch.push(block);
    }

    /// Spends what was spent before, or nothing of the chain: the blocks since the last flush are lost.
    fn connect_invalid(&mut self) {
        let mut block = self.make_block();
        let spent = self.branch.iter().flat_map(|block| &block.txs).flat_map(|tx| &tx.spent);
        let spent: Vec<_> = spent.cloned().collect();
        let Some(again) = (!spent.is_empty()).then(|| spent[self.rng.below(spent.len())].clone()) else {
            return;
        };
        block.txs.last_mut().unwrap().spent.push(again);
        let moves = self.moves(&block);
        assert!(!self.cache.apply(&moves, block.hash, &mut CoinList::default()).unwrap());
        self.crash();
    }

    fn disconnect(&mut self) {
        let Some(block) = (self.branch.len() > 1).then(|| self.branch.pop()).flatten() else { return };
        self.ahead = None;
        for tx in block.txs.iter().rev() {
            for (outpoint, coin) in &tx.created {
                assert_eq!(self.cache.spend_coin(outpoint).unwrap().as_ref(), Some(coin));
            }
            for (outpoint, coin) in tx.spent.iter().rev() {
                let exists = self.cache.have_coin(outpoint).unwrap();
                assert!(!exists);
                self.cache.add_coin(*outpoint, coin.as_coin(), exists).unwrap();
            }
        }
        self.cache.set_best_block(self.branch.last().unwrap().hash).unwrap();
    }

    fn flush(&mut self) {
        let stay = [0, 200, 600, usize::MAX][self.rng.below(4)];
        self.cache.flush(stay, write).unwrap();
        self.written = self.branch.clone();
    }

    /// The disk fails, or the process dies, before the change is in place.
    fn fail_to_flush(&mut self) {
        self.cache.flush(0, |_, _, _| Err("the disk is full")).unwrap_err();
    }

    /// Begins again with what the database has.
    fn crash(&mut self) {
        self.ahead = None;
        self.branch = self.written.clone();
        let stored = self.cache.source().clone();
        let best = stored.best_block;
        self.cache = CoinsCache::new(stored, best, SipKey(self.rng.0, 9));
    }

    fn assert_equal_to_model(&self) {
        let tip = self.branch.last().unwrap();
        let outpoints = self.branch.iter().chain(self.ahead.as_ref().map(|(block, ..)| block));
        let outpoints =
            outpoints.flat_map(|block| &block.txs).flat_map(|tx| tx.created.iter().chain(&tx.spent));
        for (outpoint, _) in outpoints {
            assert_eq!(self.cache.coin(outpoint).unwrap().as_ref(), tip.after.get(outpoint), "{outpoint}");
        }
        assert_eq!(self.cache.best_block().unwrap(), tip.hash);
        let (stored, written) = (self.cache.source(), self.written.last().unwrap());
        assert!(stored.coins == written.after && stored.best_block == written.hash, "the database");
    }

    fn step(&mut self) {
        match self.rng.below(16) {
            0..6 => self.connect(),
            6..9 => self.look_up(),
            9..11 => self.disconnect(),
            11..13 => self.flush(),
            13 => self.fail_to_flush(),
            14 => self.crash(),
            _ => self.connect_invalid(),
        }
        self.assert_equal_to_model();
    }
}

fn walk(seeds: Range<u64>) {
    for seed in seeds {
        let mut walk = Walk::new(seed);
        let steps = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..STEPS).for_each(|_| walk.step());
            walk.flush();
            walk.assert_equal_to_model();
        }));
        assert!(steps.is_ok(), "seed {seed}");
    }
}

#[test]
fn walks_of_a_cache_give_the_coins_of_the_model() {
    walk(0..SHORT);
}

mod long {
    use super::{SEEDS, SHORT, walk};

    #[test]
    fn many_walks_of_a_cache_give_the_coins_of_the_model() {
        walk(SHORT..SEEDS);
    }
}

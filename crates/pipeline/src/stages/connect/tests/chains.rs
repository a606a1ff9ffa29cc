//! Connecting and disconnecting whole chains: generated ones, and random branches. Those of Core's
//! datadirs are connected in every way in `acceptance`, which compares their undo data.

use super::*;
use testkit::{Chain, ChainSpec, model::Model, rng::Rng};

/// Returns the coins of the model, as after this best block.
fn all_of(model: &Model, best_block: BlockHash) -> All {
    let coins = model
        .coins
        .iter()
        .map(|(&outpoint, coin)| (outpoint, OwnedCoin { code: coin.code, out: coin.compressed().into() }));
    (best_block, coins.collect())
}

fn header(block: &Block) -> Header {
    *BlockArena::default().parse(&block.bytes).unwrap().header()
}

/// Connects all blocks of a chain, then disconnects all but the genesis block. Compares the undo data with
/// the node's, and the coins after each disconnected block with the coins before it was connected. Returns
/// the coins at the tip.
fn connect_and_disconnect(blocks: &[(Block, Option<Vec<u8>>)]) -> MemoryCoins {
    let params = ChainParams::of(Network::Regtest);
    let median_times = rules::median_times(blocks.iter().map(|(block, _)| header(block).time).collect());
    let (mut coins, mut states) = (no_coins(), Vec::new());
    for (block, expected) in blocks {
        let height = block.height;
        states.push(all(&coins));
        let connect = |context: &ConnectContext<'_>| connect_block(&mut coins, context, None);
        let undo = block.with_context(params, &median_times[..height.0 as usize], connect);
        let undo = undo.unwrap_or_else(|error| panic!("height {height}: {error:?}"));
        if let Some(expected) = expected {
            assert!(encode(&undo) == *expected, "undo data of height {height}");
        } else {
            assert_eq!(coins.iter().count(), 0, "the genesis block creates no coin");
        }
    }
    let tip = coins.clone();
    for ((block, undo), before) in blocks.iter().zip(states).skip(1).rev() {
        let result = disconnect(&mut coins, params, block, undo.as_ref().unwrap()).unwrap();
        assert_eq!(result, DisconnectResult::Ok, "height {}", block.height);
        assert!(all(&coins) == before, "coins before height {}", block.height);
    }
    assert_eq!(all(&coins), (params.genesis_hash, BTreeMap::new()));
    tip
}

#[test]
fn each_block_of_a_chain_has_the_nodes_undo_data_and_disconnects_to_the_coins_before() {
    for (seed, wide_tx) in [(11, 0), (12, 130)] {
        let spec = ChainSpec { blocks: Some(160), wide_tx, signed: false, ..ChainSpec::new(seed, 600_000) };
        let chain = Chain::generate(&spec);
        let block = |block: &testkit::GeneratedBlock| {
            let (bytes, height, hash) = (block.bytes.clone(), Height(block.height), block.hash);
            (Block { bytes, height, hash, bip34_ancestor: None }, block.undo.clone())
        };
        let tip = connect_and_disconnect(&chain.main().map(block).collect::<Vec<_>>());
        assert!(tip.iter().count() > 100);
        assert!(all(&tip) == all_of(&chain.model, chain.tip().hash), "the coins at the tip are the model's");
    }
}

/// The blocks of a branch that are connected to the coins, and the model before each of them.
struct Branch {
    params: ChainParams,
    coins: MemoryCoins,
    model: Model,
    connected: Vec<(Block, Vec<u8>, Model)>,
}

impl Branch {
    fn height(&self) -> u32 {
        self.connected.last().map_or(0, |(block, ..)| block.height.0)
    }

    fn connect(&mut self, txs: &[Vec<u8>]) {
        let before = self.model.clone();
        let block = Block::next(&self.coins, self.height() + 1, txs);
        let undo = connect(&mut self.coins, &self.params, &block).unwrap();
        self.model.apply(&block.bytes, block.height.0);
        self.connected.push((block, undo, before));
        self.assert_equal_to_model();
    }

    fn disconnect(&mut self) {
        let (block, undo, before) = self.connected.pop().unwrap();
        let result = disconnect(&mut self.coins, &self.params, &block, &undo).unwrap();
        assert_eq!(result, DisconnectResult::Ok);
        self.model = before;
        self.assert_equal_to_model();
    }

    fn assert_equal_to_model(&self) {
        assert!(all(&self.coins) == all_of(&self.model, self.coins.best_block()), "height {}", self.height());
    }

    /// Makes the transactions of the next block: a few, which spend random coins, also those of each
    /// other.
    fn random_txs(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let height = self.height() + 1;
        let is_mature = |code: u32| code & 1 == 0 || (code >> 1) + 100 <= height;
        let spendable = self.model.coins.iter().filter(|(_, coin)| is_mature(coin.code));
        let mut spendable: Vec<(OutPoint, u64)> =
            spendable.map(|(&outpoint, coin)| (outpoint, coin.amount as u64)).collect();
        let script = |rng: &mut Rng| if rng.chance(1, 4) { UNSPENDABLE } else { ANYONE };
        let mut txs = vec![coinbase_paying(rng.next_u64(), &[(20 * BTC, ANYONE), (30 * BTC, script(rng))])];
        for _ in 0..rng.below(6) {
            if spendable.is_empty() {
                break;
            }
            let inputs = (1 + rng.below(3)).min(spendable.len() as u64);
            let spent: Vec<(OutPoint, u64)> = (0..inputs)
                .map(|_| spendable.swap_remove(rng.below(spendable.len() as u64) as usize))
                .collect();
            let outpoints: Vec<OutPoint> = spent.iter().map(|&(outpoint, _)| outpoint).collect();
            let amount = spent.iter().map(|(_, amount)| amount).sum::<u64>();
            let count = 1 + rng.below(4);
            let outputs: Vec<(u64, &[u8])> = (0..count).map(|_| (amount / count, script(rng))).collect();
            let tx = tx(&outpoints, &outputs);
            let created = (0..).zip(&outputs).filter(|(_, (_, script))| *script == ANYONE);
            spendable.extend(created.map(|(vout, &(amount, _))| (output(&tx, vout), amount)));
            txs.push(tx);
        }
        txs
    }
}

/// Blocks are disconnected and others connected in their place, again and again: the coins are always
/// those of the naive model of the branch.
#[test]
fn reorganisations_give_the_coins_of_the_model() {
    for seed in 0..30 {
        println!("seed {seed}");
        let rng = &mut Rng::new(seed, "reorganisations");
        let (coins, model) = (no_coins(), Model::default());
        let mut branch = Branch { params: params(), coins, model, connected: Vec::new() };
        for salt in 0..105 {
            branch.connect(&[coinbase_paying(salt, &[(20 * BTC, ANYONE), (1, UNSPENDABLE), (BTC, ANYONE)])]);
        }
        for _ in 0..6 {
            for _ in 0..1 + rng.below(6) {
                let txs = branch.random_txs(rng);
                branch.connect(&txs);
            }
            for _ in 0..rng.below(u64::from(branch.height() - 100)) {
                branch.disconnect();
            }
        }
        while !branch.connected.is_empty() {
            branch.disconnect();
        }
        assert_eq!(branch.coins.iter().count(), 0);
    }
}

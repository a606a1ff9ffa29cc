//! Chains for the tests of hint files: simulated ones, and real ones from datadirs that Core wrote.

use peregrine_disk::{chainstate::ChainstateReader, datadir::Datadir, index::read_block_index};
use peregrine_hints::{HintFormat, HintInfo, HintReader, HintWriter, HintsError, Numbering, renumber};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use testkit::{block::ids, data::CoreDatadir, datadir::read_block, rng::Rng};
use vfs::{Disk, RealDisk};
use wire::{BlockArena, BlockHash, Height, Network, OutPoint, script::is_unspendable};

/// The properties of a block on which its hints depend.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// For each output, whether it can be spent.
    pub spendable: Vec<bool>,
    /// The indices of the unspent outputs among all.
    pub unspent: Vec<u32>,
}

impl Block {
    /// Returns the number of outputs and the hints in a numbering.
    pub fn hints(&self, numbering: Numbering) -> (u32, Vec<u32>) {
        let mut hints = self.unspent.clone();
        renumber(&mut hints, Numbering::AllOutputs, numbering, self.spendable.iter().copied()).unwrap();
        let outputs = match numbering {
            Numbering::AllOutputs => self.spendable.len(),
            Numbering::SpendableOutputs => self.spendable.iter().filter(|is| **is).count(),
        };
        (outputs as u32, hints)
    }
}

/// The blocks of a chain, beginning with block 1.
pub struct Chain {
    pub name: &'static str,
    pub network: Network,
    pub tip: BlockHash,
    pub blocks: Vec<Block>,
}

/// Returns a chain whose outputs and hints are distributed like mainnet's: blocks grow, transactions have two
/// outputs or many, 2 to 10 % of old outputs are unspent and up to 60 % of recent ones, and the outputs of
/// one transaction tend to be spent or unspent together.
pub fn simulated(count: u32, seed: u64) -> Chain {
    let mut rng = Rng::new(seed, "a simulated chain");
    let chance = |rng: &mut Rng, share: f64| rng.chance((share * 1e6) as u64, 1_000_000);
    let mut drift = 0.05;
    let blocks = (1..=count).map(|height| {
        let age = f64::from(count - height);
        drift = (drift * (0.9 + 0.2 * (rng.below(1000) as f64 / 1000.0))).clamp(0.02, 0.1);
        let share = drift + 0.5 * (-age / 150.0).exp();
        let busy = f64::from(height) / f64::from(count);
        let txs = 1 + (rng.below(600) as f64 * busy * (0.5 + rng.below(1000) as f64 / 500.0)) as u64;
        let mut block = Block { spendable: Vec::new(), unspent: Vec::new() };
        for tx in 0..txs {
            let outputs = match rng.below(20) {
                0 => 3 + rng.below(120),
                1..=5 => 1,
                _ => 2,
            };
            // The outputs of a payout are unspent together more often than by chance.
            let is_payout = outputs > 2;
            let local =
                if is_payout { if chance(&mut rng, share) { 0.7 } else { share / 2.0 } } else { share };
            for output in 0..outputs {
                let is_spendable = (tx, output) != (0, 1) && !rng.chance(3, 100);
                if is_spendable && chance(&mut rng, local) {
                    block.unspent.push(block.spendable.len() as u32);
                }
                block.spendable.push(is_spendable);
            }
        }
        block
    });
    let blocks = blocks.collect();
    let mut tip = [0; 32];
    tip[..28].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
    Chain { name: "simulated", network: Network::Main, tip: BlockHash(tip), blocks }
}

/// Returns the chains of Core's datadirs. If the data is absent, prints that and returns none.
pub fn real() -> impl Iterator<Item = Chain> {
    let names = ["main", "testnet3", "signet", "regtest"];
    let networks = [Network::Main, Network::Test, Network::Signet, Network::Regtest];
    names.into_iter().zip(networks).filter_map(|(name, network)| {
        let (tip, blocks) = blocks_of(&CoreDatadir::unpack(name, network)?.datadir);
        Some(Chain { name, network, tip, blocks })
    })
}

/// Returns the best block of the chainstate, and the blocks up to it with their unspent outputs.
fn blocks_of(datadir: &Datadir) -> (BlockHash, Vec<Block>) {
    let coins = ChainstateReader::open(&RealDisk, &datadir.chainstate_dir()).unwrap();
    let mut unspent = HashSet::new();
    let mut cursor = coins.coins().unwrap();
    while let Some((outpoint, _)) = cursor.advance().unwrap() {
        unspent.insert(outpoint);
    }
    let index = read_block_index(&RealDisk, &datadir.index_dir()).unwrap();
    let by_hash: HashMap<_, _> = index.entries.iter().map(|entry| (entry.hash, entry)).collect();
    let (mut blocks, mut arena) = (Vec::new(), BlockArena::default());
    let mut entry = by_hash[&coins.best_block()];
    while entry.height != Height(0) {
        let bytes = read_block(datadir, entry.file.unwrap(), entry.data_pos.unwrap());
        let view = arena.parse(&bytes).unwrap();
        let mut block = Block { spendable: Vec::new(), unspent: Vec::new() };
        for (tx, txid) in view.txs().zip(ids(&view).0) {
            for (output, vout) in tx.outputs().zip(0..) {
                if unspent.remove(&OutPoint { txid, vout }) {
                    block.unspent.push(block.spendable.len() as u32);
                }
                block.spendable.push(!is_unspendable(output.script_pubkey()));
            }
        }
        blocks.push(block);
        entry = by_hash[&entry.header.prev];
    }
    assert!(unspent.is_empty(), "each coin must be an output of the chain");
    blocks.reverse();
    (coins.best_block(), blocks)
}

pub fn write(path: &Path, format: HintFormat, chain: &Chain) -> HintInfo {
    write_on(&RealDisk, path, format, chain).unwrap()
}

/// Writes a chain's hints to a disk that may fail.
pub fn write_on(
    disk: &dyn Disk,
    path: &Path,
    format: HintFormat,
    chain: &Chain,
) -> Result<HintInfo, HintsError> {
    let (network, height) = (Some(chain.network), Height(chain.blocks.len() as u32));
    let mut writer = HintWriter::create(disk, path, format, network, height, Some(chain.tip))?;
    for block in &chain.blocks {
        let (outputs, unspent) = block.hints(format.numbering());
        writer.push_block(Some(outputs), &unspent)?;
    }
    writer.finish()
}

/// Reads a file to its end and asserts that its hints are those of the chain.
pub fn check(reader: &mut HintReader, chain: &Chain) {
    let numbering = reader.info().format.numbering();
    let mut unspent = Vec::new();
    for (block, height) in chain.blocks.iter().zip(1..) {
        assert_eq!(reader.next_block(&mut unspent).unwrap(), Some(Height(height)));
        let (outputs, hints) = block.hints(numbering);
        assert_eq!(unspent, hints, "block {height}");
        assert!(reader.outputs().is_none_or(|found| found == outputs));
    }
    assert_eq!(reader.next_block(&mut unspent).unwrap(), None);
}

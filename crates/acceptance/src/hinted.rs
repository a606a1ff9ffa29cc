//! Shared by tests of hints: the true hints of a chain by a naive count, hint files made from them, and
//! rebuilds with hints.

use crate::prelude::*;
use engine::hints::HintOptions;
use hints::{HintWriter, Numbering, renumber};
use std::collections::HashSet;
use wire::script::is_unspendable;

pub const AGGREGATES: [AggregateKind; 3] =
    [AggregateKind::Sha256, AggregateKind::SipHash128, AggregateKind::MuHash3072];

/// Number of headers that bury the blocks below them deep enough to be assumed valid.
pub const BURIAL: usize = 2017;

/// For each block, by height: the indices of its unspent outputs, all outputs counted.
pub type Hints = Vec<Vec<u32>>;

/// A block's hash, outputs and spends.
pub struct Block {
    pub hash: BlockHash,
    /// Outpoints, each with whether it is spendable.
    pub outputs: Vec<(OutPoint, bool)>,
    pub spends: Vec<OutPoint>,
}

/// Outputs and spends of a chain's blocks by height, from which true hints are computed.
pub struct Truth(pub Vec<Block>);

pub static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(chain()));

impl Truth {
    pub fn of(chain: &Chain) -> Self {
        let mut arena = BlockArena::default();
        let block = |block: &testkit::GeneratedBlock| {
            let mut found = Block { hash: block.hash, outputs: Vec::new(), spends: Vec::new() };
            for (index, tx) in arena.parse(&block.bytes).unwrap().txs().enumerate() {
                let digest::sha256::Message(parts) = tx.txid_message();
                let txid = Txid(digest::sha256::sha256d(&parts.concat()));
                if index > 0 {
                    found.spends.extend(tx.inputs().map(|input| input.prevout()));
                }
                let output = |(output, vout): (wire::OutputView<'_>, u32)| {
                    (OutPoint { txid, vout }, !is_unspendable(output.script_pubkey()))
                };
                found.outputs.extend(tx.outputs().zip(0..).map(output));
            }
            found
        };
        Self(chain.main().map(block).collect())
    }

    pub fn hash(&self, height: u32) -> BlockHash {
        self.0[height as usize].hash
    }

    pub fn hints(&self, height: u32) -> Hints {
        let blocks = &self.0[..=height as usize];
        let spent: HashSet<OutPoint> = blocks.iter().flat_map(|block| &block.spends).copied().collect();
        let of = |(at, block): (usize, &Block)| {
            let unspent = |(_, (outpoint, spendable)): &(u32, &(OutPoint, bool))| {
                at > 0 && *spendable && !spent.contains(outpoint)
            };
            (0..).zip(&block.outputs).filter(unspent).map(|(index, _)| index).collect()
        };
        blocks.iter().enumerate().map(of).collect()
    }

    /// Writes hints for the height of their last block.
    pub fn write(&self, path: &Path, format: HintFormat, hints: &Hints) {
        let height = hints.len() as u32 - 1;
        self.write_as(path, format, hints, Some(Network::Regtest), Some(self.hash(height)));
    }

    /// The same, with another network or block in the file.
    pub fn write_as(
        &self,
        path: &Path,
        format: HintFormat,
        hints: &Hints,
        network: Option<Network>,
        hash: Option<BlockHash>,
    ) {
        let disk = FaultDisk::healthy();
        let height = Height(hints.len() as u32 - 1);
        let mut writer = HintWriter::create(&disk, path, format, network, height, hash).unwrap();
        for (block, hints) in self.0.iter().zip(hints).skip(1) {
            let (mut hints, spendable) = (hints.clone(), || block.outputs.iter().map(|output| output.1));
            renumber(&mut hints, Numbering::AllOutputs, format.numbering(), spendable()).unwrap();
            let all = format.numbering() == Numbering::AllOutputs;
            let outputs = spendable().filter(|&is| all || is).count() as u32;
            writer.push_block(Some(outputs), &hints).unwrap();
        }
        writer.finish().unwrap();
    }
}

pub fn with_hints(options: &ReindexOptions, file: &Path, aggregate: AggregateKind) -> ReindexOptions {
    let hints = HintOptions { without_undo: false, ..hints_of(file.to_owned(), aggregate) };
    ReindexOptions { hints: Some(hints), ..options.clone() }
}

/// The same options without undo data, with this assumed-valid block. The hints are used up to their last
/// block, however few blocks are above it.
pub fn without_undo(options: &ReindexOptions, valid: BlockHash) -> ReindexOptions {
    changed(options.clone(), |it| {
        it.chain.assume_valid = AssumeValid::Block(valid);
        it.chain.hooks.undo_blocks = 0;
        it.hints.as_mut().unwrap().without_undo = true;
    })
}

/// The same options with `--on-hint-failure join`.
pub fn with_join_fallback(options: &ReindexOptions) -> ReindexOptions {
    changed(options.clone(), |it| it.hints.as_mut().unwrap().on_failure_join = true)
}

/// Adds headers on top of the main chain to a block index, so that all its blocks are buried deep enough to
/// be assumed valid.
pub fn bury(index_dir: &Path) {
    let add = |index: &mut BlockIndex| {
        let tip = index.entries.iter().max_by_key(|entry| (entry.status.has_undo(), entry.height));
        add_headers(index, *tip.unwrap(), BURIAL);
    };
    edit_index(index_dir, add).unwrap();
}

/// Adds so many headers without blocks above an entry.
pub fn add_headers(index: &mut BlockIndex, mut last: IndexEntry, count: usize) {
    for _ in 0..count {
        let time = BlockTime(last.header.time.0 + 600);
        let mut header = Header { prev: last.hash, time, nonce: 0, ..last.header };
        let hash = mine(&mut header, has_work);
        last = IndexEntry::of_header(hash, header, Height(last.height.0 + 1));
        index.entries.push(last);
    }
}

/// A datadir of the tests' chain whose blocks are buried.
pub fn buried() -> Case {
    static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
        let case = Case::new();
        bury(&case.blocks("index"));
        Template::copy_of(case.root())
    });
    TEMPLATE.case()
}

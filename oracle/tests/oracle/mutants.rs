//! Random mutants of blocks: Core and a rebuild report the same violation first, or both accept the block.

use crate::prelude::*;
use oracle::{
    block_verdict::{BlockVerdict, rebuild_verdict},
    mutant::Site,
};
use testkit::{GeneratedBlock, block, model::Model};

/// Number of mutants that a test compares, all of one chain. For longer runs, `PEREGRINE_MUTANTS` sets the
/// number per chain, `PEREGRINE_CHAINS` the number of chains, and `PEREGRINE_SEED` is added to the seeds.
const MUTANTS: u64 = 250;

/// A chain, and its last block.
struct Case {
    base: Chain,
    last: GeneratedBlock,
}

impl Case {
    fn new(seed: u64) -> Self {
        let spec = ChainSpec { blocks: Some(140), stale: false, ..ChainSpec::new(seed, 150_000) };
        let mut base = Chain::generate(&spec);
        let last = base.blocks.pop().expect("there are blocks");
        base.model = Model::of(&base.blocks);
        Self { base, last }
    }
}

/// Returns Core's verdicts on blocks that all extend the same tip. Its datadir is restored after an accepted
/// block.
struct Core<'a> {
    base: &'a Path,
    dir: tempfile::TempDir,
    node: Option<CoreNode>,
    /// Reports the first of several failing scripts.
    in_order: CoreNode,
    _in_order_dir: tempfile::TempDir,
}

impl<'a> Core<'a> {
    fn new(base: &'a Path) -> Result<Self, Box<dyn Error>> {
        let [dir, in_order_dir] = [tempfile::tempdir()?, tempfile::tempdir()?];
        for dir in [&dir, &in_order_dir] {
            copy_dir(base, dir.path())?;
        }
        let node = Some(CoreNode::open(dir.path(), Network::Regtest, Wipe::Nothing)?);
        let in_order = CoreNode::open_in_order(in_order_dir.path(), Network::Regtest)?;
        Ok(Self { base, dir, node, in_order, _in_order_dir: in_order_dir })
    }

    /// Returns the verdict, and the coins if the block is accepted.
    fn verdict(&mut self, block: &GeneratedBlock) -> Result<(BlockVerdict, Option<Rows>), Box<dyn Error>> {
        let verdict =
            BlockVerdict::from_core(self.node.as_ref().expect("the node is open").submit(&block.bytes));
        if verdict.is_script_failure() {
            return Ok((BlockVerdict::from_core(self.in_order.submit(&block.bytes)), None));
        }
        if verdict != BlockVerdict::Accepted {
            return Ok((verdict, None));
        }
        self.node = None;
        let rows = Rows::read(&self.dir.path().join("chainstate"))?;
        self.dir = tempfile::tempdir()?;
        copy_dir(self.base, self.dir.path())?;
        self.node = Some(CoreNode::open(self.dir.path(), Network::Regtest, Wipe::Nothing)?);
        Ok((verdict, Some(rows)))
    }
}

/// Adds three empty blocks, so that the violation is in the middle of the chain.
fn bury(chain: &mut Chain) {
    for _ in 0..3 {
        let tip = chain.tip();
        let next = block::empty(tip.hash, tip.height + 1, tip.header.time.0 + 1, 3);
        chain.blocks.push(next);
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The results of all comparisons.
#[derive(Default)]
struct Hunt {
    disagreements: Vec<String>,
    /// Core's verdicts, and how often each occurred.
    verdicts: BTreeMap<String, u64>,
}

impl Hunt {
    /// Compares the verdicts on the last block of a chain, and then on mutants of it.
    fn chain(&mut self, seed: u64, mutants: u64) -> Result<(), Box<dyn Error>> {
        let case = Case::new(seed);
        let base_dir = tempfile::tempdir()?;
        drop(scenario::feed(&case.base, base_dir.path())?);
        let mut core = Core::new(base_dir.path())?;
        let times: Vec<u32> = case.base.main().map(|block| block.header.time.0).collect();
        let median_time_past = block::median_time_past(&times);
        let site = Site { block: &case.last, coins: &case.base.model, median_time_past };
        let mut rng = Rng::new(seed, "mutants");
        self.block(&case, &mut core, case.last.clone(), 1, &format!("seed {seed}"))?;
        for number in 0..mutants {
            let mutant = site.mutant(&mut rng);
            self.block(&case, &mut core, mutant, number, &format!("seed {seed}, mutant {number}"))?;
        }
        Ok(())
    }

    /// Compares the verdicts on one block. Every third block is buried, every fourth datadir is scanned, and
    /// every fourth one, another, is rebuilt without undo data too.
    fn block(
        &mut self,
        case: &Case,
        core: &mut Core<'_>,
        block: GeneratedBlock,
        number: u64,
        place: &str,
    ) -> Result<(), Box<dyn Error>> {
        let (core_verdict, core_rows) = core.verdict(&block)?;
        *self.verdicts.entry(format!("{core_verdict:?}")).or_insert(0) += 1;
        let hash = block.hash;
        let mut chain = case.base.clone();
        chain.blocks.push(block);
        let buried = number.is_multiple_of(3);
        if buried {
            bury(&mut chain);
        }
        let way = if number.is_multiple_of(4) { Way::Scan } else { Way::Index };
        let (own, rows) = rebuild_verdict(&chain, hash, way)?;
        if number % 4 == 1 {
            let (without_undo, made) = rebuild_verdict(&chain, hash, Way::WithoutUndo)?;
            if without_undo != own {
                self.disagreements.push(format!("{place}: {own:?}, without undo data: {without_undo:?}"));
            }
            let differences = rows.as_ref().zip(made).map(|(rows, made)| rows.differences(&made));
            let differences = differences.into_iter().flatten();
            self.disagreements.extend(differences.map(|row| format!("{place}, without undo data: {row}")));
        }
        if !own.agrees_with(&core_verdict) {
            self.disagreements.push(format!("{place}: Core: {core_verdict:?}, rebuild: {own:?}"));
        } else if let (Some(core), Some(rows), false) = (core_rows, rows, buried) {
            let differences = core.differences(&rows);
            self.disagreements.extend(differences.into_iter().map(|row| format!("{place}: {row}")));
        }
        Ok(())
    }
}

fn core_and_rebuild_agree_on_mutants(seed: u64) -> Result<(), Box<dyn Error>> {
    let seed = seed + number_from("PEREGRINE_SEED").unwrap_or(0);
    let [chains, mutants] = [("PEREGRINE_CHAINS", 1), ("PEREGRINE_MUTANTS", MUTANTS)]
        .map(|(variable, default)| number_from(variable).unwrap_or(default));
    println!("{chains} chains from seed {seed} on, {mutants} mutants of each");
    let mut hunt = Hunt::default();
    for chain in 0..chains {
        hunt.chain(seed + chain, mutants)?;
    }
    let Hunt { disagreements, verdicts } = hunt;
    let of_scripts =
        verdicts.keys().filter(|verdict| verdict.contains("block-script-verify-flag-failed")).count();
    println!("{} verdicts, {of_scripts} of scripts, and how often: {verdicts:#?}", verdicts.len());
    assert_eq!(disagreements, Vec::<String>::new());
    assert!(verdicts.len() >= 15 && of_scripts >= 4, "seed {seed}: too few kinds of verdicts: {verdicts:?}");
    Ok(())
}

mod long {
    use super::core_and_rebuild_agree_on_mutants;
    use std::error::Error;

    #[test]
    fn mutants_of_two_chains() -> Result<(), Box<dyn Error>> {
        [21, 1_000_022].into_iter().try_for_each(core_and_rebuild_agree_on_mutants)
    }
}

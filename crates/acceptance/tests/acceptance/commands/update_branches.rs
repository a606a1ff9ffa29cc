//! Updates to another stored branch that has more work: blocks are disconnected with their undo data, down to
//! the genesis block, and back again.

use acceptance::prelude::*;

/// Another chain from the same genesis block.
fn other() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(150), ..ChainSpec::new(11, 200_000) }))
}

/// All undo data up to the best block is sound.
fn assert_sound(root: &Path, what: &str) {
    let check = checked(root);
    assert!(check.is_sound(), "{what}: {:?}", check.files);
}

/// A branch that begins after `fork` with a sibling, and contains the rest of the chain's transactions.
pub fn branch(fork: u32) -> Vec<GeneratedBlock> {
    let mut blocks: Vec<_> = chain().main().filter(|block| block.height > fork).cloned().collect();
    let other = sibling(&blocks[0], 7, |_| {});
    replace(&mut blocks, 0, other);
    blocks.iter_mut().for_each(|block| block.undo = None);
    blocks
}

#[test]
fn a_heavier_branch_replaces_the_connected_one() {
    for (fork, connected) in [(TIP - 2, TIP - 1), (TIP - 12, TIP - 1), (100, TIP - 4)] {
        let branch = branch(fork);
        for how in [AT_ONCE, EACH_BLOCK, How { threads: 2, bytes: Some(3000) }] {
            let what = format!("fork at {fork} below {connected}, {how:?}");
            let dir = behind(chain().main().filter(|block| block.height <= connected), connected, &layout());
            // As much work is not enough.
            let equal = (connected - fork) as usize;
            store(dir.path(), branch[..equal].iter());
            let before = tree(dir.path());
            let report = update(&update_options(dir.path(), how, None)).unwrap();
            assert_eq!((report.height, report.disconnected, report.commits), (Height(connected), 0, 0));
            assert_same_tree(&before, dir.path(), &what);

            store(dir.path(), branch[equal..].iter());
            let report = update(&update_options(dir.path(), how, None)).unwrap();
            assert_eq!(report.disconnected, connected - fork, "{what}");
            assert_eq!(report.counts.blocks, branch.len() as u64, "{what}");
            let blocks = chain().main().filter(|block| block.height <= fork).chain(&branch);
            assert_coins(dir.path(), branch.last().unwrap().hash, &Model::of(blocks).stats(), &what);
            assert_sound(dir.path(), &what);
        }
    }
}

/// Two chains that share only the genesis block: nothing of the first may remain.
#[test]
fn all_blocks_can_be_disconnected() {
    for how in [AT_ONCE, EACH_BLOCK] {
        let dir = behind(chain().main(), TIP, &layout());
        store(dir.path(), other().main().skip(1));
        let report = update(&update_options(dir.path(), how, None)).unwrap();
        assert_eq!((report.disconnected, report.hash), (TIP, other().tip().hash));
        assert_coins(dir.path(), other().tip().hash, &other().model.stats(), &format!("{how:?}"));
        assert_sound(dir.path(), &format!("{how:?}"));
    }
}

/// Two chains grow by turns, by random numbers of blocks; the coins are always those of the longer one, and
/// of two of the same length those of the one that was connected before.
#[test]
fn random_walks_between_two_chains_equal_the_model() {
    let chains = [chain(), other()];
    let expected = chains.map(stats_by_height);
    for seed in 0..3 {
        let mut rng = Rng::new(seed, "branches");
        let mut stored = [1 + rng.below(30) as usize, 0];
        let first = chain().main().take(stored[0] + 1);
        let dir = behind(first, stored[0] as u32, &layout());
        let mut best = 0;
        let mut disconnected = 0;
        while stored[0] < 139 || stored[1] < 149 {
            for (number, stored) in stored.iter_mut().enumerate() {
                let until = (*stored + rng.below(25) as usize).min(chains[number].tip().height as usize);
                store(dir.path(), chains[number].main().skip(*stored + 1).take(until - *stored));
                *stored = until;
            }
            if stored[1 - best] > stored[best] {
                best = 1 - best;
            }
            let bytes = [None, Some(1), Some(4000)][rng.below(3) as usize];
            let how = How { threads: 1 + rng.below(3) as usize, bytes };
            let what = format!("seed {seed}, {stored:?}, {how:?}");
            let report = update(&update_options(dir.path(), how, None))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            disconnected += report.disconnected;
            let tip = chains[best].main().nth(stored[best]).unwrap();
            assert_coins(dir.path(), tip.hash, &expected[best][stored[best]], &what);
        }
        assert!(disconnected > 50, "seed {seed}: {disconnected}");
        assert_sound(dir.path(), &format!("seed {seed}"));
        let report = run(&acceptance::trusting(&acceptance::options(dir.path()))).unwrap();
        assert_eq!(report.hash, other().tip().hash, "seed {seed}");
    }
}

#[test]
fn a_block_without_undo_data_cannot_be_disconnected() {
    let branch = branch(TIP - 12);
    let dir = behind(chain().main().filter(|block| block.height < TIP), TIP - 1, &layout());
    store(dir.path(), branch.iter());
    let mut files = UndoFiles::read(dir.path(), Network::Regtest);
    let hash = block_at(TIP - 5).hash;
    files.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.hash == hash).unwrap();
        (entry.status.0, entry.undo_pos) = (entry.status.0 & !16, None);
    });
    let options = update_options(dir.path(), AT_ONCE, None);
    let words = ["cannot be disconnected", "undo data is not on disk"];
    let error = refused_by(dir.path(), ErrorKind::Damaged, &words, || update(&options));
    assert_eq!(error.block_hash, Some(hash), "{error}");
    assert_offers(&error, &[Remedy::RebuildChainstate]);
}

//! What a verdict goes with: the valid chain below a broken block, and the lowest of several damaged blocks.
//! The verdicts themselves are tested in `ways/verdicts.rs`.

use acceptance::prelude::*;

/// Below a broken tip is a valid chain, which --to selects.
#[test]
fn the_chain_below_a_broken_block_can_be_rebuilt() {
    let base = base_chain(6);
    for name in ["reward-1-too-much", "spent-twice-in-the-block"] {
        let mutation = mutations().find(|mutation| mutation.name == name).unwrap();
        let mutated = mutation.apply(&base);
        let dir = datadir_of(&mutated.chain);
        assert_eq!(run(&options(dir.path())).unwrap_err().kind, ErrorKind::Consensus);
        let report = run(&up_to(options(dir.path()), mutated.block.height - 1)).unwrap();
        assert_eq!(report.hash_serialized_3, mutated.chain.model.stats().hash_serialized_3, "{name}");
    }
}

#[test]
fn reports_the_lowest_of_several_damaged_blocks() {
    let case = Case::new();
    for height in [130, 120, 110] {
        case.flip_block(height, 90);
        for threads in THREADS {
            let error = run(&with_threads(&case.options(), threads)).unwrap_err();
            assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(height))), "{error}");
        }
    }
}

//! `verify` performs the checks of a rebuild, changes nothing, and names each coin in which a chainstate
//! differs. What it says of damage is in `input/situations.txt`.

use acceptance::prelude::*;
use engine::verify::{Difference, VerifyReport};

fn verify(case: &Case, against_chainstate: bool) -> Result<VerifyReport, Error> {
    let before = tree(case.root());
    let chain = case.options().chain;
    let report = engine::verify(&FaultDisk::healthy(), &chain, against_chainstate, unwatched());
    assert_same_tree(&before, case.root(), "verify");
    report
}

#[test]
fn a_correct_chainstate_has_no_differences_at_its_own_height() {
    let case = Case::new();
    let report = verify(&case, true).unwrap();
    let height = TIP - 3;
    assert_eq!(report.height, Height(height), "up to the chainstate's best block");
    assert_eq!(report.txouts, stats_by_height(chain())[height as usize].txouts);
    assert_eq!(report.against_chainstate.unwrap().differences, 0);
    let report = verify(&case, false).unwrap();
    assert_eq!(report.height, Height(TIP), "to the tip, without a comparison");
    assert!(report.against_chainstate.is_none() && report.scripts.is_none());
    // Regression: the block index was needed, which a scan does without.
    fs::remove_dir_all(case.blocks("index")).unwrap();
    let report = engine::verify(&RealDisk, &case.scan().chain, true, unwatched()).unwrap();
    assert_eq!((report.height, report.against_chainstate.unwrap().differences), (Height(height), 0));
}

#[test]
fn the_last_block_to_check_can_be_chosen() {
    let case = Case::new();
    let options = case.options().chain;
    let verify_to = |height: u32| {
        let options = changed(options.clone(), |it| it.stop_at_height = Some(Height(height)));
        engine::verify(&RealDisk, &options, false, unwatched())
    };
    let stats = stats_by_height(chain());
    for height in [0, 1, TIP - 1, TIP] {
        let report = verify_to(height).unwrap();
        assert_eq!((report.height, report.txouts), (Height(height), stats[height as usize].txouts));
    }
    let error = assert_fails(verify_to(TIP + 1), ErrorKind::Usage, &[]);
    assert_eq!(error.remedies, [Remedy::StopAtHeight(Height(TIP))]);
}

#[test]
fn names_each_wrong_coin() {
    let case = Case::new();
    let mut coins = stored_coins(&case);
    let middle = coins.len() / 2;
    let (lost, _, _) = coins.remove(middle);
    let (changed, _, out) = &mut coins[middle + 2];
    change_output(out, |amount, _| *amount ^= 1);
    let mut expected = vec![Difference::Missing(lost), Difference::Differs(*changed)];
    for byte in [0, 0xff] {
        let extra = OutPoint { txid: Txid([byte; 32]), vout: 1 };
        coins.push((extra, 2, vec![0, 6]));
        expected.push(Difference::Extra(extra));
    }
    rewrite_chainstate(&case, coins);
    let found = verify(&case, true).unwrap().against_chainstate.unwrap();
    assert_eq!(found.differences, 4);
    assert_eq!(found.first.first(), Some(&expected[2]), "in key order");
    for difference in &expected {
        assert!(found.first.contains(difference), "{difference}");
    }
}

/// Temporary files that cannot be removed say less than what has ended the run.
#[test]
fn a_failed_clean_up_hides_no_other_error() {
    let (case, work, interrupt) = (Case::new(), scratch(), AtomicBool::new(false));
    let mut options = bounded(&case.options()).chain;
    options.work_dir = Some(work.path().to_owned());
    // The last thing that is to be removed is not there then.
    let disturb = |_: Event| {
        let mut found = fs::read_dir(work.path()).unwrap().flatten();
        let is_removed = found.any(|found| fs::remove_file(found.path().join("peregrine.lock")).is_ok());
        interrupt.fetch_or(is_removed, Ordering::Relaxed);
    };
    let watch = Watch { sink: &disturb, interrupt: &interrupt };
    let done = engine::verify(&FaultDisk::healthy(), &options, false, watch);
    assert_fails(done, ErrorKind::Interrupted, &[]);
}

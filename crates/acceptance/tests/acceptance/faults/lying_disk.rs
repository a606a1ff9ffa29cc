//! A disk returns other bytes than were written, without an error: what is read back is compared, so that it
//! does not take the place of what was there.

use acceptance::indexes::{assert_sound, behind, make};
use acceptance::prelude::*;
use testkit::{fault::Lie, fuzz::reseal};

/// Other bytes than were written.
const FLIPPED: Lie = |bytes| bytes[100] ^= 1;
const FLIPPED_AT_END: Lie = |bytes| *bytes.last_mut().unwrap() ^= 1;

/// A table of LevelDB whose first row is marked as deleted, and whose checksums are right.
const WITHOUT_A_ROW: Lie = |bytes| {
    // Before the key are three lengths of a byte each: what it shares with the one before, itself, the value.
    let kind = 3 + usize::from(bytes[1]) - 8;
    assert_eq!((bytes[0], bytes[kind]), (0, 1), "a row with a value");
    bytes[kind] = 0;
    reseal::table(bytes);
};

/// Asserts that a lie about a file fails a run, which names `place` and leaves what was there.
fn assert_refused(
    case: &Case,
    (name, lie): (&'static str, Lie),
    place: &str,
    run: impl Fn(&FaultDisk) -> Result<(), Error>,
) {
    let words = [place, "reads back differently from what was written", "check the disk"];
    let lied_to = || run(&FaultDisk::healthy().with_lie(name, lie));
    refused_by(case.root(), ErrorKind::Environment, &words, lied_to);
    assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{name}");
    run(&FaultDisk::healthy()).unwrap();
}

#[test]
fn a_chainstate_that_reads_back_differently_does_not_replace_the_old_one() {
    for (engine, name, lie) in [
        (Engine::Join, "chainstate.peregrine/000002.ldb", FLIPPED),
        (Engine::Join, "chainstate.peregrine/000002.ldb", WITHOUT_A_ROW),
        (Engine::Cache, "chainstate.peregrine/000003.log", FLIPPED),
    ] {
        let case = tiny_case();
        let options = changed(case.options(), |it: &mut ReindexOptions| it.engine = engine);
        assert_refused(&case, (name, lie), "chainstate.peregrine", |disk| run_on(disk, &options).map(drop));
    }
}

#[test]
fn an_index_that_reads_back_differently_does_not_replace_the_old_one() {
    for (lie, place) in [
        (("txindex.peregrine/000001.ldb", FLIPPED), "the new index"),
        (("txindex.peregrine/000001.ldb", WITHOUT_A_ROW), "rows instead of"),
        (("fltr00000.dat", FLIPPED), "fltr00000.dat: a new filter"),
        (("fltr00000.dat", FLIPPED_AT_END), "fltr00000.dat: a new filter"),
    ] {
        let (case, options) = behind(tiny_case(), TxForm::ByTxid);
        assert_refused(&case, lie, place, |disk| make(disk, &options).map(drop));
        assert_sound(&options, tiny().tip().height);
    }
}

//! Every operation is called through the interfaces that a caller may implement, and fails at once, since
//! there is no datadir.

use acceptance::prelude::*;

#[test]
fn operations_fail_without_a_datadir() {
    let root = scratch();
    let shell = Shell::at(&root.path().join("missing"));
    for command in ["reindex", "verify", "hints make", "snapshot make", "update", "repair"] {
        assert_eq!(shell.run(command).err().map(|error| error.kind), Some(ErrorKind::Damaged), "{command}");
    }
    let found = shell.diagnosis();
    assert!(!found.is_sound() && found.advice == Advice::NameDatadir, "a missing datadir is a diagnosis");
    assert_eq!(MIN_MEMORY, 128 << 20);
}

#[test]
fn errors_can_be_kept_and_sent_to_other_threads() {
    fn check<T: std::error::Error + Clone + Send + Sync + 'static>() {}
    check::<Error>();
}

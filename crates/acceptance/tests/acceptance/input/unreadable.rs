//! Old databases that are not damaged but cannot be read, and files of a database that are directories.

use acceptance::prelude::*;

/// The old database may have more blocks than the new one, so that it must not be replaced unread.
#[test]
fn an_old_database_that_this_user_may_not_read_is_not_replaced() {
    for (name, scan) in
        [("chainstate/CURRENT", false), ("chainstate/CURRENT", true), ("blocks/index/CURRENT", true)]
    {
        let case = Case::new();
        let options = if scan { case.scan() } else { case.options() };
        let path = case.net(name);
        let disk = FaultDisk::healthy().with_denied(&path);
        let denied = || engine::reindex(&disk, &options, unwatched());
        let error = refused_by(case.root(), ErrorKind::Environment, &[], denied);
        assert_eq!(error.file.as_deref(), Some(&*path), "{error}");
        assert_offers(&error, &[Remedy::GrantPermission]);
    }
}

/// LevelDB opens each log that is not obsolete, and fails if it is a directory.
#[test]
fn a_directory_with_the_name_of_a_log_is_kept_and_does_not_get_into_the_new_index() {
    let case = Case::new();
    let log = case.blocks("index/000006.log");
    write_file(log.join("mine"), "kept");
    let report = run(&case.scan()).unwrap();
    assert!(!log.exists());
    assert_eq!(report.kept, [case.blocks("index.old")], "what is kept is reported");
    assert_eq!(fs::read_to_string(case.blocks("index.old/000006.log/mine")).unwrap(), "kept");
}

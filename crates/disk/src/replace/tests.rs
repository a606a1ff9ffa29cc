//! Replacements that crash at any step, databases used before the recovery, and foreign files.

use super::*;
use crate::datadir::Datadir;
use crate::lock::{DatadirLock, LockMode};
use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;
use testkit::fault::{Crash, Crashes, FaultDisk, InjectedFault, explore};
use vfs::RealDisk;
use wire::Network;

const ID: [u8; 16] = [7; 16];
const INDEX: &str = "blocks/index";
const CHAINSTATE: &str = "chainstate";

/// A network directory with the old databases.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in [INDEX, CHAINSTATE] {
        create_database(&home.path().join(name), "old");
    }
    home
}

/// Creates a directory with the files of a database, whose `CURRENT` contains `text`.
fn create_database(dir: &Path, text: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("CURRENT"), text).unwrap();
    fs::write(dir.join("000001.ldb"), text.repeat(100)).unwrap();
}

/// Returns the content of `CURRENT` of both databases, the index first.
fn texts(home: &Path) -> [String; 2] {
    [INDEX, CHAINSTATE].map(|name| fs::read_to_string(home.join(name).join("CURRENT")).unwrap_or_default())
}

fn names() -> [&'static Path; 2] {
    [Path::new(INDEX), Path::new(CHAINSTATE)]
}

/// Returns everything below `home` but the two databases.
fn leftovers(home: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in [home.to_owned(), home.join("blocks")] {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if ![CHAINSTATE, "blocks", INDEX].iter().any(|name| path == home.join(name)) {
                found.push(path);
            }
        }
    }
    found
}

/// What it leads to may be on a disk that is not mounted.
#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_refused() {
    let home = home();
    fs::remove_dir_all(home.path().join(CHAINSTATE)).unwrap();
    let link = |to: &str| std::os::unix::fs::symlink(home.path().join(to), home.path().join(CHAINSTATE));
    link("no/such").unwrap();
    let error = check_owner(&RealDisk, home.path(), &names()).unwrap_err();
    assert!(error.to_string().contains("mount its disk"), "{error}");
    fs::remove_file(home.path().join(CHAINSTATE)).unwrap();
    link("new").unwrap();
    check_owner(&RealDisk, home.path(), &names()).unwrap();
}

/// While block files are elsewhere, the folder of the block index can be missing too.
#[test]
fn a_database_whose_parent_directory_is_missing_can_be_created() {
    let home = home();
    fs::remove_dir_all(home.path().join(INDEX).parent().unwrap()).unwrap();
    check_owner(&RealDisk, home.path(), &names()).unwrap();
}

/// Behind a download, a rebuild began while the download replaced the block index. It took the journal for
/// that of an earlier job, and removed what was old then: by that time, it could be the next index.
#[test]
fn a_replacement_begins_when_another_thread_has_committed_its_own() {
    let home = home();
    let index = Replacement::begin(&RealDisk, home.path(), &names()[..1], ID, false).unwrap();
    create_database(index.building(0), "new");
    thread::scope(|scope| {
        let mut begins = None;
        let last = || {
            let begin = || Replacement::begin(&RealDisk, home.path(), &names()[1..], [8; 16], false);
            let thread = begins.insert(scope.spawn(move || begin().unwrap()));
            thread::sleep(Duration::from_millis(100));
            assert!(!thread.is_finished());
            assert!(Journal::read(&RealDisk, home.path()).unwrap().is_some(), "it was removed");
        };
        index.commit(last).unwrap();
        begins.unwrap().join().unwrap().discard();
    });
    assert_eq!((texts(home.path()), leftovers(home.path())), (["new", "old"].map(str::to_owned), vec![]));
}

fn recover(disk: &dyn Disk, home: &Path) -> Result<Option<Recovery>, DiskError> {
    super::recover(disk, home, &names(), |_| Ok(()))
}

fn begin<'d>(disk: &'d dyn Disk, home: &Path, keep_old: bool) -> Replacement<'d> {
    let replacement = Replacement::begin(disk, home, &names(), ID, keep_old).unwrap();
    for number in 0..2 {
        create_database(replacement.building(number), "new");
    }
    replacement
}

/// The result of [`recover`], and the databases in place after it.
type Outcome = (Option<Recovery>, [String; 2]);

/// A disk on which change number `at` and all later ones fail, as for a process that is killed there.
fn killed_at(at: u64, in_steps: bool) -> FaultDisk {
    let disk = FaultDisk::killed_at(at);
    if in_steps { disk.without_exchange() } else { disk }
}

/// Lets a replacement crash before each of its changes in turn, lets `meanwhile` use the datadir, and
/// recovers: once undisturbed, and twice with the recovery killed as well, each time one change later, until
/// it succeeds. After each kill, `meanwhile` uses the datadir again. Returns all outcomes.
fn crash_at_each(in_steps: bool, keep_old: bool, meanwhile: impl Fn(&Path) + Sync) -> Vec<Outcome> {
    let outcomes = Mutex::new(Vec::new());
    // The sixth change can be the last of the three renames with which an exchange is undone.
    for first_kill in [u64::MAX, 0, 5] {
        let (place, crashes) = (home(), Crashes { in_steps, ..Crashes::default() });
        let run = |disk: &FaultDisk| {
            begin(disk, place.path(), keep_old).commit(|| ()).unwrap();
            assert_eq!(texts(place.path()), ["new", "new"]);
        };
        explore(place.path(), crashes, run, |Crash { dir, what, .. }| {
            let home = dir.path();
            meanwhile(home);
            let kills = (0..1_000).map(|later| first_kill.saturating_add(later));
            let mut recoveries =
                kills.map(|kill| recover(&killed_at(kill, in_steps), home).inspect_err(|_| meanwhile(home)));
            let recovery = recoveries.find_map(Result::ok).unwrap_or_else(|| panic!("{what}: no recovery"));
            let kept = leftovers(home).iter().all(|path| path.extension().is_some_and(|end| end == "old"));
            assert!(kept, "{what}: {:?}", leftovers(home));
            for (name, text) in [INDEX, CHAINSTATE].iter().zip(texts(home)) {
                assert!(!home.join(name).join(MARK).exists(), "{what}: a mark is left in {name}");
                let old = fs::read_to_string(home.join(format!("{name}.old/CURRENT")));
                assert!(text != "made" || old.unwrap() == "old", "{what}: {name}");
            }
            outcomes.lock().unwrap().push((recovery, texts(home)));
        });
    }
    let outcomes = outcomes.into_inner().unwrap();
    assert!(outcomes.len() > 10, "{outcomes:?}");
    outcomes
}

#[test]
fn a_commit_that_crashes_at_any_step_replaces_both_databases_or_neither() {
    for (in_steps, keep_old) in [(false, false), (true, false), (false, true)] {
        let outcomes = crash_at_each(in_steps, keep_old, |_| {});
        let ends =
            |text: &str| outcomes.iter().filter(|(_, texts)| texts == &[text; 2].map(str::to_owned)).count();
        assert_eq!(ends("old") + ends("new"), outcomes.len(), "{outcomes:?}");
        assert!(ends("old") > 0 && ends("new") > 0, "{outcomes:?}");
    }
}

/// The second fault is another error, or a kill, while what came before the first one is undone.
#[test]
fn a_commit_with_two_faults_replaces_both_databases_or_neither() {
    for (in_steps, second_fault) in
        [(false, InjectedFault::Once), (false, InjectedFault::Sticky), (true, InjectedFault::Once)]
    {
        let counting = killed_at(u64::MAX, in_steps);
        begin(&counting, home().path(), false);
        let mut clean_ups_failed = 0;
        for first in counting.count().. {
            let mut has_failed = false;
            for second in first + 1..first + 12 {
                let home = home();
                let disk = FaultDisk::failing_at(first).failing_again(second, second_fault);
                let disk = if in_steps { disk.without_exchange() } else { disk };
                let replacement = begin(&disk, home.path(), false);
                let commit = replacement.commit(|| ());
                has_failed = matches!(commit, Err(CommitError::Failed(_)));
                if matches!(commit, Err(CommitError::InPlace(_))) {
                    // The next commit of this process finishes it.
                    begin(&RealDisk, home.path(), false).commit(|| ()).unwrap();
                    clean_ups_failed += 1;
                }
                replacement.discard();
                recover(&RealDisk, home.path()).unwrap();
                let case = format!("{in_steps} {second_fault:?} {first} {second}");
                assert!(
                    [["old"; 2], ["new"; 2]].contains(&texts(home.path()).each_ref().map(|text| &**text)),
                    "{case}"
                );
                assert_eq!(leftovers(home.path()), [] as [PathBuf; 0], "{case}");
            }
            if !has_failed {
                break;
            }
        }
        assert_ne!(clean_ups_failed, 0);
    }
}

fn begin_each(home: &Path) -> [Replacement<'static>; 2] {
    [(INDEX, ID), (CHAINSTATE, [8; 16])]
        .map(|(name, id)| Replacement::begin(&RealDisk, home, &[Path::new(name)], id, false).unwrap())
}

/// The old block index of a download whose clean-up had failed was called that of another program.
#[test]
fn what_is_added_first_finishes_an_earlier_commit() {
    let home = home();
    let [index, mut both] = begin_each(home.path());
    index.exchange_all(&mut index.journal().unwrap()).unwrap();
    both.add_first(Path::new(INDEX)).unwrap();
    (0..2).for_each(|number| create_database(both.building(number), "new"));
    both.commit(|| ()).unwrap();
    assert_eq!(texts(home.path()), ["new"; 2]);
    assert_eq!(leftovers(home.path()), [] as [PathBuf; 0]);
}

/// A download replaces the block index while a rebuild behind it gives up.
#[test]
fn only_its_own_journal_keeps_a_replacement_from_being_discarded() {
    let home = home();
    let [index, chainstate] = begin_each(home.path());
    index.journal().unwrap().write(&RealDisk, home.path()).unwrap();
    index.discard();
    chainstate.discard();
    assert!(index.building(0).exists() && !chainstate.building(0).exists());
}

#[test]
fn databases_used_after_a_crash_stay_in_place() {
    // Each database gets a new manifest, as by a bitcoind that is started before the recovery.
    let outcomes = crash_at_each(false, false, |home| {
        for (name, text) in [INDEX, CHAINSTATE].iter().zip(texts(home)) {
            fs::write(home.join(name).join("CURRENT"), format!("{text}, used")).unwrap();
        }
    });
    for (recovery, texts) in &outcomes {
        assert!(texts.iter().all(|text| text.ends_with(", used")), "{recovery:?}: {texts:?}");
    }
    assert!(outcomes.iter().any(|(recovery, _)| *recovery == Some(Recovery::Abandoned)), "{outcomes:?}");
}

#[test]
fn exchanges_are_undone_if_an_old_database_was_used_after_the_crash() {
    let outcomes = crash_at_each(false, false, |home| {
        let path = home.join(CHAINSTATE).join("CURRENT");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{}, used", text.trim_end_matches(", used"))).unwrap();
    });
    for (recovery, texts) in &outcomes {
        let pairs = [["old", "old, used"], ["new", "new, used"]];
        assert!(pairs.contains(&[&*texts[0], &*texts[1]]), "{texts:?}");
        assert!(*recovery != Some(Recovery::Abandoned), "{texts:?}");
    }
    assert!(outcomes.iter().any(|(recovery, _)| *recovery == Some(Recovery::Undone)), "{outcomes:?}");
}

/// As if the disk of the chainstate was not mounted: the index was once put back, and the journal removed.
#[test]
fn a_database_that_is_in_neither_place_keeps_the_journal() {
    let home = home();
    let replacement = begin(&RealDisk, home.path(), false);
    replacement.journal().unwrap().write(&RealDisk, home.path()).unwrap();
    let mounted = tempfile::tempdir().unwrap();
    let names_there = [CHAINSTATE, "chainstate.peregrine"];
    let move_all = |from: &Path, to: &Path| {
        names_there.iter().for_each(|name| fs::rename(from.join(name), to.join(name)).unwrap());
    };
    move_all(home.path(), mounted.path());
    let error = recover(&RealDisk, home.path()).unwrap_err().to_string();
    assert!(error.contains("mount the disk with it"), "{error}");
    assert_eq!(texts(home.path()), ["old", ""]);
    move_all(mounted.path(), home.path());
    assert_eq!(recover(&RealDisk, home.path()).unwrap(), Some(Recovery::Finished));
    assert_eq!(texts(home.path()), ["new", "new"]);
}

/// After two of three renames there was no chainstate, and a bitcoind made one. No recovery ended that: each
/// said that the chainstate was not there. Later, one that was killed there left the old database behind.
#[test]
fn a_database_that_is_made_within_an_exchange_in_steps_stays_in_use() {
    let made = AtomicUsize::new(0);
    let outcomes = crash_at_each(true, false, |home| {
        for name in [INDEX, CHAINSTATE].map(|name| home.join(name)).iter().filter(|name| !name.exists()) {
            create_database(name, "made");
            made.fetch_add(1, Ordering::Relaxed);
        }
    });
    let kept = outcomes.iter().flat_map(|(_, texts)| texts).filter(|text| *text == "made").count();
    assert!(kept > 0 && kept == made.into_inner(), "{outcomes:?}");
    assert!(outcomes.iter().any(|(_, texts)| texts == &["made"; 2].map(str::to_owned)), "{outcomes:?}");
}

/// Once, the next commit failed at its end.
#[test]
fn a_foreign_directory_under_the_name_of_an_exchange_is_found_before_the_work() {
    let home = home();
    fs::create_dir_all(home.path().join("chainstate.peregrine.exchange/mine")).unwrap();
    assert_eq!(recover(&RealDisk, home.path()).unwrap(), None);
    assert!(Replacement::begin(&RealDisk, home.path(), &names(), ID, false).is_err());
}

#[test]
fn a_crash_in_what_is_called_last_leaves_the_journal() {
    let home = home();
    let replacement = begin(&RealDisk, home.path(), false);
    let crash = || replacement.commit(|| panic!("the power fails")).map(drop);
    assert!(panic::catch_unwind(AssertUnwindSafe(crash)).is_err());
    for _ in 0..2 {
        let crash = || super::recover(&RealDisk, home.path(), &names(), |_| panic!("the power fails again"));
        assert!(panic::catch_unwind(AssertUnwindSafe(crash)).is_err());
    }
    assert_eq!(recover(&RealDisk, home.path()).unwrap(), Some(Recovery::Finished));
    assert_eq!((texts(home.path()), leftovers(home.path())), (["new", "new"].map(String::from), vec![]));
}

#[test]
fn keeps_old_databases_on_request() {
    let home = home();
    let kept = begin(&RealDisk, home.path(), true).commit(|| ()).unwrap();
    let expected = [INDEX, CHAINSTATE].map(|name| with_suffix(&home.path().join(name), KEPT_SUFFIX));
    assert_eq!(kept.len(), 2);
    for (path, expected) in kept.iter().zip(expected) {
        assert!(path.ends_with(expected.file_name().unwrap()));
        assert_eq!(fs::read_to_string(path.join("CURRENT")).unwrap(), "old");
    }
    assert_eq!(texts(home.path()), ["new", "new"]);
    let again = Replacement::begin(&RealDisk, home.path(), &names(), ID, true).err().unwrap().to_string();
    assert!(again.contains("would be kept under this name, which is taken"), "{again}");
}

/// Once, the layer of a container's image was found only when a complete database was to take its place.
#[test]
fn a_database_that_cannot_be_renamed_is_refused_before_the_work() {
    let home = home();
    let disk = FaultDisk::healthy().with_lower(&home.path().join(CHAINSTATE));
    let error = Replacement::begin(&disk, home.path(), &names(), ID, false).err().unwrap();
    let kind = io::ErrorKind::CrossesDevices;
    assert!(matches!(&error, DiskError::File(file) if file.source.kind() == kind), "{error}");
    assert_eq!(leftovers(home.path()), [] as [PathBuf; 0]);
}

/// Once, the old chainstate lay under the name of the new one, as if it was another program's: sshfs removes
/// what is in the way of a rename.
#[test]
fn a_database_is_put_back_if_the_file_system_replaces_directories_that_are_not_empty() {
    let home = home();
    let mark = home.path().join("chainstate.peregrine").join(MARK);
    let disk = FaultDisk::healthy().watched(mark.clone(), move || fs::remove_file(&mark).unwrap());
    let error = Replacement::begin(&disk, home.path(), &names(), ID, false).err().unwrap().to_string();
    assert!(error.contains("replaces directories that are not empty"), "{error}");
    assert_eq!((texts(home.path()), leftovers(home.path())), (["old", "old"].map(String::from), vec![]));
}

/// On an SMB share, the own lock of the old database forbade the exchange; on NFS, its directory stayed.
#[test]
fn a_database_is_not_open_when_it_is_exchanged() {
    for in_steps in [false, true] {
        let (home, disk) = (home(), killed_at(u64::MAX, in_steps));
        let datadir = Datadir::at(home.path(), Network::Main);
        let lock = DatadirLock::take(&disk, &datadir, LockMode::Change).unwrap();
        begin(&disk, home.path(), false).commit(|| ()).unwrap();
        assert_eq!(texts(home.path()), ["new", "new"]);
        assert_eq!(leftovers(home.path()), [".lock", "blocks/.lock"].map(|name| home.path().join(name)));
        assert!(RealDisk.lock(&home.path().join(".lock")).unwrap().is_none(), "bitcoind is still excluded");
        drop(lock);
    }
}

#[test]
fn foreign_files_move_to_the_new_database_unless_leveldb_would_take_them_for_its_own() {
    let home = home();
    fs::write(home.path().join("chainstate/notes.txt"), "mine").unwrap();
    fs::create_dir(home.path().join("chainstate/lost")).unwrap();
    // Directories with names of a log and of tables; only the second name exists in the new database too.
    fs::remove_file(home.path().join("chainstate/000001.ldb")).unwrap();
    for dir in ["000006.log", "000001.ldb", "000009.ldb"] {
        fs::create_dir(home.path().join("chainstate").join(dir)).unwrap();
        fs::write(home.path().join("chainstate").join(dir).join("odd.txt"), "mine").unwrap();
    }
    begin(&RealDisk, home.path(), false).commit(|| ()).unwrap();
    for dir in ["000006.log", "000001.ldb", "000009.ldb"] {
        let kept = home.path().join("chainstate.old").join(dir).join("odd.txt");
        assert_eq!(fs::read(&kept).unwrap(), b"mine");
        assert!(!home.path().join("chainstate").join(dir).is_dir());
    }
    fs::remove_dir_all(home.path().join("chainstate.old")).unwrap();
    assert_eq!(fs::read(home.path().join("chainstate/notes.txt")).unwrap(), b"mine");
    assert!(home.path().join("chainstate/lost").is_dir());
    assert_eq!(leftovers(home.path()), [] as [PathBuf; 0]);
}

#[test]
fn a_foreign_directory_under_the_temporary_name_is_neither_used_nor_removed() {
    for (name, text) in [("notes", "mine"), ("CURRENT", "a copy of a database, by hand")] {
        let home = home();
        let foreign = home.path().join("chainstate.peregrine");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(name), text).unwrap();
        assert!(!needs_recovery(&RealDisk, home.path(), &names()).unwrap());
        assert_eq!(recover(&RealDisk, home.path()).unwrap(), None);
        let error = Replacement::begin(&RealDisk, home.path(), &names(), ID, false).err().unwrap();
        let is_foreign = matches!(&error, DiskError::NotReplaceable { obstacle: Obstacle::ForeignFiles, .. });
        assert!(is_foreign, "{error}");
        assert_eq!(fs::read_to_string(foreign.join(name)).unwrap(), text);
        assert!(!home.path().join("blocks/index.peregrine").exists(), "the new index was not removed");
    }
    // A file and a link under that name are refused as well.
    let home = home();
    let foreign = home.path().join("chainstate.peregrine");
    std::os::unix::fs::symlink("nowhere", &foreign).unwrap();
    assert!(Replacement::begin(&RealDisk, home.path(), &names(), ID, false).is_err());
    fs::remove_file(&foreign).unwrap();
    fs::write(&foreign, "mine").unwrap();
    assert!(Replacement::begin(&RealDisk, home.path(), &names(), ID, false).is_err());
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
}

/// Also if a database has become a link since.
#[test]
fn recovery_removes_what_an_earlier_job_has_built() {
    for is_link in [false, true] {
        let (home, elsewhere) = (home(), tempfile::tempdir().unwrap());
        begin(&RealDisk, home.path(), false);
        if is_link {
            let (path, target) = (home.path().join(CHAINSTATE), elsewhere.path().join("coins"));
            fs::rename(&path, &target).unwrap();
            std::os::unix::fs::symlink(&target, &path).unwrap();
        }
        assert!(needs_recovery(&RealDisk, home.path(), &names()[usize::from(is_link)..]).unwrap());
        assert_eq!(recover(&RealDisk, home.path()).unwrap(), None);
        assert_eq!(leftovers(home.path()), [] as [PathBuf; 0], "{is_link}");
        assert!(!needs_recovery(&RealDisk, home.path(), &names()).unwrap());
        assert_eq!(texts(home.path()), ["old", "old"], "{is_link}");
    }
}

#[test]
fn symbolic_links_stay_and_their_targets_are_exchanged() {
    let (home, elsewhere) = (home(), tempfile::tempdir().unwrap());
    fs::remove_dir_all(home.path().join(CHAINSTATE)).unwrap();
    fs::create_dir(elsewhere.path().join("ssd")).unwrap();
    let target = elsewhere.path().join("ssd/coins");
    for is_dangling in [true, false] {
        let link = home.path().join(CHAINSTATE);
        if is_dangling {
            std::os::unix::fs::symlink(&target, &link).unwrap();
        } else {
            fs::write(target.join("CURRENT"), "old").unwrap();
        }
        let replacement = begin(&RealDisk, home.path(), false);
        assert_eq!(replacement.building(1), elsewhere.path().join("ssd/coins.peregrine"));
        replacement.commit(|| ()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(target.join("CURRENT")).unwrap(), "new");
        assert_eq!(fs::read_dir(elsewhere.path().join("ssd")).unwrap().count(), 1);
    }
    // Where no journal can be written, that is found before the work.
    fs::create_dir(home.path().join("peregrine-commit.new")).unwrap();
    let names = [Path::new(CHAINSTATE)];
    assert!(Replacement::begin(&RealDisk, home.path(), &names, [1; 16], false).is_err());
    assert_eq!(fs::read_dir(elsewhere.path().join("ssd")).unwrap().count(), 1);
}

#[test]
fn new_databases_have_the_mode_and_owner_of_the_old_ones() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    for mode in [0o700, 0o750] {
        let home = home();
        let is_root = RealDisk.user() == 0;
        for name in [INDEX, CHAINSTATE] {
            let dir = home.path().join(name);
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            if is_root {
                chown(&dir, Some(4711), Some(4712)).unwrap();
            }
        }
        let replacement = Replacement::begin(&RealDisk, home.path(), &names(), ID, false).unwrap();
        for number in 0..2 {
            RealDisk.create(&replacement.building(number).join("CURRENT")).unwrap();
        }
        replacement.commit(|| ()).unwrap();
        for name in [INDEX, CHAINSTATE] {
            let (dir, file) = (home.path().join(name), home.path().join(name).join("CURRENT"));
            let [dir, file] = [dir, file].map(|path| fs::metadata(path).unwrap());
            assert_eq!((dir.mode() & 0o7777, file.mode() & 0o777 & !mode), (mode, 0));
            if is_root {
                assert_eq!([dir.uid(), dir.gid(), file.uid(), file.gid()], [4711, 4712, 4711, 4712]);
            } else {
                testkit::data::skip("only root can give files to another user");
            }
        }
    }
}

/// As after a chainstate was copied with `sudo`.
#[test]
fn what_the_superuser_has_made_goes_to_the_owner_of_the_directory() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let home = home();
    if chown(home.path(), Some(4711), Some(4712)).is_err() {
        return testkit::data::skip("only root can give files to another user");
    }
    begin(&RealDisk, home.path(), false).commit(|| ()).unwrap();
    let owner = fs::metadata(home.path().join(CHAINSTATE)).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (4711, 4712));
}

/// As after `chown -R bitcoin DIR`, which leaves the group.
#[test]
fn a_group_that_the_owner_is_not_in_is_no_obstacle() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = home();
    for name in [INDEX, CHAINSTATE] {
        fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(0o750)).unwrap();
    }
    let group = RealDisk.ownership(&home.path().join(INDEX)).unwrap().gid;
    let disk = FaultDisk::healthy().with_foreign_group(group);
    begin(&disk, home.path(), false).commit(|| ()).unwrap();
    assert_eq!(texts(home.path()), ["new", "new"]);
    for name in [INDEX, CHAINSTATE] {
        let mode = fs::metadata(home.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "another group gets nothing");
    }
}

/// Only the database of the filters is on another disk.
#[test]
fn a_link_in_an_old_filter_index_is_removed_with_it() {
    let (home, elsewhere) = (home(), tempfile::tempdir().unwrap());
    let index = Path::new("indexes/blockfilter/basic");
    create_database(elsewhere.path(), "old");
    fs::create_dir_all(home.path().join(index)).unwrap();
    fs::write(home.path().join(index).join(FIRST_FILTERS), "old").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join(index).join("db")).unwrap();
    let replacement = Replacement::begin(&RealDisk, home.path(), &[index], ID, false).unwrap();
    create_database(&replacement.building(0).join("db"), "new");
    fs::write(replacement.building(0).join(FIRST_FILTERS), "new").unwrap();
    assert_eq!(replacement.commit(|| ()).unwrap(), [] as [PathBuf; 0]);
    assert_eq!(fs::read(home.path().join(index).join("db/CURRENT")).unwrap(), b"new");
    assert_eq!(fs::read_dir(home.path().join(index).parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_damaged_or_foreign_journal_is_refused_and_stays() {
    let home = home();
    let journal = begin(&RealDisk, home.path(), false).journal().unwrap();
    journal.write(&RealDisk, home.path()).unwrap();
    assert_eq!(Journal::read(&RealDisk, home.path()).unwrap().as_ref(), Some(&journal));
    let path = home.path().join("peregrine-commit");
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let error = recover(&RealDisk, home.path()).unwrap_err().to_string();
        assert!(error.contains("move this file away"), "{at}: {error}");
        fs::write(&path, &bytes[..at]).unwrap();
        assert!(recover(&RealDisk, home.path()).is_err(), "{at}");
        assert_eq!(fs::read(&path).unwrap(), bytes[..at]);
    }
    // A name that leads out of the directory.
    let entries = vec![JournalEntry { name: "../chainstate".into(), ..journal.entries[0].clone() }];
    Journal { entries, ..journal }.write(&RealDisk, home.path()).unwrap();
    assert!(recover(&RealDisk, home.path()).is_err());
    assert_eq!(texts(home.path()), ["old", "old"]);
}

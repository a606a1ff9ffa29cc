//! Tests of [`RealDisk`], and of exchanges in steps.

use super::*;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// A named pipe without a writer would block its reader in `open` forever, without reacting to signals.
#[test]
fn refuses_what_is_not_a_regular_file_without_blocking_and_names_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let [pipe, socket, link] = ["pipe", "socket", "link"].map(|name| dir.path().join(name));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    for (path, what) in [
        (&*pipe, "a named pipe (FIFO)"),
        (&*link, "a named pipe (FIFO)"),
        (&*socket, "a socket"),
        (Path::new("/dev/zero"), "a character device"),
        (dir.path(), "a directory"),
    ] {
        for error in [
            RealDisk.open(path).err(),
            RealDisk.read(path, 8).err(),
            RealDisk.lock_shared(path).err(),
            open_regular(path).err(),
        ] {
            let text = error.unwrap().to_string();
            assert!(text.starts_with(&format!("it is {what}, not a regular file; ")), "{text}");
        }
    }
    for path in [&pipe, &socket] {
        let text = RealDisk.lock(path).err().unwrap().to_string();
        assert!(text.contains("not a regular file"), "{text}");
    }
    assert!(RealDisk.sync_dir(&pipe).is_err());
    assert_eq!(RealDisk.open(&dir.path().join("no")).err().unwrap().kind(), io::ErrorKind::NotFound);
}

fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    let mut file = disk.create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync().unwrap();
}

#[test]
fn files_are_created_once_read_at_offsets_and_up_to_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, path) = (RealDisk, dir.path().join("a"));
    assert_eq!(disk.metadata(&path).unwrap(), None);
    write(&disk, &path, b"0123456789");
    assert_eq!(disk.create(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);

    let file = disk.open(&path).unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 6).unwrap();
    assert_eq!((&bytes, file.len().unwrap()), (b"6789", 10));
    assert_eq!(file.read_exact_at(&mut bytes, 7).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

    assert_eq!(disk.read(&path, 10).unwrap(), b"0123456789");
    assert_eq!(disk.read(&path, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    let found = disk.metadata(&path).unwrap().unwrap();
    assert_eq!((found.is_dir, found.len), (false, 10));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    assert!((now - 60 * 1_000_000_000..=now).contains(&found.modified), "{found:?} at {now}");
    assert_eq!(disk.list(dir.path()).unwrap(), ["a"]);
    assert!(disk.metadata(dir.path()).unwrap().unwrap().is_dir);
    assert!(disk.free_space(dir.path()).unwrap() > 0);
    assert!(disk.share_space(dir.path(), &path).unwrap());
    disk.sync_dir(dir.path()).unwrap();
}

#[test]
fn exchange_swaps_directories_in_one_step_or_three() {
    for exchange in [
        |a: &Path, b: &Path| RealDisk.exchange(a, b),
        |a: &Path, b: &Path| exchange_in_steps(&RealDisk, a, b),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        for (path, text) in [(&a, b"old"), (&b, b"new")] {
            RealDisk.create_dir_all(path).unwrap();
            write(&RealDisk, &path.join("file"), text);
        }
        exchange(&a, &b).unwrap();
        assert_eq!(RealDisk.read(&a.join("file"), 9).unwrap(), b"new");
        assert_eq!(RealDisk.read(&b.join("file"), 9).unwrap(), b"old");
        assert!(!repair_exchange(&RealDisk, &a, &b).unwrap());
        fs::remove_dir_all(&b).unwrap();
        assert!(exchange(&a, &b).is_err());
        assert_eq!(RealDisk.read(&a.join("file"), 9).unwrap(), b"new", "a failed exchange changes nothing");
    }
}

#[test]
fn an_interrupted_exchange_is_undone_or_completed() {
    // (names left by the crash, names after the repair), each name with the text of the file, which is the
    // name that the file had at first.
    for (left, want) in [
        ([("a.exchange", "a"), ("b", "b")], [("a", "a"), ("b", "b")]),
        ([("a.exchange", "a"), ("a", "b")], [("a", "b"), ("b", "a")]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in left {
            write(&RealDisk, &dir.path().join(name), text.as_bytes());
        }
        assert!(repair_exchange(&RealDisk, &dir.path().join("a"), &dir.path().join("b")).unwrap());
        for (name, text) in want {
            assert_eq!(RealDisk.read(&dir.path().join(name), 9).unwrap(), text.as_bytes());
        }
        assert_eq!(RealDisk.list(dir.path()).unwrap(), ["a", "b"]);
    }
}

/// A POSIX lock excludes processes, not threads, so this test starts itself again as the other process.
#[test]
fn a_lock_is_held_against_other_processes() {
    const OTHER: &str = "PEREGRINE_TEST_LOCK";
    if let Some(path) = std::env::var_os(OTHER) {
        let free = RealDisk.lock(Path::new(&path)).unwrap().is_some();
        std::process::exit(if free { 10 } else { 11 });
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let other = || {
        let name = "tests::a_lock_is_held_against_other_processes";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name]).env(OTHER, &path).output().unwrap().status.code()
    };
    let lock = RealDisk.lock(&path).unwrap();
    assert!(lock.is_some());
    assert_eq!(RealDisk.list(dir.path()).unwrap(), ["LOCK"]);
    assert_eq!(other(), Some(11));
    drop(lock);
    assert_eq!(other(), Some(10));
    // One that was taken too late, of a file that has the name no more, would protect nothing.
    let [old, new] = ["LOCK", "new"].map(|name| fs::File::create(dir.path().join(name)).unwrap());
    assert!(real::lock_at(&old, &path).unwrap());
    fs::rename(dir.path().join("new"), &path).unwrap();
    assert!(!real::lock_at(&old, &path).unwrap() && real::lock_at(&new, &path).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(!real::lock_at(&new, &path).unwrap());
}

/// Once, the stack overflowed: the current directory is in no other one, by its name.
#[test]
fn no_directory_is_created_in_a_current_one_that_may_not_be_searched() {
    use std::os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    };
    const OTHER: &str = "PEREGRINE_TEST_UNSEARCHABLE";
    let set_mode = |dir: &Path, mode| fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    if std::env::var_os(OTHER).is_some() {
        set_mode(Path::new("."), 0);
        let error = RealDisk.create_dir_all(Path::new("new")).unwrap_err();
        std::process::exit(if error.kind() == io::ErrorKind::PermissionDenied { 10 } else { 11 });
    }
    let [dir, programs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // Another user may not search the directory in which it was built.
    set_mode(programs.path(), 0o755);
    let program = programs.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = std::process::Command::new(program);
    let name = "tests::no_directory_is_created_in_a_current_one_that_may_not_be_searched";
    command.args(["--exact", name]).env(OTHER, "").current_dir(dir.path());
    if RealDisk.user() == 0 {
        // The superuser may search every directory.
        if chown(dir.path(), Some(4242), None).is_err() {
            return testdata::skip("on this machine, root cannot give a directory to another user");
        }
        command.uid(4242);
    }
    match command.output() {
        Ok(done) => assert_eq!(done.status.code(), Some(10), "{done:?}"),
        Err(error) => {
            return testdata::skip(format!("this machine does not run it as another user: {error}"));
        }
    }
    set_mode(dir.path(), 0o700);
}

/// Once, the file that another process had begun in place of this one got the final name.
#[test]
fn a_file_that_was_replaced_does_not_get_its_name_and_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let [temporary, path] = ["out.part", "out"].map(|name| dir.path().join(name));
    let mut file = AtomicFile::create(&RealDisk, temporary.clone(), &path).unwrap();
    file.write_all(b"ours").unwrap();
    fs::remove_file(&temporary).unwrap();
    fs::write(&temporary, "of another").unwrap();
    let error = file.commit().unwrap_err().to_string();
    assert!(error.contains("out.part: cannot rename to its final name: another program"), "{error}");
    assert_eq!(RealDisk.list(dir.path()).unwrap(), ["out.part"]);
}

/// The files of `proc` are on no medium: a sync of its directories is refused with EINVAL, as on some network
/// file systems.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_synced_is_remembered_and_no_error() {
    let dir = Path::new("/proc/self");
    assert!(fs::File::open(dir).unwrap().sync_all().is_err());
    RealDisk.sync_dir(dir).unwrap();
    assert_eq!(unsynced_dir(), Some(dir));
}

/// Once, names that ext4 had only in memory counted as synced: after an error of the medium it is read-only.
#[test]
fn a_file_system_that_became_read_only_has_not_synced() {
    use rustix::io::Errno;
    let cannot_sync = |code: Errno| real::is_unsupported(&code.into());
    assert!(cannot_sync(Errno::INVAL) && !cannot_sync(Errno::ROFS) && !cannot_sync(Errno::BADF));
}

/// Once, it was advised to raise the limit of this process, which has none, on FAT32.
#[test]
fn a_file_that_is_too_large_for_its_file_system_needs_another_one() {
    let is_limited = rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some();
    let limit = Limit::of(&rustix::io::Errno::FBIG.into());
    assert_eq!(limit, Some(if is_limited { Limit::FileSize } else { Limit::LargestFile }));
}

/// Once, a subvolume was refused as a mount point, and two were taken for two disks: each has a device number
/// of its own. So have these two, with the same free space: none.
#[cfg(target_os = "linux")]
#[test]
fn not_only_device_numbers_distinguish_mounts_and_disks() {
    let (dir, [proc, sys]) = (tempfile::tempdir().unwrap(), ["/proc", "/sys"].map(Path::new));
    assert!(RealDisk.share_space(proc, sys).unwrap());
    assert!(!RealDisk.share_space(proc, dir.path()).unwrap());
    assert!(RealDisk.is_mount_point(proc).unwrap());
    assert!(!RealDisk.is_mount_point(dir.path()).unwrap());
    // Once, two empty disks of one model were taken for one: they have the same free space. Then a
    // container's overlay and its volume were taken for two.
    let [partition, subvolume] = [(254, 1), (0, 27)].map(|(major, minor)| rustix::fs::makedev(major, minor));
    assert!(real::can_share([partition, subvolume]) && !real::can_share([partition; 2]));
}

#[test]
fn files_that_root_creates_belong_to_the_owner_of_their_directory() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let dir = tempfile::tempdir().unwrap();
    if chown(dir.path(), Some(4242), Some(4243)).is_err() {
        return testdata::skip("only root can give a directory to another user");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o750)).unwrap();
    let (locked, written) = (dir.path().join(".lock"), dir.path().join("file"));
    let lock = RealDisk.lock(&locked).unwrap();
    assert!(lock.is_some());
    RealDisk.create(&written).unwrap();
    for path in [&locked, &written] {
        let found = fs::metadata(path).unwrap();
        let is = (found.uid(), found.gid(), found.mode() & 0o777);
        assert_eq!(is, (4242, 4243, 0o640), "{}", path.display());
    }
    assert_eq!(RealDisk.create(&written).err().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
    assert!(RealDisk.lock(&locked).unwrap().is_none(), "another thread is refused as well");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
}

/// Once, no file could be created: a user namespace that does not know a user refuses to give files to it.
#[cfg(target_os = "linux")]
#[test]
fn files_are_created_in_a_directory_of_an_unknown_user() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    const OTHER: &str = "PEREGRINE_TEST_UNKNOWN_USER";
    if let Some(dir) = std::env::var_os(OTHER) {
        let [dir, file] = ["new", "new/file"].map(|name| Path::new(&dir).join(name));
        let unknown = RealDisk.ownership(dir_of(&dir)).unwrap();
        RealDisk.create_dir_all(&dir).unwrap();
        RealDisk.create(&file).unwrap();
        RealDisk.create(&dir.with_extension("file")).unwrap();
        let error = RealDisk.set_ownership(&file, unknown).unwrap_err();
        std::process::exit(if error.kind() == io::ErrorKind::PermissionDenied { 10 } else { 11 });
    }
    let dir = tempfile::tempdir().unwrap();
    if chown(dir.path(), Some(4242), Some(4243)).is_err() {
        return testdata::skip("only root can give a directory to another user");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-current-user"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::files_are_created_in_a_directory_of_an_unknown_user"]);
    match command.env(OTHER, dir.path()).output() {
        // What `unshare` returns if it fails.
        Ok(done) if done.status.code() != Some(1) => assert_eq!(done.status.code(), Some(10), "{done:?}"),
        _ => testdata::skip("this machine has no user namespaces"),
    }
}

/// Once, a second reader ended the locks of the first one's process.
#[test]
fn locks_exclude_threads_and_end_with_their_last_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".lock");
    fs::write(&path, []).unwrap();
    let readers = [(); 2].map(|()| RealDisk.lock_shared(&path).unwrap().expect("readers share it"));
    for reader in readers {
        assert!(RealDisk.lock(&path).unwrap().is_none());
        let holder = RealDisk.lock_holder(&path).unwrap().unwrap();
        assert_eq!(holder.pid, Some(std::process::id()));
        drop(reader);
    }
    let lock = RealDisk.lock(&path).unwrap();
    assert!(lock.is_some() && RealDisk.lock_shared(&path).unwrap().is_none());
    drop(lock);
    assert_eq!(RealDisk.lock_holder(&path).unwrap(), None);
}

/// The next file can get the device and inode of one whose lock has ended before its holder was dropped.
#[test]
fn a_lock_that_has_ended_early_does_not_end_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let first = RealDisk.lock(&path).unwrap();
    RealDisk.unlock(&path);
    let next = RealDisk.lock(&path).unwrap();
    assert!(next.is_some());
    drop(first);
    assert!(RealDisk.lock_holder(&path).unwrap().is_some());
    drop(next);
    assert_eq!(RealDisk.lock_holder(&path).unwrap(), None);
}

/// Once, a second job of the same process removed the file that the first one was writing.
#[test]
fn a_file_that_another_thread_writes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let create = || unfinished::create(&RealDisk, &path, unfinished::SUFFIX);
    let mut first = create().unwrap();
    assert!(matches!(create(), Err(UnfinishedError::Refused { .. })));
    assert!(RealDisk.lock_holder(first.temporary_path()).unwrap().is_some());
    first.write_all(b"first").unwrap();
    first.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first");
    create().unwrap();
    assert_eq!(RealDisk.list(dir.path()).unwrap(), ["out"]);
}

/// Once, no file could be written there: it was said that it could not be created.
#[test]
fn a_new_file_needs_no_lock_where_there_are_none() {
    use rustix::io::Errno;
    for (code, is_written) in [(Errno::NOLCK, true), (Errno::NOSYS, true), (Errno::IO, false)] {
        assert_eq!(real::lock_if_possible(Err(code.into())).is_ok_and(|locked| locked), is_written);
    }
    assert!(!real::lock_if_possible(Ok(false)).unwrap(), "another process has locked it");
}

/// Once, all of the file was written, and then it could not get its name.
#[test]
fn a_slash_at_the_end_of_the_name_of_a_file_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_suffix(&dir.path().join("out"), "/");
    let create = || unfinished::create_new(&RealDisk, &path, unfinished::SUFFIX);
    create().unwrap().commit().unwrap();
    assert_eq!(RealDisk.list(dir.path()).unwrap(), ["out"]);
    assert!(matches!(create(), Err(UnfinishedError::Exists(_))));
}

/// What is not on the medium yet must not be forgotten.
#[test]
fn bytes_that_begin_to_be_synced_stay_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut file = RealDisk.open_for_writing(&path).unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    for (offset, part) in (0..).step_by(1_000_000).zip(bytes.chunks(1_000_000)) {
        file.write_all_at(part, offset).unwrap();
        file.begin_to_sync(offset, part.len() as u64);
    }
    file.sync().unwrap();
    assert!(fs::read(&path).unwrap() == bytes);
}

/// A pipe cannot be synced, which only the system knows: its error shows that it was asked.
#[test]
fn a_sync_of_a_file_asks_the_system_and_returns_its_error() {
    let pipe = || fs::File::from(std::os::fd::OwnedFd::from(io::pipe().unwrap().1));
    let mut new = real::NewFile { file: std::sync::Arc::new(pipe()), _lock: None };
    assert!(new.sync().is_err() && pipe().sync().is_err());
}

//! Blocked pipes, signals and limits of the system: none may block the program forever, or end it without a
//! message.

use crate::common;

use common::command;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};
use std::{
    fs,
    io::{PipeReader, PipeWriter, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::snapshot, datadir::Layout};

/// The program ends within about a second of a signal; this leaves time for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

fn datadir() -> TempDir {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    let chain =
        CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(120), ..ChainSpec::new(5, 300_000) }));
    let dir = TempDir::new().unwrap();
    chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(5) }).unwrap();
    dir
}

fn reindex(datadir: &Path, more: &[&str]) -> Command {
    command(&[&["reindex", "--chain", "regtest", "--threads", "2"], more].concat(), datadir)
}

/// Waits for the exit code; panics if the process does not end.
fn exit_code(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("the process does not end");
        }
        sleep(Duration::from_millis(20));
    }
}

/// A pipe whose buffer is full.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn commands_refuse_named_pipes() {
    let dir = datadir();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for args in [
        &["reindex", "--chain", "regtest", "--hints", pipe, "--datadir", dir.path().to_str().unwrap()][..],
        &["hints", "info", pipe],
        &["hints", "convert", pipe, "-o", "new", "--format", "bitmap"],
        &["snapshot", "info", pipe],
        &["snapshot", "verify", pipe],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_peregrine"))
            .args(args)
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let code = exit_code(&mut child);
        let text = stderr(&child.wait_with_output().unwrap());
        assert!(code.is_some_and(|code| code > 0), "{args:?}: {text}");
        assert!(text.contains("is a named pipe (FIFO), not a regular file"), "{args:?}: {text}");
    }
}

/// Regression: blocked in a write, to a stopped terminal or to `less`, the program did not react to the
/// signal.
#[test]
fn signal_ends_a_program_that_is_blocked_in_a_write() {
    for (style, to_stdout) in [("none", true), ("log", false), ("bar", false)] {
        let dir = datadir();
        let (_reader, writer) = full_pipe();
        let mut command = reindex(dir.path(), &["--progress", style]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if to_stdout {
            command.stdout(writer)
        } else {
            command.stderr(writer)
        };
        let mut child = command.spawn().unwrap();
        drop(command);
        // Until it blocks in a write.
        let chainstate = dir.path().join("regtest/chainstate");
        let until = Instant::now() + TIMEOUT;
        while to_stdout && !chainstate.exists() && Instant::now() < until {
            sleep(Duration::from_millis(20));
        }
        sleep(Duration::from_millis(1500));
        assert_eq!(child.try_wait().unwrap(), None, "{style}: it is blocked");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(exit_code(&mut child), Some(130), "{style}");
    }
}

#[test]
fn report_that_cannot_be_written_is_an_error_with_a_message() {
    let dir = datadir();
    let mut command = reindex(dir.path(), &["--progress", "none"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("cannot write the report to standard output"), "{}", stderr(&output));
}

/// Runs `reindex` under a limit set by the shell. It must name the limit and leave the datadir unchanged.
fn refused_under_limit(limit: &str, more: &[&str], words: &[&str]) {
    let dir = datadir();
    let before = snapshot(dir.path()).unwrap();
    let command = reindex(dir.path(), more);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]).arg(command.get_program());
    let output = shell.args(command.get_args()).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(5), "{limit}: {text}");
    for word in words {
        assert!(text.contains(word), "{limit}: no {word:?} in {text}");
    }
    let after = snapshot(dir.path()).unwrap();
    let is_lock = |path: &Path| path.ends_with(".lock") || path.ends_with("LOCK");
    let data = |files: Vec<(std::path::PathBuf, Vec<u8>)>| -> Vec<_> {
        let is_temporary = |path: &Path| path.components().any(|part| part.as_os_str() == "peregrine-work");
        files.into_iter().filter(|(path, _)| !is_lock(path) && !is_temporary(path)).collect()
    };
    assert!(data(before) == data(after), "{limit}: the datadir was touched");
}

#[test]
fn error_names_the_limit() {
    refused_under_limit("-f 8", &[], &["the limit of file size is reached", "ulimit -f"]);
    refused_under_limit("-n 7", &[], &["limit of open files", "ulimit -n"]);
    refused_under_limit("-v 500000", &["--memory", "128M"], &["address space", "ulimit -v"]);
    refused_under_limit("-v 500000", &[], &["ulimit -v"]);
}

/// Regression: the advice was to free disk space, of which there was enough.
#[test]
fn a_file_system_without_inodes_is_reported_as_such() {
    let dir = datadir();
    let script = "mkdir full && mount -t tmpfs -o nr_inodes=40 tmpfs full && cp -a regtest full && \
                  while touch full/$((i += 1)) 2> /dev/null; do :; done; exec \"$0\" \"$@\"";
    let command = reindex(Path::new("full"), &[]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(command.get_program());
    let Ok(output) = unshare.args(command.get_args()).current_dir(dir.path()).output() else {
        return testkit::data::skip("there is no program unshare");
    };
    let text = stderr(&output);
    if text.contains("unshare: ") || text.contains("mount: ") {
        return testkit::data::skip(format!("this process may not mount: {text}"));
    }
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("no inodes are free") && !text.contains("disk space"), "{text}");
}

/// As on some network file systems, on which bitcoind runs, too.
#[test]
fn a_directory_that_cannot_be_synced_is_a_warning() {
    let dir = datadir();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "strace", "-e", "trace=fsync", "-e", "inject=fsync:error=EINVAL"]);
    for name in ["regtest", "regtest/blocks", "regtest/blocks/index", "regtest/chainstate"] {
        strace.arg("-P").arg(dir.path().join(name));
    }
    let command = reindex(dir.path(), &["--json"]);
    strace.arg(command.get_program()).args(command.get_args());
    match strace.current_dir(dir.path()).output() {
        Ok(output) if !stderr(&output).contains("ptrace") => {
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            assert!(stderr(&output).contains("cannot sync directories"), "{}", stderr(&output));
        }
        _ => testkit::data::skip("strace is not there or may not trace"),
    }
}

#[test]
fn mistyped_number_of_threads_is_a_usage_error() {
    let output = command(&["reindex", "--threads", "99999999"], Path::new("d")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("at most 1024"), "{}", stderr(&output));
}

/// A run that passes the check of the address space does not fail later.
#[test]
fn accepted_address_space_is_sufficient() {
    let dir = datadir();
    let command = reindex(dir.path(), &["--memory", "128M"]);
    for (kib, code) in [(660_000, 5), (680_000, 0)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]).arg(command.get_program());
        let output = shell.args(command.get_args()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{kib}: {}", stderr(&output));
    }
}

#[test]
fn log_inside_a_database_is_refused_before_it_is_created() {
    let dir = datadir();
    fs::create_dir(dir.path().join("regtest/chainstate")).unwrap();
    let log = dir.path().join("regtest/chainstate/log");
    let output = reindex(dir.path(), &["--log", log.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--log") && !log.exists(), "{}", stderr(&output));
}

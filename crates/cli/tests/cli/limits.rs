//! Blocked pipes, signals and limits of the system: none may block the program forever, or end it without a
//! message.

use crate::prelude::*;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::{PipeReader, PipeWriter};

/// The program ends within about a second of a signal; this leaves time for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

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

/// Regression: blocked in a write, to a stopped terminal or to `less`, the program did not react to the
/// signal.
#[test]
fn signal_ends_a_program_that_is_blocked_in_a_write() {
    for (style, to_stdout) in [("none", true), ("log", false), ("bar", false)] {
        let dir = given("small");
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

/// Regression: the advice was to free disk space, of which there was enough.
#[test]
fn a_file_system_without_inodes_is_reported_as_such() {
    let dir = given("small");
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
    let dir = given("small");
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

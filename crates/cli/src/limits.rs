//! Limits that the system imposes on the process. A limit that is too low is reported before the work begins.

use engine::{
    ChainOptions, Error, HumanMemory,
    machine::{MIN_MEMORY, memory_limit},
};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::{Arc, atomic::AtomicBool};

/// Memory in bytes of a worker: the rows of a file that are not written yet, and what its format makes of
/// them.
pub const WORKER_BYTES: u64 = 64 << 20;
/// Maximum number of threads, more than any machine has cores. Each takes a stack and a block buffer, so with
/// a mistyped number the process would be ended in the middle of the run.
pub const MAX_THREADS: usize = 1024;

/// Address space of one thread, in bytes: its stack, and what the allocator reserves for it.
const THREAD_SPACE: u64 = 72 << 20;
/// Address space of the program itself, its libraries and a few threads besides the workers, in bytes.
const PROGRAM_SPACE: u64 = 384 << 20;

/// Makes a write beyond the limit on file sizes fail with an error that can be reported. By default, SIGXFSZ
/// ends the process without a message.
pub fn ignore_file_size_signal() {
    let received = Arc::new(AtomicBool::new(false));
    // If this fails, the signal has its default effect.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, received);
}

/// Raises the limit of open files as far as the process may (Core `RaiseFileDescriptorLimit`): many systems
/// begin with 1,024.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, whatever needs more files reports it.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns the default memory limit for `threads` threads: `wanted`, or less if the address space is limited.
pub fn default_memory(wanted: u64, threads: usize) -> u64 {
    let available = address_space().map_or(u64::MAX, |limit| limit.saturating_sub(overhead(threads)));
    wanted.min(available).max(MIN_MEMORY)
}

/// Checks that the system allows the process the memory and the threads that a run may need.
///
/// # Errors
/// [`engine::ErrorKind::Environment`] if it does not: at the limit, the system would end the process without
/// a message.
pub fn check(options: &ChainOptions) -> Result<(), Error> {
    check_limits(options.memory_bytes, options.threads.get(), address_space(), memory_limit())
}

fn check_limits(memory: u64, threads: usize, space: Option<u64>, group: Option<u64>) -> Result<(), Error> {
    let needed = memory.saturating_add(overhead(threads));
    if let Some(space) = space.filter(|&space| space < needed) {
        let advice = match space.saturating_sub(overhead(threads)) {
            left if left >= MIN_MEMORY => format!("pass --memory {}M or less", left >> 20),
            _ => "raise the limit or pass fewer --threads".to_owned(),
        };
        return Err(Error::environment(format!(
            "the address space of this process is limited to {} (ulimit -v), but {} of memory and {threads} \
             threads need {}: {advice}",
            HumanMemory(space),
            HumanMemory(memory),
            HumanMemory(needed)
        )));
    }
    if let Some(group) = group.filter(|&group| group < memory) {
        return Err(Error::environment(format!(
            "--memory is {}, but the control group of this process is limited to {}: pass less --memory",
            HumanMemory(memory),
            HumanMemory(group)
        )));
    }
    Ok(())
}

/// Returns the address space needed besides the memory limit, in bytes.
fn overhead(threads: usize) -> u64 {
    PROGRAM_SPACE.saturating_add(THREAD_SPACE.saturating_mul(threads as u64))
}

fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ErrorKind;

    #[test]
    fn limits_that_are_too_low_are_refused_by_name() {
        let error = |memory, threads, space, group| {
            let error = check_limits(memory, threads, space, group).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Environment);
            error.to_string()
        };
        check_limits(1 << 30, 4, None, None).unwrap();
        check_limits(1 << 30, 4, Some(2 << 30), Some(1 << 30)).unwrap();
        let text = error(1 << 30, 4, Some(1 << 30), None);
        assert!(text.contains("ulimit -v") && text.ends_with("pass --memory 352M or less"), "{text}");
        let text = error(MIN_MEMORY, 64, Some(1 << 30), None);
        assert!(text.ends_with("raise the limit or pass fewer --threads"), "{text}");
        let text = error(1 << 30, 4, None, Some((1 << 30) - 1));
        assert!(text.contains("control group"), "{text}");
    }
}

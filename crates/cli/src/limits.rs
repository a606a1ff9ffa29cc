//! Limits that the system puts on the process: those that cannot be kept are said before the work begins.

use engine::{Error, ErrorKind, HumanSize, MIN_MEMORY, ReindexOptions};
use rustix::process::{Resource, getrlimit};
use std::sync::{Arc, atomic::AtomicBool};

/// More threads than any machine has cores: each takes a stack and the room for a block, and what is a typing
/// error here would end in the middle of the run.
pub const MOST_THREADS: usize = 1024;

/// Address space of a thread: its stack, and what the allocator sets aside for it.
const THREAD_SPACE: u64 = 72 << 20;
/// Address space of the program itself, its libraries, and a few threads besides the workers.
const PROGRAM_SPACE: u64 = 384 << 20;

/// Lets a write beyond the limit on the size of files fail with an error that can be told. The signal that
/// else comes with it ends the process without a word.
pub fn ignore_file_size_signal() {
    let noted = Arc::new(AtomicBool::new(false));
    // Nothing is lost if it cannot be: the process then ends as it did.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted);
}

/// What the process may take of `wanted` memory by default, with so many threads: less, if its address space
/// is limited.
pub fn default_memory(wanted: u64, threads: usize) -> u64 {
    let most = address_space().map_or(u64::MAX, |limit| limit.saturating_sub(besides(threads)));
    wanted.min(most).max(MIN_MEMORY)
}

/// Sees that the system lets the process have the memory and the threads that a run may take.
///
/// # Errors
/// [`ErrorKind::Environment`] if it does not: the process would be ended, without a word, when it has taken
/// what it may.
pub fn check(options: &ReindexOptions) -> Result<(), Error> {
    fits(options.memory, options.threads.get(), address_space(), engine::memory_limit())
}

fn fits(memory: u64, threads: usize, space: Option<u64>, group: Option<u64>) -> Result<(), Error> {
    let environment = |detail: String| Err(Error::new(ErrorKind::Environment, detail));
    let needed = memory.saturating_add(besides(threads));
    if let Some(space) = space.filter(|&space| space < needed) {
        let advice = match space.saturating_sub(besides(threads)) {
            left if left >= MIN_MEMORY => format!("give --memory {}M or less", left >> 20),
            _ => "raise the limit or give fewer --threads".to_owned(),
        };
        return environment(format!(
            "the address space of this process is limited to {} (ulimit -v), but {} of memory and {threads} \
             threads need {}: {advice}",
            HumanSize(space),
            HumanSize(memory),
            HumanSize(needed)
        ));
    }
    if let Some(group) = group.filter(|&group| group < memory) {
        return environment(format!(
            "--memory is {}, but the control group of this process may have {}: give less --memory",
            HumanSize(memory),
            HumanSize(group)
        ));
    }
    Ok(())
}

/// Address space besides the memory that is given.
fn besides(threads: usize) -> u64 {
    PROGRAM_SPACE.saturating_add(THREAD_SPACE.saturating_mul(threads as u64))
}

fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_be_kept_are_refused_by_name() {
        let error = |memory, threads, space, group| {
            let error = fits(memory, threads, space, group).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Environment);
            error.to_string()
        };
        fits(1 << 30, 4, None, None).unwrap();
        fits(1 << 30, 4, Some(2 << 30), Some(1 << 30)).unwrap();
        let text = error(1 << 30, 4, Some(1 << 30), None);
        assert!(text.contains("ulimit -v") && text.ends_with("give --memory 352M or less"), "{text}");
        let text = error(MIN_MEMORY, 64, Some(1 << 30), None);
        assert!(text.ends_with("raise the limit or give fewer --threads"), "{text}");
        let text = error(1 << 30, 4, None, Some((1 << 30) - 1));
        assert!(text.contains("control group"), "{text}");
    }
}

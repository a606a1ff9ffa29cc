//! What the machine tells of itself, for the report.

use crate::error::{Error, ErrorKind};
use digest::{
    kernel::{ENVIRONMENT_VARIABLE, Kernel},
    sha256::{Message, batched_bytes, sha256d_many_with},
};
use std::time::{Duration, Instant};

/// The name of the SHA-256 kernel in use.
///
/// # Errors
/// [`ErrorKind::Usage`] if the environment asks for one that this machine cannot run.
pub fn sha256_kernel() -> Result<&'static str, Error> {
    if let Some(name) = std::env::var_os(ENVIRONMENT_VARIABLE)
        && name.to_str().and_then(Kernel::named).is_none()
    {
        let known: Vec<_> = Kernel::available().iter().map(|kernel| kernel.name()).collect();
        let detail = format!(
            "{ENVIRONMENT_VARIABLE}={}: this machine has no such kernel; unset it, or use one of: {}",
            name.display(),
            known.join(", ")
        );
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    Ok(Kernel::active().name())
}

/// What a run has hashed in batches (transactions, merkle trees, undo checksums, sums), and what this machine
/// could: the time below which no run on it can get.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sha256Limit {
    /// Bytes that went through SHA-256's compression, padding and second hashes included.
    pub bytes: u64,
    /// What one core does in a second with the best kernel and all lanes full.
    pub bytes_per_second: f64,
}

impl Sha256Limit {
    /// Of what was hashed since [`batched_bytes`] was `before`. Measures the machine, for a few milliseconds.
    #[must_use]
    pub fn since(before: u64) -> Self {
        Self { bytes: batched_bytes() - before, bytes_per_second: sha256_rate() }
    }

    /// The least time in which `threads` cores can hash so much.
    #[must_use]
    pub fn time(&self, threads: usize) -> Duration {
        Duration::from_secs_f64(self.bytes as f64 / self.bytes_per_second / threads as f64)
    }
}

/// The bytes that one core compresses in a second: the best of some tries, as others disturb.
fn sha256_rate() -> f64 {
    const TRIES: u32 = 16;
    // So long that a message's end does not count, so many that lanes are full, and all in the L2 cache.
    let message = Message::from(&[0x55; 1015][..]);
    let messages = [message; 256];
    let kernel = Kernel::available().last().copied().unwrap_or(Kernel::PORTABLE);
    let mut digests = Vec::with_capacity(messages.len());
    let before = batched_bytes();
    let best = (0..TRIES).map(|_| {
        let started = Instant::now();
        digests.clear();
        sha256d_many_with(kernel, &messages, &mut digests);
        started.elapsed()
    });
    let best = best.min().unwrap_or_default().max(Duration::from_nanos(1));
    (batched_bytes() - before) as f64 / f64::from(TRIES) / best.as_secs_f64()
}

/// The machine's memory (Linux `MemTotal`), or what this process may have of it.
#[must_use]
pub fn total_memory_bytes() -> Option<u64> {
    [kilobytes("/proc/meminfo", "MemTotal:"), memory_limit()].into_iter().flatten().min()
}

/// The memory that the control group of this process may have (Linux `memory.max`); nothing if it is not
/// limited.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

/// The memory that the process has resident now (Linux `VmRSS`); nothing where the system does not say.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// The most memory the process has had resident so far, in bytes (Linux `VmHWM`); nothing where the system
/// does not say.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM:")
}

/// The number behind a name in a file of the kernel's, in bytes.
fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hashed_is_held_against_what_could_be() {
        let before = batched_bytes();
        let mut digests = Vec::new();
        // A block of data and its padding, and the second hash's one block, ten times.
        sha256d_many_with(Kernel::PORTABLE, &[Message::from(&[0; 64][..]); 10], &mut digests);
        let limit = Sha256Limit::since(before);
        assert!(limit.bytes >= 10 * 3 * 64, "{limit:?}");
        assert!(limit.bytes_per_second > 1e6, "{limit:?}");
        let limit = Sha256Limit { bytes: 6_000, bytes_per_second: 1_000.0 };
        assert_eq!(limit.time(2), Duration::from_secs(3));
    }
}

//! Properties of the machine, for the report.

use crate::error::Error;
use coins::SipKey;
use digest::{
    kernel::{ENVIRONMENT_VARIABLE, Kernel},
    sha256::{Message, batched_bytes, sha256d_many_with},
};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Returns the SHA-256 kernel in use.
///
/// # Errors
/// [`crate::error::ErrorKind::Usage`] if the environment variable names one that this machine cannot run.
pub fn sha256_kernel() -> Result<Kernel, Error> {
    if let Some(name) = std::env::var_os(ENVIRONMENT_VARIABLE)
        && name.to_str().and_then(Kernel::named).is_none()
    {
        let known: Vec<_> = Kernel::available().iter().map(|kernel| kernel.name()).collect();
        let detail = format!(
            "{ENVIRONMENT_VARIABLE}={}: this machine has no such kernel; unset it, or use one of: {}",
            name.display(),
            known.join(", ")
        );
        return Err(Error::usage(detail));
    }
    Ok(Kernel::active())
}

reported! {
/// How many bytes a job has hashed in batches (transactions, merkle trees, undo checksums, sums), and how
/// fast this machine hashes: together a lower bound of the time that the job takes here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sha256Limit {
    /// Number of bytes compressed by SHA-256, padding and second hashes included.
    pub bytes: u64,
    /// What one core hashes in a second with the best kernel and full lanes.
    pub bytes_per_second_and_core: f64,
    /// The least time in which the job's cores can hash these bytes here, in seconds.
    pub seconds: f64,
    /// That time as a share of the job's.
    pub share: f64,
}
}

impl Sha256Limit {
    /// The limit of a job that has hashed so many bytes on `threads` cores in the time `elapsed`. Measures
    /// the machine, for a few milliseconds.
    pub fn measured(bytes: u64, threads: usize, elapsed: Duration) -> Self {
        Self::of(bytes, sha256_rate(), threads, elapsed)
    }

    fn of(bytes: u64, rate: f64, threads: usize, elapsed: Duration) -> Self {
        let seconds = bytes as f64 / rate / threads as f64;
        let share = seconds / elapsed.as_secs_f64().max(1e-9);
        Self { bytes, bytes_per_second_and_core: rate.round(), seconds, share }
    }
}

/// Measures how many bytes one core compresses in a second: the best of several tries, because other
/// processes interfere.
fn sha256_rate() -> f64 {
    const TRIES: u32 = 16;
    // The messages are long enough that their padding hardly counts, numerous enough to fill all lanes, and
    // fit into the L2 cache.
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

/// Returns the machine's memory (Linux `MemTotal`), or the limit of this process if that is lower.
pub fn total_memory_bytes() -> Option<u64> {
    total_memory_below(Path::new("/"))
}

/// The same for a system whose files are below `root`.
fn total_memory_below(root: &Path) -> Option<u64> {
    let installed = kilobytes(&root.join("proc/meminfo"), "MemTotal:");
    [installed, memory_limit_below(root)].into_iter().flatten().min()
}

/// Whether more programs want to run than the machine has cores (Linux `loadavg`, of the last minute).
pub fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    load.is_some_and(|load| load > cores as f64)
}

/// Returns the memory limit of this process's control group, or of a group above it if that is lower (Linux
/// `memory.max`, in version 1 `memory.limit_in_bytes`); `None` if there is no limit.
pub fn memory_limit() -> Option<u64> {
    memory_limit_below(Path::new("/"))
}

fn memory_limit_below(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(root, &groups).into_iter().filter_map(|file| {
        let limit: u64 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        // Version 1 reports no limit as the largest multiple of the page size.
        (limit < i64::MAX as u64 / 2).then_some(limit)
    });
    limits.min()
}

/// The files below `root` that can hold a memory limit, given `/proc/self/cgroup`: of the groups named there,
/// and of all groups above them. In a container, the named group may not be visible, but its root is.
fn limit_files(root: &Path, groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (top, name) = match fields.next() {
            Some("") => ("sys/fs/cgroup", "memory.max"),
            Some(list) if list.split(',').any(|controller| controller == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let top = root.join(top);
        let group = top.join(fields.next().unwrap_or_default().trim_start_matches('/'));
        let above = group.ancestors().take_while(|dir| dir.starts_with(&top));
        files.extend(above.map(|dir| dir.join(name)));
    }
    files
}

/// Returns the resident memory of the process (Linux `VmRSS`); `None` if the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    kilobytes(Path::new("/proc/self/status"), "VmRSS:")
}

/// Returns the peak resident memory of the process, in bytes (Linux `VmHWM`); `None` if the system does not
/// report it.
pub fn peak_memory_bytes() -> Option<u64> {
    kilobytes(Path::new("/proc/self/status"), "VmHWM:")
}

/// Returns the number of bytes after `name` in a file below `/proc`.
fn kilobytes(path: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// A quarter of the machine's memory, or of what this process may use of it; at least 128 MiB.
pub fn default_memory() -> u64 {
    default_of(total_memory_bytes())
}

fn default_of(total: Option<u64>) -> u64 {
    total.map_or(MIN_MEMORY, |total| (total / 4).max(MIN_MEMORY))
}

/// The smallest value allowed for `--memory`, in bytes.
pub const MIN_MEMORY: u64 = 128 << 20;

/// Returns random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::environment(format!("the system provides no random numbers: {error}")).caused_by(error)
    })?;
    Ok(bytes)
}

pub fn random_key() -> Result<SipKey, Error> {
    Ok(SipKey(u64::from_le_bytes(random()?), u64::from_le_bytes(random()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_of_all_groups_above_count() {
        let files =
            limit_files(Path::new("/"), "12:cpu,cpuacct:/x\n9:memory:/user/a\n0::/user.slice/b.scope\n");
        let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let expected = [
            "/sys/fs/cgroup/memory/user/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/user/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/user.slice/b.scope/memory.max",
            "/sys/fs/cgroup/user.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_quarter_of_the_memory_or_of_its_limit_is_the_default() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            default_of(total_memory_below(root.path()))
        };
        assert_eq!(default_of(total_memory_below(root.path())), MIN_MEMORY, "nothing is known");
        assert_eq!(write("proc/meminfo", "MemFree: 1 kB\nMemTotal:  8388608 kB\n"), 2 << 30);
        assert_eq!(write("proc/self/cgroup", "0::/a/b\n"), 2 << 30);
        assert_eq!(write("sys/fs/cgroup/a/memory.max", "4294967296\n"), 1 << 30);
        assert_eq!(write("sys/fs/cgroup/a/b/memory.max", "max\n"), 1 << 30);
        assert_eq!(write("sys/fs/cgroup/a/b/memory.max", "1000\n"), MIN_MEMORY);
    }

    #[test]
    fn the_limit_counts_hashed_bytes_and_measures_the_rate() {
        let before = batched_bytes();
        let mut digests = Vec::new();
        // Ten times: one block of data, one of padding, and one of the second hash.
        sha256d_many_with(Kernel::PORTABLE, &[Message::from(&[0; 64][..]); 10], &mut digests);
        assert!(batched_bytes() - before >= 10 * 3 * 64);
        let limit = Sha256Limit::measured(192, 1, Duration::from_secs(1));
        assert!(limit.bytes_per_second_and_core > 1e6, "{limit:?}");
        let limit = Sha256Limit::of(6_000, 1_000.0, 2, Duration::from_secs(30));
        assert_eq!((limit.seconds, limit.share), (3.0, 0.1));
    }
}

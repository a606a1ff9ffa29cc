//! What the machine tells of itself, for the report.

use crate::error::{Error, ErrorKind};
use digest::kernel::{ENVIRONMENT_VARIABLE, Kernel};

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

/// The machine's memory (Linux `MemTotal`), or what this process may have of it.
#[must_use]
pub fn total_memory_bytes() -> Option<u64> {
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok());
    [kilobytes("/proc/meminfo", "MemTotal:"), limit].into_iter().flatten().min()
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

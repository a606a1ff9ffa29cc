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

/// The most memory the process has had resident so far, in bytes (Linux `VmHWM`); nothing where the system
/// does not say.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

//! What the machine tells of itself, for the report.

/// The most memory the process has had resident so far, in bytes (Linux `VmHWM`); nothing where the system does not say.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

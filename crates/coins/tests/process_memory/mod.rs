//! The memory of this process, as the system reports it.
#![allow(dead_code, reason = "each test file uses a part")]

/// Returns the resident memory in bytes, or `None` if the system does not report it.
pub(crate) fn resident() -> Option<u64> {
    memory("VmRSS:")
}

/// Returns the highest resident memory so far, in bytes.
pub(crate) fn peak() -> Option<u64> {
    memory("VmHWM:")
}

fn memory(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

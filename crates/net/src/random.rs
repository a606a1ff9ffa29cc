//! Random numbers from the operating system.

/// Returns `N` random bytes.
///
/// # Panics
/// If the operating system has no random numbers, which no caller could work without.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes);
    bytes
}

/// Fills `bytes` with random bytes.
///
/// # Panics
/// See [`bytes`].
pub(crate) fn fill(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        panic!("the operating system gives no random numbers: {error}");
    }
}

/// Returns a random number below `limit`, or 0 if it is 0. The error of the remainder is below limit / 2^64.
pub(crate) fn below(limit: usize) -> usize {
    let number = u64::from_le_bytes(bytes());
    number.checked_rem(limit as u64).unwrap_or_default() as usize
}

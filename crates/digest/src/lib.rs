//! The hash functions of Bitcoin, as fast as the machine allows: SHA-256 and SHA-256d in batches, SipHash,
//! MuHash3072, and the XOR that block files are obfuscated with.
//!
//! It knows bytes, not blocks, and imports nothing. Txids are the hot path of the whole program, so SHA-256
//! exists once per instruction set: `sha256/portable.rs` is the meaning, its neighbours are the same
//! functions made fast, and [`kernel`] chooses among them once. This is the only room that may hold
//! `unsafe`, and only for those instructions: a [`kernel::Kernel`] is the proof that the processor has
//! them, and safe code cannot forge one.

pub mod kernel;
pub mod muhash;
pub mod obfuscation;
pub mod sha256;
pub mod siphash;

/// Asks the processor to bring a value into the cache.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        let mut at = 0;
        while at < size_of::<T>() {
            _mm_prefetch::<_MM_HINT_T0>(start.add(at));
            at += 64;
        }
        if size_of::<T>() > 64 {
            _mm_prefetch::<_MM_HINT_T0>(start.add(size_of::<T>() - 1));
        }
    }
}

//! Cache prefetching, for callers that look up many values at random addresses.

/// Asks the processor to load a value into the cache: a hint that changes no result. It does nothing on
/// processors without such an instruction.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<i8>();
    // The last byte too, because the value may begin anywhere in its first cache line.
    for at in (0..size_of::<T>()).step_by(64).chain([size_of::<T>().saturating_sub(1)]) {
        prefetch_line(start.wrapping_add(at));
    }
}

/// Prefetches the cache line that contains `address`.
#[inline(always)]
fn prefetch_line(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; it changes neither registers, flags nor the stack.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

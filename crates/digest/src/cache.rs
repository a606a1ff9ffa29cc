//! A hint to the processor's cache, for those who look up many things at random places.

/// Asks the processor to bring a value into the cache: a hint, which changes no result. Does nothing where
/// there is no such instruction.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<i8>();
    // The last byte too: the value may begin anywhere in its first line.
    for at in (0..size_of::<T>()).step_by(64).chain([size_of::<T>().saturating_sub(1)]) {
        line(start.wrapping_add(at));
    }
}

/// Asks for the line of cache that an address lies in.
#[inline(always)]
fn line(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that could be seen and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; it touches neither registers, flags nor the stack.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

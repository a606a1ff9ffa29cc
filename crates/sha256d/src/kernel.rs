//! Selects the implementation of SHA-256: detected once, forced by name, or taken from a list in tests.

use std::sync::OnceLock;

use crate::{Hasher, portable::Portable};
#[cfg(target_arch = "aarch64")]
use crate::{armsha::ArmSha, neon::Neon, wide::Wide};
#[cfg(target_arch = "x86_64")]
use crate::{avx2::Avx2, avx512::Avx512, shani::ShaNi, wide::Wide};

/// The environment variable that names the kernel [`Kernel::active`] returns, for tests and measurements.
pub const ENVIRONMENT_VARIABLE: &str = "PEREGRINE_SHA256";

/// One implementation of SHA-256, and the proof that this machine can run it.
///
/// The choice affects only the time, never the results. Apart from [`Kernel::PORTABLE`], only detection
/// creates one, so a function that takes a `Kernel` is safe to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub(crate) Isa);

/// The instruction sets, each with the token that proves its presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Wide<Avx2, 8>),
    #[cfg(target_arch = "x86_64")]
    ShaNi(ShaNi),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Wide<Neon, 4>),
    #[cfg(target_arch = "aarch64")]
    ArmSha(ArmSha),
}

impl Isa {
    /// Returns the instruction sets that the processor has, slowest first.
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Vec<Isa> {
        let avx2 = Avx2::detect().map(Isa::Avx2);
        let shani = ShaNi::detect().map(Isa::ShaNi);
        let avx512 = Avx512::detect().map(Isa::Avx512);
        [avx2, shani, avx512].into_iter().flatten().collect()
    }

    /// Returns the instruction sets that the processor has, slowest first.
    #[cfg(target_arch = "aarch64")]
    fn detect() -> Vec<Isa> {
        let neon = Neon::detect().map(Isa::Neon);
        let armsha = ArmSha::detect().map(Isa::ArmSha);
        [neon, armsha].into_iter().flatten().collect()
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn detect() -> Vec<Isa> {
        Vec::new()
    }
}

impl Kernel {
    /// Plain Rust: runs everywhere and defines the results of all other kernels.
    pub const PORTABLE: Kernel = Kernel(Isa::Portable);

    /// Returns the kernels that this machine can run, slowest (portable) first. Under Miri, only the portable
    /// one.
    pub fn available() -> Vec<Kernel> {
        let detected = if cfg!(miri) { Vec::new() } else { Isa::detect() };
        std::iter::once(Isa::Portable).chain(detected).map(Kernel).collect()
    }

    /// Returns the kernel with that [name](Kernel::name), or `None` if this machine cannot run it.
    pub fn named(name: &str) -> Option<Kernel> {
        Kernel::available().into_iter().find(|kernel| kernel.name() == name)
    }

    /// Returns the kernel that all functions without a kernel argument use: the fastest available, or the
    /// one that `PEREGRINE_SHA256` names ([`Kernel::name`]). The first call decides for the whole process.
    ///
    /// # Panics
    /// If the variable names a kernel that this machine cannot run: measuring another one instead would
    /// mislead.
    pub fn active() -> Kernel {
        static ACTIVE: OnceLock<Kernel> = OnceLock::new();
        *ACTIVE.get_or_init(|| match std::env::var_os(ENVIRONMENT_VARIABLE) {
            Some(name) => name.to_str().and_then(Kernel::named).unwrap_or_else(|| {
                let known: Vec<_> = Kernel::available().iter().map(|kernel| kernel.name()).collect();
                panic!(
                    "{ENVIRONMENT_VARIABLE}={}: no such kernel on this machine; unset it or use one of: {}",
                    name.display(),
                    known.join(", ")
                )
            }),
            None => Kernel::available().pop().unwrap_or(Kernel::PORTABLE),
        })
    }

    /// Returns the kernel's name in the environment variable, reports and tests: `portable`; on x86-64
    /// `avx2`, `shani`, `avx512`; on AArch64 `neon`, `armsha`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::ShaNi(_) => "shani",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Isa::ArmSha(_) => "armsha",
        }
    }

    /// Returns whether the processor has AVX-512F. Because safe code cannot forge a kernel, `true` proves it
    /// to functions that need the instructions.
    pub fn has_avx512f(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, Isa::Avx512(_));
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    pub(crate) fn hasher(&self) -> &dyn Hasher {
        match &self.0 {
            Isa::Portable => &Portable,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2,
            #[cfg(target_arch = "x86_64")]
            Isa::ShaNi(shani) => shani,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(avx512) => avx512,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(neon) => neon,
            #[cfg(target_arch = "aarch64")]
            Isa::ArmSha(armsha) => armsha,
        }
    }
}

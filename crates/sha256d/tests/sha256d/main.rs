//! SHA-256 on every kernel.

mod keyed;
mod sha256;

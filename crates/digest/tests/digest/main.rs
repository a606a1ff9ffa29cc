//! Hashes and obfuscation against other implementations and known answers.

mod muhash;
mod obfuscation;
mod siphash;

//! What several of these tests use.

pub use crate::common::{done, peregrine, refused};
pub use serde_json::Value;
pub use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
pub use tempfile::TempDir;
pub use testkit::{Chain, ChainSpec, corrupt::unlocked_files, datadir::Layout};

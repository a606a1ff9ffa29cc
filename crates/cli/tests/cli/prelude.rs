//! What most tests of the program use.

pub use crate::common::{
    Running, command, done, given, json, peregrine, rebuilt, refused, report, run_on_regtest as run, text,
};
pub use engine::{Height, Network};
pub use rustix::process::Signal;
pub use serde_json::{Value, json};
pub use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
pub use tempfile::TempDir;
pub use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    corrupt::copy_dir,
    datadir::Layout,
    node::{Node, PATIENCE, program},
    peer::{ScriptedPeer, peer_with},
};

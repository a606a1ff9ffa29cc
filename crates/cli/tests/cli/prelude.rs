//! What most tests of the program use.

pub use crate::common::{
    Running, command, datadirs, done, given, json, lock, peregrine, rebuilt, refused, report,
    run_on_regtest as run, shell, text,
};
pub use bitcoin::{Block, consensus::deserialize};
pub use digest::sha256::sha256;
pub use disk::index::BlockStatus;
pub use engine::{BlockHash, Height, Network, RealDisk};
pub use hex_conservative::{DisplayHex, decode_to_vec};
pub use rustix::process::{Pid, Signal, kill_process};
pub use serde_json::{Value, json};
pub use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, LazyLock, Mutex, OnceLock},
    thread::{self, sleep},
    time::{Duration, Instant},
};
pub use tempfile::TempDir;
pub use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    corrupt::{Files, copy_dir, edit_index, snapshot, unlocked_files, write_files},
    datadir::Layout,
    node::{Node, PATIENCE, SnapshotDatadirs, Tail, Writer, copy_all, free_port, program},
    peer::{ScriptedPeer, peer_with},
    rng::Rng,
    sibling::{rebase, sibling},
    situation::{self, Place},
    snapshot_chain::SNAPSHOT_HEIGHT,
};

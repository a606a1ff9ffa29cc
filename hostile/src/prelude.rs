//! What several files of this crate use.

pub use crate::{
    Context,
    base::Base,
    block_files::BlockFiles,
    finding::Finding,
    program::{Disturbance, Ran},
    scene::{Scene, is_dir, is_file},
    tree::{Seen, Tree, What, look},
};
pub use disk::{
    datadir::Datadir,
    index::{BlockStatus, read_block_index},
    node_indexes::IndexKind,
};
pub use serde_json::{Value, json};
pub use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, Permissions},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
pub use testkit::{
    corrupt::{flip_bit, truncate},
    node::{Node, Res, Start, Started, copy_all},
    rng::Rng,
};
pub use vfs::RealDisk;
pub use wire::Network;

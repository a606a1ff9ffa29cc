//! What the modules of commands need alike: options, the call of the engine, and the report.

pub use crate::{
    args::common::{CheckArgs, DatadirArgs, ResumeArgs, RunArgs, size},
    core_args::Located,
    progress::{Style, stages},
    rows::Rows,
    units::{btc, count, counted},
};
pub(crate) use crate::{paths, run};
pub use clap::{Args, Subcommand};
pub use engine::{
    BlockHash, ChainOptions, Error, ErrorKind, Height, HumanSize, Network, RealDisk, Watch, hex_reversed,
};
pub use peregrine::{
    exit::Exit,
    output::{Done, reply},
    remedy::warning_text,
};
pub use schemars::JsonSchema;
pub use serde::Serialize;
pub use std::path::{Path, PathBuf};

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

/// Defines what is printed as JSON: each field once, with how it is made.
macro_rules! json_of {
    ($(
        $(#[$doc:meta])*
        $vis:vis struct $name:ident($($value:ident: $of:ty),*) {$(
            $(#[$about:meta])* $field:ident: $type:ty = $made:expr,
        )*}
    )*) => {$(
        #[derive(serde::Serialize, schemars::JsonSchema)]
        $(#[$doc])*
        $vis struct $name {$($(#[$about])* $field: $type,)*}

        impl $name {
            $vis fn of($($value: $of),*) -> Self {
                Self { $($field: $made,)* }
            }
        }
    )*};
}
pub(crate) use json_of;

//! How fields of a diagnosis are printed that do not consist of one plain value.

use super::{diagnosis::LockCode, indexes::IndexCode};
use api::error::Error;
use schemars::JsonSchema;
use serde::Serialize;
use wire::{Height, Network};

#[derive(Serialize, JsonSchema)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[schemars(rename = "Absence")]
pub enum AbsenceCode {
    NoDirectory,
    NoBlocks,
    OnlyChainstate,
    OtherNetworks { chains: Vec<Network> },
}

#[derive(Serialize, JsonSchema)]
pub struct Index {
    pub name: String,
    pub state: IndexCode,
    /// Number of blocks by which it is behind.
    pub blocks_behind: Option<u32>,
    /// Height of its best block, if that is not on the chainstate's chain.
    pub height: Option<Height>,
    pub error: Option<Error>,
}

#[derive(Serialize, JsonSchema)]
pub struct Lock {
    pub state: LockCode,
    pub pid: Option<u32>,
    pub program: Option<String>,
}

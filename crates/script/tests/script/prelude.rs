//! What several of these tests use.

pub use bitcoin::{
    ScriptBuf, Transaction, TxOut, Witness,
    consensus::{deserialize, serialize},
    script::Builder,
};
pub use peregrine_script::{ScriptError, TxScripts};
pub use rules::{ChainParams, script_flags};
pub use serde_json::Value;
pub use std::fs;
pub use testkit::data::{core_sources, shared_data};
pub use wire::{BlockArena, Height, InputView, Network, Sats, ScriptFlags, TxView};

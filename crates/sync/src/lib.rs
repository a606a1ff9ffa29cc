//! Downloads headers and blocks from peers into a datadir, with the rebuild of the chainstate behind the
//! download.
//!
//! [`sync`] downloads what a datadir lacks, and can stay at the tip; [`repair`] downloads the blocks that are
//! damaged or missing. `fetch` polls the client of the `net` crate, `pruning` decides which files are
//! deleted behind a rebuild, `prune_stored` deletes those of a complete datadir, and `status` knows what the
//! peers do.
#![forbid(unsafe_code)]

mod behind_download;
mod fetch;
mod follow;
mod new_datadir;
mod options;
mod prune_stored;
mod pruning;
mod repair;
mod rounds;
mod status;
mod stored_coins;

pub use api::follow::{ConnectedAtTip, FollowEnd, FollowReport};
pub use net::{
    address::{Host, NetworkKind, PeerAddress},
    addresses::KnownPeer,
    message::Services,
    pool::Target,
    seeds::default_port,
    transport::TransportVersion,
};
pub use options::{
    DownloadLimit, DownloadReport, MIN_PRUNE_BYTES, MarkedBranch, PeerEvent, PeerOptions, PeerStatus,
    Shortfall, SyncOptions, SyncReport, SyncSink,
};
pub use repair::{RepairOptions, RepairReport, repair};
pub use rounds::sync;

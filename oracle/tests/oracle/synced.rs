//! A datadir that Peregrine has downloaded contains what Core's own would, and Core continues from there.

use crate::prelude::*;
use disk::{datadir::Datadir, index::read_block_index};
use engine::{AssumeValid, RealDisk, ScriptChecks};
use std::{
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicBool},
};
use sync::{PeerOptions, SyncOptions, sync};
use testkit::peer::{Fault, ScriptedPeer, ServedChain};

/// Downloads from peers that have the whole chain.
fn download(root: &Path, peers: &[ScriptedPeer], use_v2: bool) -> Result<(), engine::Error> {
    let connect = peers.iter().map(ScriptedPeer::target).collect();
    let peers = PeerOptions { connect, use_dns_seeds: false, use_v2, ..PeerOptions::default() };
    let mut options =
        SyncOptions { peers, ..SyncOptions::new(root, Network::Regtest, ScriptChecks::LeftOut) };
    options.chain.threads = NonZeroUsize::MIN.saturating_add(1);
    options.chain.scripts = ScriptChecks::By(Arc::new(script::Core));
    options.chain.assume_valid = AssumeValid::Off;
    sync(&RealDisk, &options, &|_| {}, &AtomicBool::new(false)).map(drop)
}

/// The block index has the same rows as Core's, except for the positions of blocks, which follow the order in
/// which they came; Core reads the same blocks and undo data there; the coins are the same.
#[test]
fn rows_undo_data_and_coins_are_those_of_core() -> Result<(), Box<dyn Error>> {
    let chain = Chain::generate(&ChainSpec { stale: false, ..ChainSpec::new(31, 4 << 20) });
    let served = Arc::new(ServedChain::of(chain.main()));
    for (count, use_v2) in [(1, true), (12, true), (12, false)] {
        let what = format!("{count} peers, version 2: {use_v2}");
        let control_dir = tempfile::tempdir()?;
        drop(feed(&chain, control_dir.path())?);
        let root = tempfile::tempdir()?;
        let peers: Vec<_> = (0..count).map(|_| ScriptedPeer::start(&served, Fault::None)).collect();
        download(root.path(), &peers, use_v2)?;
        let net_dir = Datadir::at(root.path(), Network::Regtest).net_dir().to_owned();
        let [ours, core] = [&net_dir, control_dir.path()].map(|dir| {
            let mut index = read_block_index(&RealDisk, &dir.join("blocks/index")).expect("a block index");
            for entry in &mut index.entries {
                let (data, undo) = (entry.data_pos.take(), entry.undo_pos.take());
                assert_eq!((data.is_some(), undo.is_some()), (true, entry.height.0 > 0), "{what}: {entry:?}");
            }
            index
        });
        assert_eq!(ours.files, core.files, "{what}: files");
        for (ours, core) in ours.entries.iter().zip(&core.entries) {
            assert_eq!(ours, core, "{what}");
        }
        assert_eq!(ours.entries.len(), chain.main().count(), "{what}");
        assert_core_continues(&chain, control_dir.path(), &net_dir)?;
    }
    Ok(())
}

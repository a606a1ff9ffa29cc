//! Bitcoin Core starts on a chainstate that Peregrine wrote, and continues from it: it connects and
//! disconnects blocks.

use crate::prelude::*;
use oracle::{core_node::Event, scenario::connect_one_and_take_back};

/// A rebuild writes the chainstate of an earlier height, in many tables. Core opens it, connects the last
/// blocks of the chain with all their spends, then an empty block, then disconnects several blocks. Its coins
/// are those of a Core that did the same on a chainstate of its own.
#[test]
fn core_continues_from_a_rebuilt_chainstate() -> Result<(), Box<dyn Error>> {
    const MISSING: u32 = 5;
    let chain = Chain::generate(&ChainSpec::new(4, 6 << 20));
    let tip = chain.tip().height;
    let control = tempfile::tempdir()?;
    drop(feed(&chain, control.path())?);

    let root = tempfile::tempdir()?;
    chain.write_datadir(root.path(), &Layout { file_size: 1 << 20, ..Layout::new(4) })?;
    let stop_at_height = Some(Height(tip - MISSING));
    Rebuild { stop_at_height, many_tables: true, ..Rebuild::default() }.run(root.path(), Network::Regtest)?;
    let net_dir = root.path().join("regtest");
    let tables = rebuild::tables(&net_dir.join("chainstate"))?;
    assert!(tables >= 20, "{tables} tables");

    let node = CoreNode::open(&net_dir, Network::Regtest, Wipe::Nothing)?;
    let connected = node.take_events().into_iter().filter_map(|event| match event {
        Event::Connected(height, _) => Some(height.0),
        _ => None,
    });
    assert!(connected.eq(tip - MISSING + 1..=tip), "Core connects what the chainstate lacks, and no more");
    assert_eq!(node.tip(), (Height(tip), chain.tip().hash));
    drop(node);
    let core = Rows::read(&control.path().join("chainstate"))?;
    assert_eq!(core.differences(&Rows::read(&net_dir.join("chainstate"))?), Vec::<String>::new());

    let core = connect_one_and_take_back(control.path())?;
    assert_eq!(core.differences(&connect_one_and_take_back(&net_dir)?), Vec::<String>::new());
    Ok(())
}

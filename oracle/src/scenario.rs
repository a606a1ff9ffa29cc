//! Steps with Core that several tests share.

use crate::{
    coins::Rows,
    core_node::{CoreNode, Event, Verdict, Wipe},
};
use std::{error::Error, path::Path};
use testkit::{Chain, block};
use wire::{Height, Network};

/// Submits the blocks of a chain to Core one by one, in a new network folder, stale blocks last.
///
/// # Errors
/// If Core cannot be started.
///
/// # Panics
/// If Core does not connect each block of the active chain, or does not store each stale one.
pub fn feed(chain: &Chain, net_dir: &Path) -> Result<CoreNode, Box<dyn Error>> {
    let node = CoreNode::open(net_dir, Network::Regtest, Wipe::Nothing)?;
    for block in chain.main().skip(1) {
        assert_eq!(node.submit(&block.bytes), Verdict::Connected, "height {}", block.height);
    }
    for block in chain.blocks.iter().filter(|block| block.stale) {
        assert_eq!(node.submit(&block.bytes), Verdict::Stored, "stale block of height {}", block.height);
    }
    assert_eq!(node.tip(), (Height(chain.tip().height), chain.tip().hash));
    Ok(node)
}

/// Opens a regtest datadir, connects one block to its tip, then reorganises to a branch that forks off below
/// the last block that spends coins, so that Core must restore them. Returns the final coins.
///
/// # Errors
/// If Core does not open the datadir or cannot read it.
///
/// # Panics
/// If Core does not connect and disconnect the expected blocks.
pub fn connect_one_and_take_back(net_dir: &Path) -> Result<Rows, Box<dyn Error>> {
    let node = CoreNode::open(net_dir, Network::Regtest, Wipe::Nothing)?;
    let (tip, hash) = node.tip();
    let time = node.block_time(tip).expect("the tip has a time").0;
    let spends =
        |height| node.read_spent(Height(height)).map(|spent| spent.iter().map(Vec::len).sum::<usize>());
    let mut fork = tip.0;
    while spends(fork)? == 0 {
        fork -= 1;
    }

    let on_tip = block::empty(hash, tip.0 + 1, time + 1, 1);
    assert_eq!(node.submit(&on_tip.bytes), Verdict::Connected);
    let _ = node.take_events();

    let mut prev = node.block_hash(Height(fork - 1)).expect("every block has a parent");
    for height in fork..=tip.0 + 2 {
        let block = block::empty(prev, height, time + 2 + height - fork, 2);
        let wanted = if height == tip.0 + 2 { Verdict::Connected } else { Verdict::Stored };
        assert_eq!(node.submit(&block.bytes), wanted, "height {height}");
        prev = block.hash;
    }
    let disconnected = node.take_events().into_iter().filter_map(|event| match event {
        Event::Disconnected(height, _) => Some(height.0),
        _ => None,
    });
    let down_to_fork = (fork..=tip.0 + 1).rev();
    assert!(disconnected.eq(down_to_fork), "Core disconnects all blocks from the old tip down to the fork");
    assert_eq!(node.tip(), (Height(tip.0 + 2), prev));
    drop(node);
    Ok(Rows::read(&net_dir.join("chainstate"))?)
}

/// Opens a regtest datadir that Peregrine has made, and continues from there: Core has the right tip, and
/// reads each block and each undo record at its position in the index, as in a datadir that Core has made.
/// Then it connects a block and disconnects several, and what it appends to the files overwrites no earlier
/// data.
///
/// # Errors
/// If Core does not open a datadir or cannot read it.
///
/// # Panics
/// If anything differs.
pub fn assert_core_continues(
    chain: &Chain,
    control_dir: &Path,
    net_dir: &Path,
) -> Result<(), Box<dyn Error>> {
    let node = CoreNode::open(net_dir, Network::Regtest, Wipe::Nothing)?;
    let control = CoreNode::open(control_dir, Network::Regtest, Wipe::Nothing)?;
    assert_eq!(node.take_events(), [], "no block is left to connect");
    assert_eq!(node.tip(), (Height(chain.tip().height), chain.tip().hash));
    for block in chain.main() {
        let height = Height(block.height);
        assert_eq!(node.read_block(height)?, block.bytes, "height {height}");
        if block.height > 0 {
            assert_eq!(node.read_spent(height)?, control.read_spent(height)?, "height {height}");
        }
    }
    drop((node, control));

    let core = connect_one_and_take_back(control_dir)?;
    assert_eq!(core.differences(&connect_one_and_take_back(net_dir)?), Vec::<String>::new());
    let node = CoreNode::open(net_dir, Network::Regtest, Wipe::Nothing)?;
    let control = CoreNode::open(control_dir, Network::Regtest, Wipe::Nothing)?;
    assert_eq!(node.tip(), control.tip());
    for height in (1..=node.tip().0.0).map(Height) {
        assert_eq!(node.read_block(height)?, control.read_block(height)?, "height {height}");
        assert_eq!(node.read_spent(height)?, control.read_spent(height)?, "height {height}");
    }
    drop((node, control));

    // The same for a Core that uses only the block files, including the appended blocks.
    let node = CoreNode::open(net_dir, Network::Regtest, Wipe::All)?;
    drop(node);
    let again = Rows::read(&net_dir.join("chainstate"))?;
    assert_eq!(core.differences(&again), Vec::<String>::new());
    Ok(())
}

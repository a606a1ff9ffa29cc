//! Coins on the way to the inputs that spend them, sorted by block.

use crate::stages::parts::Parts;
use api::error::Error;
use coins::{Delivery, Spender};
use wire::Height;

/// Deliveries to the blocks of a chain, encoded ([`Delivery::split_first`]).
pub struct Deliveries<'a> {
    pub parts: Parts<'a>,
}

/// The deliveries of one part, in order of their spenders.
pub struct SortedDeliveries {
    bytes: Vec<u8>,
    /// Spender and offset of each delivery.
    order: Vec<(Spender, u32)>,
}

impl Deliveries<'_> {
    /// Adds all deliveries in `encoded`, and clears it.
    pub fn add(&self, encoded: &mut Vec<u8>) -> Result<(), Error> {
        let mut rest = encoded.as_slice();
        while let Some((first, after)) = Delivery::split_first(rest) {
            // Most deliveries of a worker are for one block, so for one part.
            let part = self.parts.part_of(first.spender.height());
            let heights = self.parts.heights(part);
            let mut end = after;
            while let Some((next, after)) = Delivery::split_first(end)
                && heights.contains(&next.spender.height().0)
            {
                end = after;
            }
            let (of_part, others) = rest.split_at(rest.len() - end.len());
            self.parts.add(part, of_part)?;
            rest = others;
        }
        encoded.clear();
        Ok(())
    }

    pub fn take(&self, part: usize) -> Result<SortedDeliveries, Error> {
        let bytes = self.parts.take(part)?;
        let mut order = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((delivery, after)) = Delivery::split_first(rest) {
            order.push((delivery.spender, (bytes.len() - rest.len()) as u32));
            rest = after;
        }
        order.sort_unstable();
        Ok(SortedDeliveries { bytes, order })
    }
}

impl SortedDeliveries {
    /// Returns the deliveries to the block at `height`, in the order of its inputs.
    pub fn of_block(&self, height: Height) -> impl ExactSizeIterator<Item = Delivery<'_>> {
        let first = self.order.partition_point(|(spender, _)| spender.height() < height);
        let of_block = self.order[first..].partition_point(|(spender, _)| spender.height() == height);
        self.order[first..first + of_block].iter().map(|&(_, at)| {
            let delivery = Delivery::split_first(&self.bytes[at as usize..]);
            delivery.map_or(Delivery::NONE, |(delivery, _)| delivery)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::work_dir::WorkDir;
    use chain::blocks::chain::{BlockPosition, Chain};
    use std::{ops::Range, thread};
    use testkit::fault::FaultDisk;
    use wire::{BlockHash, BlockTime, Coin, FileNo, OutPoint, Txid};

    /// A chain of 100 blocks of 1,000 bytes in one file.
    fn chain() -> Chain {
        let hashes = (0..100).map(|height| BlockHash([height; 32])).collect();
        let position =
            |height: u32| BlockPosition { file: FileNo(0), data_pos: height * 1_000 + 8, undo_pos: None };
        Chain::from_parts(hashes, (0..100).map(position).collect(), vec![BlockTime(0); 100])
    }

    /// Encoded deliveries of `numbers`, to heights in a scattered order.
    fn encoded(numbers: Range<u32>) -> Vec<u8> {
        let mut encoded = Vec::new();
        for number in numbers {
            let spender = Spender::new(Height(number * 37 % 100), number / 100).unwrap();
            let outpoint = OutPoint { txid: Txid([number as u8; 32]), vout: number };
            let out = vec![6 + 20; 1 + 1 + 20];
            Delivery::encode(spender, &outpoint, Coin { code: 2, out: &out }, &mut encoded);
        }
        encoded
    }

    #[test]
    fn each_block_gets_its_deliveries_in_order_of_inputs() {
        for memory_limit in [0, 10_000, 1 << 30] {
            let (dir, disk) = (tempfile::tempdir().unwrap(), FaultDisk::healthy());
            let work = WorkDir::new(&disk, dir.path().join("work"));
            let deliveries = Deliveries { parts: Parts::new(&work, &chain(), 16_000, memory_limit) };
            thread::scope(|scope| {
                for start in [0, 1_000, 2_000, 3_000] {
                    let deliveries = &deliveries;
                    scope.spawn(move || {
                        for at in (start..start + 1_000).step_by(100) {
                            deliveries.add(&mut encoded(at..at + 100)).unwrap();
                        }
                    });
                }
            });
            assert!(deliveries.parts.count() > 5);
            assert_eq!(work.exists().unwrap(), memory_limit < 1 << 30, "{memory_limit}");
            let mut heights = 0;
            for part in 0..deliveries.parts.count() {
                let sorted = deliveries.take(part).unwrap();
                for height in deliveries.parts.heights(part) {
                    let inputs: Vec<_> =
                        sorted.of_block(Height(height)).map(|delivery| delivery.spender.input()).collect();
                    assert_eq!(inputs, (0..40).collect::<Vec<_>>(), "{height}");
                    heights += 1;
                }
            }
            assert_eq!((heights, deliveries.parts.bytes()), (100, 0));
            deliveries.parts.remove_file().unwrap();
            work.remove().unwrap();
            assert!(!work.exists().unwrap());
        }
    }
}

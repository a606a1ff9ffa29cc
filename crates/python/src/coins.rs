//! The coins of a chainstate, or those after a block.

use crate::{
    report::RowsReport,
    stream::{RowStream, send},
};
use engine::{
    ChainOptions, Error, Height, RealDisk, UtxoElement,
    utxo::{CreationTimes, EachCoin, EachSet, StoredCoins},
};
use export::{Batches, CoinTable, Columns};
use pyo3::prelude::*;
use tables::with_coin_row;

/// Begins to read the coins of the chainstate, or those after the block at `height`.
pub fn rows(
    py: Python<'_>,
    chain: ChainOptions,
    height: Option<u32>,
    columns: Columns,
) -> PyResult<RowStream> {
    RowStream::begin(py, Batches::<CoinTable>::new(&columns).schema(), move |sender, watch| {
        let network = chain.params.network;
        let addresses = columns.has_addresses::<CoinTable>().then_some(network);
        let mut batches = Batches::<CoinTable>::new(&columns);
        let (mut stats, with_times) = (None, columns.has_times::<CoinTable>());
        let each: &mut EachCoin<'_> = &mut |coin: &UtxoElement<'_>, times: Option<CreationTimes>| {
            send(with_coin_row(coin, times, addresses, |row| batches.add(row)), sender)
        };
        match height {
            None => {
                let coins = StoredCoins::Chainstate(chain.clone());
                let memory = chain.memory_bytes.saturating_sub(export::MAX_MEMORY);
                stats = Some(engine::utxo::read(&RealDisk, &coins, memory, with_times, each, watch)?);
            }
            Some(height) => {
                let each_set: &mut EachSet<'_> = &mut |_, read| {
                    stats = Some(read(each)?);
                    Ok(())
                };
                let heights = [Height(height)].into();
                engine::utxo::read_after(&RealDisk, &chain, &heights, with_times, each_set, watch)?;
            }
        }
        let stats = stats.ok_or_else(Error::interrupted)?;
        stats.check_pinned()?;
        send(batches.take(), sender)?;
        Ok(RowsReport::Coins(stats))
    })
}

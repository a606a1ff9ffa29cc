//! Helpers of this crate's tests: the checks of blocks, and access to real data and to testkit's mutations.

use crate::prelude::*;
use disk::undo::{UndoArena, UndoView};
use peregrine_rules::{
    BlockContext, BlockSpendContext, BlockTotals, block::check_block_with_table, check_block,
    check_block_spends, median_times, spend::check_block_spends_with_table,
};
use std::sync::LazyLock;
use testkit::{
    Chain,
    block::ids,
    mutation::{CheckLevel, Mutation, base_chain, mutations},
};
use wire::coin::CompressedScript;

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    hex_conservative::decode_to_vec(text).unwrap()
}

/// Decodes a headers file: 80 bytes each, from the genesis block on.
pub(crate) fn read_headers(bytes: &[u8]) -> Vec<Header> {
    bytes.chunks(80).map(|chunk| Header::read(&mut wire::Reader::new(chunk)).unwrap()).collect()
}

pub(crate) fn regtest() -> &'static ChainParams {
    ChainParams::of(Network::Regtest)
}

/// Returns the chain that mutations extend.
pub(crate) fn base() -> &'static Chain {
    static BASE: LazyLock<Chain> = LazyLock::new(|| base_chain(3));
    &BASE
}

pub(crate) fn mutation(name: &str) -> &'static Mutation {
    mutations().find(|row| row.name == name).unwrap_or_else(|| panic!("no mutation is called {name}"))
}

/// Returns a chain whose tip a row has made.
pub(crate) fn mutated(name: &str) -> Chain {
    mutation(name).apply(base()).chain
}

/// Returns an old coin that is not of a coinbase.
pub(crate) const fn worth(amount: i64) -> SpentCoin<'static> {
    SpentCoin {
        amount: Sats(amount),
        script: CompressedScript::Raw(&[0x51]),
        height: Height(50),
        is_coinbase: false,
    }
}

/// Returns the median time past of each block below the tip, by height.
pub(crate) fn medians_below_tip(chain: &Chain) -> Vec<BlockTime> {
    let mut times: Vec<BlockTime> = chain.main().map(|block| block.header.time).collect();
    times.pop();
    median_times(times)
}

/// Checks the tip of a chain with the coins of its undo data, at the time of its parent. Returns the level at
/// which a rule refuses it, and the violation.
pub(crate) fn check_tip(params: &ChainParams, chain: &Chain) -> Result<(), (CheckLevel, Violation)> {
    let tip = chain.tip();
    let headers: Vec<Header> = chain.main().map(|block| block.header).collect();
    let ancestors = &headers[..headers.len() - 1];
    let height = Height(tip.height);
    check_header(&HeaderContext {
        params,
        height,
        header: &tip.header,
        hash: &tip.hash,
        ancestors: &ancestors,
        now: ancestors.last().unwrap().time,
    })
    .map_err(|violation| (CheckLevel::Header, violation))?;
    let mut arena = BlockArena::default();
    let block = arena.parse(&tip.bytes).unwrap();
    let medians = medians_below_tip(chain);
    check_bytes(params, height, &block, *medians.last().unwrap())
        .map_err(|violation| (CheckLevel::Block, violation))?;
    let mut arena = UndoArena::default();
    let undo = UndoView::parse(tip.undo.as_deref().unwrap(), &mut arena).unwrap();
    let coins: Vec<_> = undo.coins().map(|coin| SpentCoin::from_coin(&coin).unwrap()).collect();
    check_spends(params, height, &tip.hash, &block, &coins, &medians)
        .map_err(|violation| (CheckLevel::Spend, violation))?;
    Ok(())
}

/// Checks a block with the fused pass and with the table, which must agree.
pub(crate) fn check_bytes(
    params: &ChainParams,
    height: Height,
    block: &BlockView<'_>,
    median_time_past_prev: BlockTime,
) -> Result<u32, Violation> {
    let (txids, wtxids) = ids(block);
    let context =
        BlockContext { params, height, block, txids: &txids, wtxids: &wtxids, median_time_past_prev };
    let checked = check_block(&context);
    assert_eq!(checked, check_block_with_table(&context));
    checked
}

/// Checks spends with the fused pass and with the table, which must agree.
pub(crate) fn check_spends(
    params: &ChainParams,
    height: Height,
    hash: &BlockHash,
    block: &BlockView<'_>,
    coins: &[SpentCoin<'_>],
    mtp_by_height: &[BlockTime],
) -> Result<BlockTotals, Violation> {
    let legacy_sigops = block.txs().map(|tx| peregrine_rules::sigops::count_legacy_of_tx(&tx)).sum();
    let context = BlockSpendContext { params, height, hash, block, coins, mtp_by_height, legacy_sigops };
    let checked = check_block_spends(&context);
    assert_eq!(checked, check_block_spends_with_table(&context));
    checked
}

/// The result of checking a block, a header or a transaction.
pub(crate) type Verdict = Result<(), Violation>;

pub(crate) fn assert_accepts(verdict: &Verdict) {
    assert_eq!(verdict.as_ref().err().map(ToString::to_string), None);
}

/// Asserts that the verdict reports this rule, with Core's reject string and the values.
pub(crate) fn assert_rejects(id: &str, verdict: &Verdict) {
    let violation = verdict.as_ref().expect_err(id);
    assert_eq!(violation.rule.id, id, "{violation}");
    assert!(violation.core.starts_with(violation.rule.core), "{violation}");
    assert!(!violation.detail.is_empty());
}

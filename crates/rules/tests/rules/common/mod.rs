//! Helpers of this crate's tests: small blocks constructed as bytes.

use digest::sha256::{sha256d, sha256d_many};
use peregrine_rules::{
    BlockContext, BlockSpendContext, BlockSums, BlockTotals, ChainParams, HeaderContext, SpentCoin,
    TxContext, Violation, block::check_block_with_table, check_block, check_block_spends, check_header,
    check_tx, spend::check_block_spends_with_table,
};
use wire::{
    BlockArena, BlockHash, BlockTime, BlockView, Header, Height, Network, OutPoint, Sats, TxIndex, Txid,
    Wtxid, coin::CompressedScript, read::write_compact_size,
};

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    hex_conservative::decode_to_vec(text).unwrap()
}

/// Decodes a headers file: 80 bytes each, from the genesis block on.
pub(crate) fn read_headers(bytes: &[u8]) -> Vec<Header> {
    bytes.chunks(80).map(|chunk| Header::read(&mut wire::Reader::new(chunk)).unwrap()).collect()
}

#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) prevout: OutPoint,
    pub(crate) script: Vec<u8>,
    pub(crate) sequence: u32,
    pub(crate) witness: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) value: i64,
    pub(crate) script: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tx {
    pub(crate) version: u32,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) lock_time: u32,
}

/// Returns an outpoint that is distinct for each number and output.
pub(crate) fn outpoint(number: u8, vout: u32) -> OutPoint {
    OutPoint { txid: Txid([number; 32]), vout }
}

pub(crate) fn input(number: u8, vout: u32) -> Input {
    Input { prevout: outpoint(number, vout), script: vec![], sequence: u32::MAX - 1, witness: vec![] }
}

pub(crate) fn output(value: i64) -> Output {
    Output { value, script: vec![0x51] }
}

impl Tx {
    pub(crate) fn spend(inputs: Vec<Input>, value: i64) -> Self {
        Self { version: 2, inputs, outputs: vec![output(value)], lock_time: 0 }
    }

    /// Returns a coinbase for [`HEIGHT`].
    pub(crate) fn coinbase() -> Self {
        let script = vec![2, HEIGHT as u8, 0];
        let input = Input { prevout: OutPoint::NULL, script, sequence: u32::MAX, witness: vec![] };
        Self::spend(vec![input], 0)
    }

    fn write(&self, with_witness: bool) -> Vec<u8> {
        let with_witness = with_witness && self.inputs.iter().any(|input| !input.witness.is_empty());
        let mut out = self.version.to_le_bytes().to_vec();
        if with_witness {
            out.extend([0, 1]);
        }
        write_compact_size(&mut out, self.inputs.len() as u64);
        for input in &self.inputs {
            out.extend(input.prevout.txid.0);
            out.extend(input.prevout.vout.to_le_bytes());
            write_string(&mut out, &input.script);
            out.extend(input.sequence.to_le_bytes());
        }
        write_compact_size(&mut out, self.outputs.len() as u64);
        for output in &self.outputs {
            out.extend(output.value.to_le_bytes());
            write_string(&mut out, &output.script);
        }
        for input in self.inputs.iter().filter(|_| with_witness) {
            write_compact_size(&mut out, input.witness.len() as u64);
            input.witness.iter().for_each(|item| write_string(&mut out, item));
        }
        out.extend(self.lock_time.to_le_bytes());
        out
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.write(true)
    }

    pub(crate) fn txid(&self) -> [u8; 32] {
        sha256d(&self.write(false))
    }

    pub(crate) fn wtxid(&self) -> [u8; 32] {
        sha256d(&self.write(true))
    }
}

fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    write_compact_size(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Computes a merkle root by definition, level by level.
pub(crate) fn root(leaves: &[[u8; 32]]) -> [u8; 32] {
    if leaves.len() <= 1 {
        return leaves.first().copied().unwrap_or_default();
    }
    let level: Vec<_> =
        leaves.chunks(2).map(|pair| sha256d(&[pair[0], *pair.last().unwrap()].concat())).collect();
    root(&level)
}

/// Height of the blocks in tests.
pub(crate) const HEIGHT: u32 = 200;
/// Median time past of their parents.
pub(crate) const MEDIAN_TIME: u32 = 1_600_000_000;
/// Time of the blocks in tests.
pub(crate) const TIME: u32 = MEDIAN_TIME + 3600;

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) params: ChainParams,
    pub(crate) height: u32,
    pub(crate) header: Header,
    pub(crate) txs: Vec<Tx>,
}

impl Block {
    /// Returns a regtest block of these transactions, with its merkle root.
    pub(crate) fn of(txs: Vec<Tx>) -> Self {
        let header = Header { time: BlockTime(TIME), ..Header::default() };
        let params = ChainParams::of(Network::Regtest).clone();
        let mut block = Self { params, height: HEIGHT, header, txs };
        block.update_merkle_root();
        block
    }

    /// Returns a block with a commitment: a coinbase, a spend with one input, and one with three inputs and a
    /// witness.
    pub(crate) fn segwit() -> Self {
        let mut witness = Tx::spend(vec![input(2, 0), input(2, 1), input(3, 0)], 70);
        witness.inputs[1].witness = vec![vec![7; 40], vec![]];
        let mut block = Self::of(vec![Tx::coinbase(), Tx::spend(vec![input(1, 0)], 50), witness]);
        block.commit();
        block
    }

    /// Adds a reserved value and a commitment, and updates the merkle root.
    pub(crate) fn commit(&mut self) {
        self.txs[0].inputs[0].witness = vec![vec![9; 32]];
        self.txs[0].outputs.push(output(0));
        self.recommit();
    }

    /// Makes the last output of the coinbase commit to the witnesses, and updates the merkle root.
    pub(crate) fn recommit(&mut self) {
        let mut leaves: Vec<_> = self.txs.iter().map(Tx::wtxid).collect();
        leaves[0] = [0; 32];
        let committed = sha256d(&[&root(&leaves)[..], &self.txs[0].inputs[0].witness[0]].concat());
        let script = [&[0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed][..], &committed].concat();
        self.txs[0].outputs.last_mut().unwrap().script = script;
        self.update_merkle_root();
    }

    /// Updates the merkle root in the header.
    pub(crate) fn update_merkle_root(&mut self) {
        self.header.merkle_root = root(&self.txs.iter().map(Tx::txid).collect::<Vec<_>>());
    }

    pub(crate) fn with_merkle_root(mut self) -> Self {
        self.update_merkle_root();
        self
    }

    pub(crate) fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.header.to_bytes().to_vec();
        write_compact_size(&mut out, self.txs.len() as u64);
        self.txs.iter().for_each(|tx| out.extend(tx.bytes()));
        out
    }

    /// Runs [`check_block`] on the bytes; the table alone must give the same verdict.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let (bytes, mut arena) = (self.bytes(), BlockArena::default());
        let block = arena.parse(&bytes).unwrap();
        check_bytes(&self.params, Height(self.height), &block, BlockTime(MEDIAN_TIME)).map(|_| ())
    }

    /// Runs [`check_block_spends`] with these coins; the table alone must give the same verdict.
    pub(crate) fn check_spends(&self, coins: &[SpentCoin<'_>]) -> Result<BlockTotals, Violation> {
        let (bytes, mut arena) = (self.bytes(), BlockArena::default());
        let block = arena.parse(&bytes).unwrap();
        // 512 seconds per block: one unit of BIP-0068.
        let mtp: Vec<_> = (0..self.height).map(|height| BlockTime(MEDIAN_TIME + 512 * height)).collect();
        check_spends(&self.params, Height(self.height), &BlockHash::default(), &block, coins, &mtp)
    }
}

/// Returns an anyone-can-spend coin of 100 sat, 150 blocks old.
pub(crate) const fn coin() -> SpentCoin<'static> {
    SpentCoin {
        amount: Sats(100),
        script: CompressedScript::Raw(&[0x51]),
        height: Height(50),
        is_coinbase: false,
    }
}

/// Returns the txids and wtxids of a block.
pub(crate) fn ids(block: &BlockView<'_>) -> (Vec<Txid>, Vec<Wtxid>) {
    let (mut txids, mut wtxids) = (Vec::new(), Vec::new());
    sha256d_many(&block.txs().map(|tx| tx.txid_message()).collect::<Vec<_>>(), &mut txids);
    if block.txs().any(|tx| tx.has_witness()) {
        sha256d_many(&block.txs().map(|tx| tx.wtxid_message()).collect::<Vec<_>>(), &mut wtxids);
    }
    (txids.into_iter().map(Txid).collect(), wtxids.into_iter().map(Wtxid).collect())
}

/// Checks a block with the fused pass and with the table, which must agree.
pub(crate) fn check_bytes(
    params: &ChainParams,
    height: Height,
    block: &BlockView<'_>,
    median_time_past_prev: BlockTime,
) -> Result<BlockSums, Violation> {
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

/// Returns headers 0 to `len - 1` of a regtest chain, ten minutes apart.
fn branch(len: u32) -> Vec<Header> {
    (0..len)
        .map(|i| Header { time: BlockTime(MEDIAN_TIME + 600 * i), bits: 0x207f_ffff, ..Header::default() })
        .collect()
}

/// Returns the verdict on an edited regtest header of version 4, ten minutes after its parent.
pub(crate) fn header(height: u32, params: &ChainParams, edit: impl FnOnce(&mut Header)) -> Verdict {
    header_with_hash(height, params, BlockHash::default(), edit)
}

/// [`header`] with the given hash.
pub(crate) fn header_with_hash(
    height: u32,
    params: &ChainParams,
    hash: BlockHash,
    edit: impl FnOnce(&mut Header),
) -> Verdict {
    let ancestors = branch(height);
    let time = BlockTime(MEDIAN_TIME + 600 * height);
    let mut header = Header { version: 4, time, bits: 0x207f_ffff, ..Header::default() };
    edit(&mut header);
    let bytes = header.to_bytes();
    let header = Header::read(&mut wire::Reader::new(&bytes)).unwrap();
    check_header(&HeaderContext {
        params,
        height: Height(height),
        header: &header,
        hash: &hash,
        ancestors: &ancestors.as_slice(),
        now: time,
    })
}

/// Returns the verdict on a block whose second transaction is `tx`.
pub(crate) fn check_tx_in_block(tx: Tx) -> Verdict {
    let alone = tx.bytes();
    let checked = Block::of(vec![Tx::coinbase(), tx]).check();
    // The verdict on the transaction by itself is the same.
    let mut arena = BlockArena::default();
    let view = arena.parse_tx(&alone).unwrap();
    let params = ChainParams::of(Network::Regtest);
    let context = TxContext { params, height: Height(HEIGHT), tx: &view, tx_index: TxIndex(1) };
    assert_eq!(check_tx(&context), checked);
    checked
}

/// Returns the verdict on the spends of an edited block with one transaction that has one input per coin and
/// pays `pays`.
pub(crate) fn check_spends_of(coins: &[SpentCoin<'_>], pays: i64, edit: impl FnOnce(&mut Block)) -> Verdict {
    let inputs = (1..=coins.len()).map(|number| input(number as u8, 0)).collect();
    Block::of(vec![Tx::coinbase(), Tx::spend(inputs, pays)]).with(edit).check_spends(coins).map(|_| ())
}

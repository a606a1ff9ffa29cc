//! Builds mutated blocks: the tip of a chain with coins to spend, and drafts in which every part can be
//! changed.

use crate::{
    block::{BITS, coinbase, median_time_past, merkle_root, serialise, undo_data},
    model::{Model, ModelCoin, outpoint, write_undo},
    plan::COINBASE_MATURITY,
    prelude::*,
    scripts::Prevout,
};
use bitcoin::hashes::Hash;

#[derive(Clone, Debug)]
pub struct BuilderCoin {
    pub outpoint: OutPoint,
    pub coin: ModelCoin,
}

/// The witness commitment of a draft.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commitment {
    /// A commitment if a transaction has a witness.
    AsNeeded,
    /// A commitment, even if no transaction has a witness.
    Present,
    Absent,
    Wrong,
    /// A commitment with one byte more.
    Longer,
    /// A commitment without its last byte.
    Shorter,
    /// Two commitments: a wrong one, then the right one.
    WrongThenRight,
}

/// The parts of a block that [`BlockBuilder::seal`] assembles.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Header version.
    pub version: i32,
    /// Header time.
    pub time: u32,
    /// Target in compact form.
    pub bits: u32,
    /// Whether the hash meets the target.
    pub has_work: bool,
    /// The coinbase without its commitment; `None` for a block without coinbase.
    pub coinbase: Option<Transaction>,
    /// The other transactions.
    pub txs: Vec<Transaction>,
    /// Serialised transactions without witness, to follow the others.
    pub raw: Vec<Vec<u8>>,
    pub commitment: Commitment,
    /// The coinbase's witness, if there is a commitment; `None` for 32 zero bytes.
    pub reserved_value: Option<Vec<Vec<u8>>>,
    pub wrong_root: bool,
    /// Number of transactions at the end that are repeated without changing the merkle root (CVE-2012-2459).
    pub repeated: usize,
}

/// Extends a chain with blocks.
#[derive(Debug)]
pub struct BlockBuilder<'a> {
    pub(super) chain: &'a Chain,
    pool: ScriptPool,
    model: Model,
    /// The coins that the added blocks spend.
    spent: BTreeMap<OutPoint, ModelCoin>,
    /// Mature coins that pay to `TRUE`.
    free: Vec<BuilderCoin>,
    /// Header times by height.
    times: Vec<u32>,
    tip: BlockHash,
    /// What follows the height in every coinbase script, so that no two mutations share a block.
    pub(super) salt: u64,
    added: Vec<GeneratedBlock>,
}

impl<'a> BlockBuilder<'a> {
    /// Creates a builder whose next block extends the chain's tip.
    pub fn new(chain: &'a Chain, salt: u64) -> Self {
        let next = chain.tip().height + 1;
        let free = |(outpoint, coin): (&OutPoint, &ModelCoin)| {
            let height = coin.code >> 1;
            let is_free = height <= chain.spec.reserved && height + COINBASE_MATURITY <= next;
            is_free.then(|| BuilderCoin { outpoint: *outpoint, coin: coin.clone() })
        };
        let mut builder = Self {
            pool: ScriptPool::new(chain.spec.seed, true),
            model: chain.model.clone(),
            spent: BTreeMap::new(),
            free: chain.model.coins.iter().filter_map(free).collect(),
            times: chain.main().map(|block| block.header.time.0).collect(),
            tip: chain.tip().hash,
            salt,
            added: Vec::new(),
            chain,
        };
        builder.free.sort_by_key(|free| std::cmp::Reverse(free.coin.code));
        builder
    }

    /// Returns the height of the next block.
    pub fn height(&self) -> u32 {
        self.times.len() as u32
    }

    /// Returns the median time of the eleven blocks up to `height`.
    pub fn median_time_past(&self, height: u32) -> u32 {
        median_time_past(&self.times[..=height as usize])
    }

    /// Returns the median time of the last eleven blocks.
    pub fn median_time(&self) -> u32 {
        median_time_past(&self.times)
    }

    /// Adds a block that spends a coin to these outputs, and returns their coins.
    pub fn divide(&mut self, coin: &BuilderCoin, outputs: Vec<TxOut>) -> Vec<BuilderCoin> {
        let setup = self.spend(&[coin], outputs);
        self.add(vec![setup.clone()]);
        (0..setup.output.len() as u32).map(|vout| self.tip_coin_of(&setup, vout)).collect()
    }

    /// Takes the oldest mature coin that anyone can spend.
    pub fn take(&mut self) -> BuilderCoin {
        self.free.pop().expect("the chain has reserved coins")
    }

    /// Returns an unspent coinbase coin that was created at `height`.
    pub fn coinbase_of(&self, height: u32) -> BuilderCoin {
        let found = self.model.coins.iter().find(|(_, coin)| {
            coin.code == height << 1 | 1
                && self.pool.find(bitcoin::Script::from_bytes(&coin.script)).is_some()
        });
        let (outpoint, coin) = found.expect("coinbases have coins that can be signed for");
        BuilderCoin { outpoint: *outpoint, coin: coin.clone() }
    }

    /// Returns a script of the pool whose coins [`BlockBuilder::spend`] can sign.
    pub fn pool_script(&self, script: ScriptRef) -> ScriptBuf {
        self.pool.script(script)
    }

    /// Returns an output of a transaction as a coin of the next block.
    pub fn coin_of(&self, tx: &Transaction, vout: u32) -> BuilderCoin {
        self.made_by(tx, self.height(), vout)
    }

    /// Returns an output of a transaction as a coin of the newest block.
    pub fn tip_coin_of(&self, tx: &Transaction, vout: u32) -> BuilderCoin {
        self.made_by(tx, self.height() - 1, vout)
    }

    fn made_by(&self, tx: &Transaction, height: u32, vout: u32) -> BuilderCoin {
        let output = &tx.output[vout as usize];
        let outpoint = outpoint(&bitcoin::OutPoint::new(tx.compute_txid(), vout));
        let amount = output.value.to_sat() as i64;
        BuilderCoin {
            outpoint,
            coin: ModelCoin { code: height << 1, amount, script: output.script_pubkey.to_bytes() },
        }
    }

    /// Makes a signed transaction of version 2 with these outputs.
    pub fn spend(&self, coins: &[&BuilderCoin], output: Vec<TxOut>) -> Transaction {
        let input = coins.iter().map(|coin| {
            let txid = bitcoin::Txid::from_byte_array(coin.outpoint.txid.0);
            let previous_output = bitcoin::OutPoint::new(txid, coin.outpoint.vout);
            TxIn { previous_output, ..TxIn::default() }
        });
        let mut tx =
            Transaction { version: Version::TWO, lock_time: LockTime::ZERO, input: input.collect(), output };
        let prevouts: Option<Vec<Prevout>> = coins
            .iter()
            .map(|coin| {
                let script = self.pool.find(bitcoin::Script::from_bytes(&coin.coin.script))?;
                Some(Prevout { amount: coin.coin.amount as u64, script })
            })
            .collect();
        // Coins with other scripts are satisfied by the caller.
        if let Some(prevouts) = prevouts {
            self.pool.satisfy(&mut tx, &prevouts);
        }
        tx
    }

    /// Makes a transaction that spends a whole coin to `TRUE`.
    pub fn send(&self, coin: &BuilderCoin) -> Transaction {
        self.spend(&[coin], vec![anyone(coin.coin.amount)])
    }

    /// Makes one that spends a free coin.
    pub fn simple(&mut self) -> Transaction {
        let coin = self.take();
        self.send(&coin)
    }

    /// Makes one that spends a free coin, and one that spends its output.
    pub fn family(&mut self) -> [Transaction; 2] {
        let parent = self.simple();
        let child = self.send(&self.coin_of(&parent, 0));
        [parent, child]
    }

    /// Returns the coin of `prevout` as a node that misses the violation would find it: among the coins, the
    /// coins spent by added blocks, or the outputs of the same block.
    fn claim(&self, prevout: &OutPoint, coinbase: Option<&Transaction>, txs: &[Transaction]) -> ModelCoin {
        if let Some(coin) = self.model.coins.get(prevout).or_else(|| self.spent.get(prevout)) {
            return coin.clone();
        }
        let made_here =
            txs.iter().chain(coinbase).find(|tx| tx.compute_txid().to_byte_array() == prevout.txid.0);
        match made_here {
            Some(tx) if (prevout.vout as usize) < tx.output.len() => {
                let coin = self.coin_of(tx, prevout.vout).coin;
                ModelCoin { code: coin.code | u32::from(tx.is_coinbase()), ..coin }
            }
            _ => {
                ModelCoin { code: (self.height() - 1) << 1, amount: 50_000, script: true_script().to_bytes() }
            }
        }
    }

    /// Makes a draft with these transactions, whose coinbase claims the whole reward.
    pub fn draft(&self, txs: Vec<Transaction>) -> Draft {
        let amount_in: i64 = txs
            .iter()
            .flat_map(|tx| &tx.input)
            .map(|input| self.claim(&outpoint(&input.previous_output), None, &txs).amount)
            .sum();
        let amount_out: i128 =
            txs.iter().flat_map(|tx| &tx.output).map(|o| i128::from(o.value.to_sat())).sum();
        let fees = (i128::from(amount_in) - amount_out).max(0) as i64;
        let height = self.height();
        let reward = anyone(subsidy(height) as i64 + fees);
        Draft {
            version: 0x2000_0000,
            time: self.median_time() + 1_200,
            bits: BITS,
            has_work: true,
            coinbase: Some(coinbase(height, self.salt, vec![reward])),
            txs,
            raw: Vec::new(),
            commitment: Commitment::AsNeeded,
            reserved_value: None,
            wrong_root: false,
            repeated: 0,
        }
    }

    /// Makes a draft with one transaction, which spends these coins to these outputs.
    pub fn spending(&self, coins: &[&BuilderCoin], outputs: Vec<TxOut>) -> Draft {
        self.draft(vec![self.spend(coins, outputs)])
    }

    /// Makes a draft without transactions, and changes it.
    pub(super) fn edited(&self, change: impl FnOnce(&mut Draft)) -> Draft {
        let mut draft = self.draft(Vec::new());
        change(&mut draft);
        draft
    }

    /// Makes a draft without other transactions than a coinbase, and changes that.
    pub(super) fn with_coinbase(&self, change: impl FnOnce(&mut Transaction)) -> Draft {
        self.edited(|draft| change(draft.coinbase.as_mut().expect("a draft has one")))
    }

    /// Makes a block from a draft, without changing the builder.
    pub fn seal(&self, draft: &Draft) -> GeneratedBlock {
        let mut made: Vec<MadeTx> =
            draft.txs.iter().map(|tx| MadeTx::new(tx, self.undo(tx, draft))).collect();
        made.extend(draft.raw.iter().map(|bytes| MadeTx {
            stripped_size: bytes.len(),
            txid: digest::sha256::sha256d(bytes),
            wtxid: digest::sha256::sha256d(bytes),
            bytes: bytes.clone(),
            undo: vec![0],
        }));
        if let Some(coinbase) = &draft.coinbase {
            made.insert(0, MadeTx::new(&with_commitment(coinbase, draft, &made), Vec::new()));
        }
        let mut root = merkle_root(made.iter().map(|tx| tx.txid).collect());
        root[0] ^= u8::from(draft.wrong_root);
        let mut header = Header {
            version: draft.version,
            prev: self.tip,
            merkle_root: root,
            time: BlockTime(draft.time),
            bits: draft.bits,
            nonce: 0,
        };
        let hash = mine(&mut header, |hash| if draft.has_work { has_work(hash) } else { hash.0[31] >= 0x80 });
        made.extend_from_within(made.len() - draft.repeated..);
        GeneratedBlock {
            bytes: serialise(&header, made.iter()),
            hash,
            header,
            height: self.height(),
            txs: made.len() as u32,
            undo: Some(if made.is_empty() { vec![0] } else { undo_data(made.iter()) }),
            stale: false,
        }
    }

    fn undo(&self, tx: &Transaction, draft: &Draft) -> Vec<u8> {
        let claim =
            |input: &TxIn| self.claim(&outpoint(&input.previous_output), draft.coinbase.as_ref(), &draft.txs);
        let (mut undo, coins) = (Vec::new(), tx.input.iter().map(claim).collect::<Vec<_>>());
        write_undo(coins.iter(), &mut undo);
        undo
    }

    /// Adds a valid block to the chain.
    pub fn add(&mut self, txs: Vec<Transaction>) {
        let block = self.seal(&self.draft(txs));
        let decoded: bitcoin::Block = deserialize(&block.bytes).expect("the block is well-formed");
        for input in decoded.txdata.iter().skip(1).flat_map(|tx| &tx.input) {
            let prevout = outpoint(&input.previous_output);
            if let Some(coin) = self.model.coins.get(&prevout) {
                self.spent.insert(prevout, coin.clone());
            }
        }
        self.model.apply(&block.bytes, block.height);
        self.times.push(block.header.time.0);
        self.tip = block.hash;
        self.added.push(block);
    }

    pub fn into_added(self) -> Vec<GeneratedBlock> {
        self.added
    }
}

fn with_commitment(coinbase: &Transaction, draft: &Draft, made: &[MadeTx]) -> Transaction {
    let mut tx = coinbase.clone();
    let commits = match draft.commitment {
        Commitment::AsNeeded => made.iter().any(MadeTx::has_witness),
        Commitment::Absent => false,
        _ => true,
    };
    if commits {
        if draft.commitment == Commitment::WrongThenRight {
            let wrong = [&COMMITMENT_PREFIX[..], &[0x77; 32]].concat();
            tx.output.push(TxOut { value: Amount::ZERO, script_pubkey: ScriptBuf::from_bytes(wrong) });
        }
        commit_to_witnesses(&mut tx, made.iter().map(|tx| tx.wtxid));
        if let Some(output) = tx.output.last_mut() {
            let mut script = output.script_pubkey.to_bytes();
            match draft.commitment {
                Commitment::Wrong => script[6] ^= 1,
                Commitment::Longer => script.push(7),
                Commitment::Shorter => _ = script.pop(),
                _ => {}
            }
            output.script_pubkey = ScriptBuf::from_bytes(script);
        }
        if let Some(stack) = &draft.reserved_value {
            tx.input[0].witness = Witness::from_slice(stack);
        }
    }
    tx
}

fn true_script() -> ScriptBuf {
    Builder::new().push_opcode(OP_TRUE).into_script()
}

/// Returns an output that anyone can spend. The amount may be negative.
pub fn anyone(amount: i64) -> TxOut {
    paying(amount, true_script())
}

/// Returns an output. The amount may be negative.
pub fn paying(amount: i64, script_pubkey: ScriptBuf) -> TxOut {
    TxOut { value: Amount::from_sat(amount as u64), script_pubkey }
}

//! Fuzz targets for `wire`: blocks, transactions, numbers, coins.

use crate::prelude::*;
use bitcoin::{Txid, consensus::serialize, hashes::Hash as _};
use digest::sha256::Message;
use wire::{
    Reader, TxView,
    coin::{
        CompressedScript, compress_amount, decompress_amount, split_chainstate_key, write_chainstate_key,
    },
    read::MAX_SIZE,
};

/// A block that is parsed and serialised again is the same.
pub fn block(bytes: &[u8]) -> bool {
    let mut arena = BlockArena::default();
    let Ok(block) = arena.parse(bytes) else { return false };
    let mut again = block.header().to_bytes().to_vec();
    write_compact_size(&mut again, block.tx_count() as u64);
    let (mut inputs, mut outputs, mut witness_len) = (0, 0, 0);
    for tx in block.txs() {
        assert_eq!(tx.offset(), again.len());
        check_tx(&tx);
        again.extend_from_slice(tx.bytes());
        inputs += tx.input_count();
        outputs += tx.output_count();
        witness_len += tx.total_size() - tx.stripped_size();
    }
    assert_eq!(again, bytes);
    assert_eq!((block.input_count(), block.output_count()), (inputs, outputs));
    assert_eq!(block.stripped_size(), bytes.len() - witness_len);
    assert_eq!(block.weight().0 as usize, 4 * bytes.len() - 3 * witness_len);
    assert!(block.tx(block.tx_count()).is_none());
    true
}

/// The transaction that a view shows, as the crate `bitcoin` has it.
fn shown(tx: &TxView<'_>) -> Transaction {
    let input = tx.inputs().map(|input| TxIn {
        previous_output: bitcoin::OutPoint::new(
            Txid::from_byte_array(input.prevout().txid.0),
            input.prevout().vout,
        ),
        script_sig: ScriptBuf::from_bytes(input.script_sig().to_vec()),
        sequence: Sequence(input.sequence()),
        witness: Witness::from_slice(&input.witness().collect::<Vec<_>>()),
    });
    let output = tx.outputs().map(|output| TxOut {
        value: Amount::from_sat(output.value().0 as u64),
        script_pubkey: ScriptBuf::from_bytes(output.script_pubkey().to_vec()),
    });
    Transaction {
        version: Version(tx.version() as i32),
        lock_time: LockTime::from_consensus(tx.lock_time()),
        input: input.collect(),
        output: output.collect(),
    }
}

/// Checks that the bytes of a transaction, with and without witness, are those of what the view shows, which
/// is returned.
fn check_tx(tx: &TxView<'_>) -> Transaction {
    let shown = shown(tx);
    let mut stripped = shown.clone();
    stripped.input.iter_mut().for_each(|input| input.witness.clear());
    let bytes = |of: &Transaction| match of.input[..] {
        // The crate would write a marker. As Core reads it, there are no outputs either.
        [] => [&tx.version().to_le_bytes()[..], &[0, 0], &tx.lock_time().to_le_bytes()].concat(),
        _ => serialize(of),
    };
    let (whole, stripped) = (bytes(&shown), bytes(&stripped));
    assert_eq!(tx.bytes(), whole);
    assert_eq!((tx.total_size(), tx.stripped_size()), (whole.len(), stripped.len()));
    let joined = |message: Message<'_>| message.0.concat();
    assert_eq!(joined(tx.txid_message()), stripped);
    assert_eq!(joined(tx.wtxid_message()), whole);
    assert_eq!((tx.inputs().len(), tx.outputs().len()), (tx.input_count(), tx.output_count()));
    assert_eq!((shown.input.len(), shown.output.len()), (tx.input_count(), tx.output_count()));
    assert_eq!(tx.has_witness(), shown.input.iter().any(|input| !input.witness.is_empty()));
    shown
}

/// The crate `bitcoin` accepts the same transactions, and parses them to the same values.
pub fn transaction(bytes: &[u8]) -> bool {
    let mut arena = BlockArena::default();
    let parsed = arena.parse_tx(bytes);
    let reference = deserialize::<Transaction>(bytes);
    let (tx, reference) = match (parsed, reference) {
        (Ok(parsed), Ok(reference)) => (parsed, reference),
        (Err(_), Err(_)) => return false,
        (parsed, reference) => {
            let (parsed, reference) = (parsed.map(|_| "fine"), reference.map(|_| "fine"));
            assert!(differs_from_bitcoin_crate(bytes), "wire: {parsed:?}, crate bitcoin: {reference:?}");
            return false;
        }
    };
    assert_eq!(check_tx(&tx), reference);
    assert_eq!(tx.is_coinbase(), reference.is_coinbase());
    assert_eq!(tx.weight().0, reference.weight().to_wu());
    true
}

/// Returns whether the crate `bitcoin` 0.32 differs from Core's `UnserializeTransaction`, which `wire`
/// follows. Neither case occurs in a valid block.
fn differs_from_bitcoin_crate(tx: &[u8]) -> bool {
    match tx.get(4..) {
        // No inputs, flag 0: Core reads no inputs and no outputs, the crate an unknown flag.
        Some([0, 0, ..]) => true,
        // Flag 1 but no inputs, and so no witness: Core rejects a superfluous witness record, the crate
        // accepts it.
        Some([0, 1, 0, ..]) => true,
        _ => false,
    }
}

/// Numbers that are written are read as the same number, and the reverse: each has one encoding.
pub fn numbers(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let mut again = Vec::new();
    while let Ok(number) = reader.var_int() {
        write_var_int(&mut again, number);
        assert_eq!(again, bytes[..reader.position()]);
        if let Some(amount) = decompress_amount(number) {
            assert_eq!(compress_amount(amount as u64), number);
        }
    }
    let mut reader = Reader::new(bytes);
    again.clear();
    while let Ok(size) = reader.compact_size() {
        assert!(size as u64 <= MAX_SIZE);
        write_compact_size(&mut again, size as u64);
        assert_eq!(again, bytes[..reader.position()]);
    }
    for chunk in bytes.as_chunks::<8>().0 {
        let number = u64::from_le_bytes(*chunk);
        again.clear();
        write_var_int(&mut again, number);
        assert_eq!(Reader::new(&again).var_int(), Ok(number));
        again.clear();
        write_compact_size(&mut again, number);
        let read = Reader::new(&again).compact_size();
        assert_eq!(read.ok(), (number <= MAX_SIZE).then_some(number as usize));
        if number <= i64::MAX as u64 / 10 {
            assert_eq!(decompress_amount(compress_amount(number)), Some(number as i64));
        }
    }
    !bytes.is_empty()
}

/// The body of [`super::CANARY`]: fails for most seeds.
pub fn canary(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    while let Ok(number) = reader.var_int() {
        assert!(number < 1000, "the canary sings: {number} is a VARINT");
    }
    !bytes.is_empty()
}

/// A row of the chainstate, with the length of its key in the first byte, is the same when it is read and
/// written again.
pub fn chainstate_row(bytes: &[u8]) -> bool {
    let Some((&len, row)) = bytes.split_first() else { return false };
    let Some((key, value)) = row.split_at_checked(len.into()) else { return false };
    let outpoint = split_chainstate_key(key).map(|(txid, vout)| OutPoint { txid: wire::Txid(*txid), vout });
    let mut again = Vec::new();
    if let Ok(outpoint) = outpoint {
        write_chainstate_key(&mut again, &outpoint);
        assert_eq!(again, key);
    }
    let Ok(coin) = Coin::read_chainstate_value(value) else { return false };
    again.clear();
    coin.write_chainstate_value(&mut again);
    assert_eq!(again, value);
    check_coin(&coin);
    let mut element = Vec::new();
    if coin.write_utxo_element(&outpoint.unwrap_or_default(), &mut element).is_ok() {
        let (amount, script) = coin.output().expect("it has been decoded a moment ago");
        let mut tail = amount.0.to_le_bytes().to_vec();
        write_compact_size(&mut tail, script.script_len() as u64);
        script.decompress(&mut tail).expect("it has been decompressed a moment ago");
        assert_eq!(element[40..], tail);
    }
    outpoint.is_ok()
}

/// Checks that a coin's output is the same after it was decompressed and compressed again.
pub(super) fn check_coin(coin: &Coin<'_>) {
    assert_eq!(Coin::code_of(coin.height(), coin.is_coinbase()), coin.code);
    let Ok((amount, script)) = coin.output() else { return };
    let mut plain = Vec::new();
    if script.decompress(&mut plain).is_err() {
        return;
    }
    assert_eq!(plain.len(), script.script_len());
    assert_eq!(script.is_p2sh(), wire::script::is_p2sh(&plain));
    let is_program = wire::script::witness_program(&plain).is_some();
    assert!(!is_program || matches!(script, CompressedScript::Raw(raw) if raw == plain), "{plain:02x?}");
    assert_eq!(compressed_output(amount, &plain), coin.out);
}

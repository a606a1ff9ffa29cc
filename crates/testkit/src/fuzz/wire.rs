//! Fuzz targets for `wire`: blocks, transactions, numbers, coins.

use bitcoin::{Transaction, consensus::deserialize, hashes::Hash as _};
use digest::sha256::{Message, sha256d};
use wire::{
    BlockArena, Coin, Reader, TxView,
    coin::{
        CompressedScript, compress_amount, compress_output, decompress_amount, read_chainstate_key,
        write_chainstate_key,
    },
    read::{MAX_SIZE, write_compact_size, write_var_int},
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
        again.extend_from_slice(&serialise(&tx, true));
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

fn check_tx(tx: &TxView<'_>) {
    let (whole, stripped) = (serialise(tx, true), serialise(tx, false));
    assert_eq!(tx.bytes(), whole);
    assert_eq!((tx.total_size(), tx.stripped_size()), (whole.len(), stripped.len()));
    let joined = |message: Message<'_>| message.0.concat();
    assert_eq!(joined(tx.txid_message()), stripped);
    assert_eq!(joined(tx.wtxid_message()), whole);
    assert_eq!((tx.inputs().len(), tx.outputs().len()), (tx.input_count(), tx.output_count()));
    assert_eq!(tx.has_witness(), tx.inputs().any(|input| input.witness().next().is_some()));
}

fn serialise(tx: &TxView<'_>, with_witness: bool) -> Vec<u8> {
    let with_witness = with_witness && tx.has_witness();
    let mut bytes = tx.version().to_le_bytes().to_vec();
    if with_witness {
        bytes.extend([0, 1]);
    }
    let string = |bytes: &mut Vec<u8>, string: &[u8]| {
        write_compact_size(bytes, string.len() as u64);
        bytes.extend_from_slice(string);
    };
    write_compact_size(&mut bytes, tx.input_count() as u64);
    for input in tx.inputs() {
        let prevout = input.prevout();
        bytes.extend_from_slice(&prevout.txid.0);
        bytes.extend_from_slice(&prevout.vout.to_le_bytes());
        string(&mut bytes, input.script_sig());
        bytes.extend_from_slice(&input.sequence().to_le_bytes());
    }
    write_compact_size(&mut bytes, tx.output_count() as u64);
    for output in tx.outputs() {
        bytes.extend_from_slice(&output.value().0.to_le_bytes());
        string(&mut bytes, output.script_pubkey());
    }
    for input in tx.inputs().filter(|_| with_witness) {
        write_compact_size(&mut bytes, input.witness().count() as u64);
        input.witness().for_each(|item| string(&mut bytes, item));
    }
    bytes.extend_from_slice(&tx.lock_time().to_le_bytes());
    bytes
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
    check_tx(&tx);
    assert_eq!(tx.version(), reference.version.0 as u32);
    assert_eq!(tx.lock_time(), reference.lock_time.to_consensus_u32());
    assert_eq!((tx.input_count(), tx.output_count()), (reference.input.len(), reference.output.len()));
    for (parsed, reference) in tx.inputs().zip(&reference.input) {
        let (prevout, reference_prevout) = (parsed.prevout(), reference.previous_output);
        assert_eq!(
            (prevout.txid.0, prevout.vout),
            (reference_prevout.txid.to_byte_array(), reference_prevout.vout)
        );
        assert_eq!(parsed.script_sig(), reference.script_sig.as_bytes());
        assert_eq!(parsed.sequence(), reference.sequence.to_consensus_u32());
        assert!(parsed.witness().eq(&reference.witness));
    }
    for (parsed, reference) in tx.outputs().zip(&reference.output) {
        assert_eq!(parsed.value().0 as u64, reference.value.to_sat());
        assert_eq!(parsed.script_pubkey(), reference.script_pubkey.as_bytes());
    }
    assert_eq!(tx.is_coinbase(), reference.is_coinbase());
    let txid = sha256d(&tx.txid_message().0.concat());
    assert_eq!(txid, reference.compute_txid().to_byte_array());
    assert_eq!(sha256d(tx.bytes()), reference.compute_wtxid().to_byte_array());
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
    let outpoint = read_chainstate_key(key);
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
    assert_eq!(script.witness_program(), wire::script::witness_program(&plain));
    let mut again = Vec::new();
    compress_output(&mut again, amount, &plain);
    // Core always compresses a script that has a compressed form; hostile bytes may have it uncompressed.
    if !matches!(script, CompressedScript::Raw(_)) || again.len() >= coin.out.len() {
        assert_eq!(again, coin.out);
    }
}

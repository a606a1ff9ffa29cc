//! A real block of mainnet with the coins that it spends, if the shared test data is available.

use disk::undo::UndoArena;
use std::path::Path;
use testkit::data::shared_data;
use wire::{BlockArena, Coin, Height, Sats, coin::compressed_output, read::write_compact_size};

/// Mainnet, 14 November 2021: 1,410,904 bytes, 2,043 transactions, 6,630 inputs, 7,454 outputs; the first
/// block with taproot.
pub const HEIGHT: u32 = 709_632;

/// The serialised block and undo data, without obfuscation.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// Its description.
    pub name: String,
    pub bytes: Vec<u8>,
    pub undo: Vec<u8>,
}

/// Returns the real block. If there is no shared test data, prints a note to stdout and returns `None`.
///
/// # Panics
/// If the data is damaged.
pub fn raw_block() -> Option<RawBlock> {
    let bytes = std::fs::read(shared_data(&format!("blocks/{HEIGHT}.raw"))?).ok()?;
    let undo = undo_data(&bytes, &shared_data(&format!("prevouts/{HEIGHT}.prevouts.jsonl"))?)?;
    Some(RawBlock { name: format!("mainnet block {HEIGHT}"), bytes, undo })
}

/// Builds the undo data of a block from the list of coins that it spends.
fn undo_data(block: &[u8], prevouts: &Path) -> Option<Vec<u8>> {
    let text = std::fs::read_to_string(prevouts).ok()?;
    let mut arena = BlockArena::default();
    let block = arena.parse(block).expect("the block is well-formed");
    let (mut undo, mut rows) = (Vec::new(), text.lines());
    write_compact_size(&mut undo, block.tx_count() as u64 - 1);
    for tx in block.txs().skip(1) {
        write_compact_size(&mut undo, tx.input_count() as u64);
        for _ in tx.inputs() {
            let row = serde_json::from_str(rows.next().expect("a coin for each input")).expect("it is JSON");
            write_entry(&mut undo, &row);
        }
    }
    assert_eq!(rows.next(), None, "an input for each coin");
    let mut arena = UndoArena::default();
    disk::undo::UndoView::parse(&undo, &mut arena).expect("undo data is well-formed");
    Some(undo)
}

fn write_entry(undo: &mut Vec<u8>, row: &serde_json::Value) {
    let number = |name: &str| row[name].as_u64().expect("a number");
    let script = row["script"].as_str().expect("a string").as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    let script: Vec<u8> =
        script.as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect();
    let out = compressed_output(Sats(number("value") as i64), &script);
    let is_coinbase = row["coinbase"].as_bool().expect("true or false");
    Coin { code: Coin::code_of(Height(number("height") as u32), is_coinbase), out: &out }.write_undo(undo);
}

//! Tests of the form of spent coins: the draft's vectors, all kinds of coins, malformed bytes.

use super::*;
use crate::{coin::compressed_output, units::Height};
use hex_conservative::{DisplayHex as _, decode_to_vec};

const BLOCK: BlockHash = BlockHash([7; 32]);
const FORMS: [SpentCoinsForm; 2] = [SpentCoinsForm::Draft, SpentCoinsForm::Reference];

/// A coin as code and compressed output.
type Stored = (u32, Vec<u8>);

fn stored(height: u32, amount: i64, script: &[u8]) -> Stored {
    (Coin::code_of(Height(height), height % 2 == 1), compressed_output(Sats(amount), script))
}

fn bytes(hex: &str) -> Vec<u8> {
    decode_to_vec(hex).unwrap()
}

fn write(form: SpentCoinsForm, coins: &[Stored]) -> Vec<u8> {
    form.write(&BLOCK, coins.iter().map(|(code, out)| Coin { code: *code, out })).unwrap()
}

fn undo_of(txs: &[&[Stored]]) -> Vec<u8> {
    let mut undo = Vec::new();
    write_compact_size(&mut undo, txs.len() as u64);
    for coins in txs {
        write_compact_size(&mut undo, coins.len() as u64);
        coins.iter().for_each(|(code, out)| Coin { code: *code, out }.write_undo(&mut undo));
    }
    undo
}

fn read(form: SpentCoinsForm, bytes: &[u8], inputs: &[usize]) -> Result<Vec<u8>, SpentCoinsError> {
    form.read_undo(bytes, &BLOCK, inputs.iter().copied())
}

/// The draft's test vectors: a script, and its form in the message.
const VECTORS: [(&str, &str); 9] = [
    ("76a9142365e46227cc171083ea275f45ea8646c61d1fbb88ac", "012365e46227cc171083ea275f45ea8646c61d1fbb"),
    ("a914b472a266d0bd89c13706a4132ccfb16f7c3b9fcb87", "05b472a266d0bd89c13706a4132ccfb16f7c3b9fcb"),
    (
        "5120720b1ffb2c63684973c5e9898b188c9d367fa2bc1ce76b8ea02872b5e3ffe705",
        "08720b1ffb2c63684973c5e9898b188c9d367fa2bc1ce76b8ea02872b5e3ffe705",
    ),
    ("00146262b97a514ea54d12f51e0a4fe4c09fb74ff7bd", "076262b97a514ea54d12f51e0a4fe4c09fb74ff7bd"),
    (
        "00200000000000000000000000000000000000000000000000000000000000000000",
        "060000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "210334ed84e3c579d5ff9122fb4215210ec5aaad51c3f60bf971d939db1c5b56a9fbac",
        "0334ed84e3c579d5ff9122fb4215210ec5aaad51c3f60bf971d939db1c5b56a9fb",
    ),
    (
        "210299745a46d9f42b4f578e32d5582120a4688b4224f7e20081f781efc198d11edeac",
        "0299745a46d9f42b4f578e32d5582120a4688b4224f7e20081f781efc198d11ede",
    ),
    (
        "410441a5367189b64cc1601c2a708556e37ade94ec808be746e45e35d86d2ee0cb9cd3b2e65ee51baf285cda78589605c3\
         a59ba0492d577349ad3f0afaac862aa59eac",
        "0441a5367189b64cc1601c2a708556e37ade94ec808be746e45e35d86d2ee0cb9cd3b2e65ee51baf285cda78589605c3a59\
         ba0492d577349ad3f0afaac862aa59e",
    ),
    ("6a", "00016a"),
];

#[test]
fn scripts_have_the_forms_of_the_draft() {
    for (script, form) in VECTORS {
        let (script, form) = (bytes(script), bytes(form));
        let (_, out) = stored(2, 0, &script);
        let (_, compressed) = Coin { code: 4, out: &out }.output().unwrap();
        let (mut written, mut back) = (Vec::new(), Vec::new());
        write_script(&mut written, compressed).unwrap();
        assert_eq!(written.as_hex().to_string(), form.as_hex().to_string());
        let mut reader = Reader::new(&written);
        read_script(&mut reader, &mut back).unwrap();
        assert_eq!((back, reader.finish()), (script, Ok(())));
    }
}

#[test]
fn the_bytes_of_a_message() {
    let coins = [stored(3, 5_000_000_000, &[0x51]), stored(300, 12_345, &bytes(VECTORS[0].0))];
    let hash = VECTORS[0].1;
    // 50 BTC is compressed to 50, 12345 satoshis to 111101.
    for (form, expected) in [
        (SpentCoinsForm::Draft, format!("0200000000070000000001513201000000580200 00{hash}fefdb10100")),
        (SpentCoinsForm::Reference, format!("020000000007000000320001510100000058020000 85e27d{hash}")),
    ] {
        let expected = BLOCK.0.as_hex().to_string() + &expected.replace(' ', "");
        assert_eq!(write(form, &coins).as_hex().to_string(), expected, "{form:?}");
    }
}

/// Coins with all forms of scripts and amounts.
fn all_kinds() -> Vec<Stored> {
    let off_curve = [&[65, 4][..], &[1; 64], &[0xac]].concat();
    let mut scripts: Vec<Vec<u8>> = VECTORS.iter().map(|(script, _)| bytes(script)).collect();
    scripts.extend([off_curve, vec![], vec![0x51; 300], vec![0x52; MAX_SCRIPT_SIZE]]);
    let amounts = [0, 1, 9, 10, 12_345, 5_000_000_000, Sats::MAX_MONEY.0, Sats::MAX_MONEY.0 - 1];
    let scripts = scripts.iter().cycle().zip(amounts.iter().cycle()).take(13 * 8);
    (1..).zip(scripts).map(|(height, (script, amount))| stored(height, *amount, script)).collect()
}

#[test]
fn coins_become_the_undo_data_of_their_block() {
    let coins = all_kinds();
    let txs = [&coins[..3], &coins[3..4], &coins[4..]];
    let inputs = txs.map(<[_]>::len);
    for form in FORMS {
        assert_eq!(read(form, &write(form, &coins), &inputs).unwrap(), undo_of(&txs), "{form:?}");
        assert_eq!(read(form, &write(form, &[]), &[]).unwrap(), [0]);
    }
}

#[test]
fn coins_can_come_in_any_order() {
    let (a, b) = (stored(5, 7, &[0x51]), stored(6, 8, &[0x52, 0x53]));
    for form in FORMS {
        let written = write(form, &[a.clone(), b.clone()]);
        let len = 4 + 4 + 3 + 1;
        let (head, coins) = written.split_at(33);
        let (first, second) = coins.split_at(len);
        let swapped = [head, second, first].concat();
        let undo = undo_of(&[std::slice::from_ref(&a), std::slice::from_ref(&b)]);
        assert_eq!(read(form, &swapped, &[1, 1]).unwrap(), undo);
    }
}

#[test]
fn everything_else_is_refused() {
    let coins = [stored(5, 7, &[0x51]), stored(6, 8, &bytes(VECTORS[1].0))];
    let form = SpentCoinsForm::Draft;
    let good = write(form, &coins);
    let refuse = |bytes: &[u8]| read(form, bytes, &[2]).unwrap_err();
    let with = |at: usize, new: &[u8]| {
        let mut bad = good.clone();
        bad.splice(at..at + new.len(), new.iter().copied());
        refuse(&bad)
    };
    let in_coin = |number, source| {
        let at = if number == 0 { 33 } else { 33 + 12 };
        SpentCoinsError::Coin { number, at, source }
    };
    assert!(matches!(with(0, &[1]), SpentCoinsError::OtherBlock { .. }));
    assert_eq!(with(32, &[1]), SpentCoinsError::Count { found: 1, inputs: 2 });
    assert_eq!(read(form, &good, &[2, 1]), Err(SpentCoinsError::Count { found: 2, inputs: 3 }));
    assert_eq!(with(33, &[1, 0, 0, 0]), in_coin(1, CoinFlaw::Input(1)), "twice");
    assert_eq!(with(33, &[2, 0, 0, 0]), in_coin(0, CoinFlaw::Input(2)), "no such input");
    assert_eq!(with(37, &[1, 0, 0, 0]), in_coin(0, CoinFlaw::Height));
    assert_eq!(with(41, &[9]), in_coin(0, CoinFlaw::ScriptForm(9)));
    let in_wire = |number, error| in_coin(number, CoinFlaw::Wire(error));
    assert_eq!(with(42, &[0xfd, 0x51, 0]), in_wire(0, WireError::NonCanonicalCompactSize { at: 42 }));
    let long = [&good[..42], &[0xfd, 0x11, 0x27], &[0; 40]].concat();
    assert_eq!(read(form, &long, &[2]), Err(in_coin(0, CoinFlaw::ScriptSize(10_001))));
    for len in 0..good.len() {
        refuse(&good[..len]);
    }
    let trailing = refuse(&[&good[..], &[0]].concat());
    assert_eq!(trailing, SpentCoinsError::Wire(WireError::Trailing { at: good.len(), extra: 1 }));
    let above = compress_amount(Sats::MAX_MONEY.0 as u64 + 1);
    let mut bad = good[..good.len() - 1].to_vec();
    write_compact_size(&mut bad, above);
    assert_eq!(refuse(&bad), in_coin(1, CoinFlaw::Amount(above)));
    // A count that no message can have reserves no memory.
    let many = [&BLOCK.0[..], &[0xfe, 0, 0, 0, 2]].concat();
    let count = 0x200_0000;
    assert_eq!(read(form, &many, &[count]), Err(SpentCoinsError::Count { found: count, inputs: count }));
}

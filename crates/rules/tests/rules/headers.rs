//! Real headers pass, including the check of their difficulty.

use crate::{common, prelude::*};

use digest::sha256::sha256d;
use peregrine_rules::work;

/// Checks a whole chain and returns its work.
fn check_chain(params: &ChainParams, headers: &[Header]) -> U256 {
    assert_eq!(headers[0].hash(), params.genesis_hash);
    let mut total = U256::ZERO;
    let mut prev = headers[0].prev;
    for (header, height) in headers.iter().zip(0..) {
        assert_eq!(header.prev, prev, "height {height}");
        let hash = header.hash();
        let context = HeaderContext {
            params,
            height: Height(height),
            header,
            hash: &hash,
            ancestors: &headers,
            now: BlockTime(1_800_000_000),
        };
        check_header(&context).unwrap_or_else(|violation| panic!("height {height}: {violation}"));
        total = total.wrapping_add(work(header.bits));
        prev = hash;
    }
    total
}

#[test]
fn mainnet_headers_pass() {
    let Some(path) = testdata::shared_data("headers/main_0-10236.hdr") else { return };
    let headers = common::read_headers(&fs::read(path).unwrap());
    assert_eq!(headers.len(), 10_237);
    // All have difficulty 1.
    let total = check_chain(ChainParams::of(Network::Main), &headers);
    assert_eq!(total, work(0x1d00_ffff).wrapping_mul(U256::new(10_237)));
}

#[test]
fn signet_headers_pass() {
    let Some(path) = testdata::shared_data("headers/signet_0-2015.hdr") else { return };
    let headers = common::read_headers(&fs::read(path).unwrap());
    assert_eq!(headers.len(), 2016);
    check_chain(ChainParams::of(Network::Signet), &headers);
}

/// An alternate mainnet with its first retarget. Each of its blocks has only a coinbase, which is constructed
/// here.
#[test]
fn alternate_mainnet_headers_pass_with_their_retarget() {
    let Some(path) = testdata::shared_data("consensus/mainnet_alt.json") else { return };
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let number = |list: &str, i: usize| json[list][i].as_u64().unwrap() as u32;
    let params = ChainParams::of(Network::Main);
    let mut headers = vec![params.genesis];
    for height in 1..=2016u32 {
        let index = height as usize - 1;
        headers.push(Header {
            version: 0x2000_0000,
            prev: headers[index].hash(),
            merkle_root: alternate_coinbase(height),
            time: BlockTime(number("timestamps", index)),
            bits: if height < 2016 { 0x1d00_ffff } else { 0x1c3f_ffc0 },
            nonce: number("nonces", index),
        });
    }
    check_chain(params, &headers);
}

/// Returns the txid of a coinbase that pays 50 bitcoin and pushes its height, padded to two bytes.
fn alternate_coinbase(height: u32) -> [u8; 32] {
    let script = match height {
        1..=16 => vec![0x50 + height as u8, 0],
        17..=127 => vec![1, height as u8],
        _ => vec![2, height as u8, (height >> 8) as u8],
    };
    // Version, input and sequence; 50 bitcoin to a P2PKH script; lock time.
    let input = [&[2, 0, 0, 0, 1][..], &[0; 32], &[0xff; 4], &[script.len() as u8], &script].concat();
    let pays = common::unhex("1976a914eadbac7f36c37e39361168b7aaee3cb24a25312d88ac");
    let output = [&[0xff; 4][..], &[1], &5_000_000_000u64.to_le_bytes(), &pays, &[0; 4]].concat();
    sha256d(&[input, output].concat())
}

//! SipHash agrees with its designers' vectors, with an independent crate, and with Bitcoin Core's vectors.

use std::hash::Hasher;

use hex_conservative::decode_to_vec;
use peregrine_digest::kernel::Kernel;
use peregrine_digest::siphash::{
    SipHash13Uj, push_words, siphash24, siphash24_128, siphash24_128_sum_with, word_count,
};
use siphasher::sip128::Hasher128;

const K0: u64 = 0x0706_0504_0302_0100;
const K1: u64 = 0x0f0e_0d0c_0b0a_0908;

fn counting<const N: usize>() -> [u8; N] {
    std::array::from_fn(|i| i as u8)
}

#[test]
fn siphash24_equals_the_published_vectors_and_the_reference() {
    // The paper's appendix: 15 bytes 00..0e under the key 00..0f.
    assert_eq!(siphash24(K0, K1, &counting::<15>()), 0xa129_ca61_49be_45e5);
    assert_eq!(siphash24(K0, K1, &[]), 0x726f_db47_dd0e_0e31);
    let data: Vec<u8> = (0..600).map(|i| (i % 251) as u8).collect();
    for length in 0..data.len() {
        let mut reference = siphasher::sip::SipHasher24::new_with_keys(K0, !K1);
        reference.write(&data[..length]);
        assert_eq!(siphash24(K0, !K1, &data[..length]), reference.finish(), "{length} bytes");
    }
}

#[test]
fn siphash24_128_equals_the_published_vectors_and_the_reference() {
    // The designers' vectors_sip128: no bytes, and 15 bytes 00..0e, under the key 00..0f.
    let first = |hash: u128| hash.to_le_bytes()[..4].to_vec();
    assert_eq!(first(siphash24_128(K0, K1, &[])), [0xa3, 0x81, 0x7f, 0x04]);
    assert_eq!(first(siphash24_128(K0, K1, &counting::<15>())), [0x54, 0x93, 0xe9, 0x99]);
    let data: Vec<u8> = (0..300).map(|i| (i % 251) as u8).collect();
    for length in 0..data.len() {
        let mut reference = siphasher::sip128::SipHasher24::new_with_keys(K0, !K1);
        reference.write(&data[..length]);
        let found = siphash24_128(K0, !K1, &data[..length]);
        assert_eq!(found, reference.finish128().as_u128(), "{length} bytes");
    }
}

#[test]
fn every_kernel_equals_the_sum_of_single_hashes() {
    for kernel in Kernel::available() {
        for length in (0..100).chain([255, 256, 10_000]) {
            for count in [0, 1, 7, 8, 9, 16, 50] {
                let message = |number: usize| (0..8 + length).map(move |at| (number * 31 + at * at) as u8);
                let messages: Vec<Vec<u8>> = (0..count).map(|number| message(number).collect()).collect();
                let mut words = Vec::new();
                for message in &messages {
                    let (head, tail) = message.split_first_chunk::<8>().unwrap();
                    push_words(&mut words, head, tail);
                }
                let wanted = messages
                    .iter()
                    .fold(0_u128, |sum, message| sum.wrapping_add(siphash24_128(K1, K0, message)));
                let got = siphash24_128_sum_with(kernel, K1, K0, &words, word_count(8 + length));
                assert_eq!(got, wanted, "{}: {count} messages of {} bytes", kernel.name(), 8 + length);
            }
        }
    }
}

#[test]
#[should_panic(expected = "11 words cannot be divided into messages of 2")]
fn rejects_incomplete_messages() {
    siphash24_128_sum_with(Kernel::PORTABLE, 1, 2, &[0; 11], 2);
}

#[test]
fn siphash13uj_equals_cores_values() {
    let hasher = SipHash13Uj::new(K0, K1);
    assert_eq!(hasher.finish(), 0xfeee_657d_7e33_1ac3);
    assert_eq!(hasher.with_jumbo(&counting()).finish(), 0xc67d_87b0_8ca4_b5c6);
    let word = u64::from_le_bytes([0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47]);
    assert_eq!(hasher.with_jumbo(&counting()).with_word(word).finish(), 0x6cfc_7884_46f0_491d);
}

#[test]
fn an_outpoint_is_hashed_as_a_jumbo_block_and_a_word() {
    let hasher = SipHash13Uj::new(1, 2);
    let txid = counting();
    for vout in [0, 1, 0xdead_beef, u32::MAX] {
        let wanted = hasher.with_jumbo(&txid).with_word(u64::from(vout)).finish();
        assert_eq!(hasher.hash_outpoint(&txid, vout), wanted, "output {vout}");
    }
    let mut jumbo = [0; 32];
    jumbo[..8].copy_from_slice(&txid[..8]);
    let word = u64::from_le_bytes(counting());
    let with_jumbo = hasher.with_jumbo(&jumbo).finish();
    assert_eq!(with_jumbo, hasher.with_word(word).finish(), "a jumbo block generalises a word");
}

/// Covers all of Core's `siphash.json`: key, blocks in hex, and both hashes.
#[test]
fn equals_cores_vectors() {
    let Some(path) = testdata::shared_data("consensus/siphash.json") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let vectors: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let number = |value: &serde_json::Value| u64::from_str_radix(value.as_str().unwrap(), 16).unwrap();
    let mut unpadded = 0;
    for vector in &vectors {
        let (k0, k1) = (number(&vector["key"][0]), number(&vector["key"][1]));
        let blocks = vector["input"].as_array().unwrap().iter();
        let blocks: Vec<_> = blocks.map(|block| decode_to_vec(block.as_str().unwrap()).unwrap()).collect();
        assert_eq!(siphash24(k0, k1, &blocks.concat()), number(&vector["expected"]["siphash24"]), "{vector}");
        if !vector["expected"]["siphash13uj"].is_null() {
            let hasher = blocks.iter().fold(SipHash13Uj::new(k0, k1), |hasher, block| match block.len() {
                8 => hasher.with_word(u64::from_le_bytes(block[..].try_into().unwrap())),
                _ => hasher.with_jumbo(block[..].try_into().unwrap()),
            });
            assert_eq!(hasher.finish(), number(&vector["expected"]["siphash13uj"]), "{vector}");
            unpadded += 1;
        }
    }
    assert!(vectors.len() > 10 && unpadded > 5, "{} vectors, {unpadded} unpadded", vectors.len());
}

//! The test vectors of BIP 324 (`packet_encoding_test_vectors.csv`, as Core's `bip324_tests.cpp` has them),
//! all but the one with 4,095 bytes of associated data.

use super::*;

/// A line for each: how many empty packets come before the one that is compared, the secret, both keys, whose
/// side it is, the contents and how often they are repeated, whether it is a decoy, both terminators, the
/// session's id, and the whole packet or its end.
const VECTORS: &str = include_str!("vectors.csv");

fn unhex<const N: usize>(text: &str) -> [u8; N] {
    unhex_vec(text).try_into().unwrap()
}

fn unhex_vec(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn seal(ciphers: &mut CipherPair, contents: &[u8], header: u8) -> Vec<u8> {
    let mut length: [u8; 3] = *(contents.len() as u32).to_le_bytes().first_chunk().unwrap();
    ciphers.lengths.apply(&mut length);
    let mut packet = [&[header], contents].concat();
    let tag = ciphers.packets.encrypt(&[], &mut packet);
    [&length[..], &packet, &tag].concat()
}

#[test]
fn the_test_vectors_of_bip324_hold() {
    for line in VECTORS.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [index, secret, ours, theirs, role, contents, times, decoy, terminators @ .., id, end] =
            &fields[..]
        else {
            panic!("{line}")
        };
        let secret = SecretKey::from_secret_bytes(unhex(secret)).unwrap();
        let pair = KeyPair { secret, public: ElligatorSwift::from_array(unhex(ours)) };
        let role = if *role == "initiator" { Role::Initiator } else { Role::Responder };
        let mut session = pair.derive(unhex(theirs), role, wire::Network::Main.magic());
        assert_eq!(session.id, unhex(id), "vector {index}");
        assert_eq!(
            [session.our_terminator, session.their_terminator],
            [0, 1].map(|at| unhex(terminators[at]))
        );
        (0..index.parse().unwrap()).for_each(|_| drop(seal(&mut session.send, &[], 0x80)));
        let contents = unhex_vec(contents).repeat(times.parse().unwrap());
        let packet = seal(&mut session.send, &contents, if *decoy == "true" { 0x80 } else { 0 });
        assert!(packet.ends_with(&unhex_vec(end)), "vector {index}");
    }
    assert_eq!(VECTORS.lines().count(), 1 + 6);
}

#[test]
fn both_sides_derive_the_same_keys_and_a_flipped_bit_is_found() {
    let (ours, theirs) = (KeyPair::random(), KeyPair::random());
    let magic = wire::Network::Regtest.magic();
    let mut a = ours.derive(theirs.public(), Role::Initiator, magic);
    let mut b = theirs.derive(ours.public(), Role::Responder, magic);
    assert_eq!((a.id, a.our_terminator, a.their_terminator), (b.id, b.their_terminator, b.our_terminator));
    for number in 0..1_000u32 {
        let contents = number.to_le_bytes();
        let mut packet = seal(&mut a.send, &contents, 0);
        let mut length = *packet.first_chunk().unwrap();
        b.receive.lengths.apply(&mut length);
        assert_eq!(length, [4, 0, 0]);
        let tag = *packet.last_chunk().unwrap();
        let is_damaged = number == 999;
        packet[5] ^= u8::from(is_damaged);
        assert_eq!(b.receive.packets.decrypt(&[], &mut packet[3..8], tag), !is_damaged);
        assert!(is_damaged || packet[4..8] == contents);
    }
    let other = ours.derive(theirs.public(), Role::Initiator, wire::Network::Main.magic());
    assert_ne!(other.id, a.id, "each network has its own keys");
}

//! The test vectors of BIP 324 (`packet_encoding_test_vectors.csv`, as Core's `bip324_tests.cpp` has
//! them), all but the one with 4,095 bytes of associated data. That both sides understand each other, and
//! that a flipped bit is noticed, is tested of the transport.

use super::*;

/// A line for each: how many empty packets come before the one that is compared, the secret, both keys,
/// whose side it is, the contents and how often they are repeated, whether it is a decoy, both
/// terminators, the session's id, and the whole packet or its end.
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
        assert_eq!(session.our_terminator, unhex(terminators[0]));
        assert_eq!(session.their_terminator, unhex(terminators[1]));
        (0..index.parse().unwrap()).for_each(|_| drop(seal(&mut session.send, &[], 0x80)));
        let contents = unhex_vec(contents).repeat(times.parse().unwrap());
        let packet = seal(&mut session.send, &contents, if *decoy == "true" { 0x80 } else { 0 });
        assert!(packet.ends_with(&unhex_vec(end)), "vector {index}");
    }
    assert_eq!(VECTORS.lines().count(), 1 + 6);
}

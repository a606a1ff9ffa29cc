//! The test vectors of BIP 324 (`packet_encoding_test_vectors.csv`, as Core's `bip324_tests.cpp` has them),
//! all but the one with 4,095 bytes of associated data.

use super::*;

/// One row of the table.
struct Vector {
    /// Number of empty packets before the one that is compared.
    index: u32,
    secret: &'static str,
    ours: &'static str,
    theirs: &'static str,
    role: Role,
    contents: &'static str,
    /// How often the contents are repeated.
    multiply: usize,
    is_decoy: bool,
    our_terminator: &'static str,
    their_terminator: &'static str,
    id: &'static str,
    /// The whole packet, or its end.
    packet_end: &'static str,
}

const VECTORS: &[Vector] = &[
    Vector {
        index: 1,
        secret: "61062ea5071d800bbfd59e2e8b53d47d194b095ae5a4df04936b49772ef0d4d7",
        ours: concat!(
            "ec0adff257bbfe500c188c80b4fdd640f6b45a482bbc15fc7cef5931deff0aa186f6eb9bba7b85dc4dcc",
            "28b28722de1e3d9108b985e2967045668f66098e475b",
        ),
        theirs: concat!(
            "a4a94dfce69b4a2a0a099313d10f9f7e7d649d60501c9e1d274c300e0d89aafaffffffffffffffffffff",
            "ffffffffffffffffffffffffffffffffffff8faf88d5",
        ),
        role: Role::Initiator,
        contents: "8e",
        multiply: 1,
        is_decoy: false,
        our_terminator: "faef555dfcdb936425d84aba524758f3",
        their_terminator: "02cb8ff24307a6e27de3b4e7ea3fa65b",
        id: "ce72dffb015da62b0d0f5474cab8bc72605225b0cee3f62312ec680ec5f41ba5",
        packet_end: "7530d2a18720162ac09c25329a60d75adf36eda3c3",
    },
    Vector {
        index: 999,
        secret: "6f312890ec83bbb26798abaadd574684a53e74ccef7953b790fcc29409080246",
        ours: concat!(
            "a8785af31c029efc82fa9fc677d7118031358d7c6a25b5779a9b900e5ccd94aac97eb36a3c5dbcdb2ca5",
            "843cc4c2fe0aaa46d10eb3d233a81c3dde476da00eef",
        ),
        theirs: concat!(
            "fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f00000000000000000000",
            "00000000000000000000000000000000000000000000",
        ),
        role: Role::Responder,
        contents: "3eb1d4e98035cfd8eeb29bac969ed3824a",
        multiply: 1,
        is_decoy: false,
        our_terminator: "44737108aec5f8b6c1c277b31bbce9c1",
        their_terminator: "ca29b3a35237f8212bd13ed187a1da2e",
        id: "b0490e26111cb2d55bbff2ace00f7f644f64006539abb4e7513f05107bb10608",
        packet_end: "d78adbcba0eebfb15cfbd8142c84dc729d233d0dc11b1d851e46a114122b8d5b96b7d59317",
    },
    Vector {
        index: 223,
        secret: "c0f15820459f64d98e5c48681d13340572c574533dd9f7161b85fcc8224fdf30",
        ours: concat!(
            "682871104d694baca8b9c7990ae6288f49e1ff4feb21dd5cffad67db7752fdfb6c3608d6996c54be04b3",
            "5feef037da09ee4d9dca2363b343bc2d4f6d0ea609da",
        ),
        theirs: concat!(
            "56bd0c06f10352c3a1a9f4b4c92f6fa2b26df124b57878353c1fc691c51abea77c8817daeeb9fa546b77",
            "c8daf79d89b22b0e1b87574ece42371f00237aa9d83a",
        ),
        role: Role::Responder,
        contents: concat!(
            "7e0e78eb6990b059e6cf0ded66ea93ef82e72aa2f18ac24f2fc6ebab561ae557420729da103f64cecfa2",
            "0527e15f9fb669a49bbbf274ef0389b3e43c8c44e5f60bf2ac38e2b55e7ec4273dba15ba41d21f8f5b3e",
            "e1688b3c29951218caf847a97fb50d75a86515d445699497d968164bf740012679b8962de573be941c62",
            "b7ef",
        ),
        multiply: 1,
        is_decoy: true,
        our_terminator: "8461c1dc173be7e6a2316d09710ebd8d",
        their_terminator: "dfa2d33623fe80e2347999e6de0f96fd",
        id: "279a96e6ce08e5074608fcad77d6a78f90c8b618a4520575435b1a37b1c56df9",
        packet_end: concat!(
            "5afbd61f6e989833df2f12ff70c98f1a20ebe84acba2a05429cc6a57238dba87cdc432474f378889b2d0",
            "e95ade9f892eb1a1f6b03b73f903682476537f653f738f7a9f1cc9856ed75f3d69122bdeb00af48e66a6",
            "4872f639a67fc109ee5ca124d0ee183da3c2b8f2da828850b50976b491f1add78d7f01e0756557062126",
            "6852",
        ),
    },
    Vector {
        index: 448,
        secret: "96cb391886681d1d3e23948e51987771a8ec3001b640c18fb994a855cea66b6e",
        ours: concat!(
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffdde3a077a6fd73711a27250c439b",
            "a78ef63d89cd0918c0a0a75f301ed96aa2a43ecf3f61",
        ),
        theirs: concat!(
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffa7730be300000000000000000000",
            "00000000000000000000000000000000000000000000",
        ),
        role: Role::Initiator,
        contents: concat!(
            "00cf68f8f7ac49ffaa02c4864fdf6dfe7bbf2c740b88d98c50ebafe32c92f3427f57601ffcb21a343597",
            "9287db8fee6c302926741f9d5e464c647eeb9b7acaeda46e00abd7506fc9a719847e9a7328215801e961",
            "98dac141a15c7c2f68e0690dd1176292a0dded04d1f548aad88f1aebdc0a8f87da4bb22df32dd7c160c2",
            "25b843e83f6525d6d484f502f16d923124fc538794e21da2eb689d18d87406ecced5b9f92137239ed1d3",
            "7bcfa7836641a83cf5e0a1cf63f51b06f158e499a459ede41c",
        ),
        multiply: 1,
        is_decoy: false,
        our_terminator: "7bf55f6b58f73cdff19ee3292607239f",
        their_terminator: "d121874372c61a48fd87da6d01d89da4",
        id: "e9515794acced50e0550a3ebd95c170d2abd48b5f23fccca73bc597f00c88cf2",
        packet_end: concat!(
            "33953941be2682da1c6d1b167cbf180d7cb8159c94c6ea1c52356716f1057af4df53321f18894c285f7b",
            "2fd85b2edc44a13c9295f310962fdfc8d944bd77c5500b10ca68ca5d0977d19d183a7def742c41cfeee7",
            "63dc09ef985c96ab6e74e464f66992f752c9368e42082ad338705062ddfcad4ca1c9c54004b9345d8df2",
            "5953",
        ),
    },
    Vector {
        index: 673,
        secret: "4a7065c3ddbf84e29b8e20da0da3aaae1f708eae8ad1af4c4c00f46a7cda7b6b",
        ours: concat!(
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffff450012ec3aeecf516f4b374af2e7",
            "fbb040e92dc3c0f12eafd00c729a137f4e892e5293c3",
        ),
        theirs: concat!(
            "9652d78baefc028cd37a6a92625b8b8f85fde1e4c944ad3f20e198bef8c02f19ffffffffffffffffffff",
            "fffffffffffffffffffffffffffffffffffff2e91870",
        ),
        role: Role::Responder,
        contents: "5c6272ee55da855bbbf7b1246d9885aa7aa601a715ab86fa46c50da533badf82b97597c968293ae04e",
        multiply: 97561,
        is_decoy: false,
        our_terminator: "1fec304dcaacf1f5b088325306272d78",
        their_terminator: "d2d16a8452807baa4f63b059b5804624",
        id: "dccb606c4f2a0f64bc164dbc00eb0f6cf1474575e89d7928be6346720bb53610",
        packet_end: concat!(
            "58daef966f33c036740aeb3f6a4b31c0f0a070b25fd6a1abf82ef56fc2cb3ca8da8c434f23790c69349d",
            "d0cb4058f88a7bd0e333c8ceba3c80f21e951b9fdb1c84e2e7f49f43c21087566d58f1bcc42b041e0b46",
            "2e37e927c0071caa9a2b650dccf448c9f88d73b62e80a3e5d5e4e46992e34b416ceb9590a7c8b7bfaccf",
            "37ab",
        ),
    },
    Vector {
        index: 1024,
        secret: "0f69aeffeff6172647ee5aa80bfb418ee742f4e9f1a51b463ac7c120d620e37d",
        ours: concat!(
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffff04df0e67f9753e2cdb066b3b588a",
            "0069fde936a312e0d3f31acb335026b7072d8f2ad24c",
        ),
        theirs: concat!(
            "12a50f3fafea7c1eeada4cf8d33777704b77361453afc83bda91eef349ae044d20126c6200547ea5a691",
            "1776c05dee2a7f1a9ba7dfbabbbd273c3ef29ef46e46",
        ),
        role: Role::Initiator,
        contents: concat!(
            "5f67d15d22ca9b2804eeab0a66f7f8e3a10fa5de5809a046084348cbc5304e843ef96f59a59c7d7fdfe5",
            "946489f3ea297d941bac326225df316a25fc90f0e65b0d31a9c497e960fdbf8c482516bc8a9c1c77b7f6",
            "d0e1143810c737f76f9224e6f2c9af5186b4f7259c7e8d165b6e4fe3d38a60bdbdd4d06ecdcaaf620860",
            "70dbb68686b802d53dfd7db14b18743832605f5461ad81e2af4b7e8ff0eff0867a25b93cec7becf15c43",
            "131895fed09a83bf1ee4a87d44dd0f02a837bf5a1232e201cb882734eb9643dc2dc4d4e8b56908407662",
            "12c7ac8f38ad8a9ec47c7a9b3e022ae3eb6a32522128b518bd0d0085dd81c5",
        ),
        multiply: 69615,
        is_decoy: true,
        our_terminator: "4dfac3b0a99401f6aad1a8df3cd7dd05",
        their_terminator: "e5d4905a8b6a5d18ec6cebbdecd703d3",
        id: "fc2431beb9a666bf888df0662276a4b6a1af5061072992ef408f2b686c86a2ac",
        packet_end: concat!(
            "1a7f3fb83ad2b050b663b8df6b7c2cc2d8e169a869a58bf7ef5ab5db97a505c84a812e100d9445da4fc3",
            "9a1176d6aed3995f6868631224b86f10603217c8d13270e0c6d054ad9e0d0b7dc0c8e59a37cd05a0a45f",
            "aa14b4ffc8d12b641f62e6f1b71c1f72b737e9ce3fe74be779b25e70bf11d98766b3876d0fa28d3c6690",
            "87fc",
        ),
    },
];

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
    for vector in VECTORS {
        let secret = SecretKey::from_secret_bytes(unhex(vector.secret)).unwrap();
        let pair = KeyPair { secret, public: ElligatorSwift::from_array(unhex(vector.ours)) };
        let magic = wire::Network::Main.magic();
        let mut session = pair.derive(unhex(vector.theirs), vector.role, magic);
        assert_eq!(session.id, unhex(vector.id), "vector {}", vector.index);
        assert_eq!(session.our_terminator, unhex(vector.our_terminator));
        assert_eq!(session.their_terminator, unhex(vector.their_terminator));
        for _ in 0..vector.index {
            seal(&mut session.send, &[], 0x80);
        }
        let contents = unhex_vec(vector.contents).repeat(vector.multiply);
        let packet = seal(&mut session.send, &contents, if vector.is_decoy { 0x80 } else { 0 });
        assert!(packet.ends_with(&unhex_vec(vector.packet_end)), "vector {}", vector.index);
    }
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

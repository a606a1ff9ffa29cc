//! The fast XOR equals the bytewise one, at every offset and length.

use peregrine_digest::obfuscation::Obfuscation;

const KEY: [u8; 8] = [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe];

#[test]
fn every_offset_and_length_equals_the_naive_loop() {
    let obfuscation = Obfuscation::from_key(KEY);
    assert_eq!((obfuscation.key(), obfuscation.is_zero()), (KEY, false));
    for offset in (0..17).chain([(1 << 32) - 3, u64::MAX - 200]) {
        for length in 0..=100 {
            let plain: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let naive: Vec<u8> =
                plain.iter().zip(offset..).map(|(byte, offset)| byte ^ KEY[(offset % 8) as usize]).collect();
            let mut data = plain.clone();
            obfuscation.apply(&mut data, offset);
            assert_eq!(data, naive, "{length} bytes at {offset}");
            obfuscation.apply(&mut data, offset);
            assert_eq!(data, plain, "applied twice: {length} bytes at {offset}");
        }
    }
}

#[test]
fn apply_into_equals_apply_in_place() {
    let obfuscation = Obfuscation::from_key(KEY);
    let mut copy = vec![9; 30];
    for length in 0..=100 {
        let plain: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
        obfuscation.apply_into(&plain, &mut copy);
        let mut data = plain;
        obfuscation.apply(&mut data, 0);
        assert_eq!(copy, data);
    }
}

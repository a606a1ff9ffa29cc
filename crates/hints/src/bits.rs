//! Encodes sets of small numbers as bits, the least significant of each byte first.

/// Appends the positions of the ones, ascending.
pub(super) fn push_ones(bytes: &[u8], ones: &mut Vec<u32>) {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        let mut word = u64::from_le_bytes(word);
        while word != 0 {
            ones.push(index as u32 * 64 + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// Appends `len` bits: ones at the ascending positions `ones`, else zeros.
pub(super) fn write_ones(bytes: &mut Vec<u8>, len: u32, ones: impl IntoIterator<Item = u32>) {
    let start = bytes.len();
    bytes.resize(start + len.div_ceil(8) as usize, 0);
    let added = bytes.get_mut(start..).unwrap_or_default();
    for one in ones {
        if let Some(byte) = added.get_mut(one as usize / 8) {
            *byte |= 1 << (one % 8);
        }
    }
}

//! The encoding of integers, strings, checksums and internal keys in all LevelDB files.
//!
//! Fixed integers are little-endian. A varint has 7 bits per byte, lowest first, the top bit set on all
//! bytes but the last (it is not Bitcoin Core's `VARINT`). A string is its length as a varint of 32 bits,
//! then its bytes. An internal key is the user key and 8 bytes little-endian: sequence number << 8 | kind
//! (1 row, 0 deletion). Checksums are CRC-32C, masked so that a checksum over bytes that contain checksums
//! stays strong.

/// The row kinds in the lowest byte of an internal key's trailer.
pub(super) const DELETION: u8 = 0;
pub(super) const VALUE: u8 = 1;

/// Maximum sequence number (56 bits).
pub(super) const MAX_SEQUENCE: u64 = (1 << 56) - 1;

/// The trailer of the first possible internal key of a user key, for seeking.
pub(super) const MAX_TRAILER: u64 = MAX_SEQUENCE << 8 | VALUE as u64;

/// Returns the masked CRC-32C of `bytes`, as it is stored.
pub(super) fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Splits an internal key into user key and trailer.
pub(super) fn split_internal(key: &[u8]) -> Option<(&[u8], u64)> {
    let (user, trailer) = key.split_last_chunk()?;
    Some((user, u64::from_le_bytes(*trailer)))
}

/// Returns the user key of a well-formed internal key.
pub(super) fn user_key(internal: &[u8]) -> &[u8] {
    split_internal(internal).map_or(&[], |(user, _)| user)
}

/// A cursor over bytes from a file. Each method takes a value, or returns `None` if the bytes end before.
#[derive(Clone, Copy)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn varint32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.varint32()?;
        self.bytes(usize::try_from(len).ok()?)
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_overlong_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Input(&bytes).varint(), Some(value));
            assert_eq!(Input(&bytes).varint32(), u32::try_from(value).ok());
            bytes.pop();
            assert_eq!(Input(&bytes).varint(), None, "truncated");
        }
        assert_eq!(Input(&[0xff; 11]).varint(), None);
        let mut wide = [0xff; 10];
        wide[9] = 2; // bit 64
        assert_eq!(Input(&wide).varint(), None);
        assert_eq!(Input(&[3, b'a', b'b']).string(), None, "string longer than the input");
    }

    #[test]
    fn checksums_are_masked_crc_32c() {
        // CRC-32C of "123456789" is e3069283 (RFC 3720 B.4 polynomial); masked by hand.
        assert_eq!(masked_crc(b"123456789"), 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8));
        assert_ne!(masked_crc(b"123456789"), masked_crc(b"123456788"));
    }
}

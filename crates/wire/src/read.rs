//! A cursor over hostile bytes, with Core's two variable-length integers.
//!
//! CompactSize (protocol; `serialize.h` `ReadCompactSize`): `< 0xfd` one byte; `fd` u16; `fe` u32; `ff` u64,
//! little-endian, each only for values too large for the shorter forms. VARINT (databases and undo data;
//! `serialize.h` `ReadVarInt`): base 128, most significant group first, bit 7 set on all but the last byte,
//! one subtracted per continuation so that each number has exactly one form.

/// The largest length or count that Core reads (`MAX_SIZE`).
pub const MAX_SIZE: u64 = 0x0200_0000;

/// An encoding error and its location. Offsets are from the start of the bytes given to the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end at `at` although at least `needed` more are required.
    #[error("ends early at byte {at}: {needed} more bytes are needed")]
    Truncated { at: usize, needed: usize },
    /// A CompactSize uses more bytes than its value needs.
    #[error("non-canonical CompactSize at byte {at}")]
    NonCanonicalCompactSize { at: usize },
    /// A length or count is above [`MAX_SIZE`].
    #[error("size {size} at byte {at} is above the limit of {MAX_SIZE}")]
    Oversized { at: usize, size: u64 },
    /// A VARINT does not fit into 64 bits.
    #[error("VARINT at byte {at} does not fit into 64 bits")]
    VarIntOverflow { at: usize },
    /// The segwit flag is set, but no input has a witness.
    #[error("superfluous witness record in the transaction that starts at byte {at}")]
    SuperfluousWitness { at: usize },
    /// The segwit flag is not 1.
    #[error("unknown transaction optional data in the transaction that starts at byte {at}")]
    UnknownOptionalData { at: usize },
    /// Bytes follow the end of the data, which is at `at`.
    #[error("{extra} unexpected bytes after the end at byte {at}")]
    Trailing { at: usize, extra: usize },
}

/// A cursor that never reads past its bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Reads the next `len` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(WireError::Truncated { at: self.bytes.len(), needed: len - rest.len() });
        };
        self.at += len;
        Ok(taken)
    }

    /// Reads the next `N` bytes as an array.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.first_chunk::<N>() else {
            return Err(WireError::Truncated { at: self.bytes.len(), needed: N - rest.len() });
        };
        self.at += N;
        Ok(*taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// [`WireError::Truncated`] at the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a little-endian u32.
    ///
    /// # Errors
    /// [`WireError::Truncated`] at the end.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a little-endian u64.
    ///
    /// # Errors
    /// [`WireError::Truncated`] at the end.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a CompactSize that is a count or length (at most [`MAX_SIZE`]).
    #[inline]
    pub fn compact_size(&mut self) -> Result<usize, WireError> {
        let at = self.at;
        match self.compact_u64()? {
            size if size > MAX_SIZE => Err(WireError::Oversized { at, size }),
            size => Ok(size as usize),
        }
    }

    /// Reads a CompactSize that is a number and not a size: any 64-bit value.
    #[inline]
    pub fn compact_u64(&mut self) -> Result<u64, WireError> {
        let at = self.at;
        let (value, min) = match self.u8()? {
            short @ 0..=0xfc => return Ok(short.into()),
            0xfd => (self.array().map(u16::from_le_bytes)?.into(), 0xfd),
            0xfe => (self.u32()?.into(), 0x1_0000),
            0xff => (self.u64()?, 0x1_0000_0000),
        };
        if value < min { Err(WireError::NonCanonicalCompactSize { at }) } else { Ok(value) }
    }

    /// Reads a byte string: CompactSize length, then the bytes.
    ///
    /// # Errors
    /// The same errors as [`Reader::compact_size`] and [`Reader::bytes`].
    #[inline]
    pub fn byte_string(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.compact_size()?;
        self.bytes(len)
    }

    /// Reads a VARINT.
    #[inline]
    pub fn var_int(&mut self) -> Result<u64, WireError> {
        let at = self.at;
        let mut value = 0u64;
        loop {
            let byte = self.u8()?;
            if value > u64::MAX >> 7 {
                return Err(WireError::VarIntOverflow { at });
            }
            value = value << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            value = value.checked_add(1).ok_or(WireError::VarIntOverflow { at })?;
        }
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// [`WireError::Trailing`] if bytes remain.
    pub fn finish(self) -> Result<(), WireError> {
        match self.remaining() {
            0 => Ok(()),
            extra => Err(WireError::Trailing { at: self.at, extra }),
        }
    }
}

/// Appends `value` as a VARINT.
#[inline]
pub fn write_var_int(out: &mut Vec<u8>, value: u64) {
    // All groups are collected in one number: bytes written one by one would stall the wider read that
    // follows.
    let (mut groups, mut len, mut rest) = (u128::from(value & 0x7f), 1, value);
    while rest >= 0x80 {
        rest = (rest >> 7) - 1;
        groups |= u128::from(rest & 0x7f | 0x80) << (8 * len);
        len += 1;
    }
    let bytes = groups.to_be_bytes();
    out.extend_from_slice(bytes.get(bytes.len() - len..).unwrap_or_default());
}

/// Length of `size` as a CompactSize (Core `GetSizeOfCompactSize`).
pub const fn compact_size_len(size: usize) -> usize {
    match size {
        0..=0xfc => 1,
        0xfd..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Appends `size` as a CompactSize.
#[inline]
pub fn write_compact_size(out: &mut Vec<u8>, size: u64) {
    match size {
        0..=0xfc => out.push(size as u8),
        0xfd..=0xffff => {
            out.push(0xfd);
            out.extend((size as u16).to_le_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xfe);
            out.extend((size as u32).to_le_bytes());
        }
        _ => {
            out.push(0xff);
            out.extend(size.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_conservative::DisplayHex as _;

    #[test]
    fn var_int_round_trips_at_the_bounds_of_each_length() {
        for (value, bytes) in [
            (0u64, "00"),
            (0x7f, "7f"),
            (0x80, "8000"),
            (0xff, "807f"),
            (0x1234, "a334"),
            (16511, "ff7f"),
            (16512, "808000"),
            (0xffff, "82fe7f"),
            (0xffff_ffff, "8efefefe7f"),
            (u64::MAX, "80fefefefefefefefe7f"),
        ] {
            let mut out = Vec::new();
            write_var_int(&mut out, value);
            assert_eq!(out.as_hex().to_string(), bytes);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.var_int(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn var_int_rejects_more_than_64_bits() {
        for bytes in [vec![0xff; 11], vec![0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            assert_eq!(Reader::new(&bytes).var_int(), Err(WireError::VarIntOverflow { at: 0 }), "{bytes:x?}");
        }
        assert_eq!(Reader::new(&[0x80]).var_int(), Err(WireError::Truncated { at: 1, needed: 1 }));
    }

    #[test]
    fn compact_size_must_be_minimal_and_at_most_max_size() {
        for size in [0u64, 0xfc, 0xfd, 0xffff, 0x1_0000, MAX_SIZE] {
            let mut out = Vec::new();
            write_compact_size(&mut out, size);
            assert_eq!(Reader::new(&out).compact_size(), Ok(size as usize));
        }
        for bytes in [&[0xfd, 0xfc, 0][..], &[0xfe, 0xff, 0xff, 0, 0], &[0xff, 1, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(Reader::new(bytes).compact_size(), Err(WireError::NonCanonicalCompactSize { at: 0 }));
        }
        let mut out = Vec::new();
        write_compact_size(&mut out, MAX_SIZE + 1);
        assert_eq!(Reader::new(&out).compact_size(), Err(WireError::Oversized { at: 0, size: MAX_SIZE + 1 }));
    }
}

//! The XOR with which Bitcoin Core hides its block files and chainstate values from virus scanners.
//!
//! A file is XORed with an 8-byte key (`blocks/xor.dat`) repeated from the file's first byte on, so the key
//! must be rotated to the file offset of the bytes. Applying it twice restores the bytes. The key 0 means
//! plain bytes.
//! Source: Core `util/obfuscation.h`.

/// The key of a set of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obfuscation {
    key: u64,
}

impl Obfuscation {
    /// Creates the obfuscation from the 8 bytes of `xor.dat`.
    pub fn from_key(key: [u8; 8]) -> Self {
        Self { key: u64::from_le_bytes(key) }
    }

    /// Returns the 8 bytes of `xor.dat`.
    pub fn key(&self) -> [u8; 8] {
        self.key.to_le_bytes()
    }

    /// Returns whether the key leaves all bytes unchanged.
    pub fn is_zero(&self) -> bool {
        self.key == 0
    }

    /// Returns the key of a file, from the key of the bytes at this offset in it.
    pub fn shifted(&self, file_offset: u64) -> Self {
        Self { key: self.key.rotate_left((file_offset % 8) as u32 * 8) }
    }

    /// Replaces the contents of `to` with `data`, XORed from key offset 0: the start of a file, or a database
    /// value.
    #[inline]
    pub fn apply_into(&self, data: &[u8], to: &mut Vec<u8>) {
        to.clear();
        to.reserve(data.len());
        // XORs each word while copying. XORing after a copy would read memory in other widths than it was
        // just written in, and stall.
        let (words, tail) = data.as_chunks::<8>();
        for word in words {
            to.extend_from_slice(&(u64::from_le_bytes(*word) ^ self.key).to_le_bytes());
        }
        to.extend(tail.iter().zip(self.key()).map(|(byte, key)| byte ^ key));
    }

    /// XORs `data`, whose first byte is at `file_offset` in its file.
    pub fn apply(&self, data: &mut [u8], file_offset: u64) {
        if self.is_zero() {
            return;
        }
        let key = self.key.rotate_right((file_offset % 8) as u32 * 8);
        let (words, tail) = data.as_chunks_mut::<8>();
        for word in words {
            *word = (u64::from_le_bytes(*word) ^ key).to_le_bytes();
        }
        for (byte, key) in tail.iter_mut().zip(key.to_le_bytes()) {
            *byte ^= key;
        }
    }
}

//! The fields of Peregrine's own small files: how each is written, and read again. Numbers are little-endian.

use digest::siphash::SipKey;
use wire::{BlockHash, BlockTime, FileNo, Height, NetSize, Network, Reader, WireError};

/// A part of a file, which is written and read by the same list of fields.
pub(crate) trait Pack: Sized {
    /// Appends it.
    fn put(&self, bytes: &mut Vec<u8>);

    /// Reads what [`Pack::put`] has appended.
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Why bytes are not what was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A field has a value that is never written.
    #[error("{0}")]
    Value(&'static str),
}

/// Packs a struct as these fields, one after the other.
macro_rules! pack_fields {
    ($name:ty { $($field:tt),+ }) => {
        impl $crate::pack::Pack for $name {
            fn put(&self, bytes: &mut Vec<u8>) {
                $($crate::pack::Pack::put(&self.$field, bytes);)+
            }

            fn take(reader: &mut wire::Reader<'_>) -> Result<Self, $crate::pack::Malformed> {
                Ok(Self { $($field: $crate::pack::Pack::take(reader)?),+ })
            }
        }
    };
}
pub(crate) use pack_fields;

pack_fields!(FileNo { 0 });
pack_fields!(BlockHash { 0 });
pack_fields!(BlockTime { 0 });
pack_fields!(SipKey { 0, 1 });
pack_fields!(NetSize { coins, key_bytes, value_bytes });

macro_rules! pack_numbers {
    ($($number:ty),+) => {
        $(impl Pack for $number {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(reader.array()?))
            }
        })+
    };
}
pack_numbers!(u8, u16, u32, u64, i64);

impl<T: Pack + Copy + Default, const N: usize> Pack for [T; N] {
    fn put(&self, bytes: &mut Vec<u8>) {
        put_all(self, bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::take(reader)?;
        }
        Ok(items)
    }
}

/// Their number in 4 bytes, then the items. The caller has fewer than 2^32.
impl<T: Pack> Pack for Vec<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.len() as u32).put(bytes);
        // Reserve no more than the items need: lists can be long, and memory short.
        bytes.reserve(size_of_val(self.as_slice()));
        put_all(self, bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = u32::take(reader)?;
        take_all(reader, count)
    }
}

/// Its length in one byte, then as many of its characters as fit into 255 bytes.
impl Pack for String {
    fn put(&self, bytes: &mut Vec<u8>) {
        let max = self.len().min(u8::MAX.into());
        let len = (0..=max).rev().find(|&len| self.is_char_boundary(len)).unwrap_or(0);
        (len as u8).put(bytes);
        bytes.extend(self.bytes().take(len));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = reader.u8()?;
        let text = std::str::from_utf8(reader.bytes(len.into())?);
        text.map(ToOwned::to_owned)
            .map_err(|_| Malformed::Value("it contains a name that is not valid UTF-8"))
    }
}

impl Pack for bool {
    fn put(&self, bytes: &mut Vec<u8>) {
        u8::from(*self).put(bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            mark @ 0..=1 => Ok(mark == 1),
            _ => Err(Malformed::Value("a mark in it is neither 0 nor 1")),
        }
    }
}

/// The height + 1, or 0.
impl Pack for Option<Height> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.map_or(0, |height| height.0 + 1).put(bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(u32::take(reader)?.checked_sub(1).map(Height))
    }
}

/// The magic of its messages.
impl Pack for Network {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.magic().put(bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::of_magic(reader.array()?).ok_or(Malformed::Value("written for an unknown network"))
    }
}

/// Appends items; the caller writes their number elsewhere.
pub(crate) fn put_all<T: Pack>(items: &[T], bytes: &mut Vec<u8>) {
    items.iter().for_each(|item| item.put(bytes));
}

/// Reads so many items. The number is not trusted: no memory is reserved by it.
pub(crate) fn take_all<T: Pack>(reader: &mut Reader<'_>, count: u32) -> Result<Vec<T>, Malformed> {
    (0..count).map(|_| T::take(reader)).collect()
}

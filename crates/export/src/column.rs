//! The types of columns, as which values become Arrow arrays.

use arrow_array::StringArray;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, Int32Builder, Int64Builder,
    StringBuilder, StringDictionaryBuilder, TimestampMillisecondBuilder,
};
use arrow_array::types::Int8Type;
use arrow_schema::{DataType, TimeUnit};

/// Length of a hash, in bytes.
const HASH_LEN: i32 = 32;

/// The names of script types. All record batches have the same dictionary.
pub const SCRIPT_TYPES: [&str; 10] =
    ["p2pk", "p2pkh", "p2sh", "p2wpkh", "p2wsh", "p2tr", "p2a", "multisig", "nulldata", "other"];

/// The type of a column.
pub trait Column {
    type Value<'a>: Copy;
    /// The builder of an array of values.
    type Builder: ArrayBuilder;
    /// Whether a value can be missing.
    const IS_OPTIONAL: bool = false;
    /// Its type in Arrow.
    fn data_type() -> DataType;
    /// A builder with no values.
    fn builder() -> Self::Builder;
    /// Appends a value. Returns the bytes that it takes, if they differ from value to value.
    fn append(builder: &mut Self::Builder, value: Self::Value<'_>) -> usize;
}

/// 32 bytes, in the order of the hash function: Bitcoin Core prints them reversed.
pub enum Hash {}
/// A height, an index, a number of things or a size: 31 bits are enough for each of a valid block. It has a
/// sign, so that a difference of two is right.
pub enum Count {}
/// 32 bits without a sign, in a number of 64 bits with one.
pub enum Bits {}
/// A time in seconds since 1970.
pub enum Time {}
/// A number of 64 bits with a sign.
pub enum I64 {}
/// Such a number, or none.
pub enum OptionalCount {}
/// A time, or none.
pub enum OptionalTime {}
/// 32 bytes, or none.
pub enum OptionalHash {}
/// A number of 64 bits with a sign, or none.
pub enum OptionalI64 {}
/// Whether something is the case.
pub enum Bool {}
/// The name of a script type.
pub enum ScriptType {}
pub enum Bytes {}
/// Text, or none.
pub enum OptionalText {}

/// Implements [`Column`] for a type whose values have a fixed length.
macro_rules! fixed {
    ($kind:ty, $value:ty, $builder:ty, $data_type:expr) => {
        impl Column for $kind {
            type Value<'a> = $value;
            type Builder = $builder;

            fn data_type() -> DataType {
                $data_type
            }

            fn builder() -> Self::Builder {
                <$builder>::new()
            }

            fn append(builder: &mut Self::Builder, value: $value) -> usize {
                builder.append_value(value);
                0
            }
        }
    };
}

fixed!(I64, i64, Int64Builder, DataType::Int64);
fixed!(Bool, bool, BooleanBuilder, DataType::Boolean);

impl Column for Count {
    type Value<'a> = u32;
    type Builder = Int32Builder;

    fn data_type() -> DataType {
        DataType::Int32
    }

    fn builder() -> Self::Builder {
        Int32Builder::new()
    }

    fn append(builder: &mut Self::Builder, value: u32) -> usize {
        builder.append_value(i32::try_from(value).unwrap_or(i32::MAX));
        0
    }
}

impl Column for OptionalCount {
    type Value<'a> = Option<u32>;
    type Builder = Int32Builder;
    const IS_OPTIONAL: bool = true;

    fn data_type() -> DataType {
        Count::data_type()
    }

    fn builder() -> Self::Builder {
        Count::builder()
    }

    fn append(builder: &mut Self::Builder, value: Option<u32>) -> usize {
        builder.append_option(value.map(|value| i32::try_from(value).unwrap_or(i32::MAX)));
        0
    }
}

impl Column for OptionalTime {
    type Value<'a> = Option<u32>;
    type Builder = TimestampMillisecondBuilder;
    const IS_OPTIONAL: bool = true;

    fn data_type() -> DataType {
        Time::data_type()
    }

    fn builder() -> Self::Builder {
        Time::builder()
    }

    fn append(builder: &mut Self::Builder, value: Option<u32>) -> usize {
        builder.append_option(value.map(|value| i64::from(value) * 1_000));
        0
    }
}

impl Column for OptionalHash {
    type Value<'a> = Option<[u8; 32]>;
    type Builder = FixedSizeBinaryBuilder;
    const IS_OPTIONAL: bool = true;

    fn data_type() -> DataType {
        Hash::data_type()
    }

    fn builder() -> Self::Builder {
        Hash::builder()
    }

    fn append(builder: &mut Self::Builder, value: Option<[u8; 32]>) -> usize {
        match value {
            Some(value) => Hash::append(builder, value),
            None => {
                builder.append_null();
                0
            }
        }
    }
}

impl Column for Bits {
    type Value<'a> = u32;
    type Builder = Int64Builder;

    fn data_type() -> DataType {
        DataType::Int64
    }

    fn builder() -> Self::Builder {
        Int64Builder::new()
    }

    fn append(builder: &mut Self::Builder, value: u32) -> usize {
        builder.append_value(value.into());
        0
    }
}

impl Column for Time {
    type Value<'a> = u32;
    type Builder = TimestampMillisecondBuilder;

    /// Parquet has no timestamps in seconds.
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into()))
    }

    fn builder() -> Self::Builder {
        TimestampMillisecondBuilder::new().with_timezone(UTC)
    }

    fn append(builder: &mut Self::Builder, value: u32) -> usize {
        builder.append_value(i64::from(value) * 1_000);
        0
    }
}

/// The time zone of all times.
const UTC: &str = "UTC";

impl Column for OptionalI64 {
    type Value<'a> = Option<i64>;
    type Builder = Int64Builder;
    const IS_OPTIONAL: bool = true;

    fn data_type() -> DataType {
        DataType::Int64
    }

    fn builder() -> Self::Builder {
        Int64Builder::new()
    }

    fn append(builder: &mut Self::Builder, value: Option<i64>) -> usize {
        builder.append_option(value);
        0
    }
}

impl Column for Hash {
    type Value<'a> = [u8; 32];
    type Builder = FixedSizeBinaryBuilder;

    fn data_type() -> DataType {
        DataType::FixedSizeBinary(HASH_LEN)
    }

    fn builder() -> Self::Builder {
        FixedSizeBinaryBuilder::new(HASH_LEN)
    }

    fn append(builder: &mut Self::Builder, value: [u8; 32]) -> usize {
        // It fails only for another length.
        let _ = builder.append_value(value);
        0
    }
}

impl Column for ScriptType {
    type Value<'a> = &'static str;
    type Builder = StringDictionaryBuilder<Int8Type>;

    fn data_type() -> DataType {
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))
    }

    fn builder() -> Self::Builder {
        // It fails only for more names than the keys can count.
        StringDictionaryBuilder::new_with_dictionary(0, &StringArray::from(SCRIPT_TYPES.to_vec()))
            .unwrap_or_default()
    }

    fn append(builder: &mut Self::Builder, value: &'static str) -> usize {
        builder.append_value(value);
        0
    }
}

impl Column for Bytes {
    type Value<'a> = &'a [u8];
    type Builder = BinaryBuilder;

    fn data_type() -> DataType {
        DataType::Binary
    }

    fn builder() -> Self::Builder {
        BinaryBuilder::new()
    }

    fn append(builder: &mut Self::Builder, value: &[u8]) -> usize {
        builder.append_value(value);
        value.len()
    }
}

impl Column for OptionalText {
    type Value<'a> = Option<&'a str>;
    type Builder = StringBuilder;
    const IS_OPTIONAL: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn builder() -> Self::Builder {
        StringBuilder::new()
    }

    fn append(builder: &mut Self::Builder, value: Option<&str>) -> usize {
        builder.append_option(value);
        value.map_or(0, str::len)
    }
}

/// What the documentation calls the values of a type of columns.
#[doc(hidden)]
#[macro_export]
macro_rules! type_text {
    (Hash) => {
        "32 bytes"
    };
    (Count) => {
        "int32"
    };
    (Bits) => {
        "int64"
    };
    (Time) => {
        "timestamp"
    };
    (I64) => {
        "int64"
    };
    (Bool) => {
        "bool"
    };
    (ScriptType) => {
        "string"
    };
    (Bytes) => {
        "bytes"
    };
    (OptionalCount) => {
        "int32 or null"
    };
    (OptionalTime) => {
        "timestamp or null"
    };
    (OptionalHash) => {
        "32 bytes or null"
    };
    (OptionalI64) => {
        "int64 or null"
    };
    (OptionalText) => {
        "string or null"
    };
}

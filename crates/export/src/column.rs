//! The types of columns, as which values become Arrow arrays.

use arrow_array::StringArray;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, Int32Builder, Int64Builder,
    StringBuilder, StringDictionaryBuilder, TimestampMillisecondBuilder,
};
use arrow_array::types::Int8Type;
use arrow_schema::{DataType, TimeUnit};
use std::marker::PhantomData;

/// Length of a hash, in bytes.
const HASH_LEN: i32 = 32;

/// The time zone of all times.
const UTC: &str = "UTC";

/// The names of script types. All record batches have the same dictionary.
pub const SCRIPT_TYPES: [&str; 10] =
    ["p2pk", "p2pkh", "p2sh", "p2wpkh", "p2wsh", "p2tr", "p2a", "multisig", "nulldata", "other"];

pub trait Column {
    type Value<'a>: Copy;
    type Builder: ArrayBuilder;
    /// Whether a value can be missing.
    const IS_OPTIONAL: bool = false;
    fn data_type() -> DataType;
    fn builder() -> Self::Builder;
    /// Appends a value. Returns the bytes that it takes, if they differ from value to value.
    fn append(builder: &mut Self::Builder, value: Self::Value<'_>) -> usize;
    fn append_null(builder: &mut Self::Builder);
}

/// The type of a column whose values can be missing.
pub struct Optional<K>(PhantomData<K>);

impl<K: Column> Column for Optional<K> {
    type Value<'a> = Option<K::Value<'a>>;
    type Builder = K::Builder;
    const IS_OPTIONAL: bool = true;

    fn data_type() -> DataType {
        K::data_type()
    }

    fn builder() -> Self::Builder {
        K::builder()
    }

    fn append(builder: &mut Self::Builder, value: Self::Value<'_>) -> usize {
        if let Some(value) = value {
            return K::append(builder, value);
        }
        K::append_null(builder);
        0
    }

    fn append_null(builder: &mut Self::Builder) {
        K::append_null(builder);
    }
}

/// Defines the types of columns: the value of a row, what the documentation calls it, the type in Arrow, a
/// builder, how a value is appended to it, and the bytes that the value takes if they differ.
macro_rules! columns {
    (
        $($(#[$doc:meta])* $kind:ident($value:ty), $text:literal, $data_type:expr, $builder:ty = $new:expr,
            |$to:ident, $from:ident| $append:expr $(, $bytes:expr)?;)*
        [$($optional:ident = $inner:ident, $optional_text:literal;)*]
    ) => {
        $(
            $(#[$doc])*
            pub enum $kind {}

            impl Column for $kind {
                type Value<'a> = $value;
                type Builder = $builder;

                fn data_type() -> DataType {
                    $data_type
                }

                fn builder() -> Self::Builder {
                    $new
                }

                fn append($to: &mut Self::Builder, $from: Self::Value<'_>) -> usize {
                    $append;
                    0 $(+ $bytes)?
                }

                fn append_null(builder: &mut Self::Builder) {
                    builder.append_null();
                }
            }
        )*

        $(pub type $optional = Optional<$inner>;)*

        /// What the documentation calls the values of a type of columns.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! type_text {
            $(($kind) => { $text };)*
            $(($optional) => { $optional_text };)*
        }
    };
}

columns! {
    /// 32 bytes, in the order of the hash function: Bitcoin Core prints them reversed.
    Hash([u8; 32]), "32 bytes", DataType::FixedSizeBinary(HASH_LEN),
        FixedSizeBinaryBuilder = FixedSizeBinaryBuilder::new(HASH_LEN),
        // It fails only for another length.
        |to, value| to.append_value(value).unwrap_or_default();
    /// A height, an index, a number of things or a size: 31 bits are enough for each of a valid block. It has
    /// a sign, so that a difference of two is right.
    Count(u32), "int32", DataType::Int32, Int32Builder = Int32Builder::new(),
        |to, value| to.append_value(i32::try_from(value).unwrap_or(i32::MAX));
    /// 32 bits without a sign, in a number of 64 bits with one.
    Bits(u32), "int64", DataType::Int64, Int64Builder = Int64Builder::new(),
        |to, value| to.append_value(value.into());
    /// A time in seconds since 1970. Parquet has no timestamps in seconds.
    Time(u32), "timestamp", DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into())),
        TimestampMillisecondBuilder = TimestampMillisecondBuilder::new().with_timezone(UTC),
        |to, value| to.append_value(i64::from(value) * 1_000);
    /// A number of 64 bits with a sign.
    I64(i64), "int64", DataType::Int64, Int64Builder = Int64Builder::new(),
        |to, value| to.append_value(value);
    /// Whether something is the case.
    Bool(bool), "bool", DataType::Boolean, BooleanBuilder = BooleanBuilder::new(),
        |to, value| to.append_value(value);
    /// The name of a script type.
    ScriptType(&'static str), "string",
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        StringDictionaryBuilder<Int8Type> =
            // It fails only for more names than the keys can count.
            StringDictionaryBuilder::new_with_dictionary(0, &StringArray::from(SCRIPT_TYPES.to_vec()))
                .unwrap_or_default(),
        |to, value| to.append_value(value);
    Bytes(&'a [u8]), "bytes", DataType::Binary, BinaryBuilder = BinaryBuilder::new(),
        |to, value| to.append_value(value), value.len();
    Text(&'a str), "string", DataType::Utf8, StringBuilder = StringBuilder::new(),
        |to, value| to.append_value(value), value.len();
    [
        OptionalCount = Count, "int32 or null";
        OptionalTime = Time, "timestamp or null";
        OptionalHash = Hash, "32 bytes or null";
        OptionalI64 = I64, "int64 or null";
        OptionalText = Text, "string or null";
    ]
}

//! Tables with typed columns, which become Arrow record batches.

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, Int32Builder, Int64Builder,
    StringBuilder, StringDictionaryBuilder, TimestampMillisecondBuilder,
};
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{DataType, Field, TimeUnit};

/// Length of a hash, in bytes.
const HASH_LEN: i32 = 32;

/// The names of script types. All record batches have the same dictionary.
pub const SCRIPT_TYPES: [&str; 10] =
    ["p2pk", "p2pkh", "p2sh", "p2wpkh", "p2wsh", "p2tr", "p2a", "multisig", "nulldata", "other"];

/// The type of a column.
pub trait Column {
    /// A value.
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

/// Rows of one kind, in memory.
pub trait Table: Sized + Send {
    /// A row.
    type Row<'a>: Copy;
    /// Name of the table.
    const NAME: &'static str;
    /// Number of the first columns in whose order the rows must be.
    const SORTED: usize;
    /// Number of rows of a batch: by default about as many as DuckDB has in a row group.
    const BATCH_ROWS: usize = 1 << 17;
    /// Number of rows of a page of a Parquet file, within a batch.
    const PAGE_ROWS: usize = 20_000;
    /// Its columns, in order.
    fn fields() -> Vec<Field>;
    /// No rows; whether each column is kept.
    fn with(is_kept: &[bool]) -> Self;
    /// Appends a row.
    fn add(&mut self, row: Self::Row<'_>);
    /// Number of rows.
    fn rows(&self) -> usize;
    /// Bytes of the values that have no fixed length.
    fn bytes(&self) -> usize;
    /// Takes all rows, by columns: those that are kept.
    fn take(&mut self) -> Vec<ArrayRef>;
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
/// Bytes.
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

/// Defines a table: a struct for a row, and one for the rows in memory.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:literal $row:ident $table:ident, sorted by $sorted:literal
        $(, batches of $batch:literal, pages of $page:literal)? {
            $($(#[$column_doc:meta])* $column:ident: $kind:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $row<'a> {
            $($(#[$column_doc])* pub $column: <$kind as Column>::Value<'a>,)*
        }

        #[doc = concat!("Rows of the table `", $name, "`.")]
        pub struct $table {
            row_count: usize,
            byte_count: usize,
            $($column: Option<<$kind as Column>::Builder>,)*
        }

        impl Table for $table {
            type Row<'a> = $row<'a>;
            const NAME: &'static str = $name;
            const SORTED: usize = $sorted;
            $(const BATCH_ROWS: usize = $batch;
            const PAGE_ROWS: usize = $page;)?

            fn fields() -> Vec<Field> {
                vec![$(Field::new(stringify!($column), <$kind>::data_type(), <$kind>::IS_OPTIONAL)),*]
            }

            fn with(is_kept: &[bool]) -> Self {
                let mut is_kept = is_kept.iter();
                Self {
                    row_count: 0,
                    byte_count: 0,
                    $($column: is_kept.next().is_some_and(|&kept| kept).then(<$kind>::builder),)*
                }
            }

            fn add(&mut self, row: $row<'_>) {
                self.row_count += 1;
                $(if let Some(builder) = &mut self.$column {
                    self.byte_count += <$kind>::append(builder, row.$column);
                })*
            }

            fn rows(&self) -> usize {
                self.row_count
            }

            fn bytes(&self) -> usize {
                self.byte_count
            }

            fn take(&mut self) -> Vec<ArrayRef> {
                (self.row_count, self.byte_count) = (0, 0);
                let mut arrays = Vec::new();
                $(if let Some(full) = &mut self.$column {
                    arrays.push(ArrayBuilder::finish(&mut std::mem::replace(full, <$kind>::builder())));
                })*
                arrays
            }
        }
    };
}

table! {
    /// A coin of a UTXO set.
    "utxo" CoinRow CoinTable, sorted by 2 {
        /// The transaction that created it.
        txid: Hash,
        /// Index of the output in that transaction.
        vout: Count,
        /// Height of the block that created it.
        height: Count,
        /// Whether a coinbase created it.
        coinbase: Bool,
        /// Its amount, in satoshis.
        value: I64,
        /// Name of the type of its script.
        script_type: ScriptType,
        /// The output script.
        script: Bytes,
        /// The address of the script, if it has one and addresses are written.
        address: OptionalText,
    }
}

table! {
    /// A block: what Core's `getblockstats` returns, with its names, and the rest of the header.
    "blocks" BlockRow BlockTable, sorted by 1 {
        /// Its height.
        height: Count,
        /// Its hash.
        blockhash: Hash,
        /// Its time.
        time: Time,
        /// The median of its time and those of the ten blocks below.
        mediantime: Time,
        /// Version.
        version: I64,
        /// Target of the proof of work, in its compact form.
        bits: Bits,
        /// Nonce.
        nonce: Bits,
        /// Size of the block in bytes.
        size: I64,
        /// Weight of the block.
        weight: I64,
        /// Number of transactions.
        txs: I64,
        /// Number of inputs, without the coinbase's.
        ins: I64,
        /// Number of outputs.
        outs: I64,
        /// Subsidy, in satoshis.
        subsidy: I64,
        /// Sum of all fees, in satoshis.
        totalfee: I64,
        /// Sum of all outputs but the coinbase's, in satoshis.
        total_out: I64,
        /// Size of all transactions but the coinbase, in bytes.
        total_size: I64,
        /// Weight of all transactions but the coinbase.
        total_weight: I64,
        /// Mean fee, rounded down.
        avgfee: I64,
        /// Fees by weight, in satoshis per virtual byte, rounded down.
        avgfeerate: I64,
        /// Mean size, rounded down.
        avgtxsize: I64,
        /// Fee rate at the 10th percentile of the weight.
        feerate_percentile_10: I64,
        /// Fee rate at the 25th percentile of the weight.
        feerate_percentile_25: I64,
        /// Fee rate at the 50th percentile of the weight.
        feerate_percentile_50: I64,
        /// Fee rate at the 75th percentile of the weight.
        feerate_percentile_75: I64,
        /// Fee rate at the 90th percentile of the weight.
        feerate_percentile_90: I64,
        /// Greatest fee.
        maxfee: I64,
        /// Greatest fee rate.
        maxfeerate: I64,
        /// Greatest size of a transaction.
        maxtxsize: I64,
        /// Median fee, rounded down.
        medianfee: I64,
        /// Median size of a transaction, rounded down.
        mediantxsize: I64,
        /// Least fee.
        minfee: I64,
        /// Least fee rate.
        minfeerate: I64,
        /// Least size of a transaction.
        mintxsize: I64,
        /// Number of transactions with witnesses.
        swtxs: I64,
        /// Their size.
        swtotal_size: I64,
        /// Their weight.
        swtotal_weight: I64,
        /// Number of outputs less number of inputs.
        utxo_increase: I64,
        /// By how much the UTXO set grows, in bytes by Core's measure.
        utxo_size_inc: I64,
        /// Like `utxo_increase`, without outputs that cannot be spent.
        utxo_increase_actual: I64,
        /// Like `utxo_size_inc`, without outputs that cannot be spent.
        utxo_size_inc_actual: I64,
        /// Sum over the spent coins of amount times age, in satoshis times days, rounded down.
        coin_days_destroyed: I64,
        /// The median of the ages of the spent coins, in seconds, or none: the lower of two.
        median_spent_age: OptionalI64,
        /// The age of the oldest coin that is spent, in seconds.
        max_spent_age: OptionalI64,
    }
}

table! {
    /// A transaction.
    "transactions" TransactionRow TransactionTable, sorted by 2 {
        /// Height of its block.
        height: Count,
        /// Its index in the block.
        tx_index: Count,
        /// Time of its block.
        block_time: Time,
        /// Its id.
        txid: Hash,
        /// Its id with witnesses.
        wtxid: Hash,
        /// Whether it is the coinbase.
        coinbase: Bool,
        /// Version.
        version: Bits,
        /// Lock time.
        lock_time: Bits,
        /// Number of inputs.
        inputs: Count,
        /// Number of outputs.
        outputs: Count,
        /// Size in bytes.
        size: Count,
        /// Weight.
        weight: Count,
        /// Virtual size in bytes: a quarter of the weight, rounded up.
        vsize: Count,
        /// Sum of the coins that it spends, in satoshis; none for the coinbase.
        value_in: OptionalI64,
        /// Sum of its outputs, in satoshis.
        value_out: I64,
        /// Its fee, in satoshis; none for the coinbase.
        fee: OptionalI64,
    }
}

table! {
    /// An input, with the coin that it spends. Coinbases have none.
    "inputs" InputRow InputTable, sorted by 3 {
        /// Height of its block.
        height: Count,
        /// Index of its transaction in the block.
        tx_index: Count,
        /// Its index in the transaction.
        input_index: Count,
        /// Time of its block.
        block_time: Time,
        /// The median of the times of its block and the ten blocks below: it grows from block to block.
        mediantime: Time,
        /// The id of its transaction.
        txid: Hash,
        /// Sequence number.
        sequence: Bits,
        /// Length of its script, in bytes.
        script_sig_bytes: Count,
        /// Length of its witness, in bytes as serialised; 0 if its transaction has no witnesses.
        witness_bytes: Count,
        /// The transaction that created the coin.
        prev_txid: Hash,
        /// Index of the output in that transaction.
        prev_vout: Count,
        /// Height of the block that created the coin.
        prev_height: Count,
        /// The same median of that block.
        prev_mediantime: Time,
        /// Whether a coinbase created the coin.
        prev_coinbase: Bool,
        /// Amount of the coin, in satoshis.
        value: I64,
        /// Name of the type of the coin's script.
        script_type: ScriptType,
        /// The coin's script.
        script: Bytes,
        /// The address of the script, if it has one and addresses are written.
        address: OptionalText,
    }
}

table! {
    /// An output.
    "outputs" OutputRow OutputTable, sorted by 3 {
        /// Height of its block.
        height: Count,
        /// Index of its transaction in the block.
        tx_index: Count,
        /// Its index in the transaction.
        vout: Count,
        /// Time of its block.
        block_time: Time,
        /// The id of its transaction.
        txid: Hash,
        /// Whether its transaction is a coinbase.
        coinbase: Bool,
        /// Its amount, in satoshis.
        value: I64,
        /// Name of the type of its script.
        script_type: ScriptType,
        /// The output script.
        script: Bytes,
        /// The address of the script, if it has one and addresses are written.
        address: OptionalText,
        /// Height of the block whose input spends it; none if no block that was read does.
        spent_height: OptionalCount,
        /// Index of that input's transaction in the block.
        spent_tx_index: OptionalCount,
        /// The id of that transaction.
        spent_txid: OptionalHash,
        /// Index of the input in the transaction.
        spent_index: OptionalCount,
        /// The median of the times of that block and the ten blocks below.
        spent_mediantime: OptionalTime,
    }
}

table! {
    /// The coins of a UTXO set that are of one age and one type of script.
    "ages" AgeRow AgeTable, sorted by 2 {
        /// Height of the block after which the coins are unspent.
        height: Count,
        /// They are at least so many days old.
        from_days: I64,
        /// They are less than so many days old; without it, the band has no end.
        to_days: OptionalI64,
        /// Time of the block.
        block_time: Time,
        /// The median of the times of the block and the ten blocks below, from which ages are counted.
        mediantime: Time,
        /// Name of the type of their scripts.
        script_type: ScriptType,
        /// How many they are.
        coins: I64,
        /// Their amount, in satoshis.
        value: I64,
    }
}

table! {
    /// An output that became a coin, or an input, in the history of its script. Those of a transaction have
    /// the inputs first. Several files are written at the same time, and a look-up of a script reads little.
    "history" HistoryRow HistoryTable, sorted by 3, batches of 32_768, pages of 2_048 {
        /// SHA-256 of the script.
        script_hash: Hash,
        /// Height of its block.
        height: Count,
        /// Index of its transaction in the block.
        tx_index: Count,
        /// Time of its block.
        block_time: Time,
        /// The id of its transaction.
        txid: Hash,
        /// Whether it is an input; otherwise it is an output.
        input: Bool,
        /// Its index in the transaction.
        index: Count,
        /// Its amount, in satoshis; that of an input is negative.
        amount: I64,
        /// Sum of the amounts of the script up to this row, in satoshis.
        balance: I64,
    }
}

table! {
    /// A script that has a history.
    "scripts" ScriptRow ScriptTable, sorted by 1, batches of 32_768, pages of 2_048 {
        /// SHA-256 of the script.
        script_hash: Hash,
        /// The script.
        script: Bytes,
        /// Name of its type.
        script_type: ScriptType,
        /// Its address, if it has one.
        address: OptionalText,
        /// Height of its first row.
        first_height: Count,
        /// Number of its rows.
        rows: I64,
        /// Sum of its coins, in satoshis.
        balance: I64,
    }
}

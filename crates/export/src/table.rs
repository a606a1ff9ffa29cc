//! Tables with typed columns, which become Arrow record batches.

use crate::column::{
    Bits, Bool, Bytes, Column, Count, Hash, I64, OptionalCount, OptionalHash, OptionalI64, OptionalText,
    OptionalTime, ScriptType, Time,
};
use arrow_array::ArrayRef;
use arrow_array::builder::ArrayBuilder;
use arrow_schema::Field;

/// Rows of one kind, in memory.
pub trait Table: Sized + Send {
    type Row<'a>: Copy;
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
    fn add(&mut self, row: Self::Row<'_>);
    fn rows(&self) -> usize;
    /// Bytes of the values that have no fixed length.
    fn bytes(&self) -> usize;
    /// Takes all rows, by columns: those that are kept.
    fn take(&mut self) -> Vec<ArrayRef>;
}

/// Defines a table: a struct for a row, one for the rows in memory, and a macro that gives the list of its
/// columns as a literal, which Python's texts need.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:literal $row:ident $table:ident $columns:ident, sorted by $sorted:literal
        $(, batches of $batch:literal, pages of $page:literal)? {
            $($(#[doc = $column_doc:literal])* $column:ident: $kind:ident,)*
        }
    ) => {
        #[doc = concat!("The columns of the table `", $name, "` with their types, as a list in Markdown.")]
        #[macro_export]
        macro_rules! $columns {
            () => {
                concat!(
                    "\nColumns:\n",
                    $("\n- `", stringify!($column), "` (", $crate::type_text!($kind), "):", $($column_doc,)*)*
                )
            };
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Default, Debug)]
        pub struct $row<'a> {
            $($(#[doc = $column_doc])* pub $column: <$kind as Column>::Value<'a>,)*
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
    "utxo" CoinRow CoinTable coin_columns, sorted by 2 {
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
        /// Time of the block that created it; none if there is no block index with all blocks.
        block_time: OptionalTime,
        /// The median of the times of that block and the ten blocks below.
        mediantime: OptionalTime,
    }
}

table! {
    /// A block: what Core's `getblockstats` returns, with its names, and the rest of the header.
    "blocks" BlockRow BlockTable block_columns, sorted by 1 {
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
    "transactions" TransactionRow TransactionTable transaction_columns, sorted by 2 {
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
    "inputs" InputRow InputTable input_columns, sorted by 3 {
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
        /// Hash types of its signatures in order, such as `ALL`, separated by spaces; none if it has none.
        /// They are found by their form, and no script is run.
        sighash: OptionalText,
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
    "outputs" OutputRow OutputTable output_columns, sorted by 3 {
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
    "ages" AgeRow AgeTable age_columns, sorted by 2 {
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
    "history" HistoryRow HistoryTable history_columns, sorted by 3, batches of 32_768, pages of 2_048 {
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
    "scripts" ScriptRow ScriptTable script_columns, sorted by 1, batches of 32_768, pages of 2_048 {
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

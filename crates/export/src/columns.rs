//! Which columns of a table are written.

use crate::table::Table;

/// Some columns of a table: whether each is written, in its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns(pub(crate) Vec<bool>);

/// A name that is not one of the table's columns.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the table {table} has no column {name}; it has {}", .columns.join(", "))]
pub struct UnknownColumn {
    pub table: &'static str,
    pub name: String,
    /// The names of its columns.
    pub columns: Vec<String>,
}

impl Columns {
    /// All columns of a table, without those of spends; `address`, if it has it, only with `addresses`.
    pub fn all<T: Table>(addresses: bool) -> Self {
        let is_wanted = |name: &str| !name.starts_with(SPENT) && (addresses || name != ADDRESS);
        Self(T::fields().iter().map(|field| is_wanted(field.name())).collect())
    }

    /// These columns, and those about the input that spends an output.
    #[must_use]
    pub fn with_spends<T: Table>(self) -> Self {
        let columns = T::fields().into_iter().zip(self.0);
        Self(columns.map(|(field, is_written)| is_written || field.name().starts_with(SPENT)).collect())
    }

    /// The columns of a table with these names.
    pub fn named<T: Table>(names: &[String]) -> Result<Self, UnknownColumn> {
        let columns: Vec<String> = T::fields().iter().map(|field| field.name().clone()).collect();
        if let Some(name) = names.iter().find(|name| !columns.contains(name)) {
            return Err(UnknownColumn { table: T::NAME, name: name.clone(), columns });
        }
        Ok(Self(columns.iter().map(|column| names.contains(column)).collect()))
    }

    pub fn has_addresses<T: Table>(&self) -> bool {
        self.has::<T>(ADDRESS)
    }

    /// Whether it is written which input spends an output.
    pub fn has_spends<T: Table>(&self) -> bool {
        self.names::<T>().iter().any(|name| name.starts_with(SPENT))
    }

    pub fn has_times<T: Table>(&self) -> bool {
        self.has::<T>("block_time") || self.has::<T>("mediantime")
    }

    pub fn has<T: Table>(&self, name: &str) -> bool {
        self.names::<T>().iter().any(|written| written == name)
    }

    pub fn names<T: Table>(&self) -> Vec<String> {
        self.fields::<T>().into_iter().map(|(name, _)| name).collect()
    }

    /// The names and the types in Arrow.
    pub fn fields<T: Table>(&self) -> Vec<(String, String)> {
        let fields = T::fields().into_iter().zip(&self.0).filter(|(_, is_written)| **is_written);
        fields.map(|(field, _)| (field.name().clone(), field.data_type().to_string())).collect()
    }

    /// Number of the first columns that are written in whose order the rows are: `sorted` of all are.
    pub(crate) fn sorted(&self, sorted: usize) -> usize {
        self.0.iter().take(sorted).take_while(|is_written| **is_written).count()
    }
}

/// A column that is left out unless it is asked for.
const ADDRESS: &str = "address";
/// What the names of others begin with.
const SPENT: &str = "spent_";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AgeTable, BlockTable, CoinTable, HistoryTable, InputTable, OutputTable, ScriptTable, TransactionTable,
    };

    #[test]
    fn the_documentation_lists_all_columns() {
        fn check<T: Table>(page: &str, begin: &str) {
            let (_, text) = page.split_once(begin).unwrap();
            let text = text.split("**`").next().unwrap();
            for field in T::fields() {
                let name = field.name();
                // Names that differ in their ends are abbreviated.
                let end = name.strip_prefix("feerate_percentile");
                let is_listed =
                    [Some(&**name), end].iter().flatten().any(|it| text.contains(&format!("`{it}`")));
                assert!(is_listed, "{} of {}", name, T::NAME);
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/export.md");
        let page = &std::fs::read_to_string(path).unwrap();
        check::<CoinTable>(page, "| column | type | what it is |");
        check::<BlockTable>(page, "**`blocks`**");
        check::<TransactionTable>(page, "**`transactions`**");
        check::<InputTable>(page, "**`inputs`**");
        check::<OutputTable>(page, "**`outputs`**");
        check::<AgeTable>(page, "the table `ages`:");
        check::<HistoryTable>(page, "**`history`**");
        check::<ScriptTable>(page, "**`scripts`**");
    }

    #[test]
    fn columns_are_in_the_order_of_the_table() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            Columns::named::<OutputTable>(&names)
        };
        let some = named(&["value", "height", "vout"]).unwrap();
        assert_eq!(some.names::<OutputTable>(), ["height", "vout", "value"]);
        assert_eq!((some.sorted(3), some.has_addresses::<OutputTable>()), (1, false), "tx_index is missing");
        assert_eq!(named(&["height", "tx_index", "vout", "address"]).unwrap().sorted(3), 3);
        let all = Columns::all::<OutputTable>(true);
        assert!(all.has_addresses::<OutputTable>() && all.sorted(3) == 3);
        assert!(!all.has_spends::<OutputTable>());
        assert!(named(&["spent_index"]).unwrap().has_spends::<OutputTable>());
        let all = Columns::all::<OutputTable>(false).with_spends::<OutputTable>();
        assert!(all.has_spends::<OutputTable>() && all.has::<OutputTable>("spent_txid"));
        assert!(!all.has_addresses::<OutputTable>());
        let error = named(&["height", "fee"]).unwrap_err().to_string();
        let start = "the table outputs has no column fee; it has height, tx_index, ";
        assert!(error.starts_with(start), "{error}");
    }
}

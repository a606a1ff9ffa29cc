//! All points of all logs as CSV.

use super::log::Series;
use crate::table::or_empty;
use std::fmt::Write;

/// The names of the columns.
pub const COLUMNS: &str = "log,seconds,height,bytes,transactions,cache_bytes,cache_coins,memory_bytes";

/// Returns the points as CSV. Unknown values are empty.
pub fn csv(series: &[Series]) -> String {
    let mut text = format!("{COLUMNS}\n");
    for series in series {
        let name = format!("\"{}\"", series.name.replace('"', "\"\"").replace(char::is_control, "_"));
        for point in &series.points {
            let known =
                [point.bytes, point.transactions, point.cache_bytes, point.cache_coins, point.memory_bytes];
            let known = known.map(or_empty).join(",");
            let _ = writeln!(text, "{name},{:.6},{},{known}", point.seconds, point.height);
        }
    }
    text
}

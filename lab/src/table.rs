//! What the reports of all benchmarks share: a table of quantities for each program, and how two programs
//! compare.

use crate::statistics::{Ratio, Spread};
use serde::Serialize;
use std::fmt::Write;

/// With fewer runs, spreads and the interval of the ratio mean little.
const FEW: u32 = 5;

/// A quantity of all runs of a program.
#[derive(Serialize)]
pub struct Quantity {
    name: &'static str,
    #[serde(skip)]
    title: &'static str,
    #[serde(flatten)]
    spread: Spread,
}

/// A quantity: its name in JSON, its title in text, and how it is taken from a run, if it is known there.
pub type Column<R> = (&'static str, &'static str, fn(&R) -> Option<f64>);

/// Returns the quantities that are known of at least one of the runs.
pub fn quantities<R>(columns: &[Column<R>], rows: &[&R]) -> Vec<Quantity> {
    let quantity = |&(name, title, of): &Column<R>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| of(row)).collect();
        Some(Quantity { name, title, spread: Spread::of(&values)? })
    };
    columns.iter().filter_map(quantity).collect()
}

/// Appends a program's quantities as a table.
pub fn add_table(text: &mut String, program: &str, quantities: &[Quantity]) {
    let _ = writeln!(text, "\n{program:<22}{:>10}  {:>21}  {:>21}", "median", "middle half", "all");
    for Quantity { title, spread, .. } in quantities {
        let middle = format!("{:.2} to {:.2}", spread.lower_quartile, spread.upper_quartile);
        let all = format!("{:.2} to {:.2}", spread.lowest, spread.highest);
        let _ = writeln!(text, "  {title:<20}{:>10.2}  {middle:>21}  {all:>21}", spread.median);
    }
}

/// Appends how the times of other programs compare with those of the first, and what few runs mean.
pub fn add_comparison<'a>(
    text: &mut String,
    first: &str,
    others: impl Iterator<Item = (&'a str, Option<Ratio>)>,
    runs: u32,
) {
    for (other, ratio) in others {
        if let Some(ratio) = ratio {
            let _ = writeln!(
                text,
                "\n{other} takes {:.2} times as long as {first} (95 % interval {:.2} to {:.2})",
                ratio.ratio, ratio.low, ratio.high
            );
        }
    }
    text.push_str(few_runs(runs));
}

/// Returns what few runs mean; nothing if there are enough.
pub fn few_runs(runs: u32) -> &'static str {
    if runs < FEW { "\nfewer than 5 runs: spread and interval say little\n" } else { "" }
}

/// Returns a value of CSV; an unknown one is empty.
pub fn or_empty<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

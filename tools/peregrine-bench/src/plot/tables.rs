//! The numbers of a page as tables, also for readers who cannot see the charts.

use super::{
    Plot,
    charts::{at_height, faster, steps},
    log::{Point, Series, Writer},
    text::{data, duration, grouped, height, memory, times},
};
use crate::hyperfine::Timing;
use maud::{Markup, html};

/// Number of heights at which logs are compared.
const ROWS: u32 = 10;
/// What stands for a value that a log does not have.
const NOTHING: &str = "–";

/// Returns all tables that are not empty.
pub fn all(plot: &Plot) -> Vec<Markup> {
    let logs = [runs(plot), heights(plot)];
    let logs = if plot.series.is_empty() { Vec::new() } else { logs.into() };
    logs.into_iter().chain(databases(plot)).chain(results(plot)).collect()
}

fn or_nothing<T>(value: Option<T>, say: impl Fn(T) -> String) -> String {
    value.map_or(NOTHING.to_owned(), say)
}

/// Returns a table with the totals of each log.
fn runs(plot: &Plot) -> Markup {
    let heads = ["log", "written by", "last height", "reached after", "run ended after", "blocks per second"];
    let heads = heads.into_iter().chain(["highest memory", "largest coins cache", "bad lines"]);
    let rows = plot.series.iter().map(|series| {
        let last = series.points.last().copied().unwrap_or_default();
        let most = |of: fn(&Point) -> Option<u64>| {
            or_nothing(series.points.iter().filter_map(of).max(), |bytes| memory(bytes as f64))
        };
        let writer = series.writer.map(|writer| match writer {
            Writer::Peregrine => "Peregrine",
            Writer::Core => "Bitcoin Core",
        });
        vec![
            series.name.clone(),
            or_nothing(writer, str::to_owned),
            height(f64::from(last.height)),
            duration(last.seconds),
            duration(series.seconds()),
            or_nothing(last.bytes, |bytes| data(bytes as f64 / last.seconds.max(1e-9))),
            most(|point| point.memory_bytes),
            most(|point| point.cache_bytes),
            grouped(&series.bad_lines.to_string()),
        ]
    });
    table("Runs", heads.map(str::to_owned).collect(), rows)
}

/// Returns a table of times by height, and their ratios.
fn heights(plot: &Plot) -> Markup {
    let base = plot.series.get(plot.baseline);
    let top = plot.series.iter().map(Series::height).max();
    let mut heads = vec!["height".to_owned()];
    heads.extend(plot.series.iter().map(|series| series.name.clone()));
    heads.extend(plot.others().map(|(_, series)| format!("{}, times as fast", series.name)));
    let rows = steps(0, top.unwrap_or(0), ROWS).map(|at| {
        let mut row = vec![height(f64::from(at))];
        row.extend(
            plot.series.iter().map(|series| or_nothing(at_height(series, at, |p| Some(p.seconds)), duration)),
        );
        let ratios = plot.others().map(|(_, series)| base.and_then(|base| faster(base, series, at)));
        row.extend(ratios.map(|ratio| or_nothing(ratio, times)));
        row
    });
    table("Times by height", heads, rows)
}

/// Returns a table of what the databases of Bitcoin Core did, if a log says so.
fn databases(plot: &Plot) -> Option<Markup> {
    let heads = ["log", "cache flushes", "time in them", "part of the run", "longest", "coins written"];
    let heads = heads.into_iter().chain(["batches", "compactions", "compactions wrote"]);
    let active: Vec<_> = plot.series.iter().filter(|series| series.activity.has_any()).collect();
    let rows = active.iter().map(|series| {
        let activity = &series.activity;
        let some =
            |sum: &super::core_log::Sum, text: String| if sum.count > 0 { text } else { NOTHING.to_owned() };
        let flushes = &activity.flushes;
        vec![
            series.name.clone(),
            some(flushes, grouped(&flushes.count.to_string())),
            some(flushes, duration(flushes.total)),
            some(flushes, format!("{:.1} %", flushes.total / series.seconds().max(1e-9) * 100.0)),
            some(flushes, duration(flushes.greatest)),
            some(&activity.coins, grouped(&format!("{:.0}", activity.coins.total))),
            some(&activity.batches, data(activity.batches.total)),
            some(&activity.compactions, grouped(&activity.compactions.count.to_string())),
            some(&activity.compactions, data(activity.compactions.total)),
        ]
    });
    (!active.is_empty()).then(|| table("Bitcoin Core's databases", heads.map(str::to_owned).collect(), rows))
}

/// Returns a table of the results of hyperfine and of programs like it.
fn results(plot: &Plot) -> Option<Markup> {
    let heads = ["command", "median", "mean", "standard deviation", "shortest", "longest", "CPU", "runs"];
    let rows = plot.timings.iter().map(|timing| {
        let Timing { mean, stddev, min, max, user, system, times, .. } = timing;
        vec![
            timing.command.clone(),
            duration(timing.seconds()),
            duration(*mean),
            or_nothing(*stddev, duration),
            or_nothing(*min, duration),
            or_nothing(*max, duration),
            or_nothing(user.zip(*system), |(user, system)| duration(user + system)),
            if times.is_empty() { NOTHING.to_owned() } else { times.len().to_string() },
        ]
    });
    (!plot.timings.is_empty()).then(|| table("Results", heads.map(str::to_owned).into(), rows))
}

/// Returns a table that scrolls by itself where it is wider than the screen.
pub fn table(title: &str, heads: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        h2 { (title) }
        div class="scroll" tabindex="0" role="region" aria-label=(title) {
            table {
                thead { tr { @for head in &heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

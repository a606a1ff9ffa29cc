//! What the page says: a headline, charts of time and of memory by height, and what each log says of its run.
//! It has no script and no other file; its colours follow the reader's choice of light or dark.

use super::{
    chart::Chart,
    log::{Point, Series},
};
use crate::text::{duration, number};
use engine::HumanMemory;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Number of colours for lines.
pub const STYLES: usize = 6;

/// Returns the whole page. The first log is the one that others are compared with.
pub fn page(all: &[Series]) -> String {
    let (big, lines) = headline(all);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Chainstate rebuild: " (big) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main {
                    h1 { (big) }
                    @for line in lines { p { (line) } }
                    @for chart in charts(all).iter().filter_map(Chart::figure) { section { (chart) } }
                    @for series in all { section { h2 { (series.name) } (facts(series)) } }
                    footer { p { "Drawn by peregrine-bench " (env!("CARGO_PKG_VERSION")) "." } }
                }
            }
        }
    };
    document.into_string()
}

/// Returns the number that matters most, and what a reader must know before comparing the runs.
fn headline(all: &[Series]) -> (String, Vec<String>) {
    let failures = all.iter().filter_map(|series| {
        let code = series.exit_code.filter(|code| *code != 0)?;
        Some(format!("{} ended with exit code {code}.", series.name))
    });
    let base = &all[0];
    let Some(subject) = all.get(1) else {
        return (format!("Rebuilt in {}", duration(base.seconds())), failures.collect());
    };
    let top = base.height().min(subject.height());
    let is_whole = base.height() == subject.height();
    let time = |series: &Series| if is_whole { Some(series.seconds()) } else { series.time_at(top) };
    let Some((base_time, own_time)) = time(base).zip(time(subject)) else {
        return ("The runs have no height in common".to_owned(), failures.collect());
    };
    let (own, other) = (duration(own_time), duration(base_time));
    let mut line = format!("{} took {own}, {} {other}", subject.name, base.name);
    if !is_whole {
        line += &format!(" to height {}, the highest that both have reached", number(top.into()));
    }
    line += ". One run each.";
    for series in all.iter().filter(|series| series.logs_databases) {
        line += &format!(" {} also logged what its databases did, which takes time.", series.name);
    }
    let is_known = all.iter().all(|series| !series.settings.is_empty());
    if is_known && all.iter().any(|series| series.settings != base.settings) {
        let named = all.iter().map(|series| format!("{}: {}", series.name, series.settings.join(", ")));
        line += &format!(" Settings differ: {}.", named.collect::<Vec<_>>().join("; "));
    }
    (format!("{own} instead of {other}"), failures.chain([line]).chain(agreement(all)).collect())
}

/// Returns whether the runs had the same result, if the logs prove one or the other.
fn agreement(all: &[Series]) -> Option<String> {
    type Of = fn(&Series) -> Option<&String>;
    let results: [(&str, &str, Of); 2] = [
        ("UTXO hash", "Their UTXO sets differ", |series| series.utxo_hash.as_ref()),
        ("Last block", "They ended at different blocks", |series| series.tip.as_ref()),
    ];
    let has_same_height = all.iter().all(|series| series.height() == all[0].height());
    results.into_iter().filter(|_| has_same_height).find_map(|(what, said, of)| {
        let hashes = all.iter().map(of).collect::<Option<Vec<_>>>()?;
        Some(match hashes.iter().all(|hash| *hash == hashes[0]) {
            true => format!("✓ {what} equal: {}", hashes[0]),
            false => format!("{said}: times cannot be compared."),
        })
    })
}

/// Returns all that is known of a run.
fn facts(series: &Series) -> Markup {
    let last = series.points.last().map_or(0.0, |last| last.seconds);
    let (height, end) = (number(series.height().into()), duration(series.seconds()));
    let spent: Vec<_> =
        series.spent().into_iter().map(|(stage, seconds)| format!("{stage} {}", duration(seconds))).collect();
    let memory = series.points.iter().filter_map(|point| point.memory).max();
    let facts = [
        ("machine", series.machine.clone()),
        ("version", series.program.clone()),
        ("settings", series.settings.join(", ")),
        ("reached", format!("height {height} after {}; ended after {end}", duration(last))),
        ("stages", spent.join(", ")),
        ("last block", series.tip.clone().unwrap_or_default()),
        (
            "result",
            series.utxo_hash.as_ref().map_or(String::new(), |hash| format!("hash_serialized_3 {hash}")),
        ),
        ("exit code", series.exit_code.map_or(String::new(), |code| code.to_string())),
        (
            if series.is_core { "coins cache" } else { "memory" },
            memory.map_or(String::new(), |bytes| format!("{} at most", HumanMemory(bytes))),
        ),
    ];
    html! {
        dl {
            @for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
                dt { (name) }
                dd { (fact) }
            }
        }
    }
}

/// Returns the charts: the time at which each height was reached, and the memory there.
fn charts<'a>(all: &'a [Series]) -> [Chart<'a>; 2] {
    let chart = |title, y, is_log, of: fn(&Point) -> Option<f64>| {
        let points = |point: &Point| Some((f64::from(point.height), of(point)?));
        let curve = |(at, series): (usize, &'a Series)| {
            (at, series.name.as_str(), series.points.iter().filter_map(points).collect())
        };
        Chart { title, y, is_log, curves: all.iter().enumerate().map(curve).collect() }
    };
    [
        chart("Time to reach each height", "log scale; lower is better", true, |at| Some(at.seconds)),
        chart("Memory and coins cache", "MiB; of Bitcoin Core its coins cache alone", false, |at| {
            Some(at.memory? as f64 / 1_048_576.0)
        }),
    ]
}

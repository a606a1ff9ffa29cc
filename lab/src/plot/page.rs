//! What the page says: a headline, total times, time by height, stages, what was measured, and below them
//! all charts and numbers. It has no script and no other file; its colours follow the reader's choice of
//! light or dark.

use super::{
    chart::{Chart, Curve},
    core_log::Sum,
    log::{Point, Series},
};
use crate::text::{cut, duration, memory, number, times};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What marks a page as made by this program, so that it may be overwritten.
pub const MARK: &str = "<meta name=\"generator\" content=\"peregrine-bench\">";
/// Number of colours for lines.
pub const STYLES: usize = 6;
/// Number of heights at which logs are compared in the table, and in the picture.
const ROWS: u32 = 10;
const COMPARED: u32 = 200;

/// Returns the whole page. The first log is the one that others are compared with.
pub fn page(all: &[Series], from_height: u32) -> String {
    let (over, big, lines) = headline(all);
    let title = if all.len() == 1 { "This measurement" } else { "These measurements" };
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                (PreEscaped(MARK))
                title { (big) ": " (over) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main {
                    header { p { (over) } h1 { (big) } }
                    @for line in lines { p { (line) } }
                    @if all.len() > 1 { section { (total_times(all)) } }
                    @for chart in charts(all, from_height).iter().filter_map(Chart::figure) {
                        section { (chart) }
                    }
                    (stages(all))
                    section {
                        h2 { (title) }
                        @for series in all { h3 { (series.name) } (facts(series)) }
                    }
                    section { (heights(all)) }
                    footer { p { "Drawn by peregrine-bench " (env!("CARGO_PKG_VERSION")) "." } }
                }
            }
        }
    };
    document.into_string()
}

/// Returns a line of text, the number that matters most, and what a reader must know before comparing the
/// runs.
fn headline(all: &[Series]) -> (String, String, Vec<String>) {
    let base = &all[0];
    let failures = all.iter().filter_map(|series| {
        let code = series.exit_code.filter(|code| *code != 0)?;
        Some(format!("{} ended with exit code {code}.", series.name))
    });
    let height = |height: u32| number(f64::from(height));
    let Some(subject) = all.get(1) else {
        let over = format!("Chainstate rebuild · {}", base.name);
        let line = format!("Height {}.", height(base.height()));
        return (over, format!("Rebuilt in {}", duration(base.seconds())), failures.chain([line]).collect());
    };
    let top = base.height().min(subject.height());
    let is_whole = base.height() == subject.height();
    let time = |series: &Series| match is_whole {
        true => Some(series.seconds()),
        false => series.at_height(top, |point| Some(point.seconds)),
    };
    let over = format!("Chainstate rebuild · {} · height {}", subject.name, height(top));
    let Some((base_time, own_time)) = time(base).zip(time(subject)) else {
        return (
            over,
            format!("{} and {}", subject.name, base.name),
            vec!["They have no height in common.".into()],
        );
    };
    let (own, other) = (duration(own_time), duration(base_time));
    let mut line = format!("{} took {own}, {} {other}", subject.name, base.name);
    if !is_whole {
        line += &format!(" to height {}, the highest that both have reached", height(top));
    }
    line += ". One run each.";
    for series in all.iter().filter(|series| series.activity.has_any()) {
        line += &format!(" {} also logged what its databases did, which takes time.", series.name);
    }
    if all.iter().all(|series| !series.settings.is_empty()) && differ(all, |series| &series.settings) {
        let named = all.iter().map(|series| format!("{}: {}", series.name, series.settings));
        line += &format!(" Settings differ: {}.", named.collect::<Vec<_>>().join("; "));
    }
    (over, format!("{own} instead of {other}"), failures.chain([line]).chain(agreement(all)).collect())
}

fn differ<T: PartialEq>(all: &[Series], of: impl Fn(&Series) -> &T) -> bool {
    all.iter().any(|series| of(series) != of(&all[0]))
}

/// Returns whether the runs had the same result, if the logs prove one or the other.
fn agreement(all: &[Series]) -> Option<String> {
    type Of = fn(&Series) -> &Option<String>;
    let results: [(&str, &str, Of); 2] = [
        ("UTXO hash", "Their UTXO sets differ", |series| &series.utxo_hash),
        ("Last block", "They ended at different blocks", |series| &series.tip),
    ];
    let has_same_height = all.iter().all(|series| series.height() == all[0].height());
    let known =
        |(_, _, of): &(&str, &str, Of)| has_same_height && all.iter().all(|series| of(series).is_some());
    let (what, said, of) = results.into_iter().find(known)?;
    let first = of(&all[0]).as_deref().map(|hash| cut(hash, 17)).unwrap_or_default();
    Some(match differ(all, of) {
        true => format!("{said}: times cannot be compared."),
        false => format!("✓ {what} equal: {first}"),
    })
}

fn total_times(all: &[Series]) -> Markup {
    let row = |series: &Series| {
        let height = number(f64::from(series.height()));
        vec![
            series.name.clone(),
            series.program.clone(),
            series.settings.clone(),
            height,
            duration(series.seconds()),
        ]
    };
    table(
        "Total time",
        &["", "program", "settings", "to height", "time"].map(str::to_owned),
        all.iter().map(row),
    )
}

/// Returns in which stages the runs spent their time.
fn stages(all: &[Series]) -> Markup {
    html! {
        @if all.iter().any(|series| series.stages.len() > 1) {
            section {
                h2 { "Where the time went" }
                @for series in all.iter().filter(|series| series.stages.len() > 1) {
                    @if all.len() > 1 { h3 { (series.name) } }
                    ul {
                        @for (name, seconds) in series.spent() {
                            li { (name) " " b { (duration(seconds)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns all that is known of a run.
fn facts(series: &Series) -> Markup {
    let last = series.points.last().copied().unwrap_or_default();
    let most = |of: fn(&Point) -> Option<u64>| {
        series.points.iter().filter_map(of).max().map(|bytes| format!("{} at most", memory(bytes as f64)))
    };
    let tip = series.tip.as_ref().map_or(String::new(), |tip| format!(", block {tip}"));
    let (time, end) = (duration(last.seconds), duration(series.seconds()));
    let reached = format!("height {} after {time}{tip}; ended after {end}", number(f64::from(last.height)));
    let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let all = [
        ("machine", known(&series.machine)),
        ("version", known(&series.program)),
        ("settings", known(&series.settings)),
        ("reached", Some(reached)),
        ("result", series.utxo_hash.as_ref().map(|hash| format!("hash_serialized_3 {hash}"))),
        ("exit code", series.exit_code.map(|code| code.to_string())),
        ("memory", most(|point| point.memory_bytes)),
        ("coins cache", most(|point| point.cache_bytes)),
        ("databases", series.activity.in_words(series.seconds())),
        ("bad lines", (series.bad_lines > 0).then(|| series.bad_lines.to_string())),
    ];
    html! {
        dl {
            @for (name, fact) in all.into_iter().filter_map(|(name, fact)| Some((name, fact?))) {
                dt { (name) }
                // No line ends within a short word, such as an argument that begins with a hyphen.
                dd { @for word in fact.split(' ') { span { (word) } " " } }
            }
        }
    }
}

/// Returns a table of times by height, and their ratios.
fn heights(all: &[Series]) -> Markup {
    let (base, others) = (&all[0], &all[1..]);
    let names = all.iter().map(|series| series.name.clone());
    let ratios = others.iter().map(|series| format!("{}, times as fast", series.name));
    let heads: Vec<_> = ["height".to_owned()].into_iter().chain(names).chain(ratios).collect();
    let top = all.iter().map(Series::height).max().unwrap_or(0);
    let rows = steps(0, top, ROWS).map(|at| {
        let own = all.iter().map(|series| Some(duration(series.at_height(at, |it| Some(it.seconds))?)));
        let ratios = others.iter().map(|series| Some(times(series.faster_than(base, at)?)));
        let cells = own.chain(ratios).map(|cell| cell.unwrap_or("–".to_owned()));
        [number(f64::from(at))].into_iter().chain(cells).collect()
    });
    table("Times by height", &heads, rows)
}

/// Returns a table that scrolls by itself where it is wider than the screen.
fn table(title: &str, heads: &[String], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        h2 { (title) }
        div class="scroll" tabindex="0" role="region" aria-label=(title) {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
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

/// Returns all charts: the time at which each height was reached, how many times as fast that was as in the
/// first log, by height and by the time of the first (where slow parts of the chain are as wide as they are
/// long), times by bytes of blocks, memory, and what Bitcoin Core's databases did.
fn charts(all: &[Series], from_height: u32) -> Vec<Chart<'_>> {
    let base = &all[0];
    let chart = |title: String, x, y, is_log, points: &dyn Fn(&Series) -> Vec<(f64, f64)>| {
        let curve = |(at, series)| -> Curve<'_> { (at, series_name(series), points(series)) };
        Chart { title, x, y, is_log, curves: all.iter().enumerate().map(curve).collect() }
    };
    let by_height = |series: &Series, of: &dyn Fn(&Point) -> Option<f64>| {
        series.points.iter().filter_map(|at| Some((f64::from(at.height), of(at)?))).collect()
    };
    let ratios = |series: &Series, place: &dyn Fn(u32) -> Option<f64>| {
        let heights = steps(from_height, series.height().min(base.height()), COMPARED);
        heights.filter_map(|at| Some((place(at)?, series.faster_than(base, at)?))).collect()
    };
    let times = "log scale; lower is better";
    let mut charts = vec![chart("Time to reach each height".to_owned(), "height", times, true, &|series| {
        by_height(series, &|at| Some(at.seconds))
    })];
    if all.len() > 1 {
        let title = format!("Speed compared with {}", base.name);
        let by_time = |at| base.at_height(at, |point| Some(point.seconds));
        charts.push(chart(title.clone(), "height", "times as fast", false, &|series| {
            ratios(series, &|at| Some(f64::from(at)))
        }));
        charts.push(chart(format!("{title}, by its time"), "seconds", "times as fast", false, &|series| {
            ratios(series, &by_time)
        }));
    }
    let most =
        all.iter().filter(|it| it.points.iter().any(|at| at.bytes.is_some())).max_by_key(|it| it.height());
    if let Some(source) = most {
        let known = |at: &Point| at.bytes.map(|bytes| bytes as f64 / 1e6);
        let bytes = |at: &Point| known(at).or_else(|| source.at_height(at.height, known));
        charts.push(chart("Time by block data".to_owned(), "block data, MB", times, true, &|series| {
            series.points.iter().filter_map(|at| Some((bytes(at)?, at.seconds))).collect()
        }));
    }
    let what = "MiB; of Bitcoin Core its coins cache alone";
    charts.push(chart("Memory and coins cache".to_owned(), "height", what, false, &|series| {
        by_height(series, &|at| Some(at.memory_bytes.or(at.cache_bytes)? as f64 / 1_048_576.0))
    }));
    type Of = fn(&Series) -> &Sum;
    let databases: [(&str, &str, f64, Of); 3] = [
        ("time spent writing the coins cache", "seconds, sum", 1.0, |series| &series.activity.flushes),
        ("data for the coins database", "MB, sum", 1e6, |series| &series.activity.batches),
        ("data that compactions wrote", "MB, sum", 1e6, |series| &series.activity.compactions),
    ];
    for (what, y, unit, of) in databases {
        charts.push(chart(format!("Bitcoin Core: {what}"), "seconds", y, false, &|series| {
            of(series).points.kept.iter().map(|(at, sum)| (*at, sum / unit)).collect()
        }));
    }
    charts
}

fn series_name(series: &Series) -> &str {
    &series.name
}

/// Returns up to `count` heights above `from`, evenly spread, the last of which is `to`.
fn steps(from: u32, to: u32, count: u32) -> impl Iterator<Item = u32> {
    let span = to.saturating_sub(from);
    let count = count.min(span);
    let step = move |index| from + (u64::from(span) * u64::from(index) / u64::from(count)) as u32;
    (1..=count).map(step)
}

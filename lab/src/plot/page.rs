//! What the page says: a headline, total times, time by height, stages, what was measured, and below them
//! all charts and numbers.

use super::{
    COLUMNS, Plot,
    chart::Chart,
    charts,
    series::{Series, Writer, times_in_words},
};
use crate::{
    page::{Bar, STYLES, bars, document, facts, table},
    statistics::Ratio,
    text::{cut, duration, number, times},
};
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Least number of runs of each program for which a headline has a ratio.
const MIN_RUNS: usize = 3;
/// Number of heights at which logs are compared in the table.
const ROWS: u32 = 10;
/// What a data address escapes.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b',').remove(b'.').remove(b'_').remove(b'-');

/// Returns the whole page.
pub fn page(plot: &Plot) -> String {
    let Headline { over, big, lines, warning } = headline(plot);
    let (logs, results) = plot.series.split_at(plot.logs);
    let main = html! {
        @for line in lines { p { (line) } }
        @if let Some(warning) = warning { p class="warning" { (warning) } }
        // The headline has the time of a single run.
        @if logs.len() > 1 { section { h2 { "Total time" } (bars(&times_of(plot, logs, 0))) } }
        @if !results.is_empty() {
            section { h2 { "Measured times" } (bars(&times_of(plot, results, plot.logs))) }
        }
        @if let Some(chart) = charts::by_height(plot).figure() { section { (chart) } }
        (stages(logs))
        section {
            h2 { @if plot.series.len() == 1 { "This measurement" } @else { "These measurements" } }
            @for series in &plot.series {
                @if plot.series.len() > 1 { h3 { (series.name) } }
                (facts(series.facts()))
            }
        }
        @if !logs.is_empty() {
            details {
                summary { "More charts, and times by height as a table" }
                @for chart in charts::more(plot).iter().filter_map(Chart::figure) { section { (chart) } }
                section { (heights(plot, logs)) }
            }
        }
    };
    let csv = format!("data:text/csv;charset=utf-8,{}", utf8_percent_encode(&plot.csv, ESCAPED));
    let footer = html! {
        @if !logs.is_empty() {
            p class="download" {
                a download=(plot.csv_name) href=(csv) { "Download all points as CSV" }
                " (" (COLUMNS.replace(',', ", ")) ")"
            }
        }
    };
    document(&over, &big, main, footer)
}

/// What a reader should know first.
struct Headline {
    over: String,
    big: String,
    lines: Vec<String>,
    warning: Option<String>,
}

fn headline(plot: &Plot) -> Headline {
    let failure = plot.compared().iter().find_map(|series| {
        let code = series.about.exit_code.filter(|code| *code != 0)?;
        Some(format!("{} ended with exit code {code}.", series.name))
    });
    let base = &plot.series[plot.baseline];
    let Some(subject) = plot.others().next() else {
        let (over, big, line) = headline_of_one(base);
        return Headline { over, big, lines: vec![line], warning: failure };
    };
    let (top, is_whole) = (base.height().min(subject.height()), base.height() == subject.height());
    let time = |series: &Series| match is_whole {
        true => Some(series.seconds()),
        false => series.at_height(top, |point| Some(point.seconds)),
    };
    let height = number(f64::from(top));
    let over = match plot.logs {
        0 => format!("Measured times · {}", subject.name),
        _ => format!("Chainstate rebuild · {} · height {height}", subject.name),
    };
    let Some((base_time, own_time)) =
        time(base).zip(time(subject)).filter(|(base, own)| *base > 0.0 && *own > 0.0)
    else {
        let lines = vec!["They have no height in common.".to_owned()];
        return Headline {
            over,
            big: format!("{} and {}", subject.name, base.name),
            lines,
            warning: failure,
        };
    };
    let (own, other) = (duration(own_time), duration(base_time));
    let mut line = format!("{} took {own}, {} {other}", subject.name, base.name);
    if is_whole {
        for other in plot.others().skip(1).filter(|other| other.height() == top) {
            line += &format!("; {} {}", other.name, duration(other.seconds()));
        }
    } else {
        line += &format!(" to height {height}, the highest that both have reached");
    }
    let runs = [base.runs(), subject.runs()];
    let has_enough = runs.iter().all(|runs| runs.len() >= MIN_RUNS);
    let ratio = Ratio::of(&runs[0], &runs[1]).filter(|_| has_enough);
    let big = match ratio {
        Some(_) => comparison(base_time / own_time, &base.name),
        None => format!("{own} instead of {other}"),
    };
    let (proof, differ) = agreement(plot);
    let lines = [format!("{line}. {}", conditions(plot, ratio))].into_iter().chain(proof).collect();
    Headline { over, big, lines, warning: differ.or(failure) }
}

fn headline_of_one(series: &Series) -> (String, String, String) {
    let (name, time) = (&series.name, duration(series.seconds()));
    let reached = format!("Height {}", number(f64::from(series.height())));
    let over = format!("Chainstate rebuild · {name}");
    match (&series.timing, series.writer) {
        (Some(timing), _) => (format!("Measured times · {name}"), time, times_in_words(timing, true)),
        (None, Some(Writer::Core)) => (over, format!("{reached} in {time}"), format!("{reached}.")),
        (None, _) => {
            let blocks = series.blocks().map_or(String::new(), |blocks| format!(" {blocks}."));
            (over, format!("Rebuilt in {time}"), format!("{reached}.{blocks}"))
        }
    }
}

/// Returns how a time compares with that of the baseline. `ratio` is the baseline's time, divided by it.
fn comparison(ratio: f64, base: &str) -> String {
    // Benchmarks of commits call them `base (HASH)`.
    let base = cut(base.split(" (").next().unwrap_or(base), 30);
    match ratio {
        ratio if ratio >= 1.0 => format!("{}× as fast as {base}", times(ratio)),
        ratio => format!("{}× as long as {base}", times(1.0 / ratio)),
    }
}

/// Returns sentences about what a reader must know before comparing the runs.
fn conditions(plot: &Plot, ratio: Option<Ratio>) -> String {
    let all = plot.compared();
    let mut text = match ratio {
        Some(Ratio { low, high, .. }) => {
            format!("Medians; 95 % interval {} to {}× as fast.", times(low), times(high))
        }
        None if plot.logs > 0 => "One run each.".to_owned(),
        None => format!("No ratio: that needs {MIN_RUNS} runs of each."),
    };
    for series in all.iter().filter(|series| series.activity.has_any()) {
        text += &format!(" {} also logged what its databases did, which takes time.", series.name);
    }
    let settings: Vec<_> = all.iter().map(Series::short_settings).collect();
    if settings.windows(2).any(|pair| pair[0] != pair[1]) && settings.iter().all(|own| !own.is_empty()) {
        let named = all.iter().zip(&settings).map(|(series, own)| format!("{}: {own}", series.name));
        text += &format!(" Settings differ: {}.", named.collect::<Vec<_>>().join("; "));
    }
    text
}

/// Returns a line that says that the runs had the same result, if the logs prove it, and a warning if they
/// had not.
fn agreement(plot: &Plot) -> (Option<String>, Option<String>) {
    type Of = fn(&Series) -> Option<&str>;
    let results: [(&str, &str, Of); 2] = [
        ("UTXO hash", "Their UTXO sets differ", |series| series.about.utxo_hash.as_deref()),
        ("Last block", "They ended at different blocks", |series| series.about.tip.as_deref()),
    ];
    for (what, differ, of) in results.into_iter().filter(|_| plot.has_same_height()) {
        let Some(values) = plot.compared().iter().map(of).collect::<Option<Vec<_>>>() else { continue };
        return match values.windows(2).all(|pair| pair[0] == pair[1]) {
            true => (Some(format!("✓ {what} equal: {}", cut(values[0], 17))), None),
            false => (None, Some(format!("{differ}: times cannot be compared."))),
        };
    }
    (None, None)
}

/// Returns bars for the times of runs, of which the first has the place `from` in the page.
fn times_of(plot: &Plot, all: &[Series], from: usize) -> Vec<Bar> {
    let bar = |(at, series): (usize, &Series)| {
        let height = format!("to height {}", number(f64::from(series.height())));
        let height = if plot.has_same_height() { String::new() } else { height };
        let program = series.about.program.clone().unwrap_or_default();
        let spread = series.timing.as_ref().map_or(String::new(), |timing| times_in_words(timing, false));
        let about = [program, series.short_settings(), height, spread];
        Bar {
            style: plot.style(from + at),
            name: series.name.clone(),
            about: about.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "),
            seconds: series.seconds(),
            // The bar is the time of a single run.
            runs: Some(series.runs()).filter(|runs| runs.len() > 1).unwrap_or_default(),
        }
    };
    all.iter().enumerate().map(bar).collect()
}

/// Returns in which stages the runs spent their time.
fn stages(logs: &[Series]) -> Markup {
    let all: Vec<_> = logs.iter().map(|series| (series, series.spent())).collect();
    let color = |at: usize| format!("background:var(--c{})", (at + 1) % STYLES);
    html! {
        @if all.iter().any(|(_, spent)| spent.len() > 1) {
            section {
                h2 { "Where the time went" }
                @for (series, spent) in all.iter().filter(|(_, spent)| spent.len() > 1) {
                    @if logs.len() > 1 { h3 { (series.name) } }
                    div class="stages" aria-hidden="true" {
                        @for (at, (_, seconds)) in spent.iter().enumerate() {
                            span style=(format!("{};flex-grow:{:.3}", color(at), seconds * 1000.0)) {}
                        }
                    }
                    ul {
                        @for (at, (name, seconds)) in spent.iter().enumerate() {
                            li { i style=(color(at)) {} (name) " " b { (duration(*seconds)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a table of times by height, and their ratios.
fn heights(plot: &Plot, logs: &[Series]) -> Markup {
    let base = &plot.series[plot.baseline];
    let names = logs.iter().map(|series| series.name.clone());
    let ratios = plot.others().map(|series| format!("{}, times as fast", series.name));
    let heads: Vec<_> = ["height".to_owned()].into_iter().chain(names).chain(ratios).collect();
    let top = logs.iter().map(Series::height).max().unwrap_or(0);
    let rows = charts::steps(0, top, ROWS).map(|at| {
        let own = logs.iter().map(|series| Some(duration(series.at_height(at, |it| Some(it.seconds))?)));
        let ratios = plot.others().map(|series| Some(times(series.faster_than(base, at)?)));
        let cells = own.chain(ratios).map(|cell| cell.unwrap_or("–".to_owned()));
        [number(f64::from(at))].into_iter().chain(cells).collect()
    });
    table("Times by height", &heads, rows)
}

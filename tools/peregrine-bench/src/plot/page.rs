//! The page: a headline, total times, time by height, stages, what was measured, and below them all charts
//! and numbers. No script, no other file; colours follow the reader's choice of light or dark.

use super::{
    Plot, charts,
    log::{Series, Writer},
    numbers, tables,
    text::{cut, data, duration, height, times},
};
use engine::Stage;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What marks a page as made by this program, so that it may be overwritten.
pub const GENERATOR: &str = "peregrine-bench";
const STYLE: &str = include_str!("page.css");
/// Percent of a bar's room that the shortest bar has, so that it can be seen.
const LEAST_BAR: f64 = 0.6;

/// Returns the whole page.
pub fn page(plot: &Plot) -> String {
    let headline = headline(plot);
    let rest = [charts::more(plot), tables::all(plot)].concat();
    document(
        &format!("{}: {}", headline.big, headline.over),
        html! {
            header {
                p { (headline.over) }
                h1 { (headline.big) }
                p { (headline.sentence) }
                @if let Some(warning) = headline.warning { p class="warning" { (warning) } }
            }
            (totals(plot))
            (timings(plot))
            @if let Some(chart) = charts::by_height(plot).figure() { section { (chart) } }
            (stages(plot))
            (measurement(plot))
            @if !rest.is_empty() {
                details {
                    summary {
                        @if plot.series.is_empty() { "All numbers" }
                        @else { "More charts, and the numbers as tables" }
                    }
                    @for part in rest { section { (part) } }
                }
            }
            footer { (footer(plot)) }
        },
    )
}

/// Returns a page that has this in its main part.
pub fn document(title: &str, main: Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(GENERATOR);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (main) } }
        }
    };
    document.into_string()
}

/// What a reader should know first.
#[derive(Default)]
struct Headline {
    over: String,
    big: String,
    sentence: String,
    warning: Option<String>,
}

fn headline(plot: &Plot) -> Headline {
    match plot.series.get(plot.baseline) {
        None => headline_of_timings(plot),
        Some(base) => match plot.others().next() {
            None => headline_of_one(base),
            Some((_, subject)) => headline_of_two(plot, base, subject),
        },
    }
}

fn headline_of_one(series: &Series) -> Headline {
    let last = series.points.last().copied().unwrap_or_default();
    let time = duration(series.seconds());
    let reached = format!("Height {}", height(f64::from(series.height())));
    let size = last.bytes.map(|bytes| {
        let bytes = bytes as f64;
        format!("{} of blocks, checked at {}/s. ", data(bytes), data(bytes / last.seconds.max(1e-9)))
    });
    Headline {
        over: format!("Chainstate rebuild · {}", series.name),
        big: match series.writer {
            Some(Writer::Core) => format!("{reached} in {time}"),
            _ => format!("Rebuilt in {time}"),
        },
        sentence: format!("{reached}. {}", size.unwrap_or_default()).trim().to_owned(),
        warning: failure(series),
    }
}

/// Returns a sentence about a run that did not succeed.
fn failure(series: &Series) -> Option<String> {
    let code = series.about.exit_code.filter(|code| *code != 0)?;
    Some(format!("{} ended with exit code {code}.", series.name))
}

fn headline_of_two(plot: &Plot, base: &Series, subject: &Series) -> Headline {
    let top = base.height().min(subject.height());
    let is_whole = base.height() == subject.height();
    let time = |series: &Series| match is_whole {
        true => Some(series.seconds()),
        false => charts::at_height(series, top, |point| Some(point.seconds)),
    };
    let failed = plot.series.iter().find_map(failure);
    let over = format!("Chainstate rebuild · {} · height {}", subject.name, height(f64::from(top)));
    let Some((base_time, own_time)) =
        time(base).zip(time(subject)).filter(|(base, own)| *base > 0.0 && *own > 0.0)
    else {
        let big = format!("{} and {}", subject.name, base.name);
        return Headline {
            over,
            big,
            sentence: "They have no height in common.".to_owned(),
            warning: failed,
        };
    };
    let mut sentence = format!("{} instead of {}", duration(own_time), duration(base_time));
    if is_whole {
        for (_, other) in plot.others().skip(1).filter(|(_, other)| other.height() == top) {
            sentence += &format!("; {} {}", other.name, duration(other.seconds()));
        }
    } else {
        sentence += &format!(" to height {}, the highest that both have reached", height(f64::from(top)));
    }
    let (agreed, differ) = agreement(plot);
    Headline {
        over,
        big: comparison(base_time / own_time, &base.name),
        sentence: sentence + "." + &agreed,
        warning: differ.or(failed),
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

/// Returns a sentence that says that the runs had the same result, if the logs prove it, and a warning if
/// they had not.
fn agreement(plot: &Plot) -> (String, Option<String>) {
    let all = if plot.series.len() == 2 { "Both" } else { "All" };
    let same = |of: fn(&Series) -> Option<&str>| {
        let values = plot.series.iter().map(of).collect::<Option<Vec<_>>>()?;
        Some(values.windows(2).all(|pair| pair[0] == pair[1]))
    };
    let has_same_height = plot.series.windows(2).all(|pair| pair[0].height() == pair[1].height());
    match (same(|series| series.about.utxo_hash.as_deref()), same(|series| series.about.tip.as_deref())) {
        _ if !has_same_height => (String::new(), None),
        (Some(true), _) => (format!(" {all} arrived at the same UTXO set."), None),
        (Some(false), _) => {
            (String::new(), Some("Their UTXO sets differ: times cannot be compared.".to_owned()))
        }
        (None, Some(true)) => (format!(" {all} ended at the same block."), None),
        (None, Some(false)) => {
            (String::new(), Some("They ended at different blocks: times cannot be compared.".to_owned()))
        }
        (None, None) => (String::new(), None),
    }
}

fn headline_of_timings(plot: &Plot) -> Headline {
    let over = "Measured times".to_owned();
    let runs = |count: usize| if count > 1 { format!(", the median of {count} runs") } else { String::new() };
    let Some(base) = plot.timings.get(plot.baseline) else { return Headline { over, ..Headline::default() } };
    let subject = plot.timings.iter().enumerate().find(|(at, _)| *at != plot.baseline);
    match subject {
        None => Headline {
            over: format!("{over} · {}", base.command),
            big: duration(base.seconds()),
            sentence: format!(
                "{} takes {}{}.",
                base.command,
                duration(base.seconds()),
                runs(base.times.len())
            ),
            warning: None,
        },
        Some((_, subject)) => Headline {
            over: format!("{over} · {}", subject.command),
            big: comparison(base.seconds() / subject.seconds(), &base.command),
            sentence: format!(
                "{} instead of {}{}.",
                duration(subject.seconds()),
                duration(base.seconds()),
                runs(base.times.len().min(subject.times.len()))
            ),
            warning: None,
        },
    }
}

/// One bar of a picture of total times.
pub struct Bar {
    pub style: usize,
    pub name: String,
    pub about: String,
    pub seconds: f64,
}

fn bars(title: &str, bars: &[Bar]) -> Markup {
    html! {
        section {
            h2 { (title) }
            (rows(bars))
        }
    }
}

/// Returns bars, as long as their times.
pub fn rows(bars: &[Bar]) -> Markup {
    let longest = bars.iter().map(|bar| bar.seconds).fold(0.0, f64::max).max(1e-9);
    html! {
        @for Bar { style, name, about, seconds } in bars {
            div class="row" {
                span { (name) @if !about.is_empty() { small { (about) } } }
                span class="track" aria-hidden="true" {
                    span class=(format!("b{style}"))
                        style=(format!("width:{:.2}%", (seconds / longest * 100.0).max(LEAST_BAR))) {}
                }
                b { (duration(*seconds)) }
            }
        }
    }
}

fn totals(plot: &Plot) -> Markup {
    let has_same_height = plot.series.windows(2).all(|pair| pair[0].height() == pair[1].height());
    let bar = |(at, series): (usize, &Series)| Bar {
        style: plot.style(at),
        name: series.name.clone(),
        about: {
            let program = series.about.program.iter().cloned();
            // A hash is no use here; it is in the card.
            let settings = series.about.settings.iter().filter(|setting| setting.len() < 40).cloned();
            let top = format!("to height {}", height(f64::from(series.height())));
            let top = (!has_same_height).then_some(top);
            program.chain(settings).chain(top).collect::<Vec<_>>().join(", ")
        },
        seconds: series.seconds(),
    };
    let all: Vec<_> = plot.series.iter().enumerate().map(bar).collect();
    // The headline has the time of a single run.
    html! { @if all.len() > 1 { (bars("Total time", &all)) } }
}

fn timings(plot: &Plot) -> Markup {
    let bar = |(at, timing): (usize, &crate::hyperfine::Timing)| Bar {
        style: if plot.series.is_empty() { plot.style(at) } else { (at + 1) % super::STYLES },
        name: timing.command.clone(),
        about: match (timing.times.len(), timing.min, timing.max) {
            (runs, Some(min), Some(max)) if runs > 1 => {
                format!("median of {runs} runs, {} to {}", duration(min), duration(max))
            }
            _ => String::new(),
        },
        seconds: timing.seconds(),
    };
    let all: Vec<_> = plot.timings.iter().enumerate().map(bar).collect();
    html! { @if !all.is_empty() { (bars("Measured times", &all)) } }
}

/// Returns in which stages the runs spent their time.
fn stages(plot: &Plot) -> Markup {
    let all = plot.series.iter().map(|series| (series, spent(series)));
    let all: Vec<_> = all.filter(|(_, spent)| spent.len() > 1).collect();
    let color = |at: usize| format!("t{}", at % super::STYLES);
    html! {
        @if !all.is_empty() {
            section {
                h2 { "Where the time went" }
                @for (series, spent) in all {
                    @if plot.series.len() > 1 { h3 { (series.name) } }
                    div class="stages" aria-hidden="true" {
                        @for (at, (_, seconds)) in spent.iter().enumerate() {
                            span class=(color(at)) style=(format!("flex-grow:{:.3}", seconds * 1000.0)) {}
                        }
                    }
                    ul {
                        @for (at, (name, seconds)) in spent.iter().enumerate() {
                            li { i class=(color(at)) {} (name) " " b { (duration(*seconds)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the seconds that a run spent in each stage.
fn spent(series: &Series) -> Vec<(&str, f64)> {
    let mut spent: Vec<(&str, f64)> = Vec::new();
    let ends = series.stages.iter().skip(1).map(|(begin, _)| *begin).chain([series.seconds()]);
    for ((begin, stage), end) in series.stages.iter().zip(ends) {
        let (name, seconds) = (stage_name(stage), (end - begin).max(0.0));
        match spent.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += seconds,
            None => spent.push((name, seconds)),
        }
    }
    spent
}

/// Returns the name of a stage for readers who do not know the program.
fn stage_name(stage: &str) -> &str {
    let known = Stage::ALL.into_iter().find(|known| known.name() == stage);
    match known {
        Some(Stage::Plan) => "choose the chain",
        Some(Stage::Check) => "check blocks",
        Some(Stage::Undo) => "make undo data",
        Some(Stage::Sequential) => "validate in order",
        Some(Stage::Finish) => "write the chainstate",
        Some(Stage::Prove) => "read it back",
        Some(Stage::Commit) => "put it in place",
        _ => stage,
    }
}

/// Returns a card that says what was measured, where and how, and with which result.
fn measurement(plot: &Plot) -> Markup {
    let hashes: Vec<_> = plot.series.iter().filter_map(|series| series.about.utxo_hash.as_deref()).collect();
    let is_same =
        hashes.len() > 1 && hashes.len() == plot.series.len() && hashes.iter().all(|hash| *hash == hashes[0]);
    let facts = |series: &Series| {
        let about = &series.about;
        let hash = about.utxo_hash.as_ref().map(|hash| {
            let mark = if is_same { " ✓ the same in all runs" } else { "" };
            format!("hash_serialized_3 {hash}{mark}")
        });
        let tip = about.tip.as_ref().map(|tip| format!(", block {tip}")).unwrap_or_default();
        let settings = Some(about.settings.join(", ")).filter(|settings| !settings.is_empty());
        let all = [
            ("command", about.command.clone()),
            ("machine", about.machine.clone()),
            ("version", about.program.clone()),
            ("settings", settings),
            ("reached", Some(format!("height {}{tip}", height(f64::from(series.height()))))),
            ("result", hash),
            ("exit code", about.exit_code.map(|code| code.to_string())),
        ];
        all.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect::<Vec<_>>()
    };
    html! {
        @if !plot.series.is_empty() {
            section {
                h2 { @if plot.series.len() == 1 { "This measurement" } @else { "These measurements" } }
                @for series in &plot.series {
                    @if plot.series.len() > 1 { h3 { (series.name) } }
                    dl {
                        @for (name, fact) in facts(series) {
                            dt { (name) }
                            // No line ends within a short argument.
                            dd { @for word in fact.split(' ') { span { (word) } " " } }
                        }
                    }
                }
            }
        }
    }
}

fn footer(plot: &Plot) -> Markup {
    let logs = plot.series.iter().map(|series| match &series.about.program {
        Some(program) => format!("{} ({program})", series.name),
        None => series.name.clone(),
    });
    let logs = logs.collect::<Vec<_>>().join(", ");
    html! {
        @if !plot.series.is_empty() {
            p class="download" {
                @let address = format!("data:text/csv;charset=utf-8,{}", in_address(&plot.csv));
                a download=(plot.csv_name) href=(address) { "Download all points as CSV" }
                " (" (numbers::COLUMNS.replace(',', ", ")) ")"
            }
        }
        p {
            "Drawn by " (GENERATOR) " " (env!("CARGO_PKG_VERSION"))
            @if !logs.is_empty() { " from the logs of " (logs) }
            "."
        }
    }
}

/// Writes a text so that it can stand in a data address.
fn in_address(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + text.len() / 8);
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b',' | b'.' | b'_' | b'-' => safe.push(byte.into()),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
}

//! The page: charts, a legend, and the numbers as tables. No script, no other file; colours follow the
//! reader's choice of light or dark.

use super::{
    Plot,
    chart::{Axis, Chart, Curve, escaped, grouped, precise},
    log::{Point, Series, Writer},
};
use std::fmt::Write;

/// Number of heights at which logs are compared, in the picture and in the table.
const COMPARED: u32 = 200;
const ROWS: u32 = 10;
/// A ratio of shorter times is noise.
const LEAST_SECONDS: f64 = 0.001;

/// Returns the whole page.
pub fn html(plot: &Plot) -> String {
    let mut body = String::new();
    for (chart, about) in charts(plot) {
        if let Some(svg) = chart.svg() {
            let _ = write!(
                body,
                "<figure>\n<h2>{}</h2>\n{}{svg}<figcaption>{}</figcaption>\n</figure>\n",
                escaped(&chart.title),
                legend(&chart.curves),
                escaped(&about)
            );
        }
    }
    body.push_str(&summary(plot));
    body.push_str(&times(plot));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Chainstate rebuilds</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Chainstate rebuilds</h1>\n{body}\
         <p class=\"note\">Drawn by peregrine {}.</p>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

const STYLE: &str = include_str!("page.css");

fn charts(plot: &Plot) -> Vec<(Chart, String)> {
    let series = &plot.series;
    let longest = series.iter().filter_map(|series| series.points.last()).map(|point| point.seconds);
    let time = time_axis(longest.fold(0.0, f64::max));
    let axis = |title: &str, unit| Axis { title: title.to_owned(), unit, from_zero: true };
    let seconds = || axis(&format!("time, {}", time.0), time.1);
    let curves = |of: &dyn Fn(&Point) -> Option<(f64, f64)>| lines(series, |_, point| of(point));
    let mut charts = vec![(
        Chart {
            id: "height",
            title: "Time by height".to_owned(),
            x: axis("height", 1.0),
            y: seconds(),
            curves: curves(&|point| Some((f64::from(point.height), point.seconds))),
            level: None,
        },
        "From the start of each run. A run's last stages, after its last block, are in the table below."
            .to_owned(),
    )];
    // The log that reports bytes up to the greatest height also provides the bytes of the others.
    let telling = series.iter().filter(|series| series.points.iter().any(|point| point.bytes.is_some()));
    if let Some(telling) = telling.max_by_key(|series| series.points.last().map(|point| point.height)) {
        let by_bytes = |_: usize, point: &Point| {
            let bytes = point.bytes.map(|bytes| bytes as f64);
            Some((
                bytes.or_else(|| at_height(telling, point.height, |p| p.bytes.map(|b| b as f64)))?,
                point.seconds,
            ))
        };
        charts.push((
            Chart {
                id: "bytes",
                title: "Time by block data".to_owned(),
                x: axis("block data, GB", 1e9),
                y: seconds(),
                curves: lines(series, by_bytes),
                level: None,
            },
            format!("Where a log tells heights only, bytes are those that {} tells.", telling.name),
        ));
    }
    if series.len() > 1 {
        charts.push(ratio(plot));
    }
    charts.push((
        Chart {
            id: "memory",
            title: "Cache and memory over time".to_owned(),
            x: seconds(),
            y: axis("MiB", 1_048_576.0),
            curves: curves(&|point| Some((point.seconds, point.memory_bytes.or(point.cache_bytes)? as f64))),
            level: None,
        },
        "Peregrine: resident memory of the process. Bitcoin Core: its coins cache alone.".to_owned(),
    ));
    charts
}

/// Returns how many times as fast as the baseline each other log reached a height.
fn ratio(plot: &Plot) -> (Chart, String) {
    let base = &plot.series[plot.baseline];
    let top = base.points.last().map_or(0, |point| point.height);
    let curves = others(plot)
        .map(|(style, series)| {
            let top = series.points.last().map_or(0, |point| point.height).min(top);
            let points = steps(plot.from_height, top, COMPARED);
            let points = points.filter_map(|height| Some((f64::from(height), faster(base, series, height)?)));
            Curve { style, name: series.name.clone(), points: points.collect() }
        })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let from = plot.from_height;
    let chart = Chart {
        id: "ratio",
        title: format!("Speed, compared with {}", base.name),
        x: Axis { title: "height".to_owned(), unit: 1.0, from_zero: from == 0 },
        y: Axis { title: "times as fast".to_owned(), unit: 1.0, from_zero: true },
        curves,
        level: Some(1.0),
    };
    let heights = if from == 0 { "all heights".to_owned() } else { format!("heights from {from} on") };
    (chart, format!("Time of {} up to a height, by that of the other log; {heights}.", base.name))
}

fn others(plot: &Plot) -> impl Iterator<Item = (usize, &Series)> {
    plot.series.iter().enumerate().filter(|(index, _)| *index != plot.baseline)
}

/// Returns how many times as fast as `base` the run `series` reached a height.
fn faster(base: &Series, series: &Series, height: u32) -> Option<f64> {
    let [base, own] = [base, series].map(|series| at_height(series, height, |point| Some(point.seconds)));
    let (base, own) = base.zip(own)?;
    (own >= LEAST_SECONDS && base >= LEAST_SECONDS).then(|| base / own)
}

fn steps(from: u32, to: u32, count: u32) -> impl Iterator<Item = u32> {
    let span = u64::from(to.saturating_sub(from));
    let step = move |index: u32| from + (span * u64::from(index) / u64::from(count)) as u32;
    (1..=count.min(span as u32))
        .map(move |index| if span < u64::from(count) { from + index } else { step(index) })
}

/// Returns the value of a log at a height, interpolated linearly; `None` outside its points.
fn at_height(series: &Series, height: u32, of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    let after = series.points.partition_point(|point| point.height < height);
    let above = series.points.get(after)?;
    if above.height == height {
        return of(above);
    }
    let below = series.points.get(after.checked_sub(1)?)?;
    let share = f64::from(height - below.height) / f64::from(above.height - below.height);
    let (low, high) = of(below).zip(of(above))?;
    Some(low + (high - low) * share)
}

fn lines(series: &[Series], of: impl Fn(usize, &Point) -> Option<(f64, f64)>) -> Vec<Curve> {
    let curve = |(style, series): (usize, &Series)| Curve {
        style,
        name: series.name.clone(),
        points: series.points.iter().filter_map(|point| of(style, point)).collect(),
    };
    series.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

fn time_axis(longest: f64) -> (&'static str, f64) {
    match longest {
        seconds if seconds > 3.0 * 3600.0 => ("hours", 3600.0),
        seconds if seconds > 180.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    }
}

fn legend(curves: &[Curve]) -> String {
    let mut text = "<ul class=\"legend\">".to_owned();
    for curve in curves {
        let _ = write!(
            text,
            "<li><svg viewBox=\"0 0 36 8\" aria-hidden=\"true\">\
             <path class=\"c{}\" d=\"M0 4H36\"/></svg>{}</li>",
            curve.style,
            escaped(&curve.name)
        );
    }
    text + "</ul>\n"
}

/// Returns a table with the totals of each log.
fn summary(plot: &Plot) -> String {
    let heads =
        ["log", "written by", "last height", "reached after, s", "run ended after, s", "blocks, MB/s"];
    let heads = heads.into_iter().chain(["most memory, MiB", "most cache, MiB", "bad lines"]);
    let rows = plot.series.iter().map(|series| {
        let last = series.points.last().copied().unwrap_or_default();
        let most = |of: fn(&Point) -> Option<u64>| {
            let most = series.points.iter().filter_map(of).max();
            most.map_or("not told".to_owned(), |bytes| precise(bytes as f64 / 1_048_576.0))
        };
        let rate = last.bytes.map(|bytes| precise(bytes as f64 / 1e6 / last.seconds.max(1e-9)));
        vec![
            series.name.clone(),
            series
                .writer
                .map_or("", |writer| match writer {
                    Writer::Peregrine => "Peregrine",
                    Writer::Core => "Bitcoin Core",
                })
                .to_owned(),
            grouped(&last.height.to_string()),
            precise(last.seconds),
            precise(series.end.unwrap_or(last.seconds)),
            rate.unwrap_or("not told".to_owned()),
            most(|point| point.memory_bytes),
            most(|point| point.cache_bytes),
            grouped(&series.bad_lines.to_string()),
        ]
    });
    table("Runs", heads.map(str::to_owned).collect(), rows)
}

/// Returns a table of times by height, and their ratios.
fn times(plot: &Plot) -> String {
    let base = &plot.series[plot.baseline];
    let top = plot.series.iter().filter_map(|series| series.points.last()).map(|point| point.height).max();
    let mut heads = vec!["height".to_owned()];
    heads.extend(plot.series.iter().map(|series| format!("{}, s", series.name)));
    heads.extend(others(plot).map(|(_, series)| format!("{}, times as fast", series.name)));
    let rows = steps(0, top.unwrap_or(0), ROWS).map(|height| {
        let said = |number: Option<f64>| number.map_or("–".to_owned(), precise);
        let mut row = vec![grouped(&height.to_string())];
        row.extend(plot.series.iter().map(|series| said(at_height(series, height, |p| Some(p.seconds)))));
        row.extend(others(plot).map(|(_, series)| said(faster(base, series, height))));
        row
    });
    table("Times by height", heads, rows)
}

fn table(title: &str, heads: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let cells = |cells: &[String]| {
        cells.iter().fold(String::new(), |text, cell| text + &format!("<td>{}</td>", escaped(cell)))
    };
    let heads = heads
        .iter()
        .fold(String::new(), |text, head| text + &format!("<th scope=\"col\">{}</th>", escaped(head)));
    let mut text =
        format!("<h2>{title}</h2>\n<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n");
    for row in rows {
        let Some((first, rest)) = row.split_first() else { continue };
        let _ = writeln!(text, "<tr><th scope=\"row\">{}</th>{}</tr>", escaped(first), cells(rest));
    }
    text + "</tbody></table></div>\n"
}

//! Which charts a page has, and what they say.

use super::{
    Plot,
    chart::{Axis, Chart, Curve, Scale},
    core_log::Sum,
    log::{Point, Series, Writer},
    text::{data, duration, height, memory, short, short_height, times},
};
use maud::Markup;

/// Number of heights at which logs are compared in the picture.
const COMPARED: u32 = 200;
/// A ratio of shorter times is noise.
const LEAST_SECONDS: f64 = 0.001;
const MIB: f64 = 1_048_576.0;

/// Returns the chart that matters most: the time at which each height was reached.
pub fn by_height(plot: &Plot) -> Chart {
    Chart {
        id: "height",
        title: "Time to reach each height".to_owned(),
        subtitle: "log scale; lower is better".to_owned(),
        caption:
            "From the start of each run to the block of that height. What follows the last block is part of \
                  the total time only."
                .to_owned(),
        x: heights(true),
        y: log_times(),
        curves: curves(plot, |point| Some((f64::from(point.height), point.seconds))),
        level: None,
    }
}

/// Returns all other charts.
pub fn more(plot: &Plot) -> Vec<Markup> {
    let charts = [ratio(plot), ratio_by_time(plot), by_bytes(plot), by_memory(plot)]
        .into_iter()
        .flatten()
        .chain(activity(plot));
    charts.filter_map(|chart| chart.figure()).collect()
}

fn heights(from_zero: bool) -> Axis {
    Axis {
        title: "height".to_owned(),
        scale: Scale::Linear { unit: 1.0, from_zero },
        tick: short_height,
        say: |value| format!("height {}", height(value)),
    }
}

fn log_times() -> Axis {
    Axis { title: String::new(), scale: Scale::Log, tick: duration, say: duration }
}

fn linear(title: &str, unit: f64, say: fn(f64) -> String) -> Axis {
    Axis { title: title.to_owned(), scale: Scale::Linear { unit, from_zero: true }, tick: short, say }
}

/// Returns an axis of times, for charts that show when something happened.
fn elapsed(longest: f64, from_zero: bool) -> Axis {
    let (name, unit) = match longest {
        seconds if seconds > 3.0 * 3600.0 => ("hours", 3600.0),
        seconds if seconds > 180.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    };
    let scale = Scale::Linear { unit, from_zero };
    Axis { scale, ..linear(&format!("time, {name}"), unit, duration) }
}

fn curves(plot: &Plot, of: impl Fn(&Point) -> Option<(f64, f64)>) -> Vec<Curve> {
    let curve = |(at, series): (usize, &Series)| Curve {
        style: plot.style(at),
        name: series.name.clone(),
        points: series.points.iter().filter_map(&of).collect(),
    };
    plot.series.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// Returns how many times as fast as the baseline each other log reached a height.
fn ratio(plot: &Plot) -> Option<Chart> {
    let base = plot.series.get(plot.baseline)?;
    Some(Chart {
        id: "ratio",
        title: format!("Speed compared with {}", base.name),
        subtitle: "times as fast".to_owned(),
        caption: format!(
            "Time of {} up to a height, divided by that of the other log.{}",
            base.name,
            heights_from(plot)
        ),
        x: heights(plot.from_height == 0),
        y: ratios(),
        curves: compared(plot, base, |height| Some(f64::from(height))),
        level: Some(1.0),
    })
    .filter(|chart| !chart.curves.is_empty())
}

/// The same ratios, where each height is at the time at which the baseline reached it: slow parts of the
/// chain are as wide as they are long.
fn ratio_by_time(plot: &Plot) -> Option<Chart> {
    let base = plot.series.get(plot.baseline)?;
    let time = |height| at_height(base, height, |point| Some(point.seconds));
    Some(Chart {
        id: "ratiotime",
        title: format!("Speed compared with {}, by its time", base.name),
        subtitle: "times as fast".to_owned(),
        caption: format!(
            "The same ratios, where {} was after a time on the horizontal axis.{}",
            base.name,
            heights_from(plot)
        ),
        x: elapsed(base.seconds(), plot.from_height == 0),
        y: ratios(),
        curves: compared(plot, base, time),
        level: Some(1.0),
    })
    .filter(|chart| !chart.curves.is_empty())
}

fn ratios() -> Axis {
    linear("", 1.0, |ratio| format!("{} times as fast", times(ratio)))
}

fn heights_from(plot: &Plot) -> String {
    match plot.from_height {
        0 => String::new(),
        from => format!(" Heights from {} on.", height(f64::from(from))),
    }
}

/// Returns how many times as fast as the baseline each other log reached heights, which `place` puts on the
/// horizontal axis.
fn compared(plot: &Plot, base: &Series, place: impl Fn(u32) -> Option<f64>) -> Vec<Curve> {
    let curve = |(at, series): (usize, &Series)| {
        let points = steps(plot.from_height, series.height().min(base.height()), COMPARED);
        let points = points.filter_map(|height| Some((place(height)?, faster(base, series, height)?)));
        Curve { style: plot.style(at), name: series.name.clone(), points: points.collect() }
    };
    plot.others().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

fn by_bytes(plot: &Plot) -> Option<Chart> {
    // The log that reports bytes up to the greatest height also provides the bytes of the others.
    let has_bytes = |series: &Series| series.points.iter().any(|point| point.bytes.is_some());
    let source =
        plot.series.iter().filter(|series| has_bytes(series)).max_by_key(|series| series.height())?;
    let bytes = |point: &Point| {
        let own = point.bytes.map(|bytes| bytes as f64);
        own.or_else(|| at_height(source, point.height, |point| point.bytes.map(|bytes| bytes as f64)))
    };
    let most = source.points.iter().filter_map(|point| point.bytes).max().unwrap_or(0);
    let (unit, name) = if most >= 1_000_000_000 { (1e9, "GB") } else { (1e6, "MB") };
    let is_borrowed = plot.series.iter().any(|series| !has_bytes(series));
    let borrowed = format!("Where a log has heights only, the bytes are those of {}.", source.name);
    Some(Chart {
        id: "bytes",
        title: "Time by block data".to_owned(),
        subtitle: "log scale; lower is better".to_owned(),
        caption: if is_borrowed { borrowed } else { String::new() },
        x: linear(&format!("block data, {name}"), unit, data),
        y: log_times(),
        curves: curves(plot, |point| Some((bytes(point)?, point.seconds))),
        level: None,
    })
}

fn by_memory(plot: &Plot) -> Option<Chart> {
    let is_by = |writer| plot.series.iter().any(|series| series.writer == Some(writer));
    let (ours, cores) =
        ("Peregrine: resident memory of the process.", "Bitcoin Core: its coins cache alone.");
    let (title, caption) = match (is_by(Writer::Peregrine), is_by(Writer::Core)) {
        (true, true) => ("Memory and coins cache", format!("{ours} {cores}")),
        (true, false) => ("Memory", "Resident memory of the process.".to_owned()),
        (false, _) => ("Coins cache", String::new()),
    };
    Some(Chart {
        id: "memory",
        title: title.to_owned(),
        subtitle: "MiB".to_owned(),
        caption,
        x: heights(true),
        y: linear("", MIB, memory),
        curves: curves(plot, |point| {
            Some((f64::from(point.height), point.memory_bytes.or(point.cache_bytes)? as f64))
        }),
        level: None,
    })
}

/// What Bitcoin Core's databases did, if its log says so.
fn activity(plot: &Plot) -> Vec<Chart> {
    let longest = plot.series.iter().filter(|series| series.activity.has_any()).map(Series::seconds);
    let longest = longest.fold(0.0, f64::max);
    let chart =
        |id, title: &str, (subtitle, unit, say): (&str, f64, fn(f64) -> String), of: fn(&Series) -> &Sum| {
            let curve = |(at, series): (usize, &Series)| Curve {
                style: plot.style(at),
                name: series.name.clone(),
                points: steps_of(of(series), series.seconds()),
            };
            Chart {
                id,
                title: title.to_owned(),
                subtitle: subtitle.to_owned(),
                caption: String::new(),
                x: elapsed(longest, true),
                y: linear("", unit, say),
                curves: plot
                    .series
                    .iter()
                    .enumerate()
                    .map(curve)
                    .filter(|curve| !curve.points.is_empty())
                    .collect(),
                level: None,
            }
        };
    vec![
        chart(
            "flushes",
            "Bitcoin Core: time spent writing the coins cache",
            ("seconds, sum", 1.0, duration),
            |series| &series.activity.flushes,
        ),
        chart("batches", "Bitcoin Core: data for the coins database", ("MB, sum", 1e6, data), |series| {
            &series.activity.batches
        }),
        chart(
            "compactions",
            "Bitcoin Core: data that LevelDB's compactions wrote",
            ("MB, sum", 1e6, data),
            |series| &series.activity.compactions,
        ),
    ]
}

/// Returns a sum over time as a line with steps, from the start to the end of the run.
fn steps_of(sum: &Sum, end: f64) -> Vec<(f64, f64)> {
    if sum.count == 0 {
        return Vec::new();
    }
    let mut points = vec![(0.0, 0.0)];
    for &(seconds, total) in &sum.points.kept {
        points.extend([(seconds, points.last().map_or(0.0, |last| last.1)), (seconds, total)]);
    }
    let last = points.last().map_or(0.0, |last| last.0);
    points.push((end.max(last), sum.total));
    points
}

/// Returns how many times as fast as `base` the run `series` reached a height.
pub fn faster(base: &Series, series: &Series, height: u32) -> Option<f64> {
    let [base, own] = [base, series].map(|series| at_height(series, height, |point| Some(point.seconds)));
    let (base, own) = base.zip(own)?;
    (own >= LEAST_SECONDS && base >= LEAST_SECONDS).then(|| base / own)
}

/// Returns up to `count` heights above `from`, evenly spread, the last of which is `to`.
pub fn steps(from: u32, to: u32, count: u32) -> impl Iterator<Item = u32> {
    let span = u64::from(to.saturating_sub(from));
    let step = move |index: u32| from + (span * u64::from(index) / u64::from(count)) as u32;
    (1..=count.min(span as u32))
        .map(move |index| if span < u64::from(count) { from + index } else { step(index) })
}

/// Returns the value of a log at a height, interpolated linearly; `None` outside its points.
pub fn at_height(series: &Series, height: u32, of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
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

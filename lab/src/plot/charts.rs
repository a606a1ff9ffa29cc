//! Which charts a page has, and what they say.

use super::{
    Plot,
    chart::{Axis, Chart, Curve},
    core_log::{Activity, Sum},
    series::{Point, Series, Writer},
};
use crate::text::{data, duration, memory, number, times};

/// Number of heights at which logs are compared in the picture.
const COMPARED: u32 = 200;
const LOWER_IS_BETTER: &str = "log scale; lower is better";

/// Returns the chart that matters most: the time at which each height was reached.
pub fn by_height(plot: &Plot) -> Chart {
    Chart {
        title: "Time to reach each height".to_owned(),
        subtitle: LOWER_IS_BETTER,
        caption: "From the start of each run to the block of that height. What follows the last block is \
                  part of the total time only."
            .to_owned(),
        x: heights(),
        y: log_times(),
        curves: curves(plot, |series| points(series, |at| Some((f64::from(at.height), at.seconds)))),
    }
}

/// Returns all other charts.
pub fn more(plot: &Plot) -> Vec<Chart> {
    let mut charts = ratios(plot);
    charts.extend(by_bytes(plot));
    charts.push(by_memory(plot));
    charts.extend(activity(plot));
    charts
}

fn axis(title: &str, unit: f64, say: fn(f64) -> String) -> Axis {
    Axis { title: title.to_owned(), unit: Some(unit), say }
}

fn heights() -> Axis {
    axis("height", 1.0, |value| format!("height {}", number(value)))
}

fn log_times() -> Axis {
    Axis { title: String::new(), unit: None, say: duration }
}

/// Returns an axis of times, for charts that show when something happened.
fn elapsed(longest: f64) -> Axis {
    let (name, unit) = match longest {
        seconds if seconds > 3.0 * 3600.0 => ("hours", 3600.0),
        seconds if seconds > 180.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    };
    axis(&format!("time, {name}"), unit, duration)
}

/// Returns a line for each log that has points.
fn curves(plot: &Plot, points: impl Fn(&Series) -> Vec<(f64, f64)>) -> Vec<Curve> {
    let all = plot.series.iter().enumerate();
    let curve = |(at, series): (usize, &Series)| Curve {
        style: plot.style(at),
        name: series.name.clone(),
        points: points(series),
    };
    all.map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

fn points(series: &Series, of: impl Fn(&Point) -> Option<(f64, f64)>) -> Vec<(f64, f64)> {
    series.points.iter().filter_map(of).collect()
}

/// Returns how many times as fast as the baseline each log reached a height: by height, and by the time at
/// which the baseline reached it, where slow parts of the chain are as wide as they are long.
fn ratios(plot: &Plot) -> Vec<Chart> {
    let Some(base) = plot.series.get(plot.baseline).filter(|_| plot.series.len() > 1) else {
        return Vec::new();
    };
    let name = &base.name;
    let from = match plot.from_height {
        0 => String::new(),
        from => format!(" Heights from {} on.", number(f64::from(from))),
    };
    let chart = |title: String, caption: String, x: Axis, place: &dyn Fn(u32) -> Option<f64>| Chart {
        title,
        subtitle: "times as fast",
        caption: caption + &from,
        x,
        y: axis("", 1.0, |ratio| format!("{} times as fast", times(ratio))),
        curves: curves(plot, |series| {
            let heights = steps(plot.from_height, series.height().min(base.height()), COMPARED);
            heights.filter_map(|at| Some((place(at)?, series.faster_than(base, at)?))).collect()
        }),
    };
    vec![
        chart(
            format!("Speed compared with {name}"),
            format!("Time of {name} up to a height, divided by that of the other log."),
            heights(),
            &|height| Some(f64::from(height)),
        ),
        chart(
            format!("Speed compared with {name}, by its time"),
            format!("The same ratios, where {name} was after a time on the horizontal axis."),
            elapsed(base.seconds()),
            &|height| base.at_height(height, |point| Some(point.seconds)),
        ),
    ]
}

fn by_bytes(plot: &Plot) -> Option<Chart> {
    // The log that reports bytes up to the greatest height also provides the bytes of the others.
    let has_bytes = |series: &Series| series.points.iter().any(|point| point.bytes.is_some());
    let source = plot.series.iter().filter(|series| has_bytes(series)).max_by_key(|it| it.height())?;
    let known = |point: &Point| point.bytes.map(|bytes| bytes as f64);
    let bytes = |point: &Point| known(point).or_else(|| source.at_height(point.height, known));
    let most = source.points.iter().filter_map(known).fold(0.0, f64::max);
    let (unit, name) = if most >= 1e9 { (1e9, "GB") } else { (1e6, "MB") };
    let caption = match plot.series.iter().all(has_bytes) {
        true => String::new(),
        false => format!("Where a log has heights only, the bytes are those of {}.", source.name),
    };
    Some(Chart {
        title: "Time by block data".to_owned(),
        subtitle: LOWER_IS_BETTER,
        caption,
        x: axis(&format!("block data, {name}"), unit, data),
        y: log_times(),
        curves: curves(plot, |series| points(series, |at| Some((bytes(at)?, at.seconds)))),
    })
}

fn by_memory(plot: &Plot) -> Chart {
    let is_by = |writer| plot.series.iter().any(|series| series.writer == Some(writer));
    let (title, caption) = match (is_by(Writer::Peregrine), is_by(Writer::Core)) {
        (true, true) => (
            "Memory and coins cache",
            "Peregrine: resident memory of the process. Bitcoin Core: its coins cache alone.",
        ),
        (true, false) => ("Memory", "Resident memory of the process."),
        (false, _) => ("Coins cache", ""),
    };
    let used = |at: &Point| Some((f64::from(at.height), at.memory_bytes.or(at.cache_bytes)? as f64));
    Chart {
        title: title.to_owned(),
        subtitle: "MiB",
        caption: caption.to_owned(),
        x: heights(),
        y: axis("", 1_048_576.0, memory),
        curves: curves(plot, |series| points(series, used)),
    }
}

/// Returns what Bitcoin Core's databases did, if a log says so.
fn activity(plot: &Plot) -> impl Iterator<Item = Chart> {
    let longest = plot.series.iter().filter(|series| series.activity.has_any()).map(Series::seconds);
    let longest = longest.fold(0.0, f64::max);
    type Of = fn(&Activity) -> &Sum;
    type Say = fn(f64) -> String;
    let charts: [(&str, &str, f64, Say, Of); 3] = [
        ("time spent writing the coins cache", "seconds, sum", 1.0, duration, |did| &did.flushes),
        ("data for the coins database", "MB, sum", 1e6, data, |did| &did.batches),
        ("data that LevelDB's compactions wrote", "MB, sum", 1e6, data, |did| &did.compactions),
    ];
    charts.into_iter().map(move |(title, subtitle, unit, say, of)| Chart {
        title: format!("Bitcoin Core: {title}"),
        subtitle,
        caption: String::new(),
        x: elapsed(longest),
        y: axis("", unit, say),
        curves: curves(plot, |series| steps_of(of(&series.activity), series.seconds())),
    })
}

/// Returns a sum over time as a line with steps, from the start to the end of the run.
fn steps_of(sum: &Sum, end: f64) -> Vec<(f64, f64)> {
    if sum.count == 0 {
        return Vec::new();
    }
    let (mut points, mut last) = (vec![(0.0, 0.0)], (0.0, 0.0));
    for &(seconds, total) in &sum.points.kept {
        points.extend([(seconds, last.1), (seconds, total)]);
        last = (seconds, total);
    }
    points.push((end.max(last.0), sum.total));
    points
}

/// Returns up to `count` heights above `from`, evenly spread, the last of which is `to`.
pub fn steps(from: u32, to: u32, count: u32) -> impl Iterator<Item = u32> {
    let span = to.saturating_sub(from);
    let count = count.min(span);
    let step = move |index| from + (u64::from(span) * u64::from(index) / u64::from(count)) as u32;
    (1..=count).map(step)
}

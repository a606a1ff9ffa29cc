//! A line chart as SVG, once for wide screens and once for narrow ones, where a scaled picture would have
//! unreadable text. Colours come from the page's style sheet, so that one picture works for light and dark
//! themes. Lines are labelled at their ends and differ in their dashes too, for colour-blind readers.

use super::text::{duration, wrapped};
use maud::{Markup, html};

/// Number of points of a line that show their values when pointed at.
const SPOTS: usize = 40;
/// Ratio of the greatest time to the least that a logarithmic axis shows.
const LOG_RANGE: f64 = 1e5;
/// Round times for a logarithmic axis over many decades, in seconds.
const FAR_TIMES: &[f64] =
    &[0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 360_000.0, 3.6e6, 3.6e7];
/// Round times for a shorter one.
const NEAR_TIMES: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0,
    300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0, 3.6e6,
    3.6e7,
];
/// A logarithmic axis over more than this ratio has the far times.
const NEAR_RATIO: f64 = 200.0;

/// A picture's size, in units of which the page shows about one per pixel.
struct Size {
    /// Class of the picture, and the end of its ids.
    class: &'static str,
    width: f64,
    height: f64,
    font: f64,
    left: f64,
    /// Maximum number of characters of a row of a line's label, and of rows.
    label_chars: usize,
    label_rows: usize,
    /// Maximum number of ticks of the horizontal axis.
    ticks: f64,
    /// Maximum number of corners of a line.
    corners: usize,
    /// Whether points can be pointed at.
    has_spots: bool,
}

const WIDE: Size = Size {
    class: "wide",
    width: 720.0,
    height: 330.0,
    font: 14.0,
    left: 64.0,
    label_chars: 22,
    label_rows: 1,
    ticks: 8.0,
    corners: 600,
    has_spots: true,
};
const NARROW: Size = Size {
    class: "narrow",
    // What a phone of 360 pixels has left beside margins and a scroll bar.
    width: 288.0,
    height: 260.0,
    font: 12.0,
    left: 50.0,
    label_chars: 11,
    label_rows: 2,
    ticks: 3.0,
    corners: 200,
    has_spots: false,
};

impl Size {
    /// Returns the room for a text of so many characters, in a bold and wide font.
    fn text_width(&self, chars: usize) -> f64 {
        chars as f64 * self.font * 0.62
    }

    /// Returns the distance of rows of text.
    fn row(&self) -> f64 {
        self.font * 1.2
    }

    /// Returns a line's label in rows.
    fn label(&self, name: &str) -> Vec<String> {
        wrapped(name, self.label_chars, self.label_rows)
    }
}

/// A line.
pub struct Curve {
    /// Index of the page's colour and dashes.
    pub style: usize,
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// How an axis divides its range.
#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    /// Evenly. Numbers are divided by `unit` where they are shown.
    Linear { unit: f64, from_zero: bool },
    /// By the logarithm of times in seconds.
    Log,
}

/// An axis.
pub struct Axis {
    /// What it shows; empty where the chart's title says it.
    pub title: String,
    pub scale: Scale,
    /// Formats a number beside the axis, divided by the unit.
    pub tick: fn(f64) -> String,
    /// Formats a value with its unit.
    pub say: fn(f64) -> String,
}

/// A chart.
pub struct Chart {
    /// Identifies the chart within the page: letters and digits.
    pub id: &'static str,
    pub title: String,
    /// Units and reading aid, beside the title.
    pub subtitle: String,
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
    /// Draws a horizontal line at this y, the baseline.
    pub level: Option<f64>,
}

/// A range of values, and where it is in the picture.
struct Span {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Span {
    fn at(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.max(self.low).ln() } else { value };
        let share = (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low));
        self.from + share * (self.to - self.from)
    }
}

impl Axis {
    /// Returns the range that the axis shows, and its ticks; `None` if there are no values.
    fn range(&self, values: impl Iterator<Item = f64> + Clone, most: f64) -> Option<(f64, f64, Vec<f64>)> {
        let (low, high) = extremes(values.clone())?;
        let Scale::Linear { unit, from_zero } = self.scale else {
            let (low, _) = extremes(values.filter(|value| *value > 0.0)).unwrap_or((1.0, 1.0));
            let (low, high) = (low.max(high / LOG_RANGE).max(0.001), high.max(0.002));
            let times = if high / low > NEAR_RATIO { FAR_TIMES } else { NEAR_TIMES };
            let low = times.iter().copied().rev().find(|time| *time <= low).unwrap_or(0.001);
            let high = if high > low { high } else { 2.0 * low };
            // A tick just above is worth its room.
            let next = times.iter().copied().find(|time| *time >= high);
            let high = next.filter(|next| *next <= high * 1.2).unwrap_or(high);
            return Some((low, high, times.iter().copied().filter(|at| (low..=high).contains(at)).collect()));
        };
        let low = if from_zero { low.min(0.0) } else { low };
        let high = if high > low { high } else { low + 1.0 };
        Some((low, high, ticks(low, high, unit, most)))
    }

    fn tick_text(&self, value: f64) -> String {
        match self.scale {
            Scale::Log => duration(value),
            Scale::Linear { unit, .. } => (self.tick)(value / unit),
        }
    }
}

impl Chart {
    /// Returns the chart with its title and caption; `None` if there are no points.
    pub fn figure(&self) -> Option<Markup> {
        let (wide, narrow) = (self.svg(&WIDE)?, self.svg(&NARROW)?);
        Some(html! {
            figure {
                h2 {
                    (self.title)
                    @if !self.subtitle.is_empty() { " " span class="faint" { "(" (self.subtitle) ")" } }
                }
                (wide) (narrow)
                @if !self.caption.is_empty() { figcaption { (self.caption) } }
            }
        })
    }

    fn svg(&self, size: &Size) -> Option<Markup> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let (x_low, x_high, x_ticks) = self.x.range(points().map(|point| point.0), size.ticks)?;
        let ys = points().map(|point| point.1).chain(self.level);
        let (y_low, mut y_high, mut y_ticks) = self.y.range(ys, 7.0)?;
        if self.y.scale != Scale::Log
            && let [first, second, ..] = y_ticks[..]
            && let Some(&last) = y_ticks.last().filter(|last| **last < y_high)
        {
            // Up to the next grid line, so that no curve runs along the edge.
            y_high = last + second - first;
            y_ticks.push(y_high);
        }
        let rows = self.curves.iter().flat_map(|curve| size.label(&curve.name));
        let chars = rows.map(|row| row.chars().count()).max();
        let right = size.width - 14.0 - size.text_width(chars.unwrap_or(0));
        let bottom = size.height - size.font * if self.x.title.is_empty() { 2.2 } else { 3.6 };
        let x =
            Span { low: x_low, high: x_high, from: size.left, to: right, is_log: self.x.scale == Scale::Log };
        let y = Span { low: y_low, high: y_high, from: bottom, to: 10.0, is_log: self.y.scale == Scale::Log };
        let id = |part: &str| format!("{}-{}-{part}", self.id, size.class);
        Some(html! {
            svg class=(size.class) viewBox=(format!("0 0 {} {}", size.width, size.height)) role="img"
                font-size=(size.font) aria-labelledby=(format!("{} {}", id("title"), id("text"))) {
                title id=(id("title")) { (self.title) }
                desc id=(id("text")) { (self.description()) }
                (self.grid(size, (&x, &x_ticks), (&y, &y_ticks)))
                @for curve in &self.curves {
                    polyline class=(format!("c{}", curve.style)) points=(corners(curve, size, &x, &y)) {}
                }
                (self.labels(size, &x, &y))
                @if size.has_spots { (self.spots(&x, &y)) }
            }
        })
    }

    /// Returns what the chart shows in words: where each line ends.
    fn description(&self) -> String {
        let ends = self.curves.iter().filter_map(|curve| Some((curve, curve.points.last()?)));
        let ends = ends
            .map(|(curve, (x, y))| format!("{}: {} at {}", curve.name, (self.y.say)(*y), (self.x.say)(*x)));
        ends.collect::<Vec<_>>().join("; ") + "."
    }

    fn grid(&self, size: &Size, (x, x_ticks): (&Span, &[f64]), (y, y_ticks): (&Span, &[f64])) -> Markup {
        let (left, right, bottom) = (x.from, x.to, y.from);
        html! {
            @for &tick in y_ticks {
                path class="grid" d=(format!("M{left} {:.1}H{right:.1}", y.at(tick))) {}
                text x=(left - 8.0) y=(format!("{:.1}", y.at(tick) + size.font * 0.35)) text-anchor="end" {
                    (self.y.tick_text(tick))
                }
            }
            @for &tick in x_ticks {
                text x=(format!("{:.1}", x.at(tick))) y=(format!("{:.1}", bottom + size.font * 1.5))
                    text-anchor="middle" { (self.x.tick_text(tick)) }
            }
            path class="axis" d=(format!("M{left} {bottom:.1}H{right:.1}")) {}
            @if let Some(level) = self.level {
                path class="level" d=(format!("M{left} {:.1}H{right:.1}", y.at(level))) {}
            }
            @if !self.x.title.is_empty() {
                text x=(format!("{:.1}", (left + right) / 2.0)) y=(format!("{:.1}", bottom + size.font * 3.0))
                    text-anchor="middle" { (self.x.title) }
            }
        }
    }

    /// Returns the end of each line as a dot with its name, where names do not cover each other.
    fn labels(&self, size: &Size, x: &Span, y: &Span) -> Markup {
        let mut ends: Vec<_> = self
            .curves
            .iter()
            .filter_map(|curve| curve.points.last().map(|end| (curve, x.at(end.0), y.at(end.1))))
            .collect();
        ends.sort_by(|a, b| a.2.total_cmp(&b.2));
        let rows: Vec<_> = ends.iter().map(|(curve, ..)| size.label(&curve.name)).collect();
        let places = ends.iter().zip(&rows).map(|((_, x, y), rows)| (*x, *y, rows.len() as f64 * size.row()));
        let width = size.text_width(size.label_chars);
        let places = spread(&places.collect::<Vec<_>>(), width, y.from + size.row() / 2.0);
        html! {
            @for (((curve, x, y), rows), label_y) in ends.iter().zip(&rows).zip(places) {
                circle class=(format!("s{}", curve.style)) r="4" cx=(format!("{x:.1}"))
                    cy=(format!("{y:.1}")) {}
                text class=(format!("label s{}", curve.style)) {
                    @for (at, row) in rows.iter().enumerate() {
                        @let above = (rows.len() - 1) as f64 / 2.0 - at as f64;
                        @let row_y = label_y - above * size.row() + size.font * 0.35;
                        tspan x=(format!("{:.1}", x + 8.0)) y=(format!("{row_y:.1}")) { (row) " " }
                    }
                }
            }
        }
    }

    /// Returns points that show their values when pointed at.
    fn spots(&self, x: &Span, y: &Span) -> Markup {
        html! {
            @for curve in &self.curves {
                @for (at, value) in thinned(&curve.points, SPOTS) {
                    circle class=(format!("spot s{}", curve.style)) cx=(format!("{:.1}", x.at(at)))
                        cy=(format!("{:.1}", y.at(value))) r="6" {
                        title { (curve.name) ": " ((self.y.say)(value)) " at " ((self.x.say)(at)) }
                    }
                }
            }
        }
    }
}

/// Returns the corners of a line.
fn corners(curve: &Curve, size: &Size, x: &Span, y: &Span) -> String {
    let corners = thinned(&curve.points, size.corners);
    corners.map(|(at, value)| format!("{:.1},{:.1}", x.at(at), y.at(value))).collect::<Vec<_>>().join(" ")
}

/// Moves labels apart where they would cover each other: down first, and up again where the lowest would
/// leave the picture. Each has an x, the y of its middle, and a height, and they are sorted by y. Returns the
/// new y of each.
fn spread(places: &[(f64, f64, f64)], width: f64, bottom: f64) -> Vec<f64> {
    let mut ys: Vec<f64> = Vec::with_capacity(places.len());
    let covers = |a: usize, b: usize| (places[a].0 - places[b].0).abs() < width;
    let gap = |a: usize, b: usize| (places[a].2 + places[b].2) / 2.0;
    for (at, &(_, y, height)) in places.iter().enumerate() {
        let above = (0..at).filter(|other| covers(at, *other)).map(|other| ys[other] + gap(at, other));
        ys.push(above.fold(y.max(height / 2.0), f64::max));
    }
    for at in (0..ys.len()).rev() {
        let below =
            (at + 1..ys.len()).filter(|other| covers(at, *other)).map(|other| ys[other] - gap(at, other));
        let limit = below.fold(bottom - places[at].2 / 2.0, f64::min);
        ys[at] = ys[at].min(limit);
    }
    ys
}

/// Returns the minimum and the maximum; `None` if there are no values.
fn extremes(mut values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let first = values.next()?;
    Some(values.fold((first, first), |(low, high), value| (low.min(value), high.max(value))))
}

/// Returns round numbers in a range, in units of `unit`: at most about `most`.
fn ticks(low: f64, high: f64, unit: f64, most: f64) -> Vec<f64> {
    let span = (high - low) / unit;
    let magnitude = 10_f64.powf((span / most).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| span / step <= most).unwrap_or(10.0 * magnitude);
    let first = (low / unit / step).ceil();
    (0..10)
        .map(|index| (first + f64::from(index)) * step * unit)
        .take_while(|tick| *tick <= high * (1.0 + 1e-9))
        .collect()
}

/// Returns an even sample of about `most` points, including the last.
fn thinned(points: &[(f64, f64)], most: usize) -> impl Iterator<Item = (f64, f64)> {
    let step = points.len().div_ceil(most).max(1);
    let rest = points.len().saturating_sub(1) % step;
    let last = points.last().copied().filter(|_| rest != 0);
    points.iter().step_by(step).copied().chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::text::short;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 10.0, 1.0, 8.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 3588.0, 1.0, 8.0).len(), 8);
        assert_eq!(ticks(0.0, 938_343.0, 1.0, 3.0), [0.0, 500_000.0]);
        assert_eq!(ticks(400_000.0, 900_000.0, 1.0, 8.0).len(), 6);
        assert_eq!(ticks(0.0, 7200.0, 3600.0, 8.0), [0.0, 0.5, 1.0, 1.5, 2.0].map(|hours| hours * 3600.0));
    }

    fn axis(scale: Scale) -> Axis {
        Axis { title: String::new(), scale, tick: short, say: short }
    }

    #[test]
    fn a_logarithmic_axis_has_round_times_and_takes_zero() {
        let range = |values: &[f64]| axis(Scale::Log).range(values.iter().copied(), 8.0).unwrap();
        let (low, high, ticks) = range(&[0.0, 1.5, 35_623.0]);
        assert_eq!((low, high), (1.0, 36_000.0));
        assert_eq!(ticks, [1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0]);
        let (low, _, ticks) = range(&[3.0, 25.0]);
        assert_eq!((low, ticks), (2.0, vec![2.0, 5.0, 10.0, 20.0, 30.0]));
        for values in [&[0.0][..], &[0.0, 0.0], &[1.0], &[1e-9, 1e9]] {
            let (low, high, _) = range(values);
            assert!(low > 0.0 && high > low && high.is_finite(), "{values:?}: {low} to {high}");
        }
    }

    #[test]
    fn labels_do_not_cover_each_other_and_stay_in_the_picture() {
        let at = |x: f64, y: f64| (x, y, 10.0);
        assert_eq!(spread(&[at(0.0, 10.0), at(0.0, 12.0), at(0.0, 50.0)], 80.0, 100.0), [10.0, 20.0, 50.0]);
        assert_eq!(spread(&[at(0.0, 98.0), at(0.0, 99.0)], 80.0, 100.0), [85.0, 95.0]);
        assert_eq!(spread(&[at(0.0, 10.0), at(300.0, 12.0)], 80.0, 100.0), [10.0, 12.0], "side by side");
        assert_eq!(
            spread(&[(0.0, 1.0, 20.0), at(0.0, 20.0)], 80.0, 100.0),
            [10.0, 25.0],
            "two rows at the top"
        );
    }

    #[test]
    fn a_chart_of_nothing_is_nothing_and_one_of_a_point_is_drawn() {
        let linear = || axis(Scale::Linear { unit: 1.0, from_zero: true });
        let chart = |points| Chart {
            id: "a",
            title: "<b>".to_owned(),
            subtitle: String::new(),
            caption: String::new(),
            x: linear(),
            y: linear(),
            curves: vec![Curve { style: 0, name: "<i>\"n\"".to_owned(), points }],
            level: None,
        };
        assert!(chart(Vec::new()).figure().is_none());
        let svg = chart(vec![(0.0, 0.0)]).figure().unwrap().into_string();
        assert!(svg.contains("&lt;b&gt;") && svg.contains("&lt;i&gt;") && !svg.contains("NaN"), "{svg}");
        assert!(svg.contains("role=\"img\"") && svg.contains("id=\"a-narrow-title\""), "{svg}");
    }
}

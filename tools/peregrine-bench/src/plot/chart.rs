//! A line chart as SVG. Colours come from the page's style sheet, so that one picture works for light and
//! dark themes. Lines differ in their dashes too, for colour-blind readers.

use std::fmt::Write;

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 52.0;
/// Maximum number of corners of a line: about one per column.
const CORNERS: usize = 800;
/// Number of spots of a line that show their values when pointed at.
const SPOTS: usize = 40;

/// A line.
pub struct Curve {
    /// Index of the page's colour and dashes.
    pub style: usize,
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// An axis: what it shows, and how its numbers are formatted.
pub struct Axis {
    pub title: String,
    /// Numbers are divided by this where they are shown.
    pub unit: f64,
    pub from_zero: bool,
}

/// A chart.
pub struct Chart {
    /// Identifies the chart within the page: letters and digits.
    pub id: &'static str,
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
    /// Draws a horizontal line at this y, the baseline.
    pub level: Option<f64>,
}

impl Chart {
    /// Returns the picture; `None` if there are no points.
    pub fn svg(&self) -> Option<String> {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let (x_low, x_high) = range(all().map(|point| point.0), self.x.from_zero)?;
        let ys = all().map(|point| point.1).chain(self.level);
        let (y_low, y_high) = range(ys, self.y.from_zero)?;
        let (x_ticks, y_ticks) = (ticks(x_low, x_high, self.x.unit), ticks(y_low, y_high, self.y.unit));
        // Up to the next grid line, so that no curve runs along the edge.
        let step = y_ticks.get(1).map_or(0.0, |second| second - y_ticks[0]);
        let mut y_ticks = y_ticks;
        if let Some(&last) = y_ticks.last().filter(|last| **last < y_high) {
            y_ticks.push(last + step);
        }
        let y_high = y_high.max(y_ticks.last().copied().unwrap_or(y_high));
        let x_of = |x: f64| LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
        let y_of = |y: f64| HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{0}-t {0}-d\">\n\
             <title id=\"{0}-t\">{1}</title>\n<desc id=\"{0}-d\">{2}. The tables below hold the \
             numbers.</desc>\n",
            self.id,
            escaped(&self.title),
            escaped(&format!("{} by {}", self.y.title, self.x.title)),
        );
        self.grid(&mut svg, &x_ticks, &y_ticks, (&x_of, &y_of));
        for curve in &self.curves {
            let path: Vec<String> = thinned(&curve.points, CORNERS)
                .map(|(x, y)| format!("{:.1},{:.1}", x_of(x), y_of(y)))
                .collect();
            let _ = writeln!(svg, "<polyline class=\"c{}\" points=\"{}\"/>", curve.style, path.join(" "));
        }
        for curve in &self.curves {
            for (x, y) in thinned(&curve.points, SPOTS) {
                let _ = writeln!(
                    svg,
                    "<circle class=\"s{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"6\"><title>{}: {} {} at \
                     {} {}</title></circle>",
                    curve.style,
                    x_of(x),
                    y_of(y),
                    escaped(&curve.name),
                    precise(y / self.y.unit),
                    escaped(&self.y.title),
                    precise(x / self.x.unit),
                    escaped(&self.x.title),
                );
            }
        }
        svg.push_str("</svg>\n");
        Some(svg)
    }

    fn grid(
        &self,
        svg: &mut String,
        x_ticks: &[f64],
        y_ticks: &[f64],
        (x_of, y_of): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
    ) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for &tick in y_ticks {
            let y = y_of(tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.5,
                short(tick / self.y.unit)
            );
        }
        for &tick in x_ticks {
            let x = x_of(tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                short(tick / self.x.unit)
            );
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
        if let Some(level) = self.level {
            let _ = writeln!(svg, "<path class=\"level\" d=\"M{LEFT} {:.1}H{right}\"/>", y_of(level));
        }
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 10.0,
            escaped(&self.x.title)
        );
        let middle = (TOP + bottom) / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"name\" transform=\"translate(16 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            escaped(&self.y.title)
        );
    }
}

/// Returns the minimum and the maximum, which differ.
fn range(values: impl Iterator<Item = f64>, from_zero: bool) -> Option<(f64, f64)> {
    let found = values.fold(None, |found: Option<(f64, f64)>, value| {
        Some(found.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    });
    let (low, high) = found?;
    let low = if from_zero { low.min(0.0) } else { low };
    Some((low, if high > low { high } else { low + 1.0 }))
}

/// Returns four to eight round numbers in a range, in units of `unit`.
fn ticks(low: f64, high: f64, unit: f64) -> Vec<f64> {
    let span = (high - low) / unit;
    let magnitude = 10_f64.powf((span / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| span / step <= 8.0).unwrap_or(10.0 * magnitude);
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

/// Formats a number beside an axis: groups of three digits, no needless decimals.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    grouped(if text == "-0" { "0" } else { text })
}

/// Formats a number with three or four significant digits.
pub fn precise(number: f64) -> String {
    let decimals = match number.abs() {
        number if number >= 1000.0 => 0,
        number if number >= 100.0 => 1,
        number if number >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    grouped(if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text })
}

/// Formats `1234567.5` as `1,234,567.5`.
pub fn grouped(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (index, digit) in number.chars().enumerate() {
        let left = whole.saturating_sub(index);
        if index > 0 && left > 0 && left.is_multiple_of(3) && text != "-" {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Escapes text for HTML and SVG, also in attributes.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 10.0, 1.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 3588.0, 1.0).len(), 8);
        assert_eq!(ticks(400_000.0, 900_000.0, 1.0).len(), 6);
        assert_eq!(ticks(0.0, 7200.0, 3600.0), [0.0, 0.5, 1.0, 1.5, 2.0].map(|hours| hours * 3600.0));
    }

    #[test]
    fn numbers_are_said() {
        assert_eq!((short(0.5), short(1000.0), short(-0.0)), ("0.5".into(), "1,000".into(), "0".into()));
        assert_eq!((precise(1234.5), precise(0.12345)), ("1,234".into(), "0.123".into()));
        assert_eq!((grouped("1234567.25"), grouped("-123")), ("1,234,567.25".into(), "-123".into()));
    }

    #[test]
    fn a_chart_of_nothing_is_nothing_and_one_of_a_point_is_drawn() {
        let axis = |title: &str| Axis { title: title.to_owned(), unit: 1.0, from_zero: true };
        let chart = |points| Chart {
            id: "a",
            title: "<b>".to_owned(),
            x: axis("x"),
            y: axis("y"),
            curves: vec![Curve { style: 0, name: "\"n\"".to_owned(), points }],
            level: None,
        };
        assert!(chart(Vec::new()).svg().is_none());
        let svg = chart(vec![(0.0, 0.0)]).svg().unwrap();
        assert!(svg.contains("&lt;b&gt;") && svg.contains("&quot;n&quot;") && !svg.contains("NaN"), "{svg}");
    }
}

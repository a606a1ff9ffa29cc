//! A line chart, drawn by plotters: once for wide screens and once for narrow ones, where a scaled picture
//! would have unreadable text. The style sheet of the page has the colours and dashes of the lines, so that
//! one picture is good for light pages and for dark ones.

use crate::text::{duration, number};
use maud::{Markup, PreEscaped, html};
use plotters::{
    coord::{
        ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
        types::RangedCoordf64,
    },
    prelude::*,
};
use std::{error::Error, ops::Range};

/// Plotters draws at whole numbers. With ten of them for each pixel, lines are smooth.
const FINE: u32 = 10;
/// Plotters divides sizes of text by this.
const TEXT_FACTOR: f64 = 1.24;
/// The style sheet's names of colours. Plotters is given the place of a name here as a colour.
const COLORS: [&str; 9] = ["c0", "c1", "c2", "c3", "c4", "c5", "grid", "axis", "faint"];
const GRID: usize = 6;
const AXIS: usize = 7;
const FAINT: usize = 8;
/// Number of points of a line that show their values when pointed at.
const SPOTS: usize = 40;
/// Ratio of the greatest time to the least that a logarithmic axis shows.
const LOG_RANGE: f64 = 1e5;
/// Shorter times, in seconds, are not drawn.
const LEAST_TIME: f64 = 0.001;
/// Round times for a logarithmic axis. If it is long, it has every third.
const TIMES: [f64; 29] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0,
    300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0, 3.6e6,
];
/// Ratio of times above which a logarithmic axis is long.
const LONG: f64 = 200.0;

/// A picture's size in pixels.
struct Size {
    /// Class in the style sheet.
    class: &'static str,
    width: u32,
    height: u32,
    text: u32,
    /// Maximum number of ticks of the horizontal axis.
    ticks: usize,
    /// Maximum number of corners of a line.
    corners: usize,
}

const WIDE: Size = Size { class: "wide", width: 760, height: 310, text: 14, ticks: 9, corners: 600 };
/// What a phone of 360 pixels has left beside margins and a scroll bar.
const NARROW: Size = Size { class: "narrow", width: 288, height: 240, text: 12, ticks: 4, corners: 200 };

/// A line.
pub struct Curve {
    /// Index of the page's colour and dashes.
    pub style: usize,
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// An axis.
pub struct Axis {
    /// What it shows; empty where the chart's title says it.
    pub title: String,
    /// Values are divided by this beside the axis. Without it, they are times, and the axis is logarithmic.
    pub unit: Option<f64>,
    /// Formats a value with its unit.
    pub say: fn(f64) -> String,
}

/// A chart.
pub struct Chart {
    pub title: String,
    /// Units and reading aid, beside the title.
    pub subtitle: &'static str,
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
}

/// A point of a line, and its place in the picture.
type Spot<'a> = (&'a Curve, (f64, f64), (i32, i32));

/// An axis with the values that it shows: what plotters asks for the places of values and for the ticks.
#[derive(Clone)]
struct Scale {
    unit: Option<f64>,
    range: Range<f64>,
}

impl Axis {
    /// Returns the scale for these values.
    fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let all = values.fold(f64::MAX..f64::MIN, |all, value| all.start.min(value)..all.end.max(value));
        let range = match self.unit {
            // A single value needs some room.
            Some(unit) => all.start..if all.end > all.start { all.end } else { all.start + unit },
            None => {
                let low = all.start.max(all.end / LOG_RANGE).max(LEAST_TIME);
                let low = TIMES.iter().copied().rev().find(|time| *time <= low).unwrap_or(low);
                low..all.end.max(2.0 * low)
            }
        };
        Scale { unit: self.unit, range }
    }

    /// Returns what stands beside the axis at a tick.
    fn tick(&self, value: f64) -> String {
        self.unit.map_or_else(|| duration(value), |unit| number(value / unit))
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = |value: f64| if self.unit.is_some() { value } else { value.max(LEAST_TIME).ln() };
        RangedCoordf64::from(place(self.range.start)..place(self.range.end)).map(&place(*value), limit)
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        let Range { start, end } = self.range;
        match self.unit {
            _ if hint.weight().allow_light_points() => Vec::new(),
            Some(unit) => {
                let ticks = RangedCoordf64::from(start / unit..end / unit).key_points(hint);
                ticks.into_iter().map(|tick| tick * unit).collect()
            }
            None => {
                let step = if end / start > LONG { 3 } else { 1 };
                let times = TIMES.iter().copied().step_by(step);
                times.filter(|time| (start..=end).contains(time)).collect()
            }
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl Chart {
    /// Returns the chart with its title, what its lines are, and its caption; `None` if there are no points.
    pub fn figure(&self) -> Option<Markup> {
        let curves = self.curves.iter().filter_map(|curve| Some((curve, curve.points.last()?)));
        let curves: Vec<_> = curves.collect();
        (!curves.is_empty()).then(|| {
            html! {
                figure {
                    h2 {
                        (self.title) @if !self.subtitle.is_empty() { " " small { "(" (self.subtitle) ")" } }
                    }
                    ul {
                        @for (curve, (x, y)) in curves {
                            li {
                                svg class="key" viewBox="0 0 320 40" aria-hidden="true" {
                                    polyline points="0,20 320,20" stroke-width="30"
                                        stroke=(format!("var(--c{})", curve.style)) {}
                                }
                                (curve.name) ": " b { ((self.y.say)(*y)) } " at " ((self.x.say)(*x))
                            }
                        }
                    }
                    @for size in [WIDE, NARROW] {
                        (self.picture(&size).expect("nothing can fail where a picture is drawn in memory"))
                    }
                    @if !self.caption.is_empty() { figcaption { (self.caption) } }
                }
            }
        })
    }

    /// Returns the chart in a size. On top of the lines are points that show their values when pointed at.
    fn picture(&self, size: &Size) -> Result<Markup, Box<dyn Error>> {
        let (mut svg, spots) = self.drawn(size)?;
        for (at, name) in COLORS.iter().enumerate() {
            svg = svg.replace(&format!("\"#{at:06X}\""), &format!("\"var(--{name})\""));
        }
        // Its first line is the opening tag, which the page writes itself.
        let (_, lines) = svg.trim_end().trim_end_matches("</svg>").split_once('\n').unwrap_or_default();
        Ok(html! {
            svg class=(size.class) role="img" aria-label=(self.title)
                viewBox=(format!("0 0 {} {}", size.width * FINE, size.height * FINE)) {
                (PreEscaped(lines))
                @for (curve, (x, y), place) in spots {
                    circle class="spot" r=(FINE * 7) cx=(place.0) cy=(place.1)
                        fill=(format!("var(--c{})", curve.style)) {
                        title { (curve.name) ": " ((self.y.say)(y)) " at " ((self.x.say)(x)) }
                    }
                }
            }
        })
    }

    /// Returns what plotters draws, and some points of the lines with their places in it.
    fn drawn(&self, size: &Size) -> Result<(String, Vec<Spot<'_>>), Box<dyn Error>> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let x_scale = self.x.scale(points().map(|point| point.0));
        let zero = self.y.unit.map(|_| 0.0);
        let y_scale = self.y.scale(points().map(|point| point.1).chain(zero));
        let least = y_scale.range.start;
        let text = size.text * FINE;
        let (mut svg, mut spots) = (String::new(), Vec::new());
        let backend = SVGBackend::with_string(&mut svg, (size.width * FINE, size.height * FINE));
        let root = backend.into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_top(text / 2)
            .margin_right(text * 2)
            .x_label_area_size(if self.x.title.is_empty() { text * 2 } else { text * 7 / 2 })
            .y_label_area_size(text * 9 / 2)
            .build_cartesian_2d(x_scale, y_scale)?;
        let font = ("sans-serif", f64::from(text) * TEXT_FACTOR).into_font().color(&color(FAINT));
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(color(GRID).stroke_width(FINE))
            .axis_style(color(AXIS).stroke_width(FINE))
            .set_all_tick_mark_size(FINE * 4)
            .label_style(font)
            .x_desc(&self.x.title)
            .x_labels(size.ticks)
            .y_labels(7)
            .x_label_formatter(&|value| self.x.tick(*value))
            .y_label_formatter(&|value| self.y.tick(*value))
            .draw()?;
        for curve in &self.curves {
            let color = color(curve.style);
            let line = thinned(&curve.points, size.corners).filter(|point| point.1 >= least);
            chart.draw_series(LineSeries::new(line, color.stroke_width(FINE * 9 / 4)))?;
            let end = curve.points.last().map(|end| Circle::new(*end, FINE * 4, color.filled()));
            chart.draw_series(end)?;
            let spot = |point| (curve, point, chart.backend_coord(&point));
            spots.extend(thinned(&curve.points, SPOTS).map(spot));
        }
        root.present()?;
        drop(chart);
        drop(root);
        Ok((svg, spots))
    }
}

fn color(place: usize) -> RGBColor {
    RGBColor(0, 0, place as u8)
}

/// Returns an even sample of about `most` points, including the last.
fn thinned(points: &[(f64, f64)], most: usize) -> impl Iterator<Item = (f64, f64)> {
    let step = points.len().div_ceil(most).max(1);
    let last = points.last().copied().filter(|_| !(points.len() - 1).is_multiple_of(step));
    points.iter().step_by(step).copied().chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::coord::ranged1d::BoldPoints;

    fn axis(unit: Option<f64>) -> Axis {
        Axis { title: String::new(), unit, say: number }
    }

    #[test]
    fn a_logarithmic_axis_has_round_times_and_takes_zero() {
        let scale = |values: &[f64]| axis(None).scale(values.iter().copied());
        let long = scale(&[0.0, 1.5, 35_623.0]);
        assert_eq!(long.range, 0.2..35_623.0);
        assert_eq!(long.key_points(BoldPoints(7)), [1.0, 10.0, 60.0, 600.0, 3600.0]);
        let short = scale(&[3.0, 25.0]);
        assert_eq!((short.range.start, short.key_points(BoldPoints(7))), (2.0, vec![2.0, 5.0, 10.0, 20.0]));
        for values in [&[0.0][..], &[0.0, 0.0], &[1.0], &[1e-9, 1e9]] {
            let Range { start, end } = scale(values).range;
            assert!(start > 0.0 && end > start && end.is_finite(), "{values:?}: {start} to {end}");
        }
    }

    #[test]
    fn ticks_are_round_in_the_unit_of_the_axis() {
        let hours = axis(Some(3600.0)).scale([0.0, 7200.0].into_iter());
        assert_eq!(hours.key_points(BoldPoints(5)), [0.0, 0.5, 1.0, 1.5, 2.0].map(|hours| hours * 3600.0));
    }

    #[test]
    fn a_chart_of_nothing_is_nothing_and_one_of_a_point_is_drawn() {
        let chart = |points| Chart {
            title: "<b>".to_owned(),
            subtitle: "",
            caption: String::new(),
            x: axis(Some(1.0)),
            y: axis(Some(1.0)),
            curves: vec![Curve { style: 1, name: "<i>\"n\"".to_owned(), points }],
        };
        assert!(chart(Vec::new()).figure().is_none());
        let svg = chart(vec![(0.0, 0.0)]).figure().unwrap().into_string();
        assert!(svg.contains("&lt;b&gt;") && svg.contains("&lt;i&gt;") && !svg.contains("NaN"), "{svg}");
        assert!(svg.contains("role=\"img\"") && svg.contains("fill=\"var(--c1)\""), "{svg}");
        assert!(!svg.contains("=\"#"), "all colours are names of the style sheet: {svg}");
    }
}

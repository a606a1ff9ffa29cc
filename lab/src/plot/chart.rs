//! A line chart, drawn by plotters: once for wide screens and once for narrow ones, where a scaled picture
//! would have unreadable text. The style sheet of the page has the colours and dashes of the lines, so that
//! one picture is good for light pages and for dark ones.

use crate::text::{duration, number};
use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use std::{error::Error, ops::Range};

/// Plotters draws at whole numbers. With ten of them for each pixel, lines are smooth.
const FINE: u32 = 10;
/// The style sheet's names of colours. Plotters is given the place of a name here as a colour.
const COLORS: [&str; 9] = ["c0", "c1", "c2", "c3", "c4", "c5", "grid", "axis", "faint"];
/// Shorter times, in seconds, are drawn as this.
const LEAST_TIME: f64 = 0.001;
/// A picture's class in the style sheet, width and height in pixels, size of text, ticks, corners of a line.
/// A phone of 360 pixels has 288 left beside margins and a scroll bar.
const SIZES: [(&str, u32, u32, u32, usize, usize); 2] =
    [("wide", 760, 310, 14, 9, 600), ("narrow", 288, 240, 12, 4, 200)];

/// A line: the index of its colour and dashes, its name, and its points by ascending x.
pub type Curve<'a> = (usize, &'a str, Vec<(f64, f64)>);

/// A chart by height.
pub struct Chart<'a> {
    pub title: &'static str,
    /// What the axis of values shows.
    pub y: &'static str,
    /// Whether the axis of values shows times, and is logarithmic.
    pub is_log: bool,
    pub curves: Vec<Curve<'a>>,
}

impl Chart<'_> {
    /// Returns the chart with its title and what its lines are; `None` if there are no points.
    pub fn figure(&self) -> Option<Markup> {
        let curves: Vec<_> = self.curves.iter().filter(|(_, _, points)| !points.is_empty()).collect();
        (!curves.is_empty()).then(|| {
            html! {
                figure {
                    h2 { (self.title) " " small { "(" (self.y) ")" } }
                    ul {
                        @for (style, name, points) in curves {
                            li {
                                svg class="key" viewBox="0 0 320 40" aria-hidden="true" {
                                    polyline points="0,20 320,20" stroke-width="30"
                                        stroke=(format!("var(--c{style})")) {}
                                }
                                (name) @if let Some((_, y)) = points.last() { ": " b { (self.tick(*y)) } }
                            }
                        }
                    }
                    @for (class, width, height, text, ticks, corners) in SIZES {
                        svg class=(class) role="img" aria-label=(self.title)
                            viewBox=(format!("0 0 {} {}", width * FINE, height * FINE)) {
                            (PreEscaped(self.drawn([width, height, text], ticks, corners)
                                .expect("nothing can fail where a picture is drawn in memory")))
                        }
                    }
                }
            }
        })
    }

    fn tick(&self, value: f64) -> String {
        if self.is_log { duration(value) } else { number((value * 100.0).round() / 100.0) }
    }

    /// Returns where a value is on its axis.
    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.max(LEAST_TIME).log10() } else { value }
    }

    /// Returns what plotters draws.
    fn drawn(&self, size: [u32; 3], ticks: usize, corners: usize) -> Result<String, Box<dyn Error>> {
        let [width, height, text] = size.map(|pixels| pixels * FINE);
        let points = || self.curves.iter().flat_map(|(_, _, points)| points);
        let x_range = range(points().map(|point| point.0));
        let y_range = range(points().map(|point| self.place(point.1)).chain((!self.is_log).then_some(0.0)));
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_top(text / 2)
            .margin_right(text * 2)
            .x_label_area_size(text * 7 / 2)
            .y_label_area_size(text * 9 / 2)
            .build_cartesian_2d(x_range, y_range)?;
        // Plotters divides sizes of text by this.
        let font = ("sans-serif", f64::from(text) * 1.24).into_font().color(&color("faint"));
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(color("grid").stroke_width(FINE))
            .axis_style(color("axis").stroke_width(FINE))
            .set_all_tick_mark_size(FINE * 4)
            .label_style(font)
            .x_desc("height")
            .x_labels(ticks)
            .y_labels(7)
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| self.tick(if self.is_log { 10_f64.powf(*value) } else { *value }))
            .draw()?;
        for (style, _, points) in &self.curves {
            let line = thinned(points, corners).map(|(x, y)| (x, self.place(y)));
            let color = RGBColor(0, 0, *style as u8);
            chart.draw_series(LineSeries::new(line, color.stroke_width(FINE * 9 / 4)))?;
        }
        root.present()?;
        drop(chart);
        drop(root);
        for (at, name) in COLORS.iter().enumerate() {
            svg = svg.replace(&format!("\"#{at:06X}\""), &format!("\"var(--{name})\""));
        }
        // Its first line is the opening tag, which the page writes itself.
        let lines = svg.trim_end().trim_end_matches("</svg>").split_once('\n');
        Ok(lines.map_or(String::new(), |(_, lines)| lines.to_owned()))
    }
}

/// Returns the range of all values. A single one needs some room.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let all = values.fold(f64::MAX..f64::MIN, |all, value| all.start.min(value)..all.end.max(value));
    all.start..if all.end > all.start { all.end } else { all.start + 1.0 }
}

fn color(name: &str) -> RGBColor {
    RGBColor(0, 0, COLORS.iter().position(|color| *color == name).unwrap_or_default() as u8)
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

    #[test]
    fn a_chart_of_nothing_is_nothing_and_one_of_a_point_is_drawn() {
        let chart =
            |points, is_log| Chart { title: "<b>", y: "", is_log, curves: vec![(1, "<i>\"n\"", points)] };
        assert!(chart(Vec::new(), false).figure().is_none());
        for is_log in [false, true] {
            let svg = chart(vec![(0.0, 0.0)], is_log).figure().unwrap().into_string();
            assert!(svg.contains("&lt;b&gt;") && svg.contains("&lt;i&gt;") && !svg.contains("NaN"), "{svg}");
            assert!(svg.contains("role=\"img\"") && svg.contains("stroke=\"var(--c1)\""), "{svg}");
            assert!(!svg.contains("=\"#"), "all colours are names of the style sheet: {svg}");
        }
    }
}

//! The picture of ages: the part of each band by height, one area on the other.

use super::{HeightJson, days};
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (960, 480);
const FONT: (&str, u32) = ("sans-serif", 14);
/// Pixels from one line of the legend to the next.
const LINE: i32 = 20;

pub fn svg(heights: &[HeightJson]) -> String {
    let mut svg = String::new();
    let drawn = draw(&mut svg, heights);
    debug_assert!(drawn.is_ok(), "nothing can fail where a picture is drawn in memory: {drawn:?}");
    svg
}

fn draw(svg: &mut String, heights: &[HeightJson]) -> Result<(), Box<dyn Error>> {
    let bands = heights.last().map_or(&[][..], |last| &last.bands);
    let (first, last) =
        (heights.first().map_or(0, |first| first.height.0), heights.last().map_or(0, |last| last.height.0));
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Bitcoin by age of the coins", (FONT.0, 20))
        .margin(12)
        .margin_right(165)
        .x_label_area_size(44)
        .y_label_area_size(56)
        // One height needs some room.
        .build_cartesian_2d(first..last.max(first + 1), 0.0..100.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .label_style(FONT)
        .x_desc("height")
        .y_label_formatter(&|part| format!("{part:.0} %"))
        .draw()?;
    // The youngest band is the lowest. Each area begins at 0, and the next covers what is below it.
    for (number, band) in bands.iter().enumerate().rev() {
        let color = HSLColor(0.75 * number as f64 / bands.len() as f64, 0.7, 0.55).filled();
        let top =
            |at: &HeightJson| at.bands.iter().take(number + 1).map(|band| at.part_of(band)).sum::<f64>();
        let points = heights.iter().map(|at| (at.height.0, top(at) * 100.0));
        chart.draw_series(AreaSeries::new(points, 0.0, color))?;
        let (x, y) = (SIZE.0 as i32 - 145, 40 + LINE * (bands.len() - 1 - number) as i32);
        root.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color))?;
        root.draw(&Text::new(days(band), (x + 18, y), FONT))?;
    }
    root.present()?;
    Ok(())
}

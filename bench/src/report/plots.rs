//! The charts, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::markdown::number;
use super::{Chart, Series};

const WIDTH: u32 = 860;
const BAR_HEIGHT: u32 = 34;
const OURS: RGBColor = RGBColor(0xc2, 0x41, 0x0c);
const THEIRS: RGBColor = RGBColor(0x64, 0x74, 0x8b);
const SERIES: [RGBColor; 7] = [
    THEIRS,
    OURS,
    RGBColor(0x0f, 0x76, 0x6e),
    RGBColor(0x7e, 0x22, 0xce),
    RGBColor(0x1d, 0x4e, 0xd8),
    RGBColor(0xca, 0x8a, 0x04),
    RGBColor(0x11, 0x18, 0x27),
];
const FONT: &str = "sans-serif";

/// Draws one chart into its file in a directory.
pub fn draw(chart: &Chart, dir: &Path) -> Result<()> {
    match chart {
        Chart::Bars {
            file,
            title,
            unit,
            bars,
        } => draw_bars(&dir.join(format!("{file}.svg")), &format!("{title} [{unit}]"), bars),
        Chart::Latencies { file, title, series } => draw_latencies(&dir.join(format!("{file}.svg")), title, series),
        Chart::Lines {
            file,
            title,
            axes,
            series,
        } => draw_lines(&dir.join(format!("{file}.svg")), title, axes, series),
    }
    .map_err(|e| anyhow!("could not draw {chart:?}: {e}"))
}

/// Horizontal bars with their lengths written after them; bars labelled fondaco are ours.
fn draw_bars(path: &Path, title: &str, bars: &[(String, f64)]) -> Result<(), Box<dyn std::error::Error>> {
    const LEFT: i32 = 270;
    const TOP: i32 = 50;
    const RIGHT_MARGIN: i32 = 110;
    let height = TOP as u32 + BAR_HEIGHT * bars.len() as u32 + 10;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw_text(title, &(FONT, 18).into_text_style(&root), (12, 14))?;
    let longest = bars.iter().map(|(_, length)| *length).fold(f64::MIN_POSITIVE, f64::max);
    let room = f64::from(WIDTH as i32 - LEFT - RIGHT_MARGIN);
    let text = (FONT, 14).into_text_style(&root);
    for (at, (label, length)) in bars.iter().enumerate() {
        let top = TOP + BAR_HEIGHT as i32 * at as i32;
        let end = LEFT + (room * length / longest).max(1.0) as i32;
        let color = if label.starts_with("fondaco") { OURS } else { THEIRS };
        root.draw(&Rectangle::new([(LEFT, top), (end, top + 22)], color.filled()))?;
        root.draw_text(label, &text, (12, top + 5))?;
        root.draw_text(&number(*length), &text, (end + 8, top + 5))?;
    }
    root.present()?;
    Ok(())
}

fn draw_latencies(path: &Path, title: &str, series: &[Series]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (WIDTH, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || series.iter().flat_map(|(_, points)| points);
    let low = points()
        .map(|point| point.0)
        .fold(f64::INFINITY, f64::min)
        .clamp(0.1, 1e9);
    let high = points().map(|point| point.0).fold(low * 10.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((low..high).log_scale(), 0.0..NINES_MAX)?;
    chart
        .configure_mesh()
        .x_desc("latency, µs")
        .y_desc("share of requests")
        .y_labels(NINES_MAX as usize + 1)
        .y_label_formatter(&|nines| format!("{}", 100.0 - 100.0 / 10f64.powf(*nines)))
        .draw()?;
    for (at, (label, points)) in series.iter().enumerate() {
        let color = SERIES[at % SERIES.len()];
        let line = points.iter().map(|(us, percentile)| (us.max(low), nines(*percentile)));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

fn draw_lines(
    path: &Path,
    title: &str,
    axes: &(String, String),
    series: &[Series],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (WIDTH, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || series.iter().flat_map(|(_, points)| points);
    let left = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let right = points().map(|point| point.0).fold(left + 1.0, f64::max);
    let high = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(left..right, 0.0..high * 1.05)?;
    chart
        .configure_mesh()
        .x_desc(&axes.0)
        .y_desc(&axes.1)
        .max_light_lines(2)
        .draw()?;
    for (at, (label, points)) in series.iter().enumerate() {
        let color = SERIES[at % SERIES.len()];
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

const NINES_MAX: f64 = 5.0;

/// 90 % is one nine, 99 % two.
fn nines(percentile: f64) -> f64 {
    (-(1.0 - percentile / 100.0).max(1e-12).log10()).min(NINES_MAX)
}

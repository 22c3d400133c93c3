//! The course of a run as a picture: requests per second above, latencies below, faults as lines.

use plotters::prelude::*;

use super::run::SeriesRow;

const SIZE: (u32, u32) = (900, 600);

/// The picture as SVG.
pub(super) fn course(title: &str, series: &[SeriesRow], faults: &[f64]) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, title, series, faults).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(
    text: &mut String,
    title: &str,
    series: &[SeriesRow],
    faults: &[f64],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 18))?;
    let (upper, lower) = area.split_vertically(290);
    let end = series.last().map_or(1.0, |row| row.seconds).max(1e-9);
    let most = |of: fn(&SeriesRow) -> f64| series.iter().map(of).fold(0.0, f64::max).max(1e-9);

    let top = most(|row| row.iops) * 1.1;
    let mut chart = ChartBuilder::on(&upper)
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("requests/s")
        .draw()?;
    let points = series.iter().map(|row| (row.seconds, row.iops));
    chart.draw_series(LineSeries::new(points, &BLUE))?;
    for &at in faults {
        chart.draw_series(LineSeries::new([(at, 0.0), (at, top)], &RED))?;
    }

    let top = most(|row| row.p99_us) * 1.1 / 1e3;
    let mut chart = ChartBuilder::on(&lower)
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("milliseconds")
        .draw()?;
    for (name, colour, of) in [
        (
            "50 %",
            BLUE,
            (|row: &SeriesRow| row.p50_us) as fn(&SeriesRow) -> f64,
        ),
        ("99 %", MAGENTA, |row| row.p99_us),
    ] {
        let points = series.iter().map(|row| (row.seconds, of(row) / 1e3));
        chart
            .draw_series(LineSeries::new(points, &colour))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    for &at in faults {
        chart.draw_series(LineSeries::new([(at, 0.0), (at, top)], &RED))?;
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    Ok(())
}

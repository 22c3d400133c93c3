//! Plots as SVG, by `plotters`, below each other in one picture.
//!
//! Every axis becomes a linear one before it is drawn (a logarithmic one by its logarithm, category
//! i is the number i), so there is one kind of plane; ticks are chosen here. The legend is to the
//! right of the plot, where it hides nothing. The paper's points are diamonds in the colour of
//! their series, with a dark rim; its ranges are shaded across the plot.

use std::ops::Range;

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::number;
use crate::chart::{Axis, Chart, Mark, Point, Reference, Scale, Series};

/// Width of a picture, and height of one plot in it, in pixels.
const WIDTH: u32 = 880;
const HEIGHT: u32 = 360;
/// Half of the side of a square of a map.
const SQUARE: i32 = 3;
/// Part of the width for the legend.
const LEGEND: u32 = 200;

/// Colours that people with any kind of colour vision can tell apart (M. Okabe and K. Ito, 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(150, 140, 0),
    RGBColor(110, 110, 110),
];

const INK: RGBColor = RGBColor(34, 34, 34);
const GRID: RGBColor = RGBColor(226, 226, 226);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Panic message for errors of plotters on a canvas in memory.
const MEMORY: &str = "a string takes whatever is drawn";

/// The plots as one SVG document.
#[must_use]
pub fn svg(charts: &[Chart]) -> String {
    let rows = charts.len().max(1);
    let height = HEIGHT * u32::try_from(rows).unwrap_or(1);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).expect(MEMORY);
        for (area, chart) in root.split_evenly((rows, 1)).iter().zip(charts) {
            draw(area, chart);
        }
        root.present().expect(MEMORY);
    }
    text
}

/// The name of category number `x`.
pub(super) fn category(names: &[String], x: f64) -> &str {
    let at = (0..names.len()).find(|&at| (index(at) - x).abs() < 0.5);
    at.map_or("", |at| names[at].as_str())
}

#[expect(clippy::cast_precision_loss, reason = "a plot has a few categories")]
const fn index(at: usize) -> f64 {
    at as f64
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

fn font(size: i32, anchor: (HPos, VPos)) -> TextStyle<'static> {
    let style = ("sans-serif", size).into_font().color(&INK);
    style.pos(Pos::new(anchor.0, anchor.1))
}

fn draw(area: &Area<'_>, chart: &Chart) {
    let (plot, legend) = area.split_horizontally(WIDTH - LEGEND);
    let (x, y) = (across(chart), upwards(chart));
    let mut plane = ChartBuilder::on(&plot)
        .margin(12)
        .margin_left(4)
        .caption(&chart.title, ("sans-serif", 16).into_font().color(&INK))
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(x.clone(), y.clone())
        .expect(MEMORY);
    for (at, name) in ticks(&chart.y, &y) {
        let line = PathElement::new([(x.start, at), (x.end, at)], GRID);
        plane.plotting_area().draw(&line).expect(MEMORY);
        let (left, middle) = plane.backend_coord(&(x.start, at));
        write(
            &plot,
            name,
            (left - 8, middle),
            font(13, (HPos::Right, VPos::Center)),
        );
    }
    for (at, name) in ticks(&chart.x, &x) {
        let (centre, bottom) = plane.backend_coord(&(at, y.start));
        write(
            &plot,
            name,
            (centre, bottom + 7),
            font(13, (HPos::Center, VPos::Top)),
        );
    }
    plane
        .configure_mesh()
        .disable_mesh()
        .axis_style(INK)
        .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
        .x_desc(&chart.x.title)
        .y_desc(&chart.y.title)
        .x_labels(0)
        .y_labels(0)
        .draw()
        .expect(MEMORY);
    if y.start < 0.0 && y.end > 0.0 && chart.y.scale == Scale::Linear {
        let zero = PathElement::new([(x.start, 0.0), (x.end, 0.0)], INK.mix(0.6));
        plane.plotting_area().draw(&zero).expect(MEMORY);
    }
    for (at, series) in chart.series.iter().enumerate() {
        match chart.mark {
            Mark::Bars => draw_bars(&plane, chart, at, series, &y),
            Mark::Lines => draw_lines(&plane, chart, at, series, &y),
            Mark::Squares => draw_squares(&plane, chart, at, series),
        }
    }
    for reference in &chart.references {
        let paint = reference_colour(reference);
        let ends = [reference.low, reference.high].map(|end| clamp(place(&chart.y, end), &y));
        let corners = [(x.start, ends[0]), (x.end, ends[1])];
        let shade = Rectangle::new(corners, paint.mix(0.16).filled());
        plane.plotting_area().draw(&shade).expect(MEMORY);
        for end in ends {
            let rim = PathElement::new([(x.start, end), (x.end, end)], paint);
            plane.plotting_area().draw(&rim).expect(MEMORY);
        }
    }
    // The paper's points are drawn above all of ours.
    for (at, series) in chart.series.iter().enumerate() {
        for point in &series.paper {
            let centre = (
                place(&chart.x, point.x)
                    + offset(chart, at).map_or(0.0, |(from, to)| f64::midpoint(from, to)),
                clamp(place(&chart.y, point.y), &y),
            );
            let diamond = EmptyElement::at(centre)
                + Polygon::new(vec![(0, -7), (6, 0), (0, 7), (-6, 0)], INK.filled())
                + Polygon::new(vec![(0, -5), (4, 0), (0, 5), (-4, 0)], colour(at).filled());
            plane.plotting_area().draw(&diamond).expect(MEMORY);
        }
    }
    draw_legend(&legend, chart);
}

fn reference_colour(reference: &Reference) -> RGBColor {
    reference.series.map_or(INK, colour)
}

fn write(area: &Area<'_>, text: String, at: (i32, i32), style: TextStyle<'static>) {
    let origin = area.get_base_pixel();
    let at = (at.0 - origin.0, at.1 - origin.1);
    area.draw(&Text::new(text, at, style)).expect(MEMORY);
}

/// Where the bars of series `at` are, left and right of the category's middle.
fn offset(chart: &Chart, at: usize) -> Option<(f64, f64)> {
    if chart.mark != Mark::Bars {
        return None;
    }
    let width = 0.8 / index(chart.series.len());
    let left = -0.4 + width * index(at);
    Some((left + 0.04 * width, left + 0.96 * width))
}

fn draw_bars(plane: &Plane<'_, '_>, chart: &Chart, at: usize, series: &Series, y: &Range<f64>) {
    let area = plane.plotting_area();
    let Some((left, right)) = offset(chart, at) else {
        return;
    };
    let floor = clamp(place(&chart.y, 0.0), y);
    for point in &series.ours {
        let x = place(&chart.x, point.x);
        let top = clamp(place(&chart.y, point.y), y);
        let bar = Rectangle::new([(x + left, floor), (x + right, top)], colour(at).filled());
        area.draw(&bar).expect(MEMORY);
        let middle = x + f64::midpoint(left, right);
        if point.y.is_infinite() {
            let sign = Text::new("∞", (middle, top), font(15, (HPos::Center, VPos::Bottom)));
            area.draw(&sign).expect(MEMORY);
        }
        draw_band(plane, chart, middle, point, y);
    }
}

fn draw_lines(plane: &Plane<'_, '_>, chart: &Chart, at: usize, series: &Series, y: &Range<f64>) {
    let area = plane.plotting_area();
    let points: Vec<(f64, f64)> = series
        .ours
        .iter()
        .map(|point| (place(&chart.x, point.x), clamp(place(&chart.y, point.y), y)))
        .collect();
    let line = PathElement::new(points.clone(), colour(at).stroke_width(2));
    area.draw(&line).expect(MEMORY);
    for (centre, point) in points.iter().zip(&series.ours) {
        draw_band(plane, chart, centre.0, point, y);
        area.draw(&Circle::new(*centre, 3, colour(at).filled()))
            .expect(MEMORY);
    }
}

fn draw_squares(plane: &Plane<'_, '_>, chart: &Chart, at: usize, series: &Series) {
    for point in &series.ours {
        let centre = (place(&chart.x, point.x), place(&chart.y, point.y));
        let square = EmptyElement::at(centre)
            + Rectangle::new([(-SQUARE, -SQUARE), (SQUARE, SQUARE)], colour(at).filled());
        plane.plotting_area().draw(&square).expect(MEMORY);
    }
}

/// Draws a whisker over the band of a point.
fn draw_band(plane: &Plane<'_, '_>, chart: &Chart, x: f64, point: &Point, y: &Range<f64>) {
    let Some((low, high)) = point.band else {
        return;
    };
    let ends = [low, high].map(|end| clamp(place(&chart.y, end), y));
    let whisker = PathElement::new([(x, ends[0]), (x, ends[1])], INK);
    plane.plotting_area().draw(&whisker).expect(MEMORY);
    for end in ends {
        let cap = EmptyElement::at((x, end)) + PathElement::new([(-3, 0), (3, 0)], INK);
        plane.plotting_area().draw(&cap).expect(MEMORY);
    }
}

/// Draws the meaning of colours and signs, from the top down.
fn draw_legend(area: &Area<'_>, chart: &Chart) {
    let style = || font(13, (HPos::Left, VPos::Center));
    let mut line = 52;
    let mut put = |sign: &dyn Fn(i32), name: &str| {
        sign(line);
        for part in wrapped(name, LEGEND_LETTERS) {
            area.draw(&Text::new(part, (24, line), style()))
                .expect(MEMORY);
            line += 17;
        }
        line += 4;
    };
    for (at, series) in chart.series.iter().enumerate() {
        let swatch = |y| {
            let square = Rectangle::new([(4, y - 6), (16, y + 6)], colour(at).filled());
            area.draw(&square).expect(MEMORY);
        };
        put(&swatch, &series.name);
    }
    if chart.series.iter().any(|series| !series.paper.is_empty()) {
        let diamond = |y| {
            let rim = Polygon::new(
                vec![(10, y - 7), (16, y), (10, y + 7), (4, y)],
                INK.filled(),
            );
            let inside = Polygon::new(
                vec![(10, y - 5), (14, y), (10, y + 5), (6, y)],
                WHITE.filled(),
            );
            area.draw(&rim).expect(MEMORY);
            area.draw(&inside).expect(MEMORY);
        };
        put(&diamond, "the paper");
    }
    for reference in &chart.references {
        let paint = reference_colour(reference);
        let shade = |y| {
            let square = Rectangle::new([(4, y - 6), (16, y + 6)], paint.mix(0.16).filled());
            area.draw(&square).expect(MEMORY);
            for end in [y - 6, y + 6] {
                let rim = PathElement::new([(4, end), (16, end)], paint);
                area.draw(&rim).expect(MEMORY);
            }
        };
        put(&shade, &reference.name);
    }
    if chart
        .series
        .iter()
        .any(|s| s.ours.iter().any(|point| point.band.is_some()))
    {
        let whisker = |y| {
            for path in [
                [(10, y - 6), (10, y + 6)],
                [(7, y - 6), (13, y - 6)],
                [(7, y + 6), (13, y + 6)],
            ] {
                area.draw(&PathElement::new(path, INK)).expect(MEMORY);
            }
        };
        put(&whisker, chart.band);
    }
}

/// Letters that a line of the legend has room for.
const LEGEND_LETTERS: usize = 25;

/// Breaks words into lines of at most `letters` letters.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A number's place on its axis, in units of the plane.
fn place(axis: &Axis, value: f64) -> f64 {
    match axis.scale {
        Scale::Categories(_) | Scale::Linear => value,
        Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
    }
}

const fn clamp(value: f64, range: &Range<f64>) -> f64 {
    value.clamp(range.start, range.end)
}

fn across(chart: &Chart) -> Range<f64> {
    match &chart.x.scale {
        Scale::Categories(names) => -0.5..index(names.len()) - 0.5,
        Scale::Linear | Scale::Log => {
            let range = extent(chart, &chart.x, |point| [point.x; 3]);
            let margin = 0.03 * (range.end - range.start);
            range.start - margin..range.end + margin
        }
    }
}

fn upwards(chart: &Chart) -> Range<f64> {
    let heights = |point: &Point| {
        let (low, high) = point.band.unwrap_or((point.y, point.y));
        [point.y, low, high]
    };
    let range = extent(chart, &chart.y, heights);
    if chart.y.range.is_some() {
        return range;
    }
    // Bars are comparable only if they start at 0.
    let from_zero = chart.mark == Mark::Bars && chart.y.scale == Scale::Linear;
    let (low, high) = match from_zero {
        true => (range.start.min(0.0), range.end.max(0.0)),
        false => (range.start, range.end),
    };
    let margin = 0.06 * (high - low);
    let below = if low == 0.0 { 0.0 } else { margin };
    low - below..high + margin
}

/// In units of the plane: the range of the axis, or from the least to the greatest number.
fn extent(chart: &Chart, axis: &Axis, of: impl Fn(&Point) -> [f64; 3]) -> Range<f64> {
    if let Some((low, high)) = axis.range {
        return place(axis, low)..place(axis, high);
    }
    let points = chart
        .series
        .iter()
        .flat_map(|s| s.ours.iter().chain(&s.paper));
    let numbers = points.flat_map(of).map(|number| place(axis, number));
    let (low, high) = numbers
        .filter(|number| number.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(number), high.max(number))
        });
    match low <= high {
        false => 0.0..1.0,
        true if low < high => low..high,
        true => low - 0.5..low + 0.5,
    }
}

/// Positions of the axis labels within `range`, and their texts.
fn ticks(axis: &Axis, range: &Range<f64>) -> Vec<(f64, String)> {
    let within = |at: f64| at >= range.start - 1e-9 && at <= range.end + 1e-9;
    match &axis.scale {
        Scale::Categories(names) => {
            let named = names.iter().enumerate();
            named.map(|(at, name)| (index(at), name.clone())).collect()
        }
        Scale::Linear => {
            let step = step((range.end - range.start) / 6.0);
            let first = (range.start / step).ceil();
            let places = (0..20_u32).map(|at| (first + f64::from(at)) * step);
            places
                .filter(|&at| within(at))
                .map(|at| (at, number(at)))
                .collect()
        }
        Scale::Log => {
            let decades = range.end - range.start;
            let pieces: &[f64] = if decades > 3.0 {
                &[1.0]
            } else {
                &[1.0, 2.0, 5.0]
            };
            let first = range.start.floor();
            let values = (0..20_u32).flat_map(|decade| {
                let power = 10_f64.powf(first + f64::from(decade));
                pieces.iter().map(move |piece| piece * power)
            });
            let places = values.map(|value| (value.log10(), number(value)));
            places.filter(|(at, _)| within(*at)).collect()
        }
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not less than `wanted`.
fn step(wanted: f64) -> f64 {
    let wanted = wanted.max(1e-9);
    let power = 10_f64.powf(wanted.log10().floor());
    let pieces = [1.0, 2.0, 5.0, 10.0].map(|piece| piece * power);
    pieces
        .into_iter()
        .find(|&piece| piece >= wanted * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_numbers() {
        let axis = Axis::linear("x");
        let names = |range| -> Vec<String> {
            ticks(&axis, &range)
                .into_iter()
                .map(|(_, name)| name)
                .collect()
        };
        assert_eq!(names(0.0..5.4), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(names(-3.0..7.0), ["−2", "0", "2", "4", "6"]);
        assert_eq!(names(0.0..0.7), ["0", "0.2", "0.4", "0.6"]);
    }

    #[test]
    fn logarithmic_ticks_are_ones_twos_and_fives() {
        let axis = Axis::log("x");
        let names: Vec<String> = ticks(&axis, &(0.0..2.0))
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["1", "2", "5", "10", "20", "50", "100"]);
    }

    #[test]
    fn long_names_are_wrapped_at_words() {
        assert_eq!(
            wrapped("bound, all survivors read", 14),
            ["bound, all", "survivors read"]
        );
        assert_eq!(wrapped("unbreakableword", 4), ["unbreakableword"]);
    }

    #[test]
    fn what_is_infinite_ends_at_the_top_and_says_so() {
        let mut chart = Chart::new(
            "c",
            "Chart <1> & more",
            Mark::Bars,
            Axis::categories("p", [5, 7]),
            Axis::linear("LF").from_to(0.0, 6.0),
        );
        chart.series.push(Series {
            name: "RDP".to_owned(),
            ours: vec![
                Point::new(0.0, f64::INFINITY),
                Point::new(1.0, 2.0).band((1.5, 2.5)),
            ],
            paper: vec![Point::new(1.0, 2.2)],
        });
        let text = svg(&[chart]);
        assert!(text.contains('∞') && text.contains("the paper"), "{text}");
        assert!(
            text.contains("Chart &lt;1&gt; &amp; more"),
            "names are escaped: {text}"
        );
        assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    }
}

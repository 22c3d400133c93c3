//! Plots as Vega-Lite 5: one specification per study, its plots below each other, the data inside.

use serde_json::{Value, json};

use crate::chart::{Axis, Chart, Mark, Point, Scale};
use crate::report::Report;

/// The specification of a report's plots.
#[must_use]
pub fn vega_lite(report: &Report) -> Value {
    let charts: Vec<Value> = report.charts.iter().map(chart).collect();
    json!({
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": report.about.title,
        "description": report.model,
        "vconcat": charts,
        // Every plot has its own series.
        "resolve": { "scale": { "color": "independent", "xOffset": "independent" } },
    })
}

fn chart(chart: &Chart) -> Value {
    let bars = chart.mark == Mark::Bars;
    let mut values = Vec::new();
    for series in &chart.series {
        for (source, points) in [("ours", &series.ours), ("paper", &series.paper)] {
            values.extend(points.iter().map(|point| {
                let (low, high) = point.band.unzip();
                json!({
                    "series": series.name, "source": source,
                    "x": position(&chart.x, point), "y": height(chart, point),
                    "low": low, "high": high,
                })
            }));
        }
    }
    let names: Vec<&str> = chart
        .series
        .iter()
        .map(|series| series.name.as_str())
        .collect();
    let colour = json!({ "field": "series", "type": "nominal", "title": null, "sort": names });
    let mut encoding = json!({
        "x": axis(&chart.x),
        "y": axis(&chart.y),
        "color": colour,
    });
    encoding["y"]["field"] = json!("y");
    encoding["x"]["field"] = json!("x");
    if bars {
        encoding["xOffset"] = json!({ "field": "series", "type": "nominal", "sort": names });
    }
    let only = |source: &str| json!([{ "filter": { "field": "source", "equal": source } }]);
    let mut layers = vec![json!({
        "transform": only("ours"),
        "mark": match chart.mark {
            Mark::Bars => json!({ "type": "bar", "clip": true }),
            Mark::Lines => json!({ "type": "line", "point": true, "clip": true }),
            Mark::Squares => json!({ "type": "square", "size": 60, "clip": true }),
        },
        "encoding": encoding,
    })];
    let has_bands = chart
        .series
        .iter()
        .any(|s| s.ours.iter().any(|point| point.band.is_some()));
    if has_bands {
        let mut banded = encoding.clone();
        banded["y"]["field"] = json!("low");
        banded["y2"] = json!({ "field": "high" });
        banded["color"] = json!({ "value": "#222222" });
        layers.push(json!({
            "transform": [
                { "filter": { "field": "source", "equal": "ours" } },
                { "filter": "isValid(datum.low)" },
            ],
            "mark": { "type": "rule", "clip": true },
            "encoding": banded,
        }));
    }
    layers.push(json!({
        "transform": only("paper"),
        "mark": {
            "type": "point", "shape": "diamond", "filled": true, "size": 90,
            "stroke": "black", "strokeWidth": 1.5,
        },
        "encoding": encoding,
    }));
    for reference in &chart.references {
        layers.push(json!({
            "data": { "values": [{
                "name": reference.name, "low": reference.low, "high": reference.high,
            }] },
            "mark": { "type": "rect", "opacity": 0.18, "color": "black", "stroke": "black" },
            "encoding": {
                "y": { "field": "low", "type": "quantitative" },
                "y2": { "field": "high" },
                "tooltip": { "field": "name" },
            },
        }));
    }
    json!({
        "title": chart.title,
        "width": 640,
        "height": 300,
        "data": { "values": values },
        "layer": layers,
    })
}

/// A point's place on the horizontal axis: the category's name, or the number.
fn position(axis: &Axis, point: &Point) -> Value {
    match &axis.scale {
        Scale::Categories(names) => json!(super::svg::category(names, point.x)),
        Scale::Linear | Scale::Log => json!(point.x),
    }
}

/// JSON has no infinity: an infinite height ends at the upper end of the plot.
fn height(chart: &Chart, point: &Point) -> f64 {
    match chart.y.range {
        Some((_, high)) if point.y.is_infinite() => high,
        _ => point.y,
    }
}

fn axis(axis: &Axis) -> Value {
    let mut encoding = match &axis.scale {
        Scale::Categories(names) => {
            json!({ "type": "nominal", "sort": names, "axis": { "labelAngle": 0 } })
        }
        Scale::Linear => json!({ "type": "quantitative", "scale": {} }),
        Scale::Log => json!({ "type": "quantitative", "scale": { "type": "log" } }),
    };
    encoding["title"] = json!(axis.title);
    if let Some((low, high)) = axis.range {
        encoding["scale"]["domain"] = json!([low, high]);
    }
    encoding
}

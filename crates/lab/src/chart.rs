//! A plot as a value: the source of both the SVG and the Vega-Lite of a study.

use serde::Serialize;

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Its part in file names and anchors.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// How our points are drawn. The paper's points are always diamonds.
    pub mark: Mark,
    /// The data.
    pub series: Vec<Series>,
    /// The meaning of the bands around our points.
    pub band: &'static str,
    /// Levels and ranges that the paper gives for several points together.
    pub references: Vec<Reference>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// Bars side by side over categories.
    Bars,
    /// Lines with a dot at each point.
    Lines,
    /// A square at each point: a map.
    Squares,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The quantity, with the unit.
    pub title: String,
    /// The scale.
    pub scale: Scale,
    /// Lower and upper end; from the data if not given (bars begin at 0 then).
    pub range: Option<(f64, f64)>,
}

/// Scale of an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Point i of a series belongs to category i.
    Categories(Vec<String>),
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
}

/// Points of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// The name of the series.
    pub name: String,
    /// Our points.
    pub ours: Vec<Point>,
    /// The paper's points, as far as its text gives them.
    pub paper: Vec<Point>,
}

/// One point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Position, or number of the category.
    pub x: f64,
    /// Height; an infinite height is drawn to the upper end.
    pub y: f64,
    /// The band around the height.
    pub band: Option<(f64, f64)>,
}

/// A range (or a level, if both ends are the same) across the plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// Its meaning.
    pub name: String,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The number of the series that it refers to; drawn in the colour of this series.
    pub series: Option<usize>,
}

impl Chart {
    /// A plot without data.
    pub fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        mark: Mark,
        x: Axis,
        y: Axis,
    ) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            x,
            y,
            mark,
            series: Vec::new(),
            band: "95 % interval of the mean",
            references: Vec::new(),
        }
    }

    /// True if the plot contains numbers of the paper.
    #[must_use]
    pub fn has_paper(&self) -> bool {
        !self.references.is_empty() || self.series.iter().any(|series| !series.paper.is_empty())
    }
}

impl Axis {
    /// An axis of categories.
    pub fn categories<T: ToString>(
        title: impl Into<String>,
        names: impl IntoIterator<Item = T>,
    ) -> Self {
        let names = names.into_iter().map(|name| name.to_string()).collect();
        Self {
            title: title.into(),
            scale: Scale::Categories(names),
            range: None,
        }
    }

    /// A linear axis over the range of the data.
    pub fn linear(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            scale: Scale::Linear,
            range: None,
        }
    }

    /// A logarithmic axis over the range of the data.
    pub fn log(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            scale: Scale::Log,
            range: None,
        }
    }

    /// From `low` to `high`.
    #[must_use]
    pub const fn from_to(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }
}

impl Point {
    /// A point without a band.
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, band: None }
    }

    /// With a band around its height.
    #[must_use]
    pub const fn band(mut self, band: (f64, f64)) -> Self {
        self.band = Some(band);
        self
    }
}

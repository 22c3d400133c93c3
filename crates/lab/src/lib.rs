//! The papers' tables and figures, reproduced: ours next to theirs, and the reason where they
//! differ.
//!
//! A *study* is one figure or table of one paper. It runs the code that users run (`erasure`,
//! `layout`, `array` under `sim`) and returns *rows*: our number, the paper's number, and a
//! *verdict*. The paper's number is never a result; it is only compared with one.
//!
//! ```text
//! study/*        one file a study, and STUDIES, the table of them
//! study/mod.rs   the trait Study; context.rs, its seed, size, progress and stop
//! row.rs         a row: ours, the paper's, the rule that compares them, the verdict
//! chart.rs       a plot as a value; the paper's points are part of it
//! report.rs      the results of one study
//! runner.rs      studies on several threads, and their progress
//! output/        JSON, CSV, Vega-Lite, SVG, and a page per paper
//! ```
//!
//! The same seed gives the same report, whatever the number of threads. The report has a hash of
//! the events (`trace`), which tests pin.
//!
//! The crate prints nothing and handles no signals: the binary does.

mod chart;
pub mod output;
mod paper;
mod report;
mod row;
mod runner;
mod study;
mod trace;

pub use chart::{Axis, Chart, Mark, Point, Reference, Scale, Series};
pub use paper::Paper;
pub use report::Report;
pub use row::{Row, Rule, Unit, Verdict};
pub use runner::{Monitor, Options, Progress, State, run};
pub use study::{About, Context, STUDIES, Stopped, Study, UnknownStudy, select};

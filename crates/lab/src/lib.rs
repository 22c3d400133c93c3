//! The papers' tables and figures, reproduced: ours beside theirs, and the reason where they differ.
//!
//! A *study* is one figure or table of one paper. It runs the code that users run (`erasure`,
//! `layout`, `array` under `sim`) and returns *rows*: what we found, what the paper says, and a
//! *verdict*. The paper's number is never a result; it is compared with one.
//!
//! ```text
//! study/*        one file a study, and STUDIES, the table of them
//! study.rs       what a study is, and what it is given: seed, size, progress, a way to stop
//! row.rs         a row: ours, the paper's, the rule that compares them, the verdict
//! chart.rs       a plot as a value; the paper's points are part of it
//! report.rs      all that one study found
//! runner.rs      studies on several threads, and what is known of them meanwhile
//! output/        JSON, CSV, Vega-Lite, SVG, and a page per paper
//! ```
//!
//! The same seed gives the same report: threads change nothing, and the report carries a hash of
//! what happened (`trace`), which tests pin.
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

//! The results of one study.

use serde::Serialize;

use crate::chart::Chart;
use crate::row::{Row, Verdict};
use crate::study::About;

/// The results of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which study.
    pub about: &'static About,
    /// The seed of all random numbers in it.
    pub seed: u64,
    /// True if it ran at full size.
    pub full: bool,
    /// The model, in sentences: drives, sizes, and what is left out.
    pub model: String,
    /// A hash of the events: the same seed gives the same trace.
    pub trace: u64,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The plots.
    pub charts: Vec<Chart>,
}

/// How many rows hold, differ, or cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// Our number agrees with the paper's.
    pub holds: usize,
    /// Our number differs from the paper's.
    pub differs: usize,
    /// Only one number exists, or the two do not measure the same.
    pub not_comparable: usize,
}

impl Report {
    /// Counts the verdicts.
    #[must_use]
    pub fn verdicts(&self) -> Verdicts {
        let mut counts = Verdicts::default();
        for row in &self.rows {
            match row.verdict {
                Verdict::Holds => counts.holds += 1,
                Verdict::Differs(_) => counts.differs += 1,
                Verdict::NotComparable(_) => counts.not_comparable += 1,
            }
        }
        counts
    }

    /// The row with an id.
    #[must_use]
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The command that runs the study again.
    #[must_use]
    pub fn command(&self) -> String {
        let full = if self.full { " --full" } else { "" };
        format!(
            "ravelin lab run {}{full} --seed {}",
            self.about.id, self.seed
        )
    }
}

/// A report's document, which `--json` prints.
#[derive(Debug, Serialize)]
struct Document<'a> {
    study: &'a str,
    title: &'a str,
    paper: &'a str,
    rows: &'a [Row],
    verdicts: Verdicts,
    seed: u64,
    full: bool,
    model: &'a str,
    trace: String,
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document {
            study: self.about.id,
            title: self.about.title,
            paper: self.about.paper.id,
            rows: &self.rows,
            verdicts: self.verdicts(),
            seed: self.seed,
            full: self.full,
            model: &self.model,
            trace: format!("{:016x}", self.trace),
        }
        .serialize(serializer)
    }
}

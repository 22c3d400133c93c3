//! One line of a result: ours, the paper's, and whether they agree.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One quantity ÷ another of its kind.
    Ratio,
    /// A share or a difference, in percent.
    Percent,
    /// 10^6 bytes in a second.
    MegabytesPerSecond,
    /// Operations in a second.
    OperationsPerSecond,
    /// Time.
    Minutes,
    /// Time.
    Seconds,
    /// Time.
    Milliseconds,
    /// 10^9 bytes.
    Gigabytes,
    /// Elements of a stripe.
    Elements,
    /// Blocks of 4 KiB.
    Blocks,
    /// Additions of whole elements.
    Xors,
    /// 1024 bytes.
    Kibibytes,
    /// Drives.
    Drives,
    /// Groups of columns.
    Groups,
    /// Requests.
    Requests,
    /// Places where a chunk ends.
    Boundaries,
}

impl Unit {
    /// The symbol in JSON and in tables.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Ratio => "×",
            Self::Percent => "%",
            Self::MegabytesPerSecond => "MB/s",
            Self::OperationsPerSecond => "IOPS",
            Self::Minutes => "min",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Gigabytes => "GB",
            Self::Elements => "elements",
            Self::Blocks => "blocks",
            Self::Xors => "XORs",
            Self::Kibibytes => "KiB",
            Self::Drives => "drives",
            Self::Groups => "groups",
            Self::Requests => "I/Os",
            Self::Boundaries => "boundaries",
        }
    }
}

/// Result of comparing our number with the paper's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The numbers agree, by the study's rule.
    Holds,
    /// The numbers differ, for this reason.
    Differs(String),
    /// The two do not measure the same, or only one exists; the text says what the number is
    /// instead.
    NotComparable(String),
}

impl Verdict {
    /// The word in JSON.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Differs(_) => "differs",
            Self::NotComparable(_) => "not comparable",
        }
    }
}

/// The rule by which our number agrees with the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// They differ by at most this, in the row's unit.
    Within(f64),
    /// They differ by at most this share of the paper's.
    WithinShare(f64),
    /// The paper's number is in the row's band, up to the precision of its printing: a number with
    /// two decimals stands for all numbers within half a hundredth of it.
    Band {
        /// Half of the last digit that the paper prints.
        rounding: f64,
    },
    /// Our number is between these, ends included: a range that was derived beforehand.
    Between(f64, f64),
    /// Our number is at most the paper's: the paper writes "at most".
    AtMost,
    /// Our number is at least the paper's: the paper writes "at least", or more is better.
    AtLeast,
}

/// One line of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Key for tools: stable, lower case, parts divided by points (`fig2.4p1x17.hdd`).
    pub id: String,
    /// Name for readers.
    pub name: String,
    /// Our number; infinite is allowed, and null in JSON.
    pub ours: f64,
    /// The band of our number, where it is random: 95 % of such runs, or the 95 % interval of the
    /// mean; the name states which.
    pub band: Option<(f64, f64)>,
    /// The paper's number.
    pub paper: Option<f64>,
    /// The unit of both numbers.
    pub unit: Unit,
    /// Result of the comparison.
    pub verdict: Verdict,
    /// A further remark.
    remark: Option<String>,
}

impl Row {
    /// Our number only, with its use as the reason of the verdict.
    pub fn alone(
        id: impl Into<String>,
        name: impl Into<String>,
        ours: f64,
        unit: Unit,
        why: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            ours,
            band: None,
            paper: None,
            unit,
            verdict: Verdict::NotComparable(why.into()),
            remark: None,
        }
    }

    /// With a band around our number.
    #[must_use]
    pub fn band(mut self, band: (f64, f64)) -> Self {
        self.band = Some(band);
        self
    }

    /// Compared with the paper's number; `reason` applies if they differ.
    #[must_use]
    pub fn against(mut self, paper: f64, rule: Rule, reason: impl Into<String>) -> Self {
        self.paper = Some(paper);
        self.verdict = match rule.holds(self.ours, self.band, paper) {
            true => Verdict::Holds,
            false => Verdict::Differs(reason.into()),
        };
        self
    }

    /// Next to the paper's number, which measures something else; the reason given at first stays.
    #[must_use]
    pub const fn beside(mut self, paper: f64) -> Self {
        self.paper = Some(paper);
        self
    }

    /// With a remark, whatever the verdict is.
    #[must_use]
    pub fn remark(mut self, remark: impl Into<String>) -> Self {
        self.remark = Some(remark.into());
        self
    }

    /// Ours ÷ the paper's, where both exist and are finite.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let paper = self.paper.filter(|paper| *paper != 0.0)?;
        Some(self.ours / paper).filter(|ratio| ratio.is_finite())
    }

    /// The verdict's reason and the remark.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let reason = match &self.verdict {
            Verdict::Holds => None,
            Verdict::Differs(reason) | Verdict::NotComparable(reason) => Some(reason.as_str()),
        };
        let parts: Vec<&str> = [reason, self.remark.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The rounding error of sums of decimal fractions.
const ROUNDING: f64 = 1e-9;

impl Rule {
    fn holds(self, ours: f64, band: Option<(f64, f64)>, paper: f64) -> bool {
        match self {
            Self::Within(distance) => (ours - paper).abs() <= distance + ROUNDING,
            Self::WithinShare(share) => (ours - paper).abs() <= share * paper.abs(),
            Self::Band { rounding } => band.is_some_and(|(low, high)| {
                let rounding = rounding + ROUNDING;
                (low - rounding..=high + rounding).contains(&paper)
            }),
            Self::Between(low, high) => (low..=high).contains(&ours),
            Self::AtMost => ours <= paper,
            Self::AtLeast => ours >= paper,
        }
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Row", 9)?;
        row.serialize_field("id", &self.id)?;
        row.serialize_field("name", &self.name)?;
        row.serialize_field("ours", &self.ours)?;
        row.serialize_field("paper", &self.paper)?;
        row.serialize_field("unit", self.unit.symbol())?;
        row.serialize_field("ratio", &self.ratio())?;
        row.serialize_field("verdict", self.verdict.word())?;
        row.serialize_field("note", &self.note())?;
        row.serialize_field("band", &self.band)?;
        row.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64) -> Row {
        Row::alone(
            "fig1.x",
            "x",
            ours,
            Unit::Percent,
            "nothing to compare with",
        )
    }

    #[test]
    fn every_rule_can_hold_and_can_fail() {
        for (rule, holds, fails) in [
            (Rule::Within(1.0), 11.0, 11.5),
            (Rule::WithinShare(0.05), 9.6, 9.4),
            (Rule::Between(2.0, 3.0), 2.0, 3.5),
            (Rule::AtMost, 10.0, 10.1),
            (Rule::AtLeast, 10.0, 9.9),
        ] {
            let judged = |ours| row(ours).against(10.0, rule, "chance").verdict;
            assert_eq!(judged(holds), Verdict::Holds, "{rule:?}");
            assert_eq!(
                judged(fails),
                Verdict::Differs("chance".to_owned()),
                "{rule:?}"
            );
        }
        let banded = |low, high| {
            let rule = Rule::Band { rounding: 0.05 };
            let row = row(9.0).band((low, high));
            row.against(10.0, rule, "chance").verdict
        };
        assert_eq!(banded(8.0, 10.5), Verdict::Holds);
        assert_eq!(banded(8.0, 9.96), Verdict::Holds);
        assert_eq!(banded(8.0, 9.94).word(), "differs");
        let without = row(10.0).against(10.0, Rule::Band { rounding: 0.05 }, "no band");
        assert_eq!(without.verdict.word(), "differs");
    }

    #[test]
    fn json_has_the_keys_that_tools_compare_by() {
        let holds = row(11.0).against(10.0, Rule::Within(2.0), "");
        let value = serde_json::to_value(&holds).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "id": "fig1.x", "name": "x", "ours": 11.0, "paper": 10.0, "unit": "%",
                "ratio": 1.1, "verdict": "holds", "note": null, "band": null,
            })
        );
        let alone = serde_json::to_value(row(f64::INFINITY)).unwrap();
        assert_eq!(alone["ours"], serde_json::Value::Null);
        assert_eq!(alone["verdict"], "not comparable");
        assert_eq!(alone["note"], "nothing to compare with");
    }
}

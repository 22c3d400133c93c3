//! Rows as CSV (RFC 4180), numbers at full precision.

use crate::report::Report;
use crate::row::Row;

const HEAD: [&str; 11] = [
    "study", "id", "name", "ours", "low", "high", "paper", "unit", "ratio", "verdict", "note",
];

pub(super) fn rows(report: &Report) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut put = |fields: &[String]| {
        writer
            .write_record(fields)
            .expect("memory takes records of one length");
    };
    put(&HEAD.map(str::to_owned));
    for row in &report.rows {
        put(&record(report.about.id, row));
    }
    let bytes = writer.into_inner().expect("memory takes all bytes");
    String::from_utf8(bytes).expect("strings were written")
}

fn record(study: &str, row: &Row) -> [String; HEAD.len()] {
    let number = |value: Option<f64>| {
        let finite = value.filter(|value| !value.is_nan());
        finite.map_or_else(String::new, |value| value.to_string())
    };
    [
        study.to_owned(),
        row.id.clone(),
        row.name.clone(),
        number(Some(row.ours)),
        number(row.band.map(|band| band.0)),
        number(row.band.map(|band| band.1)),
        number(row.paper),
        row.unit.symbol().to_owned(),
        number(row.ratio()),
        row.verdict.word().to_owned(),
        row.note().unwrap_or_default(),
    ]
}

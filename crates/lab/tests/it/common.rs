//! Runs a study as the binary does, and reads its report.

use lab::{Context, Progress, Report, Row, Verdict, select};

/// The report of a study at its defaults. Every row that does not hold must give a reason.
pub(crate) fn run(study: &str, seed: u64) -> Report {
    let studies = select(&[study]).unwrap();
    let progress = Progress::default();
    let about = studies[0].about();
    let context = Context::new(about.id, seed, false, &progress);
    let report = studies[0].run(&context).unwrap();
    for row in &report.rows {
        assert!(!row.ours.is_nan(), "{}", row.id);
        let noted = row.note().is_some_and(|note| !note.is_empty());
        assert!(
            row.verdict == Verdict::Holds || noted,
            "{} says nothing",
            row.id
        );
        let same = report.rows.iter().filter(|other| other.id == row.id);
        assert_eq!(same.count(), 1, "{} twice", row.id);
    }
    report
}

/// The row with an id.
pub(crate) fn row<'a>(report: &'a Report, id: &str) -> &'a Row {
    report.row(id).unwrap_or_else(|| panic!("no row {id}"))
}

/// Fails when a row differs from `expected` by more than `distance`.
pub(crate) fn near(report: &Report, id: &str, expected: f64, distance: f64) {
    let ours = row(report, id).ours;
    assert!(
        (ours - expected).abs() <= distance,
        "{id}: {ours}, not {expected}"
    );
}

//! The Shear studies at their defaults: every number is within the interval that the study states.

use crate::common::{near, row, run};
use lab::{Report, Row, Verdict};

/// Fails when a row differs from the paper.
fn nothing_differs(report: &Report) {
    for row in &report.rows {
        eprintln!(
            "{} {:.3} {:?} {} {:?}",
            row.id,
            row.ours,
            row.paper,
            row.verdict.word(),
            row.note()
        );
    }
    eprintln!("trace {:016x}", report.trace);
    let differs = |row: &&Row| matches!(row.verdict, Verdict::Differs(_));
    let differing: Vec<&str> = report
        .rows
        .iter()
        .filter(differs)
        .map(|row| row.id.as_str())
        .collect();
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn striping_is_found_by_both_procedures() {
    for study in ["shear-fig3", "shear-fig5", "shear-fig6", "shear-fig8"] {
        nothing_differs(&run(study, 1));
    }
}

#[test]
fn parity_layouts_are_found_by_both_procedures() {
    for study in ["shear-fig9", "shear-fig10", "shear-fig11"] {
        nothing_differs(&run(study, 1));
    }
}

#[test]
fn mirrors_are_found_by_both_procedures() {
    let report = run("shear-fig12", 1);
    nothing_differs(&report);
    near(&report, "fig12.worst", 0.5, 0.05);
    let report = run("shear-fig13", 1);
    nothing_differs(&report);
    near(&report, "fig13.chained.neighbours", 2.0 / 3.0, 0.067);
    // Pinned: a change here means a change of a model, of the array or of a procedure.
    assert_eq!(format!("{:016x}", report.trace), "71ebce079cc60d7d");
}

#[test]
fn ours_takes_a_small_share_of_the_published_requests() {
    let report = run("shear-fig7", 1);
    nothing_differs(&report);
    assert!(row(&report, "fig7.lax16.saving").ours >= 1000.0);
}

#[test]
fn writes_cost_their_drive_operations() {
    nothing_differs(&run("shear-fig14", 1));
    nothing_differs(&run("shear-fig15", 1));
    nothing_differs(&run("shear-fig16", 1));
}

#[test]
fn what_is_wrong_with_an_array_is_seen_and_named() {
    nothing_differs(&run("shear-fig17", 1));
    nothing_differs(&run("shear-fig18", 1));
    nothing_differs(&run("shear-fig19", 1));
}

#[test]
fn whole_stripes_are_twice_as_fast_from_four_stripes_on() {
    nothing_differs(&run("shear-fig20", 1));
}

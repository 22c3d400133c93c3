//! The dRAID studies at their defaults: the bands that were calculated before, and the traces.

use crate::common::{near, row, run};
use lab::{Report, Verdict};

fn between(report: &Report, id: &str, low: f64, high: f64) {
    let ours = row(report, id).ours;
    assert!((low..=high).contains(&ours), "{id}: {ours}");
}

#[test]
fn seven_drives_do_a_seventh_more_than_six() {
    let report = run("draid-fig1", 1);
    assert_eq!(row(&report, "fig1.f71").verdict, Verdict::Holds);
    between(&report, "fig1.f71", 1.10, 1.18);
    // The random repetitions agree.
    let (low, high) = row(&report, "fig1.f71").band.unwrap();
    assert!(high - low < 0.04, "{low} to {high}");
    let slow = row(&report, "fig1.f90.raidz").ours;
    let fast = row(&report, "fig1.f90.draid").ours;
    assert!(slow < fast);
}

#[test]
fn recovery_is_within_the_bands() {
    let report = run("draid-fig2", 1);
    for row in &report.rows {
        eprintln!("{} {:.3} {:?} {:?}", row.id, row.ours, row.band, row.note());
    }
    for (case, ideal, hdd) in [
        ("4p1x17", 3.496, (2.5, 2.9)),
        ("8p3x36", 3.393, (2.2, 2.8)),
        ("4p1x34", 7.212, (4.1, 4.8)),
    ] {
        near(&report, &format!("fig2.{case}.ideal"), ideal, ideal * 0.05);
        between(&report, &format!("fig2.{case}.hdd"), hdd.0, hdd.1);
        // The results of our own pool and its queue are above the paper's.
        let ours = row(&report, &format!("fig2.{case}.ours"));
        assert_eq!(ours.verdict, Verdict::Holds, "{case}: {}", ours.ours);
    }
    near(&report, "fig2.8p3x36.ideal-needed", 4.242, 4.242 * 0.05);
    for (case, h) in [("4p1x17", 0.672), ("8p3x36", 0.634), ("4p1x34", 0.527)] {
        near(&report, &format!("fig2.{case}.h"), h, 0.001);
    }
}

#[test]
fn more_width_data_or_parity_cost_recovery_or_throughput() {
    let report = run("draid-sweep", 1);
    let ours = |id: &str| row(&report, &format!("sweep.{id}")).ours;
    // All survivors share the writes of a recovery nearly evenly.
    assert!(ours("fill.90.wear-spread") < 1.25);
    // A wider stripe reads more for the same loss; more data takes longer.
    assert!(ours("width.8.recovery") > ours("width.2.recovery"));
    assert!(ours("fill.90.recovery") > 5.0 * ours("fill.10.recovery"));
    assert!(ours("parity.3.throughput") < ours("parity.1.throughput"));
    assert!(ours("redundancy.rebuilding.access") > ours("redundancy.degraded.access"));
    assert!(ours("redundancy.degraded.access") > ours("redundancy.whole.access"));
    // Pinned: a change here means a change of a model, a load or a rebuild.
    assert_eq!(format!("{:016x}", report.trace), "4cba9dbda5ab7bc5");
}

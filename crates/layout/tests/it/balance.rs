//! Balance targets.
use crate::common::geometry;
use layout::balance::{Question, report};

#[test]
fn probe() {
    for s in [
        "pddl1:4d:17c:2s",
        "pddl1:4d:34c:4s",
        "pddl3:8d:36c:3s",
        "pddl2:8d:60c:3s",
        "pddl2:8d:96c:8s:8f",
        "pddl2:8d:96c:8s:12f",
    ] {
        for failures in 1..=2 {
            let t = std::time::Instant::now();
            let g = geometry(s, 1);
            let dt = t.elapsed();
            let r = report(
                &g,
                &Question {
                    failures,
                    ..Default::default()
                },
            );
            println!(
                "{s} f{failures} total {:.4} r {:.4} w {:.4} worst {:.4} busiest {:.4} crit {:?} unif {:?} {:?} {dt:?}",
                r.rebuild.total.unwrap(),
                r.rebuild.reads.unwrap(),
                r.rebuild.writes.unwrap(),
                r.worst.total.unwrap(),
                r.busiest,
                r.critical_share,
                r.uniformity.spare,
                t.elapsed()
            );
        }
    }
}

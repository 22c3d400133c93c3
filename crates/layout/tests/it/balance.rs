//! Balance targets.
use crate::common::geometry;
use layout::balance::{Question, report};

#[test]
fn probe() {
    for s in [
        "ddp:8d:60c:3s",
        "crush2:8d:60c:3s",
        "ddp:8d:11c:1s",
        "ddp:8d:30c",
        "ddp:8d:1p:34c",
        "ddp:8d:96c:8s:8f",
    ] {
        for failures in 1..=2 {
            let t = std::time::Instant::now();
            let g = geometry(s, 1000);
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

//! Balance: the promised figures, counted.

use block::Seat;
use layout::Layout;
use layout::balance::{Question, Report, report, work};
use layout::developed::Shape;
use layout::{Geometry, search};
use sha2::Digest;

use crate::common::geometry;

/// Whether the long form of a test was asked for.
fn long() -> bool {
    std::env::var_os("RAVELIN_LONG").is_some_and(|value| value == "1")
}

fn weigh(geometry: &Geometry, failures: u16, sets_max: usize) -> Report {
    report(
        geometry,
        &Question {
            failures,
            sets_max,
            ..Question::default()
        },
    )
}

fn total(report: &Report) -> f64 {
    report.rebuild.total.expect("something is rebuilt")
}

#[test]
fn exact_pddl_is_perfect_in_every_respect() {
    for scheme in [
        "pddl1:4d:11c:1s",
        "pddl2:8d:31c:1s",
        "pddl1:6d:64c:1s",
        "pddl3:7d:61c:1s",
    ] {
        let report = weigh(&geometry(scheme, 1), 1, 256);
        for ratio in [
            report.uniformity.data,
            report.uniformity.parity,
            report.uniformity.spare,
            report.rebuild.reads,
            report.rebuild.writes,
            report.rebuild.total,
        ] {
            assert!((ratio.unwrap() - 1.0).abs() < 1e-12, "{scheme}: {report:?}");
        }
        assert!(report.exhaustive);
    }
}

/// (scheme, promised max/mean of one failure, OpenZFS's layout of the same shape)
const SEARCHED: [(&str, f64, &str); 4] = [
    ("pddl1:4d:17c:2s", 1.02, "draid1:4d:17c:2s"),
    ("pddl1:4d:34c:4s", 1.05, "draid1:4d:34c:4s"),
    ("pddl3:8d:36c:3s", 1.02, "draid3:8d:36c:3s"),
    ("pddl2:8d:60c:3s", 1.02, "draid2:8d:60c:3s"),
];

#[test]
fn searched_bases_keep_their_promise_and_beat_openzfs_at_two_failures() {
    for (scheme, promised, other) in SEARCHED {
        let (ours, theirs) = (geometry(scheme, 1), geometry(other, 1));
        let one = weigh(&ours, 1, 256);
        assert!(total(&one) <= promised, "{scheme}: {}", total(&one));
        let uniform = [
            one.uniformity.data,
            one.uniformity.parity,
            one.uniformity.spare,
        ];
        assert!(
            uniform
                .iter()
                .all(|ratio| (ratio.unwrap() - 1.0).abs() < 1e-12),
            "{scheme}"
        );
        // All pairs with drive 0 stand for all pairs. Of the patterns of 60 drives only a sample is
        // taken, except in the long form, and a sample does not decide the worst case.
        let all = ours.drives < 60 || long();
        let sets = if all { 256 } else { 6 };
        let (ours, theirs) = (weigh(&ours, 2, sets), weigh(&theirs, 2, sets));
        let (mean, of_theirs) = (total(&ours), total(&theirs));
        assert!(mean <= of_theirs, "{scheme}: {mean} {of_theirs}");
        let (worst, of_theirs) = (ours.worst.total.unwrap(), theirs.worst.total.unwrap());
        assert!(!all || worst <= of_theirs, "{scheme}: {worst} {of_theirs}");
    }
}

#[test]
fn openzfs_maps_are_as_uneven_as_published() {
    for (scheme, published) in [
        ("draid2:8d:11c:1s", 1.000),
        ("draid1:4d:17c:2s", 1.038),
        ("draid1:4d:34c:4s", 1.037),
        ("draid3:8d:36c:3s", 1.023),
        ("draid2:8d:60c:3s", 1.018),
    ] {
        let found = total(&weigh(&geometry(scheme, 1), 1, 256));
        assert!((found - published).abs() < 0.001, "{scheme}: {found}");
    }
}

#[test]
fn partly_filled_drives_rebuild_nearly_as_evenly() {
    let geometry = geometry("pddl2:8d:60c:3s", 1);
    for (fill_percent, promised) in [(10.0, 1.04), (50.0, 1.01), (100.0, 1.01)] {
        let question = Question {
            fill_percent,
            sets_max: 12,
            ..Question::default()
        };
        let found = total(&report(&geometry, &question));
        assert!(found <= promised, "{fill_percent} %: {found}");
    }
}

#[test]
fn pair_balanced_pools_spread_rebuilds_and_meetings() {
    for scheme in [
        "ddp:8d:60c:3s",
        "ddp:8d:11c:1s",
        "ddp:8d:30c",
        "ddp:4d:1p:34c",
        "ddp:16d:120c",
    ] {
        let geometry = geometry(scheme, 1000);
        let report = weigh(&geometry, 1, 256);
        assert!(total(&report) <= 1.04, "{scheme}: {}", total(&report));
        let (mean, most) = report.critical_share;
        assert!(most <= 1.10 * mean, "{scheme}: {mean} {most}");
        assert!(report.uniformity.data.unwrap() < 1.01, "{scheme}");
        assert!(
            report.uniformity.parity.unwrap() < 1.03,
            "{scheme}: {:?}",
            report.uniformity
        );
    }
    // For comparison: hashing alone.
    let hashed = weigh(&geometry("crush2:8d:60c:3s", 1000), 1, 256);
    assert!(total(&hashed) > 1.1, "{}", total(&hashed));
}

/// The least possible max/mean of reads when drives of f domains are developed and groups of `width` put
/// at most p columns into one domain. A group has at most p − 1 other columns in the failed drive's
/// domain, so drives of other domains carry the rest.
fn unavoidable(drives: u16, domains: u16, width: u16, parity: u16) -> f64 {
    let mates = f64::from(drives / domains - 1);
    let others = f64::from(drives - 1) - mates;
    let reads = f64::from(width - 1);
    let with_mates = reads.min(f64::from(parity - 1));
    let even = reads * mates / (mates + others);
    if even <= with_mates {
        1.0
    } else {
        (reads - with_mates) / others * (mates + others) / reads
    }
}

#[test]
fn failure_domains_hold_and_rebuilds_stay_spread() {
    for scheme in [
        "pddl2:8d:96c:8s:8f",
        "pddl2:8d:96c:8s:12f",
        "pddl1:7d:96c:8s:8f",
        "pddl2:4d:24c:3s:3f",
        "pddl2:8d:60c:5s:12f",
        "pddl3:9d:24c:4f",
    ] {
        let geometry = geometry(scheme, 1);
        let layout = geometry.layout.as_ref();
        let f = geometry.scheme.domains.unwrap();
        let rows = layout.pattern_rows();
        for group in 0..layout.groups(rows.min(2000)) {
            let mut held = vec![0; f.into()];
            for column in 0..layout.columns() {
                held[usize::from(layout.cell(group, column).seat.0 % f)] += 1;
            }
            let most = held.iter().max().unwrap();
            assert!(*most <= geometry.parity, "{scheme}: group {group} {held:?}");
        }
        // A whole domain fails: nothing is lost.
        let failed: Vec<Seat> = (0..geometry.drives)
            .filter(|x| x % f == 1)
            .map(Seat)
            .collect();
        let some = rows.min(500);
        assert_eq!(
            work(&geometry, some, layout.groups(some), &failed).lost,
            0,
            "{scheme}"
        );
        if scheme.contains("96c") {
            let one = weigh(&geometry, 1, 256);
            let bound = unavoidable(96, f, layout.columns(), geometry.parity);
            assert!(
                total(&one) <= 1.15 * bound,
                "{scheme}: {} of {bound}",
                total(&one)
            );
            assert!(
                (one.uniformity.spare.unwrap() - 1.0).abs() < 1e-12,
                "{scheme}"
            );
            // OpenZFS's failure groups: 1.969 for 8 groups of 12.
            assert!(total(&one) < 1.3, "{scheme}: {}", total(&one));
        }
    }
}

#[test]
fn spares_keep_domains_apart_while_there_are_any() {
    let geometry = geometry("pddl2:8d:96c:8s:8f", 1);
    let layout = geometry.layout.as_ref();
    for group in 0..500 {
        let lost = layout.cell(group, 3).seat;
        let spare = layout
            .spare_for(group, 3, &|seat| seat == lost, &|_| false)
            .unwrap();
        let domain = spare.seat.0 % 8;
        let others = (0..10).filter(|&c| c != 3 && layout.cell(group, c).seat.0 % 8 == domain);
        assert!(others.count() < 2, "group {group}");
    }
}

#[test]
fn the_search_gives_the_same_bases_everywhere() {
    // Pools in the field store their bases. But two machines of one version must not compute different
    // bases. If the search is improved on purpose, these digests change with it.
    for (shape, domains, digest) in [
        (
            Shape {
                drives: 60,
                width: 10,
                parity: 2,
                spares: 3,
            },
            None,
            "5d9a1a12e36e6e36",
        ),
        (
            Shape {
                drives: 24,
                width: 6,
                parity: 2,
                spares: 3,
            },
            Some(3),
            "b83be1841a6bcbe8",
        ),
    ] {
        let found = search::search_within(shape, domains, 2_000_000).unwrap();
        let stored = found.stored().unwrap();
        let sum = sha2::Sha256::digest(&stored);
        let hex: String = sum[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, digest);
        let again = search::restore(shape, domains, &stored).unwrap();
        assert_eq!(again.bases(), found.bases());
    }
}

#[test]
fn a_shape_that_was_searched_before_has_the_bases_of_its_search() {
    let shape = Shape {
        drives: 8,
        width: 4,
        parity: 2,
        spares: 0,
    };
    let searched = search::search_within(shape, Some(2), search::UPDATES).unwrap();
    for _ in 0..2 {
        let found = search::search(shape, Some(2)).unwrap();
        assert_eq!(found.bases(), searched.bases());
    }
}

#[test]
fn stored_bases_come_back_through_the_geometry_and_damaged_ones_are_refused() {
    let made = geometry("pddl1:4d:18c:2s", 1);
    let stored = made.stored().expect("searched bases are stored");
    assert!(stored.len() < 4096, "{} bytes fit a label", stored.len());
    let again = Geometry::restore(&made.scheme, None, 1, &stored).unwrap();
    let rows = made.layout.pattern_rows();
    assert_eq!(again.layout.pattern_rows(), rows);
    for group in (0..made.layout.groups(rows)).step_by(7) {
        assert_eq!(again.layout.cell(group, 2), made.layout.cell(group, 2));
    }
    let refused = |bytes: &[u8]| Geometry::restore(&made.scheme, None, 1, bytes).unwrap_err();
    for bytes in [&[][..], &stored[..stored.len() - 1], &[7, 1, 0], &[1, 9, 0]] {
        assert_eq!(refused(bytes).field(), layout::Field::Stored);
    }
    let mut twice = stored.clone();
    twice[2] = twice[3];
    assert!(refused(&twice).to_string().contains("base 0"));
    assert!(
        geometry("pddl1:4d:11c:1s", 1).stored().is_none(),
        "exact bases need no storing"
    );
}

#[test]
fn rebuild_time_follows_the_bound() {
    // Section 7.1 of the dRAID comparison: n(n−1)/((n−s)(d+p)) when all survivors are read.
    for (scheme, bound) in [("pddl1:4d:17c:2s", 3.627), ("pddl3:8d:36c:3s", 3.471)] {
        let geometry = geometry(scheme, 1);
        let report = weigh(&geometry, 1, 256);
        // The bound counts spare cells of the failed drive as saved work; the report is per unit of data
        // that the drive held.
        let n = f64::from(geometry.drives);
        let held = (n - f64::from(geometry.spares)) / n;
        let speedup = report.speedup() / held;
        assert!(
            (speedup - bound).abs() < 0.02 * bound,
            "{scheme}: {speedup}"
        );
        let seconds = report.rebuild_seconds(4e12, 200e6);
        assert!((seconds - 4e12 / 200e6 / report.speedup()).abs() < 1e-6);
    }
}

#[test]
fn chained_declustering_reads_from_both_neighbours() {
    let geometry = geometry("chained:8c", 4);
    let work = work(&geometry, 1, 1, &[Seat(3)]);
    let readers: Vec<usize> = (0..8).filter(|&x| work.reads[x] > 0).collect();
    assert_eq!(readers, [2, 4]);
    assert_eq!(work.reads[2], work.reads[4]);
    assert_eq!(work.homeless, work.rebuilt, "there is no spare");
    // Two neighbours together lose data, other pairs do not.
    let lost = |failed: &[Seat]| layout::balance::work(&geometry, 1, 1, failed).lost;
    assert!(lost(&[Seat(3), Seat(4)]) > 0);
    assert_eq!(lost(&[Seat(3), Seat(5)]), 0);
}

#[test]
fn reads_of_an_island_stay_in_the_island() {
    let geometry = geometry("raid6:4d:50c:2s", 4);
    let work = work(&geometry, 4, geometry.layout.groups(4), &[Seat(7)]);
    for seat in 0..50 {
        assert_eq!(
            work.reads[seat] > 0,
            (6..12).contains(&seat) && seat != 7,
            "{seat}"
        );
        assert_eq!(
            work.writes[seat] > 0,
            seat == 48,
            "the first hot spare takes all"
        );
    }
}

//! Reads: one lost column, and degraded reads.

use crate::common::{Numbers, check_recovery, stripe};
use erasure::{Code, ElementSet, ReadPolicy, by_columns, by_parameter, kernel};

const ARRAYS: [&str; 10] = [
    "dcode",
    "xcode",
    "rdp",
    "evenodd",
    "hcode",
    "hdp",
    "pcode",
    "liberation",
    "blaumroth",
    "cauchy",
];

const POLICIES: [ReadPolicy; 3] = [
    ReadPolicy::FirstEquation,
    ReadPolicy::FewestReads,
    ReadPolicy::SmallestMaximum,
];

fn reads(code: &Code, column: u16) -> usize {
    let recovery = code.recover_column(column).expect("one column");
    recovery.recovery.reads.len()
}

/// The number of reads of a rebuild with each element's first equation, for D-Code the horizontal one.
fn conventional(code: &Code, column: u16) -> usize {
    let known = code.without_columns(&[column]);
    let wanted = code.columns_set(&[column]);
    let plan = code.plan_read(&known, &wanted, ReadPolicy::FirstEquation);
    plan.expect("one column").reads.len()
}

#[test]
fn one_column_of_d_code_and_x_code_needs_the_known_minimum_of_reads() {
    for name in ["dcode", "xcode"] {
        // 12 and 26 are proven minima; the savings for 11 and 13 are 20.9 % and 21.8 % of the
        // reads of the horizontal (X-Code: diagonal) equations.
        for (p, least, saving) in [(5, 12, 7.6), (7, 26, 16.1), (11, 72, 20.8), (13, 104, 21.8)] {
            let code = by_parameter(name, p).expect("prime");
            for column in 0..code.columns() {
                assert_eq!(reads(&code, column), least, "{name}:{p} column {column}");
                assert!(code.recover_column(column).expect("one column").optimal);
                let plain = conventional(&code, column) as f64;
                let saved = 100.0 * (plain - least as f64) / plain;
                assert!(saved >= saving, "{name}:{p} column {column}: {saved:.2} %");
            }
        }
    }
}

#[test]
fn one_data_column_of_rdp_needs_three_quarters_of_the_rest() {
    // Xiang et al., "Optimal Recovery of Single Disk Failure in RDP Code Storage Systems",
    // SIGMETRICS 2010: 3(p-1)²/4.
    for p in [5, 7, 11, 13, 17] {
        let code = by_parameter("rdp", p).expect("prime");
        let p = usize::from(p);
        assert_eq!(reads(&code, 0), 3 * (p - 1) * (p - 1) / 4);
    }
}

/// Beyond all equations and their sums: no set of 11 of the 20 other elements determines the
/// column, so 12 is the minimum of any method.
#[test]
fn no_eleven_elements_determine_a_column_of_d_code_5() {
    let code = by_parameter("dcode", 5).expect("prime");
    let wanted = code.columns_set(&[0]);
    let others: Vec<usize> = code.without_columns(&[0]).iter().collect();
    assert_eq!(others.len(), 20);
    let mut sets = 0;
    for mask in 0u32..1 << 20 {
        if mask.count_ones() == 11 {
            let chosen = others
                .iter()
                .enumerate()
                .filter(|(i, _)| mask >> i & 1 == 1);
            let known: ElementSet = chosen.map(|(_, &slot)| slot).collect();
            assert!(code.recover(&known, &wanted).is_err(), "{known:?}");
            sets += 1;
        }
    }
    assert_eq!(sets, 167_960);
    assert_eq!(reads(&code, 0), 12);
}

#[test]
fn column_recoveries_give_the_lost_bytes_from_their_reads_alone() {
    for name in ARRAYS {
        for p in [5, 7, 11] {
            let code = by_parameter(name, p).expect("prime");
            let truth = stripe(&code, 23, &mut Numbers::new(u64::from(p)));
            for column in 0..code.columns() {
                let known = code.without_columns(&[column]);
                let wanted = code.columns_set(&[column]);
                let best = &code.recover_column(column).expect("one column").recovery;
                check_recovery(&code, kernel::best(), &truth, &known, &wanted, best);
                assert!(
                    best.reads.len() <= conventional(&code, column),
                    "{name}:{p}"
                );
            }
        }
    }
}

#[test]
fn each_policy_is_best_at_what_it_is_for() {
    for name in ARRAYS {
        for p in [5, 7] {
            let code = by_parameter(name, p).expect("prime");
            let columns = usize::from(code.columns());
            let data: Vec<usize> = code.data_slots().collect();
            let truth = stripe(&code, 11, &mut Numbers::new(1));
            for lost in 0..code.columns() {
                let known = code.without_columns(&[lost]);
                for start in 0..data.len() {
                    for length in [1, 2, 5, 9] {
                        let wanted = (start..start + length).map(|i| data[i % data.len()]);
                        let wanted: ElementSet = wanted.collect();
                        let plans = POLICIES.map(|policy| {
                            let plan = code.plan_read(&known, &wanted, policy).expect("one");
                            check_recovery(&code, kernel::best(), &truth, &known, &wanted, &plan);
                            plan
                        });
                        let [first, fewest, flat] = plans;
                        let most = |reads: &[usize]| {
                            let count = |c| reads.iter().filter(|&&s| s % columns == c).count();
                            (0..columns).map(count).max()
                        };
                        assert!(fewest.reads.len() <= first.reads.len());
                        assert!(fewest.reads.len() <= flat.reads.len());
                        assert!(most(&flat.reads) <= most(&first.reads));
                        assert!(most(&flat.reads) <= most(&fewest.reads));
                    }
                }
            }
        }
    }
}

#[test]
fn d_codes_first_equation_is_the_horizontal_one() {
    let code = by_parameter("dcode", 7).expect("prime");
    let lost = code.data_slots().next().expect("data");
    let known = code.without_columns(&[0]);
    let wanted: ElementSet = [lost].into_iter().collect();
    let plan = code
        .plan_read(&known, &wanted, ReadPolicy::FirstEquation)
        .expect("one");
    let horizontal = code
        .equations()
        .iter()
        .find(|e| e.kind == "horizontal" && e.members.iter().any(|&(m, _)| code.index(m) == lost));
    let horizontal = horizontal.expect("every element is in one");
    let mut expected: Vec<usize> = horizontal
        .members
        .iter()
        .map(|&(m, _)| code.index(m))
        .collect();
    expected.retain(|&slot| slot != lost);
    expected.push(code.index(horizontal.parity));
    expected.sort_unstable();
    assert_eq!(plan.reads, expected);
}

#[test]
fn elements_read_anyway_cost_nothing() {
    // All elements of an RDP row are wanted and one is lost: only the row parity is read in addition.
    let code = by_columns("rdp", 8).expect("any width");
    let wanted: ElementSet = (0..6).collect();
    let plan = code
        .plan_read(
            &code.without_columns(&[2]),
            &wanted,
            ReadPolicy::FewestReads,
        )
        .expect("one column");
    assert_eq!(plan.reads, [0, 1, 3, 4, 5, 6]);
}

#[test]
fn two_lost_columns_fall_back_to_decoding_under_every_policy() {
    let code = by_parameter("dcode", 5).expect("prime");
    let truth = stripe(&code, 5, &mut Numbers::new(2));
    let known = code.without_columns(&[1, 2]);
    let wanted: ElementSet = [1, 2, 3].into_iter().collect();
    for policy in POLICIES {
        let plan = code
            .plan_read(&known, &wanted, policy)
            .expect("two columns");
        check_recovery(&code, kernel::best(), &truth, &known, &wanted, &plan);
        let known = code.without_columns(&[0, 1, 2]);
        assert!(code.plan_read(&known, &wanted, policy).is_err());
    }
}

//! Lost columns are recovered, for every code and width; more losses than the code survives are refused.

use crate::common::{Numbers, check_recovery, combinations, evaluate, stripe};
use erasure::{Code, ElementSet, NAMES, by_columns, kernel};

/// Every set of up to `tolerance` columns, on every kernel; one more is refused.
fn verify(code: &Code, length: usize) {
    let mut numbers = Numbers::new(code.elements() as u64);
    let truth = stripe(code, length, &mut numbers);
    let kernels = kernel::available();
    for kernel in kernels {
        let mut encoded = truth.clone();
        code.parity_slots()
            .for_each(|slot| encoded[slot].fill(0x77));
        code.encode().run(kernel, &mut encoded);
        assert_eq!(
            encoded,
            truth,
            "{} encoded by {}",
            code.name(),
            kernel.name()
        );
    }
    for count in 1..=usize::from(code.tolerance()) {
        for (i, lost) in combinations(code.columns(), count).iter().enumerate() {
            let known = code.without_columns(lost);
            let wanted = code.columns_set(lost);
            let recovery = code.recover(&known, &wanted).expect("within the tolerance");
            // Kernels differ in arithmetic only: each pattern runs on the naive kernel and, in turn, on
            // one of the others.
            check_recovery(code, kernels[0], &truth, &known, &wanted, &recovery);
            let kernel = kernels[1 + i % (kernels.len() - 1)];
            check_recovery(code, kernel, &truth, &known, &wanted, &recovery);
        }
    }
    if code.tolerance() < code.columns() {
        for lost in combinations(code.columns(), usize::from(code.tolerance()) + 1) {
            let known = code.without_columns(&lost);
            let wanted = code.columns_set(&lost);
            let refusal = code
                .recover(&known, &wanted)
                .expect_err("beyond the tolerance");
            assert!(!refusal.elements.is_empty());
        }
    }
}

#[test]
fn every_code_survives_its_tolerance_and_refuses_more_at_every_width_up_to_nine() {
    for name in NAMES {
        for columns in 1..=9 {
            if let Ok(code) = by_columns(name, columns) {
                assert_eq!(code.columns(), columns);
                verify(&code, 67);
            }
        }
    }
}

#[test]
fn a_partial_write_through_update_equals_encoding_anew() {
    for name in NAMES {
        let Some(code) = (5..8).find_map(|columns| by_columns(name, columns).ok()) else {
            panic!("{name} has no width from 5 to 7");
        };
        let mut numbers = Numbers::new(3);
        let mut before = stripe(&code, 41, &mut numbers);
        let data: Vec<usize> = code.data_slots().collect();
        for _ in 0..40 {
            let changed: Vec<usize> = data
                .iter()
                .copied()
                .filter(|_| numbers.below(3) == 0)
                .collect();
            let mut after = before.clone();
            for &slot in &changed {
                after[slot] = numbers.bytes(41);
            }
            evaluate(&code, &mut after);

            let update = code.update(&changed);
            let differing = code.parity_slots().filter(|&p| before[p] != after[p]);
            assert!(differing.into_iter().all(|p| update.parities.contains(&p)));
            let mut deltas = before.clone();
            for &slot in &changed {
                let pairs = before[slot].iter().zip(&after[slot]);
                deltas[slot] = pairs.map(|(a, b)| a ^ b).collect();
            }
            update.schedule.run(kernel::best(), &mut deltas);
            for parity in code.parity_slots() {
                assert_eq!(deltas[parity], after[parity], "{name}");
            }
            before = after;
        }
    }
}

#[test]
fn parities_wanted_from_known_data_are_computed_from_data_alone() {
    for name in NAMES {
        for columns in 3..9 {
            let Ok(code) = by_columns(name, columns) else {
                continue;
            };
            let mut numbers = Numbers::new(9);
            let truth = stripe(&code, 19, &mut numbers);
            let known: ElementSet = code.data_slots().collect();
            for parity in code.parity_slots() {
                let wanted: ElementSet = [parity].into_iter().collect();
                let recovery = code.recover(&known, &wanted).expect("data is all there");
                assert_eq!(recovery.schedule.outputs().len(), 1);
                check_recovery(&code, kernel::best(), &truth, &known, &wanted, &recovery);
            }
        }
    }
}

#[test]
fn wanted_elements_that_are_known_are_read_and_nothing_is_computed() {
    let code = by_columns("pq", 6).expect("six columns");
    let known = code.without_columns(&[1]);
    let wanted: ElementSet = [0, 5].into_iter().collect();
    let recovery = code.recover(&known, &wanted).expect("known");
    assert_eq!(recovery.reads, [0, 5]);
    assert!(recovery.schedule.steps.is_empty());
}

#[test]
fn two_lost_columns_of_p_and_q_come_back_in_one_pass() {
    let code = by_columns("pq", 10).expect("ten columns");
    let known = code.without_columns(&[2, 5]);
    let recovery = code
        .recover(&known, &code.columns_set(&[2, 5]))
        .expect("two");
    assert_eq!(
        recovery.schedule.program().passes(),
        1,
        "{}",
        recovery.schedule
    );
    assert_eq!(code.encode().program().passes(), 1);
}

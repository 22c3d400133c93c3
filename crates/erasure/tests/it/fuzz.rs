//! Random erasures of single elements, any lengths, any alignment: elements that can be decoded are
//! decoded right, others are refused, and an independent rank computation decides which is which.

use crate::common::{Numbers, evaluate, stripe};
use erasure::kernel::{self, Stores};
use erasure::{Code, ElementSet, NAMES, by_columns, gf};

/// Whether each element follows from the known ones, computed in another way than by the crate: the span
/// of the known elements as combinations of data.
fn determined(code: &Code, known: &ElementSet) -> Vec<bool> {
    let data: Vec<usize> = code.data_slots().collect();
    let vector = |slot: usize| -> Vec<u8> {
        let of = |&d: &usize| match code.is_data(slot) {
            true => u8::from(d == slot),
            false => code.coefficient(slot, d),
        };
        data.iter().map(of).collect()
    };
    let mut basis: Vec<(usize, Vec<u8>)> = Vec::new();
    let reduce = |basis: &[(usize, Vec<u8>)], mut v: Vec<u8>| {
        for (pivot, b) in basis {
            let factor = v[*pivot];
            v.iter_mut()
                .zip(b)
                .for_each(|(x, &y)| *x ^= gf::multiply(factor, y));
        }
        v
    };
    for slot in known.iter() {
        let v = reduce(&basis, vector(slot));
        if let Some(pivot) = v.iter().position(|&x| x != 0) {
            let scale = gf::invert(v[pivot]);
            basis.push((pivot, v.iter().map(|&x| gf::multiply(x, scale)).collect()));
        }
    }
    (0..code.elements())
        .map(|slot| reduce(&basis, vector(slot)).iter().all(|&x| x == 0))
        .collect()
}

fn round(code: &Code, numbers: &mut Numbers) -> (usize, usize) {
    let length = [1, 2, 3, 15, 31, 63, 64, 65, 127, 1 + numbers.below(700)][numbers.below(10)];
    let truth = stripe(code, length, numbers);
    let kernels = kernel::available();
    let kernel = kernels[numbers.below(kernels.len())];

    // Lost: some columns, and single elements in addition. Wanted: a random part of all elements.
    let mut known = ElementSet::full(code.elements());
    for _ in 0..numbers.below(usize::from(code.tolerance()) + 2) {
        let column = numbers.below(usize::from(code.columns()));
        known.difference_with(&code.columns_set(&[u16::try_from(column).expect("few")]));
    }
    for _ in 0..numbers.below(1 + code.elements() / 3) {
        known.remove(numbers.below(code.elements()));
    }
    let one_in = 1 + numbers.below(4);
    let wanted: ElementSet = (0..code.elements())
        .filter(|_| numbers.below(one_in) == 0)
        .collect();
    let determined = determined(code, &known);
    let possible = wanted.iter().all(|slot| determined[slot]);

    match code.recover(&known, &wanted) {
        Err(refusal) => {
            assert!(!possible, "{} refuses {known:?} -> {wanted:?}", code.name());
            let unrecoverable = wanted.iter().filter(|&slot| !determined[slot]);
            assert_eq!(refusal.elements, unrecoverable.collect::<Vec<_>>());
            (0, 1)
        }
        Ok(recovery) => {
            assert!(
                possible,
                "{} invents {wanted:?} from {known:?}",
                code.name()
            );
            assert!(recovery.reads.iter().all(|&slot| known.contains(slot)));
            run_unaligned(code, kernel, &truth, &recovery, numbers);
            (1, 0)
        }
    }
}

/// Every slice at its own odd address, with guards before and after the outputs.
fn run_unaligned(
    code: &Code,
    kernel: &kernel::Kernel,
    truth: &[Vec<u8>],
    recovery: &erasure::Recovery,
    numbers: &mut Numbers,
) {
    let length = truth[0].len();
    let program = recovery.schedule.program();
    let sources: Vec<(usize, Vec<u8>)> = program
        .inputs()
        .iter()
        .map(|&slot| {
            let shift = numbers.below(64);
            let mut bytes = vec![0; shift];
            bytes.extend(&truth[usize::from(slot)]);
            (shift, bytes)
        })
        .collect();
    let inputs: Vec<&[u8]> = sources
        .iter()
        .map(|(shift, bytes)| &bytes[*shift..])
        .collect();
    let mut sinks: Vec<(usize, Vec<u8>)> = program
        .outputs()
        .iter()
        .map(|_| (numbers.below(64), vec![0xee; length + 128]))
        .collect();
    let mut outputs: Vec<&mut [u8]> = sinks
        .iter_mut()
        .map(|(shift, bytes)| &mut bytes[*shift..*shift + length])
        .collect();
    let stores = [Stores::Cached, Stores::Streaming, Stores::Auto][numbers.below(3)];
    program.run(kernel, &inputs, &mut outputs, stores);
    for (&slot, (shift, bytes)) in program.outputs().iter().zip(&sinks) {
        let end = shift + length;
        let context = format!("{} on {} length {length}", code.name(), kernel.name());
        assert_eq!(
            bytes[*shift..end],
            truth[usize::from(slot)],
            "{context} slot {slot}"
        );
        let guards = bytes[..*shift].iter().chain(&bytes[end..]);
        assert!(
            guards.into_iter().all(|&b| b == 0xee),
            "{context} wrote outside"
        );
    }
}

#[test]
fn random_erasures_are_decoded_right_or_refused() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let rounds = if long { 1000 } else { 40 };
    for name in NAMES {
        let mut numbers = Numbers::new(name.len() as u64 * 77);
        let (mut decoded, mut refused) = (0, 0);
        for columns in 2..=14 {
            let Ok(code) = by_columns(name, columns) else {
                continue;
            };
            for _ in 0..rounds {
                let (yes, no) = round(&code, &mut numbers);
                decoded += yes;
                refused += no;
            }
        }
        assert!(
            decoded > rounds && refused > 0,
            "{name} {decoded} {refused}"
        );
    }
}

#[test]
fn kernels_agree_with_the_naive_one_on_slices_of_any_length_and_alignment() {
    let mut numbers = Numbers::new(8);
    let naive = kernel::by_name("naive").expect("always there");
    for _ in 0..400 {
        let lengths = [0, 1, 5, 31, 32, 33, 63, 64, 100, 255, 256, 257, 511, 1025];
        let length = lengths[numbers.below(lengths.len())];
        let (rows, count) = (1 + numbers.below(7), 1 + numbers.below(9));
        let plain = numbers.below(2) == 0;
        let matrix: Vec<u8> = (0..rows * count)
            .map(|i| {
                if plain && i < count {
                    1
                } else {
                    numbers.byte()
                }
            })
            .collect();
        // Some sources are shorter or longer than the targets.
        let sources: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let odd = [length, length, length, length / 2, length + 7][numbers.below(5)];
                numbers.bytes(odd + 3)
            })
            .collect();
        let shift = numbers.below(4);
        let slices: Vec<&[u8]> = sources.iter().map(|s| &s[shift..]).collect();
        let before: Vec<Vec<u8>> = (0..rows).map(|_| numbers.bytes(length + 3)).collect();
        let accumulate = numbers.below(2) == 0;
        let run = |kernel: &kernel::Kernel, stores| {
            let mut targets = before.clone();
            let mut slots: Vec<&mut [u8]> = targets.iter_mut().map(|t| &mut t[3..]).collect();
            kernel.combine(&mut slots, accumulate, &slices, &matrix, stores);
            targets
        };
        let truth = run(naive, Stores::Cached);
        for kernel in kernel::available() {
            assert_eq!(run(kernel, Stores::Cached), truth, "{kernel:?}");
            assert_eq!(run(kernel, Stores::Streaming), truth, "{kernel:?}");
        }
    }
}

#[test]
fn steps_of_no_terms_clear_or_keep_their_target() {
    for kernel in kernel::available() {
        let mut target = [7; 70];
        kernel.step(&mut target, true, &[]);
        assert_eq!(target, [7; 70]);
        kernel.step(&mut target, false, &[(&[1, 2], 1)]);
        assert_eq!((target[0], target[1], target[2]), (1, 2, 0));
        kernel.step(&mut target, false, &[]);
        assert_eq!(target, [0; 70]);
    }
}

/// Elements larger than a tile: temporaries start anew in each tile, and streamed outputs that a
/// later step reads are read back right.
#[test]
fn long_elements_are_computed_tile_by_tile() {
    let mut numbers = Numbers::new(4);
    for name in ["rdp", "evenodd", "dcode", "liberation", "cauchy", "pqr"] {
        let code = by_columns(name, 7).expect("seven columns");
        let length = 70_001;
        let mut truth: Vec<Vec<u8>> = vec![vec![0; length]; code.elements()];
        for slot in code.data_slots() {
            let pattern = numbers.bytes(1009);
            truth[slot] = pattern.iter().copied().cycle().take(length).collect();
        }
        evaluate(&code, &mut truth);
        for lost in [[0, 1], [2, 6], [5, 6], [3, 4]] {
            let known = code.without_columns(&lost);
            let wanted = code.columns_set(&lost);
            let recovery = code.recover(&known, &wanted).expect("two columns");
            for kernel in &kernel::available()[1..] {
                run_unaligned(&code, kernel, &truth, &recovery, &mut numbers);
            }
        }
    }
}

//! The naive and the portable kernel, small enough for an interpreter:
//! `cargo +nightly miri test -p ravelin-erasure --test it miri`.

use crate::common::{Numbers, check_recovery, stripe};
use erasure::by_columns;
use erasure::kernel::{self, Stores};

#[test]
fn portable_kernels_decode_odd_lengths_and_unaligned_slices() {
    for (name, lost) in [
        ("pq", [0, 2]),
        ("pqr", [1, 3]),
        ("rdp", [0, 1]),
        ("mirror", [0, 1]),
    ] {
        let code = by_columns(name, 5).expect("five columns");
        for length in [1, 64, 131] {
            let mut numbers = Numbers::new(length as u64);
            let truth = stripe(&code, length, &mut numbers);
            let (known, wanted) = (code.without_columns(&lost), code.columns_set(&lost));
            let recovery = code.recover(&known, &wanted).expect("two columns");
            for name in ["naive", "portable"] {
                let kernel = kernel::by_name(name).expect("always there");
                check_recovery(&code, kernel, &truth, &known, &wanted, &recovery);
            }
        }
    }
}

#[test]
fn portable_kernels_combine_slices_of_different_lengths() {
    let mut numbers = Numbers::new(2);
    let (a, b, c) = (numbers.bytes(150), numbers.bytes(70), numbers.bytes(300));
    let sources: [&[u8]; 3] = [&a[1..], &b[3..], &c[5..]];
    let matrix = [1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    let run = |name| {
        let mut targets = vec![vec![9; 201]; 4];
        let mut slices: Vec<&mut [u8]> = targets.iter_mut().map(|t| &mut t[1..]).collect();
        let kernel = kernel::by_name(name).expect("always there");
        kernel.combine(&mut slices, true, &sources, &matrix, Stores::Cached);
        targets
    };
    assert_eq!(run("naive"), run("portable"));
}

//! The sweep of `ravelin code verify --all`, shortened; `RAVELIN_LONG=1` runs all of it.

use erasure::{NAMES, by_columns, by_parameter, verify};

#[test]
fn every_code_holds_what_it_promises_at_every_width_and_prime() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let (widths, primes): (u16, &[u16]) = if long {
        (24, &[5, 7, 11, 13, 17, 19, 23])
    } else {
        (11, &[5, 7, 11])
    };
    let (mut recovered, mut refused) = (0, 0);
    for name in NAMES {
        let by_width = (1..=widths).filter_map(|columns| by_columns(name, columns).ok());
        let by_prime = primes.iter().filter_map(|&p| by_parameter(name, p).ok());
        for code in by_width.chain(by_prime) {
            let verified = verify(&code, 67).unwrap_or_else(|error| panic!("{error}"));
            recovered += verified.recovered;
            refused += verified.refused;
        }
    }
    assert!(
        recovered > 2_000 && refused > 5_000,
        "{recovered} {refused}"
    );
}

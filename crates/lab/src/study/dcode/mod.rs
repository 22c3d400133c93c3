//! D-Code against the other RAID-6 array codes: loads, costs and read speeds, counted in elements.
//!
//! The paper does not describe its model. The model here (`loads`, `speed`) reproduces every number
//! in its text, with two exceptions that are rows of their own in `fig5`. Reads and writes are
//! counted in elements of the stripe, and nothing is measured in time.

mod features;
mod fig4;
mod fig5;
mod fig6;
mod fig7;
mod loads;
mod speed;

pub(super) use features::Features;
pub(super) use fig4::Fig4;
pub(super) use fig5::Fig5;
pub(super) use fig6::Fig6;
pub(super) use fig7::Fig7;

use erasure::Code;

/// The paper's primes.
const PRIMES: [u16; 4] = [5, 7, 11, 13];

/// Lengths of the paper's operations: 1 to this many data elements.
const LENGTH_MAX: usize = 20;

/// A code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tested {
    name: &'static str,
    title: &'static str,
}

/// The paper's codes, in the order of its figures. Their numbers of disks for a prime p are p + 1,
/// p + 1, p − 1, p, p.
const PAPERS: [Tested; 5] = [
    Tested {
        name: "rdp",
        title: "RDP",
    },
    Tested {
        name: "hcode",
        title: "H-Code",
    },
    Tested {
        name: "hdp",
        title: "HDP",
    },
    Tested {
        name: "xcode",
        title: "X-Code",
    },
    Tested {
        name: "dcode",
        title: "D-Code",
    },
];

/// Codes that the paper names but does not measure, or does not mention.
const OTHERS: [Tested; 6] = [
    Tested {
        name: "evenodd",
        title: "EVENODD",
    },
    Tested {
        name: "pcode",
        title: "P-Code",
    },
    Tested {
        name: "liberation",
        title: "Liberation",
    },
    Tested {
        name: "blaumroth",
        title: "Blaum-Roth",
    },
    Tested {
        name: "cauchy",
        title: "Cauchy Reed-Solomon",
    },
    Tested {
        name: "pq",
        title: "P+Q",
    },
];

impl Tested {
    /// True if the paper measures it.
    fn in_paper(self) -> bool {
        PAPERS.contains(&self)
    }

    /// The code for a prime. For `pq` and `cauchy` the prime is the number of data columns.
    fn code(self, prime: u16) -> Code {
        erasure::by_parameter(self.name, prime).expect("all of these exist for primes from 5 on")
    }
}

/// Every code with every prime, the paper's codes first.
fn cases() -> Vec<(Tested, u16)> {
    let all = PAPERS.into_iter().chain(OTHERS);
    all.flat_map(|code| PRIMES.map(|prime| (code, prime)))
        .collect()
}

/// Note for numbers of codes that the paper does not measure.
const NOT_MEASURED: &str = "the paper's text has no number for this";

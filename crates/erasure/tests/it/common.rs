//! What the tests share: bytes from a seed, and the oracle, which evaluates the equations as they
//! are written with the naive kernel.

use erasure::kernel::{self, Kernel};
use erasure::{Code, ElementSet, Recovery};

/// xorshift64*: a sequence of numbers from a seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 16).expect("48 bits") % n
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[5]
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }
}

/// A stripe with random data and parities evaluated equation by equation, byte by byte.
pub(crate) fn stripe(code: &Code, length: usize, numbers: &mut Numbers) -> Vec<Vec<u8>> {
    let mut stripe = vec![vec![0; length]; code.elements()];
    for slot in code.data_slots() {
        stripe[slot] = numbers.bytes(length);
    }
    evaluate(code, &mut stripe);
    stripe
}

/// Overwrites all parities by their equations.
pub(crate) fn evaluate(code: &Code, stripe: &mut [Vec<u8>]) {
    let naive = kernel::by_name("naive").expect("always there");
    for equation in code.equations() {
        let target = code.index(equation.parity);
        let mut sum = std::mem::take(&mut stripe[target]);
        let members = equation.members.iter();
        let terms: Vec<(&[u8], u8)> = members
            .map(|&(member, coefficient)| (&stripe[code.index(member)][..], coefficient))
            .collect();
        naive.step(&mut sum, false, &terms);
        stripe[target] = sum;
    }
}

/// Overwrites everything that is not known with rubbish, runs the recovery with only its reads,
/// and compares the wanted elements with the truth.
pub(crate) fn check_recovery(
    code: &Code,
    kernel: &Kernel,
    truth: &[Vec<u8>],
    known: &ElementSet,
    wanted: &ElementSet,
    recovery: &Recovery,
) {
    let length = truth[0].len();
    let mut stripe = vec![vec![0xa5; length]; code.elements()];
    for &slot in &recovery.reads {
        assert!(known.contains(slot), "{}: reads what is lost", code.name());
        stripe[slot].clone_from(&truth[slot]);
    }
    recovery.schedule.run(kernel, &mut stripe);
    for slot in wanted.iter() {
        assert_eq!(
            stripe[slot],
            truth[slot],
            "{}:{} width {} kernel {} slot {slot} of {wanted:?}",
            code.name(),
            code.parameter(),
            code.columns(),
            kernel.name(),
        );
    }
}

/// All sets of `count` of the numbers below `n`.
pub(crate) fn combinations(n: u16, count: usize) -> Vec<Vec<u16>> {
    let mut sets = vec![Vec::new()];
    for _ in 0..count {
        sets = sets
            .into_iter()
            .flat_map(|set: Vec<u16>| {
                let first = set.last().map_or(0, |last| last + 1);
                (first..n).map(move |next| [&set[..], &[next]].concat())
            })
            .collect();
    }
    sets
}

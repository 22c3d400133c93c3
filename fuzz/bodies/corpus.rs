//! Runs a fuzz target's body over its committed corpus and random mutations of it, so that every
//! body runs with all tests, at least for a second.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "crates without I/O are tested from files, and for a while"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use block::SplitMix64;

/// Numbers that depend only on the seed.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound.max(1) as u64)).unwrap()
    }
}

/// Runs `body` on every file of the corpus and on mutations; prints an input that fails.
pub(crate) fn over_corpus(name: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut corpus: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(corpus.len() >= 5, "the corpus is in {}", dir.display());
    corpus.sort();
    for input in &corpus {
        checked(input, body);
    }
    let mut random = Random(SplitMix64::new(corpus.len() as u64));
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    // The same inputs in the same order on every machine; a slow machine runs fewer of them.
    let time = Duration::from_secs(if long { 60 } else { 1 });
    let (since, mut rounds) = (Instant::now(), 0);
    while rounds < 1000 || since.elapsed() < time {
        let mut input = corpus[random.below(corpus.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut input, &corpus, &mut random);
        }
        input.truncate(16 << 10);
        checked(&input, body);
        rounds += 1;
    }
}

fn checked(input: &[u8], body: fn(&[u8])) {
    if let Err(panic) = std::panic::catch_unwind(|| body(input)) {
        eprintln!("input: {input:02x?}");
        std::panic::resume_unwind(panic);
    }
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len());
    let end = (at + random.below(16)).min(input.len());
    match random.below(6) {
        _ if input.is_empty() => {
            input.extend((0..8).map(|_| u8::try_from(random.below(256)).unwrap()));
        }
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        4 => input[at..end].fill(0xff),
        _ => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len());
            input.truncate(at);
            input.extend(&other[from..]);
        }
    }
}

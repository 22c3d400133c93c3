//! The bodies of the fuzz targets over the committed corpus and random mutations of it, so that
//! they run wherever tests run.

#[path = "../../../fuzz/bodies/nbd.rs"]
mod nbd;
mod support;

use std::path::Path;

use support::Random;

/// Runs `body` on every file of the corpus and on mutations; an input that fails is printed.
fn over_corpus(name: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut corpus: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(corpus.len() >= 5, "the corpus is in {}", dir.display());
    corpus.sort();
    let mut random = Random(corpus.len() as u64);
    for input in &corpus {
        body(input);
    }
    let rounds = if std::env::var_os("RAVELIN_LONG").is_some() {
        5_000_000
    } else {
        100_000
    };
    for _ in 0..rounds {
        let mut input = corpus[pick(&mut random, corpus.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut input, &corpus, &mut random);
        }
        input.truncate(4096);
        if let Err(panic) = std::panic::catch_unwind(|| body(&input)) {
            eprintln!("input: {input:02x?}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn pick(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound.max(1) as u64)).unwrap()
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = pick(random, input.len());
    let end = (at + pick(random, 16)).min(input.len());
    match random.below(6) {
        _ if input.is_empty() => input.extend(random.bytes(8)),
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = [0, 1, 0x7f, 0x80, 0xff][pick(random, 5)],
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        4 => input[at..end].fill(0xff),
        _ => {
            let other = &corpus[pick(random, corpus.len())];
            let from = pick(random, other.len());
            input.truncate(at);
            input.extend(&other[from..]);
        }
    }
}

#[test]
fn any_handshake_is_answered_well_and_gives_nothing_away() {
    over_corpus("nbd_handshake", nbd::handshake);
}

#[test]
fn any_request_that_reaches_the_device_is_inside_it() {
    over_corpus("nbd_request", nbd::request);
}

//! Interleaved rounds.

use testing::thread_cpu_time;

/// One stripe: sources, targets.
pub(crate) type Work<'a> = dyn FnMut(&[&[u8]], &mut [&mut [u8]]) + 'a;

/// A way to do the same work.
pub(crate) struct Arm<'a> {
    pub(crate) name: &'static str,
    pub(crate) work: Box<Work<'a>>,
}

impl<'a> Arm<'a> {
    pub(crate) fn new(
        name: &'static str,
        work: impl FnMut(&[&[u8]], &mut [&mut [u8]]) + 'a,
    ) -> Self {
        let work = Box::new(work);
        Self { name, work }
    }
}

/// CPU seconds of `passes` passes over all stripes.
fn time(arm: &mut Arm<'_>, stripes: &mut [Vec<&mut [u8]>], sources: usize, passes: usize) -> f64 {
    let mut inputs: Vec<&[u8]> = Vec::with_capacity(sources);
    let mut spent = 0.0;
    // For single stripes, borrowing the slices anew is outside of the timed part; for stripes of
    // megabytes it does not matter.
    for stripe in stripes {
        let (head, tail) = stripe.split_at_mut(sources);
        inputs.clear();
        let head: Vec<&[u8]> = head.iter().map(|slice| &**slice).collect();
        let start = thread_cpu_time();
        for _ in 0..passes {
            (arm.work)(&head, tail);
        }
        spent += (thread_cpu_time() - start).as_secs_f64();
    }
    spent
}

/// Median CPU seconds a pass, and per arm the median of (its time / the first arm's time).
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) ratios: Vec<f64>,
}

/// Rounds of all arms in turning order; the first arm is ours.
pub(crate) fn interleave(
    arms: &mut [Arm<'_>],
    stripes: &mut [Vec<&mut [u8]>],
    sources: usize,
    rounds: usize,
) -> Measured {
    // Each turn takes some milliseconds at least, less than the scheduler's slice.
    let mut passes = 1;
    while time(&mut arms[0], stripes, sources, passes) < 1.5e-3 {
        passes *= 2;
    }
    let count = arms.len();
    let mut ours = Vec::new();
    let mut ratios = vec![Vec::new(); count];
    for round in 0..rounds {
        let mut times = vec![0.0; count];
        for turn in 0..count {
            let arm = (turn + round) % count;
            times[arm] = time(&mut arms[arm], stripes, sources, passes);
        }
        ours.push(times[0] / passes as f64);
        for (list, t) in ratios.iter_mut().zip(&times) {
            list.push(t / times[0]);
        }
    }
    Measured {
        seconds: median(ours),
        ratios: ratios.into_iter().map(median).collect(),
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A line: ours in GB/s, then each peer's name and how many times faster ours is.
pub(crate) fn report(
    work: &str,
    level: crate::Level,
    arms: &mut [Arm<'_>],
    stripes: &mut [Vec<&mut [u8]>],
    sources: usize,
) {
    let long = level == crate::Level::Dram;
    // The better peer is chosen here, before the reported run.
    let before = interleave(arms, stripes, sources, if long { 3 } else { 9 });
    let best = (1..arms.len())
        .filter(|&i| !arms[i].name.starts_with('('))
        .min_by(|&a, &b| before.ratios[a].total_cmp(&before.ratios[b]));
    let measured = interleave(arms, stripes, sources, if long { 11 } else { 101 });
    let strip = stripes[0][0].len();
    let data = (stripes.len() * sources * strip) as f64;
    let mut line = format!(
        "{work:<26} {:>5}  {:>9.1} ",
        format!("{level:?}"),
        data / measured.seconds * 1e-9
    );
    for (i, arm) in arms.iter().enumerate().skip(1) {
        let mark = if Some(i) == best { "*" } else { "" };
        line += &format!(" {}{mark} {:.2}x", arm.name, measured.ratios[i]);
    }
    println!("{line}");
}

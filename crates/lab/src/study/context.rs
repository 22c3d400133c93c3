//! The context of a study: seed, size, threads, progress and stop.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rayon::prelude::*;

use crate::runner::Progress;
use crate::trace::Trace;

/// The study was asked to stop; its partial results are not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// The environment of a study.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    study: &'static str,
    seed: u64,
    full: bool,
    progress: &'a Progress,
}

impl<'a> Context<'a> {
    /// The context of the study with this id.
    #[must_use]
    pub const fn new(study: &'static str, seed: u64, full: bool, progress: &'a Progress) -> Self {
        Self {
            study,
            seed,
            full,
            progress,
        }
    }

    /// The seed of the run.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// True to run at the paper's size, however long this takes.
    #[must_use]
    pub const fn full(&self) -> bool {
        self.full
    }

    /// A separate random stream for each name, independent of the order of threads.
    #[must_use]
    pub fn random(&self, name: &str) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(Trace::of(self.study) ^ Trace::of(name).rotate_left(1));
        random
    }

    /// Reports that virtual time has advanced in a simulation of the study.
    pub fn passed(&self, virtual_nanoseconds: u64) {
        self.progress.passed(virtual_nanoseconds);
    }

    /// Checks whether to continue: call it at least every tenth of a second.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when the study is to stop.
    pub fn check(&self) -> Result<(), Stopped> {
        match self.progress.stopped() {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    /// Does `work` for every item, on the lab's threads, and returns the results in the order of
    /// the items. Every item is one step of the study's progress.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when the study is to stop.
    pub fn map<T, R>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R, Stopped> + Sync,
    ) -> Result<Vec<R>, Stopped>
    where
        T: Sync,
        R: Send,
    {
        self.progress.plan(items.len() as u64);
        let one = |item: &T| {
            self.check()?;
            let result = work(item)?;
            self.progress.step();
            Ok(result)
        };
        items.par_iter().with_max_len(1).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn streams_differ_by_study_and_name_and_not_by_order() {
        let progress = Progress::default();
        let first = |study, name| -> u64 {
            Context::new(study, 7, false, &progress)
                .random(name)
                .random()
        };
        assert_eq!(first("a", "x"), first("a", "x"));
        assert_ne!(first("a", "x"), first("a", "y"));
        assert_ne!(first("a", "x"), first("b", "x"));
        assert_ne!(first("a", "x"), first("x", "a"));
    }

    #[test]
    fn a_stop_ends_the_map() {
        let progress = Progress::default();
        let context = Context::new("a", 7, false, &progress);
        let doubled = context.map(&[1, 2, 3], |n| Ok(n * 2)).unwrap();
        assert_eq!(doubled, [2, 4, 6]);
        progress.stop();
        assert_eq!(context.map(&[1], |n| Ok(*n)), Err(Stopped));
    }
}

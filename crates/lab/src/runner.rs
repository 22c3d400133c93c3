//! Studies on several threads.
//!
//! One thread pool runs the studies and the cases inside them. Each finished report is passed on at
//! once, so that a stop loses only the running studies.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::report::Report;
use crate::study::{Context, Study};

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of all random numbers.
    pub seed: u64,
    /// True for the papers' sizes.
    pub full: bool,
    /// Threads.
    pub jobs: usize,
}

/// State of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Waiting,
    /// Running.
    Running,
    /// Its report is complete.
    Done,
    /// Stopped.
    Stopped,
}

/// Progress of a study.
#[derive(Debug, Default)]
pub struct Progress {
    state: AtomicUsize,
    steps: AtomicU64,
    planned: AtomicU64,
    virtual_nanoseconds: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        const STATES: [State; 4] = [State::Waiting, State::Running, State::Done, State::Stopped];
        STATES[self.state.load(Ordering::Relaxed)]
    }

    /// Steps done, and planned so far.
    #[must_use]
    pub fn steps(&self) -> (u64, u64) {
        (
            self.steps.load(Ordering::Relaxed),
            self.planned.load(Ordering::Relaxed),
        )
    }

    /// Virtual time simulated so far, summed over its simulations.
    #[must_use]
    pub fn virtual_nanoseconds(&self) -> u64 {
        self.virtual_nanoseconds.load(Ordering::Relaxed)
    }

    pub(crate) fn passed(&self, nanoseconds: u64) {
        self.virtual_nanoseconds
            .fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn plan(&self, steps: u64) {
        self.planned.fetch_add(steps, Ordering::Relaxed);
    }

    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn set(&self, state: State) {
        self.state.store(state as usize, Ordering::Relaxed);
    }
}

/// The progress of a run, and the way to stop it, from any thread.
#[derive(Debug)]
pub struct Monitor {
    studies: Vec<(&'static str, Progress)>,
}

impl Monitor {
    /// A monitor for these studies, all waiting.
    #[must_use]
    pub fn new(studies: &[&'static dyn Study]) -> Self {
        let ids = studies.iter().map(|study| study.about().id);
        Self {
            studies: ids.map(|id| (id, Progress::default())).collect(),
        }
    }

    /// Each study's id and progress.
    pub fn studies(&self) -> impl ExactSizeIterator<Item = (&'static str, &Progress)> {
        self.studies.iter().map(|(id, progress)| (*id, progress))
    }

    /// Ends the run: running studies are abandoned, waiting studies do not start.
    pub fn stop(&self) {
        self.studies
            .iter()
            .for_each(|(_, progress)| progress.stop());
    }
}

/// Runs studies and passes on each report when it is complete. Returns when all studies are done or
/// abandoned: all reports, in the order of the studies.
///
/// `done` is called from one thread at a time; an error that it returns stops the run.
///
/// # Errors
///
/// The first error of `done`.
///
/// # Panics
///
/// When threads cannot be started.
pub fn run<E: Send>(
    studies: &[&'static dyn Study],
    options: &Options,
    monitor: &Monitor,
    done: impl Fn(&Report) -> Result<(), E> + Sync,
) -> Result<Vec<Report>, E> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.jobs.max(1))
        .thread_name(|index| format!("lab-{index}"))
        .build()
        .expect("a process can start a few threads");
    let failed: Mutex<Option<E>> = Mutex::new(None);
    let one = |(study, (id, progress)): (&&'static dyn Study, &(&'static str, Progress))| {
        if progress.stopped() {
            progress.set(State::Stopped);
            return None;
        }
        progress.set(State::Running);
        let context = Context::new(id, options.seed, options.full, progress);
        let Ok(report) = study.run(&context) else {
            progress.set(State::Stopped);
            return None;
        };
        let mut failed = failed.lock().expect("`done` does not panic");
        if failed.is_none()
            && let Err(error) = done(&report)
        {
            *failed = Some(error);
            monitor.stop();
        }
        progress.set(State::Done);
        Some(report)
    };
    let reports: Vec<Option<Report>> = pool.install(|| {
        let pairs = studies.par_iter().zip(&monitor.studies);
        pairs.with_max_len(1).map(one).collect()
    });
    match failed.into_inner().expect("`done` does not panic") {
        Some(error) => Err(error),
        None => Ok(reports.into_iter().flatten().collect()),
    }
}

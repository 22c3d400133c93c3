//! How a procedure that asks and waits becomes a state machine.
//!
//! A method is written as it would be explained: send a burst, read its time, decide what to send next. The compiler
//! turns it into a state machine (a future), and [`Shear`](crate::Shear) steps it: a poll runs it up to its next
//! question, which is put on the desk; an answer on the desk lets the next poll continue. There is no executor, waker,
//! thread or clock: the poll is the step.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use crate::belief::Belief;
use crate::probe::{Probe, Sample, Stop};

#[derive(Debug, Default)]
struct Papers {
    question: Option<Probe>,
    answer: Option<Result<Sample, Stop>>,
    belief: Belief,
    curve: Vec<(u64, f64)>,
    boundaries: Vec<(u64, f64)>,
    pairs: Vec<(u32, u32, f64)>,
    ios: u64,
    bursts: u64,
    ios_max: u64,
    stopped: Option<Stop>,
    /// Sum of the error bounds of all decisions so far.
    error: f64,
}

/// Holds the question and the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk(Rc<RefCell<Papers>>);

impl Desk {
    pub(crate) fn new(ios_max: u64) -> Self {
        let desk = Self::default();
        desk.0.borrow_mut().ios_max = ios_max;
        desk
    }

    /// Asks a question, and continues when the answer is there.
    pub(crate) async fn ask(&self, probe: Probe) -> Result<Sample, Stop> {
        {
            let mut papers = self.0.borrow_mut();
            if let Some(stop) = &papers.stopped {
                return Err(stop.clone());
            }
            let ios = probe.requests.len() as u64;
            if papers.ios + ios > papers.ios_max {
                papers.stopped = Some(Stop::Ios);
                return Err(Stop::Ios);
            }
            papers.ios += ios;
            papers.bursts += 1;
            papers.question = Some(probe);
        }
        let answer = poll_fn(|_| match self.0.borrow_mut().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await;
        if let Err(stop) = &answer {
            self.0.borrow_mut().stopped = Some(stop.clone());
        }
        answer
    }

    pub(crate) fn question(&self) -> Option<Probe> {
        self.0.borrow().question.clone()
    }

    pub(crate) fn answer(&self, answer: Result<Sample, Stop>) {
        let mut papers = self.0.borrow_mut();
        papers.question = None;
        papers.answer = Some(answer);
    }

    /// Changes the belief.
    pub(crate) fn believe(&self, change: impl FnOnce(&mut Belief)) {
        change(&mut self.0.borrow_mut().belief);
    }

    /// Records a decision that is wrong with at most this probability.
    pub(crate) fn spend(&self, error: f64) {
        let mut papers = self.0.borrow_mut();
        papers.error += error;
        papers.belief.confidence = (1.0 - papers.error).max(0.0);
    }

    pub(crate) fn belief(&self) -> Belief {
        self.0.borrow().belief.clone()
    }

    pub(crate) fn ios(&self) -> u64 {
        self.0.borrow().ios
    }

    pub(crate) fn bursts(&self) -> u64 {
        self.0.borrow().bursts
    }

    /// A point of the pattern curve: stride and mean seconds.
    pub(crate) fn plot(&self, stride: u64, seconds: f64) {
        self.0.borrow_mut().curve.push((stride, seconds));
    }

    /// A point of the boundary curve: offset in the pattern and mean seconds.
    pub(crate) fn boundary(&self, offset: u64, seconds: f64) {
        self.0.borrow_mut().boundaries.push((offset, seconds));
    }

    /// A point of the chunk-pair map: seconds of the pair over those of one chunk alone.
    pub(crate) fn pair(&self, a: u32, b: u32, ratio: f64) {
        self.0.borrow_mut().pairs.push((a, b, ratio));
    }

    pub(crate) fn curve(&self) -> Vec<(u64, f64)> {
        self.0.borrow().curve.clone()
    }

    pub(crate) fn boundaries(&self) -> Vec<(u64, f64)> {
        self.0.borrow().boundaries.clone()
    }

    pub(crate) fn pairs(&self) -> Vec<(u32, u32, f64)> {
        self.0.borrow().pairs.clone()
    }
}

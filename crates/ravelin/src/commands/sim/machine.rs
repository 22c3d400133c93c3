//! What a run simulates: a plain array or a whole pool.

use block::{Instant, Outcome, Request, Seat};
use sim::StudyVolume;
use sim::load::Target;
use sim::model::Work;
use sim::plain::PlainArray;

use super::file::Rebuild;

/// An array without bytes, of either kind.
#[derive(Debug)]
pub(super) enum Machine {
    Plain(Box<PlainArray>),
    Pool(Box<StudyVolume>),
}

/// The progress of a rebuild.
#[derive(Clone, Copy, Debug)]
pub(super) struct RebuildState {
    pub(super) began_ns: u64,
    pub(super) ended_ns: Option<u64>,
    pub(super) cells: u64,
    pub(super) lost: u64,
    pub(super) written_bytes: u64,
}

impl Machine {
    pub(super) fn seats(&self) -> u16 {
        match self {
            Self::Plain(array) => array.seats(),
            Self::Pool(pool) => pool.seats(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Plain(array) => array.now(),
            Self::Pool(pool) => pool.now(),
        }
    }

    pub(super) fn work(&self, seat: Seat) -> Work {
        match self {
            Self::Plain(array) => array.work(seat),
            Self::Pool(pool) => pool.work(seat).unwrap_or_default(),
        }
    }

    pub(super) const fn ios(&self) -> u64 {
        match self {
            Self::Plain(array) => array.ios(),
            Self::Pool(pool) => pool.ios(),
        }
    }

    pub(super) const fn trace(&self) -> u64 {
        match self {
            Self::Plain(array) => array.trace(),
            Self::Pool(pool) => pool.trace(),
        }
    }

    /// Fails a drive. Returns the pool's error if the pool refuses.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        seat: Seat,
        rebuild: Rebuild,
    ) -> Result<(), String> {
        match self {
            Self::Plain(array) => {
                array.fail(now, seat);
                let under_way = array.rebuild().is_some_and(|old| old.ended().is_none());
                if let (Rebuild::Plain(Some(options)), false) = (rebuild, under_way) {
                    array.begin_rebuild(now, options);
                }
                Ok(())
            }
            Self::Pool(pool) => {
                if let Rebuild::Pool(order) = rebuild {
                    pool.order_fills(order);
                }
                pool.fail(seat).map_err(|error| error.to_string())
            }
        }
    }

    pub(super) fn rebuild(&self) -> Option<RebuildState> {
        match self {
            Self::Plain(array) => array.rebuild().map(|rebuild| RebuildState {
                began_ns: rebuild.began().0,
                ended_ns: rebuild.ended().map(|at| at.0),
                cells: rebuild.cells(),
                lost: rebuild.unrecoverable(),
                written_bytes: rebuild.written_bytes(),
            }),
            Self::Pool(pool) => {
                let progress = pool.rebuild();
                (progress.cells_total > 0).then(|| RebuildState {
                    began_ns: progress.began.0,
                    ended_ns: progress.ended.map(|at| at.0),
                    cells: progress.cells_done,
                    lost: progress.cells_lost,
                    written_bytes: progress.copied_bytes,
                })
            }
        }
    }
}

impl Target for Machine {
    fn capacity_bytes(&self) -> u64 {
        match self {
            Self::Plain(array) => array.capacity_bytes(),
            Self::Pool(pool) => pool.capacity_bytes(),
        }
    }

    fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        match self {
            Self::Plain(array) => array.handle_request(now, token, request),
            Self::Pool(pool) => pool.handle_request(now, token, request),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Plain(array) => array.handle_timeout(now),
            Self::Pool(pool) => pool.handle_timeout(now),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Plain(array) => array.poll_timeout(),
            Self::Pool(pool) => pool.poll_timeout(),
        }
    }

    fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        match self {
            Self::Plain(array) => array.poll_done(),
            Self::Pool(pool) => pool.poll_done(),
        }
    }
}

//! Room: what a lane may add on drives that know how much of their physical space they use.
//!
//! ```text
//!   write ─► charged ─► its request ends ─► a checkpoint begins ─► it ends: settled ─► the next sample has it
//!     │      (ratio 1,   (logged, or         (covered)              (in place)
//!     │       each drive) in place)
//!     └─► no room: waits ─► the pool's next grant ─► charged, or ends with "no space"
//! ```
//!
//! The pool grants each lane a limit per drive (`pool/room.rs`). A write counts what it may add there at ratio 1 before
//! anything is written, whether it goes in place or to the journal first: what is in the journal is still to be put in
//! place. Reads never wait. Writes of zeros and trims do not wait either; what they may add to parity is charged beyond
//! the limit, and the room between the upper line and the end of the drive is for that.
//!
//! In a pool none of whose drives knows its use, the lane has no accounts, and a write costs one comparison.
//!
//! Invariants:
//! - `charged` is at most `limit` on every drive.
//! - A charge is settled only when its request has ended and a checkpoint that began after that has put everything in
//!   place: a sample taken later has its bytes.
//! - Writes wait in the order in which they came, at most [`WAIT_MAX`] from their beginning. A write whose drive is full
//!   although there was room waits for the next grant.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use block::{BLOCK_BYTES, Fault, Instant, Outcome, RequestKind, Seat};
use format::seeded::{self, SeededFault};
use format::{Column, DataStripe, Form, GroupId, StripeId};
use plan::action::Event;
use plan::room::{RoomReport, SeatRoom};
use plan::{Geometry, GroupRequest, RequestId};

use super::context::Context;
use super::io::IoTable;

/// The longest time that a write waits for room, from its beginning. A guess: clients give up after 30 seconds or more.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);

/// What a write may add, by seat; each seat once.
pub(super) type Needs = Vec<(Seat, u64)>;

/// The account of one drive.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// `None`: the drive does not know its use, and its room has no limit.
    limit: Option<u64>,
    charged: u64,
    /// Charges of requests that have not ended.
    in_flight: u64,
    /// Charges of the lane's own work that has not ended.
    own: u64,
    /// Charges of requests that have ended since the last checkpoint began.
    ended: u64,
    /// Charges that the checkpoint under way settles.
    covered: u64,
    /// With less unused room than this, the lane asks for more before a write has to wait.
    low: u64,
    /// What had been charged at the last report.
    reported: u64,
}

impl Account {
    const fn unsettled(&self) -> u64 {
        self.in_flight + self.own + self.ended + self.covered
    }

    fn unused(&self) -> u64 {
        let limit = self.limit.unwrap_or(u64::MAX);
        limit.saturating_sub(self.charged)
    }
}

/// A request whose charge counts.
#[derive(Clone, Debug)]
struct Counted {
    request: GroupRequest,
    needs: Needs,
    begun: Instant,
}

/// A write that waits for room.
#[derive(Clone, Debug)]
struct Waiting {
    id: RequestId,
    counted: Counted,
    /// A drive was full although there was room.
    refused: bool,
}

/// What becomes of the write that waited in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is room.
    Begin(RequestId, GroupRequest),
    /// There is none, and none will be.
    NoSpace(RequestId),
}

/// The room of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// By seat; empty until the pool has granted anything.
    accounts: Vec<Account>,
    counted: BTreeMap<RequestId, Counted>,
    waiting: VecDeque<Waiting>,
    /// The pool has been asked for room, and has not answered.
    asked: bool,
    /// Writes wait for room, in this lane or another one: the pool is informed when something may have become free.
    pressed: bool,
}

impl Room {
    /// True if some drives know their use.
    pub(super) const fn is_on(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Checks the accounts.
    ///
    /// # Panics
    /// When more is charged than was granted, or a sum is wrong.
    pub(super) fn check(&self) {
        for (seat, account) in (0..).map(Seat).zip(&self.accounts) {
            let limit = account.limit.unwrap_or(u64::MAX);
            assert!(
                account.charged <= limit,
                "writes begin with room: {} of {limit} bytes are charged on seat {seat}",
                account.charged
            );
            assert!(account.unsettled() <= account.charged);
            let counted = self.counted.values().flat_map(|counted| &counted.needs);
            let there = counted.filter(|need| need.0 == seat).map(|need| need.1);
            assert_eq!(there.sum::<u64>(), account.in_flight, "on seat {seat}");
        }
    }

    fn fits(&self, needs: &[(Seat, u64)]) -> bool {
        needs.iter().all(|&(seat, bytes)| {
            let account = self.accounts.get(seat.index());
            account.is_none_or(|account| bytes <= account.unused())
        })
    }

    /// Charges a request. True if little room is left.
    fn charge(&mut self, id: RequestId, counted: Counted) -> bool {
        let low = self.add(&counted.needs, |account| &mut account.in_flight);
        self.counted.insert(id, counted);
        low
    }

    /// Adds to what is charged, and to the part of it that has not ended. True if little room is left.
    fn add(&mut self, needs: &[(Seat, u64)], part: fn(&mut Account) -> &mut u64) -> bool {
        let mut low = false;
        for &(seat, bytes) in needs {
            let account = self.account(seat);
            account.charged += bytes;
            *part(account) += bytes;
            low |= account.unused() < account.low;
        }
        low
    }

    fn account(&mut self, seat: Seat) -> &mut Account {
        if self.accounts.len() <= seat.index() {
            self.accounts.resize(seat.index() + 1, Account::default());
        }
        &mut self.accounts[seat.index()]
    }

    /// Asks the pool for room, unless that has been done.
    fn ask(&mut self, cx: &mut Context) {
        if !std::mem::replace(&mut self.asked, true) {
            let (lane, freed) = (cx.lane, false);
            cx.events.push_back(Event::WantsRoom { lane, freed });
        }
    }

    /// A write is about to begin: true if there is room for it, which is charged. Otherwise it waits.
    pub(super) fn admit(
        &mut self,
        cx: &mut Context,
        id: RequestId,
        request: GroupRequest,
        needs: Needs,
    ) -> bool {
        let counted = Counted {
            request,
            needs,
            begun: cx.now,
        };
        let fits = self.waiting.is_empty() && self.fits(&counted.needs);
        if !fits && !seeded::is(SeededFault::WriteUngranted) {
            let refused = false;
            self.waiting.push_back(Waiting {
                id,
                counted,
                refused,
            });
            self.ask(cx);
            return false;
        }
        if self.charge(id, counted) {
            self.ask(cx);
        }
        true
    }

    /// A request begins that does not wait: its charge raises the limit if it has to.
    pub(super) fn count(
        &mut self,
        cx: &Context,
        id: RequestId,
        request: GroupRequest,
        needs: Needs,
    ) {
        let begun = cx.now;
        self.raise(&needs);
        let counted = Counted {
            request,
            needs,
            begun,
        };
        self.charge(id, counted);
    }

    /// Work of the lane itself is about to add this much: true if it may. It does not wait, and writes that wait go first.
    pub(super) fn take(&mut self, cx: &mut Context, needs: &[(Seat, u64)]) -> bool {
        if !self.is_on() {
            return true;
        }
        let takes = self.waiting.is_empty() && self.fits(needs);
        let low = takes && self.own(needs);
        if !takes || low {
            self.ask(cx);
        }
        takes
    }

    /// Such work that frees more than it adds: its charge raises the limit if it has to.
    pub(super) fn take_beyond(&mut self, needs: &[(Seat, u64)]) {
        if self.is_on() {
            self.raise(needs);
            self.own(needs);
        }
    }

    /// Charges work of the lane itself. True if little room is left.
    fn own(&mut self, needs: &[(Seat, u64)]) -> bool {
        self.add(needs, |account| &mut account.own)
    }

    fn raise(&mut self, needs: &[(Seat, u64)]) {
        for &(seat, bytes) in needs {
            let account = self.account(seat);
            let charged = account.charged + bytes;
            account.limit = account.limit.map(|limit| limit.max(charged));
        }
    }

    /// Such work has ended, for which room was taken: the next checkpoint settles its charge.
    pub(super) fn took(&mut self, needs: &[(Seat, u64)]) {
        for &(seat, bytes) in needs {
            let account = self.account(seat);
            account.own -= bytes;
            account.ended += bytes;
        }
    }

    /// These bytes were to be put in place when the lane got its first grant.
    pub(super) fn begin(&mut self, needs: &[(Seat, u64)]) {
        for &(seat, bytes) in needs {
            let account = self.account(seat);
            account.charged += bytes;
            account.ended += bytes;
            let charged = account.charged;
            account.limit = account.limit.map(|limit| limit.max(charged));
        }
    }

    /// A request is about to be answered. True if it is not answered now: a drive was full although there was room, so
    /// the write is tried again after the next grant.
    pub(super) fn ended(&mut self, cx: &mut Context, id: RequestId, outcome: Outcome) -> bool {
        let Some(counted) = self.counted.remove(&id) else {
            return false;
        };
        for &(seat, bytes) in &counted.needs {
            let account = self.account(seat);
            account.in_flight -= bytes;
            account.ended += bytes;
        }
        if cx.geometry.regions().is_none() {
            // Without a journal everything is in place.
            self.covers_ended();
            self.checkpoint_ended(cx, true);
        }
        let again = outcome == Err(Fault::Full)
            && counted.request.request.kind == RequestKind::Write
            && cx.now < counted.begun + WAIT_MAX;
        if again {
            let refused = true;
            self.waiting.push_front(Waiting {
                id,
                counted,
                refused,
            });
            self.ask(cx);
        }
        again
    }

    /// A checkpoint begins: it puts everything in place whose request has ended.
    pub(super) fn covers_ended(&mut self) {
        for account in &mut self.accounts {
            account.covered += std::mem::take(&mut account.ended);
        }
    }

    /// The checkpoint under way has ended. `whole`: everything that it covers is in place.
    pub(super) fn checkpoint_ended(&mut self, cx: &mut Context, whole: bool) {
        let mut settles = false;
        for account in &mut self.accounts {
            let covered = std::mem::take(&mut account.covered);
            settles |= whole && covered > 0;
            account.ended += if whole { 0 } else { covered };
        }
        if settles {
            self.freed(cx);
        }
    }

    /// Something may have become free.
    pub(super) fn freed(&mut self, cx: &mut Context) {
        if self.pressed {
            let (lane, freed) = (cx.lane, true);
            cx.events.push_back(Event::WantsRoom { lane, freed });
        }
    }

    /// True if charges wait for a checkpoint.
    pub(super) fn needs_checkpoint(&self) -> bool {
        self.accounts.iter().any(|account| account.ended > 0)
    }

    /// The pool asks: gives back unused room, but for as much as was used since the last report. While a write waits, all of
    /// it: the pool grants what that write needs, or nothing. `pressed`: writes wait for room somewhere.
    pub(super) fn report(
        &mut self,
        cx: &Context,
        (round, pressed): (u64, bool),
        frees: bool,
    ) -> RoomReport {
        self.pressed = pressed;
        let front = self.waiting.front();
        let needs = front.map_or_else(Needs::new, |front| front.counted.needs.clone());
        let waits = front.is_some();
        let seats = self.accounts.iter_mut().map(|account| {
            let keep = match waits {
                true => 0,
                false => account.charged - account.reported,
            };
            account.reported = account.charged;
            let keep = account.charged.saturating_add(keep);
            account.limit = account.limit.map(|limit| limit.min(keep));
            SeatRoom {
                limit: account.limit.unwrap_or(account.charged),
                charged: account.charged,
                settled: account.charged - account.unsettled(),
            }
        });
        RoomReport {
            lane: cx.lane,
            round,
            seats: seats.collect(),
            since: front.map_or(cx.now, |front| front.counted.begun),
            refused: front.is_some_and(|front| front.refused),
            needs,
            frees,
        }
    }

    /// The pool grants room. Then [`next`](Self::next) until `None`.
    pub(super) fn granted(&mut self, limits: &[Option<u64>]) {
        self.asked = false;
        for (seat, &limit) in (0..).map(Seat).zip(limits) {
            let account = self.account(seat);
            account.limit = limit.map(|limit| limit.max(account.charged));
            account.low = limit.map_or(0, |_| account.unused() / 4);
        }
    }

    /// The next write that need not wait any more. `last`: there is no more room than this, and none will be freed.
    pub(super) fn next(&mut self, now: Instant, last: bool) -> Option<Next> {
        let front = self.waiting.front()?;
        let over = last || front.counted.begun + WAIT_MAX <= now;
        let fits = self.fits(&front.counted.needs);
        let next = match (fits && !front.refused, over) {
            (false, true) => {
                let front = self.waiting.pop_front()?;
                return Some(Next::NoSpace(front.id));
            }
            (true, _) => self.waiting.pop_front()?,
            (false, false) => return None,
        };
        let request = next.counted.request;
        self.charge(next.id, next.counted);
        Some(Next::Begin(next.id, request))
    }

    /// Writes that drives have refused are tried again with this grant, if there is room.
    pub(super) fn try_again(&mut self) {
        for waiting in &mut self.waiting {
            waiting.refused = false;
        }
    }

    /// Asks for more room if writes still wait.
    pub(super) fn ask_again(&mut self, cx: &mut Context) {
        if !self.waiting.is_empty() {
            self.ask(cx);
        }
    }

    /// When the write that waits in front has waited long enough.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        let front = self.waiting.front();
        front.map(|front| front.counted.begun + WAIT_MAX)
    }
}

/// What a write may add at ratio 1, on each drive.
///
/// In a pool with free stripes, and in an elastic one, it is not known before planning which stripe a write goes to, in
/// which form, and which drive has which part of it: there each drive of the stripe counts with the largest part.
pub(super) fn needs_of_write(cx: &Context, ios: &IoTable, request: &GroupRequest) -> Needs {
    let mut sum = Sum::new(cx, ios, request.group);
    for (data, segments) in cx.geometry.stripes(request) {
        let stripe = data.own_place();
        let mut part = BTreeMap::new();
        let (mut low, mut high) = (u64::MAX, 0);
        for segment in &segments {
            let (first, end) = whole_blocks(segment.low, segment.high);
            let (column, _) = cx
                .geometry
                .place(request.group, stripe, Form::Parity, segment.slot);
            *part.entry(column).or_insert(0) += end - first;
            (low, high) = (low.min(first), high.max(end));
        }
        add_parity(&cx.geometry, (request.group, stripe), high - low, &mut part);
        sum.add(&part);
    }
    sum.needs()
}

/// What a request may add that writes zeros: the parity of stripes of which it covers a part.
pub(super) fn needs_of_zeros(cx: &Context, ios: &IoTable, request: &GroupRequest) -> Needs {
    let mut sum = Sum::new(cx, ios, request.group);
    let bytes = cx.geometry.stripe_data_bytes();
    let (low, high) = (
        request.request.offset,
        request.request.offset + request.request.length,
    );
    let mut parts = vec![low / bytes];
    if (high - 1) / bytes > low / bytes {
        parts.push((high - 1) / bytes);
    }
    for stripe in parts {
        let (first, end) = (low.max(stripe * bytes), high.min((stripe + 1) * bytes));
        if end - first == bytes {
            continue;
        }
        let chunk = cx.geometry.chunk_bytes();
        let mut part = BTreeMap::new();
        add_parity(
            &cx.geometry,
            (request.group, DataStripe(stripe).own_place()),
            chunk.min(end - first + BLOCK_BYTES),
            &mut part,
        );
        sum.add(&part);
    }
    sum.needs()
}

const fn whole_blocks(low: u64, high: u64) -> (u64, u64) {
    (
        low / BLOCK_BYTES * BLOCK_BYTES,
        high.next_multiple_of(BLOCK_BYTES),
    )
}

/// Every parity of a stripe changes in so many bytes, at most.
fn add_parity(
    geometry: &Geometry,
    (group, stripe): (GroupId, StripeId),
    bytes: u64,
    part: &mut BTreeMap<Column, u64>,
) {
    let code = geometry.code();
    for slot in 0..code.elements() {
        if !code.data_slots().any(|data| data == slot) {
            let (column, _) = geometry.place(group, stripe, Form::Parity, slot);
            *part.entry(column).or_insert(0) += bytes;
        }
    }
}

/// Sums what stripes of a group need on each drive.
struct Sum<'a> {
    cx: &'a Context,
    ios: &'a IoTable,
    group: GroupId,
    columns: Vec<u64>,
}

impl<'a> Sum<'a> {
    fn new(cx: &'a Context, ios: &'a IoTable, group: GroupId) -> Self {
        let columns = vec![0; usize::from(cx.geometry.layout().columns())];
        Self {
            cx,
            ios,
            group,
            columns,
        }
    }

    fn add(&mut self, part: &BTreeMap<Column, u64>) {
        let geometry = &self.cx.geometry;
        if geometry.free_stripes() > 0 || geometry.is_elastic() {
            // As copies, each drive has a part of the data and the copies of others.
            let most = part.values().copied().max().unwrap_or(0) * geometry.planes();
            self.columns.iter_mut().for_each(|sum| *sum += most);
            return;
        }
        for (&column, bytes) in part {
            self.columns[column.index()] += bytes;
        }
    }

    fn needs(self) -> Needs {
        let mut needs: BTreeMap<Seat, u64> = BTreeMap::new();
        for (column, &bytes) in self.cx.geometry.columns().zip(&self.columns) {
            let place = self.cx.view().column(&self.cx.geometry, self.group, column);
            for cell in place.cells().filter(|_| bytes > 0) {
                let twin = self.ios.twins().successor_of(cell.seat);
                for seat in [Some(cell.seat), twin].into_iter().flatten() {
                    *needs.entry(seat).or_default() += bytes;
                }
            }
        }
        needs.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;

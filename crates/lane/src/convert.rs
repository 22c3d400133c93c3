//! Conversions: stripes of elastic pools change between parity and copies, where they are.
//!
//! ```text
//!   locked ─► planned: the stripes that may be converted are chosen ─► data read, verified ─► computed
//!                │                                                                              │
//!                └─ none: they are only counted ─► (end)      parity or copies go in place (direct.rs)
//!                                                                                              │
//!                               one record for each stripe: checksums of what was written, ◄──┘
//!                               what the old form alone had is unwritten, the map's entry
//! ```
//!
//! A conversion is a move of a stripe onto itself: no data block is touched, and there is no flush. Until the record
//! counts, the entries of what was written are *unwritten*, and the old form is complete. After it, the old form's
//! parity or copies are unwritten. If the power fails in between, recovery compares what is in place with the record
//! (`recover/compare.rs`): the stripe is whole in its new form, or is made whole, or the log ends before the record.
//!
//! Invariants:
//! - A stripe is converted only while all columns of its group are in their places and nowhere else, on drives that are
//!   not late, and each block of its data is known.
//! - Nothing that the new form needs counts before: each entry is *unwritten*, in its page. So a stripe is not converted
//!   again before a checkpoint has put its last conversion in place.

use format::{Form, GroupId, StripeId};
use plan::Stripe;

use super::context::Context;
use super::io::IoTable;
use super::maps::StripeMaps;
use super::op::{Convert, Op};
use super::overlay::Overlay;

impl Convert {
    /// Counts the operation's stripes, and chooses those that are converted. `first`: for the state of their blocks.
    pub(super) fn chosen(
        &self,
        cx: &Context,
        (ios, overlay): (&IoTable, &Overlay),
        maps: &StripeMaps,
        (op, first): (&Op, &Stripe<'_>),
    ) -> Self {
        let mut next = Self::new(self.to, self.most);
        let whole = is_whole(cx, ios, op.group);
        for number in StripeId::each(op.stripes.clone()) {
            let Some(data) = maps.data_held_by(cx, op.group, number) else {
                continue;
            };
            let stripe = first.at(number);
            let (written, sound) = plan::data_of(&stripe);
            if !written {
                continue;
            }
            next.counts.written += 1;
            next.counts.copies += u64::from(stripe.form == Form::Copies);
            let Some(to) = self.to.filter(|&to| to != stripe.form) else {
                continue;
            };
            if next.chosen.len() as u64 >= self.most {
                continue;
            }
            let trimmed = overlay.is_zeroed(op.group, number);
            let free = || plan::may_become(&stripe, to, |first, count| overlay.holds(first, count));
            match whole && sound && !trimmed && free() {
                true => next.chosen.push((number, data)),
                false => next.counts.left += 1,
            }
        }
        next
    }
}

/// True if all columns of a group are in one place each, on drives that answer in time.
fn is_whole(cx: &Context, ios: &IoTable, group: GroupId) -> bool {
    let columns = cx.view().columns(&cx.geometry, group);
    let in_one_place = |column: &plan::view::ColumnState| {
        let there = |cell: layout::Cell| !cx.view().is_out(cell.seat) && !ios.is_suspect(cell.seat);
        column.source.is_some_and(there) && column.target.is_none()
    };
    columns.iter().all(in_one_place) && !ios.twins().any()
}

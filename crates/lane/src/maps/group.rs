//! The map of one group: which stripe holds which stripe of its data, and which are free.

use std::collections::VecDeque;

use format::{DataStripe, Entry, Form, HeldIn, Sequence, StripeId};

/// The map of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupMap {
    /// By stripe of the data: the stripe that holds it and its form, if that is known.
    held_by: Vec<Option<HeldIn>>,
    /// By stripe: which stripe of the data it holds.
    holds: Vec<Option<u32>>,
    /// Stripes that hold nothing and may be written, the one that has been free longest first.
    free: VecDeque<u32>,
}

impl GroupMap {
    /// A map of `stripes` stripes. `latest` has the latest known entry of each stripe of the data. If two stripes of
    /// the data are in one stripe by these entries, the place of the one with the earlier entry is not known.
    pub(super) fn new(stripes: u64, latest: &[Option<Entry>], sequence: Sequence) -> Self {
        let stripes = usize::try_from(stripes).expect("groups have fewer than 2^32 stripes");
        let mut held_by: Vec<Option<HeldIn>> = vec![None; latest.len()];
        let mut holds: Vec<Option<u32>> = vec![None; stripes];
        for (data, entry) in (0..).zip(latest) {
            let Some(entry) = *entry else {
                continue;
            };
            let held = match entry {
                Entry::UNWRITTEN => Some(HeldIn::parity(StripeId(data.into()))),
                entry => HeldIn::decode(entry.crc),
            };
            let Some(held) = held else {
                continue;
            };
            let Some(holder) = holds.get_mut(held.stripe().index()) else {
                continue;
            };
            let age = |data: u32| latest[data as usize].map(|entry| entry.age(sequence));
            match *holder {
                Some(other) if age(other) <= age(data) => continue,
                Some(other) => held_by[other as usize] = None,
                None => {}
            }
            *holder = Some(data);
            held_by[data as usize] = Some(held);
        }
        let number = |index: usize| u32::try_from(index).expect("fewer than 2^32");
        let known = held_by.iter().all(Option::is_some);
        // While the place of some data is not known, any unused stripe may hold it: no stripe is free.
        let free = (0..stripes).filter(|&stripe| known && holds[stripe].is_none());
        Self {
            free: free.map(number).collect(),
            held_by,
            holds,
        }
    }

    /// The stripe that holds a stripe of the data; `None` if that is not known.
    pub(crate) fn held_by(&self, data: DataStripe) -> Option<StripeId> {
        let held = self.held_by.get(usize::try_from(data.0).ok()?)?;
        held.map(HeldIn::stripe)
    }

    /// The form of a stripe; that of one that holds nothing is parity.
    pub(super) fn form(&self, stripe: StripeId) -> Form {
        let data = self
            .holds(stripe)
            .and_then(|data| usize::try_from(data.0).ok());
        let held = data.and_then(|data| *self.held_by.get(data)?);
        held.map_or(Form::Parity, |held| held.form)
    }

    /// The stripe of the data that a stripe holds.
    pub(crate) fn holds(&self, stripe: StripeId) -> Option<DataStripe> {
        let data = self.holds.get(usize::try_from(stripe.0).ok()?)?;
        data.map(|data| DataStripe(data.into()))
    }

    /// Takes the first free stripe that `may` be taken.
    pub(super) fn take_free(&mut self, may: impl Fn(StripeId) -> bool) -> Option<StripeId> {
        let at = { self.free.iter() }.position(|&stripe| may(StripeId(stripe.into())))?;
        self.free.remove(at).map(|stripe| StripeId(stripe.into()))
    }

    /// A stripe is free from now on. The map may have been built since the stripe was taken.
    pub(super) fn give_free(&mut self, stripe: StripeId) {
        let index = usize::try_from(stripe.0).expect("fewer than 2^32 stripes");
        let number = u32::try_from(stripe.0).expect("fewer than 2^32 stripes");
        if self.holds[index].is_none() && !self.free.contains(&number) {
            self.free.push_back(number);
        }
    }

    /// From now on a stripe of the data is held in this stripe, in this form.
    pub(super) fn moved(&mut self, data: DataStripe, to: HeldIn) {
        let index = usize::try_from(data.0).expect("fewer than 2^32 stripes");
        if let Some(old) = self.held_by[index].replace(to) {
            self.holds[old.stripe().index()] = None;
        }
        self.holds[to.stripe().index()] = u32::try_from(data.0).ok();
        self.free
            .retain(|&stripe| StripeId(stripe.into()) != to.stripe());
    }

    /// Number of stripes of the group.
    pub(super) const fn stripes(&self) -> usize {
        self.holds.len()
    }

    /// True if the places of all data are known.
    pub(super) fn is_known(&self) -> bool {
        self.held_by.iter().all(Option::is_some)
    }

    /// Stripes that hold nothing and may be written.
    pub(super) fn free(&self) -> impl Iterator<Item = StripeId> {
        self.free.iter().map(|&stripe| StripeId(stripe.into()))
    }

    /// Checks the map. `taken`: true for a stripe that is on its way to be used, or not free yet.
    pub(super) fn check(&self, taken: impl Fn(StripeId) -> bool) {
        for (data, &stripe) in (0_u32..).zip(&self.held_by) {
            let holds = stripe.map(|held| self.holds[held.stripe().index()]);
            assert!(
                holds.is_none_or(|holds| holds == Some(data)),
                "stripe {stripe:?} is to hold {data} and holds {holds:?}"
            );
        }
        let known = self.held_by.iter().flatten().count();
        let holding = self.holds.iter().flatten().count();
        assert_eq!(
            known, holding,
            "each stripe that holds something is known to"
        );
        for &stripe in &self.free {
            let holds = self.holds[stripe as usize];
            assert_eq!(holds, None, "stripe {stripe} is free");
            assert!(
                !taken(StripeId(stripe.into())),
                "free stripe {stripe} is on its way"
            );
        }
    }

    /// Stripes that are `taken` are not free, though the map does not use them.
    pub(super) fn without(mut self, taken: impl Fn(StripeId) -> bool) -> Self {
        self.free.retain(|&stripe| !taken(StripeId(stripe.into())));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Sequence = Sequence(100);

    fn unmoved(count: usize) -> Vec<Option<Entry>> {
        vec![Some(Entry::UNWRITTEN); count]
    }

    #[test]
    fn at_first_each_stripe_of_the_data_is_in_its_own_place() {
        let map = GroupMap::new(8, &unmoved(6), NOW);
        assert!(
            (0..6)
                .map(DataStripe)
                .all(|data| map.held_by(data) == Some(data.own_place()))
        );
        assert_eq!(map.free, [6, 7]);
    }

    #[test]
    fn a_stripe_moves_and_leaves_its_place() {
        let mut map = GroupMap::new(8, &unmoved(6), NOW);
        assert_eq!(
            map.take_free(|stripe| stripe != StripeId(6)),
            Some(StripeId(7))
        );
        map.moved(DataStripe(1), HeldIn::parity(StripeId(7)));
        assert_eq!(
            (
                map.held_by(DataStripe(1)),
                map.holds(StripeId(7)),
                map.holds(StripeId(1))
            ),
            (Some(StripeId(7)), Some(DataStripe(1)), None)
        );
        assert_eq!(map.free, [6]);
        map.give_free(StripeId(1));
        assert_eq!(map.free, [6, 1]);
        let mut latest = unmoved(6);
        latest[1] = Some(Entry::of_map(HeldIn::parity(StripeId(7)), Sequence(40)));
        let read = GroupMap::new(8, &latest, NOW);
        assert_eq!(
            (read.held_by(DataStripe(1)), read.free),
            (Some(StripeId(7)), VecDeque::from([1, 6]))
        );
    }

    #[test]
    fn a_stripe_changes_its_form_where_it_is() {
        let mut map = GroupMap::new(8, &unmoved(6), NOW);
        let copies = HeldIn::new(StripeId(2), Form::Copies);
        map.moved(DataStripe(2), copies);
        assert_eq!(
            (map.held_by(DataStripe(2)), map.holds(StripeId(2))),
            (Some(StripeId(2)), Some(DataStripe(2)))
        );
        assert_eq!(
            (
                map.form(StripeId(2)),
                map.form(StripeId(3)),
                map.form(StripeId(7))
            ),
            (Form::Copies, Form::Parity, Form::Parity)
        );
        assert_eq!(map.free, [6, 7]);
        let mut latest = unmoved(6);
        latest[2] = Some(Entry::of_map(copies, Sequence(40)));
        assert_eq!(GroupMap::new(8, &latest, NOW), map, "as read again");
        map.moved(DataStripe(2), HeldIn::parity(StripeId(6)));
        assert_eq!(
            (map.form(StripeId(2)), map.form(StripeId(6))),
            (Form::Parity, Form::Parity)
        );
    }

    #[test]
    fn of_two_in_one_place_the_later_counts_and_nothing_is_free_while_one_is_not_known() {
        let mut latest = unmoved(6);
        // Stripe 2 of the data was set back to when it was in place 7.
        latest[2] = Some(Entry::of_map(HeldIn::parity(StripeId(7)), Sequence(40)));
        latest[3] = Some(Entry::of_map(HeldIn::parity(StripeId(7)), Sequence(50)));
        for order in [[2, 3], [3, 2]] {
            let mut latest = latest.clone();
            latest.swap(order[0], 2);
            latest.swap(order[1], 3);
            let map = GroupMap::new(8, &latest, NOW);
            let later = (0..6)
                .map(DataStripe)
                .find(|&data| map.held_by(data) == Some(StripeId(7)));
            assert_eq!(later, map.holds(StripeId(7)));
            let later = usize::try_from(later.unwrap().0).unwrap();
            assert_eq!(
                latest[later],
                Some(Entry::of_map(HeldIn::parity(StripeId(7)), Sequence(50)))
            );
            assert!(map.free.is_empty());
        }
        latest[3] = None;
        let map = GroupMap::new(8, &latest, NOW);
        assert_eq!(
            (map.held_by(DataStripe(3)), map.held_by(DataStripe(2))),
            (None, Some(StripeId(7)))
        );
        assert!(map.free.is_empty());
    }
}

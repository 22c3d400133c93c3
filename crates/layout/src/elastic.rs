//! The arithmetic of elastic RAID: how much data fits on drives that compress, and which share of it as copies
//! (elastic RAID, sections 2 and 4).
//!
//! A stripe has n data and p parity columns. As parity it takes A physical bytes for each byte of the user, as copies B:
//!
//! ```text
//!   A = 1/α_usr + p/(n·α_pty)                 α_usr, α_pty: compression ratios of data and of parity
//!   B = (p + 1)/α_usr
//! ```
//!
//! n + p drives have (n + p)·C physical bytes, and the pool offers α_exp·n·C, of which a share β is in use. A share x
//! of this can be copies:
//!
//! ```text
//!   ((1 − x)·A + x·B) · α_exp·n·β·C  =  (n + p)·C
//!
//!        (n + p)/(α_exp·n·β) − A
//!   x  = ───────────────────────                between 0 and 1; all of it where B ≤ A
//!                 B − A
//! ```
//!
//! With the average ratio α of all that drives store, parity or copies, the pool's state is one of four:
//!
//! ```text
//!   capacity                                        share of copies
//!   α_exp·n·C │          ╭──────────────────         1 │                  ╭──────────
//!             │       ╱                                │               ╱
//!       n·C   │   ╱                                  0 │ ──────────╯
//!             └───┴──────┴─────────┴───── α            └───┴──────┴─────────┴───── α
//!                 1    α_exp     α_full                    1    α_exp     α_full
//! ```

use crate::Expansion;

/// The numbers of an elastic pool that do not change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elastic {
    /// n: data columns of a stripe.
    pub data: u16,
    /// p: parity columns of a stripe, and copies of its data beside the data.
    pub parity: u16,
    /// α_exp.
    pub expansion: Expansion,
}

/// Compression ratios: the length before through the length after, at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// α_usr, of data.
    pub user: f64,
    /// α_pty, of parity.
    pub parity: f64,
}

impl Ratios {
    /// Data of this ratio, with parity as in the paper's Figs 9 and 10: (α_usr − 1) = 4 (α_pty − 1).
    #[must_use]
    pub fn of_paper(user: f64) -> Self {
        Self {
            user,
            parity: 1.0 + (user - 1.0) / 4.0,
        }
    }

    /// Data and parity of the same ratio.
    #[must_use]
    pub const fn equal(ratio: f64) -> Self {
        Self {
            user: ratio,
            parity: ratio,
        }
    }
}

impl Elastic {
    fn n(self) -> f64 {
        self.data.into()
    }

    fn p(self) -> f64 {
        self.parity.into()
    }

    /// A: physical bytes for each byte that stripes hold as parity.
    #[must_use]
    pub fn parity_form_bytes(self, ratios: Ratios) -> f64 {
        1.0 / ratios.user + self.p() / (self.n() * ratios.parity)
    }

    /// B: physical bytes for each byte that stripes hold as copies.
    #[must_use]
    pub fn copies_form_bytes(self, ratios: Ratios) -> f64 {
        (self.p() + 1.0) / ratios.user
    }

    /// x: the share of the data that can be copies if a share `used` of the capacity is in use.
    #[must_use]
    pub fn coverage(self, used: f64, ratios: Ratios) -> f64 {
        let user_bytes = self.expansion.ratio() * self.n() * used;
        self.coverage_of(self.n() + self.p(), user_bytes, ratios)
    }

    /// The same of data whose size is known, on drives that have this much physical space for it together.
    #[must_use]
    pub fn coverage_of(self, physical_bytes: f64, user_bytes: f64, ratios: Ratios) -> f64 {
        let (parity, copies) = (
            self.parity_form_bytes(ratios),
            self.copies_form_bytes(ratios),
        );
        if copies <= parity || user_bytes <= 0.0 {
            return 1.0;
        }
        ((physical_bytes / user_bytes - parity) / (copies - parity)).clamp(0.0, 1.0)
    }

    /// The share of the capacity that can be in use at all, whatever the form.
    #[must_use]
    pub fn usable(self, ratios: Ratios) -> f64 {
        let each = { self.parity_form_bytes(ratios) }.min(self.copies_form_bytes(ratios));
        ((self.n() + self.p()) / (self.expansion.ratio() * self.n() * each)).min(1.0)
    }

    /// α_full: the ratio from which on a full pool is all copies.
    #[must_use]
    pub fn full_ratio(self) -> f64 {
        (self.p() + 1.0) * self.expansion.ratio() * self.n() / (self.n() + self.p())
    }

    /// Bytes of the user that a group of n + p drives takes where all that it stores has this ratio on average, for
    /// each physical byte of one of its drives.
    #[must_use]
    pub fn capacity(self, ratio: f64) -> f64 {
        self.n() * ratio.clamp(1.0, self.expansion.ratio())
    }

    /// The ratio of the bytes that a drive exposes to its physical bytes at which the pool has room for all copies: a
    /// cell is there p + 1 times.
    #[must_use]
    pub fn exposed_ratio(self) -> f64 {
        (self.p() + 1.0) * self.expansion.ratio()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elastic(data: u16, parity: u16, thousandths: u32) -> Elastic {
        Elastic {
            data,
            parity,
            expansion: Expansion::from_thousandths(thousandths).unwrap(),
        }
    }

    fn close(is: f64, should: f64) {
        assert!((is - should).abs() < 0.0005, "{is} instead of {should}");
    }

    /// Fig. 10: 0 %, 25 % and 68 % at 100 %, 90 % and 80 % of the capacity.
    #[test]
    fn coverage_is_that_of_the_paper_at_its_three_utilisations() {
        let pool = elastic(3, 1, 1800);
        let ratios = Ratios::of_paper(2.0);
        close(ratios.parity, 1.25);
        close(pool.coverage(1.0, ratios), 0.0);
        close(pool.coverage(0.9, ratios), 0.242);
        close(pool.coverage(0.8, ratios), 0.683);
        // A full pool's data does not even fit as parity.
        close(pool.usable(ratios), 0.966);
        close(pool.coverage(pool.usable(ratios), ratios), 0.0);
    }

    /// Fig. 9: the paper reads 1.6 and 2.8 off its grid.
    #[test]
    fn all_is_copies_from_the_full_ratio_on_and_not_before() {
        for (thousandths, full) in [(1000, 1.5), (1800, 2.7)] {
            let pool = elastic(3, 1, thousandths);
            close(pool.full_ratio(), full);
            close(pool.coverage(1.0, Ratios::of_paper(full)), 1.0);
            assert!(pool.coverage(1.0, Ratios::of_paper(full - 0.01)) < 1.0);
        }
        // The more drives, the later.
        close(elastic(5, 1, 1800).full_ratio(), 3.0);
        close(elastic(4, 2, 1000).full_ratio(), 2.0);
    }

    /// What a share x takes in both forms is what the drives have, for all shapes.
    #[test]
    fn covered_data_fills_the_drives_exactly() {
        for parity in 1..=2 {
            for data in 1..=12 {
                for thousandths in [1000, 1300, 1800, 2500] {
                    let pool = elastic(data, parity, thousandths);
                    for percent in 50..=100 {
                        let used = f64::from(percent) / 100.0;
                        for user in 10..=60 {
                            let ratios = Ratios::of_paper(f64::from(user) / 10.0);
                            let x = pool.coverage(used, ratios);
                            let (a, b) = (
                                pool.parity_form_bytes(ratios),
                                pool.copies_form_bytes(ratios),
                            );
                            if x > 0.0 && x < 1.0 {
                                let data_bytes = pool.expansion.ratio() * pool.n() * used;
                                let physical = data_bytes * ((1.0 - x) * a + x * b);
                                close(physical, pool.n() + pool.p());
                            }
                        }
                    }
                }
            }
        }
    }

    /// Section 3.3, autonomous conversion: copies that take no more than parity are free.
    #[test]
    fn copies_that_take_no_more_than_parity_cover_everything() {
        let pool = elastic(3, 1, 1800);
        let ratios = |user| Ratios { user, parity: 1.0 };
        close(pool.coverage(1.0, ratios(3.0)), 1.0);
        assert!(pool.coverage(1.0, ratios(2.5)) < 1.0);
        close(pool.coverage(0.0, ratios(1.0)), 1.0);
    }

    /// Fig. 3, and P+Q with three copies: n + 2 drives, twice the parity, three times the data.
    #[test]
    fn capacity_grows_up_to_the_expansion_and_stays() {
        let pool = elastic(3, 1, 1800);
        close(pool.capacity(1.0), 3.0);
        close(pool.capacity(1.8), 5.4);
        close(pool.capacity(pool.full_ratio()), 5.4);
        close(pool.exposed_ratio(), 3.6);
        let pool = elastic(4, 2, 1500);
        close(pool.parity_form_bytes(Ratios::equal(2.0)), 0.75);
        close(pool.copies_form_bytes(Ratios::equal(2.0)), 1.5);
        close(pool.coverage(1.0, Ratios::equal(2.0)), 1.0 / 3.0);
        close(pool.exposed_ratio(), 4.5);
    }
}

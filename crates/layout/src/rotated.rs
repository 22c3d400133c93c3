//! RAID-5, RAID-6 and RAID-7: where parity goes from stripe to stripe.
//!
//! ```text
//!   raid5:ls  D0  D1  D2  P0     raid5:la  D0  D1  D2  P0     raid6:shear  D0 D1 P0 Q0
//!             D4  D5  P1  D3               D3  D4  P1  D5                  P1 Q1 D2 D3
//!             D8  P2  D6  D7               D6  P2  D7  D8
//!             P3  D9  D10 D11              P3  D9  D10 D11
//! ```
//!
//! *Left* and *right* say which way parity moves; *asymmetric* data begins at drive 0 and steps
//! over parity; *symmetric* data begins after parity and goes round. Left-symmetric is the only
//! one of them whose consecutive chunks always visit consecutive drives, which is why it reads
//! like RAID-0. md's numbers of the forms and the DDF and `_6` variants are those of Linux
//! `md_p.h` and `raid5.h`.
//!
//! The formulas below are evaluated once per (stripe of the period, unit) when a layout is made;
//! what runs per request is a table look-up.

use crate::classic::{Rotation, small};
use crate::divide::Divisor;
use crate::scheme::{Raid5Form, Raid6Form};
use crate::{Place, mirror};

/// A rotation as a table.
#[derive(Clone, Debug)]
pub(crate) struct Rotated {
    width: usize,
    period: Divisor,
    /// `columns[s * width + unit]`.
    columns: Vec<u16>,
    /// `units[s * width + column]`.
    units: Vec<u16>,
}

impl Rotated {
    pub(crate) fn raid5(form: Raid5Form, width: u16) -> Self {
        let period = match form {
            Raid5Form::P0 | Raid5Form::Pn => 1,
            Raid5Form::Ls | Raid5Form::La | Raid5Form::Rs | Raid5Form::Ra => width,
        };
        Self::tabulate(width, period, |s, unit| raid5(form, width, s, unit))
    }

    pub(crate) fn raid6(form: Raid6Form, width: u16) -> Self {
        let period = match form {
            Raid6Form::P0 | Raid6Form::Pn | Raid6Form::P06 => 1,
            Raid6Form::La6 | Raid6Form::Ra6 | Raid6Form::Ls6 | Raid6Form::Rs6 => width - 1,
            Raid6Form::Shear => width / small(mirror::gcd(width.into(), 2)),
            Raid6Form::Ls
            | Raid6Form::La
            | Raid6Form::Rs
            | Raid6Form::Ra
            | Raid6Form::Zr
            | Raid6Form::Nr
            | Raid6Form::Nc => width,
        };
        Self::tabulate(width, period, |s, unit| raid6(form, width, s, unit))
    }

    /// P, Q, R next to each other, moving left, data after them: RAID-6's left-symmetric with one
    /// more parity.
    pub(crate) fn raid7(width: u16) -> Self {
        let data = width - 3;
        Self::tabulate(width, width, |s, unit| {
            let p = width - 1 - s;
            if unit >= data {
                (p + (unit - data)) % width
            } else {
                (p + 3 + unit) % width
            }
        })
    }

    fn tabulate(width: u16, period: u16, column: impl Fn(u16, u16) -> u16) -> Self {
        let wide = usize::from(width);
        let mut columns = vec![0; wide * usize::from(period)];
        let mut units = columns.clone();
        for s in 0..period {
            for unit in 0..width {
                let at = column(s, unit);
                let row = usize::from(s) * wide;
                columns[row + usize::from(unit)] = at;
                units[row + usize::from(at)] = unit;
            }
        }
        Self {
            width: wide,
            period: Divisor::new(period.into()),
            columns,
            units,
        }
    }

    #[inline]
    fn row(&self, stripe: u64) -> usize {
        usize::from(small(self.period.div_rem(stripe).1)) * self.width
    }
}

impl Rotation for Rotated {
    fn period(&self) -> u64 {
        self.period.get()
    }

    fn stripes(&self, slots: u64) -> u64 {
        slots
    }

    #[inline]
    fn place(&self, stripe: u64, index: u64, unit: u16) -> Place {
        Place {
            column: self.columns[self.row(stripe) + usize::from(unit)],
            slot: index,
        }
    }

    fn unplace(&self, first: u64, place: Place) -> Option<(u64, u16)> {
        let row = self.row(first + place.slot);
        Some((place.slot, self.units[row + usize::from(place.column)]))
    }
}

/// Column of `unit` (data 0…n−2, then P) of stripe `s < n`.
fn raid5(form: Raid5Form, n: u16, s: u16, unit: u16) -> u16 {
    let p = match form {
        Raid5Form::Ls | Raid5Form::La => n - 1 - s,
        Raid5Form::Rs | Raid5Form::Ra => s,
        Raid5Form::P0 => 0,
        Raid5Form::Pn => n - 1,
    };
    if unit == n - 1 {
        return p;
    }
    match form {
        Raid5Form::Ls | Raid5Form::Rs => (p + 1 + unit) % n,
        Raid5Form::La | Raid5Form::Ra | Raid5Form::P0 | Raid5Form::Pn => {
            unit + u16::from(unit >= p)
        }
    }
}

/// Column of `unit` (data 0…n−3, then P, then Q) of stripe `s` of the period.
fn raid6(form: Raid6Form, n: u16, s: u16, unit: u16) -> u16 {
    use Raid6Form as F;
    let left = |s: u16| n - 1 - s % n;
    let p = match form {
        F::La | F::Ls | F::Nc => left(s),
        F::Ra | F::Rs | F::Zr => s,
        F::Nr => left(s + 1),
        F::P0 | F::P06 => 0,
        F::Pn => n - 2,
        F::La6 | F::Ls6 => n - 2 - s,
        F::Ra6 | F::Rs6 => s,
        // P comes where RAID-0's next chunk would: ((s+1)(n−2)) mod n.
        F::Shear => small((u64::from(s) + 1) * u64::from(n - 2) % u64::from(n)),
    };
    let q = match form {
        F::La | F::Ra | F::Ls | F::Rs | F::Zr | F::Nr | F::Shear => (p + 1) % n,
        F::Nc => (p + n - 1) % n,
        F::P0 => 1,
        F::Pn | F::La6 | F::Ra6 | F::Ls6 | F::Rs6 | F::P06 => n - 1,
    };
    if unit >= n - 2 {
        return if unit == n - 2 { p } else { q };
    }
    match form {
        F::Ls | F::Rs | F::Shear => (p + 2 + unit) % n,
        F::Nc => (p + 1 + unit) % n,
        F::Ls6 | F::Rs6 => (p + 1 + unit) % (n - 1),
        F::La6 | F::Ra6 | F::P06 => unit + u16::from(unit >= p),
        F::P0 => unit + 2,
        F::Pn => unit,
        // P on the last drive puts Q on the first, and data between them.
        F::La | F::Ra | F::Zr | F::Nr if p == n - 1 => unit + 1,
        F::La | F::Ra | F::Zr | F::Nr => unit + 2 * u16::from(unit >= p),
    }
}

//! The forms of a stripe: parity or copies (elastic RAID, section 3.1), and how map entries name them.

use super::ids::StripeId;

/// How a stripe keeps its redundancy. Data blocks have the same place and the same entry in both forms. What a form does
/// not keep is *unwritten*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// As the pool's code has it. Every stripe of a pool that is not elastic has this form.
    #[default]
    Parity,
    /// Copies of its data, as many as the code survives losses.
    Copies,
}

impl Form {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Parity, Self::Copies];

    /// The form that a conversion leads to.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Parity => Self::Copies,
            Self::Copies => Self::Parity,
        }
    }

    /// Its index in tables of both.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Parity => 0,
            Self::Copies => 1,
        }
    }
}

/// A map entry and the journal's record of a move: the stripe that holds a stripe of a group's data, and in which form.
/// 32 bits: the upper two are the form (0: parity, 1: copies), the others the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldIn {
    /// The stripe of the group: in 32 bits, because a lane keeps many of these in memory.
    stripe: u32,
    /// Its form.
    pub form: Form,
}

const STRIPE_BITS: u32 = 30;

impl HeldIn {
    /// In this stripe, in this form.
    ///
    /// # Panics
    /// When the stripe's number does not fit into 32 bits.
    #[must_use]
    pub fn new(stripe: StripeId, form: Form) -> Self {
        let stripe = u32::try_from(stripe.0).expect("groups have fewer than 2^32 stripes");
        Self { stripe, form }
    }

    /// In this stripe, as parity.
    ///
    /// # Panics
    /// As [`HeldIn::new`].
    #[must_use]
    pub fn parity(stripe: StripeId) -> Self {
        Self::new(stripe, Form::Parity)
    }

    /// The stripe of the group.
    #[must_use]
    pub const fn stripe(self) -> StripeId {
        StripeId(self.stripe as u64)
    }

    /// As 32 bits.
    ///
    /// # Panics
    /// When the stripe's number has more than 30 bits.
    #[must_use]
    pub const fn encode(self) -> u32 {
        assert!(self.stripe >> STRIPE_BITS == 0, "groups have few stripes");
        let form = match self.form {
            Form::Parity => 0,
            Form::Copies => 1,
        };
        form << STRIPE_BITS | self.stripe
    }

    /// From 32 bits; `None` for a form that this program does not know.
    #[must_use]
    pub const fn decode(bits: u32) -> Option<Self> {
        let form = match bits >> STRIPE_BITS {
            0 => Form::Parity,
            1 => Form::Copies,
            _ => return None,
        };
        Some(Self {
            stripe: bits & ((1 << STRIPE_BITS) - 1),
            form,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_stripe_and_form() {
        for stripe in [0, 7, 4095, (1 << STRIPE_BITS) - 1] {
            for form in Form::ALL {
                let held = HeldIn { stripe, form };
                assert_eq!(HeldIn::decode(held.encode()), Some(held));
            }
            assert_eq!(
                HeldIn::parity(StripeId(stripe.into())).encode(),
                stripe,
                "as before there were forms"
            );
        }
        assert_eq!(HeldIn::decode(2 << STRIPE_BITS), None);
        assert_eq!(HeldIn::decode(u32::MAX), None);
    }
}

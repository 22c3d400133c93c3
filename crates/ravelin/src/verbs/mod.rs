//! One file per verb.

pub(crate) mod layout;

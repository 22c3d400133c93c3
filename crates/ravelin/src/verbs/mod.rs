//! One file per verb.

pub(crate) mod code;
pub(crate) mod layout;

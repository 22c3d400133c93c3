//! Declustered layouts, a file each: groups are spread over more drives than they have columns.

pub mod design;
pub mod draid;
pub mod pddl;
pub mod pool;
pub mod random;

//! Elastic RAID: RAID 5 and RAID 10 mixed stripe by stripe on drives that compress.
//!
//! The whole pool runs ([`sim::StudyVolume`]) on modelled drives that store a byte for each sector: the form of a stripe
//! follows from what was written.

mod table1;

pub(crate) use table1::Table1;

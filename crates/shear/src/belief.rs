//! What is known of a volume, and how surely.

use serde::Serialize;

/// The kind of placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// One of the classic layouts: RAID 0, 1, 5, 6, 10, chained, zig-zag.
    Classic,
    /// A fixed pattern over more drives than a stripe has.
    Declustered,
    /// One drive: nothing is striped.
    None,
    /// Cannot be determined.
    #[default]
    Unknown,
}

/// How data is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redundancy {
    /// Not at all.
    None,
    /// By copies.
    Mirror,
    /// By one parity.
    Parity,
    /// By two.
    DoubleParity,
    /// Cannot be determined.
    #[default]
    Unknown,
}

/// What is known. Fields are `None` or empty where nothing is sure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Belief {
    /// The kind of placement.
    pub family: Family,
    /// Least distance after which everything repeats, in bytes.
    pub pattern_bytes: Option<u64>,
    /// Bytes of a chunk.
    pub chunk_bytes: Option<u64>,
    /// Bytes of data in a full stripe; only where writes or copies show it.
    pub stripe_bytes: Option<u64>,
    /// Number of drives that were observed.
    pub drives: Option<u16>,
    /// Copies of each chunk that reads are spread over.
    pub copies: Option<u16>,
    /// Schemes that the measurements cannot distinguish. `:Nc` where the number of drives differs from `drives`.
    pub layout: Vec<String>,
    /// How data is protected.
    pub redundancy: Redundancy,
    /// Seats of missing drives, in the numbering of the first of `layout`.
    pub degraded: Vec<u16>,
    /// Drives that are slower (above 1) or faster than the others: seat and ratio of times.
    pub odd_drives: Vec<(u16, f64)>,
    /// Pairs of seats that are one spindle.
    pub misconfigured: Vec<(u16, u16)>,
    /// Where the pattern's first chunk border lies, in bytes from the begin of the volume.
    pub offset_bytes: u64,
    /// Declustered: data chunks of a stripe.
    pub data_width: Option<u16>,
    /// Declustered: bytes of a cell, the run of chunks of one drive.
    pub cell_bytes: Option<u64>,
    /// Time of random small writes over that of as many reads; only if neither a memory nor flash takes the writes.
    pub write_ratio: Option<f64>,
    /// Probability that the result is right, by the decisions' own error bounds.
    pub confidence: f64,
    /// What could not be determined, and why.
    pub reasons: Vec<String>,
    /// The step under way.
    pub step: &'static str,
}

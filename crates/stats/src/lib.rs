//! Numbers about samples: how they are spread, how sure a mean is, which of them belong together.
//!
//! | question | type |
//! | --- | --- |
//! | what are the mean and the variance? | [`Moments`] |
//! | what is the 99th percentile? | [`Histogram`] for integers in a stream, [`quantile`] for a few numbers |
//! | how sure is this mean, of independent samples? | [`Interval::of`] |
//! | and of samples in a row that depend on each other, such as waits in a queue? | [`BatchMeans`] |
//! | which values are one cluster? | [`k_means`], and [`x_means`] where their number is unknown |
//!
//! The crate does not know where samples come from. The same samples in the same order give the
//! same results on every platform: logarithms are `libm`'s.

mod batch;
mod cluster;
mod histogram;
mod interval;
mod moments;
mod quantile;

pub use batch::BatchMeans;
pub use cluster::{Clusters, k_means, x_means};
pub use histogram::{Bar, Histogram};
pub use interval::Interval;
pub use moments::Moments;
pub use quantile::{quantile, spread};

//! Statistics of samples: how they are distributed, how certain a mean is, which of them form a cluster.
//!
//! | question | type |
//! | --- | --- |
//! | what are the mean and the variance? | [`Moments`] |
//! | what is the 99th percentile? | [`Histogram`] for integers in a stream, [`quantile`] for a few numbers |
//! | how certain is this mean, of independent samples? | [`Interval::of`] |
//! | and of samples in a row that depend on each other, such as waits in a queue? | [`BatchMeans`] |
//! | which values are one cluster? | [`k_means`], and [`x_means`] if their number is unknown |
//!
//! The crate does not depend on the source of the samples. The same samples in the same order give the same results on
//! every platform: logarithms are `libm`'s.

mod batch;
mod cluster;
mod histogram;
mod interval;
mod moments;
mod number;
mod quantile;

pub use batch::BatchMeans;
pub use cluster::{Clusters, k_means, x_means};
pub use histogram::{Bar, Histogram};
pub use interval::Interval;
pub use moments::Moments;
pub use number::{mean, ratio, to_f64};
pub use quantile::{quantile, spread};

//! Maps from names that this process generates.
//!
//! The standard library's hash withstands keys that were chosen to collide, and costs more than the rest of a
//! look-up. The names of requests, buffers and operations are counters of this process.

use rustc_hash::FxHashMap;

/// A map from names that cannot be chosen from outside.
pub(super) type NameMap<K, V> = FxHashMap<K, V>;

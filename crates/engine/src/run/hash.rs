//! Maps from names that this process makes up itself.
//!
//! The standard library's hash withstands keys that somebody has chosen to collide, and costs more than the rest of
//! a look-up. The names of requests, buffers and operations are counters of our own.

use rustc_hash::FxHashMap;

/// A map from names that nobody outside chooses.
pub(super) type NameMap<K, V> = FxHashMap<K, V>;

//! What tests of several parts of the program use.

pub(crate) mod bench;
#[path = "../../e2e/common.rs"]
#[expect(dead_code, reason = "shared with the program `e2e`")]
pub(crate) mod common;
#[path = "../../../../export/tests/support/descriptors.rs"]
pub(crate) mod descriptors;
#[path = "../../e2e/disk.rs"]
#[expect(dead_code, reason = "shared with the program `e2e`")]
pub(crate) mod disk;
pub(crate) mod kit;
pub(crate) mod redact;
pub(crate) mod tools;
pub(crate) mod writer;

//! How to align a file system to the stripe that was found.

use serde_json::{Value, json};
use shear::Belief;

/// Blocks of ext4, in bytes.
const EXT4_BLOCK: u64 = 4096;
/// Where partitions begin by custom, in bytes.
const PARTITION_START: u64 = 1 << 20;

/// Command lines, or null where the stripe is not known.
pub(super) fn of(belief: &Belief, target: &str) -> Value {
    let (Some(chunk), Some(stripe)) = (belief.chunk_bytes, belief.stripe_bytes) else {
        return json!({ "mkfs.ext4": null, "mkfs.xfs": null, "partition_start_bytes": null });
    };
    let target = match target.contains("://") || target.starts_with("sim:") {
        true => "DEVICE",
        false => target,
    };
    let ext4 = chunk.is_multiple_of(EXT4_BLOCK).then(|| {
        format!(
            "mkfs.ext4 -E stride={},stripe_width={} {target}",
            chunk / EXT4_BLOCK,
            stripe / EXT4_BLOCK
        )
    });
    let xfs = format!("mkfs.xfs -d su={chunk},sw={} {target}", stripe / chunk);
    // The first stripe border at or after 1 MiB.
    let start = (PARTITION_START - belief.offset_bytes.min(PARTITION_START))
        .next_multiple_of(stripe)
        + belief.offset_bytes;
    json!({ "mkfs.ext4": ext4, "mkfs.xfs": xfs, "partition_start_bytes": start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_exact_and_none_where_the_stripe_is_not_known() {
        let mut belief = Belief {
            chunk_bytes: Some(64 << 10),
            ..Belief::default()
        };
        assert!(of(&belief, "/dev/sdb")["mkfs.xfs"].is_null());
        belief.stripe_bytes = Some(192 << 10);
        let advice = of(&belief, "/dev/sdb");
        assert_eq!(
            advice["mkfs.ext4"],
            "mkfs.ext4 -E stride=16,stripe_width=48 /dev/sdb"
        );
        assert_eq!(advice["mkfs.xfs"], "mkfs.xfs -d su=65536,sw=3 /dev/sdb");
        assert_eq!(advice["partition_start_bytes"], 6 * (192 << 10));
    }
}

//! Ours against other libraries, interleaved in one run: medians of ratios of CPU time.
//!
//! `cargo bench -p ravelin-erasure --bench peers --features isal,jerasure [-- WORD…]`
//!
//! A word is a part of the first two columns, as `"pq 8+2"`, `"decode Dram"` or `L2`.
//!
//! Wall-clock rates of shared machines swing severalfold; ratios inside one interleaved run repeat
//! to a few percent. Each round runs every arm once, in turning order, on the same buffers, and
//! takes the thread's CPU time; a ratio is computed within its round, and the median over the
//! rounds is what is printed. Where there are two peers for the same work, the better one is fixed
//! per size by a run before the measured one.
//!
//! GB/s are 10^9 bytes of data strips per CPU second, one thread.

#![expect(clippy::print_stdout, reason = "its report")]

mod arrays;
#[cfg(any(feature = "isal", feature = "jerasure"))]
mod ffi;
mod memory;
mod ratio;
mod rows;

/// Where the working set lives, and how large its strips are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    L1,
    L2,
    L3,
    Dram,
}

const LEVELS: [Level; 4] = [Level::L1, Level::L2, Level::L3, Level::Dram];

impl Level {
    /// A strip is one column's part of a stripe.
    fn strip_bytes(self) -> usize {
        match self {
            Self::L1 => 4 << 10,
            Self::L2 => 64 << 10,
            Self::L3 | Self::Dram => 1 << 20,
        }
    }

    /// Stripes in the working set: one; for DRAM, as many as hold 512 MiB of data.
    fn stripes(self, data_bytes_per_stripe: usize) -> usize {
        match self {
            Self::Dram => (512 << 20) / data_bytes_per_stripe,
            _ => 1,
        }
    }

    /// How our code stores: past the cache for DRAM, like an array that writes parity by DMA.
    fn stores(self) -> erasure::kernel::Stores {
        match self {
            Self::Dram => erasure::kernel::Stores::Streaming,
            _ => erasure::kernel::Stores::Cached,
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let wanted = |name: &str, level: Level| {
        let name = format!("{name} {level:?}");
        words.is_empty() || words.iter().any(|w| name.contains(w.as_str()))
    };
    println!("kernel: {}", erasure::kernel::best().name());
    println!("{:<26} {:>5}  {:>9}  peers", "work", "set", "ours GB/s");
    rows::run(&wanted);
    arrays::run(&wanted);
}

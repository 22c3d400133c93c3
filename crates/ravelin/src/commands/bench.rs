//! `ravelin bench`: a load from inside the daemon, without a client's share of the cost.

mod values;

use std::time::Duration;

use block::{BLOCK_BYTES, ByteSize};
use clap::{Args, ValueEnum};
use control::api::{Bench, Benched};
use control::client::path;
use engine::load::{Load, Pattern};

use self::values::{CompressibleValue, HotValue};
use super::common::{Context, Failure, VolumeName, parsed, size};
use super::complete;

/// Run a load against a volume, inside the daemon.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// POOL/VOLUME.
    #[arg(add = complete::volumes())]
    volume: VolumeName,
    /// Which requests [default: randread, or randrw with --read].
    #[arg(long, value_enum)]
    rw: Option<Rw>,
    /// Percentage of reads in randrw, instead of half.
    #[arg(long, value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    read: Option<u8>,
    /// Bytes of each request.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parsed::<ByteSize>)]
    bs: ByteSize,
    /// Requests in flight per job.
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    iodepth: u32,
    /// Threads that ask.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,
    /// Send so many bytes a second at fixed times, whatever the answers; latency counts from when a request was due.
    #[arg(long, value_name = "SIZE", value_parser = parsed::<ByteSize>)]
    #[arg(conflicts_with = "iodepth")]
    rate: Option<ByteSize>,
    /// Seconds, 300 at most [default: 5, or 300 with --total].
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
    /// End after so many bytes: with --rw write and the volume's size, the volume is filled once.
    #[arg(long, value_name = "SIZE", value_parser = parsed::<ByteSize>)]
    #[arg(conflicts_with = "rate")]
    total: Option<ByteSize>,
    /// Instead of zeros, write blocks of 4 KiB that all differ and that LZ4 makes smaller by this percentage: 0 is noise.
    #[arg(long, value_name = "PERCENT", value_parser = parsed::<CompressibleValue>)]
    compressible: Option<CompressibleValue>,
    /// This percentage of random requests goes to a part at the volume's start, the others to the rest: 90/10%, 90/2G.
    #[arg(long, value_name = "SHARE/SIZE", value_parser = parsed::<HotValue>)]
    hot: Option<HotValue>,
    /// Writes are durable when they are answered, as a database's commits are.
    #[arg(long)]
    sync: bool,
    /// Do not ask before writes destroy what the volume holds.
    #[arg(long)]
    yes: bool,
    /// Write even though clients are connected to the volume, or a program has its file or device open.
    #[arg(long)]
    force: bool,
}

/// The time of a load that its bytes should end: the longest that the daemon takes.
const UNTIL_TOTAL_SECONDS: u64 = 300;

/// In fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rw {
    Read,
    Write,
    Randread,
    Randwrite,
    Randrw,
}

impl From<Rw> for Pattern {
    fn from(rw: Rw) -> Self {
        match rw {
            Rw::Read => Self::Read,
            Rw::Write => Self::Write,
            Rw::Randread => Self::RandRead,
            Rw::Randwrite => Self::RandWrite,
            Rw::Randrw => Self::RandRw,
        }
    }
}

impl BenchArguments {
    /// The load, if its parts go together.
    fn load(&self) -> Result<Load, Failure> {
        let without = if self.read.is_some() {
            Rw::Randrw
        } else {
            Rw::Randread
        };
        let rw = self.rw.unwrap_or(without);
        let time = self.time.unwrap_or(match self.total {
            Some(_) => UNTIL_TOTAL_SECONDS,
            None => 5,
        });
        let load = Load {
            pattern: rw.into(),
            block_bytes: u32::try_from(self.bs.0).unwrap_or(u32::MAX),
            depth: self.iodepth,
            jobs: self.jobs,
            time: Duration::from_secs(time),
            sync: self.sync,
            read_percent: self.read,
            compressible_percent: self.compressible.map(|value| value.0),
            hot: self.hot.map(|value| value.0),
            total_bytes: self.total.map(|total| total.0),
            rate_bytes: self.rate.map(|rate| rate.0),
        };
        let refuse = |why: &str, hint: &str| Err(Failure::usage("the load was not run", why, hint));
        if let Some(ByteSize(rate)) = self.rate
            && rate.saturating_mul(time) < self.bs.0
        {
            return refuse(
                "at this rate no request is due before the time is over",
                "give a higher --rate, or more --time",
            );
        }
        if self.read.is_some() && rw != Rw::Randrw {
            return refuse(
                "--read mixes reads with writes, and this load has only one of them",
                "give --rw randrw, or leave --read out",
            );
        }
        if self.compressible.is_some() && !load.writes() {
            return refuse(
                "--compressible is about what is written, and this load only reads",
                "give --rw randwrite, write or randrw, or leave --compressible out",
            );
        }
        if self.compressible.is_some() && !self.bs.0.is_multiple_of(BLOCK_BYTES) {
            return refuse(
                "compressible content is made in blocks of 4 KiB",
                "give --bs 4k, or a multiple of it",
            );
        }
        if self.hot.is_some() && matches!(rw, Rw::Read | Rw::Write) {
            return refuse(
                "--hot prefers a part of the volume, and these requests go to all of it in turn",
                "give --rw randread, randwrite or randrw, or leave --hot out",
            );
        }
        Ok(load)
    }

    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let volume = &self.volume;
        let load = self.load()?;
        let mut request = Bench {
            load,
            confirm: None,
            force: self.force,
            dry_run: true,
        };
        let client = context.client();
        let at = path(&["pools", &volume.pool, "volumes", &volume.volume, "bench"]);
        let named = volume.to_string();
        if load.writes()
            && let Benched::Planned { holds_data: true } = client.send("POST", &at, &request)?
        {
            let with = match self.compressible {
                None => "zeros",
                Some(_) => "noise",
            };
            let lost = [format!(
                "This loses what `{volume}` holds: it will be overwritten with {with}."
            )];
            context.confirm_by("volume", &named, &lost, self.yes)?;
            request.confirm = Some(named);
        }
        request.dry_run = false;
        let Benched::Report(report) = client.send("POST", &at, &request)? else {
            return Err(Failure::usage(
                "the load was not run",
                "the daemon has only planned it",
                "use a daemon of this program's version",
            ));
        };
        context.print("bench", &report, |out| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate for people"
            )]
            let rate = size(report.bytes_per_second as u64);
            writeln!(out, "{:>10.0} IOPS   {rate}/s", report.iops)?;
            writeln!(out, "{:>10.2} µs of CPU per I/O", report.cpu_us_per_io)?;
            writeln!(
                out,
                "{:>10.0} µs median   {:.0} µs 99 %   {:.0} µs 99.9 %",
                report.p50_us, report.p99_us, report.p999_us
            )
        })
    }
}

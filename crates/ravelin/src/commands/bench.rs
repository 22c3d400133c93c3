//! `ravelin bench`: a load from inside the daemon, without a client's share of the cost.

use std::time::Duration;

use block::ByteSize;
use clap::{Args, ValueEnum};
use control::api::{Bench, Benched};
use control::client::path;
use engine::load::{Load, Pattern};

use super::common::{Context, Failure, VolumeName, parsed, size};
use super::complete;

/// Run a load against a volume, inside the daemon.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// POOL/VOLUME.
    #[arg(add = complete::volumes())]
    volume: VolumeName,
    /// Which requests.
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    rw: Rw,
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
    /// Seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    time: u64,
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

/// In fio's words.
#[derive(Clone, Copy, Debug, ValueEnum)]
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
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let volume = &self.volume;
        let load = Load {
            pattern: self.rw.into(),
            block_bytes: u32::try_from(self.bs.0).unwrap_or(u32::MAX),
            depth: self.iodepth,
            jobs: self.jobs,
            time: Duration::from_secs(self.time),
            sync: self.sync,
        };
        let mut request = Bench {
            load,
            confirm: None,
            force: self.force,
            dry_run: true,
        };
        let client = context.client();
        let at = path(&["pools", &volume.pool, "volumes", &volume.volume, "bench"]);
        let named = volume.to_string();
        if !matches!(self.rw, Rw::Read | Rw::Randread)
            && let Benched::Planned { holds_data: true } = client.send("POST", &at, &request)?
        {
            let lost = [format!(
                "This loses what `{volume}` holds: it will be overwritten with zeros."
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

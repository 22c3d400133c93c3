//! A world for studies: modelled drives that store nothing, and buffers that have only a length.
//!
//! The whole pool runs: lanes, journal, checkpoints, checksum pages and rebuild queue. It may have any size, because
//! nothing has content: every read counts as correct ([`array::Lane::trust_content`]), and a volume counts as written
//! without a zeroing pass. With [`StudyOptions::stores`] drives do store: sectors of one repeated byte. Elastic stripes
//! need that, because their form follows from what was written. Time is accounted for as in a real pool: every drive operation, including those of pages and
//! journal, and parity at a stated rate.
//!
//! [`StudyVolume`] is the pool as a [`Target`](crate::load::Target) for a [`Run`](crate::load::Run):
//!
//! ```
//! use block::{Instant, Seat};
//! use sim::load::{Load, LoadOptions, Run, Target};
//! use sim::{StudyOptions, StudyVolume};
//!
//! let options = StudyOptions::new("pddl2:4d:8c:1s", sim::model::preset("9lzx").unwrap());
//! let mut pool = StudyVolume::create(&options, None).unwrap();
//! let load = Load::new(&LoadOptions::default(), pool.capacity_bytes(), 1).unwrap();
//! let mut run = Run::new(load, None).starting_at(pool.now());
//! run.requests(&mut pool, 100);
//! assert_eq!(run.numbers().reads(), 100);
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use array::pool::{
    CreateError, ElasticStatus, FILL_ORDERS, FillOrder, NewDrive, PoolError, PoolSpec, Progress,
    RegionSizes, Steering, Ticket,
};
use block::{Hint, Instant, Outcome, Request, RequestKind, Seat};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::ascending::Ascending;
use super::timing::Timing;
use super::{Tally, World, random_uuid};
use crate::buffer::Contents;
use crate::drive::{Drive, Pace};
use crate::load::Target;
use crate::model::{Preset, Work};

/// The one volume of a study's pool.
const VOLUME: &str = "study";

/// Rows of the layout that is built only to find the number of drives of a scheme: few, because `pool` layouts build a
/// table of them.
const ROWS_TO_COUNT: u64 = 256;

/// Options of a study's pool.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyOptions {
    /// Scheme string, as in `pool create`.
    pub scheme: String,
    /// Drives of the layout; `None`: as the scheme has them.
    pub drives: Option<u16>,
    /// Spare drives.
    pub spares: u16,
    /// The model of all drives.
    pub drive: Preset,
    /// Bytes of each drive that the pool uses; `None`: all of them.
    pub drive_bytes: Option<u64>,
    /// `-o chunk=`.
    pub chunk_bytes: Option<u64>,
    /// `-o cell=`.
    pub cell_bytes: Option<u64>,
    /// Whether writes are journalled and blocks have checksums.
    pub journal: bool,
    /// Whether drives store what is written. If not, all content counts as right, and all of the volume as written.
    pub stores: bool,
    /// Whether a group is made blank at its first write. If not, the volume counts as written.
    pub lazy: bool,
    /// Number of lanes and sizes of their journals; `None`: derived from the size of the drives.
    pub regions: Option<RegionSizes>,
    /// Rate in bytes per second at which each lane computes parity; 0: computing takes no time.
    pub parity_bytes_per_second: u64,
    /// Seed of the UUIDs; nothing else is random.
    pub seed: u64,
}

impl StudyOptions {
    /// `scheme` on whole drives of one kind, as `pool create` makes it.
    #[must_use]
    pub fn new(scheme: &str, drive: Preset) -> Self {
        Self {
            scheme: scheme.to_owned(),
            drives: None,
            spares: 0,
            drive,
            drive_bytes: None,
            chunk_bytes: None,
            cell_bytes: None,
            journal: true,
            stores: false,
            lazy: false,
            regions: None,
            parity_bytes_per_second: 0,
            seed: 1,
        }
    }
}

/// Why a study's pool cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The scheme string.
    #[error("{0}")]
    Scheme(#[from] layout::SchemeError),
    /// Neither the scheme nor the options give the number of drives.
    #[error("`{0}` says of no number of drives")]
    Drives(String),
    /// More bytes of a drive are requested than the drive has.
    #[error("{asked} bytes of each drive are asked for, and `{name}` has {capacity}")]
    DriveTooSmall {
        /// Bytes requested.
        asked: u64,
        /// The drive's name.
        name: &'static str,
        /// The drive's capacity in bytes.
        capacity: u64,
    },
    /// The pool.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// The volume.
    #[error("{0}")]
    Volume(#[from] PoolError),
}

impl Hint for StudyError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Scheme(error) => error.hint(),
            Self::Drives(_) => Some("add one, such as `:12c`".into()),
            Self::DriveTooSmall { .. } => Some("use less, or a larger drive".into()),
            Self::Create(error) => error.hint(),
            Self::Volume(error) => error.hint(),
        }
    }
}

/// A pool of modelled drives with one volume.
#[derive(Clone)]
pub struct StudyVolume {
    world: World,
    size_bytes: u64,
    drive: Preset,
    /// Our ids of requests, and the client's tokens.
    tokens: Ascending<u64>,
    done: VecDeque<(u64, Outcome)>,
}

impl fmt::Debug for StudyVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StudyVolume")
            .field("size_bytes", &self.size_bytes)
            .field("in_flight", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

impl StudyVolume {
    /// Creates the pool, and a volume of `size_bytes` or of the pool's whole capacity. The clock is past 0 on return,
    /// because labels have been written.
    ///
    /// # Errors
    /// [`StudyError`] if the scheme, the drives or the sizes do not fit.
    pub fn create(options: &StudyOptions, size_bytes: Option<u64>) -> Result<Self, StudyError> {
        let capacity = options.drive.capacity_bytes();
        let drive_bytes = options.drive_bytes.unwrap_or(capacity);
        if drive_bytes > capacity {
            return Err(StudyError::DriveTooSmall {
                asked: drive_bytes,
                name: options.drive.name,
                capacity,
            });
        }
        let scheme: layout::Scheme = options.scheme.parse()?;
        let drives = match options.drives {
            Some(drives) => drives,
            None => {
                layout::Geometry::new(&scheme, None, ROWS_TO_COUNT)
                    .map_err(|_| StudyError::Drives(options.scheme.clone()))?
                    .drives
            }
        };
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let total = drives + options.spares;
        // Drives of elastic pools compress; here each plane has all of the physical space.
        let planes = scheme.elastic.then(|| u64::from(scheme.parity) + 1);
        let mut all: Vec<NewDrive> = (0..total)
            .map(|index| NewDrive {
                physical_bytes: planes.map(|planes| drive_bytes / planes),
                ..NewDrive::new(random_uuid(&mut rng), format!("sim:{index}"), drive_bytes)
            })
            .collect();
        let spares = all.split_off(usize::from(drives));
        let spec = PoolSpec {
            name: "study".to_owned(),
            uuid: random_uuid(&mut rng),
            scheme,
            chunk_bytes: options.chunk_bytes,
            cell_bytes: options.cell_bytes,
            journal: options.journal,
            lazy: options.lazy,
            interleave: false,
            free_stripes: Some(0),
            drives: all,
            spares,
        };
        let pool = array::pool::create_with_regions(&spec, options.regions, Ticket(0))?;
        let size_bytes = size_bytes.unwrap_or_else(|| pool.capacity_bytes());
        let models = (0..total).map(|_| options.drive.build()).collect();
        let drives = (0..total)
            .map(|_| match options.stores {
                true => Drive::new(drive_bytes, Pace::Null),
                false => Drive::null(drive_bytes, Pace::Null),
            })
            .collect();
        let seats = (0..usize::from(total)).map(Some).collect();
        let timing = Timing::new(models, options.parity_bytes_per_second);
        let contents = match options.stores {
            true => Contents::Sectors,
            false => Contents::Lengths,
        };
        let mut world = World::around_models(pool, drives, seats, rng, (contents, timing));
        world.skips_zeroing = contents == Contents::Lengths && !options.lazy;
        world.await_ticket(Ticket(0))?;
        world.create_volume(VOLUME, size_bytes)?;
        Ok(Self {
            world,
            size_bytes,
            drive: options.drive.clone(),
            tokens: Ascending::default(),
            done: VecDeque::new(),
        })
    }

    /// The current virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.world.now()
    }

    /// Number of seats of the layout.
    #[must_use]
    pub fn seats(&self) -> u16 {
        self.world.pool().geometry().layout().drives()
    }

    /// The pool and its drives.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Drive operations that have ended, the pool's own included.
    #[must_use]
    pub const fn ios(&self) -> u64 {
        self.world.ios()
    }

    /// A hash of everything that has happened.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.world.trace()
    }

    /// Work done by the drive of a seat.
    #[must_use]
    pub fn work(&self, seat: Seat) -> Option<Work> {
        self.world.model_work(seat)
    }

    /// Fails the drive of a seat by command. Its rebuild begins as soon as the change is durable.
    ///
    /// # Errors
    /// The pool's error.
    pub fn fail(&mut self, seat: Seat) -> Result<(), PoolError> {
        self.world.begin_fail_drive(seat).map(|_| ())
    }

    /// Sets the priority, the rate or the pause of fills. Returns true if the pool accepted the command.
    pub fn steer(&mut self, change: Steering) -> bool {
        self.world.begin_steer(change)
    }

    /// Sets the share of written stripes of an elastic pool that should be copies, in percent. Returns true if the pool
    /// accepted the command.
    pub fn share_copies(&mut self, percent: u8) -> bool {
        self.world.set_elastic_share(Some(percent))
    }

    /// Forms of the stripes of an elastic pool.
    #[must_use]
    pub fn elastic(&self) -> Option<ElasticStatus> {
        self.world.pool().elastic_status()
    }

    /// Counts from now on, from zero, what lanes ask of their drives.
    pub fn count_anew(&mut self) {
        self.world.count_anew();
    }

    /// What lanes have asked of their drives since [`StudyVolume::count_anew`].
    #[must_use]
    pub fn tally(&self) -> Option<&Tally> {
        self.world.tally()
    }

    /// Sets the order in which waiting cells are filled from now on.
    pub fn order_fills(&mut self, order: &'static dyn FillOrder) {
        self.world.pool.order_fills(order);
    }

    /// Fills lost columns in order of address from now on, whatever else their groups have lost.
    ///
    /// # Panics
    /// When the pool has no such order.
    pub fn fill_by_address(&mut self) {
        let mut orders = FILL_ORDERS.iter();
        let order = orders.find(|order| order.name() == "address");
        self.world
            .pool
            .order_fills(*order.expect("it is one of them"));
        self.world.pool.fill_groups_alike();
    }

    /// Groups that can be read and cannot lose another column.
    #[must_use]
    pub fn groups_without_redundancy(&self) -> u64 {
        self.world.pool().groups_without_redundancy()
    }

    /// Puts a fresh drive into a seat whose drive is out. Returns true if the pool accepted the command. Filling the
    /// drive begins as soon as the change is durable.
    pub fn replace(&mut self, seat: Seat) -> bool {
        let drive = self.world.drives[0].another();
        let model = self.drive.build();
        if let Some(timing) = &mut self.world.timing {
            timing.push_model(model);
        }
        let agreed = self.world.begin_replace_drive(seat, drive);
        if let (false, Some(timing)) = (agreed, &mut self.world.timing) {
            timing.pop_model();
        }
        agreed
    }

    /// Progress of the rebuild.
    #[must_use]
    pub const fn rebuild(&self) -> &Progress {
        self.world.pool().progress()
    }

    fn collect(&mut self) {
        while let Some(id) = self.world.take_answered() {
            let outcome = self.world.ended_pieces(id).expect("it was answered");
            let token = self.tokens.remove(id).expect("it was submitted");
            self.done.push_back((token, outcome.map(|_| ())));
        }
    }
}

impl Target for StudyVolume {
    fn capacity_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        self.world.come_to(now);
        let request = Request {
            length: match request.kind {
                RequestKind::Flush => 0,
                _ => request.length,
            },
            ..request
        };
        let id = self.world.submit_any(VOLUME, request);
        self.tokens.insert(id, token);
        self.collect();
    }

    fn handle_timeout(&mut self, now: Instant) {
        while self.world.next_at().is_some_and(|at| at <= now) {
            self.world.step();
        }
        self.world.come_to(now);
        self.collect();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.world.next_at()
    }

    fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        self.done.pop_front()
    }
}

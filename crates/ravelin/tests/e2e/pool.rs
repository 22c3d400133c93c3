//! A pool with one volume, and its NBD server.

use std::sync::Arc;
use std::time::Duration;

use array::pool::OutReason;
use block::{BlockDevice, Seat};
use engine::assemble::{NewPool, create, open_empty, prepare};
use engine::drive::{Drive, DriveUri};
use engine::{PoolHandle, RunOptions, Volume};
use export::nbd::{Exports, Listen, Options, Server};
use testing::Directory;

/// A pool in this process, with the one volume `v`.
pub(crate) struct TestPool(PoolHandle);

impl TestPool {
    /// With as many drives in memory as the scheme is wide.
    pub(crate) fn in_memory(scheme: &str, drives: usize, volume_bytes: u64) -> Self {
        Self::on(&vec!["mem:96M".to_owned(); drives], scheme, volume_bytes)
    }

    pub(crate) fn on(drives: &[String], scheme: &str, volume_bytes: u64) -> Self {
        let drives: Vec<DriveUri> = drives.iter().map(|uri| uri.parse().unwrap()).collect();
        let new = NewPool {
            name: "test".to_owned(),
            scheme: scheme.parse().unwrap(),
            chunk_bytes: None,
            cell_bytes: None,
            journal: true,
            drives,
            spares: Vec::new(),
            force: false,
        };
        let pool = create(prepare(&new).unwrap(), RunOptions::default()).unwrap();
        pool.create_volume("v", volume_bytes).unwrap();
        Self(pool)
    }

    pub(crate) fn volume(&self) -> Arc<Volume> {
        self.0.volume("v").unwrap()
    }

    /// Serves the volume on the socket `s` in this directory.
    pub(crate) fn serve(&self, place: &Directory) -> Served {
        let exports = Arc::new(One(self.volume()));
        let path = place.join("s");
        let server = Server::bind(&Listen::Unix(path.clone()), exports, &Options::default());
        Served {
            server: server.unwrap(),
            uri: format!("nbd+unix:///?socket={}", path.display()),
        }
    }

    pub(crate) fn fail(&self, seat: u16) {
        let failed = self
            .0
            .fail_drive(Seat(seat), OutReason::FailedByAdministrator, false);
        failed.unwrap();
    }

    /// The drive that was taken out of the seat returns.
    pub(crate) fn bring_back(&self, seat: u16) {
        self.0.insert_drive(Seat(seat), None).unwrap();
    }

    /// Tries to bring back the drive that was taken out of the seat; false while it still has unanswered operations.
    pub(crate) fn comes_back(&self, seat: u16) -> bool {
        self.0.insert_drive(Seat(seat), None).is_ok()
    }

    /// Another drive takes the seat.
    pub(crate) fn replace(&self, seat: u16, uri: &str) {
        let drive: Drive = open_empty(&uri.parse().unwrap(), false).unwrap();
        self.0.insert_drive(Seat(seat), Some(drive)).unwrap();
    }

    /// Whether the drive in a seat is out.
    pub(crate) fn is_out(&self, seat: u16) -> bool {
        let status = self.0.status().unwrap();
        status.seats[usize::from(seat)].state == "out"
    }

    /// Checks that every seat has its drive, up to date.
    #[track_caller]
    pub(crate) fn assert_whole(&self) {
        let status = self.0.status().unwrap();
        let whole = status.seats.iter().all(|seat| seat.state == "current");
        assert!(whole, "{:#?} {:#?}", status.seats, status.events);
    }

    pub(crate) fn wait_idle(&self) {
        assert!(self.0.wait_idle(Duration::from_secs(120)), "no hang");
    }

    /// Closes the pool; checks that it has lost nothing.
    pub(crate) fn close(self) {
        let status = self.0.status().unwrap();
        let lost = status.rebuild.map_or(0, |rebuild| rebuild.cells_lost);
        assert_eq!(lost, 0, "{:#?}", status.events);
        self.0.close().unwrap();
    }
}

struct One(Arc<Volume>);

impl Exports for One {
    fn list(&self) -> Vec<String> {
        vec!["test/v".to_owned()]
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        (name.is_empty() || name == "test/v").then(|| Arc::clone(&self.0) as _)
    }
}

/// A volume's NBD server.
pub(crate) struct Served {
    server: Server,
    uri: String,
}

impl Served {
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    pub(crate) fn shutdown(self) {
        self.server.shutdown();
    }
}

//! The control socket's connections: one request each, a bounded number at once, and in bounded time.
//!
//! ```text
//!  accept ──► asking ── whole request ──► working ── answer ──► answering ──► closed
//!               │ at most ASKING             │ as long as it takes   │ at most ANSWERING
//!               └────────► closed            ▼                       └────────► closed
//! ```
//!
//! A client that sends nothing, sends a byte a second, or does not read its answer loses its connection after some
//! seconds, and the slot goes to another client. The daemon's own work on a request has no time limit here.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::api::BODY_BYTES_MAX;
use crate::history::Peer;

/// Connections at once; others wait in the socket's queue.
const AT_ONCE: u32 = 64;
/// How long a client may take to send its request: clients of a local socket send it in one go.
const ASKING: Duration = Duration::from_secs(5);
/// How long a client may take to read its answer.
const ANSWERING: Duration = Duration::from_secs(5);
/// How long to wait when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Progress of a connection's request.
#[derive(Debug, Default)]
struct Turn {
    /// The whole request has arrived.
    asked: Notify,
    /// The answer is ready to be sent.
    answered: Notify,
}

/// Answers requests until `stop`, and then those that had been sent before.
pub(crate) async fn serve(listener: UnixListener, router: Router, stop: impl Future<Output = ()>) {
    let router = router.layer(from_fn(take_whole));
    let slots = Arc::new(Semaphore::new(AT_ONCE as usize));
    let (stopping, stopped) = watch::channel(false);
    let accepting = async {
        loop {
            let slot = Arc::clone(&slots).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (router, stopped) = (router.clone(), stopped.clone());
                    tokio::spawn(answer_one(stream, router, stopped, slot.ok()));
                }
                Err(error) => {
                    tracing::warn!("no connection can be accepted: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    drop(listener);
    stopping.send_replace(true);
    // Having all slots means that every connection has ended.
    slots.acquire_many(AT_ONCE).await.ok();
}

/// Serves a connection until its request is answered or a time limit expires.
async fn answer_one(
    stream: UnixStream,
    router: Router,
    stopped: watch::Receiver<bool>,
    _slot: Option<OwnedSemaphorePermit>,
) {
    let turn = Arc::new(Turn::default());
    let routes = TowerToHyperService::new(router);
    let of = Arc::clone(&turn);
    let peer = stream.peer_cred().map(|peer| Peer(peer.uid())).ok();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&of));
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = connection => {
            if let Err(error) = served {
                tracing::debug!("a client of the control socket: {error}");
            }
        }
        why = overdue(&turn, stopped) => tracing::debug!("a client of the control socket {why}"),
    }
}

/// Returns when a connection must be closed, whatever its client does. The result says why.
async fn overdue(turn: &Turn, mut stopped: watch::Receiver<bool>) -> &'static str {
    tokio::select! {
        asked = timeout(ASKING, turn.asked.notified()) => {
            if asked.is_err() {
                return "did not send its request in time";
            }
        }
        _ = stopped.wait_for(|stopped| *stopped) => return "had sent no request when the daemon was stopped",
    }
    turn.answered.notified().await;
    sleep(ANSWERING).await;
    "did not take its answer in time"
}

/// Reads the whole body, then passes the request on.
async fn take_whole(
    Extension(turn): Extension<Arc<Turn>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            turn.asked.notify_one();
            turn.answered.notify_one();
            let what = "the request's body was not taken";
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            let hint = "at most 1 MiB is taken";
            return Failure::new(status, what, error.to_string(), hint).into_response();
        }
    };
    turn.asked.notify_one();
    let answer = next.run(Request::from_parts(parts, Body::from(body))).await;
    turn.answered.notify_one();
    answer
}

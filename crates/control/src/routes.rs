//! Maps HTTP paths to methods of [`Daemon`].

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use axum::{Router, response::IntoResponse};
use engine::traffic::PoolTraffic;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::{
    Alive, Attach, BODY_BYTES_MAX, ChangeLabel, ClosePool, CreatePool, CreateVolume, DeleteVolume,
    DestroyPool, Done, DriveChange, Events, ExpandPool, Exports, FoundPools, Idle, Import, Pools,
    RenameVolume, ResizeVolume, Scan, ScrubPool, SetElastic, SteerPool, Volumes,
};
use crate::daemon::Change;
use crate::{Daemon, Failure, history};

/// The longest that [`idle`] waits: a connection must not delay a stop of the daemon by much.
const IDLE_SECONDS_MAX: u64 = 5;

/// The longest that finding out what of a volume is allocated takes.
const ALLOCATED_MILLISECONDS_MAX: u64 = 10_000;

type Shared = State<Arc<Daemon>>;
type Answer<T> = Result<Json<T>, Failure>;

/// All routes, under `/v1`.
pub(crate) fn router(daemon: Arc<Daemon>) -> Router {
    let pool = Router::new()
        .route("/status", get(status))
        .route("/export", post(export))
        .route("/expand", post(expand))
        .route("/scrub", post(scrub))
        .route("/elastic", post(elastic))
        .route("/rebuild", post(steer))
        .route("/events", get(events))
        .route("/history", get(pool_history))
        .route("/idle", get(idle))
        .route("/traffic", get(traffic))
        .route("/drives/{change}", post(change_drive))
        .route("/volumes", get(volumes).post(create_volume))
        .route(
            "/volumes/{volume}",
            get(show_volume).patch(resize_volume).delete(delete_volume),
        )
        .route("/volumes/{volume}/attach", post(attach))
        .route("/volumes/{volume}/detach", post(detach))
        .route("/volumes/{volume}/rename", post(rename_volume))
        .route("/volumes/{volume}/bench", post(bench));
    let v1 = Router::new()
        .route("/health", get(health))
        .route("/pools", get(pools).post(create_pool))
        .route("/pools/scan", post(scan))
        .route("/pools/import", post(import))
        .route("/drives/wipe", post(wipe_drive))
        .route("/drives/restore-label", post(restore_label))
        .route("/pools/{name}", get(status).delete(destroy))
        .nest("/pools/{name}", pool);
    Router::new()
        .nest("/v1", v1)
        .fallback(|| async {
            Failure::missing(
                "the request was not served",
                "there is no such path",
                "see /v1/health",
            )
        })
        .method_not_allowed_fallback(|| async {
            Failure::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the request was not served",
                "the path does not take this method",
                "",
            )
        })
        .layer(from_fn_with_state(Arc::clone(&daemon), history::record))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(daemon)
}

/// A JSON body. Parse errors are returned as a [`Failure`]. An empty body counts as an empty object.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let what = "the request's body was not taken";
        let bytes =
            Bytes::from_request(request, state)
                .await
                .map_err(|error: BytesRejection| {
                    Failure::new(
                        error.status(),
                        what,
                        error.body_text(),
                        "at most 1 MiB is taken",
                    )
                })?;
        let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(bytes).map(Body).map_err(|error| {
            Failure::request(
                what,
                error.to_string(),
                "compare it with the API's description",
            )
        })
    }
}

/// The parameters of a path. Parse errors are returned as a [`Failure`].
struct At<T>(T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(parts)| Self(parts)).map_err(|error| {
            let what = "the request's path was not understood";
            Failure::new(error.status(), what, error.body_text(), "")
        })
    }
}

/// The query of a URI. Parse errors are returned as a [`Failure`].
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| {
            let what = "the request's query was not understood";
            Failure::new(error.status(), what, error.body_text(), "")
        })
    }
}

/// Runs blocking work on one of tokio's blocking threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Answer<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map(Json),
        Err(error) => {
            tracing::error!("a request's thread had panicked: {error}");
            Err(Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request was not served",
                "the daemon has a bug that it met",
                "look into its log",
            ))
        }
    }
}

async fn health() -> impl IntoResponse {
    Json(Alive {
        ravelin: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
    })
}

async fn pools(State(daemon): Shared) -> Answer<Pools> {
    blocking(move || {
        Ok(Pools {
            pools: daemon.list(),
            failed_restores: daemon.failed_restores(),
        })
    })
    .await
}

async fn create_pool(
    State(daemon): Shared,
    Body(request): Body<CreatePool>,
) -> Answer<crate::api::CreatedPool> {
    blocking(move || daemon.create(&request)).await
}

async fn scan(State(daemon): Shared, Body(request): Body<Scan>) -> Answer<FoundPools> {
    blocking(move || {
        Ok(FoundPools {
            pools: daemon.scan(&request)?,
        })
    })
    .await
}

async fn import(State(daemon): Shared, Body(request): Body<Import>) -> Answer<crate::api::Status> {
    blocking(move || daemon.import(&request)).await
}

async fn status(State(daemon): Shared, At(name): At<String>) -> Answer<crate::api::Status> {
    blocking(move || daemon.status(&name)).await
}

async fn destroy(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<DestroyPool>,
) -> Answer<Done> {
    blocking(move || daemon.destroy(&name, &request).map(|()| Done {})).await
}

async fn export(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<ClosePool>,
) -> Answer<Done> {
    blocking(move || daemon.export(&name, request.force).map(|()| Done {})).await
}

async fn expand(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<ExpandPool>,
) -> Answer<crate::api::ExpandedPool> {
    blocking(move || daemon.expand(&name, &request)).await
}

async fn scrub(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<ScrubPool>,
) -> Answer<Done> {
    blocking(move || daemon.scrub(&name, request).map(|()| Done {})).await
}

async fn elastic(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<SetElastic>,
) -> Answer<Done> {
    blocking(move || daemon.set_elastic(&name, request).map(|()| Done {})).await
}

async fn steer(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<SteerPool>,
) -> Answer<Done> {
    blocking(move || daemon.steer(&name, &request).map(|()| Done {})).await
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

async fn events(
    State(daemon): Shared,
    At(name): At<String>,
    Asked(After { after }): Asked<After>,
) -> Answer<Events> {
    blocking(move || daemon.events(&name, after).map(|events| Events { events })).await
}

async fn pool_history(State(daemon): Shared, At(name): At<String>) -> Answer<crate::api::History> {
    blocking(move || daemon.history(&name)).await
}

async fn traffic(State(daemon): Shared, At(name): At<String>) -> Answer<PoolTraffic> {
    blocking(move || daemon.traffic(&name)).await
}

#[derive(Deserialize)]
struct Seconds {
    #[serde(default)]
    seconds: u64,
}

async fn idle(
    State(daemon): Shared,
    At(name): At<String>,
    Asked(Seconds { seconds }): Asked<Seconds>,
) -> Answer<Idle> {
    let timeout = Duration::from_secs(seconds.min(IDLE_SECONDS_MAX));
    blocking(move || daemon.idle(&name, timeout).map(|idle| Idle { idle })).await
}

async fn change_drive(
    State(daemon): Shared,
    At((name, verb)): At<(String, String)>,
    Body(request): Body<DriveChange>,
) -> Answer<crate::api::ChangedDrive> {
    use Change::{Add, Clear, Fail, Offline, Online, Remove, Replace};
    let all = [Fail, Offline, Online, Replace, Add, Remove, Clear];
    let Some(change) = all.into_iter().find(|change| change.verb() == verb) else {
        return Err(Failure::missing(
            "the request was not served",
            format!("drives have no `{verb}`"),
            "fail, offline, online, replace, add, remove or clear",
        ));
    };
    blocking(move || daemon.change_drive(&name, change, &request)).await
}

async fn wipe_drive(
    State(daemon): Shared,
    Body(request): Body<ChangeLabel>,
) -> Answer<crate::api::WipedDrive> {
    blocking(move || daemon.wipe_drive(&request)).await
}

async fn restore_label(
    State(daemon): Shared,
    Body(request): Body<ChangeLabel>,
) -> Answer<crate::api::RestoredLabel> {
    blocking(move || daemon.restore_label(&request)).await
}

async fn rename_volume(
    State(daemon): Shared,
    At((name, volume)): At<(String, String)>,
    Body(request): Body<RenameVolume>,
) -> Answer<crate::api::Volume> {
    blocking(move || daemon.rename_volume(&name, &volume, &request)).await
}

/// Whether to find out what of volumes is allocated, and for how long.
#[derive(Deserialize)]
struct Allocated {
    allocated_milliseconds: Option<u64>,
}

impl Allocated {
    fn timeout(&self) -> Option<Duration> {
        let milliseconds = self.allocated_milliseconds?;
        Some(Duration::from_millis(
            milliseconds.min(ALLOCATED_MILLISECONDS_MAX),
        ))
    }
}

async fn volumes(
    State(daemon): Shared,
    At(name): At<String>,
    Asked(allocated): Asked<Allocated>,
) -> Answer<Volumes> {
    blocking(move || {
        let volumes = daemon.volumes(&name, allocated.timeout())?;
        Ok(Volumes { volumes })
    })
    .await
}

async fn show_volume(
    State(daemon): Shared,
    At((name, volume)): At<(String, String)>,
    Asked(allocated): Asked<Allocated>,
) -> Answer<crate::api::Volume> {
    let timeout = allocated.timeout().unwrap_or_default();
    blocking(move || daemon.show_volume(&name, &volume, timeout)).await
}

async fn create_volume(
    State(daemon): Shared,
    At(name): At<String>,
    Body(request): Body<CreateVolume>,
) -> Answer<crate::api::Volume> {
    blocking(move || daemon.create_volume(&name, &request)).await
}

async fn resize_volume(
    State(daemon): Shared,
    At((name, volume)): At<(String, String)>,
    Body(request): Body<ResizeVolume>,
) -> Answer<crate::api::Volume> {
    blocking(move || daemon.resize_volume(&name, &volume, &request)).await
}

async fn bench(
    State(daemon): Shared,
    Path((name, volume)): Path<(String, String)>,
    Body(request): Body<crate::api::Bench>,
) -> Answer<crate::api::Benched> {
    blocking(move || daemon.bench(&name, &volume, &request)).await
}

async fn delete_volume(
    State(daemon): Shared,
    At((name, volume)): At<(String, String)>,
    Body(request): Body<DeleteVolume>,
) -> Answer<Done> {
    blocking(move || {
        let deleted = daemon.delete_volume(&name, &volume, &request);
        deleted.map(|()| Done {})
    })
    .await
}

async fn attach(
    State(daemon): Shared,
    At((name, volume)): At<(String, String)>,
    Body(request): Body<Attach>,
) -> Answer<crate::api::Export> {
    blocking(move || daemon.attach(&name, &volume, &request)).await
}

async fn detach(
    State(daemon): Shared,
    At((name, volume)): At<(String, String)>,
    Body(request): Body<ClosePool>,
) -> Answer<Exports> {
    blocking(move || {
        let ended = daemon.detach(&name, &volume, request.force);
        ended.map(|exports| Exports { exports })
    })
    .await
}

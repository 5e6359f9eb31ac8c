//! Connections: accepted, limited in number and time, and ended together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use super::service::Service;
use crate::output::say;

/// How long a connection may be idle, or take to send a request's headers.
const IDLE: Duration = Duration::from_secs(60);

/// How long a client may read nothing of its answer.
const UNREAD: Duration = Duration::from_secs(60);

/// The most headers that are parsed: more than are allowed, so that the refusal is ours.
const MAX_HEADERS: usize = 1_024;

/// How long to wait where a connection cannot be accepted, as when too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// The fewest connections, however few files may be open.
const FEW: usize = 16;

/// Files that are open beside connections, at most.
const OTHER_FILES: u64 = 256;

/// Serves until `stop`, and then until what was taken is answered, within `grace`.
pub async fn serve(
    service: &Arc<Service>,
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> Result<()> {
    let connections = Connections {
        open: Arc::new(Semaphore::new(most_connections(service.limits.connections))),
        graceful: GracefulShutdown::new(),
        router,
    };
    tokio::select! {
        () = connections.accept(&listener) => {}
        () = stop => {}
    }
    service.is_stopping.store(true, Ordering::Release);
    say("stopping: answering what was taken");
    let answered = async {
        // Others are still told that the service stops.
        tokio::select! {
            () = connections.accept(&listener) => {}
            () = service.idle() => {}
        }
        drop(listener);
        connections.graceful.shutdown().await;
    };
    if timeout(grace, answered).await.is_err() {
        say(format_args!("some requests were not answered within {} s (--grace)", grace.as_secs()));
    }
    Ok(())
}

/// How many connections may be open: as many as are wanted, if the system lets so many files be open.
fn most_connections(wanted: usize) -> usize {
    // The system's own limit stays where it cannot be raised.
    let files = rlimit::increase_nofile_limit(wanted as u64 + OTHER_FILES).unwrap_or(1_024);
    let most = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(wanted).max(FEW).min(wanted);
    if most < wanted {
        say(format_args!("at most {most} connections at a time: the system lets {files} files be open"));
    }
    most
}

struct Connections {
    open: Arc<Semaphore>,
    graceful: GracefulShutdown,
    router: Router,
}

impl Connections {
    /// Accepts connections for ever.
    async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(place) = self.open.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let answers = self.answer(stream);
                    tokio::spawn(async move {
                        answers.await;
                        drop(place);
                    });
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Answers a connection's requests.
    fn answer(&self, stream: TcpStream) -> impl Future<Output = ()> + use<> {
        // Where it fails, answers are a little later.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(UNREAD));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_headers(MAX_HEADERS);
        let service = TowerToHyperService::new(self.router.clone());
        let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
        let connection = self.graceful.watch(connection);
        async move {
            // A connection that breaks is its client's alone.
            let _ = connection.await;
        }
    }
}

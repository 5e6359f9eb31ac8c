//! `cloze serve`: models behind an HTTP service.

mod asking;
mod description;
mod fields;
mod guard;
mod indexes;
mod metrics;
mod models;
mod refusal;
mod room;
mod routes;
mod server;
mod service;
mod tally;
mod unread;

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze_model::huggingface::with_owned_weights;
use cloze_trainer::requests::Share;
use tokio::sync::Notify;

use crate::compute::Compute;
use crate::failure::WrongUsage;
use crate::model;
use crate::output::say;
use indexes::Searched;
use metrics::Metrics;
use models::{Opening, Served};
use service::{Access, Limits, Service};

/// Serve models over HTTP.
///
/// Example: cloze serve --model sentence-transformers/all-MiniLM-L6-v2
///
/// Has the routes of text-embeddings-inference, OpenAI's embeddings, Cohere's rerank, and those of
/// huggingface_hub's InferenceClient. Models of images answer /predict or /embed with {"inputs": {"image":
/// "data:image/png;base64,..."}}; files of this machine are never read. Listens on this machine alone unless --api-key-file or --insecure is given.
/// Stops on Ctrl-C or SIGTERM, after answering what it has taken.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, required_unless_present = "index", value_name = "[NAME=]MODEL", help = model::HELP)]
    model: Vec<String>,
    /// A folder of `cloze search index`, for /search; its model is served too.
    #[arg(long, value_name = "[NAME=]DIR")]
    index: Vec<String>,
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0: any that is free.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// A file with a key on each line, one of which every request must have.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Listen on other addresses than this machine's without keys.
    #[arg(long)]
    insecure: bool,
    /// A site whose pages may ask, such as https://example.org; may be given several times.
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    /// Accept token ids in /v1/embeddings.
    #[arg(long)]
    ids: bool,
    /// Refuse texts that are longer than a model's maximum.
    #[arg(long)]
    no_truncate: bool,
    /// Tokens that a model computes at a time.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    batch_tokens: usize,
    /// Tokens that may wait for a model; further requests are told to come back.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_queue_tokens: usize,
    /// Maximum bytes of a request.
    #[arg(long, value_name = "N", default_value_t = 16 << 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_body_bytes: usize,
    /// Maximum bytes of all requests that are being answered.
    #[arg(long, value_name = "N", default_value_t = 128 << 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_held_bytes: usize,
    /// Connections at a time; more wait until one ends.
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    max_connections: usize,
    /// Seconds within which a request is answered.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    timeout: u64,
    /// Seconds to answer what was taken after a signal to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = RangedU64ValueParser::<u64>::new().range(0..=86_400))]
    grace: u64,
    #[command(flatten)]
    compute: Compute,
}

pub fn run(args: &Args) -> Result<()> {
    let access = access(args)?;
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr().context("cannot listen")?;
    listener.set_nonblocking(true).context("cannot listen")?;
    let device = args.compute.open()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let share = Share::default();
    let how = Opening { batch_tokens: args.batch_tokens, int8: args.compute.int8, share: &share, now };
    let open = |model: &String| with_owned_weights(|| Served::open(model, &how, &device));
    // A queue computes in the precision of the scope that opens it.
    let models = args.compute.run(|| args.model.iter().map(open).collect::<Result<Vec<_>>>())?;
    let mut models: Vec<Arc<Served>> = models.into_iter().map(Arc::new).collect();
    let mut indexes = Vec::new();
    for argument in &args.index {
        let searched =
            args.compute.run(|| Searched::open(argument, &models, |name| open(&name.to_owned())))?;
        if !models.iter().any(|served| Arc::ptr_eq(served, &searched.model)) {
            models.push(searched.model.clone());
        }
        indexes.push(Arc::new(searched));
    }
    let mut names = HashSet::new();
    if let Some(twice) = models.iter().find(|served| !names.insert(served.name.as_str())) {
        let error = anyhow!("--model: two models are named `{}`; give one as NAME=MODEL", twice.name);
        return Err(WrongUsage::new(error).into());
    }
    let service = Arc::new(Service {
        models,
        indexes,
        limits: Limits {
            body: args.max_body_bytes,
            all_bodies: args.max_held_bytes,
            queue_tokens: args.max_queue_tokens,
            time: Duration::from_secs(args.timeout),
            connections: args.max_connections,
        },
        access,
        accepts_ids: args.ids,
        refuses_long: args.no_truncate,
        is_warm: AtomicBool::new(false),
        is_stopping: AtomicBool::new(false),
        answering: AtomicUsize::new(0),
        answered: Notify::new(),
        held: AtomicUsize::new(0),
        n_ids: AtomicUsize::new(0),
        metrics: Metrics::default(),
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let result = runtime.block_on(serve(&service, listener, address, Duration::from_secs(args.grace)));
    // What is still being computed is nobody's any more.
    runtime.shutdown_background();
    result
}

/// Serves until a signal, and then until what was taken is answered.
async fn serve(
    service: &Arc<Service>,
    listener: TcpListener,
    address: SocketAddr,
    grace: Duration,
) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen")?;
    let stop = stop_signal()?;
    let router = routes::router(service);
    say(format_args!("listening on http://{address}"));
    warm(service.clone());
    server::serve(service, listener, router, stop, grace).await
}

/// Computes twice with each model, and then says that the service is ready.
fn warm(service: Arc<Service>) {
    tokio::task::spawn_blocking(move || {
        for served in &service.models {
            for _ in 0..2 {
                if let Err(error) = served.warm() {
                    say(format_args!("model `{}`: {error}", served.name));
                    return;
                }
            }
        }
        service.is_warm.store(true, Ordering::Release);
        let names: Vec<&str> = service.models.iter().map(|served| served.name.as_str()).collect();
        say(format_args!("ready: {}", names.join(", ")));
    });
}

/// Ends when the program is told to stop.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("cannot watch for signals")?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Who may ask.
fn access(args: &Args) -> Result<Access> {
    let keys = args.api_key_file.as_deref().map(keys).transpose()?.unwrap_or_default();
    let is_local = args.host.is_loopback();
    if !is_local && keys.is_empty() && !args.insecure {
        let error = anyhow!(
            "--host {}: others could use the models; add --api-key-file FILE, or --insecure to let them",
            args.host
        );
        return Err(WrongUsage::new(error).into());
    }
    // A page may make a name of its own point to this machine.
    let hosts = (is_local && keys.is_empty()).then(|| {
        let own = if args.host.is_ipv6() { format!("[{}]", args.host) } else { args.host.to_string() };
        vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), own]
    });
    Ok(Access { keys, origins: args.origin.clone(), hosts })
}

/// The hashes of a file's keys.
fn keys(path: &Path) -> Result<Vec<blake3::Hash>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let keys = text.lines().map(str::trim).filter(|key| !key.is_empty());
    let keys: Vec<blake3::Hash> = keys.map(|key| blake3::hash(key.as_bytes())).collect();
    match keys.is_empty() {
        true => {
            Err(WrongUsage::new(anyhow!("{} has no key; expected one on each line", path.display())).into())
        }
        false => Ok(keys),
    }
}

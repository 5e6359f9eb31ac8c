//! The thread that talks to MPI. It never blocks in a call, so that it can answer other ranks and notice those that do not.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use mpi::Threading;
use mpi::request::{LocalScope, Request, scope};
use mpi::topology::{Rank, SimpleCommunicator};
use mpi::traits::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The words of an exchange.
const MESSAGE: i32 = 1;
/// A question whether a rank is alive, and its answer.
const PING: i32 = 2;
const PONG: i32 = 3;

/// How often ranks that compute look for questions.
const IDLE: Duration = Duration::from_millis(5);
/// How long an exchange is awaited without a pause: as long as one between processes of a machine takes.
const AWAKE: Duration = Duration::from_micros(200);
/// The pauses after that are this part of the wait so far, and at most so long.
const PAUSE: (u32, Duration) = (64, Duration::from_millis(1));
/// How often a rank that is waited for is asked whether it is alive.
const ASKED: Duration = Duration::from_secs(1);

/// What the thread is told to do.
pub(crate) enum Command {
    /// Sends a message to each rank, and receives one from each. The answer may be the rank that is gone.
    Exchange { messages: Vec<Vec<u32>>, answer: Sender<Result<Vec<Vec<u32>>, usize>> },
    /// Asks all others whether they are alive until `over` is closed. Tells `lost` the first that is not.
    #[cfg(feature = "nccl")]
    Watch { over: Receiver<()>, lost: Sender<usize> },
    /// Leaves the job with all others.
    Finish,
    /// Ends the whole job with this exit status.
    Abort(i32),
}

/// For how long a rank may give no sign of life.
#[derive(Debug)]
pub(crate) struct Limit(AtomicU64);

impl Limit {
    pub fn new(limit: Duration) -> Self {
        let new = Self(AtomicU64::new(0));
        new.set(limit);
        new
    }

    pub fn set(&self, limit: Duration) {
        self.0.store(limit.as_millis().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The job.
pub(crate) struct World {
    pub rank: usize,
    /// The name of each rank's machine.
    pub hosts: Vec<String>,
    /// The name of the MPI library.
    pub library: String,
}

/// Joins the job and carries messages until told to leave.
pub(crate) fn run(limit: &Limit, started: &Sender<Option<World>>, commands: &Receiver<Command>) {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        let _ = started.send(None);
        return;
    };
    let world = universe.world();
    let library = mpi::environment::library_version().unwrap_or_default();
    let library = library.split([',', '\n']).next().unwrap_or_default().trim().to_owned();
    let hosts = hosts(&world);
    let _ = started.send(Some(World { rank: world.rank() as usize, hosts, library }));
    loop {
        match commands.recv_timeout(IDLE) {
            Ok(Command::Exchange { messages, answer }) => {
                exchange(&world, limit, messages, &answer, commands);
            }
            #[cfg(feature = "nccl")]
            Ok(Command::Watch { over, lost }) => watch(&world, limit, &over, &lost),
            Ok(Command::Abort(code)) => world.abort(code),
            Ok(Command::Finish) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => answer_pings(&world),
        }
    }
    // Until all leave, others may still ask.
    let began = Instant::now();
    let mut barrier = world.immediate_barrier();
    while let Err(request) = barrier.test() {
        barrier = request;
        answer_pings(&world);
        wait(began);
    }
}

/// The name of each rank's machine.
fn hosts(world: &SimpleCommunicator) -> Vec<String> {
    /// The longest name of a machine that MPI gives is shorter.
    const LENGTH: usize = 256;
    let name = mpi::environment::processor_name().unwrap_or_default();
    let mut own = [0u8; LENGTH];
    let length = name.len().min(LENGTH);
    own[..length].copy_from_slice(&name.as_bytes()[..length]);
    let mut all = vec![0u8; LENGTH * world.size() as usize];
    world.all_gather_into(&own[..], &mut all[..]);
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    all.chunks(LENGTH).map(text).collect()
}

/// Waits for a moment, after a wait that began then.
fn wait(began: Instant) {
    let waited = began.elapsed();
    if waited < AWAKE { thread::yield_now() } else { thread::sleep((waited / PAUSE.0).min(PAUSE.1)) }
}

fn answer_pings(world: &SimpleCommunicator) {
    while let Some(status) = world.any_process().immediate_probe_with_tag(PING) {
        let rank = world.process_at_rank(status.source_rank());
        let _: (u32, _) = rank.receive_with_tag(PING);
        rank.send_with_tag(&0u32, PONG);
    }
}

/// A message on its way.
type Moving<'a, 's> = Request<'a, [u32], &'s LocalScope<'a>>;

/// Whether another rank is alive.
struct Life {
    rank: Rank,
    /// Its last sign of life.
    alive: Instant,
    /// When it was asked for another, if it has not answered.
    asked: Option<Instant>,
}

impl Life {
    fn new(rank: Rank) -> Self {
        Self { rank, alive: Instant::now(), asked: None }
    }

    /// Asks for a sign of life where there was none for a while. Returns whether there was no answer for `limit`.
    fn is_lost(&mut self, world: &SimpleCommunicator, limit: Duration) -> bool {
        if self.alive.elapsed() < ASKED.min(limit / 4) {
            return false;
        }
        let process = world.process_at_rank(self.rank);
        let Some(asked) = self.asked else {
            process.send_with_tag(&0u32, PING);
            self.asked = Some(Instant::now());
            return false;
        };
        if process.immediate_probe_with_tag(PONG).is_some() {
            let _: (u32, _) = process.receive_with_tag(PONG);
            (self.alive, self.asked) = (Instant::now(), None);
            return false;
        }
        asked.elapsed() > limit
    }
}

/// Notices a rank that is lost while messages go another way.
#[cfg(feature = "nccl")]
fn watch(world: &SimpleCommunicator, limit: &Limit, over: &Receiver<()>, lost: &Sender<usize>) {
    let own = world.rank();
    let mut others: Vec<Life> = (0..world.size()).filter(|rank| *rank != own).map(Life::new).collect();
    while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(IDLE) {
        answer_pings(world);
        if let Some(place) = others.iter_mut().position(|life| life.is_lost(world, limit.get())) {
            let _ = lost.send(others[place].rank as usize);
            return;
        }
    }
}

/// Another rank during an exchange.
struct Peer<'a, 's> {
    life: Life,
    /// The message to it, until it is there.
    sent: Option<Moving<'a, 's>>,
    /// The place for its message, until that begins to arrive.
    place: Option<&'a mut Vec<u32>>,
    /// Its message, until all of it is here.
    arriving: Option<Moving<'a, 's>>,
}

impl<'a, 's> Peer<'a, 's> {
    fn is_done(&self) -> bool {
        self.sent.is_none() && self.place.is_none() && self.arriving.is_none()
    }

    /// Carries on with both messages.
    fn advance(&mut self, world: &SimpleCommunicator, scope: &'s LocalScope<'a>) {
        let process = world.process_at_rank(self.life.rank);
        if self.place.is_some()
            && let Some((message, status)) = process.immediate_matched_probe_with_tag(MESSAGE)
            && let Some(place) = self.place.take()
        {
            place.resize(status.count(u32::equivalent_datatype()) as usize, 0);
            self.arriving = Some(message.immediate_matched_receive_into(scope, place.as_mut_slice()));
        }
        for moving in [&mut self.sent, &mut self.arriving] {
            *moving = moving.take().and_then(|moving| moving.test().err());
        }
    }
}

/// Carries the messages of one exchange, and answers with those that came.
fn exchange(
    world: &SimpleCommunicator,
    limit: &Limit,
    mut messages: Vec<Vec<u32>>,
    answer: &Sender<Result<Vec<Vec<u32>>, usize>>,
    commands: &Receiver<Command>,
) {
    let own = world.rank() as usize;
    let mut received = vec![Vec::new(); messages.len()];
    received[own] = std::mem::take(&mut messages[own]);
    let began = Instant::now();
    scope(|scope| {
        let pairs = messages.iter().zip(&mut received).enumerate().filter(|(rank, _)| *rank != own);
        let mut peers: Vec<Peer<'_, '_>> = pairs
            .map(|(rank, (message, place))| {
                let process = world.process_at_rank(rank as Rank);
                let sent = Some(process.immediate_send_with_tag(scope, &message[..], MESSAGE));
                Peer { life: Life::new(rank as Rank), sent, place: Some(place), arriving: None }
            })
            .collect();
        loop {
            peers.iter_mut().for_each(|peer| peer.advance(world, scope));
            peers.retain(|peer| !peer.is_done());
            if peers.is_empty() {
                return;
            }
            answer_pings(world);
            let lost = peers.iter_mut().position(|peer| peer.life.is_lost(world, limit.get()));
            if let Some(place) = lost {
                let _ = answer.send(Err(peers[place].life.rank as usize));
                // What moves to and from that rank never ends: nothing is left but to end the job.
                match commands.recv() {
                    Ok(Command::Abort(code)) => world.abort(code),
                    _ => world.abort(1),
                }
            }
            wait(began);
        }
    });
    let _ = answer.send(Ok(received));
}

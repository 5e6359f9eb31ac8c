//! `cloze serve` beside other services.

mod load;
mod sides;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::infer::first_sentences;
use super::kept::target;
use super::measure::path_text;
use super::{measure, report};
use crate::{program, step};
use load::{Pace, Questions, Seen, ask};
use sides::{Running, Side};

/// How to measure.
#[derive(clap::Args)]
#[command(after_long_help = "\
infinity needs an environment of its own:
  python3 -m venv infinity
  infinity/bin/pip install 'infinity-emb[torch,server]==0.0.77' 'click<8.2'
  CLOZE_INFINITY=$PWD/infinity/bin/infinity_emb CLOZE_PYTHON=$PWD/peers/bin/python cargo xtask bench serve
FastAPI is looked for in CLOZE_PYTHON: pip install fastapi uvicorn.

The clients are this program's threads. Each answer is compared with `cloze embed`'s vector: ours has to have the same bits.")]
pub struct Args {
    /// A sentence-transformers folder of a BERT encoder.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// A file of sentences, one a line: the first 2,000 are asked.
    #[arg(long, value_name = "FILE")]
    sentences: Option<PathBuf>,
    /// The program that serves [default: `cloze`, built in release].
    #[arg(long, value_name = "PROGRAM", conflicts_with = "write")]
    program: Option<PathBuf>,
    /// Leave out the library's own rates, whose benchmark takes minutes to build.
    #[arg(long, conflicts_with = "write")]
    without_library: bool,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only the sides whose name begins with one of these.
    #[arg(long, value_delimiter = ',', value_name = "SIDES", conflicts_with = "write")]
    sides: Vec<String>,
    /// Instead: ask our service with 64 clients for so many minutes, and tell its memory after each.
    #[arg(long, value_name = "MINUTES", conflicts_with = "write")]
    soak: Option<u64>,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// Clients that ask at the same time.
const CLIENTS: [usize; 4] = [1, 8, 64, 512];

/// Where throughput is compared.
const MANY: usize = 64;

/// The share of what a side can do that is asked of it at a fixed rate.
const SHARE: f64 = 0.8;

/// The clients of a fixed rate: more than are ever answered at the same time.
const AT_RATE: usize = 128;

pub fn run(args: &Args) -> Result<()> {
    let shared = step::root().join("../shared");
    let given = |path: &Option<PathBuf>, usual: &str| path.clone().unwrap_or_else(|| shared.join(usual));
    let model = given(&args.model, "models/all-MiniLM-L6-v2");
    let model = model.canonicalize().with_context(|| format!("cannot find {}", model.display()))?;
    let sentences = first_sentences(&given(&args.sentences, "data/sst2/train.tsv"))?;
    let text = fs::read_to_string(&sentences)?;
    let texts: Vec<String> = text.lines().map(str::to_owned).collect();
    let program = args.program.clone().map_or_else(|| program::build(None), Ok)?;
    let is_wanted =
        |side: &Side| args.sides.is_empty() || args.sides.iter().any(|name| side.name.starts_with(name));
    let python = measure::python();
    let sides = sides::all(&program, python.as_ref()).into_iter();
    let sides: Vec<Side> = sides.filter(is_wanted).collect();
    let work = Work { program, model, texts, time: Duration::from_secs(args.seconds) };
    // Most sides are to give the same vectors.
    let mut embedded = BTreeMap::new();
    for side in &sides {
        if let Entry::Vacant(place) = embedded.entry(side.embed_with()) {
            place.insert(work.embedded(&sentences, side.embed_with())?);
        }
    }
    let expected: Vec<&[Vec<f32>]> = sides.iter().map(|side| &embedded[side.embed_with()][..]).collect();
    if let Some(minutes) = args.soak {
        for (side, expected) in sides.iter().zip(&expected).filter(|(side, _)| side.is_ours()) {
            work.soak(side, expected, minutes)?;
        }
        return Ok(());
    }
    let bench = (!args.without_library).then(|| measure::build("cloze-trainer", "embedding")).transpose()?;
    let library = |bench, what: &str, precision: &str, rounds: &str| {
        let (model, file) = (path_text(&work.model)?, path_text(&sentences)?);
        measure::Measured::from(&mut measure::ours(bench, &[what, &model, &file, rounds, precision]))
    };
    let mut rounds: Vec<Vec<Round>> = sides.iter().map(|_| Vec::new()).collect();
    let mut library_rounds: [Vec<[f64; 2]>; 2] = Default::default();
    for round in 1..=args.rounds {
        for (precision, found) in ["f32", "int8"].into_iter().zip(&mut library_rounds) {
            if let Some(bench) = &bench {
                let all = library(bench, "sentences", precision, "3")?;
                found.push([all.per_s, library(bench, "each", precision, "1")?.ms]);
            }
        }
        for ((side, expected), rounds) in sides.iter().zip(&expected).zip(&mut rounds) {
            eprintln!("{}, round {round} of {}", side.name, args.rounds);
            rounds.push(work.round(side, expected)?);
        }
    }
    let [f32, int8] = library_rounds.map(|all| {
        [0, 1].map(|figure| measure::median(all.iter().map(|one| one[figure])).unwrap_or(f64::NAN))
    });
    let text = format!(
        "{}\n\n{}\n\nall-MiniLM-L6-v2, sentences of SST-2, one a request; medians of {} alternating rounds of {} s. The clients' own \
         processor time is at most {:.0} % of a core's. {} answers, {} wrong: each is compared with the vector of `cloze embed`, \
         ours bit by bit. {}.",
        table(&sides, &rounds),
        ratios(&sides, &rounds, f32, int8),
        args.rounds,
        args.seconds,
        100.0 * all_loads(&rounds).map(|seen| seen.cpu_seconds / seen.seconds).fold(0.0, f64::max),
        report::short(all_loads(&rounds).map(Seen::n).sum::<usize>() as f64),
        all_loads(&rounds).map(|seen| seen.wrong).sum::<usize>(),
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("serve", &text) } else { Ok(()) }
}

/// What one side did in a round.
struct Round {
    /// With each number of [`CLIENTS`].
    closed: Vec<Seen>,
    at_rate: Seen,
    /// The longest that `/health` took while most clients asked, in milliseconds.
    health: f64,
    /// The most memory that it held, in MB.
    peak: f64,
}

struct Work {
    program: PathBuf,
    model: PathBuf,
    texts: Vec<String>,
    time: Duration,
}

impl Work {
    /// The vectors of `cloze embed` of the lines of a file.
    fn embedded(&self, sentences: &Path, more: &[&str]) -> Result<Vec<Vec<f32>>> {
        let folder = target().join("serve-bench");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let output = folder.join("vectors.jsonl");
        let mut embed = Command::new(&self.program);
        embed.args(["embed", "--model"]).arg(&self.model).args(more);
        measure::process(&mut embed, sentences, &output)?;
        let read = |line: &str| -> Result<Vec<f32>> {
            let line: Value = serde_json::from_str(line)?;
            let vector = line["embedding"].as_array().context("no embedding")?;
            Ok(vector.iter().filter_map(|x| x.as_f64().map(|x| x as f32)).collect())
        };
        let vectors = fs::read_to_string(&output)?.lines().map(read).collect::<Result<Vec<_>>>()?;
        ensure!(vectors.len() == self.texts.len(), "{} vectors", vectors.len());
        Ok(vectors)
    }

    fn questions(&self, side: &Side, running: &Running, expected: &[Vec<f32>]) -> Questions {
        Questions {
            address: running.address.clone(),
            route: side.route,
            field: side.field,
            more: side.more.clone(),
            texts: self.texts.clone(),
            expected: expected.to_vec(),
            agreement: side.agreement,
        }
    }

    fn round(&self, side: &Side, expected: &[Vec<f32>]) -> Result<Round> {
        let running = side.start(&self.model, &[])?;
        let questions = self.questions(side, &running, expected);
        ask(&questions, Pace::Closed { clients: 8 }, Duration::from_secs(2))?;
        let mut closed = Vec::new();
        let mut health = 0.0;
        for clients in CLIENTS {
            let asked = || ask(&questions, Pace::Closed { clients }, self.time);
            let (seen, slowest) = match clients == CLIENTS[CLIENTS.len() - 1] {
                true => beside(asked, || slowest_health(&running.address, self.time))?,
                false => (asked()?, 0.0),
            };
            health = f64::max(health, slowest);
            closed.push(seen);
        }
        let capacity = closed[CLIENTS.iter().position(|n| *n == MANY).context("no such row")?].per_second();
        let pace = Pace::Rate { per_second: SHARE * capacity, clients: AT_RATE };
        let at_rate = ask(&questions, pace, self.time)?;
        Ok(Round { closed, at_rate, health, peak: running.memory()?[1] })
    }

    /// Asks for minutes; memory should not grow.
    fn soak(&self, side: &Side, expected: &[Vec<f32>], minutes: u64) -> Result<()> {
        let running = side.start(&self.model, &[])?;
        let questions = self.questions(side, &running, expected);
        let (mut n, mut wrong, mut first) = (0, 0, f64::NAN);
        for minute in 1..=minutes {
            let seen = ask(&questions, Pace::Closed { clients: MANY }, Duration::from_secs(60))?;
            let [now, peak] = running.memory()?;
            (n, wrong) = (n + seen.n(), wrong + seen.wrong);
            first = if minute == 1 { now } else { first };
            println!(
                "{}, minute {minute}: {n} answers, {wrong} wrong, {now:.1} MB ({:+.1} % of after the first), peak {peak:.1} MB",
                side.name,
                100.0 * (now / first - 1.0)
            );
        }
        if wrong > 0 {
            bail!("{wrong} of {n} answers were wrong");
        }
        Ok(())
    }
}

/// Does two things at the same time.
fn beside<A: Send, B: Send>(
    a: impl FnOnce() -> Result<A> + Send,
    b: impl FnOnce() -> Result<B> + Send,
) -> Result<(A, B)> {
    thread::scope(|scope| {
        let b = scope.spawn(b);
        let a = a()?;
        Ok((a, b.join().expect("it returns errors")?))
    })
}

/// The longest that `/health` takes, asked four times a second.
fn slowest_health(address: &str, time: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut slowest: f64 = 0.0;
    while start.elapsed() < time {
        let begin = Instant::now();
        load::get(address, "/health")?;
        slowest = slowest.max(begin.elapsed().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(250));
    }
    Ok(slowest)
}

fn all_loads(rounds: &[Vec<Round>]) -> impl Iterator<Item = &Seen> {
    rounds.iter().flatten().flat_map(|round| round.closed.iter().chain([&round.at_rate]))
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    measure::median(rounds.iter().map(of)).unwrap_or(f64::NAN)
}

/// A row for each number of clients and side.
fn table(sides: &[Side], rounds: &[Vec<Round>]) -> String {
    let row = |clients: String, side: &Side, rounds: &[Round], of: &dyn Fn(&Round) -> &Seen| {
        let figure = |figure: fn(&Seen) -> f64| report::short(median(rounds, |round| figure(of(round))));
        [
            clients,
            side.name.to_owned(),
            figure(Seen::per_second),
            figure(|seen| seen.percentile(0.5)),
            figure(|seen| seen.percentile(0.99)),
        ]
    };
    let mut rows = Vec::new();
    for (place, clients) in CLIENTS.iter().enumerate() {
        for (side, rounds) in sides.iter().zip(rounds) {
            rows.push(row(clients.to_string(), side, rounds, &|round| &round.closed[place]));
        }
    }
    for (side, rounds) in sides.iter().zip(rounds) {
        rows.push(row(format!("{:.0} % of capacity", 100.0 * SHARE), side, rounds, &|round| &round.at_rate));
    }
    report::table(["clients", "service", "answers/s", "p50, ms", "p99, ms"], rows)
}

/// What is wanted, and what is there; `f32` and `int8` are the library's sentences a second, and its milliseconds for one.
fn ratios(sides: &[Side], rounds: &[Vec<Round>], f32: [f64; 2], int8: [f64; 2]) -> String {
    let of = |name: &str| {
        let place = sides.iter().position(|side| side.name == name)?;
        Some(&rounds[place][..])
    };
    let many = CLIENTS.iter().position(|n| *n == MANY).unwrap_or(0);
    let rate = |rounds: &[Round]| median(rounds, |round| round.closed[many].per_second());
    let p99 = |rounds: &[Round]| median(rounds, |round| round.closed[many].percentile(0.99));
    let mut rows = Vec::new();
    let mut wanted = |what: &str, found: Option<f64>, unit: &str, floor: &str| {
        if let Some(found) = found.filter(|found| !found.is_nan()) {
            rows.push([what.to_owned(), format!("{}{unit}", report::short(found)), floor.to_owned()]);
        }
    };
    for (name, [per_s, ms]) in [("cloze", f32), ("cloze, int8", int8)] {
        let Some(ours) = of(name) else { continue };
        wanted(
            &format!("{name}: share of the library's rate, {MANY} clients"),
            Some(100.0 * rate(ours) / per_s),
            " %",
            "at least 85 %",
        );
        let one = median(ours, |round| round.closed[0].percentile(0.5));
        wanted(
            &format!("{name}: one client's p50, more than the library takes for a sentence"),
            Some(one - ms),
            " ms",
            "at most 1 ms",
        );
        wanted(
            &format!("{name}: slowest /health at {} clients", CLIENTS[CLIENTS.len() - 1]),
            Some(ours.iter().map(|round| round.health).fold(0.0, f64::max)),
            " ms",
            "at most 50 ms",
        );
        wanted(&format!("{name}: peak memory"), Some(median(ours, |round| round.peak)), " MB", "–");
    }
    for (ours, peer, floor) in [
        ("cloze", "FastAPI", "3 ×"),
        ("cloze", "infinity", "1.3 ×"),
        ("cloze, int8", "infinity, bf16", "1.5 ×"),
        ("cloze, int8", "infinity", "1.5 ×"),
    ] {
        let (Some(mine), Some(theirs)) = (of(ours), of(peer)) else { continue };
        wanted(&format!("{ours} beside {peer}: answers/s"), Some(rate(mine) / rate(theirs)), " ×", floor);
        wanted(&format!("{ours} beside {peer}: p99"), Some(p99(mine) / p99(theirs)), " ×", "at most 1 ×");
    }
    for peer in ["FastAPI", "infinity", "infinity, bf16"] {
        wanted(
            &format!("{peer}: peak memory"),
            of(peer).map(|rounds| median(rounds, |round| round.peak)),
            " MB",
            "–",
        );
    }
    report::table(["", "found", "wanted"], rows)
}

//! `cargo xtask campaign`: attacks on the program from outside.
//!
//! A case is a function of the seed, its kind and its number: files that are wrong in some way, a call of the program
//! under limits, and a judgement. What goes wrong is kept with the call that shows it.

mod case;
mod formats;
mod judge;
mod kinds;
mod mutate;
mod patience;
mod program;
mod random;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::bench::report;
use crate::step;
use case::{Case, Prepared};
use kinds::{KINDS, Kind};
use random::Random;
use world::World;

/// Attack the program from outside: damaged files, kills, full disks, extreme texts and numbers.
///
/// Prints a table of kinds with how many cases were tried and how many failed, and keeps what a failure needs to be
/// shown again, each in a folder with its command.sh. A failure is a panic, a death by a signal, a hang, memory over
/// a limit, an error that is not one line, a wrong result, something half-written, an unequal bit.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask campaign --minutes 2
  cargo xtask campaign --only kills --only disks --seed 7
  cargo xtask campaign --only pickle --case 1234 --seed 7")]
pub struct Args {
    /// How long, in minutes; the kinds share the time.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// What the cases are a function of (default: the clock's, which is printed).
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only this kind; may be repeated.
    #[arg(long, value_name = "KIND", value_parser = KINDS.map(|kind| kind.name))]
    only: Vec<String>,
    /// Only this case of the one kind.
    #[arg(long, value_name = "NUMBER", requires = "only")]
    case: Option<u64>,
    /// The program (default: built in release first).
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Where failures are kept; emptied first.
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
    /// Put the table into benches/README.md.
    #[arg(long, conflicts_with = "only")]
    write: bool,
}

impl Args {
    /// Every kind, for this many minutes.
    pub fn lasting(minutes: f64) -> Self {
        let out = OUT.into();
        Self { minutes, seed: None, only: Vec::new(), case: None, program: None, out, write: false }
    }
}

/// Where failures are kept unless told otherwise.
const OUT: &str = "runs/campaign";
/// Folders of failures with the same fault that are kept.
const KEPT: usize = 3;
/// Between two lines of progress, where no terminal is.
const EVERY: Duration = Duration::from_secs(30);

pub fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => crate::program::build(None)?,
    };
    let program = program.canonicalize().with_context(|| format!("there is no {}", program.display()))?;
    let out = match args.out.is_relative() {
        true => step::root().join(&args.out),
        false => args.out.clone(),
    };
    prepare_folder(&out)?;
    let seed = args.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() % 1_000_000)
    });
    eprintln!("==> campaign: seed {seed}, {}", program.display());
    let start = Instant::now();
    let world = World::new(out.join("world"), program)?;
    eprintln!("    seeds made in {:.1} s", start.elapsed().as_secs_f64());
    let wanted = |kind: &&Kind| args.only.is_empty() || args.only.iter().any(|only| only == kind.name);
    let kinds: Vec<&Kind> = KINDS.iter().filter(wanted).collect();
    let campaign = Campaign {
        world,
        seed,
        out: out.clone(),
        only: args.case,
        deadline: Instant::now() + Duration::from_secs_f64(60.0 * args.minutes.max(0.0)),
        state: Mutex::new(State {
            tallies: kinds.iter().map(|_| Tally::default()).collect(),
            faults: BTreeMap::new(),
            shown: Instant::now(),
        }),
        kinds,
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let done: Vec<Result<()>> = thread::scope(|scope| {
        let campaign = &campaign;
        let workers: Vec<_> = (0..workers).map(|slot| scope.spawn(move || campaign.work(slot))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")))
            .collect()
    });
    campaign.clear_line();
    done.into_iter().collect::<Result<()>>()?;
    campaign.finish(args)
}

/// An empty folder that is ours: an earlier campaign's is emptied, anything else refused.
fn prepare_folder(out: &Path) -> Result<()> {
    let mark = out.join(".campaign");
    let is_empty = fs::read_dir(out).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty && !mark.exists() {
        bail!("{} holds something else than a campaign: choose another --out", out.display());
    }
    case::remove(out)?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    Ok(fs::write(mark, "")?)
}

struct Campaign<'a> {
    world: World,
    seed: u64,
    out: PathBuf,
    /// The one case to do.
    only: Option<u64>,
    deadline: Instant,
    kinds: Vec<&'a Kind>,
    state: Mutex<State>,
}

struct State {
    tallies: Vec<Tally>,
    /// Faults by kind and signature.
    faults: BTreeMap<(usize, String), Fault>,
    shown: Instant,
}

/// What became of a kind's cases.
#[derive(Default)]
struct Tally {
    begun: u64,
    tried: u64,
    failed: u64,
    /// What the cases took, with an estimate for those under way.
    spent: Duration,
    slowest: (Duration, u64),
    largest: (u64, u64),
}

struct Fault {
    count: u64,
    first: String,
    kept: Vec<PathBuf>,
}

impl Campaign<'_> {
    /// Does cases until the time is over.
    fn work(&self, slot: usize) -> Result<()> {
        let folder = self.out.join(format!("at-work-{slot}"));
        while let Some((at, index, expected)) = self.next()? {
            let kind = self.kinds[at];
            let random = || Random::of(self.seed, kind.name, index);
            let mut case = Case::new(&self.world, folder.clone(), random(), index)?;
            let start = Instant::now();
            let done = (kind.attack)(&mut case);
            let took = start.elapsed();
            done.with_context(|| format!("{} {index}", kind.name))?;
            // Interrupted cases end in their own ways.
            if step::INTERRUPTED.load(Ordering::SeqCst) {
                return Ok(());
            }
            let keep = self.count(at, index, expected, took, &case)?;
            if let Some(place) = keep {
                let again =
                    format!("cargo xtask campaign --seed {} --only {} --case {index}", self.seed, kind.name);
                case.keep(&place, &again, |folder| {
                    let mut case = Case::new(&self.world, folder, random(), index)?;
                    case.prepare_only = true;
                    match (kind.attack)(&mut case) {
                        Err(error) if !error.is::<Prepared>() => Err(error),
                        _ => Ok(()),
                    }
                })?;
            }
            self.show()?;
        }
        case::remove(&folder)
    }

    fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.state.lock().map_err(|_| anyhow::anyhow!("a worker panicked"))
    }

    /// The next case: of the kind that has had the least time. Its kind, number and expected time.
    fn next(&self) -> Result<Option<(usize, u64, Duration)>> {
        let mut state = self.state()?;
        if step::INTERRUPTED.load(Ordering::SeqCst) || Instant::now() > self.deadline {
            return Ok(None);
        }
        let open = |(_, tally): &(usize, &mut Tally)| self.only.is_none() || tally.begun == 0;
        let least = state.tallies.iter_mut().enumerate().filter(open).min_by_key(|(_, tally)| tally.spent);
        let Some((at, tally)) = least else { return Ok(None) };
        let index = self.only.unwrap_or(tally.begun);
        let expected = match tally.tried {
            0 => Duration::from_millis(500),
            tried => tally.spent / tried as u32,
        };
        tally.begun += 1;
        tally.spent += expected;
        Ok(Some((at, index, expected)))
    }

    /// Notes a case's outcome; where it is to be kept, if it is.
    fn count(
        &self,
        at: usize,
        index: u64,
        expected: Duration,
        took: Duration,
        case: &Case<'_>,
    ) -> Result<Option<PathBuf>> {
        let mut state = self.state()?;
        let tally = &mut state.tallies[at];
        tally.spent = tally.spent + took - expected.min(tally.spent + took);
        tally.tried += 1;
        tally.failed += u64::from(!case.faults.is_empty());
        tally.slowest = tally.slowest.max((case.slowest, index));
        tally.largest = tally.largest.max((case.largest, index));
        let place = self.out.join(format!("{}-{index}", self.kinds[at].name));
        let mut keep = None;
        for fault in &case.faults {
            let first = || Fault { count: 0, first: fault.clone(), kept: Vec::new() };
            let entry = state.faults.entry((at, judge::signature(fault))).or_insert_with(first);
            entry.count += 1;
            if entry.kept.len() < KEPT && !entry.kept.contains(&place) {
                entry.kept.push(place.clone());
                keep = Some(place.clone());
            }
        }
        Ok(keep)
    }

    /// How far it is: a live line on a terminal, else a line now and then.
    fn show(&self) -> Result<()> {
        let mut state = self.state()?;
        let live = stderr().is_terminal();
        if state.shown.elapsed() < if live { Duration::from_millis(200) } else { EVERY } {
            return Ok(());
        }
        state.shown = Instant::now();
        let sum = |of: fn(&Tally) -> u64| state.tallies.iter().map(of).sum::<u64>();
        let left = self.deadline.saturating_duration_since(Instant::now()).as_secs();
        let line = format!(
            "{} cases, {} failed, {} kinds of fault, {left} s left",
            sum(|tally| tally.tried),
            sum(|tally| tally.failed),
            state.faults.len()
        );
        match live {
            true => {
                let mut err = stderr();
                let _ = write!(err, "\r\x1b[K    {line}");
                let _ = err.flush();
            }
            false => eprintln!("    {line}"),
        }
        Ok(())
    }

    fn clear_line(&self) {
        if stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    /// Prints the faults and the table.
    fn finish(self, args: &Args) -> Result<()> {
        let Ok(state) = self.state.into_inner() else { bail!("a worker panicked") };
        for ((at, _), fault) in &state.faults {
            let kept: Vec<String> = fault.kept.iter().map(|place| place.display().to_string()).collect();
            let (kind, count, first) = (self.kinds[*at].name, fault.count, case::printable(&fault.first));
            println!("{kind}, {count} ×: {first}\n    {}", kept.join(" "));
        }
        let rows = self.kinds.iter().zip(&state.tallies).map(|(kind, tally)| {
            let ((slowest, by_slowest), (largest, by_largest)) = (tally.slowest, tally.largest);
            [
                kind.name.to_owned(),
                report::count(tally.tried),
                report::count(tally.failed),
                format!("{:.1} ({by_slowest})", slowest.as_secs_f64()),
                format!("{} ({by_largest})", report::count(largest)),
            ]
        });
        let table = report::table(
            ["kind", "tried", "failed", "slowest call, s (case)", "most memory, MB (case)"],
            rows,
        );
        println!("\n{table}\n");
        let sum = |of: fn(&Tally) -> u64| state.tallies.iter().map(of).sum::<u64>();
        let (tried, failed) = (sum(|tally| tally.tried), sum(|tally| tally.failed));
        let summary =
            format!("{} cases, {} failed; seed {}.", report::count(tried), report::count(failed), self.seed);
        println!("{summary}");
        if args.write {
            let text =
                format!("{table}\n\n{:.0} minutes: {summary} {}.", args.minutes, report::machine(None));
            report::write("campaign", &text)?;
        }
        if failed > 0 {
            bail!(
                "{} of {} cases failed: see {}",
                report::count(failed),
                report::count(tried),
                self.out.display()
            );
        }
        if tried == 0 {
            bail!("nothing was tried");
        }
        Ok(())
    }
}

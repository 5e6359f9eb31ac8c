//! A pretraining step beside processes that keep the cores busy.

use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

use super::measure::{self, Measured};
use super::report;

/// How to measure.
#[derive(clap::Args)]
pub struct Args {
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Busy processes beside a step.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    busy: u16,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// `PRESET BATCH LEN VOCAB STEPS PRECISION` of the step, which is `bench train`'s first.
const SHAPE: [&str; 6] = ["mini", "16", "128", "30522", "8", "f32"];

/// A side, and the medians of its steps' times.
struct Side {
    name: &'static str,
    command: Command,
    alone: Vec<f64>,
    beside: Vec<f64>,
}

pub fn run(args: &Args) -> Result<()> {
    let python = measure::python();
    let executable = measure::build("cloze-trainer", "pretraining_step")?;
    let side = |name, command| Side { name, command, alone: Vec::new(), beside: Vec::new() };
    let mut sides = vec![side("ours", measure::ours(&executable, &SHAPE))];
    sides.extend(python.as_ref().map(|python| {
        let arguments: Vec<&str> = ["transformers"].into_iter().chain(SHAPE).collect();
        side("transformers", measure::peer(python, "pretrain.py", &arguments))
    }));
    for round in 1..=args.rounds {
        for side in &mut sides {
            eprintln!("{}, round {round} of {}", side.name, args.rounds);
            side.alone.push(Measured::from(&mut side.command)?.ms);
            let _busy = Busy::start(args.busy, spinning)?;
            side.beside.push(Measured::from(&mut side.command)?.ms);
        }
    }
    let medians = |side: &Side| {
        let of = |times: &[f64]| measure::median(times.iter().copied()).unwrap_or(f64::NAN);
        (of(&side.alone), of(&side.beside))
    };
    let rows = sides.iter().map(|side| {
        let (alone, beside) = medians(side);
        let slower = format!("{:.2} ×", beside / alone);
        [side.name.to_owned(), report::short(alone), report::short(beside), slower]
    });
    let beside = format!("beside {} busy processes, ms", args.busy);
    let mut text = report::table(["", "alone, ms", &beside, "slower by"], rows);
    text += &format!(
        "\n\nOne step of BERT-mini, 16 × 128, f32; medians of {} alternating rounds. {}.",
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("load", &text) } else { Ok(()) }
}

/// Processes that are busy until this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    /// Starts `count` of a program that ends when its standard input does: so none is left behind, however this
    /// program ends.
    fn start(count: u16, program: impl Fn() -> Result<Command>) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let child = program()?.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
            busy.0.push(child.context("cannot start a busy process")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Waiting closes a child's input; one that has failed by itself is gone as well.
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

/// This program, as [`spin`].
fn spinning() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["bench", "spin"]);
    Ok(command)
}

/// Keeps a core busy until `input` ends.
pub fn spin(mut input: impl Read + Send + 'static) {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    // An input that cannot be read has ended, too.
    thread::spawn(move || {
        let _ = input.read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
    });
    let mut count = 0_u64;
    while !ended.load(Ordering::Relaxed) {
        count = black_box(count.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_ends_with_its_input() {
        spin(&b"some input"[..]);
    }

    #[test]
    fn busy_processes_run_until_they_are_dropped() {
        // It copies its input, and so ends with it.
        let mut busy = Busy::start(2, || Ok(Command::new("cat"))).unwrap();
        assert_eq!(busy.0.len(), 2);
        assert!(busy.0.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
        drop(busy);
        assert!(Busy::start(1, || Ok(Command::new("no-such-program-here"))).is_err());
    }
}

//! A device beside PyTorch on the same card, within minutes: parity, training, embeddings, texts, and where the time goes.

mod card;
mod causes;
mod curves;
mod limited;
mod plan;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::Value;

use self::card::Card;
use self::limited::{Ended, last_line};
use self::plan::{Shape, Stage, Work, stages};
use super::measure::{self, Measured};
use super::{kept, report};
use crate::{backends, program, step};

/// Measure a device beside PyTorch on the same card.
///
/// In turn: every model's parity with flex, the losses of both sides from the same first weights, steps of pretraining and
/// fine-tuning, embeddings, continued texts, and the kernels of a step on both sides. PyTorch has scaled dot-product
/// attention, autocast, fused AdamW and torch.compile. What does not fit into the minutes is left out and named.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  CLOZE_PYTHON=$PWD/peers/bin/python cargo xtask bench gpu --write
  cargo xtask bench gpu --device wgpu --precision f16 --only pretraining
  cargo xtask bench gpu --device wgpu --small --minutes 40")]
pub struct Args {
    /// The device, by the name that `cloze --device` takes.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// The time that all of it may take, building included.
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Only the stages whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Tokens of a step of training; fewer need less memory.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(512..))]
    tokens: u32,
    /// What most steps multiply in: a graphics interface may have 16-bit floats and no bf16.
    #[arg(long, default_value = PRECISIONS[0], value_parser = precision())]
    precision: &'static str,
    /// What the card's products of bf16 reach at best, in 10¹² operations a second, where the table of cards has it not.
    #[arg(long, value_name = "N")]
    peak_tflops: Option<f64>,
    /// Tiny shapes, and PyTorch on the processor: to try the command on a software device.
    #[arg(long, conflicts_with = "write")]
    small: bool,
    /// Put the tables into benches/README.md.
    #[arg(long, conflicts_with = "only")]
    write: bool,
}

/// What may be multiplied in, the usual one first.
const PRECISIONS: [&str; 3] = ["bf16", "f16", "f32"];

fn precision() -> impl TypedValueParser<Value = &'static str> {
    PossibleValuesParser::new(PRECISIONS)
        .map(|text| PRECISIONS.into_iter().find(|name| *name == text).expect("a possible value"))
}

fn minutes(text: &str) -> Result<f64, String> {
    let found: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of minutes"))?;
    if (0.5..=1e4).contains(&found) { Ok(found) } else { Err("expected half a minute at least".into()) }
}

/// Both sides, and what is left of the time.
struct Bench<'a> {
    args: &'a Args,
    /// Our side's benchmark.
    ours: PathBuf,
    python: Option<OsString>,
    /// PyTorch's name of the card.
    their_device: String,
    /// For what runs leave behind.
    place: PathBuf,
}

/// Of a stage's time, what our side may take: it chooses among kernels, which PyTorch brings with it.
const OURS: f64 = 0.6;
/// Seconds of PyTorch's side from which on its model is compiled as a whole, which is a little faster then.
const WHOLE: f64 = 120.0;

/// What a side did, or in a word why not.
type Side = Result<Value, String>;

/// A row of the table: each side where it was measured.
struct Row {
    work: String,
    precision: &'static str,
    ours: Side,
    theirs: Option<Side>,
}

/// What the stages found.
#[derive(Default)]
struct Found {
    parity: Option<String>,
    rows: Vec<Row>,
    curves: Vec<curves::Pair>,
    causes: Option<String>,
    left_out: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(60.0 * args.minutes);
    let python = measure::python();
    let card = Card::of(&args.device, args.peak_tflops);
    eprintln!("{}: {card}", args.device);
    let stages: Vec<Stage> = stages(args.small, args.tokens as usize, args.precision)
        .into_iter()
        .filter(|stage| args.only.as_ref().is_none_or(|only| stage.name.contains(only.as_str())))
        .collect();
    if stages.is_empty() {
        bail!("no stage's name contains {:?}", args.only.as_deref().unwrap_or_default());
    }
    let building = Instant::now();
    let ours = build(&args.device)?;
    let built = building.elapsed().as_secs_f64();
    let place = std::env::temp_dir().join(format!("cloze-bench-gpu-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let their_device = card::peers_device(&args.device, args.small);
    let bench = Bench { args, ours, python, their_device, place };
    let found = bench.carry_out(&stages, end);
    // It holds nothing that is needed any more; that it cannot be removed is no failure.
    let _ = fs::remove_dir_all(&bench.place);
    let found = found?;

    let plot = match (args.write, found.curves.is_empty()) {
        (_, true) => None,
        (true, false) => Some(step::root().join("benches/gpu-losses.svg")),
        (false, false) => Some(kept::target().join("gpu-losses.svg")),
    };
    if let Some(plot) = &plot {
        curves::draw(plot, &found.curves)?;
    }
    let text = bench.text(&found, &card, built, plot.as_deref());
    println!("{text}");
    if args.write { report::write("gpu", &text) } else { Ok(()) }
}

/// Builds our side with the device's backend.
fn build(device: &str) -> Result<PathBuf> {
    let mut build = step::cargo("bench");
    build.args(["-p", "cloze", "--bench", "device", "--no-run"]);
    if let Some(feature) = program::feature(device) {
        build.args(["--features", &format!("cloze/{feature}")]);
        build.envs(program::environment(Some(feature))?);
    }
    step::executable("build our side", &mut build, "device")
}

impl Bench<'_> {
    /// One stage after another, each within its share of the time that is left.
    fn carry_out(&self, stages: &[Stage], end: Instant) -> Result<Found> {
        let mut found = Found::default();
        for (place, stage) in stages.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
            let weights: Vec<f64> = stages[place..].iter().map(|stage| stage.weight).collect();
            let Some(seconds) = plan::share(left, &weights, stage.least) else {
                eprintln!("{}/{} {}: left out, {left:.0} s are left", place + 1, stages.len(), stage.name);
                found.left_out.push(stage.name.clone());
                continue;
            };
            eprintln!("{}/{} {}, at most {seconds:.0} s", place + 1, stages.len(), stage.name);
            match &stage.work {
                Work::Parity => {
                    let limit = Duration::from_secs_f64(seconds);
                    found.parity = Some(match backends::within(&self.args.device, stage.only, limit) {
                        Ok(summary) => summary.to_string(),
                        Err(error) => format!("could not be computed: {error:#}"),
                    });
                }
                Work::Curves(shape, steps) => {
                    let pair = self.curves(shape, *steps, seconds)?;
                    found.curves.extend(pair);
                }
                Work::Sides(shape) => {
                    let ours = self.ours(shape, seconds, &[])?;
                    let theirs = self.theirs(shape, seconds, &[])?;
                    let (work, precision) = (stage.name.clone(), shape.precision);
                    found.rows.push(Row { work, precision, ours, theirs });
                }
                Work::Causes(shape) => found.causes = self.causes(shape, seconds)?,
            }
        }
        Ok(found)
    }

    /// What a side does in this many seconds: a third goes into the steps that are measured, the rest into loading, compiling
    /// and choosing kernels.
    fn side(
        &self,
        name: &str,
        mut command: Command,
        shape: &Shape,
        device: &str,
        seconds: f64,
        more: &[&str],
    ) -> Result<Side> {
        let Shape { work, preset, batch, len, precision } = *shape;
        let [batch, len] = [batch, len].map(|n| n.to_string());
        let measured = format!("{:.1}", seconds / 3.0);
        command.args([work, preset, &batch, &len, device, precision, &measured]).args(more);
        let side = match last_line(&mut command, Duration::from_secs_f64(seconds))? {
            Ended::Line(line) => Ok(line),
            Ended::TooLong => Err(format!("longer than {seconds:.0} s")),
            Ended::Failed(said) => {
                eprintln!("    {name}: {}", said.lines().last().unwrap_or_default());
                Err(limited::in_a_word(&said).into())
            }
        };
        if let Ok(line) = &side {
            eprintln!("    {name}: {} ms", report::short(line["ms"].as_f64().unwrap_or(f64::NAN)));
        }
        Ok(side)
    }

    fn ours(&self, shape: &Shape, seconds: f64, more: &[&str]) -> Result<Side> {
        let mut command = measure::ours(&self.ours, &[]);
        // Kernels that were chosen are remembered beside the build, as the program remembers them.
        command.current_dir(step::root());
        if self.args.small {
            // A software device compiles each kernel that is tried for minutes.
            command.env("CUBECL_AUTOTUNE_LEVEL", "minimal");
        }
        command.envs(program::environment(program::feature(&self.args.device))?);
        self.side("ours", command, shape, &self.args.device, OURS * seconds, more)
    }

    fn theirs(&self, shape: &Shape, seconds: f64, more: &[&str]) -> Result<Option<Side>> {
        let Some(python) = &self.python else { return Ok(None) };
        let command = measure::peer(python, "gpu.py", &[]);
        let seconds = (1.0 - OURS) * seconds;
        let whole: &[&str] = if seconds >= WHOLE { &["--whole"] } else { &[] };
        let more = [more, whole].concat();
        self.side("PyTorch", command, shape, &self.their_device, seconds, &more).map(Some)
    }

    /// The losses of both sides from the same first weights, on the same texts, without dropout.
    fn curves(&self, shape: &Shape, steps: usize, seconds: f64) -> Result<Option<curves::Pair>> {
        let folder = self.place.join("first-weights").to_string_lossy().into_owned();
        let more = [&*steps.to_string(), &folder];
        let ours = self.ours(shape, seconds, &more)?;
        let Ok(line) = &ours else { return Ok(None) };
        let Some(Ok(theirs)) = self.theirs(shape, seconds, &more)? else { return Ok(None) };
        let losses = |line: &Value| {
            line["losses"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        Ok(Some(curves::Pair { precision: shape.precision, ours: losses(line), theirs: losses(&theirs) }))
    }

    /// Where both sides' steps spend their time.
    fn causes(&self, shape: &Shape, seconds: f64) -> Result<Option<String>> {
        let ours = self.ours(shape, seconds, &["20", "-", "kernels"])?;
        let theirs = self.theirs(shape, seconds, &["20", "--profile"])?;
        let Ok(ours) = &ours else { return Ok(None) };
        let theirs = theirs.as_ref().and_then(|side| side.as_ref().ok());
        Ok(Some(causes::text(&causes::Step::of(ours), theirs.map(causes::Step::of).as_ref())))
    }

    /// All that was found, for a terminal and for benches/README.md.
    fn text(&self, found: &Found, card: &Card, built: f64, plot: Option<&Path>) -> String {
        let Args { device, minutes, small, precision, .. } = self.args;
        let mut parts = Vec::new();
        if let Some(parity) = &found.parity {
            parts.push(format!("Parity with flex: {parity}."));
        }
        if !found.rows.is_empty() {
            parts.push(table(&found.rows, card));
        }
        if let Some(plot) = plot {
            let name = plot.file_name().unwrap_or_default().to_string_lossy();
            let place = if self.args.write { name.into_owned() } else { plot.display().to_string() };
            let told: Vec<String> = found.curves.iter().map(curves::Pair::told).collect();
            parts.push(format!(
                "Losses of both sides from the same first weights, on the same texts, without dropout: {}.\n\n\
                 ![Losses]({place})",
                told.join("; ")
            ));
        }
        parts.extend(found.causes.clone());
        if !found.left_out.is_empty() {
            parts.push(format!("Left out for want of time: {}.", found.left_out.join("; ")));
        }
        let peer = if *small { ", tiny shapes, PyTorch on the processor" } else { "" };
        parts.push(format!(
            "`cargo xtask bench gpu --device {device} --minutes {minutes} --precision {precision}`: {card}{peer}. No side reads a \
             loss before its last step; MB is what a side's allocator held. Kernels are chosen and compiled in the first \
             run and remembered: what then took too long fits into the next one. Our side was built in {built:.0} s. {}.",
            report::machine(self.python.as_ref())
        ));
        parts.join("\n\n")
    }
}

/// Both sides' times, rates and memory, and what of the card's peak they reach.
fn table(rows: &[Row], card: &Card) -> String {
    let header = [
        "work",
        "ours, ms",
        "a second",
        "of the peak",
        "MB",
        "PyTorch, ms",
        "its a second",
        "of the peak",
        "its MB",
        "ratio",
    ];
    let measured = |side: &Side| -> Result<Measured, String> {
        let line = side.as_ref().map_err(Clone::clone)?;
        serde_json::from_value(line.clone()).map_err(|_| "no measurement".to_owned())
    };
    report::table(
        header,
        rows.iter().map(|row| {
            let ours = measured(&row.ours);
            let theirs = row.theirs.as_ref().map(measured);
            // Both do the same products: ours says how many operations these are.
            let gflop = ours.as_ref().map_or(0.0, |ours| ours.gflop);
            let cells = |side: Option<&Result<Measured, String>>| match side {
                None => ["–".into(), "–".into(), "–".into(), "–".into()],
                Some(Err(reason)) => [reason.clone(), "–".into(), "–".into(), "–".into()],
                Some(Ok(side)) => [
                    report::short(side.ms),
                    report::short(side.per_s),
                    card.share(gflop / side.ms, row.precision),
                    report::short(side.peak_mb),
                ],
            };
            let ratio = match (&ours, &theirs) {
                (Ok(ours), Some(Ok(theirs))) => format!("{:.2} ×", ours.per_s / theirs.per_s),
                _ => "–".into(),
            };
            let [a, b, c, d] = cells(Some(&ours));
            let [e, f, g, h] = cells(theirs.as_ref());
            [row.work.clone(), a, b, c, d, e, f, g, h, ratio]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_both_sides_or_says_why_not() {
        let side = |ms: f64| json!({"ms": ms, "per_s": 1e6 / ms, "peak_mb": 512.0, "gflop": 2_000.0, "losses": [1.5]});
        let row =
            |ours: Side, theirs: Option<Side>| Row { work: "a step".into(), precision: "bf16", ours, theirs };
        let rows = [
            row(Ok(side(20.0)), Some(Ok(side(10.0)))),
            row(Err("out of memory".into()), Some(Ok(side(10.0)))),
            row(Ok(side(20.0)), None),
        ];
        let card = Card { name: "a card".into(), bf16: Some(1_000.0), tf32: None };
        let table = table(&rows, &card);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .skip(2)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let (ours, theirs) = (["20.0", "50,000", "10 %", "512"], ["10.0", "100,000", "20 %", "512"]);
        assert_eq!(lines[0], [&["a step"][..], &ours, &theirs, &["0.50 ×"]].concat());
        // Without our side nobody says how many operations there are.
        assert_eq!(lines[1][..5], ["a step", "out of memory", "–", "–", "–"]);
        assert_eq!(lines[1][5..], ["10.0", "100,000", "–", "512", "–"]);
        assert_eq!(lines[2], [&["a step"][..], &ours, &["–"; 5]].concat());
    }

    #[test]
    fn the_budget_is_a_number_of_minutes() {
        assert_eq!(minutes("2.5"), Ok(2.5));
        assert!(minutes("0").is_err() && minutes("ten").is_err() && minutes("NaN").is_err());
    }
}

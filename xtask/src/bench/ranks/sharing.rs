//! What ranks share besides their steps: the optimiser's memory, and lines to embed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::measure::{self, Rounds, median};
use super::super::report;
use super::{Training, launcher, n_parameters, weights};
use crate::step;

/// Ranks that divide the optimiser's memory.
const RANKS: usize = 4;

/// BERT-base without activations worth the name: what counts is that the parameters are many. A rank has one shard of one
/// text, whatever their number: several shards have several gradients before they are added.
const SETS: [&str; 5] = [
    "model.preset=base",
    "train.steps=2",
    "examples.seq_len=16",
    "schedule.warmup_steps=1",
    "eval.max_examples=1",
];

/// Lines to embed.
const LINES: usize = 20_000;

pub fn run(args: &Rounds, program: &Path, place: &Path) -> Result<()> {
    let mut text = memory(program, place)?;
    text += "\n\n";
    text += &lines(args, program, place)?;
    text += &format!("\n\n{}.", report::machine(None));
    println!("{text}");
    if args.write { report::write_class("ranks-sharing", &text) } else { Ok(()) }
}

/// The memory of one rank of one, and of the last of several, which writes no checkpoint. What is less is the others' moments.
fn memory(program: &Path, place: &Path) -> Result<String> {
    let out = place.join("memory");
    let mut peaks = Vec::new();
    for ranks in [1, RANKS] {
        eprintln!("memory of {ranks} ranks");
        let mut command = launcher(ranks);
        command.arg(program).env("RAYON_NUM_THREADS", "1");
        let [batch, shards] = ["batch_size", "shards"].map(|key| format!("train.{key}={ranks}"));
        let sets = [&SETS[..], &[&batch, &shards]].concat();
        let training = Training { config: "bert-mini-corpus", sets: &sets, out: &out };
        let child = training.command(&mut command)?.stdin(Stdio::null()).stdout(Stdio::null());
        let child = child.stderr(Stdio::null()).spawn().context("cannot start mpirun")?;
        peaks.push(peak_mb(child, ranks)?);
    }
    let moments = 8.0 * n_parameters(&weights(&out)?)? as f64 / 1e6;
    let less = peaks[0] - peaks[1];
    let share = 1.0 - less / moments;
    Ok(format!(
        "Memory with {RANKS} ranks: a process that trains BERT-base alone needs {} MB at its peak, the smallest of {RANKS} ranks, which has \
         as many texts of a step, {} MB. Both moments of all parameters are {} MB; of these, the rank has {:.0} % (at most 30 %), \
         which includes the buffers of the exchange: its slice alone is {:.0} %.",
        report::short(peaks[0]),
        report::short(peaks[1]),
        report::short(moments),
        100.0 * share,
        100.0 / RANKS as f64
    ))
}

/// The peak memory of the smallest of a launcher's processes.
fn peak_mb(mut launcher: Child, ranks: usize) -> Result<f64> {
    let listed = || -> Vec<String> {
        let listed = Command::new("pgrep").args(["-P", &launcher.id().to_string()]).output();
        let text = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned());
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let start = Instant::now();
    let mut processes = listed();
    while processes.len() < ranks && start.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
        processes = listed();
    }
    let mut peaks = vec![0.0_f64; processes.len()];
    let status = loop {
        for (process, peak) in processes.iter().zip(&mut peaks) {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kb = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
            *peak = peak.max(kb.unwrap_or_default() * 1024.0 / 1e6);
        }
        if let Some(status) = launcher.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    ensure!(status.success(), "training by {ranks} ranks failed");
    peaks.into_iter().reduce(f64::min).context("the launcher has no process")
}

/// The vectors of many lines by one process of two threads and by two ranks of one.
fn lines(args: &Rounds, program: &Path, place: &Path) -> Result<String> {
    let captions = step::root().join("../shared/data/multi30k/train.en");
    let text =
        fs::read_to_string(&captions).with_context(|| format!("cannot read {}", captions.display()))?;
    let lines: String = text.lines().take(LINES).flat_map(|line| [line, "\n"]).collect();
    let input = place.join("lines.txt");
    fs::write(&input, lines)?;
    let model = step::root().join("../shared/models/all-MiniLM-L6-v2");
    let mut ms = [Vec::new(), Vec::new()];
    for round in 0..args.rounds {
        eprintln!("{LINES} lines, round {}", round + 1);
        let mut outputs = Vec::new();
        for (ranks, ms) in [0, 2].into_iter().zip(&mut ms) {
            let mut command = match ranks {
                0 => Command::new(program),
                _ => {
                    let mut command = launcher(ranks);
                    command.args(["--bind-to", "core"]).arg(program).env("RAYON_NUM_THREADS", "1");
                    command
                }
            };
            command.args(["embed", "--model"]).arg(&model);
            let output = place.join(format!("vectors-{ranks}"));
            ms.push(measure::process(&mut command, &input, &output)?);
            outputs.push(fs::read(&output)?);
        }
        ensure!(outputs[0] == outputs[1], "the vectors of two ranks are not those of one process");
    }
    let [one, two] = ms.map(|ms| median(ms.into_iter()).unwrap_or(f64::NAN) / 1e3);
    Ok(format!(
        "`embed` of {LINES} of Multi30k's English captions with MiniLM: one process of two threads {one:.1} s, two ranks of one thread \
         {two:.1} s ({:.2} ×), byte for byte the same output. Medians of {} alternating rounds.",
        one / two,
        args.rounds
    ))
}

//! Our service with other things to do beside one model's sentences.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::load::{self, Pace, Questions, Seen, ask};
use super::sides::{Running, Side};
use super::{MANY, Work, beside};
use crate::bench::generate::make_gpt2;
use crate::bench::kept::target;
use crate::bench::measure::path_text;
use crate::bench::{measure, report};

/// Connections that ask nothing.
const IDLE: usize = 10_000;

/// Texts that one client asks for at a time, beside another who asks for one.
const FLOOD: usize = 2_000;

/// Layers of the GPT-2 that writes, of its usual width, and the tokens of each text.
const LAYERS: &str = "4";
const NEW: usize = 64;

/// One thing that the service did.
struct Row {
    beside: String,
    seen: Seen,
    /// What the other clients got.
    other: String,
    /// The memory that it held afterwards, in MB.
    memory: f64,
}

/// What `side`, which is ours, does beside other things.
pub fn table(work: &Work, side: &Side, expected: &[Vec<f32>]) -> Result<(String, usize, usize)> {
    let asked = |running: &Running, clients: usize| {
        let questions = work.questions(side, running, expected);
        ask(&questions, Pace::Closed { clients }, work.time)
    };
    let mut rows = Vec::new();
    let mut add = |beside: String, running: &Running, seen: Seen, other: String| -> Result<()> {
        rows.push(Row { beside, seen, other, memory: running.memory()?[0] });
        Ok(())
    };
    let running = warm(work, side, &[], expected)?;
    let body = json!({ "inputs": work.texts.iter().cycle().take(FLOOD).collect::<Vec<_>>() }).to_string();
    let flood = || load::post(&running.address, "/embed", &body).map(|_| FLOOD);
    let (seen, texts) = over_and_over(|| asked(&running, 1), flood)?;
    let other = format!("{} texts/s", rate(texts, &seen));
    add(format!("a client who asks for {FLOOD} texts at a time, 1 client"), &running, seen, other)?;

    let idle = (0..IDLE).map(|_| TcpStream::connect(&running.address)).collect::<Result<Vec<_>, _>>();
    let idle = idle.with_context(|| format!("cannot open {IDLE} connections: raise `ulimit -n`"))?;
    let seen = asked(&running, MANY)?;
    add(format!("{} idle connections, {MANY} clients", idle.len()), &running, seen, String::new())?;
    drop((idle, running));

    let other = first_tokens(&work.model)?;
    let other = format!("other={}", path_text(&other)?);
    let running = warm(work, side, &["--model", &other], expected)?;
    let questions = work.questions(side, &running, expected);
    let of_other = Questions { more: json!({ "model": "other" }), expected: Vec::new(), ..questions };
    let pace = Pace::Closed { clients: MANY / 2 };
    let (seen, others) = beside(|| asked(&running, MANY / 2), || ask(&of_other, pace, work.time))?;
    let other = format!("{} answers/s", report::short(others.per_second()));
    let what = format!("another model with {} clients, {} clients", MANY / 2, MANY / 2);
    add(what, &running, seen, other)?;
    drop(running);

    if let Some(generator) = generator()? {
        let writer = format!("writer={}", path_text(&generator)?);
        let running = warm(work, side, &["--model", &writer], expected)?;
        let body = json!({ "model": "writer", "inputs": "The history of the world is", "parameters": { "max_new_tokens": NEW } });
        let write = || -> Result<usize> {
            let answer = load::post(&running.address, "/generate", &body.to_string())?;
            let answer: Value = serde_json::from_slice(&answer)?;
            Ok(answer["tokens"].as_u64().context("an answer without `tokens`")? as usize)
        };
        let (seen, tokens) = over_and_over(|| asked(&running, MANY / 2), write)?;
        let other = format!("{} tokens/s", rate(tokens, &seen));
        let what = format!("a GPT-2 of {LAYERS} layers that writes for one client, {} clients", MANY / 2);
        add(what, &running, seen, other)?;
    }
    let [n, wrong] = [Seen::n, |seen: &Seen| seen.wrong].map(|of| rows.iter().map(|row| of(&row.seen)).sum());
    let rows = rows.into_iter().map(|row| {
        let [p50, p99] = [0.5, 0.99].map(|share| report::short(row.seen.percentile(share)));
        let memory = format!("{} MB", report::short(row.memory));
        [row.beside, report::short(row.seen.per_second()), p50, p99, row.other, memory]
    });
    let header = ["beside", "answers/s", "p50, ms", "p99, ms", "the other gets", "memory"];
    Ok((report::table(header, rows), n, wrong))
}

/// A service that has answered for a while.
fn warm(work: &Work, side: &Side, others: &[&str], expected: &[Vec<f32>]) -> Result<Running> {
    let running = side.start(&work.model, others)?;
    let questions = work.questions(side, &running, expected);
    ask(&questions, Pace::Closed { clients: 8 }, Duration::from_secs(2))?;
    Ok(running)
}

/// Asks, and does something else over and over until that is answered; the sum of what it returns.
fn over_and_over(
    asked: impl FnOnce() -> Result<Seen>,
    other: impl Fn() -> Result<usize> + Sync,
) -> Result<(Seen, usize)> {
    let is_done = AtomicBool::new(false);
    let repeated = || {
        let mut sum = 0;
        while !is_done.load(Ordering::Relaxed) {
            sum += other()?;
        }
        Ok(sum)
    };
    thread::scope(|scope| {
        let sum = scope.spawn(repeated);
        let seen = asked();
        is_done.store(true, Ordering::Relaxed);
        let sum: Result<usize> = sum.join().expect("it returns errors");
        Ok((seen?, sum?))
    })
}

fn rate(n: usize, seen: &Seen) -> String {
    report::short(n as f64 / seen.seconds)
}

/// The model with first tokens' vectors in place of means: as fast, and no vector is the same.
fn first_tokens(model: &Path) -> Result<PathBuf> {
    let folder = target().join("serve-bench/first-tokens");
    copy_folder(model, &folder)?;
    let pooling = folder.join("1_Pooling/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&pooling)?)?;
    config["pooling_mode_mean_tokens"] = json!(false);
    config["pooling_mode_cls_token"] = json!(true);
    fs::write(&pooling, config.to_string()).with_context(|| format!("cannot write {}", pooling.display()))?;
    Ok(folder)
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let from = entry.with_context(|| format!("cannot read {}", from.display()))?.path();
        let to = to.join(from.file_name().context("a file without a name")?);
        match from.is_dir() {
            true => copy_folder(&from, &to)?,
            false => {
                fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            }
        }
    }
    Ok(())
}

/// A GPT-2 of random weights, which transformers makes.
fn generator() -> Result<Option<PathBuf>> {
    let Some(python) = measure::python() else { return Ok(None) };
    let folder = target().join("serve-bench/gpt2");
    if !folder.join("tokenizer.json").exists() {
        make_gpt2(&python, &folder, LAYERS)?;
    }
    Ok(Some(folder))
}

//! An index in use: odd rows, damaged files, and ends at any moment, after which what was acknowledged is found.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::expect_finite;
use crate::campaign::case::{self, Case};
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::{Attempt, Ran, Signal, When};
use crate::campaign::world::sentence;

/// Rows that an index begins with, and those that are added.
const FIRST: usize = 12;
const MORE: usize = 40;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    case.write("first.jsonl", rows("a", FIRST))?;
    case.write("more.jsonl", rows("b", MORE))?;
    match case.random.below(4) {
        0 => odd_rows(case),
        1 => ended(case),
        2 => odd_folder(case),
        _ => damaged(case),
    }
}

/// Rows whose ids begin with a letter.
fn rows(letter: &str, n: usize) -> String {
    let row =
        |i| json!({"id": format!("{letter}{i}"), "text": sentence(i), "year": i % 3}).to_string() + "\n";
    (0..n).map(row).collect()
}

fn index(rows: &str) -> Attempt {
    Attempt::new([
        "search",
        "index",
        "--index",
        "index",
        "--model",
        "model",
        "--field",
        "year",
        "--commit-every",
        "5",
        rows,
    ])
}

fn query() -> Attempt {
    Attempt::new(["search", "query", "--index", "index", "-k", "100", "the law of 1800"])
}

/// Rows of every kind, and a query with odd options: a row that was taken is found.
fn odd_rows(case: &mut Case<'_>) -> Result<()> {
    let text = rows("a", FIRST);
    let odd = match case.random.below(3) {
        0 => {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = case.random.below(lines.len());
            let value: Value = serde_json::from_str(&lines[at])?;
            lines[at] = mutate::json(&mut case.random, &value);
            (lines.join("\n") + "\n").into_bytes()
        }
        // Equal texts use up a graph's links.
        1 => (0..600)
            .map(|i| {
                let text = if i % 3 == 0 { sentence(i) } else { "N/A".into() };
                json!({"id": i, "text": text, "year": i}).to_string() + "\n"
            })
            .collect::<String>()
            .into_bytes(),
        _ => mutate::text(&mut case.random, &text),
    };
    case.write("odd.jsonl", odd)?;
    let mut attempt = index("odd.jsonl");
    for (name, values) in [
        ("--metric", ["cosine", "dot", "euclidean", "x"]),
        ("--vectors", ["f32", "f16", "int8", "binary"]),
        ("--neighbours", ["2", "1", "256", "-1"]),
        ("--build-breadth", ["2", "0", "100", "1e9"]),
    ] {
        if case.random.one_in(4) {
            attempt = attempt.arg(format!("{name}={}", case.random.pick(&values)));
        }
    }
    let ran = case.run(attempt)?;
    let added = acknowledged(&ran);
    if !ran.succeeded() {
        return Ok(());
    }
    let mut attempt = query().arg("--exact");
    if case.random.one_in(2) {
        let odd = case.random.pick(&ODD).replace('\0', "\u{1}");
        let condition = *case.random.pick(&["year=1", "year!=1", "year=", "=", "text=x", "odd"]);
        let option = match condition {
            "odd" => odd,
            condition => condition.to_owned(),
        };
        attempt = attempt.arg(format!("--where={option}"));
    }
    let found = case.run(attempt.clone())?;
    expect_finite(case, &found);
    if found.succeeded() && !attempt.args.iter().any(|arg| arg.to_string_lossy().starts_with("--where")) {
        let ids = ids(&found).len();
        case.expect(ids == added.min(100), format!("{ids} of {added} rows are found"));
    }
    let compacted = case.run(Attempt::new(["search", "compact", "--index", "index"]))?;
    case.expect(compacted.succeeded(), "an index that was just made cannot be compacted");
    Ok(())
}

/// A folder of odd texts, of which a file goes: each passage that was taken is found, and no other.
fn odd_folder(case: &mut Case<'_>) -> Result<()> {
    for i in 0..1 + case.random.below(3) {
        let long = sentence(i).repeat(1 + case.random.below(40));
        let text = format!("# {}\n\n{long}\n\n```sh\n{}\n```\n", sentence(i + 1), sentence(i + 2));
        let odd = mutate::text(&mut case.random, &text);
        let name = format!("notes/{i}.{}", case.random.pick(&["md", "markdown", "txt"]));
        case.write(&name, odd)?;
    }
    case.write("notes/last.md", "# Last\n\nText.\n")?;
    let tokens = *case.random.pick(&["16", "17", "64", "256", "100000"]);
    let skips = *case.random.pick(&["error", "skip"]);
    let reading = ["--passage-tokens", tokens, "--on-bad-row", skips, "notes"];
    let make = ["search", "index", "--index", "index", "--model", "model"];
    let ran = case.run(Attempt::new(make.into_iter().chain(reading)))?;
    if !ran.succeeded() {
        return Ok(());
    }
    let added = acknowledged(&ran);
    let all = || Attempt::new(["search", "query", "--index", "index", "-k", "1000", "--exact", "the law"]);
    let found = ids(&case.run(all())?).len();
    case.expect(found == added.min(1000), format!("{found} of {added} passages are found"));
    fs::remove_file(case.path("notes/last.md"))?;
    let add = ["search", "add", "--index", "index", "--replace"];
    let ran = case.run(Attempt::new(add.into_iter().chain(reading)))?;
    let left = ids(&case.run(all())?).len();
    let expected = (added - 1).min(1000);
    case.expect(
        !ran.succeeded() || left == expected,
        format!("{left} passages of {expected} after one has gone"),
    );
    Ok(())
}

/// An index and additions to it that end at any moment.
fn ended(case: &mut Case<'_>) -> Result<()> {
    let first = case.run(index("first.jsonl"))?;
    case.expect(first.succeeded(), "an index is not made");
    let add = || {
        Attempt::new(["search", "add", "--index", "index", "--commit-every", "4", "--replace", "more.jsonl"])
    };
    let mut added = 0;
    for _ in 0..1 + case.random.below(3) {
        let after = Duration::from_secs_f64(first.time.as_secs_f64() * 3.0 * case.random.share());
        let signal = *case.random.pick(&[Signal::Kill, Signal::Kill, Signal::Terminate, Signal::Interrupt]);
        let ran = case.run(add().ending(When::After(after), signal))?;
        added = added.max(acknowledged(&ran));
    }
    // What an end has left, the next writer removes, and no reader.
    let found = case.unjudged(query().arg("--exact"))?;
    case.expect(found.succeeded(), "an index cannot be asked after an end");
    let ids = ids(&found);
    let expected = (0..FIRST).map(|i| format!("a{i}")).chain((0..added).map(|i| format!("b{i}")));
    let lost: Vec<String> = expected.filter(|id| !ids.contains(id)).collect();
    case.expect(lost.is_empty(), format!("acknowledged rows are lost: {lost:?}"));
    let again = case.run(add())?;
    case.expect(again.succeeded() && acknowledged(&again) == MORE, "the addition does not go on");
    Ok(())
}

/// One of an index's files is damaged or gone: it is told, or the answers are as before.
fn damaged(case: &mut Case<'_>) -> Result<()> {
    let made = case.run(index("first.jsonl"))?;
    case.expect(made.succeeded(), "an index is not made");
    let before = case.run(query())?;
    let mut names = case::files(&case.path("index"));
    names.retain(|name| case.path("index").join(name).is_file());
    let name = format!("index/{}", case.random.pick(&names).display());
    match case.random.below(4) {
        0 => fs::remove_file(case.path(&name))?,
        1 => case.write(&name, "")?,
        _ => case.damage(&name)?,
    }
    let attempt = match case.random.below(4) {
        0 => Attempt::new(["search", "info", "--index", "index"]),
        1 => Attempt::new(["search", "add", "--index", "index", "more.jsonl"]),
        2 => Attempt::new(["search", "compact", "--index", "index"]),
        _ => query(),
    };
    let is_query = attempt.args[1] == "query";
    let ran = case.run(attempt)?;
    if ran.succeeded() && is_query {
        case.expect(ran.out == before.out, format!("other answers, exit status 0: `{name}` is damaged"));
    }
    Ok(())
}

/// The rows that a call said to be on the disk.
fn acknowledged(ran: &Ran) -> usize {
    let lines = ran.output();
    let added = |line: &str| serde_json::from_str::<Value>(line).ok()?["added"].as_u64();
    lines.lines().filter_map(added).next_back().unwrap_or(0) as usize
}

/// The ids that were found.
fn ids(ran: &Ran) -> Vec<String> {
    let lines = ran.output();
    let values = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = values.flat_map(|value| value["found"].as_array().cloned().unwrap_or_default());
    found.map(|row| row["id"].as_str().map_or_else(|| row["id"].to_string(), str::to_owned)).collect()
}

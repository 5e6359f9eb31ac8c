//! What is done with embeddings, over odd rows and with odd options: evaluations, maps, mined negatives, reranking.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect_finite;
use crate::campaign::case::Case;
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::Attempt;
use crate::campaign::random::Random;
use crate::campaign::world::sentence;

const ROWS: usize = 24;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let kind = case.random.below(7);
    let model = if kind == 6 { "regression" } else { "mlm" };
    case.bring(&format!("models/{model}"), "model")?;
    let jsonl = case.random.one_in(2);
    let name = if jsonl { "rows.jsonl" } else { "rows.tsv" };
    let rows = odd(&mut case.random, &rows(kind, jsonl));
    case.write(name, rows)?;
    let call = |args: &[&str]| Attempt::new(args.iter().copied()).arg("--model").arg("model");
    let (mut attempt, options): (Attempt, &[&str]) = match kind {
        0 => (call(&["eval-embeddings", "sts", name]), &["--similarity", "--batch-tokens"]),
        1 => (call(&["eval-embeddings", "pairs", name]), &["--similarity", "--batch-tokens"]),
        2 => (call(&["eval-embeddings", "clustering", name]), &["--runs", "--seed"]),
        3 => (
            call(&["eval-embeddings", "classification", "--train", name, name]),
            &["--c", "--max-iterations"],
        ),
        4 => (
            call(&["map", "--output", "map.html", name]),
            &["--method", "--metric", "--perplexity", "--steps", "--seed"],
        ),
        5 => (
            call(&["mine-negatives", name]),
            &["--negatives", "--range-min", "--range-max", "--margin", "--max-score", "--min-label"],
        ),
        _ => (call(&["rerank"]).input(candidates(&mut case.random)), &["--top-k", "--max-line-bytes"]),
    };
    if kind < 4 && case.random.one_in(2) {
        attempt = attempt.arg("--json");
    }
    for _ in 0..case.random.below(3) {
        let value = value(&mut case.random);
        attempt = attempt.arg(format!("{}={value}", case.random.pick(options)));
    }
    let ran = case.run(attempt.seconds(60))?;
    expect_finite(case, &ran);
    Ok(())
}

/// A folder of BEIR with something odd in one of its files.
pub fn retrieval(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let documents: String = (0..ROWS)
        .map(|i| json!({"_id": format!("d{i}"), "title": "", "text": sentence(i)}).to_string() + "\n")
        .collect();
    let queries: String =
        (0..6).map(|i| json!({"_id": format!("q{i}"), "text": sentence(i * 2)}).to_string() + "\n").collect();
    let judged: String = (0..6).map(|i| format!("q{i}\td{}\t{}\n", i * 2, 1 + i % 2)).collect();
    let judged = "query-id\tcorpus-id\tscore\n".to_owned() + &judged;
    let files =
        [("beir/corpus.jsonl", documents), ("beir/queries.jsonl", queries), ("beir/qrels/test.tsv", judged)];
    let at = case.random.below(4);
    for (i, (name, text)) in files.iter().enumerate() {
        match i == at {
            true => {
                let odd = odd(&mut case.random, text);
                case.write(name, odd)?;
            }
            false => case.write(name, text)?,
        }
    }
    let mut attempt = Attempt::new(["eval-embeddings", "retrieval", "--model", "model", "--json", "beir"]);
    let with_option = case.random.one_in(3);
    if with_option {
        let value = value(&mut case.random);
        attempt = attempt.arg(format!("-k={value}"));
    }
    let ran = case.run(attempt.seconds(60))?;
    expect_finite(case, &ran);
    case.expect(ran.succeeded() || with_option || at < files.len(), "a whole folder of BEIR is refused");
    Ok(())
}

/// Rows that suit the command.
fn rows(kind: usize, jsonl: bool) -> String {
    let (keys, second): (&[&str], fn(usize) -> String) = match kind {
        0 => (&["text", "pair", "label"], |i| format!("{}.5", i % 5)),
        1 => (&["text", "pair", "label"], |i| (i % 2).to_string()),
        5 => (&["text", "pair"], |_| String::new()),
        _ => (&["text", "label"], |i| ["law", "debt", "road"][i % 3].to_owned()),
    };
    let cell = |i: usize, key: &str| match key {
        "text" => sentence(i),
        "pair" => sentence(i + 1),
        _ => second(i),
    };
    let row = |i: usize| match jsonl {
        true => {
            let cells = keys.iter().map(|key| ((*key).to_owned(), Value::from(cell(i, key))));
            Value::Object(cells.collect()).to_string() + "\n"
        }
        false => keys.iter().map(|key| cell(i, key)).collect::<Vec<_>>().join("\t") + "\n",
    };
    let header = if jsonl { String::new() } else { keys.join("\t") + "\n" };
    header + &(0..ROWS).map(row).collect::<String>()
}

/// A file with something odd in it, or as it is.
fn odd(random: &mut Random, text: &str) -> Vec<u8> {
    match random.below(6) {
        0 => text.into(),
        1 => text
            .lines()
            .take(1 + random.below(3))
            .map(|line| line.to_owned() + "\n")
            .collect::<String>()
            .into(),
        // Every row again.
        2 => text.repeat(3).into(),
        _ => mutate::text(random, text),
    }
}

/// Queries with their candidates, one of them damaged.
fn candidates(random: &mut Random) -> Vec<u8> {
    let line = |i: usize| json!({"query": sentence(i), "candidates": [sentence(i + 1), {"text": sentence(i + 2), "id": i}, ""]});
    let mut lines: Vec<String> = (0..4).map(|i| line(i).to_string()).collect();
    if random.one_in(2) {
        let at = random.below(lines.len());
        lines[at] = mutate::json(random, &line(at));
    }
    (lines.join("\n") + "\n").into()
}

fn value(random: &mut Random) -> String {
    match random.below(4) {
        0 => random.pick(&ODD).replace('\0', "\u{1}"),
        1 => (*random.pick(&["cosine", "dot", "euclidean", "pca", "tsne", "NaN", "inf"])).to_owned(),
        // What is large here is work, and no attack.
        _ => match mutate::extreme(random) {
            number if number.len() > 5 && !number.contains('e') => "99999999999999999999".to_owned(),
            number => number.to_owned(),
        },
    }
}

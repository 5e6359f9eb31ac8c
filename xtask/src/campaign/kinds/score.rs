//! Translations, references and sources of every kind that are scored.

use std::ffi::OsString;

use anyhow::Result;
use serde_json::{Deserializer, Value};

use super::has_null_number;
use crate::campaign::case::Case;
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::Attempt;
use crate::campaign::random::Random;
use crate::campaign::world::{pairs, sentence};

/// Options of each metric that take a value.
const VALUES: [(&str, &[&str]); 3] = [
    ("bleu", &["--tokenize", "--smooth", "--smooth-value"]),
    ("chrf", &["--char-order", "--word-order", "--beta"]),
    ("ter", &[]),
];

/// Options of each metric that take none.
const SWITCHES: [(&str, &[&str]); 3] = [
    ("bleu", &["--lowercase", "--effective-order"]),
    ("chrf", &["--lowercase", "--whitespace", "--epsilon-smoothing"]),
    ("ter", &["--normalized", "--no-punctuation", "--asian-support", "--case-sensitive"]),
];

/// Names that options take.
const NAMES: [&str; 11] =
    ["13a", "intl", "zh", "char", "none", "exp", "floor", "add-k", "ja-mecab", "", "\u{202e}"];

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let side = |at: usize| pairs(12).iter().map(|row| row[at].clone() + "\n").collect::<String>();
    let files = ["ref", "hyp", "other-ref", "other-hyp", "source"];
    for (name, text) in files.iter().zip([side(1), side(1), side(0), side(0), side(0)]) {
        case.write(name, text)?;
    }
    // One file is odd, now and then two.
    for _ in 0..1 + case.random.below(2) * case.random.below(2) {
        let all = if case.random.one_in(2) { &files[..2] } else { &files[..] };
        let name = *case.random.pick(all);
        let text = String::from_utf8_lossy(&case.read(name)?).into_owned();
        let odd = odd(&mut case.random, &text);
        case.write(name, odd)?;
    }
    let metric = case.random.below(3);
    let mut attempt = Attempt::new(["score", VALUES[metric].0, "--reference", "ref"]);
    if case.random.one_in(4) {
        attempt = attempt.arg("other-ref");
    }
    attempt = match case.random.one_in(4) {
        true => attempt.input(case.read("hyp")?),
        false => attempt.arg("--input").arg("hyp"),
    };
    for _ in 0..case.random.below(3) {
        attempt = option(&mut case.random, attempt, metric);
    }
    let mode = case.random.below(6);
    let more: &[&str] = match mode {
        0 => &["--confidence", "--samples", "20"],
        1 => &["--paired", "other-hyp", "--samples", "20"],
        2 => &["--paired", "other-hyp", "--samples", "20", "--test", "randomization"],
        3 => &["--sentences"],
        _ => &[],
    };
    attempt.args.extend(more.iter().map(OsString::from));
    if mode != 3 && case.random.one_in(3) {
        attempt.args.extend(["--by-length", "source", "--plot", "lengths.svg"].map(OsString::from));
    }
    let is_json = case.random.one_in(2);
    if is_json {
        attempt = attempt.arg("--json");
    }
    let ran = case.run(attempt.seconds(60))?;
    if ran.succeeded() && is_json {
        let output = ran.output();
        let mut values = Deserializer::from_str(&output).into_iter::<Value>();
        let is_finite = values.all(|value| value.is_ok_and(|value| !has_null_number(&value)));
        case.expect(is_finite, "exit status 0 with scores that are no numbers");
    }
    Ok(())
}

/// Something else than `text`: odd lines, many or few of them, long ones, damaged ones.
fn odd(random: &mut Random, text: &str) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => b"\n".repeat(1 + random.below(30)),
        2 => text.lines().map(|_| random.pick(&ODD).replace('\n', " ") + "\n").collect::<String>().into(),
        3 => {
            let unit = sentence(random.below(40)) + " ";
            let long = unit.repeat((1 << (6 + random.below(11))) / unit.len() + 1);
            (text.lines().skip(1).map(|line| line.to_owned() + "\n").collect::<String>() + &long).into()
        }
        4 => format!("{}{text}", random.pick(&ODD)).into(),
        _ => mutate::text(random, text),
    }
}

/// One more option of the metric, or of all.
fn option(random: &mut Random, attempt: Attempt, metric: usize) -> Attempt {
    let (values, switches) = (VALUES[metric].1, SWITCHES[metric].1);
    match random.below(3) {
        0 => attempt.arg(*random.pick(switches)),
        1 if !values.is_empty() => {
            let value = if random.one_in(2) { *random.pick(&NAMES) } else { mutate::extreme(random) };
            attempt.arg(*random.pick(values)).arg(value)
        }
        _ => {
            let name = *random.pick(&["--decimals", "--seed", "--max-line-bytes", "--lengths"]);
            attempt.arg(name).arg(mutate::extreme(random))
        }
    }
}

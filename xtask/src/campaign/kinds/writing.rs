//! Models that write, translators and language models: odd options, extreme lines, damaged folders.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect_finite;
use crate::campaign::case::{self, Case};
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::{Attempt, Ran};
use crate::campaign::random::Random;
use crate::campaign::world::{corpus, sentence};

/// Numbers of tokens and of texts: more of them are work, and no attack.
const COUNTS: [&str; 9] = ["0", "1", "2", "7", "255", "-1", "0.5", "x", "99999999999999999999"];

/// Lines of input at most, for the same reason.
const LINES: usize = 100;

/// `cloze translate`.
pub fn translate(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&["translator", "translator", "recurrent-translator"]);
    case.bring(&format!("models/{model}"), "model")?;
    damage(case)?;
    let mut attempt = Attempt::new(["translate", "--model", "model"]);
    let (mut is_json, mut is_n_best) = (false, false);
    for _ in 0..case.random.below(4) {
        let random = &mut case.random;
        let (name, value) = match random.below(14) {
            0 => ("--beam", Some(value(random))),
            1 => ("--length-penalty", Some(value(random))),
            2 => ("--coverage-penalty", Some(value(random))),
            3 => ("--groups", Some(value(random))),
            4 => ("--diversity", Some(value(random))),
            5 => ("--n-best", Some(value(random))),
            6 => ("--batch", Some(value(random))),
            7 => ("--max-new", Some((*random.pick(&COUNTS)).to_owned())),
            8 => ("--prefix", Some(random.pick(&ODD).replace('\0', "\u{1}"))),
            9 => ("--penalty", Some((*random.pick(&["power", "gnmt", "", "x"])).to_owned())),
            10 => ("--early-stopping", Some((*random.pick(&["true", "false", "never", "1"])).to_owned())),
            11 => ("--alignment", None),
            12 => ("--replace-unknown", None),
            _ => ("--json", None),
        };
        (is_json, is_n_best) = (is_json || name == "--json", is_n_best || name == "--n-best");
        attempt = with(attempt, name, value);
    }
    let lines = lines(&mut case.random);
    let n_lines = lines.split_inclusive(|byte| *byte == b'\n').count();
    let ran = case.run(attempt.input(lines).seconds(60))?;
    expect_numbers(case, &ran, is_json);
    if ran.succeeded() && !is_n_best {
        let printed = ran.out.iter().filter(|byte| **byte == b'\n').count();
        case.expect(printed == n_lines, format!("{printed} translations of {n_lines} lines"));
    }
    Ok(())
}

/// `cloze generate`.
pub fn generate(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/left-to-right", "model")?;
    damage(case)?;
    let mut attempt = Attempt::new(["generate", "--model", "model"]);
    let mut is_json = false;
    for _ in 0..case.random.below(4) {
        let random = &mut case.random;
        let (name, value) = match random.below(14) {
            0 => ("--max-new", Some((*random.pick(&COUNTS)).to_owned())),
            1 => ("--min-new", Some((*random.pick(&COUNTS)).to_owned())),
            2 => ("--n-best", Some((*random.pick(&COUNTS)).to_owned())),
            3 => ("--temperature", Some(value(random))),
            4 => ("--top-k", Some(value(random))),
            5 => ("--top-p", Some(value(random))),
            6 => ("--min-p", Some(value(random))),
            7 => ("--repetition-penalty", Some(value(random))),
            8 => ("--no-repeat-ngram", Some(value(random))),
            9 => ("--beam", Some((*random.pick(&COUNTS)).to_owned())),
            10 => ("--length-penalty", Some(value(random))),
            11 => ("--seed", Some(value(random))),
            12 => ("--batch", Some(value(random))),
            _ => ("--json", None),
        };
        is_json |= name == "--json";
        attempt = with(attempt, name, value);
    }
    let lines = lines(&mut case.random);
    attempt = match case.random.one_in(4) {
        true => {
            let text = String::from_utf8_lossy(&lines[..lines.len().min(30_000)]).replace('\0', "\u{1}");
            attempt.arg("--").arg(text)
        }
        false => attempt.input(lines),
    };
    let ran = case.run(attempt.seconds(60))?;
    expect_numbers(case, &ran, is_json);
    Ok(())
}

fn with(attempt: Attempt, name: &str, value: Option<String>) -> Attempt {
    match value {
        // In one word, so that a value may begin with a hyphen.
        Some(value) => attempt.arg(format!("{name}={value}")),
        None => attempt.arg(name),
    }
}

fn value(random: &mut Random) -> String {
    match random.below(6) {
        0 => random.pick(&ODD).replace('\0', "\u{1}"),
        1 => (*random.pick(&["NaN", "inf", "-inf", "1e39", "1e-46"])).to_owned(),
        _ => mutate::extreme(random).to_owned(),
    }
}

/// A few lines, short, long and odd.
fn lines(random: &mut Random) -> Vec<u8> {
    let text: Vec<u8> = match random.below(6) {
        0 => random.pick(&ODD).to_string().into(),
        1 => (0..20).map(|_| random.pick(&ODD).replace('\n', " ") + "\n").collect::<String>().into(),
        2 => {
            let units =
                [sentence(3) + " ", "x".into(), "é".into(), "\u{301}".into(), " ".into(), "😀".into()];
            let unit = random.pick(&units);
            let long = unit.repeat((1 << random.below(21)) / unit.len() + 1);
            format!("{}\n{long}\nlast", sentence(1)).into()
        }
        3 => b"\n".repeat(1 + random.below(LINES)),
        _ => mutate::text(random, &corpus(1)),
    };
    text.split_inclusive(|byte| *byte == b'\n').take(LINES).flatten().copied().collect()
}

/// Damages one of the model's files in two of three cases.
fn damage(case: &mut Case<'_>) -> Result<()> {
    if case.random.one_in(3) {
        return Ok(());
    }
    let mut names: Vec<String> = case::files(&case.path("model"))
        .into_iter()
        .filter(|path| case.path("model").join(path).is_file())
        .map(|path| format!("model/{}", path.display()))
        .collect();
    let generation = "model/generation_config.json".to_owned();
    if !names.contains(&generation) {
        let ids = json!({"eos_token_id": [0, 1], "bad_words_ids": [[2], [3, 4]], "temperature": 0.5});
        case.write(&generation, ids.to_string())?;
        names.push(generation);
    }
    let name = case.random.pick(&names).clone();
    let seed = case.read(&name)?;
    let damaged = match (serde_json::from_slice::<Value>(&seed), case.random.below(8)) {
        (_, 0) => return case::remove(&case.path(&name)),
        (Ok(_), 1) => mutate::text(&mut case.random, &String::from_utf8_lossy(&seed)),
        (Ok(value), _) => mutate::json(&mut case.random, &value).into_bytes(),
        (Err(_), _) => mutate::bytes(&mut case.random, &seed),
    };
    case.write(&name, damaged)
}

/// What is printed as JSON has finite numbers.
fn expect_numbers(case: &mut Case<'_>, ran: &Ran, is_json: bool) {
    if is_json {
        expect_finite(case, ran);
    }
}

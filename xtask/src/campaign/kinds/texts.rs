//! Extreme texts through every command that reads lines, under a limit of memory.

use anyhow::Result;
use serde_json::Value;

use super::{MODELS, question};
use crate::campaign::case::Case;
use crate::campaign::mutate::ODD;
use crate::campaign::program::{Attempt, Limits};
use crate::campaign::random::Random;
use crate::campaign::world::sentence;

/// What a command may take above what it takes for one short line, in MB.
const ABOVE: u64 = 200;

/// A text, what it is called, and whether it is one line.
fn text(random: &mut Random, large: bool) -> (String, Vec<u8>) {
    let size = if large { 200 << 20 } else { [1 << 10, 64 << 10, 1 << 20, 16 << 20][random.below(4)] };
    let unit: String = match random.below(12) {
        0 | 1 => sentence(random.below(40)) + " ",
        2 => "x".into(),
        3 => random.pick(&ODD).to_string(),
        4 => "\n".into(),
        5 => "\r\n".into(),
        6 => "\r".into(),
        7 => sentence(random.below(40)) + "\n",
        8 => "[MASK] ".into(),
        9 => "\u{301}".into(),
        10 => " ".into(),
        _ => "\"a\" \\ {} ".into(),
    };
    let unit = if unit.is_empty() { "a".to_owned() } else { unit };
    // Millions of lines, and not so many that a command is at work for longer than a case may take.
    let size = if unit.trim_matches(['\r', '\n']).is_empty() { size.min(4 << 20) } else { size };
    let mut bytes = unit.repeat(size / unit.len() + 1).into_bytes();
    if random.one_in(6) {
        let first = *random.pick(&[b"\xef\xbb\xbf".as_slice(), b"\xff\xfe", b"\0", b"\xc3"]);
        bytes.splice(0..0, first.iter().copied());
    }
    if random.one_in(3) {
        bytes.push(b'\n');
    }
    (format!("{unit:?} × {}", size / unit.len() + 1), bytes)
}

/// A call and the line that it takes as a short one.
fn call(random: &mut Random, bytes: Vec<u8>) -> (Attempt, String) {
    let quoted = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes)).to_string();
    match random.below(8) {
        0 | 1 => {
            let mut attempt = Attempt::new(["embed", "--model", "mlm"]);
            if random.one_in(4) {
                attempt = attempt.arg("--format").arg("npy");
            }
            (attempt.input(bytes), "the law\n".into())
        }
        2 => {
            let mut attempt = Attempt::new(["fill-mask", "--model", "mlm"]);
            if random.one_in(2) {
                attempt = attempt.arg("--json");
            }
            (attempt.input(bytes), "the [MASK]\n".into())
        }
        3 | 4 => {
            let task = *random.pick(&MODELS[1..]);
            let attempt = Attempt::new(["predict", "--model", task]);
            let input = match (task, random.below(4)) {
                (_, 0) => bytes,
                ("answers", _) => {
                    format!("{{\"question\": \"What?\", \"context\": {}}}\n", quoted(&bytes)).into_bytes()
                }
                ("choices", _) => {
                    format!("{{\"text\": {}, \"choices\": [\"a\", \"b\"]}}\n", quoted(&bytes)).into_bytes()
                }
                _ => (quoted(&bytes) + "\n").into_bytes(),
            };
            (attempt.input(input), question(task, "the law"))
        }
        5 | 6 => {
            let tokenizer = *random.pick(&["wordpiece", "bpe", "byte-bpe"]);
            let format = *random.pick(&["ids", "tokens", "json"]);
            let attempt = Attempt::new(["tokenizer", "encode", "--tokenizer", tokenizer, "--format", format]);
            (attempt.input(bytes), "the law\n".into())
        }
        _ => {
            let ids: Vec<u8> = match random.one_in(2) {
                true => bytes,
                false => b"7 8 9, 10 ".iter().copied().cycle().take(bytes.len()).collect(),
            };
            (Attempt::new(["tokenizer", "decode", "--tokenizer", "wordpiece"]).input(ids), "7 8\n".into())
        }
    }
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    for model in MODELS {
        case.bring(&format!("models/{model}"), model)?;
    }
    for tokenizer in ["wordpiece", "bpe", "byte-bpe"] {
        case.bring(&format!("seeds/tokenizers/{tokenizer}"), tokenizer)?;
    }
    // Text as a corpus, and as an argument, every now and then.
    let large = case.index % 50 == 49;
    let (what, bytes) = text(&mut case.random, large);
    match case.random.below(12) {
        0 => {
            case.write("corpus.txt", &bytes[..bytes.len().min(4 << 20)])?;
            let model = *case.random.pick(&["wordpiece", "bpe", "byte-bpe"]);
            case.run(
                Attempt::new([
                    "tokenizer",
                    "train",
                    "--model",
                    model,
                    "--vocab-size",
                    "300",
                    "--out",
                    "t",
                    "corpus.txt",
                ])
                .seconds(60),
            )?;
            return Ok(());
        }
        1 => {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(100_000)]).replace('\0', "");
            let attempt = match case.random.below(2) {
                0 => Attempt::new(["tokenizer", "inspect", "--tokenizer", "wordpiece", "--", &text]),
                _ => Attempt::new(["fill-mask", "--model", "mlm", "--", &text]),
            };
            case.run(attempt.seconds(30))?;
            return Ok(());
        }
        _ => {}
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').count();
    let (attempt, short) = call(&mut case.random, bytes);
    let base = case.run(Attempt { input: Some(short.into_bytes()), ..attempt.clone() })?;
    // Twice that, so that what is over it comes to its end and is measured.
    let limits =
        Limits { time: std::time::Duration::from_secs(120), memory: base.peak + 3 * ABOVE + 100, file: None };
    let is_encode = attempt.args[1] == "encode";
    let ran = case.run(Attempt { limits, ..attempt })?;
    let above = ran.peak.saturating_sub(base.peak);
    case.expect(above <= ABOVE, format!("{above} MB above what a short line takes, for {what}"));
    if is_encode && ran.succeeded() && ran.out.len() < 60 << 20 {
        let printed = ran.out.iter().filter(|byte| **byte == b'\n').count();
        case.expect(printed == lines, format!("{printed} lines of output for {lines} of input, {what}"));
    }
    Ok(())
}

//! Word vectors and tokenizers compared: odd vectors, tables, word lists, morphemes and options.

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::Attempt;
use crate::campaign::random::Random;
use crate::campaign::world::sentence;

const WORDS: usize = 24;

/// Different words.
fn word(i: usize) -> String {
    format!("w{i}")
}

/// A text with something odd in it, or as it is.
fn odd(random: &mut Random, text: &str) -> Vec<u8> {
    match random.below(5) {
        0 | 1 => text.into(),
        2 => text.lines().take(random.below(3)).map(|line| line.to_owned() + "\n").collect::<String>().into(),
        _ => mutate::text(random, text),
    }
}

/// Word vectors in odd files, asked odd questions.
pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let numbers =
        |i: usize| (0..4).map(|j| format!(" {}", ((i * 7 + j * 3) as f64).sin())).collect::<String>();
    let vectors: String = (0..WORDS).map(|i| format!("{}{}\n", word(i), numbers(i))).collect();
    let vectors = odd(&mut case.random, &format!("{WORDS} 4\n{vectors}"));
    case.write("words.vec", vectors)?;
    let row =
        |i: usize, n: usize| (0..n).map(|j| word((i * (j + 2) + j) % WORDS)).collect::<Vec<_>>().join(",");
    let table = |header: &str, n: usize, last: fn(usize) -> String| {
        let rows = (0..60).map(|i| format!("{}{}\n", row(i, n), last(i))).collect::<String>();
        format!("{header}\n{rows}")
    };
    let kind = case.random.below(6);
    let (text, command): (String, &[&str]) = match kind {
        0 => (table("word1,word2,similarity", 2, |i| format!(",{}", i % 7)), &["similarity"]),
        1 => (table("word1,word2,word3,target", 4, |_| String::new()), &["analogy"]),
        2 => (table("word,category", 1, |i| format!(",{}", i % 3)), &["categories", "--runs", "2"]),
        3 => (table("word1,word2,relation", 2, |i| format!(",{}", i % 2)), &["relations", "--runs", "1"]),
        _ => (
            table("source,target", 2, |_| String::new()),
            &["translation", "--train", "rows.csv", "--test", "rows.csv"],
        ),
    };
    let rows = odd(&mut case.random, &text);
    case.write("rows.csv", rows)?;
    let mut attempt = Attempt::new(["lexicon", "eval"]);
    for arg in command {
        attempt = attempt.arg(*arg);
    }
    attempt = match command[0] {
        "translation" => {
            ["--source", "words.vec", "--target", "words.vec"].iter().fold(attempt, |all, arg| all.arg(*arg))
        }
        _ => ["--vectors", "words.vec", "rows.csv"].iter().fold(attempt, |all, arg| all.arg(*arg)),
    };
    if case.random.one_in(2) {
        attempt = attempt.arg("--json");
    }
    if case.random.one_in(3) {
        let value = case.random.pick(&ODD).replace('\0', "\u{1}");
        let option = *case.random.pick(&["--limit", "--columns", "--ignore-case", "--on-bad-row"]);
        attempt = attempt.arg(format!("{option}={value}"));
    }
    case.run(attempt.seconds(60))?;
    Ok(())
}

/// Odd lists of words and odd contexts.
pub fn build(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let words: String = sentence(1).split(' ').map(|word| format!("{word}\n")).collect();
    let words = odd(&mut case.random, &words);
    case.write("words.txt", words)?;
    let corpus: String = (0..20).map(|i| sentence(i) + "\n").collect();
    let corpus = odd(&mut case.random, &corpus);
    case.write("corpus.txt", corpus)?;
    let mut attempt =
        Attempt::new(["lexicon", "build", "--model", "model", "--words", "words.txt", "--out", "made"]);
    if case.random.one_in(2) {
        attempt = attempt.arg("--contexts=corpus.txt").arg("--per-word=3");
    }
    if case.random.one_in(3) {
        let value =
            case.random.pick(&["0-1", "-1", "0-99", "1-", "", "all", "0,0", "99999999999"]).to_string();
        attempt = attempt.arg(format!("--layers={value}"));
    }
    let made = case.run(attempt.seconds(60))?;
    if made.succeeded() {
        let of_numbers = case.path("made.npy").is_file() && case.path("made.words").is_file();
        case.expect(of_numbers, "exit status 0 without the files of vectors");
    }
    Ok(())
}

/// Tokenizers compared on odd texts, translations and morphemes.
pub fn tokenizers(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let texts: String = (0..30).map(|i| sentence(i) + "\n").collect();
    let morphemes: String = sentence(2).split(' ').map(|word| format!("{word}\t{word} @@s\t100\n")).collect();
    for (name, text) in [("a.txt", &texts), ("b.txt", &texts), ("morphemes.tsv", &morphemes)] {
        let text = odd(&mut case.random, text);
        case.write(name, text)?;
    }
    let mut attempt = Attempt::new(["tokenizer", "evaluate", "--tokenizer", "model", "--tokenizer", "model"]);
    attempt = match case.random.below(3) {
        0 => attempt.arg("a.txt").arg("b.txt"),
        1 => attempt.arg("--parallel=a=a.txt").arg("--parallel=b=b.txt"),
        _ => attempt.arg("--morphemes=morphemes.tsv"),
    };
    if case.random.one_in(2) {
        attempt = attempt.arg("--json");
    }
    if case.random.one_in(3) {
        let value = case.random.pick(&["0", "1", "1e-300", "1e300", "NaN", "-1", "2.5"]).to_string();
        attempt = attempt.arg(format!("--alpha={value}"));
    }
    case.run(attempt.seconds(60))?;
    Ok(())
}

//! Regular expressions that backtrack, on texts that make them do it: every match is there, or an error says so.

use anyhow::Result;
use serde_json::{Value, json};

use crate::campaign::case::Case;
use crate::campaign::program::Attempt;

/// What o200k splits with (tiktoken's `o200k_base`).
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// A tokenizer that knows the word `c`, and whatever else is unknown; a `Split` isolates what matches.
fn tokenizer(pattern: &str, place: usize) -> Value {
    let vocab = json!({"<unk>": 0, "c": 1, " c": 2});
    let mut tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}});
    match place {
        0 => {
            tokenizer["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
        }
        // What matches becomes ` c `, which white space then parts.
        _ => {
            tokenizer["normalizer"] =
                json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": " c "});
            tokenizer["pre_tokenizer"] = json!({"type": "WhitespaceSplit"});
        }
    }
    tokenizer
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let size = [1, 40, 2_000, 100_000, 1_100_000][case.random.below(5)];
    let fill = case.random.pick(&["a", " ", "A", "1", "é", "\u{301}", ".", "\t", "aA", "😀"]).repeat(size);
    match case.random.below(3) {
        // After what the engine may give up on, the same words as without it.
        0 => {
            let pattern = *case.random.pick(&[O200K, CL100K, GPT2]);
            case.write("t.json", tokenizer(pattern, 0).to_string())?;
            let tail = "x. c c c";
            let line = format!("x. {fill}{tail}\n");
            let attempt = Attempt::new(["tokenizer", "encode", "--tokenizer", "t.json"]);
            let ran = case.run(attempt.input(line).seconds(30))?;
            if ran.succeeded() {
                let output = ran.output();
                let end = " 2 2 2\n";
                case.expect(
                    output.ends_with(end),
                    format!("matches are missing: ends in {:?}", last(&output)),
                );
            }
        }
        // Every `c` is matched by the last branch, whatever the others do.
        which => {
            let pattern = *case.random.pick(&[
                r"(?:(a+)+\1b)|c",
                r"(?>a+)+$|c",
                r"(a|a)*b|c",
                r"(a*)*b|c",
                r"(?=(a+))\1b|c",
                r"a{1,1000}{1,1000}b|c",
                r"(\w+\s?)*$x|c",
                r"(?:a?){40}a{40}b|c",
                r"(x+x+)+y|c",
                r"c",
            ]);
            case.write("t.json", tokenizer(pattern, which - 1).to_string())?;
            let line = format!("{fill}ccc{fill}c\n");
            let attempt = Attempt::new(["tokenizer", "encode", "--tokenizer", "t.json"]);
            let ran = case.run(attempt.input(line).seconds(30))?;
            if ran.succeeded() {
                let found = ran.output().split_whitespace().filter(|id| *id == "1").count();
                // Greedy branches may take a `c` themselves only where they end in one.
                case.expect(
                    found == 4 || pattern.contains("\\w"),
                    format!("{found} of 4 matches of {pattern:?}"),
                );
            }
        }
    }
    Ok(())
}

fn last(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words[words.len().saturating_sub(5)..].join(" ")
}

//! `cloze tokenizer inspect`.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result};
use cloze_tokenizer::{Encoding, Statistics, Tokenizer, WordMark};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanCount;
use serde_json::Value;

use crate::output::Output;

/// Show a tokenizer's components and how it splits texts.
///
/// Example: cloze tokenizer inspect --tokenizer my-tokenizer 'The old man sat by the sea.'
///
/// Prints the vocabulary's size, special tokens, token lengths and longest tokens; the stages with their
/// settings; and for each TEXT the pieces, in colour on a terminal (unless NO_COLOR is set), with their ids and
/// byte ranges.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze tokenizer inspect --tokenizer tokenizer.json 'Hello, world' 'naïve 中文'")]
pub struct Args {
    #[arg(long, value_name = "FILE_OR_DIR", help = super::HELP)]
    tokenizer: PathBuf,
    /// Texts to split.
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let tokenizer = super::load(&args.tokenizer)?;
    let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut output = Output::new();
    output.line(vocabulary(&tokenizer.statistics()))?;
    output.line(stages(&tokenizer)?)?;
    let ignored = &tokenizer.config().ignored;
    if !ignored.is_empty() {
        output.line(format_args!("\nUnsupported in tokenizer_config.json: {}", ignored.join(", ")))?;
    }
    for text in &args.texts {
        output.line("")?;
        output.line(split(&tokenizer, text, colour)?)?;
    }
    output.flush()
}

/// A table without rules; `right` are the right-aligned columns.
fn table(rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_rows(rows);
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn number(n: usize) -> String {
    HumanCount(n as u64).to_string()
}

/// Text that is safe to print: control characters are escaped as in a string literal.
fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Maximum number of list entries shown.
const SHOWN: usize = 20;

fn vocabulary(statistics: &Statistics) -> String {
    let list = |tokens: &[(u32, String)]| {
        let shown = tokens.iter().take(SHOWN).map(|(id, token)| format!("{} {id}", visible(token)));
        let more = tokens.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| format!("and {} more", number(more)));
        shown.chain(more).collect::<Vec<_>>().join("  ")
    };
    let mut rows = vec![
        vec!["tokens".to_owned(), number(statistics.size)],
        vec!["special".to_owned(), list(&statistics.special)],
        vec!["added".to_owned(), list(&statistics.added)],
    ];
    let share = 100.0 * statistics.continuing as f64 / statistics.pieces().max(1) as f64;
    let continuing = |what: String| format!("{} ({share:.1} %), {what}", number(statistics.continuing));
    let continuing = match &statistics.mark {
        Some(WordMark::Continuing(mark)) => continuing(format!("with {mark}")),
        Some(WordMark::Beginning(mark) | WordMark::Ending(mark)) => continuing(format!("without {mark}")),
        _ => String::new(),
    };
    rows.push(vec!["inside words".to_owned(), continuing]);
    rows.push(vec!["longest".to_owned(), list(&statistics.longest)]);
    rows.retain(|row| !row[1].is_empty());
    let mut text = format!("Vocabulary\n{}\n\nLengths in characters", table(rows, &[]));
    if statistics.mark.is_some() {
        text += ", without marks of words";
    }
    format!("{text}, {:.2} on average\n{}\n", statistics.mean_length(), lengths(&statistics.lengths))
}

/// Longer pieces share the last row.
const LONG: usize = 20;

/// A histogram of token lengths.
fn lengths(lengths: &[usize]) -> String {
    let mut rows: Vec<(String, usize)> =
        lengths.iter().enumerate().take(LONG).map(|(length, count)| (length.to_string(), *count)).collect();
    if lengths.len() > LONG {
        rows.push((format!("{LONG}+"), lengths[LONG..].iter().sum()));
    }
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let rows = rows.into_iter().filter(|(length, count)| *count > 0 || length != "0");
    let rows =
        rows.map(|(length, count)| vec![length, number(count), "█".repeat((40 * count).div_ceil(most))]);
    table(rows.collect(), &[0, 1])
}

/// The stages in order, as named in `tokenizer.json`.
fn stages(tokenizer: &Tokenizer) -> Result<String> {
    let file: Value = serde_json::from_str(&tokenizer.to_json()).context("reading the stages")?;
    let stages = [
        ("normalizer", "normalizer"),
        ("pre-tokenizer", "pre_tokenizer"),
        ("model", "model"),
        ("post-processor", "post_processor"),
        ("truncation", "truncation"),
        ("padding", "padding"),
        ("decoder", "decoder"),
    ];
    let rows = stages.into_iter().map(|(name, key)| vec![name.to_owned(), stage(&file[key])]);
    Ok(format!("Stages\n{}", table(rows.collect(), &[])))
}

/// Longer settings are not shown.
const LONG_TEXT: usize = 200;

/// A stage on one line: type and settings.
fn stage(value: &Value) -> String {
    let Value::Object(map) = value else {
        return "none".to_owned();
    };
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    let parts =
        ["normalizers", "pretokenizers", "processors", "decoders"].iter().find_map(|key| map.get(*key));
    if let Some(Value::Array(parts)) = parts {
        return match parts.is_empty() {
            true => "none".to_owned(),
            false => parts.iter().map(stage).collect::<Vec<_>>().join(" → "),
        };
    }
    let template = kind == "TemplateProcessing";
    let setting = |(key, value): (&String, &Value)| match value {
        _ if key == "type" => None,
        Value::Null => None,
        Value::Array(pieces) if template => Some(format!("{key}={:?}", parts_of(pieces))),
        _ if template => None,
        Value::Array(list) if list.len() > 8 => Some(format!("{key}={}", number(list.len()))),
        Value::Object(map) if map.len() > 8 => Some(format!("{key}={}", number(map.len()))),
        // Such as a map of characters.
        Value::String(text) if text.len() > LONG_TEXT => {
            Some(format!("{key}={} characters", number(text.chars().count())))
        }
        Value::String(text) => Some(format!("{key}={text:?}")),
        other => Some(format!("{key}={other}")),
    };
    let settings: Vec<_> = map.iter().filter_map(setting).collect();
    [kind.to_owned(), settings.join(" ")].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A template in the syntax of `tokenizers`: `[CLS]:0 $A:0 [SEP]:0`.
fn parts_of(template: &[Value]) -> String {
    let part = |piece: &Value| {
        let (kind, piece) = piece.as_object()?.iter().next()?;
        let dollar = if kind == "Sequence" { "$" } else { "" };
        Some(format!("{dollar}{}:{}", piece["id"].as_str()?, piece["type_id"]))
    };
    template.iter().filter_map(part).collect::<Vec<_>>().join(" ")
}

/// The text in pieces, then a line for each with id, token, bytes and text.
fn split(tokenizer: &Tokenizer, text: &str, colour: bool) -> Result<String> {
    let encoding = tokenizer.encode(text, true)?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut padding = 0;
    for (i, id) in encoding.ids.iter().enumerate() {
        if encoding.attention_mask[i] == 0 {
            padding += 1;
            continue;
        }
        let (start, end) = encoding.offsets[i];
        let token = tokenizer.id_to_token(*id).unwrap_or(&encoding.tokens[i]);
        let mut row = vec![id.to_string(), visible(token)];
        if encoding.sequence_ids[i].is_some() {
            row.extend([format!("{start}..{end}"), visible(text.get(start..end).unwrap_or_default())]);
        }
        rows.push(row);
    }
    let normalized = tokenizer.normalizer().map(|n| n.normalize(text)).transpose()?;
    let normalized = normalized.filter(|normalized| normalized != text);
    let normalized = normalized.map_or(String::new(), |n| format!("\nnormalised: {}", visible(&n)));
    let mut count = format!("{} tokens of {} bytes", encoding.len() - padding, text.len());
    if padding > 0 {
        count += &format!(", and {padding} of padding");
    }
    if !encoding.overflowing.is_empty() {
        count += &format!(", and {} overflowing parts", encoding.overflowing.len());
    }
    Ok(format!("{}{normalized}\n{count}\n{}", pieces(&encoding, text, colour), table(rows, &[0])))
}

/// Alternating foreground colours: cyan, yellow, green, magenta.
const COLOURS: [u8; 4] = [36, 33, 32, 35];

/// The text with its pieces separated by colour, or by a bar between those of the same word.
fn pieces(encoding: &Encoding, text: &str, colour: bool) -> String {
    let mut out = String::new();
    let mut done = 0;
    let mut count = 0;
    for i in 0..encoding.len() {
        let (start, end) = encoding.offsets[i];
        // Special tokens stand for no text, and several pieces may stand for one character.
        if encoding.sequence_ids[i].is_none() || end <= done {
            continue;
        }
        let start = start.max(done);
        let (Some(between), Some(piece)) = (text.get(done..start), text.get(start..end)) else {
            continue;
        };
        if colour {
            let code = COLOURS[count % COLOURS.len()];
            out += &format!("{}\x1b[{code}m{}\x1b[0m", visible(between), visible(piece));
        } else {
            let bar = if count > 0 && between.is_empty() { "|" } else { "" };
            out += &format!("{}{bar}{}", visible(between), visible(piece));
        }
        done = end;
        count += 1;
    }
    out + &visible(text.get(done..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use cloze_tokenizer::{Truncation, Vocab};
    use serde_json::json;

    use super::*;

    fn bert() -> Tokenizer {
        let vocab = Vocab::from_tokens(["[UNK]", "[CLS]", "[SEP]", "boat", "##s", "sink", "."]).unwrap();
        Tokenizer::bert(vocab, true).unwrap()
    }

    #[test]
    fn pieces_are_told_apart() {
        let encoding = bert().encode("Boats sink.", true).unwrap();
        assert_eq!(pieces(&encoding, "Boats sink.", false), "Boat|s sink|.");
        let coloured = pieces(&encoding, "Boats sink.", true);
        assert_eq!(coloured, "\x1b[36mBoat\x1b[0m\x1b[33ms\x1b[0m \x1b[32msink\x1b[0m\x1b[35m.\x1b[0m");
    }

    #[test]
    fn a_split_shows_ids_offsets_and_the_normalised_text() {
        assert_eq!(
            split(&bert(), "Boats\t.", false).unwrap(),
            "Boat|s\\t.\nnormalised: boats .\n5 tokens of 7 bytes\n 1  [CLS]\n 3  boat   0..4  Boat\n \
             4  ##s    4..5  s\n 6  .      6..7  .\n 2  [SEP]"
        );
    }

    #[test]
    fn padding_and_overflow_are_told() {
        let mut tokenizer = bert();
        tokenizer.set_truncation(Some(Truncation::to(4))).unwrap();
        let shown = split(&tokenizer, "boats sink", false).unwrap();
        assert!(shown.contains("\n4 tokens of 10 bytes, and 1 overflowing parts\n"), "{shown}");
        let file = tokenizer.to_json().replace(
            "\"padding\": null",
            r#""padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0,
                "pad_token": "[UNK]"}"#,
        );
        let shown = split(&Tokenizer::from_json(&file).unwrap(), "boat", false).unwrap();
        assert!(shown.contains("\n3 tokens of 4 bytes, and 6 of padding\n"), "{shown}");
    }

    #[test]
    fn stages_are_one_line_each() {
        let sequence = json!({"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "BertNormalizer", "lowercase": true, "strip_accents": null},
        ]});
        assert_eq!(stage(&sequence), "NFC → BertNormalizer lowercase=true");
        let template = json!({"type": "TemplateProcessing", "special_tokens": {}, "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ]});
        assert_eq!(stage(&template), "TemplateProcessing single=\"[CLS]:0 $A:0\"");
        let model = json!({"type": "BPE", "vocab": vec![0; 1200], "unk_token": "<unk>"});
        assert_eq!(stage(&model), "BPE vocab=1,200 unk_token=\"<unk>\"");
        let rules = json!({"type": "Precompiled", "precompiled_charsmap": "A".repeat(321_000)});
        assert_eq!(stage(&rules), "Precompiled precompiled_charsmap=321,000 characters");
        assert_eq!(stage(&Value::Null), "none");
    }

    #[test]
    fn lengths_have_bars() {
        assert_eq!(
            lengths(&[0, 2, 1]),
            " 1  2  ████████████████████████████████████████\n 2  1  ████████████████████"
        );
        let long = vec![1; 30];
        assert!(lengths(&long).lines().last().unwrap().starts_with(" 20+  10"), "{}", lengths(&long));
    }
}

//! `tokenizer.json` of every kind of model, and the older files.

use anyhow::Result;
use serde_json::{Value, json};

use super::{MODELS, ask, expect_finite};
use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::random::Random;

/// Tokenizers beside those that the world trained: stages that no trained one has.
fn written(which: usize) -> Value {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let added = [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>"), special(3, "<mask>")];
    let pieces = [
        "<unk>", "<s>", "</s>", "<mask>", "▁", "a", "b", "c", "▁a", "ab", "e", "t", "h", "the", "law", "▁law",
    ];
    let ids: Value =
        pieces.iter().enumerate().map(|(id, piece)| (piece.to_string(), Value::from(id))).collect();
    let scores: Vec<Value> = pieces.iter().map(|piece| json!([piece, -(piece.len() as f64) / 3.0])).collect();
    let (normalizer, pre_tokenizer, post_processor, decoder, model) = match which {
        0 => (
            json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, {"type": "StripAccents"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                {"type": "Strip", "strip_left": true, "strip_right": true}, {"type": "Prepend", "prepend": "▁"}]}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            json!({"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            json!({"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": false}),
        ),
        1 => (
            json!({"type": "NFC"}),
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "\\s+|\\p{P}"}, "behavior": "Isolated", "invert": false},
                {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "MergedWithNext"},
                {"type": "UnicodeScripts"}]}),
            json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": true,
                "add_prefix_space": true}),
            json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "▁"},
                "content": " "}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
            json!({"type": "WordLevel", "vocab": ids, "unk_token": "<unk>"}),
        ),
        _ => (
            Value::Null,
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
            json!({"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}),
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            json!({"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": ids, "merges": [["a", "b"], ["▁", "a"]]}),
        ),
    };
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": model})
}

/// Truncation and padding as files have them.
fn lengths(random: &mut Random, tokenizer: &mut Value) {
    let length = *random.pick(&[0u64, 1, 2, 16, 512, 1 << 31, 1_000_000_000, u64::MAX]);
    if random.one_in(2) {
        tokenizer["truncation"] = json!({"direction": "Right", "max_length": length,
            "strategy": random.pick(&["LongestFirst", "OnlyFirst", "OnlySecond"]), "stride": random.pick(&[0, 1, 16, 600])});
    }
    if random.one_in(2) {
        let strategy = if random.one_in(2) { json!("BatchLongest") } else { json!({"Fixed": length}) };
        tokenizer["padding"] = json!({"strategy": strategy, "direction": "Left", "pad_to_multiple_of":
            random.pick(&[json!(null), json!(0), json!(8), json!(1_000_000_000)]), "pad_id": random.pick(&[0, 1, 4_000_000]),
            "pad_type_id": random.pick(&[0, 3]), "pad_token": "[PAD]"});
    }
}

/// What the post-processor puts around texts, and where.
fn post_processor(random: &mut Random) -> Value {
    let ids = [0, 1, 2, 3, 170, 171, 100_000, 4_294_967_295u64];
    let type_ids = [0, 1, 2, 7, 255, 65_536, 2_147_483_648, 4_294_967_295u64];
    match random.below(3) {
        0 => {
            let kind = *random.pick(&["BertProcessing", "RobertaProcessing"]);
            let mut processor = json!({"type": kind, "sep": ["[SEP]", random.pick(&ids)], "cls": ["[CLS]", random.pick(&ids)]});
            if kind == "RobertaProcessing" {
                processor["trim_offsets"] = true.into();
                processor["add_prefix_space"] = random.one_in(2).into();
            }
            processor
        }
        _ => {
            let mut template = |sequences: &[&str]| -> Vec<Value> {
                (0..random.below(8))
                    .map(|_| {
                        let type_id = if random.one_in(2) { 0 } else { *random.pick(&type_ids) };
                        match random.one_in(2) {
                            true => json!({"SpecialToken": {"id": random.pick(&["[CLS]", "[SEP]"]), "type_id": type_id}}),
                            false => json!({"Sequence": {"id": random.pick(sequences), "type_id": type_id}}),
                        }
                    })
                    .collect()
            };
            let (single, pair) = (template(&["A"]), template(&["A", "B"]));
            let mut token = |name: &str| {
                let id = if random.one_in(2) { 2 } else { *random.pick(&ids) };
                json!({"id": name, "ids": vec![id; *random.pick(&[1, 1, 0, 2, 700])], "tokens": [name]})
            };
            let special = json!({"[CLS]": token("[CLS]"), "[SEP]": token("[SEP]")});
            json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special})
        }
    }
}

/// A damaged `tokenizer.json`, alone or in a model's folder.
pub fn json(case: &mut Case<'_>) -> Result<()> {
    let with_model = case.random.one_in(2);
    if with_model {
        let model = *case.random.pick(&MODELS);
        case.bring(&format!("models/{model}"), "model")?;
        let mut seed = case.world.json(&format!("models/{model}/tokenizer.json"))?;
        let text = match case.random.below(5) {
            0 | 1 => {
                seed["post_processor"] = post_processor(&mut case.random);
                seed.to_string()
            }
            2 => {
                lengths(&mut case.random, &mut seed);
                seed.to_string()
            }
            _ => mutate::json(&mut case.random, &seed),
        };
        case.write("model/tokenizer.json", text)?;
        let attempt = ask(case, model, "model");
        let ran = case.run(attempt)?;
        expect_finite(case, &ran);
        return Ok(());
    }
    let mut seed = match case.random.below(6) {
        which @ 0..3 => written(which),
        which => {
            let name = ["wordpiece", "bpe", "byte-bpe"][which - 3];
            case.world.json(&format!("seeds/tokenizers/{name}/tokenizer.json"))?
        }
    };
    let file = match case.random.below(8) {
        0 => mutate::text(&mut case.random, &seed.to_string()),
        1 => {
            lengths(&mut case.random, &mut seed);
            seed.to_string().into_bytes()
        }
        2 => {
            seed["post_processor"] = post_processor(&mut case.random);
            seed.to_string().into_bytes()
        }
        _ => mutate::json(&mut case.random, &seed).into_bytes(),
    };
    case.write("tokenizer.json", file)?;
    tokenize(case, "tokenizer.json")
}

/// A call of one of the tokenizer's commands.
pub fn tokenize(case: &mut Case<'_>, tokenizer: &str) -> Result<()> {
    let text = "The law, the a b ab [MASK] <mask>\n\n  two  spaces\t12 é e\u{301} 😀 中文\r\nlast";
    let call = |command: &str| Attempt::new(["tokenizer", command, "--tokenizer", tokenizer]);
    let format = case.random.pick(&["ids", "tokens", "json"]).to_string();
    let attempt = match case.random.below(4) {
        0 => call("inspect").arg("The law <s> é"),
        1 => call("decode").input("1 2 3\n\n5 6 7 8, 9\n0 0 0\n"),
        _ => call("encode").arg("--format").arg(format.as_str()).input(text),
    };
    // A file that fits is a few kilobytes long, and so is what it takes.
    let encodes = attempt.args[1] == "encode";
    let ran = case.run(attempt.megabytes(1_000).seconds(30))?;
    if encodes && ran.succeeded() {
        let lines = ran.output().lines().count();
        case.expect(lines == 4, format!("{lines} lines of output for 4 of input"));
    }
    Ok(())
}

/// `vocab.txt`, `vocab.json` with `merges.txt`, and what lies beside them.
pub fn files(case: &mut Case<'_>) -> Result<()> {
    let config = json!({"do_lower_case": true, "model_max_length": 512, "unk_token": "[UNK]", "cls_token": "[CLS]",
        "sep_token": {"content": "[SEP]", "lstrip": false, "normalized": false, "rstrip": false, "single_word": false},
        "strip_accents": null, "tokenize_chinese_chars": true, "add_prefix_space": false,
        "added_tokens_decoder": {"4": {"content": "[MASK]", "special": true, "lstrip": true}},
        "additional_special_tokens": ["<x>"], "tokenizer_class": "BertTokenizer"});
    let bpe = case.random.one_in(2);
    let mut names = vec!["tokenizer_config.json"];
    case.write("t/tokenizer_config.json", config.to_string())?;
    match bpe {
        false => {
            let vocab = case.world.read("seeds/tokenizers/wordpiece/vocab.txt")?;
            case.write("t/vocab.txt", vocab)?;
            names.extend(["vocab.txt", "vocab.txt"]);
        }
        true => {
            let trained = case.world.json("seeds/tokenizers/byte-bpe/tokenizer.json")?;
            let merges = trained["model"]["merges"].as_array().cloned().unwrap_or_default();
            let line = |merge: &Value| match merge {
                Value::String(merge) => format!("{merge}\n"),
                pair => format!("{} {}\n", pair[0].as_str().unwrap_or(""), pair[1].as_str().unwrap_or("")),
            };
            case.write("t/vocab.json", trained["model"]["vocab"].to_string())?;
            case.write("t/merges.txt", merges.iter().map(line).collect::<String>())?;
            names.extend(["vocab.json", "merges.txt"]);
        }
    }
    if case.random.one_in(2) {
        let map = json!({"cls_token": "[CLS]", "mask_token": {"content": "[MASK]"}, "additional_special_tokens": ["<y>"]});
        case.write("t/special_tokens_map.json", map.to_string())?;
        case.write("t/added_tokens.json", json!({"<new>": 500, "[MASK]": 4}).to_string())?;
        names.extend(["special_tokens_map.json", "added_tokens.json"]);
    }
    let name = format!("t/{}", case.random.pick(&names));
    let seed = String::from_utf8_lossy(&case.read(&name)?).into_owned();
    let damaged = match serde_json::from_str::<Value>(&seed) {
        Ok(value) if !case.random.one_in(4) => mutate::json(&mut case.random, &value).into_bytes(),
        _ => mutate::text(&mut case.random, &seed),
    };
    case.write(&name, damaged)?;
    tokenize(case, "t")
}

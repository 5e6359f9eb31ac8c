//! Every component, alone and with others, around one model of characters.

use super::*;

/// Settings of `normalizer`, `pre_tokenizer` and `decoder`; null where there is none.
const PIPELINES: [[&str; 3]; 37] = [
    [r#"{"type":"Strip","strip_left":true,"strip_right":false}"#, "null", r#"{"type":"Fuse"}"#],
    [r#"{"type":"Strip","strip_left":false,"strip_right":true}"#, "null", "null"],
    [r#"{"type":"Strip","strip_left":true,"strip_right":true}"#, r#"{"type":"Whitespace"}"#, "null"],
    [
        r#"{"type":"Strip","strip_left":true,"strip_right":true}"#,
        r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}"#,
        r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}"#,
    ],
    [
        "null",
        r#"{"type":"Split","pattern":{"Regex":"[aeiou]+"},"behavior":"MergedWithNext","invert":false}"#,
        "null",
    ],
    [
        r#"{"type":"Replace","pattern":{"String":"e"},"content":"ëë"}"#,
        "null",
        r#"{"type":"Replace","pattern":{"String":"ë"},"content":""}"#,
    ],
    [
        r#"{"type":"Replace","pattern":{"String":" "},"content":"▁"}"#,
        "null",
        r#"{"type":"Replace","pattern":{"Regex":"▁|a+"},"content":" "}"#,
    ],
    [
        r#"{"type":"Replace","pattern":{"Regex":"\\s+"},"content":" "}"#,
        r#"{"type":"WhitespaceSplit"}"#,
        "null",
    ],
    [r#"{"type":"Replace","pattern":{"Regex":"\\p{L}(?=\\p{M})"},"content":""}"#, "null", "null"],
    [r#"{"type":"Replace","pattern":{"String":""},"content":"-"}"#, "null", "null"],
    [r#"{"type":"Prepend","prepend":"▁"}"#, "null", r#"{"type":"Strip","content":"▁","start":1,"stop":0}"#],
    [r#"{"type":"Prepend","prepend":"ab"}"#, r#"{"type":"BertPreTokenizer"}"#, "null"],
    [r#"{"type":"ByteLevel"}"#, "null", r#"{"type":"ByteLevel"}"#],
    [r#"{"type":"Nmt"}"#, "null", "null"],
    [
        r#"{"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"Nmt"},{"type":"Prepend","prepend":"é"},{"type":"Replace","pattern":{"Regex":"[aeiou]"},"content":"xy"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":"NFC"}]}"#,
        "null",
        "null",
    ],
    ["null", r#"{"type":"Punctuation","behavior":"Removed"}"#, "null"],
    [
        "null",
        r#"{"type":"Punctuation","behavior":"MergedWithPrevious"}"#,
        r#"{"type":"Strip","content":"a","start":2,"stop":1}"#,
    ],
    ["null", r#"{"type":"Punctuation","behavior":"MergedWithNext"}"#, "null"],
    ["null", r#"{"type":"Punctuation","behavior":"Contiguous"}"#, "null"],
    ["null", r#"{"type":"Digits","individual_digits":true}"#, "null"],
    ["null", r#"{"type":"Digits","individual_digits":false}"#, "null"],
    ["null", r#"{"type":"CharDelimiterSplit","delimiter":"e"}"#, "null"],
    [
        r#"{"type":"NFC"}"#,
        r#"{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}"#,
        r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#,
    ],
    [
        "null",
        r#"{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Removed","invert":true},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}"#,
        r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#,
    ],
    [
        "null",
        r#"{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},"behavior":"Contiguous","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}"#,
        r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#,
    ],
    ["null", r#"{"type":"UnicodeScripts"}"#, "null"],
    [
        r#"{"type":"NFKC"}"#,
        r#"{"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}]}"#,
        "null",
    ],
    [
        "null",
        r#"{"type":"FixedLength","length":3}"#,
        r#"{"type":"CTC","pad_token":"a","word_delimiter_token":"e","cleanup":true}"#,
    ],
    [
        "null",
        r#"{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false}"#,
        "null",
    ],
    ["null", r#"{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Removed","invert":true}"#, "null"],
    [
        "null",
        r#"{"type":"Split","pattern":{"String":"e"},"behavior":"MergedWithPrevious","invert":true}"#,
        "null",
    ],
    ["null", r#"{"type":"Split","pattern":{"Regex":"a*"},"behavior":"Contiguous","invert":false}"#, "null"],
    [
        "null",
        r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#,
        r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#,
    ],
    [
        r#"{"type":"NFKC"}"#,
        r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}"#,
        r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":true}"#,
    ],
    [
        "null",
        r#"{"type":"Metaspace","replacement":"_","prepend_scheme":"never","split":false}"#,
        r#"{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}"#,
    ],
    [
        r#"{"type":"Lowercase"}"#,
        r#"{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},{"type":"Digits","individual_digits":true}]}"#,
        "null",
    ],
    [
        "null",
        r#"{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},{"type":"Punctuation","behavior":"Isolated"}]}"#,
        r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#,
    ],
];

#[test]
fn components() {
    let trainer = BpeTrainer {
        vocab_size: 2000,
        limit_alphabet: Some(900),
        end_of_word_suffix: None,
        initial_alphabet: "▁_éĠÃ©-".chars().collect(),
        ..BpeTrainer::characters()
    };
    let model = trainer.train(&*TEXT).unwrap();
    let json: serde_json::Value = serde_json::from_str(&model.to_json()).unwrap();
    let pairs: Vec<Pair> = PIPELINES
        .iter()
        .map(|parts| {
            let mut json = json.clone();
            for (name, part) in ["normalizer", "pre_tokenizer", "decoder"].into_iter().zip(parts) {
                json[name] = serde_json::from_str(part).unwrap();
            }
            let ours = Tokenizer::from_json(&json.to_string()).unwrap();
            let again: serde_json::Value = serde_json::from_str(&ours.to_json()).unwrap();
            for name in ["normalizer", "pre_tokenizer"] {
                assert_eq!(again[name], json[name], "written as it was read");
            }
            let added = ["[X]", " y", "é"].map(AddedToken::plain);
            let mut ours = ours;
            ours.add_tokens(added).unwrap();
            let name = parts.iter().find(|part| **part != "null").copied().unwrap_or_default();
            pair(name, ours)
        })
        .collect();
    try_strings(&pairs, SEED, 400);
}

/// Every character beside every other script's: the same cuts.
#[test]
fn scripts_of_all_characters() {
    use tokenizers::{OffsetReferential::Original, OffsetType::Byte, PreTokenizedString, PreTokenizer as _};

    let theirs = tokenizers::pre_tokenizers::unicode_scripts::UnicodeScripts::new();
    let check = |text: &str| {
        let mut cut = PreTokenizedString::from(text);
        theirs.pre_tokenize(&mut cut).unwrap();
        let words: Vec<&str> = cut.get_splits(Original, Byte).iter().map(|(word, _, _)| *word).collect();
        assert!(PreTokenizer::UnicodeScripts.words(text).unwrap() == words, "{text:?}");
    };
    // A character of every script that there is: one more whenever it is cut off from all so far.
    let mut scripts: Vec<char> = Vec::new();
    for block in ('\0'..=char::MAX).collect::<Vec<_>>().chunks(256) {
        check(&block.iter().collect::<String>());
        for &c in block {
            let cut =
                |other: &char| PreTokenizer::UnicodeScripts.words(&format!("{other}{c}")).unwrap().len() == 2;
            if scripts.iter().all(cut)
                && !PreTokenizer::UnicodeScripts.words(&c.to_string()).unwrap().is_empty()
            {
                scripts.push(c);
            }
        }
    }
    assert_eq!(scripts.len(), 135);
    for pair in scripts.iter().flat_map(|a| scripts.iter().map(move |b| [a, b])) {
        check(&pair.into_iter().collect::<String>());
    }
    for block in ('\0'..=char::MAX).collect::<Vec<_>>().chunks(64) {
        for other in ['a', '1', '京', '\u{301}'] {
            check(&block.iter().flat_map(|c| [*c, other]).collect::<String>());
        }
    }
}

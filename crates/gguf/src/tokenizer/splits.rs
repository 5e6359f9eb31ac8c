//! How a BPE of bytes cuts a text into words: llama.cpp's names (`tokenizer.ggml.pre`), and stages of a `tokenizer.json`.

use serde_json::{Value as Json, json};

/// A way to cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// GPT-2's expression.
    Gpt2,
    /// GPT-2's, after each digit has become a word.
    Digits,
    /// Llama 3's: digits by three.
    Llama3,
    /// Qwen 2's: as Llama 3's, with single digits.
    Qwen2,
}

/// The names, of which the first is written. llama.cpp has one expression for all names of a line.
const NAMES: [(Split, &[&str]); 4] = [
    (
        Split::Gpt2,
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "olmo",
            "exaone4",
        ],
    ),
    (Split::Digits, &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"]),
    (
        Split::Llama3,
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
    ),
    (Split::Qwen2, &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2"]),
];

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Split {
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(split, _)| *split)
    }

    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(split, _)| *split == self).map_or("default", |(_, names)| names[0])
    }

    /// The names that [`named`](Self::named) knows.
    pub fn names() -> String {
        NAMES.iter().flat_map(|(_, names)| *names).copied().collect::<Vec<_>>().join(", ")
    }

    /// Whether llama.cpp takes a word that is a piece as it is, without its merges.
    pub fn ignores_merges(self) -> bool {
        self == Self::Llama3
    }

    /// The way that a `pre_tokenizer` cuts; none for one that llama.cpp has no name for.
    pub fn of(stage: &Json) -> Option<Self> {
        const ALL: [Split; 4] = [Split::Gpt2, Split::Digits, Split::Llama3, Split::Qwen2];
        ALL.into_iter().find(|split| means_the_same(&split.stage(), stage))
    }

    /// The stage of a `tokenizer.json`.
    pub fn stage(self) -> Json {
        let bytes = |use_regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex });
        let expression = |regex: &str| {
            let split = json!({
                "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false,
            });
            json!({ "type": "Sequence", "pretokenizers": [split, bytes(false)] })
        };
        match self {
            Self::Gpt2 => bytes(true),
            Self::Digits => json!({
                "type": "Sequence",
                "pretokenizers": [{ "type": "Digits", "individual_digits": true }, bytes(true)],
            }),
            Self::Llama3 => expression(LLAMA_3),
            Self::Qwen2 => expression(QWEN_2),
        }
    }
}

/// Whether two stages are equal but for what changes offsets alone, and for what is the default.
fn means_the_same(expected: &Json, found: &Json) -> bool {
    match (expected, found) {
        (Json::Object(expected), Json::Object(found)) => {
            expected.iter().all(|(key, value)| match key.as_str() {
                "trim_offsets" => true,
                "use_regex" if !found.contains_key(key) => *value == json!(true),
                _ => found.get(key).is_some_and(|found| means_the_same(value, found)),
            })
        }
        (Json::Array(expected), Json::Array(found)) => {
            expected.len() == found.len() && expected.iter().zip(found).all(|(a, b)| means_the_same(a, b))
        }
        (expected, found) => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_known_by_what_they_do() {
        for (split, names) in NAMES {
            assert_eq!(Split::of(&split.stage()), Some(split));
            assert_eq!(Split::named(names[0]), Some(split));
        }
        let older = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false });
        assert_eq!(Split::of(&older), Some(Split::Gpt2));
        for other in [
            json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true }),
            json!({ "type": "Whitespace" }),
            Json::Null,
        ] {
            assert_eq!(Split::of(&other), None, "{other}");
        }
    }
}

//! The fuzz targets' bodies on arbitrary and on damaged inputs, with a stable compiler.

#![allow(clippy::unwrap_used)]

mod bodies;

use std::{fs, path::Path, sync::LazyLock};

use bodies::{SEPARATOR, TOKENIZERS};
use cloze_tokenizer::Tokenizer;
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

/// The seeds: small files with every component, of this crate and of the reference.
static SEEDS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let own = TOKENIZERS.iter().map(|tokenizer| tokenizer.to_json());
    texts.chain(own).map(|text| serde_json::from_str(&text).unwrap()).collect()
});

/// One change to a JSON value.
#[derive(Debug, Clone)]
enum Change {
    /// Something else in its place.
    Replace(Value),
    /// A copy of another part of the file in its place.
    Copy(Index),
    /// One of its entries gone.
    Remove(Index),
    /// One of its entries once more, under this name.
    Double(Index, String),
    /// Itself in a sequence, so often.
    Wrap(&'static str, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let word = prop_oneof![
        Just(String::new()),
        "[a-zA-Z#Ġ▁ ]{1,4}",
        any::<String>(),
        prop::sample::select(vec![
            "type",
            "Sequence",
            "BertNormalizer",
            "ByteLevel",
            "WordPiece",
            "BPE",
            "Unigram",
            "id",
            "content",
            "vocab",
            "[UNK]",
            "<unk>",
            "A",
            "B",
            "\\",
            "(",
            "[",
            "\u{0}",
        ])
        .prop_map(str::to_owned),
    ]
    .boxed();
    let number = prop_oneof![
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(0.5)),
        Just(json!(1e308)),
        Just(json!(u64::MAX)),
        Just(json!(4_194_304)),
        (0..300u32).prop_map(|n| json!(n)),
    ];
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number,
        word.clone().prop_map(Value::String),
        Just(json!([])),
        Just(json!({})),
    ];
    let list = prop::sample::select(vec!["normalizers", "pretokenizers", "processors", "decoders"]);
    prop_oneof![
        3 => value.prop_map(Change::Replace),
        1 => any::<Index>().prop_map(Change::Copy),
        2 => any::<Index>().prop_map(Change::Remove),
        2 => (any::<Index>(), word).prop_map(|(at, name)| Change::Double(at, name)),
        1 => (list, 1..150usize).prop_map(|(list, times)| Change::Wrap(list, times)),
    ]
}

/// Of a long list or map, only so many entries are changed.
const FEW: usize = 12;

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().take(FEW).map(count).sum(),
        Value::Object(map) => map.values().take(FEW).map(count).sum(),
        _ => 0,
    }
}

/// The value that is `n` further in the order of the file.
fn nth<'a>(value: &'a mut Value, n: &mut usize) -> Option<&'a mut Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Array(list) => list.iter_mut().take(FEW).find_map(|v| nth(v, n)),
        Value::Object(map) => map.values_mut().take(FEW).find_map(|v| nth(v, n)),
        _ => None,
    }
}

fn damage(file: &mut Value, at: Index, change: Change) {
    let copy = match &change {
        Change::Copy(from) => nth(file, &mut from.index(count(file))).cloned(),
        _ => None,
    };
    let mut n = at.index(count(file));
    let Some(value) = nth(file, &mut n) else { return };
    match (change, value) {
        (Change::Replace(with), value) => *value = with,
        (Change::Copy(_), value) => *value = copy.unwrap_or_default(),
        (Change::Remove(at), Value::Array(list)) if !list.is_empty() => _ = list.remove(at.index(list.len())),
        (Change::Remove(at), Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(at.index(map.len())).unwrap().clone();
            map.remove(&key);
        }
        (Change::Double(at, _), Value::Array(list)) if !list.is_empty() => {
            list.push(list[at.index(list.len())].clone());
        }
        (Change::Double(at, name), Value::Object(map)) if !map.is_empty() => {
            let value = map.values().nth(at.index(map.len())).unwrap().clone();
            map.insert(name, value);
        }
        (Change::Wrap(list, times), value) => {
            for _ in 0..times {
                let mut map = Map::new();
                map.insert("type".into(), "Sequence".into());
                map.insert(list.into(), json!([value.take()]));
                *value = Value::Object(map);
            }
        }
        _ => {}
    }
}

/// Lines of a text file, some of them changed.
fn lines(from: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let other = prop_oneof![
        Just(String::new()),
        Just("a b c".to_owned()),
        Just("#version: 0.2".to_owned()),
        Just("\u{feff}x \u{a0} y".to_owned()),
        Just("Ġ t\r".to_owned()),
        "[a-zĠ#\\[\\] ]{0,6}",
        any::<String>(),
    ];
    prop::collection::vec((any::<Index>(), 0..4usize, other), 0..6).prop_map(move |changes| {
        let mut lines: Vec<String> = from.lines().map(str::to_owned).collect();
        for (at, kind, other) in changes {
            let i = at.index(lines.len() + 1);
            match kind {
                0 if i < lines.len() => _ = lines.remove(i),
                1 if i < lines.len() => lines.push(lines[i].clone()),
                2 if i < lines.len() => lines[i] = other,
                _ => lines.insert(i, other),
            }
        }
        lines.join("\n").into_bytes()
    })
}

/// Some bytes of `file` overwritten, gone or repeated.
fn bytes(file: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), 0..12usize, prop::collection::vec(any::<u8>(), 0..6));
    (file, prop::collection::vec(change, 0..3)).prop_map(|(mut file, changes)| {
        for (at, length, with) in changes {
            let start = at.index(file.len() + 1);
            let end = (start + length).min(file.len());
            file.splice(start..end, with);
        }
        file
    })
}

const VOCAB_TXT: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nold\n##s\nsail\n##or\n.\nÉ\n";
const CONFIG: &str =
    "{\n\"do_lower_case\": true,\n\"strip_accents\": null,\n\"tokenize_chinese_chars\": false,\n\"x\": 1\n}";
const MERGES: &str = "#version: 0.2\no l\nol d\nĠ s\nt h\nth e\n";
const VOCAB_JSON: &str = "{\n\"o\": 0,\n\"l\": 1,\n\"ol\": 2,\n\"d\": 3,\n\"old\": 4,\n\"Ġ\": 5,\n\"s\": 6,\n\"Ġs\": 7,\n    \"t\": 8,\n\"h\": 9,\n\"th\": 10,\n\"e\": 11,\n\"the\": 12\n}";

fn two(a: &'static str, b: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let both = (lines(a), prop::option::of(lines(b)));
    bytes(both.prop_map(|(a, b)| match b {
        Some(b) => [a, vec![SEPARATOR], b].concat(),
        None => a,
    }))
}

const SPM_CONFIG: &str = "{\n\"bos_token\": \"<s>\",\n\"add_bos_token\": true,\n\"added_tokens_decoder\":\n{\"0\": {\"content\": \"<unk>\"}},\n\"model_max_length\": 12\n}";

/// SentencePiece models with up to six bytes changed, gone or put in, mostly where the settings are: at the
/// end.
fn sentencepiece() -> impl Strategy<Value = Vec<u8>> {
    const MODELS: [&[u8]; 5] = [
        include_bytes!("../data/sentencepiece/unigram.model"),
        include_bytes!("../data/sentencepiece/unigram-bytes.model"),
        include_bytes!("../data/sentencepiece/unigram-plain.model"),
        include_bytes!("../data/sentencepiece/bpe.model"),
        include_bytes!("../data/sentencepiece/bpe-bytes.model"),
    ];
    let change = (any::<Index>(), any::<bool>(), 0..3usize, prop::collection::vec(any::<u8>(), 0..3));
    let changes = prop::collection::vec(change, 0..4);
    let config = prop::option::weighted(0.3, bytes(lines(SPM_CONFIG)));
    (prop::sample::select(&MODELS[..]), changes, config).prop_map(|(model, changes, config)| {
        let mut model = model.to_vec();
        for (at, near_end, length, with) in changes {
            let span = if near_end { model.len().min(400) } else { model.len() };
            let start = model.len() - at.index(span + 1);
            model.splice(start..(start + length).min(model.len()), with);
        }
        if let Some(config) = config {
            model.extend([SEPARATOR; 2]);
            model.extend(config);
        }
        model
    })
}

/// Text with what the tokenizers look for in it.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<String>().prop_map(String::into_bytes),
        prop::sample::select(vec![
            "<x>", "[MASK]", "<mask>", "Old", "old", "s ", " ", "\r\n", "é", "e\u{301}"
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// 500 inputs for each target, or the number in the environment.
fn cases() -> u32 {
    std::env::var("CLOZE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]

    #[test]
    fn encode(data in text()) {
        bodies::encode(&data);
    }

    #[test]
    fn decode(data in prop::collection::vec(any::<u8>(), 0..60)) {
        bodies::decode(&data);
    }

    #[test]
    fn read_json(seed in any::<Index>(), changes in prop::collection::vec((any::<Index>(), change()), 0..5)) {
        let mut file = seed.get(&SEEDS).clone();
        changes.into_iter().for_each(|(at, change)| damage(&mut file, at, change));
        bodies::read_json(file.to_string().as_bytes());
    }

    #[test]
    fn read_json_bytes(seed in any::<Index>(), raw in bytes(Just(Vec::new())), at in any::<Index>(), length in 0..20usize) {
        let mut file = seed.get(&SEEDS).to_string().into_bytes();
        let start = at.index(file.len());
        file.splice(start..(start + length).min(file.len()), raw);
        bodies::read_json(&file);
    }

    #[test]
    fn read_sentencepiece(data in sentencepiece()) {
        bodies::read_sentencepiece(&data);
    }

    #[test]
    fn read_vocab_txt(data in two(VOCAB_TXT, CONFIG)) {
        bodies::read_vocab_txt(&data);
    }

    #[test]
    fn read_merges(data in two(MERGES, VOCAB_JSON)) {
        bodies::read_merges(&data);
    }
}

/// Undamaged, the seeds are read, or name what is not supported.
#[test]
fn seeds_are_sound() {
    for seed in &*SEEDS {
        Tokenizer::from_json(&seed.to_string()).unwrap();
        assert!(seed.to_string().parse::<tokenizers::Tokenizer>().is_ok(), "not for the reference: {seed}");
    }
}

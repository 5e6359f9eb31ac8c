//! The models alone, with every option, beside the `tokenizers` crate: small random vocabularies, which
//! have what trained ones seldom show, and long words.
//!
//! The number of vocabularies is fixed; `CLOZE_CASES` in the environment sets another.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::Path};

use cloze_tokenizer::{Bpe, BpeConfig, ByteLevel, Model, PreTokenizer, Tokenizer, Vocab, WordPiece};
use rand_pcg::{
    Pcg64Mcg,
    rand_core::{Rng, SeedableRng},
};

type Reference = tokenizers::Tokenizer;

fn cases() -> usize {
    std::env::var("CLOZE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1500)
}

struct Random(Pcg64Mcg);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.next_u32() as usize % n
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    fn text(&mut self, alphabet: &[&str], len: usize) -> String {
        (0..len).map(|_| *self.pick(alphabet)).collect()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Ids, tokens, offsets and word numbers, and the corpus path.
fn assert_same(ours: &Tokenizer, reference: &Reference, text: &str, about: &dyn std::fmt::Debug) {
    let theirs = reference.encode(text, false).unwrap();
    let encoding = ours.encode(text, false).unwrap();
    assert_eq!(encoding.ids, theirs.get_ids(), "ids of {text:?} with {about:?}");
    assert_eq!(encoding.tokens, theirs.get_tokens(), "tokens of {text:?} with {about:?}");
    if !adds_bytes(ours) {
        assert_eq!(encoding.offsets, theirs.get_offsets(), "offsets of {text:?} with {about:?}");
    }
    assert_eq!(encoding.word_ids, theirs.get_word_ids(), "words of {text:?} with {about:?}");
    let mut ids = Vec::new();
    ours.encode_into(text, &mut ids, &mut Vec::new()).unwrap();
    assert_eq!(ids, encoding.ids, "encode_into of {text:?} with {about:?}");
}

/// Whether the bytes of unknown characters may include those of a prefix or suffix, for which the
/// reference counts places after the word.
fn adds_bytes(tokenizer: &Tokenizer) -> bool {
    match tokenizer.model() {
        Model::Bpe(model) => {
            let BpeConfig { continuing_subword_prefix: prefix, end_of_word_suffix: suffix, .. } =
                model.config();
            model.config().byte_fallback && (prefix.is_some() || suffix.is_some())
        }
        _ => false,
    }
}

fn both(model: Model) -> (Tokenizer, Reference) {
    let ours = Tokenizer::new(model).with_pre_tokenizer(PreTokenizer::WhitespaceSplit);
    let reference = ours.to_json().parse().unwrap();
    (ours, reference)
}

/// A vocabulary with merges in the order learnt or, sometimes, in any order.
fn random_bpe(random: &mut Random) -> (Vocab, Vec<(String, String)>, BpeConfig) {
    let mut config = BpeConfig {
        unk_token: random.yes().then(|| "<unk>".to_owned()),
        fuse_unk: random.yes(),
        byte_fallback: random.yes(),
        ignore_merges: random.below(4) == 0,
        ..BpeConfig::default()
    };
    if random.below(3) == 0 {
        config.continuing_subword_prefix = Some(random.pick(&["##", "é"]).to_string());
    }
    if random.below(3) == 0 {
        config.end_of_word_suffix = Some("</w>".to_owned());
    }
    let prefix = config.continuing_subword_prefix.clone().unwrap_or_default();
    let suffix = config.end_of_word_suffix.clone().unwrap_or_default();
    let mut tokens = vec!["<unk>".to_owned()];
    let mut add = |token: String| {
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    };
    for c in ["a", "b", "c", "中"] {
        // Some forms are missing, so that known characters are unknown in places.
        for form in
            [c.to_owned(), format!("{prefix}{c}"), format!("{c}{suffix}"), format!("{prefix}{c}{suffix}")]
        {
            if random.below(12) > 0 {
                add(form);
            }
        }
    }
    let bytes = if random.yes() { "é🙂</w>#é".bytes().collect() } else { vec![0xC3, 0xF0, 0x9F] };
    for byte in bytes {
        add(format!("<0x{byte:02X}>"));
    }
    let mut merges = Vec::new();
    for _ in 0..random.below(30) {
        let (a, b) = (random.pick(&tokens).clone(), random.pick(&tokens).clone());
        let special = |token: &str| token.starts_with('<');
        let ends = !suffix.is_empty() && a.ends_with(&suffix);
        let Some(rest) = b.strip_prefix(&prefix).filter(|rest| !rest.is_empty()) else {
            continue;
        };
        if special(&a) || special(&b) || ends || a.len() + rest.len() > 16 {
            continue;
        }
        let joined = format!("{a}{rest}");
        if !tokens.contains(&joined) {
            tokens.push(joined);
        }
        merges.push((a, b));
    }
    if random.below(4) == 0 {
        random.shuffle(&mut merges);
    }
    (Vocab::from_tokens(tokens).unwrap(), merges, config)
}

#[test]
fn bpe_with_every_option() {
    let mut random = Random::new(1);
    for _ in 0..cases() {
        let (vocab, merges, config) = random_bpe(&mut random);
        let bpe = Bpe::new(vocab, merges_of(&merges), config.clone()).unwrap();
        let (ours, reference) = both(Model::Bpe(bpe));
        for len in [0, 1, 2, 5, 9, 40, 120] {
            let alphabet: &[&str] = match random.below(3) {
                0 => &["a"],
                1 => &["a", "b", "c", "中"],
                _ => &["a", "b", "c", "中", "é", "🙂", " ", "x"],
            };
            let text = random.text(alphabet, len);
            assert_same(&ours, &reference, &text, &(&merges, &config));
        }
    }
}

fn merges_of(merges: &[(String, String)]) -> Vec<(&str, &str)> {
    merges.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect()
}

#[test]
fn wordpiece_with_every_option() {
    let mut random = Random::new(2);
    for _ in 0..cases() {
        let prefix = *random.pick(&["##", "", "a", "é"]);
        let max = *random.pick(&[1, 6, 100, 1000]);
        let mut tokens = BTreeMap::from([("[UNK]".to_owned(), 0)]);
        for _ in 0..random.below(40) {
            let len = 1 + random.below(5);
            let piece = random.text(&["a", "b", "é", "中", "#"], len);
            let id = tokens.len() as u32;
            tokens.entry(if random.yes() { format!("{prefix}{piece}") } else { piece }).or_insert(id);
        }
        let mut vocab = Vocab::default();
        tokens.iter().for_each(|(token, id)| vocab.insert(token.clone(), *id).unwrap());
        let model = WordPiece::with(vocab, "[UNK]", prefix, max).unwrap();
        let (ours, reference) = both(Model::WordPiece(model));
        for len in [0, 1, 2, 4, 8, 20, 120] {
            let alphabet: &[&str] =
                if random.yes() { &["a", "b"] } else { &["a", "b", "é", "中", "#", " ", "x"] };
            let text = random.text(alphabet, len);
            assert_same(&ours, &reference, &text, &(&tokens, prefix, max));
        }
    }
}

/// Byte-level words of every length, by GPT-2's vocabulary; whole texts as one word too.
#[test]
fn long_byte_level_words() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let (folder, corpus) = (shared.join("tokenizers/gpt2"), shared.join("data/corpus"));
    if !folder.is_dir() || !corpus.is_dir() {
        println!("skipped: no shared/tokenizers/gpt2 and shared/data/corpus beside the repository");
        return;
    }
    let split = Tokenizer::load(&folder).unwrap();
    let whole = ByteLevel { use_regex: false, ..ByteLevel::gpt2() };
    let whole = split.clone().with_pre_tokenizer(PreTokenizer::ByteLevel(whole));
    let mut random = Random::new(3);
    let units =
        ["a", "ab", "  ", " ", "\n", "🙂", "é", "the", "ing", "-", "=", "0", "中", "\u{301}", "aaab", "_"];
    let mut texts: Vec<String> = (0..cases() / 5)
        .map(|i| {
            let kinds = 1 + random.below(3);
            let some: Vec<_> = (0..kinds).map(|_| *random.pick(&units)).collect();
            random.text(&some, 1 + i % 400)
        })
        .collect();
    for file in std::fs::read_dir(corpus).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        texts.extend(text.lines().filter(|line| line.len() > 32).step_by(997).map(str::to_owned));
    }
    for ours in [split, whole] {
        let reference: Reference = ours.to_json().parse().unwrap();
        for text in &texts {
            assert_same(&ours, &reference, text, &"GPT-2's merges");
        }
    }
}

fn with_dropout(dropout: Option<f32>) -> Tokenizer {
    let tokens = ["a", "b", "c", "ab", "bc", "abc", "abcabc", "ca"];
    let merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("abc", "abc"), ("c", "a")];
    let config = BpeConfig { dropout, ..BpeConfig::default() };
    let bpe = Bpe::new(Vocab::from_tokens(tokens).unwrap(), merges, config).unwrap();
    Tokenizer::new(Model::Bpe(bpe))
}

#[test]
fn dropout_of_all_or_none() {
    for dropout in [Some(0.0), Some(1.0), None] {
        let ours = with_dropout(dropout);
        let reference: Reference = ours.to_json().parse().unwrap();
        for text in ["", "a", "abc", "abcabc", "cabcaabcab"] {
            assert_same(&ours, &reference, text, &dropout);
        }
    }
}

/// Every encoding comes as often as from the reference, within what chance does.
#[test]
fn dropout_is_distributed_alike() {
    const DRAWS: usize = 20_000;
    let ours = with_dropout(Some(0.3));
    let reference: Reference = ours.to_json().parse().unwrap();
    let mut random = Random::new(4);
    for text in ["abc", "abcabca"] {
        let mut counts: BTreeMap<Vec<u32>, [usize; 2]> = BTreeMap::new();
        for _ in 0..DRAWS {
            counts.entry(ours.encode_sampled(text, false, &mut random.0).unwrap().ids).or_default()[0] += 1;
            counts.entry(reference.encode(text, false).unwrap().get_ids().to_vec()).or_default()[1] += 1;
        }
        assert!(counts.len() > 3);
        for (ids, [ours, theirs]) in counts {
            // Six standard deviations of the difference of two counts.
            let bound = 6.0 * ((ours + theirs) as f64).sqrt() + 6.0;
            assert!(ours.abs_diff(theirs) as f64 <= bound, "{ids:?} of {text}: {ours} and {theirs}");
        }
    }
}

#[test]
fn dropout_in_a_file_is_seen_and_honoured() {
    let tokenizer = Tokenizer::from_json(&with_dropout(Some(0.5)).to_json()).unwrap();
    let Model::Bpe(model) = tokenizer.model() else { panic!("not a BPE model") };
    assert_eq!(model.config().dropout, Some(0.5));
    let text = "abcabc".repeat(20);
    let whole = with_dropout(None).encode(&text, false).unwrap();
    let first = tokenizer.encode(&text, false).unwrap();
    assert!(first.len() > whole.len(), "merges are left out");
    assert_eq!(tokenizer.encode(&text, false).unwrap(), first, "without a generator, always the same");
    let draws = |seed| {
        let mut random = Random::new(seed);
        let mut draw = || tokenizer.encode_sampled(&text, false, &mut random.0).unwrap().ids;
        (draw(), draw())
    };
    assert_eq!(draws(5), draws(5));
    assert_ne!(draws(5).0, draws(5).1);
    assert_ne!(draws(5), draws(6));
    let (mut ids, mut starts) = (Vec::new(), Vec::new());
    tokenizer.encode_into_sampled(&text, &mut ids, &mut starts, &mut Random::new(5).0).unwrap();
    assert_eq!(ids, draws(5).0);
    assert_eq!(starts.iter().filter(|start| **start).count(), 1);
}

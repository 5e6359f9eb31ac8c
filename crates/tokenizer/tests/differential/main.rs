//! Generated strings, encoded and decoded here and by the `tokenizers` crate: no difference.
//!
//! Compared are ids, tokens, type ids, offsets, word and sequence ids, masks, pairs, the corpus path and
//! decoded text, with published vocabularies (looked for in `shared/` beside the repository; skipped,
//! with a line saying so, where absent) and with models of every kind trained here.
//!
//! `CLOZE_STRINGS` sets how many strings the ignored test tries, `CLOZE_SEED` where they begin.

#![allow(clippy::unwrap_used)]

mod components;
mod generator;
mod sentencepiece;

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use cloze_tokenizer::{
    AddedToken, Encoding, Normalizer, OffsetUnit, PreTokenizer, Tokenizer,
    train::{BpeTrainer, UnigramTrainer, WordPieceScore, WordPieceTrainer},
};
use generator::Random;
use tokenizers::{Encoding as TheirEncoding, Tokenizer as Reference};

/// A tokenizer and the same in the reference.
struct Pair {
    name: &'static str,
    ours: Tokenizer,
    theirs: Reference,
    /// The contents of its added tokens, for the generator.
    added: Vec<String>,
    /// Texts for which the reference fails or panics.
    refused: AtomicUsize,
}

fn pair(name: &'static str, ours: Tokenizer) -> Pair {
    let theirs = ours.to_json().parse().unwrap();
    let added = ours.added_tokens().map(|(_, token)| token.content.clone()).collect();
    Pair { name, ours, theirs, added, refused: AtomicUsize::new(0) }
}

fn published(name: &'static str, path: &str) -> Option<Pair> {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if !full.exists() {
        println!("skipped: no shared/{path} beside the repository");
        return None;
    }
    let mut ours = Tokenizer::load(full).unwrap();
    ours.set_truncation(None).unwrap();
    ours.set_padding(None).unwrap();
    Some(pair(name, ours))
}

fn bert_uncased() -> Option<Pair> {
    published("bert-base-uncased", "models/all-MiniLM-L6-v2/tokenizer.json")
}

fn bert_cased() -> Option<Pair> {
    published("bert-base-cased", "tokenizers/bert-base-cased/vocab.txt")
}

fn gpt2() -> Option<Pair> {
    published("gpt2", "tokenizers/gpt2")
}

/// What the models of this test are trained on: prose, and strings like those they are tried with.
static TEXT: LazyLock<Vec<String>> = LazyLock::new(|| {
    let prose = include_str!("../../../../ARCHITECTURE.md").lines().map(str::to_owned);
    let mut random = Random::new(1);
    prose.chain((0..3000).map(|_| generator::text(&mut random, &[]))).collect()
});

/// Added tokens with every flag.
fn with_added(name: &'static str, mut ours: Tokenizer) -> Pair {
    let special = AddedToken::special("[X]");
    let both = AddedToken { lstrip: true, rstrip: true, ..AddedToken::special("<strip>") };
    let left = AddedToken { lstrip: true, ..AddedToken::plain("Left") };
    let word = AddedToken { single_word: true, ..AddedToken::plain("word") };
    let words = AddedToken { single_word: true, rstrip: true, ..AddedToken::special("two words") };
    let plain = ["é", "über", "中", "  ", "'"].map(AddedToken::plain);
    ours.add_tokens([special, both, left, word, words].into_iter().chain(plain)).unwrap();
    pair(name, ours)
}

fn trained_wordpiece() -> Pair {
    let trainer = WordPieceTrainer { vocab_size: 1200, limit_alphabet: Some(300), ..Default::default() };
    with_added("WordPiece by frequency", trainer.train(&*TEXT).unwrap())
}

fn trained_likelihood() -> Pair {
    let trainer = WordPieceTrainer {
        vocab_size: 2500,
        min_frequency: 5,
        lowercase: false,
        score: WordPieceScore::Likelihood,
        ..Default::default()
    };
    with_added("WordPiece by likelihood", trainer.train(&*TEXT).unwrap())
}

fn trained_byte_level() -> Pair {
    let trainer = BpeTrainer { vocab_size: 1200, ..Default::default() };
    with_added("byte-level BPE", trainer.train(&*TEXT).unwrap())
}

fn trained_byte_level_normalized() -> Pair {
    let normalizer = Normalizer::Sequence { normalizers: vec![Normalizer::NFKC, Normalizer::Lowercase] };
    let trainer = BpeTrainer {
        vocab_size: 900,
        normalizer: Some(normalizer),
        pre_tokenizer: Some(PreTokenizer::Whitespace),
        ..Default::default()
    };
    with_added("byte-level BPE of normalised words", trainer.train(&*TEXT).unwrap())
}

fn trained_characters() -> Pair {
    let trainer = BpeTrainer { vocab_size: 1500, limit_alphabet: Some(300), ..BpeTrainer::characters() };
    with_added("BPE with a suffix", trainer.train(&*TEXT).unwrap())
}

fn trained_unigram() -> Pair {
    // Every character of the text becomes a piece: prose only.
    let trainer = UnigramTrainer { vocab_size: 600, ..Default::default() };
    with_added("Unigram", trainer.train(&TEXT[..100]).unwrap())
}

fn trained_prefix() -> Pair {
    let trainer = BpeTrainer {
        vocab_size: 1500,
        limit_alphabet: Some(200),
        continuing_subword_prefix: Some("##".into()),
        end_of_word_suffix: None,
        normalizer: Some(Normalizer::NFD),
        ..BpeTrainer::characters()
    };
    with_added("BPE with a prefix", trainer.train(&*TEXT).unwrap())
}

/// What the reference makes of a text, with and without special tokens.
struct Theirs {
    one: TheirEncoding,
    two: Option<TheirEncoding>,
    /// Without and with special tokens.
    decoded: [String; 2],
}

impl Pair {
    /// What differs for this text, alone and as a pair with `second`.
    fn difference(&self, text: &str, second: Option<&str>) -> Option<String> {
        // A panic of ours is a difference; one of the reference leaves nothing to compare with.
        let theirs = catch_unwind(AssertUnwindSafe(|| {
            [true, false].map(|special| self.theirs(text, second, special))
        }));
        let Ok(theirs) = theirs else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        catch_unwind(AssertUnwindSafe(|| self.compare(text, second, &theirs)))
            .unwrap_or_else(|_| Some("a panic".to_owned()))
    }

    fn theirs(&self, text: &str, second: Option<&str>, special: bool) -> Theirs {
        // In characters: in bytes, it counts white space of several as one where it trims offsets.
        let one = self.theirs.encode_char_offsets(text, special).unwrap();
        let two = second.map(|second| self.theirs.encode_char_offsets((text, second), special).unwrap());
        let decoded = [true, false].map(|skip| {
            // The reference's BPE decoder panics on no tokens at all.
            let some = one.get_ids().iter().any(|id| !skip || !self.ours.is_special(*id));
            if some { self.theirs.decode(one.get_ids(), skip).unwrap() } else { String::new() }
        });
        Theirs { one, two, decoded }
    }

    fn compare(&self, text: &str, second: Option<&str>, theirs: &[Theirs; 2]) -> Option<String> {
        for (theirs, special) in theirs.iter().zip([true, false]) {
            let encoding = self.ours.encode_input(text, special, OffsetUnit::Chars).unwrap();
            if let Some(found) = encodings(&encoding, &theirs.one) {
                return Some(found);
            }
            if let (Some(second), Some(two)) = (second, &theirs.two)
                && let Some(found) = encodings(
                    &self.ours.encode_input((text, second), special, OffsetUnit::Chars).unwrap(),
                    two,
                )
            {
                return Some(format!("pair: {found}"));
            }
            for (decoded, skip) in theirs.decoded.iter().zip([true, false]) {
                if let Some(found) =
                    fields("decoded", &self.ours.decode(&encoding.ids, skip).unwrap(), decoded)
                {
                    return Some(found);
                }
            }
            if !special {
                let (mut ids, mut starts) = (Vec::new(), Vec::new());
                self.ours.encode_into(text, &mut ids, &mut starts).unwrap();
                let words = &encoding.word_ids;
                let first: Vec<_> = (0..words.len()).map(|i| i == 0 || words[i] != words[i - 1]).collect();
                let found = fields("encode_into", &ids, &encoding.ids);
                let found = found.or_else(|| fields("word starts", &starts, &first));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// A shorter text with a difference: characters are left out as long as there is one.
    fn shrunk(&self, text: &str, second: Option<&str>) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let mut size = chars.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < chars.len() {
                let mut shorter = chars.clone();
                shorter.drain(at..(at + size).min(chars.len()));
                if self.difference(&shorter.iter().collect::<String>(), second).is_some() {
                    chars = shorter;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        chars.into_iter().collect()
    }
}

fn fields<T: Debug + PartialEq + ?Sized>(what: &str, ours: &T, theirs: &T) -> Option<String> {
    (ours != theirs).then(|| format!("{what}: {ours:?}, not {theirs:?}"))
}

fn encodings(ours: &Encoding, theirs: &TheirEncoding) -> Option<String> {
    let sequences = || theirs.get_sequence_ids().into_iter().map(|s| s.map(|s| s as u32)).collect::<Vec<_>>();
    fields("ids", &ours.ids[..], theirs.get_ids())
        .or_else(|| fields("tokens", &ours.tokens[..], theirs.get_tokens()))
        .or_else(|| fields("offsets", &ours.offsets[..], theirs.get_offsets()))
        .or_else(|| fields("type ids", &ours.type_ids[..], theirs.get_type_ids()))
        .or_else(|| fields("word ids", &ours.word_ids[..], theirs.get_word_ids()))
        .or_else(|| fields("sequence ids", &ours.sequence_ids, &sequences()))
        .or_else(|| fields("special mask", &ours.special_tokens_mask[..], theirs.get_special_tokens_mask()))
        .or_else(|| fields("attention mask", &ours.attention_mask[..], theirs.get_attention_mask()))
}

/// Tries `count` strings on every tokenizer, on two threads.
fn try_strings(pairs: &[Pair], seed: u64, count: usize) {
    let added: Vec<&str> = pairs.iter().flat_map(|p| &p.added).map(String::as_str).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut differences = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return differences;
            }
            let mut random =
                Random::new(seed.wrapping_add((number as u64).wrapping_mul(0xA076_1D64_78BD_642F)));
            let text = generator::text(&mut random, &added);
            let second = random.one_in(4).then(|| generator::text(&mut random, &added));
            let second = second.as_deref();
            for pair in pairs {
                if pair.difference(&text, second).is_some() {
                    let text = pair.shrunk(&text, second);
                    let what = pair.difference(&text, second).unwrap_or_default();
                    differences.push(format!("{}, string {number}: {text:?}: {what}", pair.name));
                }
            }
        }
    };
    let differences: Vec<String> = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    for pair in pairs {
        let refused = pair.refused.load(Ordering::Relaxed);
        println!(
            "{}: {count} strings from seed {seed}, of which the reference fails on {refused}",
            pair.name
        );
    }
    let shown: Vec<_> = differences.iter().take(20).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), shown.join("\n"));
}

fn published_pairs() -> Vec<Pair> {
    [bert_uncased(), bert_cased(), gpt2()].into_iter().flatten().collect()
}

fn trained_pairs() -> Vec<Pair> {
    vec![
        trained_wordpiece(),
        trained_likelihood(),
        trained_byte_level(),
        trained_byte_level_normalized(),
        trained_characters(),
        trained_prefix(),
        trained_unigram(),
    ]
}

const SEED: u64 = 20_121_125;

#[test]
fn published_vocabularies() {
    try_strings(&published_pairs(), SEED, 3000);
}

#[test]
fn vocabularies_trained_here() {
    try_strings(&trained_pairs(), SEED, 2000);
}

#[test]
#[ignore = "a million strings: an hour"]
fn a_million_strings() {
    let set = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let pairs: Vec<Pair> = published_pairs().into_iter().chain(trained_pairs()).collect();
    let count = set("CLOZE_STRINGS").unwrap_or(1_000_000) as usize;
    try_strings(&pairs, set("CLOZE_SEED").unwrap_or(SEED + 1), count);
}

/// What is not the same is seen, and told with the least text that shows it.
#[test]
fn differences_are_found() {
    let cased = WordPieceTrainer { vocab_size: 300, lowercase: false, ..Default::default() };
    let uncased = WordPieceTrainer { lowercase: true, ..cased.clone() };
    let ours = uncased.train(&*TEXT).unwrap();
    let theirs = pair("cased", cased.train(&*TEXT).unwrap()).theirs;
    let wrong = Pair { theirs, ..pair("uncased", ours) };
    let message = catch_unwind(AssertUnwindSafe(|| try_strings(&[wrong], SEED, 50))).unwrap_err();
    let message = message.downcast::<String>().unwrap();
    assert!(message.contains(" differ:\nuncased, string "), "{message}");
    let right = trained_byte_level();
    let ids = right.ours.encode("a É", true).unwrap();
    assert_eq!(encodings(&ids, &right.theirs.encode("a É", true).unwrap()), None);
    let offsets = Encoding { offsets: vec![(0, 0); ids.len()], ..ids };
    let found = encodings(&offsets, &right.theirs.encode("a É", true).unwrap()).unwrap();
    assert!(found.starts_with("offsets: [(0, 0),"), "{found}");
}

/// The strings are what they are meant to be.
#[test]
fn the_generator_reaches_every_corner() {
    let mut random = Random::new(SEED);
    let texts: Vec<String> = (0..20_000).map(|_| generator::text(&mut random, &["[X]"])).collect();
    let again = generator::text(&mut Random::new(SEED), &["[X]"]);
    assert_eq!(texts[0], again);
    for plane in 0..17 {
        assert!(texts.iter().flat_map(|t| t.chars()).any(|c| c as u32 >> 16 == plane), "plane {plane}");
    }
    let has = |what: fn(&String) -> bool| assert!(texts.iter().any(what));
    has(|t| t.is_empty());
    has(|t| t.len() > 1 && t.chars().all(char::is_whitespace));
    has(|t| t.chars().count() > 3000);
    has(|t| t.contains("\r\n"));
    has(|t| t.contains("e[X]"));
    has(|t| t.contains('\0'));
}

//! The same vocabularies as the `tokenizers` crate learns, whatever the options.
//!
//! The reference numbers the pieces that have a prefix or a suffix in a random order, which decides ties.
//! Given to both sides as special tokens they have the same ids, and then all else must be equal: every
//! piece, every id, every merge.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use cloze_tokenizer::{
    BertNormalizer, Model, Normalizer, PreTokenizer, Tokenizer,
    train::{BpeTrainer, WordPieceScore, WordPieceTrainer},
};
use serde_json::Value;
use tokenizers::{
    AddedToken, Tokenizer as Reference,
    models::{TrainerWrapper, bpe, wordpiece},
};

/// Every `step`-th line of every corpus in the shared data; where there is none, the test is skipped.
fn corpus(step: usize) -> Option<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/corpus");
    let Ok(files) = fs::read_dir(folder) else {
        println!("skipped: no shared/data/corpus beside the repository");
        return None;
    };
    let mut files: Vec<_> = files.map(|f| f.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|f| fs::read_to_string(f).unwrap() + "\n").collect();
    Some(text.lines().step_by(step).map(str::to_owned).collect())
}

/// Pieces by id.
fn pieces(tokenizer: &Tokenizer) -> Vec<String> {
    tokenizer.model().vocab().iter().map(|(_, token)| token.to_owned()).collect()
}

/// Compares with what the reference learns from the same words: those of the stages of `ours`.
fn assert_same(ours: &Tokenizer, mut trainer: TrainerWrapper, lines: &[String]) {
    let mut file: Value = serde_json::from_str(&ours.to_json()).unwrap();
    // Those would be cut out of the text.
    file["added_tokens"] = Value::Array(Vec::new());
    file["post_processor"] = Value::Null;
    let mut reference: Reference = file.to_string().parse().unwrap();
    reference.train(&mut trainer, lines.iter()).unwrap();
    let mut vocab: Vec<_> = reference.get_vocab(false).into_iter().collect();
    vocab.sort_by_key(|(_, id)| *id);
    let theirs: Vec<String> = vocab.into_iter().map(|(token, _)| token).collect();
    assert_eq!(pieces(ours), theirs);
    if let Model::Bpe(model) = ours.model() {
        let file: Value = serde_json::from_str(&reference.to_string(false).unwrap()).unwrap();
        let theirs: Vec<(String, String)> = serde_json::from_value(file["model"]["merges"].clone()).unwrap();
        let ours: Vec<_> = model.merges().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        assert_eq!(ours, theirs);
    }
}

fn special(tokens: &[String]) -> Vec<AddedToken> {
    tokens.iter().map(|token| AddedToken::from(token.as_str(), true)).collect()
}

fn bpe_like(ours: &BpeTrainer, lines: &[String]) {
    let mut ours = ours.clone();
    let (prefix, suffix) = (ours.continuing_subword_prefix.clone(), ours.end_of_word_suffix.clone());
    if prefix.is_some() || suffix.is_some() {
        // The smallest vocabulary is the special tokens, the alphabet and its forms.
        let vocab_size = ours.special_tokens.len() + ours.initial_alphabet.len() + 1;
        let smallest = BpeTrainer { vocab_size, ..ours.clone() };
        let alphabet = pieces(&smallest.train(lines).unwrap());
        let forms = alphabet.into_iter().skip(ours.special_tokens.len()).filter(|t| t.chars().count() > 1);
        ours.special_tokens.extend(forms);
    }
    let mut builder = bpe::BpeTrainer::builder()
        .vocab_size(ours.vocab_size)
        .min_frequency(ours.min_frequency)
        .show_progress(false)
        .special_tokens(special(&ours.special_tokens))
        .max_token_length(ours.max_token_chars);
    let mut alphabet = ours.initial_alphabet.clone();
    if ours.byte_level {
        alphabet.extend(tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet());
    }
    builder = builder.initial_alphabet(alphabet.into_iter().collect());
    if let Some(limit) = ours.limit_alphabet {
        builder = builder.limit_alphabet(limit);
    }
    if let Some(prefix) = prefix {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    assert_same(&ours.train(lines).unwrap(), builder.build().into(), lines);
}

fn wordpiece_like(ours: &WordPieceTrainer, lines: &[String]) {
    let mut ours = ours.clone();
    let smallest = WordPieceTrainer { vocab_size: ours.special_tokens.len() + 1, ..ours.clone() };
    let alphabet = pieces(&smallest.train(lines).unwrap());
    let forms = alphabet.into_iter().skip(ours.special_tokens.len()).filter(|t| t.chars().count() > 1);
    ours.special_tokens.extend(forms);
    let mut builder = wordpiece::WordPieceTrainer::builder()
        .vocab_size(ours.vocab_size)
        .min_frequency(ours.min_frequency)
        .show_progress(false)
        .special_tokens(special(&ours.special_tokens))
        .initial_alphabet(ours.initial_alphabet.iter().copied().collect())
        .continuing_subword_prefix(ours.continuing_subword_prefix.clone());
    if let Some(limit) = ours.limit_alphabet {
        builder = builder.limit_alphabet(limit);
    }
    assert_same(&ours.train(lines).unwrap(), builder.build().into(), lines);
}

#[test]
fn byte_level() {
    let Some(lines) = corpus(53) else {
        return;
    };
    let base = BpeTrainer { vocab_size: 3000, ..Default::default() };
    let normalizer = Normalizer::Sequence { normalizers: vec![Normalizer::NFKC, Normalizer::Lowercase] };
    for trainer in [
        base.clone(),
        BpeTrainer { vocab_size: 400, special_tokens: Vec::new(), ..base.clone() },
        BpeTrainer { vocab_size: 30_000, min_frequency: 10, ..base.clone() },
        BpeTrainer { max_token_chars: Some(5), ..base.clone() },
        // Every pair of bytes is as long as the limit, yet the first ones are joined.
        BpeTrainer { max_token_chars: Some(2), vocab_size: 2000, ..base.clone() },
        BpeTrainer { initial_alphabet: vec!['☃', 'a'], ..base.clone() },
        // Special tokens that are also learnt, or bytes.
        BpeTrainer { special_tokens: ["Ġthe", "e", "ing", "he"].map(String::from).into(), ..base.clone() },
        BpeTrainer { normalizer: Some(normalizer), ..base.clone() },
        BpeTrainer { normalizer: Some(Normalizer::NFD), ..base.clone() },
        BpeTrainer { pre_tokenizer: Some(PreTokenizer::WhitespaceSplit), ..base.clone() },
    ] {
        bpe_like(&trainer, &lines);
    }
}

#[test]
fn characters() {
    let Some(lines) = corpus(97) else {
        return;
    };
    let base = BpeTrainer { vocab_size: 1500, end_of_word_suffix: None, ..BpeTrainer::characters() };
    let mark = |mark: &str| Some(mark.to_owned());
    for trainer in [
        base.clone(),
        BpeTrainer { end_of_word_suffix: mark("</w>"), ..base.clone() },
        BpeTrainer { continuing_subword_prefix: mark("##"), min_frequency: 7, ..base.clone() },
        BpeTrainer {
            continuing_subword_prefix: mark("@@"),
            end_of_word_suffix: mark("_"),
            max_token_chars: Some(6),
            ..base.clone()
        },
        BpeTrainer { limit_alphabet: Some(60), ..base.clone() },
        BpeTrainer {
            limit_alphabet: Some(40),
            initial_alphabet: vec!['☃', 'ß', 'z'],
            end_of_word_suffix: mark("</w>"),
            normalizer: Some(Normalizer::BertNormalizer(BertNormalizer::uncased())),
            ..base.clone()
        },
        BpeTrainer { pre_tokenizer: Some(PreTokenizer::Whitespace), ..base.clone() },
        BpeTrainer { vocab_size: 20_000, max_token_chars: Some(4), ..base.clone() },
    ] {
        bpe_like(&trainer, &lines);
    }
}

#[test]
fn word_pieces() {
    let Some(lines) = corpus(59) else {
        return;
    };
    let base = WordPieceTrainer { vocab_size: 2500, ..Default::default() };
    for trainer in [
        base.clone(),
        WordPieceTrainer { lowercase: false, ..base.clone() },
        WordPieceTrainer { vocab_size: 20_000, min_frequency: 15, ..base.clone() },
        WordPieceTrainer { limit_alphabet: Some(50), initial_alphabet: vec!['☃', 'é'], ..base.clone() },
        WordPieceTrainer { continuing_subword_prefix: "@".into(), ..base.clone() },
    ] {
        wordpiece_like(&trainer, &lines);
    }
}

#[test]
#[ignore = "all lines, several sizes: minutes"]
fn all_lines() {
    let Some(lines) = corpus(1) else {
        return;
    };
    for vocab_size in [1000, 8192, 30_000, 50_000] {
        for min_frequency in [0, 2] {
            bpe_like(&BpeTrainer { vocab_size, min_frequency, ..Default::default() }, &lines);
            bpe_like(&BpeTrainer { vocab_size, min_frequency, ..BpeTrainer::characters() }, &lines);
            wordpiece_like(&WordPieceTrainer { vocab_size, min_frequency, ..Default::default() }, &lines);
        }
        wordpiece_like(&WordPieceTrainer { vocab_size, lowercase: false, ..Default::default() }, &lines);
    }
}

/// Any number of threads, any order of the lines: the same file.
#[test]
fn deterministic() {
    let words =
        ["so", "sun", "Sunday", "naïve", "中文", "don't", "x12", "--", "<b>", "🙂", "running", "runs"];
    let lines: Vec<String> = (0..5000usize)
        .map(|i| (0..i % 13).map(|j| words[(i * 7 + j * j * 5) % 12]).collect::<Vec<_>>().join(" "))
        .collect();
    let wordpiece = WordPieceTrainer { vocab_size: 90, ..Default::default() };
    let likelihood =
        WordPieceTrainer { score: WordPieceScore::Likelihood, min_frequency: 3, ..wordpiece.clone() };
    let bpe = BpeTrainer { vocab_size: 300, ..Default::default() };
    let train = |lines: &[String]| {
        [
            wordpiece.train(lines).unwrap().to_json(),
            likelihood.train(lines).unwrap().to_json(),
            bpe.train(lines).unwrap().to_json(),
        ]
    };
    let first = train(&lines);
    let backwards: Vec<String> = lines.iter().rev().cloned().collect();
    assert!(first == train(&backwards));
    for threads in [1, 2, 5, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(first == pool.install(|| train(&lines)), "{threads} threads");
    }
}

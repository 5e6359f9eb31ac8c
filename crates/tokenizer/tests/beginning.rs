//! Encoding reads no more of a text than decides what truncation leaves, and gives what reading all of it gives.

#![allow(clippy::unwrap_used)]

use std::{fs, sync::LazyLock};

use cloze_tokenizer::{
    AddedToken, BertNormalizer, ByteLevel, Encoding, Error, Input, Metaspace, Normalizer, OffsetUnit,
    Pattern, PreTokenizer, Replace, Sequence, SplitBehavior, SplitPattern, Tokenizer, Truncation,
    TruncationStrategy,
    train::{BpeTrainer, WordPieceTrainer},
};
use proptest::{prelude::*, sample::select};

const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TEXT: [&str; 2] = ["the old sailor's boats sail", "he sails 12 old seas; naïve 中文 été"];

fn wordpiece() -> Tokenizer {
    WordPieceTrainer { vocab_size: 90, ..Default::default() }.train(TEXT).unwrap()
}

fn bytes() -> Tokenizer {
    BpeTrainer { vocab_size: 300, ..Default::default() }.train(TEXT).unwrap()
}

fn split(pattern: &str, behavior: SplitBehavior, invert: bool) -> PreTokenizer {
    let pattern = Pattern::regex(pattern).unwrap();
    let split = PreTokenizer::Split(SplitPattern { pattern, behavior, invert });
    let level = PreTokenizer::ByteLevel(ByteLevel { use_regex: false, ..ByteLevel::gpt2() });
    PreTokenizer::Sequence { pretokenizers: vec![split, level] }
}

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(tokenizers);

/// Every stage that may be read from its beginning, and one or two that may not.
fn tokenizers() -> Vec<Tokenizer> {
    let sequence = |normalizers| Normalizer::Sequence { normalizers };
    let replace =
        |pattern: Pattern, content: &str| Normalizer::Replace(Replace { pattern, content: content.into() });
    let normalizers = [
        Normalizer::BertNormalizer(BertNormalizer::cased()),
        Normalizer::NFC,
        sequence(vec![Normalizer::NFKD, Normalizer::StripAccents, Normalizer::Lowercase]),
        sequence(vec![
            replace(Pattern::string("``"), "\""),
            replace(Pattern::string("he "), "h"),
            Normalizer::NFKC,
            replace(Pattern::regex(" {2,}").unwrap(), " "),
        ]),
        read(r#"{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Nmt"}]}"#),
        read(r#"{"type":"Strip","strip_left":true,"strip_right":false}"#),
        read(r#"{"type":"Strip","strip_left":true,"strip_right":true}"#),
    ];
    let pre_tokenizers = [
        PreTokenizer::Whitespace,
        PreTokenizer::WhitespaceSplit,
        PreTokenizer::UnicodeScripts,
        PreTokenizer::Metaspace(Metaspace::default()),
        read(r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}"#),
        read(r#"{"type":"Digits","individual_digits":false}"#),
        read(r#"{"type":"Punctuation","behavior":"MergedWithNext"}"#),
        read(r#"{"type":"Punctuation","behavior":"Contiguous"}"#),
        read(r#"{"type":"CharDelimiterSplit","delimiter":"e"}"#),
        read(r#"{"type":"FixedLength","length":5}"#),
        read(r#"{"type":"Split","pattern":{"String":"s "},"behavior":"MergedWithPrevious","invert":false}"#),
        read(r#"{"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"Removed","invert":false}"#),
        PreTokenizer::Sequence {
            pretokenizers: vec![PreTokenizer::WhitespaceSplit, PreTokenizer::BertPreTokenizer],
        },
    ];
    let byte_levels = [
        PreTokenizer::ByteLevel(ByteLevel::gpt2()),
        PreTokenizer::ByteLevel(ByteLevel::default()),
        split(CL100K, SplitBehavior::Isolated, false),
        split(O200K, SplitBehavior::Removed, true),
    ];
    let mut all = vec![wordpiece(), bytes()];
    all.extend(normalizers.map(|n| wordpiece().with_normalizer(n).unwrap()));
    all.extend(pre_tokenizers.map(|p| wordpiece().with_pre_tokenizer(p)));
    all.extend(byte_levels.map(|p| bytes().with_pre_tokenizer(p)));
    let mut with_added = vec![wordpiece(), bytes()];
    for tokenizer in &mut with_added {
        let word = AddedToken { single_word: true, ..AddedToken::plain("sea") };
        let wide = AddedToken { lstrip: true, rstrip: true, ..AddedToken::special("<x>") };
        tokenizer.add_tokens([word, wide, AddedToken::plain("é s"), AddedToken::special("  ")]).unwrap();
    }
    all.extend(with_added);
    all
}

/// What stages tell apart, in runs.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => select(vec![
            "the ", "old ", "sailor's ", "sea", "he ", "12", " ", "  ", "\n", "\t\r\n", "'", "'ll", "-", "``", "<x>", "é s",
            "中文", "か\u{3099}", "e\u{301}", "\u{301}", "é", "ﬁ", "가", "ᄀ\u{1161}", "🙂", "👩\u{200d}🚀", "🇩🇪", "🇩", "\u{200b}",
            "ABc", "Abc", "ſ", "Σ", "\u{a0}", "ｶ\u{ff9e}", "\0",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    (prop::collection::vec((piece, 1usize..40), 1..30), 0usize..3).prop_map(|(pieces, times)| {
        let text: String = pieces.iter().map(|(piece, times)| piece.repeat(*times)).collect();
        text.repeat(1 << times)
    })
}

fn without_overflow(encoding: Encoding) -> Encoding {
    Encoding { overflowing: Vec::new(), ..encoding }
}

fn forgetting(tokenizer: &Tokenizer) -> Tokenizer {
    let mut tokenizer = tokenizer.clone();
    tokenizer.set_keep_overflow(false);
    tokenizer
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn as_reading_the_whole_text(
        a in text(),
        b in "[a-z' ]{0,40}",
        max_length in 8usize..80,
        strategy in select(vec![TruncationStrategy::LongestFirst, TruncationStrategy::OnlyFirst, TruncationStrategy::OnlySecond]),
        special in any::<bool>(),
        unit in select(vec![OffsetUnit::Bytes, OffsetUnit::Chars]),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut whole in TOKENIZERS.iter().cloned() {
            whole.set_truncation(Some(Truncation { strategy, ..Truncation::to(max_length) })).unwrap();
            let bounded = forgetting(&whole);
            let words: Vec<&str> = a.split(' ').collect();
            let inputs: [Input; 4] =
                [(&a).into(), (&a, &b).into(), (&b, &words).into(), Sequence::Words(&words).into()];
            for input in inputs {
                let expected = whole.encode_input(input, special, unit).unwrap();
                prop_assert_eq!(expected.truncated, !expected.overflowing.is_empty());
                let found = bounded.encode_input(input, special, unit).unwrap();
                prop_assert_eq!(found, without_overflow(expected), "{:?}", input);
            }
            let expected = whole.encode(&a, special).unwrap();
            prop_assert_eq!(whole.encode_ids(&a, special).unwrap(), &expected.ids[..]);
            let end = a.floor_char_boundary(cut.index(a.len() + 1));
            // Behind what the vector has already.
            for text in [(&a).into(), (&words).into(), Sequence::Beginning(&a[..end])] {
                let mut ids = vec![7, 8];
                let appended = whole.encode_ids_into(text, special, &mut ids);
                let found = whole.encode_input(text, special, OffsetUnit::Bytes);
                prop_assert_eq!(appended.is_ok(), found.is_ok());
                let found = found.map_or_else(|_| Vec::new(), |found| found.ids);
                prop_assert_eq!(ids, [&[7, 8][..], &found].concat(), "{:?}", text);
            }
            match whole.encode_input(Sequence::Beginning(&a[..end]), special, OffsetUnit::Bytes) {
                Ok(found) => prop_assert_eq!(found, without_overflow(expected)),
                Err(error) => prop_assert!(matches!(error, Error::Undecided { .. }), "{}", error),
            }
        }
    }
}

/// Beginnings decide: texts of each kind that they are meant for.
#[test]
fn beginnings_of_long_texts_decide() {
    let long = |piece: &str| piece.repeat(20_000 / piece.len());
    let words = long("the old sailor's boats sail. ");
    let (ideographs, marks) = (long("中文字"), long("1 2 e\u{301}\u{301} é "));
    for mut tokenizer in
        [wordpiece(), bytes(), bytes().with_pre_tokenizer(split(O200K, SplitBehavior::Isolated, false))]
    {
        tokenizer.set_truncation(Some(Truncation::to(64))).unwrap();
        for text in [&words, &ideographs, &marks] {
            // In one of BPE's words there may be any number of ideographs.
            let decides = tokenizer.encode_input(Sequence::Beginning(text), true, OffsetUnit::Bytes);
            if text == &ideographs && tokenizer.token_to_id("Ġ").is_some() {
                assert!(matches!(decides, Err(Error::Undecided { truncates: true, .. })));
                continue;
            }
            assert_eq!(decides.unwrap(), without_overflow(tokenizer.encode(text, true).unwrap()));
        }
        let undecided = |tokenizer: &Tokenizer, text: &str| {
            let input = Sequence::Beginning(text);
            tokenizer.encode_input(input, true, OffsetUnit::Bytes).unwrap_err().to_string()
        };
        assert_eq!(
            undecided(&tokenizer, "the old"),
            "the first 7 bytes do not decide how the text is encoded: they have too few pieces, or the tokenizer looks \
             further ahead"
        );
        tokenizer.set_truncation(None).unwrap();
        assert!(undecided(&tokenizer, &words).ends_with("the tokenizer does not cut texts at their ends"));
    }
}

/// Real text of many scripts, where the repository's neighbour has it.
#[test]
fn real_texts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/corpus");
    let Ok(files) = fs::read_dir(folder) else {
        eprintln!("skipped: no {folder}");
        return;
    };
    for file in files {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for mut whole in TOKENIZERS.iter().cloned() {
            whole.set_truncation(Some(Truncation::to(300))).unwrap();
            let bounded = forgetting(&whole);
            for start in [0, text.len() / 3, text.len() / 2] {
                let start = text.floor_char_boundary(start);
                let end = text.ceil_char_boundary((start + 30_000).min(text.len()));
                let part = &text[start..end];
                let expected = whole.encode(part, true).unwrap();
                assert_eq!(bounded.encode_ids(part, true).unwrap(), expected.ids);
                assert_eq!(bounded.encode(part, true).unwrap(), without_overflow(expected));
            }
        }
    }
}

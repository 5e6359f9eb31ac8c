//! Encodings beside the `tokenizers` crate's, on generated text: offsets in bytes and characters, the maps
//! between characters, words and pieces, inputs of words, truncation, padding and added tokens.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use cloze_tokenizer::{
    AddedToken, ByteLevel, Encoding, Input, OffsetUnit, Padding, PaddingDirection, PaddingStrategy,
    PostProcessor, Sequence, Tokenizer, Truncation, TruncationDirection, TruncationStrategy,
    train::{BpeTrainer, WordPieceTrainer},
};
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use tokenizers as theirs;

type Reference = theirs::Tokenizer;

const TEXT: [&str; 3] =
    ["the old sailor's boats sail", "he sails 12 old seas; naïve 中文 été", "boats, seas and sailors"];

fn wordpiece() -> Tokenizer {
    let trainer = WordPieceTrainer { vocab_size: 90, ..Default::default() };
    trainer.train(TEXT).unwrap()
}

fn bytes() -> Tokenizer {
    let trainer = BpeTrainer { vocab_size: 300, ..Default::default() };
    trainer.train(TEXT).unwrap()
}

/// One of each kind of special tokens and of trimming, as the reference reads it too.
fn tokenizers() -> Vec<(Tokenizer, Reference)> {
    let id = |tokenizer: &Tokenizer, token: &str| (token.to_owned(), tokenizer.token_to_id(token).unwrap());
    let bert = wordpiece();
    let (cls, sep) = (id(&bert, "[CLS]"), id(&bert, "[SEP]"));
    let bert = bert.with_post_processor(PostProcessor::BertProcessing { sep, cls }).unwrap();
    let roberta = |trim_offsets, add_prefix_space| {
        let mut tokenizer = bytes();
        tokenizer.add_tokens(["<s>", "</s>"].map(AddedToken::special)).unwrap();
        let (cls, sep) = (id(&tokenizer, "<s>"), id(&tokenizer, "</s>"));
        tokenizer
            .with_post_processor(PostProcessor::RobertaProcessing {
                sep,
                cls,
                trim_offsets,
                add_prefix_space,
            })
            .unwrap()
    };
    let trimmed = ByteLevel { trim_offsets: true, ..ByteLevel::default() };
    let all = [
        wordpiece(),
        bert,
        roberta(true, false),
        roberta(false, true),
        bytes().with_post_processor(PostProcessor::ByteLevel(trimmed)).unwrap(),
    ];
    let reference = |tokenizer: &Tokenizer| tokenizer.to_json().parse().unwrap();
    all.into_iter().map(|tokenizer| (reference(&tokenizer), tokenizer)).map(|(r, t)| (t, r)).collect()
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => select(vec!["the", "sailors", "boat", "seas", "old", "12", "été", "naïve", "x", "Sail", "'s"])
            .prop_map(String::from),
        5 => "[ \t\n\u{a0}\u{3000}]{1,2}",
        1 => any::<char>().prop_map(String::from),
        1 => "[ßİﬁe\u{301}中文가👩\u{200d}🇩א]{1,4}",
        1 => "[!-/_]{1,2}",
        1 => select(vec!["[SEP]", "</s>", "[MASK]"]).prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Runs `check` on generated values, the same in every run: 500 of them, or as many as the environment says.
fn on<S: Strategy>(values: S, check: impl Fn(S::Value)) {
    let cases = std::env::var("CLOZE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    runner
        .run(&values, |value| {
            check(value);
            Ok(())
        })
        .unwrap();
}

/// Text as it stands, or as words.
fn sequence() -> impl Strategy<Value = (Vec<String>, bool)> {
    prop_oneof![
        text().prop_map(|text| (vec![text], false)),
        prop::collection::vec(text(), 0..5).prop_map(|words| (words, true)),
    ]
}

fn our_sequence<'a>((texts, words): &'a (Vec<String>, bool), room: &'a mut Vec<&'a str>) -> Sequence<'a> {
    room.extend(texts.iter().map(String::as_str));
    if *words { Sequence::Words(room) } else { Sequence::Text(room[0]) }
}

fn their_sequence((texts, words): &(Vec<String>, bool)) -> theirs::InputSequence<'static> {
    if *words { texts.clone().into() } else { texts[0].clone().into() }
}

fn assert_same(ours: &Encoding, theirs: &theirs::Encoding, at: &dyn std::fmt::Debug) {
    assert_same_pieces(ours, theirs, at);
    let sequences = theirs.get_sequence_ids();
    let sequences: Vec<_> = sequences.into_iter().map(|s| s.map(|s| s as u32)).collect();
    assert_eq!(ours.sequence_ids, sequences, "sequence ids of {at:?}");
}

fn assert_same_vectors(ours: &Encoding, theirs: &theirs::Encoding, at: &dyn std::fmt::Debug) {
    assert_eq!(ours.ids, theirs.get_ids(), "ids of {at:?}");
    assert_eq!(ours.tokens, theirs.get_tokens(), "tokens of {at:?}");
    assert_eq!(ours.offsets, theirs.get_offsets(), "offsets of {at:?}");
    assert_eq!(ours.word_ids, theirs.get_word_ids(), "word ids of {at:?}");
    assert_eq!(ours.special_tokens_mask, theirs.get_special_tokens_mask(), "{at:?}");
    assert_eq!(ours.attention_mask, theirs.get_attention_mask(), "{at:?}");
}

fn assert_same_pieces(ours: &Encoding, theirs: &theirs::Encoding, at: &dyn std::fmt::Debug) {
    assert_same_vectors(ours, theirs, at);
    assert_eq!(ours.type_ids, theirs.get_type_ids(), "type ids of {at:?}");
    let overflowing = theirs.get_overflowing();
    assert_eq!(ours.overflowing.len(), overflowing.len(), "overflow of {at:?}");
    for (ours, theirs) in ours.overflowing.iter().zip(overflowing) {
        assert_same_vectors(ours, theirs, at);
        // Each part is there once. (In the reference, parts of pairs have overflow again.)
        assert!(ours.overflowing.is_empty());
        // RoBERTa's type id 0 reaches them there only with special tokens.
        if theirs.get_special_tokens_mask().contains(&1) {
            assert_eq!(ours.type_ids, theirs.get_type_ids(), "type ids of {at:?}");
        }
        // The reference forgets which text some of the overflowing parts are of.
        let special = ours.sequence_ids.iter().map(|id| u32::from(id.is_none()));
        assert_eq!(special.collect::<Vec<_>>(), ours.special_tokens_mask, "{at:?}");
    }
}

fn assert_same_maps(ours: &Encoding, theirs: &theirs::Encoding, at: &dyn std::fmt::Debug) {
    for token in 0..=ours.len() + 1 {
        let wide = |(sequence, value)| (sequence as u32, value);
        // Of the token after the last, the reference says that it is of the first text.
        if token < ours.len() {
            let sequence = theirs.token_to_sequence(token).map(|s| s as u32);
            assert_eq!(ours.token_to_sequence(token), sequence, "{at:?}");
        }
        assert_eq!(ours.token_to_chars(token), theirs.token_to_chars(token).map(wide), "{at:?}");
        let wide = |(sequence, value)| (sequence as u32, value);
        assert_eq!(ours.token_to_word(token), theirs.token_to_word(token).map(wide), "{at:?}");
    }
    // Of a text that is not there, the reference answers for all of them.
    for sequence in (0..2).filter(|&s| ours.sequence_range(s).is_some()) {
        let number = sequence as usize;
        for char in 0..80 {
            assert_eq!(ours.char_to_token(char, sequence), theirs.char_to_token(char, number), "{at:?}");
            assert_eq!(ours.char_to_word(char, sequence), theirs.char_to_word(char, number), "{at:?}");
        }
        for word in 0..20 {
            let tokens = ours.word_to_tokens(word, sequence).map(|range| (range.start, range.end));
            assert_eq!(tokens, theirs.word_to_tokens(word, number), "{at:?}");
            assert_eq!(ours.word_to_chars(word, sequence), theirs.word_to_chars(word, number), "{at:?}");
        }
    }
}

#[test]
fn offsets_words_and_maps() {
    for (tokenizer, reference) in tokenizers() {
        on((sequence(), prop::option::of(sequence()), any::<bool>()), |(first, second, special)| {
            let (mut room, mut other_room) = (Vec::new(), Vec::new());
            let input = Input {
                first: our_sequence(&first, &mut room),
                second: second.as_ref().map(|second| our_sequence(second, &mut other_room)),
            };
            let expected = || match &second {
                Some(second) => theirs::EncodeInput::Dual(their_sequence(&first), their_sequence(second)),
                None => theirs::EncodeInput::Single(their_sequence(&first)),
            };
            let bytes = reference.encode(expected(), special).unwrap();
            let chars = reference.encode_char_offsets(expected(), special).unwrap();
            for (unit, theirs) in [(OffsetUnit::Bytes, bytes), (OffsetUnit::Chars, chars)] {
                let encoding = tokenizer.encode_input(input, special, unit).unwrap();
                assert_same(&encoding, &theirs, &(input, unit));
                assert_same_maps(&encoding, &theirs, &(input, unit));
                assert_eq!(tokenizer.encode_inputs(&[input; 2], special, unit).unwrap()[1], encoding);
            }
        });
    }
}

fn truncation() -> impl Strategy<Value = Truncation> {
    use TruncationDirection::{Left, Right};
    use TruncationStrategy::{LongestFirst, OnlyFirst, OnlySecond};
    let strategy = select(vec![LongestFirst, OnlyFirst, OnlySecond]);
    (select(vec![Left, Right]), strategy, 4_usize..14, 0_usize..6).prop_map(
        |(direction, strategy, max_length, stride)| Truncation { direction, max_length, strategy, stride },
    )
}

/// The reference is given its own whole encodings to cut, since it encodes no more than it keeps and so
/// loses what overflows.
#[test]
fn truncation_with_overflow() {
    for (tokenizer, reference) in tokenizers() {
        on((text(), prop::option::of(text()), any::<bool>(), truncation()), |(a, b, special, truncation)| {
            let (mut tokenizer, mut reference) = (tokenizer.clone(), reference.clone());
            // Trimmed once, after the cut.
            let mut bare = reference.clone();
            bare.with_post_processor(None::<theirs::PostProcessorWrapper>);
            let first = bare.encode(a.as_str(), false).unwrap();
            let second = b.as_ref().map(|b| {
                let mut pair = bare.encode(b.as_str(), false).unwrap();
                let ones = vec![1; pair.len()];
                pair.set_type_ids(ones);
                pair
            });
            let both_long = second.as_ref().is_some_and(|s| s.len().min(first.len()) > truncation.max_length);
            if tokenizer.set_truncation(Some(truncation.clone())).is_err() || both_long {
                return;
            }
            let json: serde_json::Value = serde_json::from_str(&tokenizer.to_json()).unwrap();
            let params = serde_json::from_value(json["truncation"].clone()).unwrap();
            reference.with_truncation(Some(params)).unwrap();
            // It fails where the named text is too short, and panics where the stride leaves no room.
            let cut = || reference.post_process(first, second, special);
            let Ok(Ok(expected)) = catch_unwind(AssertUnwindSafe(cut)) else {
                return;
            };
            let encoding = match &b {
                Some(b) => tokenizer.encode_pair(&a, b, special).unwrap(),
                None => tokenizer.encode(&a, special).unwrap(),
            };
            // Where a text is cut, the reference may forget which one its pieces are of.
            assert_same_pieces(&encoding, &expected, &(a, b, special, truncation));
        });
    }
}

#[test]
fn padding_of_batches() {
    let strategy =
        prop_oneof![Just(PaddingStrategy::BatchLongest), (0_usize..20).prop_map(PaddingStrategy::Fixed),];
    let direction = select(vec![PaddingDirection::Left, PaddingDirection::Right]);
    let padding = (strategy, direction, prop::option::of(0_usize..9)).prop_map(
        |(strategy, direction, pad_to_multiple_of)| Padding {
            strategy,
            direction,
            pad_to_multiple_of,
            pad_id: 7,
            pad_type_id: 3,
            pad_token: "[PAD]".into(),
        },
    );
    let values = (prop::collection::vec((text(), text()), 1..4), padding, any::<bool>()).boxed();
    for (tokenizer, _) in tokenizers() {
        on(values.clone(), |(pairs, padding, special)| {
            let mut tokenizer = tokenizer.clone();
            tokenizer.set_padding(Some(padding.clone())).unwrap();
            tokenizer.set_truncation(Some(Truncation { stride: 1, ..Truncation::to(9) })).unwrap();
            assert_eq!(tokenizer.padding(), Some(&padding));
            // The settings go through the file.
            let mut reference: Reference = tokenizer.to_json().parse().unwrap();
            assert_eq!(Tokenizer::from_json(&tokenizer.to_json()).unwrap().padding(), Some(&padding));
            tokenizer.set_truncation(None).unwrap();
            reference.with_truncation(None).unwrap();
            let expected = reference.encode_batch(pairs.clone(), special).unwrap();
            let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a, b)).collect();
            let batch = tokenizer.encode_inputs(&pairs, special, OffsetUnit::Bytes).unwrap();
            for (ours, theirs) in batch.iter().zip(&expected) {
                assert_same(ours, theirs, &(&pairs, &padding, special));
            }
            let texts: Vec<&str> = pairs.iter().map(|(a, _)| a.as_str()).collect();
            let expected = reference.encode_batch(texts.clone(), special).unwrap();
            for (ours, theirs) in tokenizer.encode_batch(&texts, special).unwrap().iter().zip(&expected) {
                assert_same(ours, theirs, &(&texts, &padding, special));
            }
        });
    }
}

#[test]
fn added_tokens_with_every_flag() {
    let contents = ["ab", "abc", "b", "<x>", "<X> y", "é", "E\u{301}t", "ö", "a b", "old", "sai", "##l"];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let token = (select(contents.to_vec()), flags).prop_map(
        |(content, (single_word, lstrip, rstrip, normalized, special))| AddedToken {
            content: content.into(),
            single_word,
            lstrip,
            rstrip,
            normalized,
            special,
        },
    );
    let piece = prop_oneof![
        4 => select(contents.to_vec()).prop_map(String::from),
        2 => select(vec!["AB", "Abc", "ABC", "e\u{301}", "É", "<X>Y", "_", "sail", "'s"]).prop_map(String::from),
        2 => "[ \t\u{a0}\u{3000}\u{200b}]{1,3}",
        1 => any::<char>().prop_map(String::from),
    ];
    let text = prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat());
    let values = (prop::collection::vec(token, 1..6), prop::collection::vec(text, 4)).boxed();
    for tokenizer in [wordpiece(), bytes()] {
        on(values.clone(), |(tokens, texts)| {
            let mut tokenizer = tokenizer.clone();
            tokenizer.add_tokens(tokens.clone()).unwrap();
            // The reference cannot have a token that normalises to nothing.
            let Ok(mut reference) = tokenizer.to_json().parse::<Reference>() else {
                return;
            };
            for ignore_special in [false, true] {
                tokenizer.set_encode_special_tokens(ignore_special);
                reference.set_encode_special_tokens(ignore_special);
                for text in &texts {
                    let encoding = tokenizer.encode_input(text, true, OffsetUnit::Chars).unwrap();
                    let theirs = reference.encode_char_offsets(text.as_str(), true).unwrap();
                    assert_same(&encoding, &theirs, &(text, &tokens));
                    // In bytes, the reference counts white space of several as one.
                    if text.chars().all(|c| c.is_ascii() || !c.is_whitespace()) {
                        let theirs = reference.encode(text.as_str(), true).unwrap();
                        assert_same(&tokenizer.encode(text, true).unwrap(), &theirs, &(text, &tokens));
                    }
                    // The reference does not leave out a special token whose normal form is another.
                    let plain = !tokens.iter().any(|t| t.special && t.normalized);
                    for skip in [false, true].into_iter().filter(|skip| plain || !skip) {
                        let decoded = reference.decode(&encoding.ids, skip).unwrap();
                        assert_eq!(
                            tokenizer.decode(&encoding.ids, skip).unwrap(),
                            decoded,
                            "{text:?} {tokens:?}"
                        );
                    }
                    let (mut ids, mut starts) = (Vec::new(), Vec::new());
                    tokenizer.encode_into(text, &mut ids, &mut starts).unwrap();
                    assert_eq!(ids, tokenizer.encode(text, false).unwrap().ids, "{text:?} {tokens:?}");
                }
            }
        });
    }
}

/// Folders that transformers 4.57.6 wrote, with what its fast tokenizers make of them.
#[test]
fn folders_without_tokenizer_json() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer_config");
    let expected: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(data.join("expected.json")).unwrap()).unwrap();
    let ids = |value: &serde_json::Value| serde_json::from_value::<Vec<u32>>(value.clone()).unwrap();
    for (name, length, pad) in [("bert", Some(77), 0), ("roberta", Some(99), 1), ("gpt2", None, 264)] {
        let tokenizer = Tokenizer::load(data.join(name)).unwrap();
        assert_eq!(tokenizer.config().model_max_length, length, "{name}");
        let special = tokenizer.special_ids();
        assert_eq!(special.pad, Some(pad), "{name}");
        // Saved, the folder has both files, and gives the same.
        let folder = tempfile::tempdir().unwrap();
        tokenizer.save(folder.path()).unwrap();
        assert!(folder.path().join("tokenizer_config.json").is_file());
        let again = Tokenizer::load(folder.path()).unwrap();
        assert_eq!(again.to_json(), tokenizer.to_json(), "{name}");
        assert_eq!(again.special_ids(), special, "{name}");
        assert_eq!(again.config().model_max_length, length, "{name}");
        // transformers takes it from here, whatever the other file says.
        let prefix = [("roberta", true), ("gpt2", false)].into_iter().find(|(n, _)| *n == name);
        assert_eq!(again.config().add_prefix_space, prefix.map(|(_, prefix)| prefix), "{name}");
        let texts = expected["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
        for (text, expected) in texts.zip(expected["exp"][name].as_array().unwrap()) {
            let encoding = tokenizer.encode(text, true).unwrap();
            assert_eq!(encoding.ids, ids(&expected[0]), "{name}: {text:?}");
            assert_eq!(
                tokenizer.encode_pair(text, "the old", true).unwrap().ids,
                ids(&expected[1]),
                "{name}: {text:?}"
            );
            assert_eq!(
                tokenizer.decode(&encoding.ids, true).unwrap(),
                expected[2].as_str().unwrap(),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn configs_that_are_wrong_are_named() {
    let folder = tempfile::tempdir().unwrap();
    wordpiece().save(folder.path()).unwrap();
    let path = folder.path().join("tokenizer_config.json");
    for (text, expected) in [
        ("{\"model_max_length\": -1}", "model_max_length is -1, expected a whole number"),
        ("{\"pad_token\": 7}", "line 1, column"),
        ("{\"added_tokens_decoder\": {\"x\": {}}}", "line 1, column"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Tokenizer::load(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("tokenizer_config.json"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(expected), "{cause}");
    }
}

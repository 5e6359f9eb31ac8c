//! Unigram, word-level and character-level models, SentencePiece's rules and their trainers beside the
//! `tokenizers` crate. What needs the shared corpora is skipped, with a line saying so, where they are absent.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use cloze_tokenizer::{
    AddedToken, Model, Normalizer, PreTokenizer, Precompiled, Tokenizer, Unigram, Vocab, WordLevel,
    train::{UnigramTrainer, WordLevelTrainer},
};
use proptest::prelude::*;
use tokenizers as theirs;
use tokenizers::Trainer as _;

type Reference = theirs::Tokenizer;

/// Every `step`-th line of every shared corpus.
fn corpus(step: usize) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/corpus");
    if !folder.exists() {
        println!("skipped: no shared/data/corpus beside the repository");
        return Vec::new();
    }
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|f| fs::read_to_string(f).unwrap() + "\n").collect();
    text.lines().step_by(step).map(str::to_owned).collect()
}

fn assert_same(ours: &Tokenizer, reference: &Reference, text: &str) {
    let theirs = reference.encode(text, true).unwrap();
    let encoding = ours.encode(text, true).unwrap();
    assert_eq!(encoding.ids, theirs.get_ids(), "ids of {text:?}");
    assert_eq!(encoding.tokens, theirs.get_tokens(), "tokens of {text:?}");
    assert_eq!(encoding.offsets, theirs.get_offsets(), "offsets of {text:?}");
    assert_eq!(encoding.word_ids, theirs.get_word_ids(), "word ids of {text:?}");
    assert_eq!(encoding.special_tokens_mask, theirs.get_special_tokens_mask(), "{text:?}");
    for skip in [true, false] {
        let decoded = reference.decode(&encoding.ids, skip).unwrap();
        assert_eq!(ours.decode(&encoding.ids, skip).unwrap(), decoded, "decoding {text:?}");
    }
    let mut ids = Vec::new();
    ours.encode_into(text, &mut ids, &mut Vec::new()).unwrap();
    assert_eq!(ids, encoding.ids, "encode_into of {text:?}");
}

/// Text that makes trouble here: every plane, marks, controls, spaces, what the rules and pieces name.
fn odd_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-e]{1,12}",
        4 => "(the|old|sailor|sail|ing|boat|s|sea|\u{2581}){1,4}",
        2 => "[a-zA-Z'0-9]{1,8}",
        2 => "[ \t\r\n\u{a0}\u{2028}\u{3000}\u{85}]{1,3}",
        2 => any::<char>().prop_map(String::from),
        1 => "[aeiou\u{393}][\u{300}-\u{308}]{1,3}",
        1 => "[\u{ff21}\u{ff22}\u{ff41}\u{3000}\u{ad}\u{200b}\u{2026}\u{fb01}\u{bd}\u{2122}\u{1f600}]{1,4}",
        1 => "[\u{300}-\u{36f}\u{591}-\u{5bd}\u{3099}\u{600}\u{1d165}]{1,3}",
        1 => "[가-힣ᄀ-ᇿ一-龥ぁ-ん𠀀-𠀯]{1,4}",
        1 => "[\u{0}-\u{20}\u{7f}-\u{9f}\u{feff}\u{fffd}\u{e000}\u{f0000}]{1,2}",
        1 => "[👩👨👧\u{200d}❤\u{fe0f}🏳🌈🇩🇪🏽]{1,5}",
        1 => "[אבגשׁابتثئ]{1,4}",
        1 => prop_oneof![Just("<unk>"), Just("<s>"), Just("<0xC3>"), Just("<x>"), Just("é")]
            .prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Runs `check` on generated text: 2,000 strings, or the number in the environment.
fn on_odd_text(check: impl Fn(&str)) {
    let cases = std::env::var("CLOZE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&odd_text(), |text| {
            check(&text);
            Ok(())
        })
        .unwrap();
}

const LINES: [&str; 4] = [
    "the old sailor sails the old sea, and the sea is old",
    "sailing boats sail; old boats sink. \u{2581}new boats sail on newer seas!",
    "a bad cab, a dead bee, an added bead: abc abcd bcde deed cede",
    "naïve façade, déjà vu; 日本語の文章 Москва",
];

fn charsmap() -> Precompiled {
    let json = fs::read_to_string(golden("unigram.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    serde_json::from_value(serde_json::json!({
        "precompiled_charsmap": json["normalizer"]["normalizers"][0]["precompiled_charsmap"]
    }))
    .unwrap()
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sentencepiece").join(name)
}

fn same_in_reference(ours: Tokenizer) -> (Tokenizer, Reference) {
    let reference = ours.to_json().parse().unwrap();
    (ours, reference)
}

fn with_stages(model: Model, variant: usize) -> Tokenizer {
    let mut tokenizer = Tokenizer::new(model);
    if variant.is_multiple_of(2) {
        tokenizer = tokenizer.with_normalizer(Normalizer::Precompiled(charsmap())).unwrap();
    }
    match variant / 2 % 3 {
        0 => {}
        1 => tokenizer = tokenizer.with_pre_tokenizer(PreTokenizer::WhitespaceSplit),
        _ => tokenizer = tokenizer.with_pre_tokenizer(PreTokenizer::BertPreTokenizer),
    }
    let strip = AddedToken { lstrip: true, rstrip: true, ..AddedToken::special("<x>") };
    tokenizer.add_tokens([strip, AddedToken::plain("é")]).unwrap();
    tokenizer
}

/// Models with ties, with positive scores, with byte fallback, with the unknown token in odd places.
fn models() -> Vec<Model> {
    let letters = ["a", "b", "c", "d", "e"];
    let mut all = Vec::new();
    // Every combination of up to three letters, with scores from so few values that ties abound.
    let mut pieces = vec![("<unk>".to_owned(), 0.0), ("<s>".to_owned(), 0.0)];
    for (i, a) in letters.iter().enumerate() {
        pieces.push((a.to_string(), -1.0));
        for (j, b) in letters.iter().enumerate() {
            pieces.push((format!("{a}{b}"), -1.0 - ((i + j) % 3) as f64 * 0.5));
            pieces.push((format!("{a}{b}{a}"), -2.0 - ((i * j) % 2) as f64 * 0.5));
        }
    }
    all.push(Unigram::new(pieces.clone(), Some(0), false).unwrap());
    let positive = pieces.iter().map(|(piece, score)| (piece.clone(), score + 30.0));
    all.push(Unigram::new(positive, Some(1), false).unwrap());
    let bytes = (0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), 0.0));
    all.push(Unigram::new(pieces.clone().into_iter().chain(bytes), Some(0), true).unwrap());
    let some = ["<0xC3>", "<0xA9>", "<0xF0>", "<0x09>"].map(|byte| (byte.to_owned(), -3.0));
    all.push(Unigram::new(pieces.into_iter().chain(some), Some(0), true).unwrap());
    let mut all: Vec<_> = all.into_iter().map(Model::Unigram).collect();
    let trainer = UnigramTrainer { vocab_size: 110, pre_tokenizer: None, ..at_white_space() };
    all.push(trainer.train(LINES).unwrap().model().clone());
    all
}

#[test]
fn odd_text_unigram() {
    let mut all = Vec::new();
    for model in models() {
        all.extend((0..6).map(|variant| same_in_reference(with_stages(model.clone(), variant))));
    }
    let next = std::cell::Cell::new(0);
    on_odd_text(|text| {
        for _ in 0..3 {
            let (ours, reference) = &all[next.get() % all.len()];
            next.set(next.get() + 1);
            assert_same(ours, reference, text);
        }
    });
}

/// Normalisation alone, with the span of every byte, by way of a model that knows no character.
#[test]
fn odd_text_precompiled() {
    let unigram = Unigram::new([("<unk>", 0.0)], Some(0), false).unwrap();
    let (ours, reference) = same_in_reference(with_stages(Model::Unigram(unigram), 0));
    let (chars, chars_reference) = same_in_reference(
        Tokenizer::characters(('\0'..'\u{3ff}').chain('가'..'각'), ["<unk>"], Some("<unk>"))
            .unwrap()
            .with_normalizer(Normalizer::Precompiled(charsmap()))
            .unwrap(),
    );
    on_odd_text(|text| {
        assert_same(&ours, &reference, text);
        assert_same(&chars, &chars_reference, text);
    });
}

#[test]
fn odd_text_word_and_character_level() {
    let vocab = Vocab::from_tokens(["<unk>", "the", "old", "sailor", "s", "é", "\u{2581}"]).unwrap();
    let words = Model::WordLevel(WordLevel::new(vocab, "<unk>"));
    let words = [2, 4].map(|variant| same_in_reference(with_stages(words.clone(), variant)));
    let chars = Tokenizer::characters(LINES.concat().chars(), ["<unk>", "<s>"], Some("<unk>")).unwrap();
    let (chars, chars_reference) = same_in_reference(chars);
    on_odd_text(|text| {
        words.iter().for_each(|(ours, reference)| assert_same(ours, reference, text));
        assert_same(&chars, &chars_reference, text);
    });
}

/// The words of texts, counted as the trainers here count them.
fn feed<T: theirs::Trainer>(trainer: &mut T, lines: &[String], pre_tokenizer: &PreTokenizer) {
    trainer.feed(lines.iter(), |line| Ok(pre_tokenizer.words(line).unwrap())).unwrap();
}

fn their_unigram(lines: &[String], vocab_size: usize) -> theirs::models::unigram::Unigram {
    let mut trainer = theirs::models::unigram::UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size as u32)
        .special_tokens(["<unk>", "<s>", "</s>"].map(|t| theirs::AddedToken::from(t, true)).into())
        .unk_token(Some("<unk>".into()))
        .build()
        .unwrap();
    feed(&mut trainer, lines, &PreTokenizer::WhitespaceSplit);
    let mut model = theirs::models::unigram::Unigram::default();
    trainer.train(&mut model).unwrap();
    model
}

/// How many pieces differ, and by how much the scores of the others do at most.
fn differences(ours: &Tokenizer, theirs: &theirs::models::unigram::Unigram) -> (usize, f64) {
    let Model::Unigram(model) = ours.model() else { unreachable!("a Unigram trainer") };
    let scores: std::collections::HashMap<&str, f64> = model.scored().collect();
    let mut other = scores.len().abs_diff(theirs.iter().count());
    let mut largest = 0f64;
    for (piece, score) in theirs.iter() {
        match scores.get(piece.as_str()) {
            Some(ours) => largest = largest.max((ours - score).abs()),
            None => other += 1,
        }
    }
    (other, largest)
}

/// Words of syllables, the first ones more often, so that there is much to learn and to drop.
fn syllables() -> Vec<String> {
    let mut state = 11u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let (starts, ends) = (["b", "st", "l", "gr", "n", "t", "v"], ["a", "en", "i", "or", "u", "ai", "e"]);
    let words: Vec<String> = (0..2000)
        .map(|_| {
            let syllables = 1 + next(4);
            (0..syllables)
                .map(|_| format!("{}{}", starts[next(7) as usize], ends[next(7) as usize]))
                .collect()
        })
        .collect();
    let mut line = || {
        let words = (0..12).map(|_| {
            let below = 1 + next(2000);
            words[next(below) as usize].as_str()
        });
        words.collect::<Vec<_>>().join(" ")
    };
    (0..2000).map(|_| line()).collect()
}

#[test]
fn trains_as_the_reference_does() {
    let lines = LINES.map(String::from).to_vec();
    let syllables = syllables();
    let few = [70, 80, 100, 150].map(|vocab_size| (&lines, vocab_size));
    let many = [60, 200, 600].map(|vocab_size| (&syllables, vocab_size));
    for (lines, vocab_size) in few.into_iter().chain(many) {
        let trainer = UnigramTrainer { vocab_size, ..at_white_space() };
        let (other, largest) = differences(&trainer.train(lines).unwrap(), &their_unigram(lines, vocab_size));
        assert_eq!(other, 0, "{vocab_size}");
        // Characters that are never used alone have scores in steps of 0.0001, in the reference in random order.
        let alone = if lines.len() < 10 { 1e-6 } else { 0.0025 };
        assert!(largest < alone, "{largest} at {vocab_size}");
    }
}

#[test]
fn trains_words_as_the_reference_does() {
    let mut lines = corpus(401);
    lines.extend(LINES.map(String::from));
    for (vocab_size, min_frequency) in [(20, 0), (3000, 2), (100_000, 0)] {
        let trainer = WordLevelTrainer {
            vocab_size,
            min_frequency,
            special_tokens: vec!["[UNK]".into()],
            ..Default::default()
        };
        let ours = trainer.train(&lines).unwrap();
        let mut trainer = theirs::models::wordlevel::WordLevelTrainer::builder()
            .show_progress(false)
            .vocab_size(vocab_size)
            .min_frequency(min_frequency)
            .special_tokens(vec![theirs::AddedToken::from("[UNK]", true)])
            .build()
            .unwrap();
        feed(&mut trainer, &lines, &PreTokenizer::Whitespace);
        let mut model = theirs::models::wordlevel::WordLevel::default();
        trainer.train(&mut model).unwrap();
        let theirs: Vec<_> =
            (0..vocab_size as u32).map_while(|id| theirs::Model::id_to_token(&model, id)).collect();
        let ours: Vec<_> = ours.model().vocab().iter().map(|(_, token)| token.to_owned()).collect();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn training_is_deterministic() {
    let lines: Vec<String> = (0..500).map(|i| format!("{} {} w{}", LINES[i % 4], i * 7919, i % 97)).collect();
    let trainer = UnigramTrainer { vocab_size: 200, ..at_white_space() };
    let first = trainer.train(&lines).unwrap().to_json();
    assert!(first == trainer.train(lines.iter().rev()).unwrap().to_json(), "the order of lines");
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert!(first == one.install(|| trainer.train(&lines)).unwrap().to_json(), "the number of threads");
}

/// Real text with a model trained on part of it, here and by the reference.
#[test]
fn real_text() {
    let lines = corpus(97);
    if lines.is_empty() {
        return;
    }
    let trainer = UnigramTrainer { vocab_size: 1000, ..at_white_space() };
    let trained = trainer.train(&lines).unwrap();
    let theirs = their_unigram(&lines, 1000);
    let (other, largest) = differences(&trained, &theirs);
    // Characters that are never used alone have scores in steps of 0.0001, in the reference in random order.
    assert!(other == 0 && largest < 0.05, "{other} {largest}");
    let mut theirs = Reference::new(theirs);
    theirs.with_pre_tokenizer(Some(theirs::pre_tokenizers::whitespace::WhitespaceSplit));
    let theirs = Tokenizer::from_json(&theirs.to_string(false).unwrap()).unwrap();
    let whole = Tokenizer::new(trained.model().clone());
    for ours in [trained, theirs, whole] {
        let (ours, reference) = same_in_reference(ours);
        for line in corpus(61) {
            assert_same(&ours, &reference, &line);
        }
    }
}

/// Words end at white space, which goes.
fn at_white_space() -> UnigramTrainer {
    UnigramTrainer { pre_tokenizer: Some(PreTokenizer::WhitespaceSplit), decoder: None, ..Default::default() }
}

/// A `.model` file encodes as what transformers makes of it, and, where nothing is converted that
/// `tokenizer.json` cannot say, as SentencePiece does.
#[test]
fn sentencepiece_models() {
    let expected: Vec<serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(golden("expected.json")).unwrap()).unwrap();
    let mut same = 0;
    for name in ["unigram", "unigram-bytes", "unigram-plain", "bpe", "bpe-bytes"] {
        let ours = Tokenizer::load(golden(&format!("{name}.model"))).unwrap();
        let (ours, written) = same_in_reference(ours);
        let converted = Reference::from_file(golden(&format!("{name}.json"))).unwrap();
        for case in expected.iter().filter(|case| case["model"] == name) {
            let text = case["text"].as_str().unwrap();
            assert_same(&ours, &written, text);
            // The converter ignores that this one leaves white space as it is.
            if name != "unigram-plain" {
                assert_same(&ours, &converted, text);
            }
            same += usize::from(case["ids"] == serde_json::json!(ours.encode(text, false).unwrap().ids));
        }
        on_odd_text(|text| assert_same(&ours, &written, text));
    }
    println!("{same} of {} texts as SentencePiece has them", expected.len());
}

/// Figures: `cargo test --release -p cloze-tokenizer --test unigram -- --ignored --nocapture`.
#[test]
#[ignore = "minutes, in a release build"]
fn figures() {
    let lines = corpus(1);
    let bytes: usize = lines.iter().map(String::len).sum();
    let cpu = || {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<f64> =
            stat.rsplit(')').next().unwrap_or("").split(' ').filter_map(|f| f.parse().ok()).collect();
        // utime and stime, in hundredths of a second.
        fields.get(10).zip(fields.get(11)).map_or(f64::NAN, |(u, s)| (u + s) / 100.0)
    };
    let time = |what: &str, work: &mut dyn FnMut()| {
        let (start, before) = (Instant::now(), cpu());
        work();
        println!("{what:<60} {:8.2} s, {:8.2} s CPU", start.elapsed().as_secs_f64(), cpu() - before);
    };
    let mut trained = None;
    time("train 8,000 pieces", &mut || {
        trained = Some(at_white_space().train(&lines).unwrap());
    });
    let mut theirs = None;
    time("train 8,000 pieces, tokenizers", &mut || theirs = Some(their_unigram(&lines, 8000)));
    let (trained, theirs) = (trained.unwrap(), theirs.unwrap());
    println!("pieces that differ, largest difference of scores: {:?}", differences(&trained, &theirs));
    for (what, ours) in [("words", trained.clone()), ("lines", Tokenizer::new(trained.model().clone()))] {
        let (ours, reference) = same_in_reference(ours);
        println!("{what}: {:.1} MB", bytes as f64 / 1e6);
        time("  encode_into", &mut || {
            let (mut ids, mut starts) = (Vec::new(), Vec::new());
            for line in &lines {
                ids.clear();
                starts.clear();
                ours.encode_into(line, &mut ids, &mut starts).unwrap();
            }
        });
        time("  encode", &mut || lines.iter().for_each(|line| drop(ours.encode(line, true).unwrap())));
        time("  tokenizers, encode_fast", &mut || {
            lines.iter().for_each(|line| drop(reference.encode_fast(line.as_str(), true).unwrap()));
        });
        for line in &lines {
            assert_same(&ours, &reference, line);
        }
        println!("  no difference on {} lines", lines.len());
    }
    let whole = Tokenizer::new(trained.model().clone());
    for unit in ["ab", "  ", "🙂", "e"] {
        for megabytes in [1, 10] {
            let text = unit.repeat((megabytes << 20) / unit.len());
            time(&format!("{megabytes} MB of {unit:?}"), &mut || {
                whole.encode_into(&text, &mut Vec::new(), &mut Vec::new()).unwrap();
            });
        }
    }
}

/// How often each way is drawn is as its probability to the power of alpha, among all and among the best;
/// 4.9 standard deviations, which chance passes once in a million times.
#[test]
fn tokenizers_draw_in_proportion() {
    use cloze_tokenizer::Sampling;
    use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};

    let pieces = [("<unk>", 0.0), ("a", -1.0), ("b", -1.2), ("ab", -1.9), ("ba", -2.5), ("aba", -2.8)];
    let model = Unigram::new(pieces, Some(0), false).unwrap();
    for (alpha, nbest) in
        [(1.0, None), (0.3, None), (0.0, None), (2.0, Some(3)), (0.5, Some(2)), (0.5, Some(1))]
    {
        let ways = model.nbest("aba", nbest.unwrap_or(9));
        assert_eq!(ways.len(), nbest.unwrap_or(4));
        let mut tokenizer = Tokenizer::new(Model::Unigram(model.clone()));
        let best = tokenizer.encode("aba", false).unwrap();
        tokenizer.set_sampling(Some(Sampling { alpha, nbest })).unwrap();
        assert_eq!(tokenizer.encode("aba", false).unwrap(), best, "without a generator, the best");
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        const TIMES: usize = 20_000;
        let mut drawn = vec![0; ways.len()];
        for _ in 0..TIMES {
            let ids = tokenizer.encode_sampled("aba", false, &mut rng).unwrap().ids;
            drawn[ways.iter().position(|way| way.ids == ids).unwrap()] += 1;
        }
        let total: f64 = ways.iter().map(|way| (alpha * way.log_prob).exp()).sum();
        for (way, drawn) in ways.iter().zip(drawn) {
            let p = (alpha * way.log_prob).exp() / total;
            let expected = p * TIMES as f64;
            let deviation = (expected * (1.0 - p)).sqrt();
            assert!(
                (f64::from(drawn) - expected).abs() <= 4.9 * deviation,
                "{alpha} {nbest:?} {way:?}: {drawn}"
            );
        }
        let again =
            |seed| tokenizer.encode_sampled("abaabab", false, &mut Pcg64Mcg::seed_from_u64(seed)).unwrap();
        assert_eq!(again(5), again(5));
    }
    let mut words = Tokenizer::bert(Vocab::from_tokens(["[UNK]"]).unwrap(), true).unwrap();
    let error = words.set_sampling(Some(Sampling { alpha: 0.1, nbest: None })).unwrap_err().to_string();
    assert!(error.starts_with("sampling: only a Unigram model"), "{error}");
}

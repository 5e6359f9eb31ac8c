//! Noisy texts and their targets, from a corpus to batches.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::parallel::PairBatch;
use cloze_data::{
    CorpusConfig, CorpusExamples, Cursor, DataError, DenoisingConfig, DenoisingData, DenoisingStats,
    Documents, Loader, Noise, NoiseCounts, NoisyText, PairConfig, PreparedCorpus, Random, Sentinels, Silent,
    SpecialPieces, Split, UnigramCounts,
};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::BpeTrainer;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const SEQ_LEN: usize = 96;

/// 60 documents of 1 to 12 sentences of 2 to 12 words.
fn text() -> String {
    let words = ["river", "mountains", "slowly", "debate", "unhappily", "old", "harvests", "road", "sea"];
    let mut text = String::new();
    for document in 0..60usize {
        for sentence in 0..1 + document * 5 % 12 {
            let n = 2 + (document * 3 + sentence * 7) % 11;
            let sentence: Vec<&str> =
                (0..n).map(|i| words[(document * document + sentence + i * 4) % words.len()]).collect();
            text += &format!("The {}.\n", sentence.join(" "));
        }
        text.push('\n');
    }
    text
}

/// Bytes and a few pieces, with so many sentinels.
fn tokenizer(sentinels: usize) -> Tokenizer {
    let special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"].map(String::from);
    let special_tokens = special.into_iter().chain((0..sentinels).map(Sentinels::name)).collect();
    BpeTrainer { vocab_size: 300 + sentinels, special_tokens, ..Default::default() }.train([text()]).unwrap()
}

fn documents(text: &str, tokenizer: &Tokenizer, folder: &Path) -> Documents {
    std::fs::write(folder.join("corpus.txt"), text).unwrap();
    let config = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
    let (corpus, _) =
        PreparedCorpus::prepare(&config, folder, tokenizer, &folder.join("cache"), &Silent).unwrap();
    Documents::new(Arc::new(corpus), Split::Train, 0.0, 11).unwrap()
}

fn config(json: &str) -> DenoisingConfig {
    serde_json::from_str(json).unwrap()
}

fn data(
    config: &DenoisingConfig,
    pairs: &PairConfig,
    tokenizer: &Tokenizer,
    seed: u64,
    folder: &Path,
) -> cloze_data::Result<DenoisingData> {
    let documents = documents(&text(), tokenizer, folder);
    let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
    let cache = folder.join("cache");
    DenoisingData::new(documents, SEQ_LEN, pairs, config, tokenizer, &unigram, seed, cache)
}

/// All batches of the first epochs.
fn batches(data: DenoisingData, n: usize) -> Vec<PairBatch> {
    Loader::new(Arc::new(data), 8).batches(Cursor::default()).take(n).map(|batch| batch.unwrap()).collect()
}

#[test]
fn noises_of_ones_own_are_applied_in_order() {
    /// Leaves each document's last sentence alone.
    struct LastSentence;
    impl Noise for LastSentence {
        fn apply(&self, text: &mut NoisyText, _: &mut Random) -> NoiseCounts {
            for stretch in text.stretches().into_iter().rev() {
                let mut parts = text.sentences(&stretch);
                parts.reverse();
                text.rearrange(&stretch, &parts);
            }
            NoiseCounts::default()
        }
    }
    /// Reads each document backwards.
    struct Backwards;
    impl Noise for Backwards {
        fn apply(&self, text: &mut NoisyText, _: &mut Random) -> NoiseCounts {
            for stretch in text.stretches() {
                let parts: Vec<_> = stretch.clone().rev().map(|token| token..token + 1).collect();
                text.rearrange(&stretch, &parts);
            }
            NoiseCounts::default()
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::characters('a'..='z', ["<s>", "</s>"], None).unwrap();
    let documents = documents("ab\ncd\ne\n\nfg\nh\n", &tokenizer, folder.path());
    let special = SpecialPieces::find(&tokenizer);
    let special = special.with_begin(&tokenizer, "<s>").unwrap().with_end(&tokenizer, "</s>").unwrap();
    let cache = folder.path().join("cache");
    let sampler = PairConfig::FullSentences.sampler();
    let examples = CorpusExamples::new(documents, sampler, special, 20, 1, cache).unwrap();
    let data = DenoisingData::from_parts(examples, vec![Box::new(LastSentence), Box::new(Backwards)]);
    let batch = Loader::new(Arc::new(data), 1).one_pass(1).unwrap().remove(0);
    let shown = |ids: &[i32]| -> String {
        ids.iter().map(|id| tokenizer.id_to_token(*id as u32).unwrap()).collect::<Vec<_>>().concat()
    };
    assert_eq!(shown(&batch.source.ids), "<s>badce</s>gfh</s>", "words backwards, sentences as they were");
    assert_eq!(shown(&batch.target.ids), "<s>abcde</s>fgh</s>");
    let DenoisingStats { examples, tokens, sentences, documents, source_tokens, target_tokens, .. } =
        batch.noise;
    assert_eq!((examples, tokens, sentences, documents), (1, 8, 5, 2));
    assert_eq!((source_tokens, target_tokens), (11, 11));
}

#[test]
fn barts_targets_are_the_texts_and_its_numbers_the_papers() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(0);
    let data = data(&DenoisingConfig::default(), &PairConfig::FullSentences, &tokenizer, 1, folder.path());
    let data = Arc::new(data.unwrap());
    let plan = data.examples().plan(0, &Default::default()).unwrap();
    let [begin, end, mask] = ["<s>", "</s>", "<mask>"].map(|name| tokenizer.token_to_id(name).unwrap());
    let mut stats = DenoisingStats::default();
    for place in 0..plan.len() {
        let example = plan.example(place);
        let pair = data.pair(0, place, &example);
        assert_eq!(pair.target, data.examples().tokens(&example).ids);
        assert_eq!((pair.source[0], pair.source.last()), (begin, Some(&end)));
        let ends = |ids: &[u32]| ids.iter().filter(|id| **id == end).count();
        assert_eq!(ends(&pair.source), ends(&pair.target), "documents stay apart");
        let masks = pair.source.iter().filter(|id| **id == mask).count() as u64;
        assert_eq!(masks, pair.stats.noise.tokens.span_masks);
        stats += &pair.stats;
    }
    assert_eq!((stats.examples, stats.cut), (plan.len(), 0));
    let tokens = stats.noise.tokens;
    assert!((tokens.masked as f64 / stats.tokens as f64 - 0.3).abs() < 0.01, "{stats:?}");
    // The last span of each document is cut.
    let mean = stats.mean_span().unwrap();
    assert!((2.5..3.0).contains(&mean), "{mean}");
    assert!(stats.noise.moved_sentences * 2 > stats.sentences, "{stats:?}");
    assert_eq!((tokens.deleted, tokens.inserted, tokens.moved, tokens.random), (0, 0, 0, 0));
}

#[test]
fn t5s_sources_and_targets_have_the_text_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(100);
    let t5 = config(r#"{"kind": "t5"}"#);
    let data = data(&t5, &PairConfig::FullSentences, &tokenizer, 1, folder.path()).unwrap();
    let plan = data.examples().plan(0, &Default::default()).unwrap();
    let sentinels = Sentinels::find(&tokenizer);
    assert_eq!(sentinels.len(), 100);
    let end = tokenizer.token_to_id("</s>").unwrap();
    let mut stats = DenoisingStats::default();
    for place in 0..plan.len() {
        let example = plan.example(place);
        let pair = data.pair(0, place, &example);
        stats += &pair.stats;
        let (target_end, target) = pair.target.split_last().unwrap();
        assert_eq!((*target_end, pair.source.last()), (end, Some(&end)));
        let mut spans = BTreeMap::new();
        for span in target.chunk_by(|_, next| !sentinels.ids().contains(next)) {
            spans.insert(span[0], &span[1..]);
        }
        let restored: Vec<u32> =
            pair.source.iter().flat_map(|id| spans.get(id).map_or(vec![*id], |span| span.to_vec())).collect();
        assert_eq!(restored, data.examples().tokens(&example).ids);
        let longest = t5.longest(SEQ_LEN);
        assert!(pair.source.len() <= longest[0] && pair.target.len() <= longest[1]);
    }
    let share = stats.noise.tokens.masked as f64 / stats.tokens as f64;
    assert!((share - 0.15).abs() < 0.005, "{share}");
    let mean = stats.mean_span().unwrap();
    assert!((mean - 3.0).abs() < 0.25, "{mean}: 14 tokens in 5 spans");
}

#[test]
fn a_batch_is_a_function_of_seed_epoch_and_example() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(100);
    let noises = r#"{"kind": "bart", "noises": [{"kind": "rotation"}, {"kind": "reordering"}, {"kind": "deletion"},
        {"kind": "insertion"}, {"kind": "substitution"}, {"kind": "masking", "share": 0.1}]}"#;
    for json in [noises, r#"{"kind": "t5"}"#] {
        let make =
            |seed| data(&config(json), &PairConfig::DocSentences, &tokenizer, seed, folder.path()).unwrap();
        let first = batches(make(1), 30);
        assert_eq!(first, batches(make(1), 30));
        assert_ne!(first, batches(make(2), 30));
        // A run that goes on in the middle, on more threads.
        let loader = Loader::new(Arc::new(make(1)), 8).with_workers(3);
        let mut from_start = loader.batches(Cursor::default());
        from_start.by_ref().take(11).for_each(drop);
        let rest: Vec<PairBatch> =
            loader.batches(from_start.cursor()).take(19).map(|batch| batch.unwrap()).collect();
        assert_eq!(first[11..], rest);
        // Another epoch has other noise: the same texts, in the batch of the whole epoch.
        let data = make(1);
        let plan = data.examples().plan(0, &Default::default()).unwrap();
        let example = plan.example(0);
        assert_ne!(data.pair(0, 0, &example).source, data.pair(1, 0, &example).source);
        assert_ne!(data.pair(0, 0, &example).source, data.pair(0, 1, &example).source);
    }
}

#[test]
fn a_source_that_grows_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(0);
    let grows = config(r#"{"kind": "bart", "noises": [{"kind": "insertion", "share": 0.8}]}"#);
    let data = data(&grows, &PairConfig::FullSentences, &tokenizer, 1, folder.path()).unwrap();
    let end = tokenizer.token_to_id("</s>").unwrap() as i32;
    let mut stats = DenoisingStats::default();
    for batch in batches(data, 5) {
        for source in batch.source.iter() {
            assert!(source.len() <= SEQ_LEN && source.last() == Some(&end));
        }
        stats += &batch.noise;
    }
    let lost = stats.target_tokens + stats.noise.tokens.inserted - stats.source_tokens;
    assert!(stats.cut > 0 && stats.cut == lost, "{stats:?}");
}

#[test]
fn what_a_tokenizer_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let t5 = config(r#"{"kind": "t5"}"#);
    let pairs = PairConfig::FullSentences;
    let refused = |config: &DenoisingConfig, tokenizer: &Tokenizer| {
        data(config, &pairs, tokenizer, 1, folder.path()).unwrap_err()
    };
    let error = refused(&t5, &tokenizer(3));
    assert!(matches!(error, DataError::Sentinels { found: 3, needed: 6, seq_len: SEQ_LEN }), "{error:?}");
    let message = error.to_string();
    for part in
        ["has 3 of the pieces <extra_id_0>", "`denoising.kind` = \"t5\" needs 6", "`examples.seq_len` = 96"]
    {
        assert!(message.contains(part), "{message}");
    }
    let without = |names: &[&str]| {
        let special_tokens = names.iter().map(|name| (*name).to_owned()).collect();
        BpeTrainer { vocab_size: 300, special_tokens, ..Default::default() }.train([text()]).unwrap()
    };
    let message = refused(&DenoisingConfig::default(), &without(&["<s>", "</s>"])).to_string();
    assert!(message.contains("no mask"), "{message}");
    let message = refused(&DenoisingConfig::default(), &without(&[])).to_string();
    assert!(message.contains("no piece that ends texts"), "{message}");
    let message = refused(&config(r#"{"kind": "t5", "density": 2}"#), &tokenizer(9)).to_string();
    assert!(message.contains("`denoising.density` is 2"), "{message}");
    // Noises without a mask need none.
    let rotation = config(r#"{"kind": "bart", "noises": [{"kind": "rotation"}]}"#);
    data(&rotation, &pairs, &without(&["<s>", "</s>"]), 1, folder.path()).unwrap();
}

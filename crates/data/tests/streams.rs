//! Every random stream of the crate has fixed values: runs are resumed and compared by them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::labelled::{BatchSize, Buckets};
use cloze_data::{
    CorpusConfig, Cursor, DenoisingConfig, DenoisingData, Documents, ExampleConfig, Loader, MaskUnit,
    MaskingConfig, OrderConfig, OrderedBatch, OrderedBlocks, PairConfig, Permutation, PreparedCorpus,
    PretrainingBatch, PretrainingData, RandomFrom, RunningText, Sentinels, Silent, Split, UnigramCounts,
};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::{BpeTrainer, WordPieceTrainer};
use std::sync::Arc;

const SEQ_LEN: usize = 44;

/// 50 documents of 1 to 13 sentences of 2 to 12 words.
fn text() -> String {
    let words = ["river", "mountains", "slowly", "debate", "unhappily", "old", "harvests", "road", "sea"];
    let mut text = String::new();
    for document in 0..50usize {
        for sentence in 0..1 + document * 5 % 13 {
            let n = 2 + (document * 3 + sentence * 7) % 11;
            let sentence: Vec<&str> =
                (0..n).map(|i| words[(document * document + sentence + i * 4) % words.len()]).collect();
            text += &format!("The {}.\n", sentence.join(" "));
        }
        text.push('\n');
    }
    text
}

/// A hash of numbers.
#[derive(Default)]
struct Sum(blake3::Hasher);

impl Sum {
    fn add(&mut self, values: impl IntoIterator<Item = i64>) {
        for value in values {
            self.0.update(&value.to_le_bytes());
        }
        self.0.update(b"|");
    }

    fn end(self) -> String {
        self.0.finalize().to_hex()[..16].to_string()
    }
}

/// All that is in a batch, in its padded form.
fn add(sum: &mut Sum, batch: &PretrainingBatch, next: Cursor) {
    let ids = |ids: &[i32]| ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>();
    let padded = batch.tokens.padded();
    sum.add([padded.batch_size as i64, padded.seq_len as i64]);
    sum.add(ids(&padded.input_ids));
    sum.add(ids(&padded.token_type_ids));
    sum.add(padded.pad_mask.iter().map(|ignored| i64::from(*ignored)));
    sum.add(ids(&batch.tokens.padded_places(&batch.masked_positions)));
    sum.add(ids(&batch.masked_labels));
    sum.add(ids(&batch.pair_labels));
    sum.add([next.epoch as i64, next.example as i64]);
    let stats = &batch.stats;
    sum.add([stats.examples, stats.tokens, stats.padding, stats.random_pairs].map(|n| n as i64));
    sum.add([stats.short, stats.truncated].map(|n| n as i64));
    let masking = stats.masking;
    sum.add([masking.maskable, masking.predicted, masking.masked].map(|n| n as i64));
    sum.add([masking.random, masking.kept].map(|n| n as i64));
}

/// 60 batches of training examples, which run over epochs, and one pass over the held-out ones.
fn batches(tokenizer: &Tokenizer, pairs: PairConfig, masking: MaskingConfig) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("corpus.txt"), text()).unwrap();
    let config = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
    let cache = folder.path().join("cache");
    let (corpus, _) = PreparedCorpus::prepare(&config, folder.path(), tokenizer, &cache, &Silent).unwrap();
    let corpus = Arc::new(corpus);
    let part = |split, seed| {
        let documents = Documents::new(corpus.clone(), split, 0.25, 11).unwrap();
        let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
        let config = ExampleConfig::new(SEQ_LEN).with_pairs(pairs.clone()).with_masking(masking.clone());
        Arc::new(PretrainingData::new(documents, config, tokenizer, unigram, seed, cache.clone()).unwrap())
    };
    let mut sum = Sum::default();
    let loader = Loader::new(part(Split::Train, 11), 8).with_workers(2).with_ahead(3);
    let mut training = loader.batches(Cursor::default());
    for _ in 0..60 {
        let batch = training.next().unwrap().unwrap();
        add(&mut sum, &batch, training.cursor());
    }
    for batch in Loader::new(part(Split::HeldOut, 12), 5).one_pass(60).unwrap() {
        add(&mut sum, &batch, Cursor::default());
    }
    sum.end()
}

#[test]
fn batches_are_the_same_in_every_version() {
    let wordpiece = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text()]).unwrap();
    let byte_level = BpeTrainer { vocab_size: 290, ..Default::default() }.train([text()]).unwrap();
    let default = MaskingConfig::default();
    let mut words = default.clone();
    (words.unit, words.random_from) = (MaskUnit::WholeWord, RandomFrom::Unigram);
    let mut fixed = default.clone();
    (fixed.static_copies, fixed.max_predictions, fixed.random_share) = (2, 3, 0.2);
    let order = PairConfig::SentenceOrder { short_seq_prob: 0.3 };
    let found = [
        batches(&wordpiece, PairConfig::default(), default.clone()),
        batches(&wordpiece, order, words.clone()),
        batches(&wordpiece, PairConfig::DocSentences, fixed),
        batches(&wordpiece, PairConfig::FullSentences, default.clone()),
        batches(&byte_level, PairConfig::default(), words),
        batches(&byte_level, PairConfig::FullSentences, default),
    ];
    assert_eq!(
        found,
        [
            "e6793a4c14b36194",
            "475af20eff3d6ac2",
            "2a46ca8fb63e149f",
            "c37c7e45138299a0",
            "76d9463dd043722a",
            "0d620adb51dd08db",
        ]
    );
}

#[test]
fn each_masked_token_has_a_number_to_sample_by() {
    let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("corpus.txt"), text()).unwrap();
    let corpus = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
    let cache = folder.path().join("cache");
    let (corpus, _) = PreparedCorpus::prepare(&corpus, folder.path(), &tokenizer, &cache, &Silent).unwrap();
    let documents = Documents::new(Arc::new(corpus), Split::Train, 0.25, 11).unwrap();
    let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
    let config = ExampleConfig::new(SEQ_LEN);
    let data = Arc::new(PretrainingData::new(documents, config, &tokenizer, unigram, 11, cache).unwrap());
    let drawn = |workers| -> Vec<f32> {
        let loader = Loader::new(data.clone(), 8).with_workers(workers);
        let batches = loader.batches(Cursor::default()).take(60).map(|batch| batch.unwrap());
        let numbers = batches.map(|batch| {
            assert_eq!(batch.uniform.len(), batch.masked_positions.len());
            batch.uniform
        });
        numbers.flatten().collect()
    };
    let numbers = drawn(2);
    assert!(numbers == drawn(1), "they depend on the number of workers");
    let mut sum = Sum::default();
    sum.add(numbers.iter().map(|number| i64::from(number.to_bits())));
    assert_eq!(sum.end(), "dde3c4d6dcd8995e");
    assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
    let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
    assert!(numbers.len() > 1_000 && (mean - 0.5).abs() < 0.04, "{mean}, of {}", numbers.len());
}

/// 60 batches of noisy texts, which run over epochs.
fn denoised(tokenizer: &Tokenizer, pairs: PairConfig, config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("corpus.txt"), text()).unwrap();
    let corpus = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
    let cache = folder.path().join("cache");
    let (corpus, _) = PreparedCorpus::prepare(&corpus, folder.path(), tokenizer, &cache, &Silent).unwrap();
    let documents = Documents::new(Arc::new(corpus), Split::Train, 0.25, 11).unwrap();
    let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
    let config: DenoisingConfig = serde_json::from_str(config).unwrap();
    let data =
        DenoisingData::new(documents, SEQ_LEN, &pairs, &config, tokenizer, &unigram, 11, cache).unwrap();
    let mut sum = Sum::default();
    for batch in Loader::new(Arc::new(data), 8).with_workers(2).batches(Cursor::default()).take(60) {
        let batch = batch.unwrap();
        for side in [&batch.source, &batch.target] {
            sum.add(side.ids.iter().map(|id| i64::from(*id)));
            sum.add(side.lengths.iter().map(|length| *length as i64));
        }
    }
    sum.end()
}

#[test]
fn noise_is_the_same_in_every_version() {
    let special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"].map(String::from);
    let special_tokens = special.into_iter().chain((0..20).map(Sentinels::name)).collect();
    let tokenizer =
        BpeTrainer { vocab_size: 320, special_tokens, ..Default::default() }.train([text()]).unwrap();
    let bart = |noises: &str| format!("{{\"kind\": \"bart\", \"noises\": [{noises}]}}");
    let found = [
        denoised(&tokenizer, PairConfig::FullSentences, r#"{"kind": "bart"}"#),
        denoised(&tokenizer, PairConfig::FullSentences, r#"{"kind": "t5"}"#),
        denoised(&tokenizer, PairConfig::DocSentences, &bart(r#"{"kind": "masking"}, {"kind": "rotation"}"#)),
        denoised(
            &tokenizer,
            PairConfig::DocSentences,
            &bart(r#"{"kind": "deletion"}, {"kind": "insertion"}, {"kind": "reordering"}"#),
        ),
        denoised(
            &tokenizer,
            PairConfig::DocSentences,
            &bart(
                r#"{"kind": "substitution", "random_from": "unigram"}, {"kind": "infilling", "whole_words": true}"#,
            ),
        ),
    ];
    let expected =
        ["eb3ee7ee774811ba", "2ee8ab80c815516f", "2f8c12602846df99", "5e34522a712b4b25", "68728fce9ccca2eb"];
    assert_eq!(found, expected);
}

#[test]
fn segments_are_the_same_in_every_version() {
    let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("corpus.txt"), text()).unwrap();
    let corpus = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
    let cache = folder.path().join("cache");
    let (corpus, _) =
        PreparedCorpus::prepare_documents(&corpus, folder.path(), &tokenizer, &cache, &Silent).unwrap();
    let documents = Documents::new(Arc::new(corpus), Split::Train, 0.25, 11).unwrap();
    let mut config = OrderConfig::new(SEQ_LEN);
    config.memory_len = 9;
    let data = OrderedBlocks::new(RunningText::of_documents(&documents, Some(3)), config, 11).unwrap();
    let mut sum = Sum::default();
    let mut add = |batch: &OrderedBatch| {
        for ids in [&batch.before, &batch.ids] {
            sum.add(ids.iter().map(|id| i64::from(*id)));
        }
        sum.add(batch.order.iter().map(|place| place.map_or(-1, i64::from)));
    };
    data.in_order(5, 20).iter().for_each(&mut add);
    for batch in Loader::new(Arc::new(data), 8).with_workers(2).batches(Cursor::default()).take(60) {
        add(&batch.unwrap());
    }
    assert_eq!(sum.end(), "7d15eba3bf386053");
}

#[test]
fn orders_are_the_same_in_every_version() {
    let mut sum = Sum::default();
    for (n, key) in [(1u64, 3u64), (10, 0), (1_000, 77), (4_099, u64::MAX)] {
        sum.add((0..n).map(|index| Permutation::new(n, key).get(index) as i64));
    }
    let lengths: Vec<usize> = (0..700).map(|i| 3 + i * i % 61).collect();
    for size in [BatchSize::Examples(8), BatchSize::Tokens(300)] {
        let buckets = Buckets::new(lengths.clone(), size, 5);
        for step in buckets.steps(17).take(400) {
            sum.add([step.epoch as i64, i64::from(step.ends_epoch)]);
            sum.add(step.examples.iter().map(|example| *example as i64));
        }
    }
    assert_eq!(sum.end(), "81c64c8366f0d4aa");
}

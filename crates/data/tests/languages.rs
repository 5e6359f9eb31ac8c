//! Several languages and their translations: what is drawn, counted, and where it goes on.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::{
    CorpusConfig, Cursor, Documents, ExampleConfig, LanguageStream, Loader, MultilingualData, PairConfig,
    PreparedCorpus, PretrainingBatch, PretrainingData, Silent, SpecialPieces, Split, TranslationFiles,
    Translations, UnigramCounts,
};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::WordPieceTrainer;
use std::collections::HashMap;
use std::sync::Arc;
use tempfile::TempDir;

/// Documents of both languages, nine times as many of the first.
const DOCUMENTS: [usize; 2] = [900, 100];
const PAIRS: usize = 200;
const BATCH: usize = 4;
const SEQ_LEN: usize = 24;

/// A sentence of words that only this language has; the words of the same number are translations of each other.
fn sentence(language: &str, number: usize) -> String {
    let words = (0..4 + number % 5).map(|place| format!("{language}{}", (number * 7 + place * 3) % 50));
    words.collect::<Vec<_>>().join(" ")
}

struct Setup {
    folder: TempDir,
    tokenizer: Tokenizer,
}

impl Setup {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        let mut all = String::new();
        for (language, n) in ["a", "b"].into_iter().zip(DOCUMENTS) {
            let text: String = (0..n).map(|i| format!("{} {i}.\n\n", sentence(language, i))).collect();
            all += &text;
            write(language, text);
            let lines: String = (0..PAIRS).map(|i| sentence(language, i) + "\n").collect();
            write(&format!("pairs.{language}"), lines);
        }
        let trainer = WordPieceTrainer { vocab_size: 300, ..Default::default() };
        let tokenizer = trainer.train([all]).unwrap();
        Self { folder, tokenizer }
    }

    fn stream(&self, number: usize, language: &str) -> LanguageStream {
        let config = CorpusConfig { files: vec![language.into()], ..Default::default() };
        let cache = self.folder.path().join("cache");
        let prepared =
            PreparedCorpus::prepare(&config, self.folder.path(), &self.tokenizer, &cache, &Silent).unwrap().0;
        let corpus = Arc::new(prepared);
        let documents = Documents::new(corpus.clone(), Split::Train, 0.0, 1).unwrap();
        assert_eq!(documents.count() as usize, DOCUMENTS[number]);
        let unigram = Arc::new(UnigramCounts::new(&documents, self.tokenizer.vocab_size()));
        let config = ExampleConfig::new(SEQ_LEN).with_pairs(PairConfig::DocSentences);
        let plans = self.folder.path().join("plans");
        let data =
            PretrainingData::new(documents, config, &self.tokenizer, unigram, 5 + number as u64, plans)
                .unwrap();
        LanguageStream::new(language, data.with_language(number as i32), DOCUMENTS[number] as u64)
    }

    fn data(&self, alpha: f64) -> MultilingualData {
        let streams = vec![self.stream(0, "a"), self.stream(1, "b")];
        MultilingualData::new(streams, alpha, BATCH, 7)
    }

    fn translations(&self, seq_len: usize) -> Translations {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let files = serde_json::json!({
            "languages": ["a", "b"],
            "text": { "source": [path("pairs.a")], "target": [path("pairs.b")] },
        });
        let files: TranslationFiles = serde_json::from_value(files).unwrap();
        let special = SpecialPieces::find(&self.tokenizer);
        let cache = self.folder.path().join("cache");
        let (translations, report) =
            Translations::prepare(&files, &self.tokenizer, special, seq_len, 100, 9, &cache, &Silent)
                .unwrap();
        assert_eq!((report.pairs as usize, translations.n_pairs() as usize), (PAIRS, PAIRS));
        translations.with_languages([0, 1])
    }

    fn with_translations(&self, seq_len: usize) -> MultilingualData {
        let masking = ExampleConfig::new(seq_len).masking;
        let special = SpecialPieces::find(&self.tokenizer);
        let counts = vec![1; self.tokenizer.vocab_size()];
        let unigram = Arc::new(UnigramCounts::from_counts(&counts));
        let corruption = masking.corruption(special.mask.unwrap(), special.all(), unigram);
        self.data(0.5).with_translations(vec![self.translations(seq_len)], corruption)
    }

    /// The text of pieces, special ones left out.
    fn text(&self, ids: &[i32]) -> String {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        self.tokenizer.decode(&ids, true).unwrap()
    }
}

/// All batches of the first epochs.
fn epochs(data: MultilingualData, n: u64) -> Vec<(u64, PretrainingBatch)> {
    let mut batches = Loader::new(Arc::new(data), 1).with_workers(2).with_ahead(4).batches(Cursor::default());
    let mut all = Vec::new();
    loop {
        let batch = batches.next().unwrap().unwrap();
        // The cursor is behind the batch.
        let Cursor { epoch, .. } = batches.cursor();
        if epoch >= n {
            return all;
        }
        all.push((epoch, batch));
    }
}

/// The sequences, masks undone.
fn rows(batch: &PretrainingBatch) -> Vec<Vec<i32>> {
    let mut ids = batch.tokens.input_ids().to_vec();
    for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
        ids[*position as usize] = *label;
    }
    let lengths = batch.tokens.starts().zip(batch.tokens.lengths());
    lengths.map(|(start, len)| ids[start..start + len].to_vec()).collect()
}

#[test]
fn languages_are_drawn_by_their_chances_and_a_batch_is_of_one() {
    let setup = Setup::new();
    for (alpha, chance) in [(1.0, 0.1), (0.5, 0.25), (0.0, 0.5)] {
        let data = setup.data(alpha);
        assert!((data.sampling().probabilities()[1] - chance).abs() < 1e-9);
        assert_eq!(data.sources(), ["a", "b"]);
        let all = epochs(data, 8);
        // As many examples an epoch as both have.
        assert_eq!(all.len(), 8 * DOCUMENTS.iter().sum::<usize>() / BATCH);
        let mut drawn = [0u64; 2];
        for (_, batch) in &all {
            let source = batch.source.unwrap();
            drawn[source] += 1;
            assert_eq!((batch.tokens.n_sequences(), batch.stats.examples as usize), (BATCH, BATCH));
            assert!(batch.tokens.token_type_ids().iter().all(|id| *id == source as i32));
            assert!(batch.tokens.position_ids().is_none());
            for row in rows(batch) {
                assert!(setup.text(&row).starts_with(["a", "b"][source]), "{}", setup.text(&row));
            }
        }
        let n = all.len() as f64;
        let deviation = (n * chance * (1.0 - chance)).sqrt();
        assert!((drawn[1] as f64 - n * chance).abs() < 5.0 * deviation, "{drawn:?} with α = {alpha}");
    }
}

#[test]
fn a_language_that_is_drawn_often_is_read_again_and_evenly() {
    let setup = Setup::new();
    // By epoch and text: how often it was drawn, and each time as what.
    type Seen = HashMap<(u64, String), (u64, Vec<Vec<i32>>)>;
    let mut seen = Seen::new();
    for (epoch, batch) in epochs(setup.data(0.5), 3) {
        if batch.source != Some(1) {
            continue;
        }
        let masked = batch.tokens.starts().zip(batch.tokens.lengths());
        let masked: Vec<Vec<i32>> =
            masked.map(|(start, len)| batch.tokens.input_ids()[start..start + len].to_vec()).collect();
        for (row, masked) in rows(&batch).into_iter().zip(masked) {
            let entry = seen.entry((epoch, setup.text(&row))).or_default();
            entry.0 += 1;
            entry.1.push(masked);
        }
    }
    // A quarter of 1,000 examples an epoch are drawn of 100, some 2.5 passes.
    for epoch in 0..3 {
        let counts: Vec<u64> =
            seen.iter().filter(|((of, _), _)| *of == epoch).map(|(_, seen)| seen.0).collect();
        assert_eq!(counts.len(), DOCUMENTS[1], "every example");
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1 && (2..=4).contains(most), "{least} to {most}");
    }
    // With other masks each time.
    let same =
        seen.values().filter(|(_, masked)| masked.len() > 1 && masked.iter().all(|one| *one == masked[0]));
    assert!(same.count() < 30, "examples with the same masks in each pass");
}

#[test]
fn batches_are_a_function_of_seed_epoch_and_place() {
    let setup = Setup::new();
    let data = Arc::new(setup.with_translations(SEQ_LEN));
    let mut whole = Loader::new(data.clone(), 1).with_workers(3).with_ahead(5).batches(Cursor::default());
    for step in 0..1_100 {
        let cursor = whole.cursor();
        let batch = whole.next().unwrap().unwrap();
        // Within the first epochs, and across their ends.
        if step % 137 == 5 || (498..503).contains(&step) {
            let again = Loader::new(data.clone(), 1).batches(cursor).next().unwrap().unwrap();
            assert_eq!(again, batch, "{cursor:?}");
        }
    }
    assert!(whole.cursor().epoch >= 2);
}

#[test]
fn every_second_batch_is_of_translations_side_by_side() {
    let setup = Setup::new();
    let data = setup.with_translations(SEQ_LEN);
    assert_eq!(data.sources(), ["a", "b", "a-b"]);
    let special = SpecialPieces::find(&setup.tokenizer);
    let [begin, end] = [special.begin, special.end].map(|piece| piece.unwrap() as i32);
    let (mut predicted, mut tokens, mut pairs) = ([0usize; 2], [0usize; 2], HashMap::<String, usize>::new());
    for (place, (_, batch)) in epochs(data, 1).into_iter().enumerate() {
        let source = batch.source.unwrap();
        assert_eq!(source == 2, place % 2 == 1);
        if source != 2 {
            continue;
        }
        let positions = batch.tokens.position_ids().unwrap();
        let types = batch.tokens.token_type_ids();
        for (row, start) in rows(&batch).into_iter().zip(batch.tokens.starts()) {
            assert!(row.len() <= SEQ_LEN);
            let second = 1 + row[1..].iter().position(|id| *id == begin).unwrap();
            assert_eq!((row[0], row[second - 1], row[row.len() - 1]), (begin, end, end));
            let expected = (0..second).chain(0..row.len() - second);
            assert!(positions[start..start + row.len()].iter().copied().eq(expected.map(|at| at as i32)));
            let expected = (0..row.len()).map(|at| i32::from(at >= second));
            assert!(types[start..start + row.len()].iter().copied().eq(expected));
            let [source, target] = [&row[..second], &row[second..]].map(|ids| setup.text(ids));
            assert_eq!(source.replace('a', "b"), target);
            *pairs.entry(source).or_default() += 1;
            for (side, ids) in [&row[..second], &row[second..]].into_iter().enumerate() {
                tokens[side] += ids.len() - 2;
            }
        }
        for position in &batch.masked_positions {
            predicted[types[*position as usize] as usize] += 1;
        }
    }
    // Of both sides alike. Of so short sequences more than 15 % are predicted, as special tokens count in the number.
    let [first, second] = [0, 1].map(|side| predicted[side] as f64 / tokens[side] as f64);
    assert!((0.14..0.26).contains(&first) && (first - second).abs() < 0.03, "{predicted:?} of {tokens:?}");
    // Pass after pass. Sentences of different numbers may be the same.
    let (least, most) = (pairs.values().min().unwrap(), pairs.values().max().unwrap());
    assert!(*least > 1 && pairs.len() > 40, "{least} to {most} of {}", pairs.len());
}

#[test]
fn translations_that_are_too_long_are_cut() {
    let setup = Setup::new();
    let data = setup.with_translations(12);
    let begin = SpecialPieces::find(&setup.tokenizer).begin.unwrap() as i32;
    let mut cut = 0;
    for (_, batch) in epochs(data, 1).into_iter().filter(|(_, batch)| batch.source == Some(2)) {
        for row in rows(&batch) {
            assert!(row.len() <= 12, "{}", row.len());
            let second = 1 + row[1..].iter().position(|id| *id == begin).unwrap();
            cut += usize::from(row.len() == 12);
            assert!(second >= 4 && row.len() - second >= 4, "both sentences keep something");
        }
    }
    assert!(cut > 100, "{cut}");
}

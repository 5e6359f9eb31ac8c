//! From a corpus on disk to batches: what BERT's data pipeline promises, counted.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::{
    BatchStats, CorpusConfig, Cursor, Documents, Example, ExampleConfig, Loader, MaskUnit, MaskingConfig,
    PairConfig, PreparedCorpus, PretrainingBatch, PretrainingData, RandomFrom, Room, Silent, SpecialPieces,
    Split, UnigramCounts,
};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::{BpeTrainer, WordPieceTrainer};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const SEQ_LEN: usize = 48;

/// 60 documents of 3 to 22 sentences of 3 to 12 words.
fn text() -> String {
    let words =
        ["river", "mountain", "quickly", "senators", "debating", "unhappily", "old", "harvest", "roads"];
    let mut text = String::new();
    for document in 0..60usize {
        for sentence in 0..3 + document % 20 {
            let n = 3 + (document * 7 + sentence * 5) % 10;
            let sentence: Vec<&str> =
                (0..n).map(|i| words[(document + sentence * sentence + i * 3) % words.len()]).collect();
            text += &format!("The {}.\n", sentence.join(" "));
        }
        text.push('\n');
    }
    text
}

struct Setup {
    folder: TempDir,
    tokenizer: Tokenizer,
    corpus: Arc<PreparedCorpus>,
}

impl Setup {
    fn new() -> Self {
        let trainer = WordPieceTrainer { vocab_size: 70, ..Default::default() };
        Self::with(trainer.train([text()]).unwrap())
    }

    fn with(tokenizer: Tokenizer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("corpus.txt"), text()).unwrap();
        let config = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
        let cache = folder.path().join("cache");
        let (corpus, report) =
            PreparedCorpus::prepare(&config, folder.path(), &tokenizer, &cache, &Silent).unwrap();
        assert_eq!((report.documents, report.reused), (60, false));
        Self { folder, tokenizer, corpus: Arc::new(corpus) }
    }

    fn documents(&self, split: Split, fraction: f64) -> Documents {
        Documents::new(self.corpus.clone(), split, fraction, 1).unwrap()
    }

    fn examples(&self, pairs: &PairConfig, documents: &Documents, seed: u64) -> Vec<Example> {
        let mut examples = Vec::new();
        let room = Room::new(SEQ_LEN, &SpecialPieces::find(&self.tokenizer));
        pairs
            .sampler()
            .examples(documents, room, seed, &mut |example| {
                examples.push(example);
                Ok(())
            })
            .unwrap();
        examples
    }

    fn data(&self, pairs: PairConfig, masking: MaskingConfig, seed: u64) -> Arc<PretrainingData> {
        let documents = self.documents(Split::Train, 0.0);
        let unigram = Arc::new(UnigramCounts::new(&documents, self.tokenizer.vocab_size()));
        let config = ExampleConfig::new(SEQ_LEN).with_pairs(pairs).with_masking(masking);
        let cache = self.folder.path().join("plans");
        Arc::new(PretrainingData::new(documents, config, &self.tokenizer, unigram, seed, cache).unwrap())
    }

    /// The document of a range that lies in one.
    fn document(&self, range: std::ops::Range<u64>) -> u64 {
        let documents: Vec<_> = self.corpus.documents_of(range.clone()).collect();
        assert_eq!(documents.len(), 1, "{range:?} runs over {documents:?}");
        assert_eq!(documents[0].1, range, "a range lies inside its document");
        documents[0].0
    }
}

fn length(range: &std::ops::Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// Asserts that `hits` of `n` draws of probability `p` are within five standard deviations.
#[track_caller]
fn assert_share(what: &str, hits: u64, n: u64, p: f64) {
    let (expected, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
    assert!(
        (hits as f64 - expected).abs() <= 5.0 * deviation,
        "{what}: {hits} of {n}, expected {expected:.0} ± {deviation:.0}"
    );
}

#[test]
fn the_prepared_corpus_holds_what_the_tokenizer_says() {
    let setup = Setup::new();
    let first_line = text().lines().next().unwrap().to_string();
    let (mut ids, mut starts) = (Vec::new(), Vec::new());
    setup.tokenizer.encode_into(&first_line, &mut ids, &mut starts).unwrap();
    let stored: Vec<(u32, bool)> = setup.corpus.tokens(setup.corpus.sentence(0)).collect();
    assert_eq!(stored, ids.into_iter().zip(starts).collect::<Vec<_>>());
    let lines = text().lines().filter(|line| !line.is_empty()).count() as u64;
    assert_eq!(setup.corpus.n_sentences(), lines);
}

#[test]
fn next_sentence_pairs_are_berts() {
    let setup = Setup::new();
    let documents = setup.documents(Split::Train, 0.0);
    let (mut followed, mut random) = (0u64, 0u64);
    let (mut cut_front, mut cut_back) = (0u64, 0u64);
    for seed in 0..60 {
        for example in setup.examples(&PairConfig::default(), &documents, seed) {
            let Example { first, second, label, .. } = example.clone();
            assert!(!first.is_empty() && !second.is_empty(), "{example:?}");
            assert!(length(&first) + length(&second) <= SEQ_LEN - 3, "{example:?}");
            let (a, b) = (setup.document(first.clone()), setup.document(second.clone()));
            if label == 0 {
                followed += 1;
                assert_eq!(a, b, "{example:?}");
                if !example.truncated {
                    assert_eq!(first.end, second.start, "what follows, follows at once");
                }
            } else {
                random += 1;
                assert_ne!(a, b, "the random segment is from another document");
            }
            if example.truncated && label == 1 {
                let sentences = (0..setup.corpus.n_sentences()).map(|s| setup.corpus.sentence(s));
                let starts_whole = sentences.clone().any(|s| s.start == second.start);
                let ends_whole = sentences.clone().any(|s| s.end == second.end);
                cut_front += u64::from(!starts_whole);
                cut_back += u64::from(!ends_whole);
            }
        }
    }
    let n = followed + random;
    assert!(n > 3_000, "{n} examples");
    // Even choices, and single sentences, which are always random: a little above half.
    let share = random as f64 / n as f64;
    assert!((0.49..0.66).contains(&share), "random in {share:.3}");
    assert!(cut_front > 20 && cut_back > 20, "cut in front {cut_front}, behind {cut_back}");
}

#[test]
fn the_choice_between_real_and_random_is_even() {
    let setup = Setup::new();
    let documents = setup.documents(Split::Train, 0.0);
    // The first example of each document, whose chunk does not depend on earlier draws.
    let firsts = |random_next_prob: f64, seed: u64| -> HashMap<u64, u8> {
        let pairs = PairConfig::NextSentence { short_seq_prob: 0.0, random_next_prob };
        let mut firsts = HashMap::new();
        for example in setup.examples(&pairs, &documents, seed) {
            firsts.entry(setup.document(example.first)).or_insert(example.label);
        }
        firsts
    };
    // A chunk of one sentence is always random; the coin decides about the others.
    let never = firsts(0.0, 0);
    let free: Vec<u64> =
        never.iter().filter(|(_, label)| **label == 0).map(|(document, _)| *document).collect();
    assert!(free.len() > 40, "{} documents begin with several sentences in a chunk", free.len());
    assert!(firsts(1.0, 0).values().all(|label| *label == 1));
    let (mut random, mut n) = (0, 0);
    for seed in 0..40 {
        let firsts = firsts(0.5, seed);
        n += free.len() as u64;
        random += free.iter().filter(|document| firsts[document] == 1).count() as u64;
    }
    assert_share("random second segments", random, n, 0.5);
}

#[test]
fn a_tenth_of_the_documents_has_a_short_target() {
    let setup = Setup::new();
    let documents = setup.documents(Split::Train, 0.0);
    let (mut short, mut n) = (0, 0);
    for seed in 0..80 {
        let examples = setup.examples(&PairConfig::default(), &documents, seed);
        let by_document: HashMap<u64, bool> =
            examples.iter().map(|example| (setup.document(example.first.clone()), example.short)).collect();
        n += by_document.len() as u64;
        short += by_document.values().filter(|short| **short).count() as u64;
    }
    assert_share("documents with a short target", short, n, 0.1);
}

#[test]
fn swapped_segments_are_half_and_stay_together() {
    let setup = Setup::new();
    let documents = setup.documents(Split::Train, 0.0);
    let (mut swapped, mut n) = (0, 0);
    for seed in 0..40 {
        for example in setup.examples(&PairConfig::SentenceOrder { short_seq_prob: 0.1 }, &documents, seed) {
            n += 1;
            swapped += u64::from(example.label == 1);
            assert_eq!(setup.document(example.first.clone()), setup.document(example.second.clone()));
            assert_eq!(example.label == 1, example.first.start > example.second.start, "{example:?}");
        }
    }
    assert_share("swapped pairs", swapped, n, 0.5);
}

#[test]
fn packed_segments_lose_nothing_and_keep_to_their_part() {
    let setup = Setup::new();
    let documents = setup.documents(Split::Train, 0.3);
    for pairs in [PairConfig::DocSentences, PairConfig::FullSentences] {
        let mut covered = HashSet::new();
        let mut crossing = 0;
        for example in setup.examples(&pairs, &documents, 0) {
            assert!(example.second.is_empty());
            let mut tokens = 0;
            let mut parts = 0;
            for (document, part) in setup.corpus.documents_of(example.first.clone()) {
                if documents.contains(document) {
                    parts += 1;
                    tokens += length(&part);
                    covered.extend(part);
                }
            }
            crossing += usize::from(parts > 1);
            assert!(tokens + parts - 1 <= SEQ_LEN - 2, "{example:?}: {tokens} tokens in {parts} documents");
        }
        let wanted: HashSet<u64> = documents
            .iter()
            .flat_map(|document| setup.corpus.document(document))
            .flat_map(|sentence| setup.corpus.sentence(sentence))
            .collect();
        let lost = wanted.difference(&covered).count();
        assert_eq!(lost, 0, "{pairs:?} loses tokens");
        assert_eq!(crossing > 0, pairs == PairConfig::FullSentences);
    }
}

#[test]
fn the_parts_are_disjoint_and_whole() {
    let setup = Setup::new();
    let (train, held_out) = (setup.documents(Split::Train, 0.2), setup.documents(Split::HeldOut, 0.2));
    assert_eq!(train.count() + held_out.count(), 60);
    assert!(train.iter().all(|document| !held_out.contains(document)));
    assert_share("held-out documents", held_out.count(), 60, 0.2);
    let random = setup.examples(&PairConfig::default(), &train, 5);
    assert!(random.iter().all(|example| train.contains(setup.document(example.second.clone()))));
}

/// BERT's masking, changed.
fn masking(change: impl FnOnce(&mut MaskingConfig)) -> MaskingConfig {
    let mut masking = MaskingConfig::default();
    change(&mut masking);
    masking
}

/// Batches from a position on, made by one thread.
fn batches_from(
    data: &Arc<PretrainingData>,
    batch_size: usize,
    from: Cursor,
) -> cloze_data::Batches<PretrainingBatch> {
    Loader::new(data.clone(), batch_size).with_ahead(4).batches(from)
}

/// Batches of 8 until `examples` examples, with their statistics.
fn batches(data: &Arc<PretrainingData>, examples: usize) -> (Vec<PretrainingBatch>, BatchStats) {
    let batches: Vec<_> =
        batches_from(data, 8, Cursor::default()).take(examples / 8).map(Result::unwrap).collect();
    let mut stats = BatchStats::default();
    for batch in &batches {
        stats += &batch.stats;
    }
    (batches, stats)
}

#[test]
fn masking_has_berts_shares_and_never_takes_a_special_token() {
    let setup = Setup::new();
    let ids = setup.tokenizer.special_ids();
    let (mask, specials) = (ids.mask.unwrap() as i32, [ids.cls, ids.sep, ids.pad, ids.mask, ids.unk]);
    let data = setup.data(PairConfig::default(), MaskingConfig::default(), 9);
    let (batches, stats) = batches(&data, 6_000);
    let masking = stats.masking;
    assert_share("replaced by the mask", masking.masked, masking.predicted, 0.8);
    assert_share("replaced at random", masking.random, masking.predicted, 0.1);
    assert_share("left as they are", masking.kept, masking.predicted, 0.1);
    assert_eq!(masking.masked + masking.random + masking.kept, masking.predicted);
    // 15 % of each example's tokens, rounded, at least one.
    let share = masking.predicted as f64 / stats.tokens as f64;
    assert!((0.145..0.16).contains(&share), "{share:.4} of the tokens are predicted");

    let (mut masks, mut differ) = (0u64, 0u64);
    for batch in &batches {
        assert!(batch.masked_positions.is_sorted());
        assert_eq!(batch.masked_positions.len(), batch.masked_labels.len());
        for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
            let position = *position as usize;
            assert!(!specials.contains(&Some(*label as u32)), "{label} is special");
            let shown = batch.tokens.input_ids()[position];
            masks += u64::from(shown == mask);
            differ += u64::from(shown != *label && shown != mask);
            assert!(shown == mask || !specials.contains(&Some(shown as u32)), "random piece {shown}");
        }
        let masks_in_ids = batch.tokens.input_ids().iter().filter(|id| **id == mask).count();
        assert!(masks_in_ids <= batch.masked_positions.len(), "a mask that nobody asks about");
    }
    assert_eq!(masks, masking.masked);
    assert!(differ <= masking.random && differ > masking.random * 9 / 10);
}

#[test]
fn random_pieces_come_from_where_the_config_says() {
    let setup = Setup::new();
    let draws = |random_from| {
        let masking = masking(|masking| {
            (masking.mask_share, masking.random_share, masking.random_from) = (0.0, 1.0, random_from);
        });
        let mut counts: HashMap<i32, u64> = HashMap::new();
        let (batches, _) = batches(&setup.data(PairConfig::default(), masking, 2), 3_000);
        for batch in &batches {
            for position in &batch.masked_positions {
                *counts.entry(batch.tokens.input_ids()[*position as usize]).or_default() += 1;
            }
        }
        counts
    };
    let pieces = setup.tokenizer.vocab_size() - 5;
    let uniform = draws(RandomFrom::Uniform);
    let n: u64 = uniform.values().sum();
    assert_eq!(uniform.len(), pieces);
    for count in uniform.values() {
        assert_share("a piece among uniform draws", *count, n, 1.0 / pieces as f64);
    }
    let unigram = draws(RandomFrom::Unigram);
    let n: u64 = unigram.values().sum();
    let counts = UnigramCounts::new(&setup.documents(Split::Train, 0.0), setup.tokenizer.vocab_size());
    let the = counts.most_frequent();
    assert_share("the most frequent piece", unigram[&(the as i32)], n, counts.log_prob(the).exp());
}

#[test]
fn whole_words_are_masked_whole_for_every_tokenizer() {
    let wordpiece = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text()]).unwrap();
    let byte_level = BpeTrainer { vocab_size: 300, ..Default::default() }.train([text()]).unwrap();
    for (tokenizer, continues) in [
        (wordpiece, (|token| token.starts_with("##")) as fn(&str) -> bool),
        // In this text a word begins with a space, or is the first of its sentence, or the full stop.
        (byte_level, |token| !token.starts_with(['Ġ', 'T', '.', '<'])),
    ] {
        let setup = Setup::with(tokenizer);
        let masking = masking(|masking| {
            (masking.unit, masking.mask_share, masking.random_share) = (MaskUnit::WholeWord, 1.0, 0.0);
        });
        let data = setup.data(PairConfig::DocSentences, masking, 4);
        let mask = setup.tokenizer.special_ids().mask.unwrap() as i32;
        let (batches, _) = batches(&data, 200);
        let (mut words, mut pieces) = (0, 0);
        for batch in &batches {
            let shown = batch.tokens.input_ids();
            let mut ids = shown.to_vec();
            for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
                ids[*position as usize] = *label;
            }
            for (start, len) in batch.tokens.starts().zip(batch.tokens.lengths()) {
                let mut masked: Option<bool> = None;
                for position in start..start + len {
                    let id = ids[position] as u32;
                    let token = setup.tokenizer.id_to_token(id).unwrap();
                    let inner = continues(token);
                    let is_masked = shown[position] == mask;
                    if inner && let Some(masked) = masked {
                        assert_eq!(masked, is_masked, "`{token}` is masked apart from its word");
                        pieces += u32::from(is_masked);
                    }
                    words += u32::from(!inner && is_masked);
                    // A sentence cut to length may begin amid a word: nothing before it to agree with.
                    masked = (!setup.tokenizer.is_special(id)).then_some(is_masked);
                }
            }
        }
        assert!(words > 100 && pieces > 100, "{words} words, {pieces} further pieces");
    }
}

#[test]
fn static_masks_repeat_and_dynamic_ones_do_not() {
    let setup = Setup::new();
    let rows = |static_copies, epoch| {
        let masking = masking(|masking| masking.static_copies = static_copies);
        let data = setup.data(PairConfig::default(), masking, 6);
        batches_from(&data, 16, Cursor { epoch, example: 0 }).next().unwrap().unwrap()
    };
    assert_ne!(rows(0, 0), rows(0, 2));
    assert_eq!(rows(2, 0), rows(2, 2));
    assert_eq!(rows(2, 1), rows(2, 5));
    assert_ne!(rows(2, 0), rows(2, 1));
}

#[test]
fn batches_depend_on_the_position_only() {
    let setup = Setup::new();
    let data = setup.data(PairConfig::default(), MaskingConfig::default(), 7);
    let take = |workers, ahead, from| -> Vec<(PretrainingBatch, Cursor)> {
        let loader = Loader::new(data.clone(), 7).with_workers(workers).with_ahead(ahead);
        let mut batches = loader.batches(from);
        (0..150).map(|_| (batches.next().unwrap().unwrap(), batches.cursor())).collect()
    };
    let one = take(1, 1, Cursor::default());
    assert!(one.last().unwrap().1.epoch >= 1, "the batches run on into the next epoch");
    assert_eq!(one, take(2, 8, Cursor::default()));
    assert_eq!(one, take(5, 3, Cursor::default()));
    for at in [1, 13, 40] {
        let resumed = take(2, 2, one[at - 1].1);
        assert_eq!(resumed[..20], one[at..at + 20]);
    }
}

#[test]
fn an_epoch_uses_every_example_once() {
    let setup = Setup::new();
    let data = setup.data(PairConfig::DocSentences, MaskingConfig::default(), 8);
    let n = setup.examples(&PairConfig::DocSentences, &setup.documents(Split::Train, 0.0), 0).len();
    let mut seen = HashSet::new();
    let mut batches = batches_from(&data, 1, Cursor::default());
    for _ in 0..n {
        let batch = batches.next().unwrap().unwrap();
        let mut ids = batch.tokens.input_ids().to_vec();
        for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
            ids[*position as usize] = *label;
        }
        seen.insert(ids);
    }
    let distinct: HashSet<Vec<u32>> = setup
        .examples(&PairConfig::DocSentences, &setup.documents(Split::Train, 0.0), 0)
        .into_iter()
        .map(|example| setup.corpus.tokens(example.first).map(|(id, _)| id).collect())
        .collect();
    assert_eq!(seen.len(), distinct.len());
}

#[test]
fn a_prepared_corpus_is_reused_only_while_it_is_valid() {
    let setup = Setup::new();
    let cache = setup.folder.path().join("cache");
    let config = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
    let prepare = |config: &CorpusConfig, tokenizer: &Tokenizer| {
        PreparedCorpus::prepare(config, setup.folder.path(), tokenizer, &cache, &Silent).unwrap().1.reused
    };
    assert!(prepare(&config, &setup.tokenizer));
    // Another tokenizer, another setting, other text.
    let other = WordPieceTrainer { vocab_size: 50, ..Default::default() }.train([text()]).unwrap();
    assert!(!prepare(&config, &other));
    assert!(!prepare(&CorpusConfig { language: "de".into(), ..config.clone() }, &setup.tokenizer));
    std::fs::write(setup.folder.path().join("corpus.txt"), text() + "\nOne more.\n").unwrap();
    assert!(!prepare(&config, &setup.tokenizer));
    assert!(prepare(&config, &setup.tokenizer));
    // A damaged, a missing, and a garbled file; what an interrupted build leaves counts for nothing.
    let folder = newest(&cache);
    for (file, damage) in [
        ("tokens.bin", "truncate"),
        ("sentences.bin", "remove"),
        ("documents.bin", "grow"),
        ("meta.json", "garble"),
    ] {
        let path = folder.join(file);
        let bytes = std::fs::read(&path).unwrap();
        match damage {
            "truncate" => std::fs::write(&path, &bytes[..bytes.len() - 4]).unwrap(),
            "grow" => std::fs::write(&path, [&bytes[..], &bytes[..8]].concat()).unwrap(),
            "garble" => std::fs::write(
                &path,
                String::from_utf8(bytes).unwrap().replace("60", "61").replace("61", "62"),
            )
            .unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
        std::fs::create_dir_all(cache.join(".building-dead")).unwrap();
        assert!(!prepare(&config, &setup.tokenizer), "{damage} {file}");
        assert!(prepare(&config, &setup.tokenizer), "{damage} {file}");
    }
}

/// The prepared corpus written last.
fn newest(cache: &Path) -> std::path::PathBuf {
    let folders = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap());
    let visible = folders.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    visible.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap()).unwrap().path()
}

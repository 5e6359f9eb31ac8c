//! Custom parts, installed from outside the crate: a corruption, a sampler, a batch.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::{
    Assemble, CorpusConfig, CorpusExamples, Corrupted, Corruption, Cursor, DataError, Documents, Edits,
    Example, ExampleConfig, ExampleSampler, Loader, MaskingConfig, Original, PairConfig, Placed, Plan,
    PreparedCorpus, PretrainingBatch, PretrainingData, Random, Result, Room, Silent, SpecialPieces, Split,
    TokenBatch, UnigramCounts,
};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::{BpeTrainer, WordPieceTrainer};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// 30 documents of 1 to 7 sentences.
fn text() -> String {
    let words = ["rivers", "mountain", "slowly", "debated", "old", "harvest", "road"];
    let mut text = String::new();
    for document in 0..30usize {
        for sentence in 0..1 + document * 5 % 7 {
            let n = 2 + (document * 3 + sentence * 5) % 8;
            let sentence: Vec<&str> =
                (0..n).map(|i| words[(document + sentence * i + i) % words.len()]).collect();
            text += &format!("The {}.\n", sentence.join(" "));
        }
        text.push('\n');
    }
    text
}

/// A corpus, prepared with a tokenizer.
struct Setup {
    folder: TempDir,
    tokenizer: Tokenizer,
    documents: Documents,
}

impl Setup {
    fn new(tokenizer: Tokenizer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("corpus.txt"), text()).unwrap();
        let config = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
        let cache = folder.path().join("cache");
        let (corpus, _) =
            PreparedCorpus::prepare(&config, folder.path(), &tokenizer, &cache, &Silent).unwrap();
        let documents = Documents::new(Arc::new(corpus), Split::Train, 0.0, 1).unwrap();
        Self { folder, tokenizer, documents }
    }

    fn bert() -> Self {
        Self::new(WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text()]).unwrap())
    }

    fn byte_level(special_tokens: &[&str]) -> Self {
        let special_tokens = special_tokens.iter().copied().map(String::from).collect();
        let trainer = BpeTrainer { vocab_size: 290, special_tokens, ..Default::default() };
        Self::new(trainer.train([text()]).unwrap())
    }

    fn special(&self) -> SpecialPieces {
        SpecialPieces::find(&self.tokenizer)
    }

    fn examples(
        &self,
        sampler: Box<dyn ExampleSampler>,
        special: SpecialPieces,
        seq_len: usize,
    ) -> Result<CorpusExamples> {
        let plans = self.folder.path().join("plans");
        CorpusExamples::new(self.documents.clone(), sampler, special, seq_len, 9, plans)
    }

    /// BERT's masking of this vocabulary.
    fn masking(&self, special: &SpecialPieces) -> Box<dyn Corruption> {
        let unigram = UnigramCounts::new(&self.documents, self.tokenizer.vocab_size());
        MaskingConfig::default().corruption(special.mask.unwrap(), special.all(), Arc::new(unigram))
    }
}

/// Spans of two to four tokens, each replaced by one mask: the sequence gets shorter (Lewis et al. 2020, §2.2).
struct Infilling {
    mask: u32,
}

impl Corruption for Infilling {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let mut edits = Edits::new(original.ids);
        let mut at = 0;
        while at < original.len() {
            let end = at + 2 + random.below(3) as usize;
            let fits = end <= original.len() && original.maskable[at..end].iter().all(|may| *may);
            if fits && random.chance(0.3) {
                edits.replace(at..end, &[self.mask]);
                at = end;
            }
            at += 1;
        }
        edits.finish()
    }
}

/// What an encoder reads and what a decoder is to say: each mask's span after another mask.
#[derive(Debug, Clone, PartialEq)]
struct Denoising {
    inputs: TokenBatch,
    targets: TokenBatch,
    originals: Vec<Vec<u32>>,
}

struct DenoisingData {
    examples: CorpusExamples,
    infilling: Infilling,
}

impl Assemble for DenoisingData {
    type Plan = Plan;
    type Batch = Denoising;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Plan> {
        self.examples.plan(epoch, stop)
    }

    fn n_examples(&self, plan: &Plan) -> u64 {
        plan.len()
    }

    fn assemble(&self, examples: &[Placed<'_, Plan>]) -> Result<Denoising> {
        let (inputs, targets) = (TokenBatch::new(), TokenBatch::new());
        let mut batch = Denoising { inputs, targets, originals: Vec::new() };
        for Placed { plan, epoch, place, .. } in examples {
            let tokens = self.examples.tokens(&plan.example(*place));
            let mut random = Random::derive(self.examples.seed(), &[77, *epoch, *place]);
            let corrupted = self.infilling.corrupt(&tokens.original(), &mut random);
            let mut target = vec![self.examples.special().begin.unwrap()];
            for span in corrupted.spans() {
                target.push(self.infilling.mask);
                target.extend(&tokens.ids[span.original.clone()]);
            }
            let push = |batch: &mut TokenBatch, ids: &[u32]| {
                let ids: Vec<i32> = ids.iter().map(|id| *id as i32).collect();
                batch.push(&ids, &vec![0; ids.len()]);
            };
            push(&mut batch.inputs, corrupted.ids());
            push(&mut batch.targets, &target);
            batch.originals.push(tokens.ids);
        }
        Ok(batch)
    }
}

/// The sequences of a batch.
fn rows(batch: &TokenBatch) -> Vec<Vec<i32>> {
    let rows = batch.starts().zip(batch.lengths());
    rows.map(|(start, len)| batch.input_ids()[start..start + len].to_vec()).collect()
}

#[test]
fn spans_that_shorten_a_sequence_can_be_restored() {
    let setup = Setup::bert();
    let special = setup.special();
    let mask = special.mask.unwrap();
    let examples = setup.examples(PairConfig::DocSentences.sampler(), special, 40).unwrap();
    let data = Arc::new(DenoisingData { examples, infilling: Infilling { mask } });
    let mask = mask as i32;
    let mut shorter = 0;
    for batch in Loader::new(data, 6).with_workers(2).batches(Cursor::default()).take(30) {
        let batch = batch.unwrap();
        let (inputs, targets) = (rows(&batch.inputs), rows(&batch.targets));
        assert_eq!((inputs.len(), targets.len()), (6, 6));
        for ((input, target), original) in inputs.iter().zip(&targets).zip(&batch.originals) {
            shorter += usize::from(input.len() < original.len());
            let mut spans = target[1..].split(|id| *id == mask).skip(1);
            let mut restored = Vec::new();
            for id in input {
                match *id == mask {
                    true => restored.extend(spans.next().unwrap()),
                    false => restored.push(*id),
                }
            }
            assert!(spans.next().is_none());
            assert!(restored.iter().eq(original.iter().map(|id| *id as i32).collect::<Vec<_>>().iter()));
        }
    }
    assert!(shorter > 100, "{shorter} of 180 sequences got shorter");
}

#[test]
fn masked_batches_take_a_corruption_that_shortens() {
    let setup = Setup::bert();
    let special = setup.special();
    let (mask, sep) = (special.mask.unwrap() as i32, special.end.unwrap() as i32);
    let examples = setup.examples(PairConfig::default().sampler(), special, 40).unwrap();
    let infilling = Box::new(Infilling { mask: mask as u32 });
    let data = Arc::new(PretrainingData::from_parts(examples, infilling));
    let batch = Loader::new(data.clone(), 64).one_pass(64).unwrap().remove(0);
    assert!(batch.stats.masking.predicted > 100 && batch.stats.tokens == batch.tokens.n_tokens() as u64);
    // No token of a replacement stands for one of its span.
    assert!(batch.masked_positions.is_empty() && batch.masked_spans.is_empty());
    assert_eq!(batch.pair_labels.len(), 64);
    let mut masks = 0;
    for (row, types) in rows(&batch.tokens)
        .into_iter()
        .zip(batch.tokens.padded().token_type_ids.chunks(batch.tokens.padded_len()))
    {
        masks += row.iter().filter(|id| **id == mask).count();
        // The types follow the tokens, however many are left of a segment.
        let first = row.iter().position(|id| *id == sep).unwrap() + 1;
        assert!(
            types[..first].iter().all(|id| *id == 0) && types[first..row.len()].iter().all(|id| *id == 1)
        );
    }
    assert!(masks > 30, "{masks} masks");
}

/// Spans of two tokens, each token replaced by the mask: the length stays (SpanBERT, Joshi et al. 2020).
struct Pairwise {
    mask: u32,
}

impl Corruption for Pairwise {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let start = 1 + random.below(original.len() as u64 - 3) as usize;
        let mut edits = Edits::new(original.ids);
        if original.maskable[start] && original.maskable[start + 1] {
            edits.replace(start..start + 2, &[self.mask; 2]);
        }
        edits.finish()
    }
}

#[test]
fn masked_batches_say_where_spans_begin_and_end() {
    let setup = Setup::bert();
    let special = setup.special();
    let mask = special.mask.unwrap();
    let examples = setup.examples(PairConfig::DocSentences.sampler(), special, 40).unwrap();
    let data = Arc::new(PretrainingData::from_parts(examples, Box::new(Pairwise { mask })));
    let batch = Loader::new(data, 30).one_pass(30).unwrap().remove(0);
    assert!(batch.masked_spans.len() > 10);
    let positions: Vec<i32> = batch.masked_spans.iter().cloned().flatten().collect();
    assert_eq!(positions, batch.masked_positions);
    for span in &batch.masked_spans {
        assert_eq!(span.len(), 2);
        let ids = &batch.tokens.input_ids()[span.start as usize - 1..span.end as usize + 1];
        let is_mask = ids.iter().map(|id| *id == mask as i32);
        // The tokens on either side, which a boundary objective reads, are not masked.
        assert!(is_mask.eq([false, true, true, false]), "{ids:?}");
    }
}

/// A document's first sentence with its last, with the next document's first, or with itself.
struct ThreeWays;

impl ExampleSampler for ThreeWays {
    fn has_pairs(&self) -> bool {
        true
    }

    fn check(&self, documents: &Documents) -> Result<()> {
        match documents.count() {
            0..3 => Err(DataError::other("three documents are needed")),
            _ => Ok(()),
        }
    }

    fn examples(
        &self,
        documents: &Documents,
        room: Room,
        seed: u64,
        emit: &mut dyn FnMut(Example) -> Result<()>,
    ) -> Result<()> {
        let corpus = documents.corpus();
        let cut =
            |range: std::ops::Range<u64>| range.start..range.end.min(range.start + room.pair as u64 / 2);
        for document in documents.iter() {
            let sentences = corpus.document(document);
            let first = cut(corpus.sentence(sentences.start));
            let label = Random::derive(seed, &[document]).below(3) as u8;
            let second = match label {
                0 => cut(corpus.sentence(sentences.end - 1)),
                1 => cut(corpus.sentence(sentences.end % corpus.n_sentences())),
                _ => first.clone(),
            };
            emit(Example::pair(first, second, label))?;
        }
        Ok(())
    }
}

#[test]
fn a_sampler_of_ones_own_makes_the_batches() {
    let setup = Setup::bert();
    let special = setup.special();
    let (begin, end) = (special.begin.unwrap() as i32, special.end.unwrap() as i32);
    let masking = setup.masking(&special);
    let examples = setup.examples(Box::new(ThreeWays), special, 40).unwrap();
    assert!(examples.has_pairs());
    let data = Arc::new(PretrainingData::from_parts(examples, masking));
    let mut labels = [0; 3];
    let mut same = 0;
    for batch in Loader::new(data, 30).batches(Cursor::default()).take(8) {
        let batch: PretrainingBatch = batch.unwrap();
        let mut ids = batch.tokens.input_ids().to_vec();
        for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
            ids[*position as usize] = *label;
        }
        assert_eq!(batch.pair_labels.len(), 30);
        for ((start, len), label) in batch.tokens.starts().zip(batch.tokens.lengths()).zip(&batch.pair_labels)
        {
            labels[*label as usize] += 1;
            let row = &ids[start..start + len];
            assert_eq!((row[0], row[len - 1]), (begin, end));
            let mut segments = row[1..len - 1].split(|id| *id == end);
            let (first, second) = (segments.next().unwrap(), segments.next().unwrap());
            assert!(segments.next().is_none());
            same += usize::from(*label == 2);
            assert!(*label != 2 || first == second);
        }
    }
    assert!(labels.iter().all(|n| *n > 40) && same == labels[2], "{labels:?}");

    let few = Setup::bert();
    std::fs::write(few.folder.path().join("corpus.txt"), "One.\n\nTwo.\n").unwrap();
    let few = {
        let config = CorpusConfig { files: vec!["corpus.txt".into()], ..Default::default() };
        let (folder, cache) = (few.folder.path(), few.folder.path().join("cache"));
        let (corpus, _) = PreparedCorpus::prepare(&config, folder, &few.tokenizer, &cache, &Silent).unwrap();
        Setup { documents: Documents::new(Arc::new(corpus), Split::Train, 0.0, 1).unwrap(), ..few }
    };
    let error = few.examples(Box::new(ThreeWays), few.special(), 40).unwrap_err();
    assert_eq!(error.to_string(), "three documents are needed");
}

/// Left-to-right examples: each token is to be predicted from those before it.
struct NextToken(CorpusExamples);

#[derive(Debug, PartialEq)]
struct NextTokenBatch {
    tokens: TokenBatch,
    /// `[tokens]`: the piece after each; none after a sequence's last.
    labels: Vec<Option<i32>>,
    /// The epoch of the first example.
    epoch: u64,
}

impl Assemble for NextToken {
    type Plan = Plan;
    type Batch = NextTokenBatch;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Plan> {
        self.0.plan(epoch, stop)
    }

    fn n_examples(&self, plan: &Plan) -> u64 {
        plan.len()
    }

    fn assemble(&self, examples: &[Placed<'_, Plan>]) -> Result<NextTokenBatch> {
        let mut batch =
            NextTokenBatch { tokens: TokenBatch::new(), labels: Vec::new(), epoch: examples[0].epoch };
        for Placed { plan, place, .. } in examples {
            let tokens = self.0.tokens(&plan.example(*place));
            let ids: Vec<i32> = tokens.ids.iter().map(|id| *id as i32).collect();
            batch.tokens.push(&ids, &tokens.token_type_ids);
            batch.labels.extend(ids[1..].iter().copied().map(Some));
            batch.labels.push(None);
        }
        Ok(batch)
    }
}

#[test]
fn a_batch_of_ones_own_comes_through_the_loader_and_goes_on_anywhere() {
    // GPT-2 has one special piece. It separates documents here, and no example begins or ends with it.
    let setup = Setup::byte_level(&["<|endoftext|>"]);
    let mut special = setup.special();
    assert_eq!(special.begin, special.end);
    (special.begin, special.end) = (None, None);
    let separator = special.separator.unwrap() as i32;
    let examples = setup.examples(PairConfig::FullSentences.sampler(), special, 64).unwrap();
    let data = Arc::new(NextToken(examples));
    let loader = |workers, ahead| Loader::new(data.clone(), 5).with_workers(workers).with_ahead(ahead);
    let take = |workers, ahead, from, n: usize| -> Vec<(NextTokenBatch, Cursor)> {
        let mut batches = loader(workers, ahead).batches(from);
        (0..n).map(|_| (batches.next().unwrap().unwrap(), batches.cursor())).collect()
    };
    let all = take(1, 1, Cursor::default(), 40);
    assert!(all.last().unwrap().0.epoch >= 2, "over several epochs");
    assert_eq!(all, take(3, 4, Cursor::default(), 40));
    for at in [1, 2, 7, 19] {
        let from = all[at - 1].1;
        assert_eq!(take(2, 3, from, 10), all[at..at + 10], "from {from:?}");
    }
    let mut inside = 0;
    for (batch, _) in &all {
        assert_eq!(batch.labels.len(), batch.tokens.n_tokens());
        for row in rows(&batch.tokens) {
            assert!(row.len() <= 64 && row[0] != separator && row[row.len() - 1] != separator);
            inside += row.iter().filter(|id| **id == separator).count();
        }
    }
    assert!(inside > 20, "{inside} separators");
    let pass = loader(1, 1).one_pass(7).unwrap();
    assert_eq!(pass.iter().map(|batch| batch.tokens.n_sequences()).collect::<Vec<_>>(), [5, 2]);
}

#[test]
fn special_pieces_are_needed_by_pairs_alone() {
    let setup = Setup::byte_level(&[]);
    let none = setup.special();
    assert_eq!((none.begin, none.end, none.mask), (None, None, None));
    // Segments without anything around them.
    let examples = setup.examples(PairConfig::DocSentences.sampler(), none.clone(), 24).unwrap();
    let plan = examples.plan(0, &AtomicBool::new(false)).unwrap();
    let tokens = examples.tokens(&plan.example(0));
    assert!(tokens.maskable.iter().all(|may| *may) && tokens.ids.len() <= 24);
    let message = |result: Result<CorpusExamples>| result.unwrap_err().to_string();
    let pairs = || PairConfig::default().sampler();
    assert_eq!(
        message(setup.examples(pairs(), none.clone(), 24)),
        "the tokenizer has no start ([CLS] or <s>, or one named by `examples.begin`), which examples need"
    );
    let begun = none.clone().with_begin(&setup.tokenizer, "!").unwrap();
    assert_eq!(
        message(setup.examples(pairs(), begun.clone(), 24)),
        "the tokenizer has no separator ([SEP] or </s>, or one named by `examples.end`), which examples need"
    );
    // Named ones do, and are not masked.
    let both = begun.with_end(&setup.tokenizer, "%").unwrap();
    let examples = setup.examples(pairs(), both, 24).unwrap();
    let plan = examples.plan(0, &AtomicBool::new(false)).unwrap();
    let tokens = examples.tokens(&plan.example(0));
    assert_eq!(tokens.maskable.iter().filter(|may| !**may).count(), 3);
    assert_eq!(setup.tokenizer.id_to_token(tokens.ids[0]), Some("!"));
    // Without a mask there is nothing that a masking could put in a token's place.
    let unigram = Arc::new(UnigramCounts::new(&setup.documents, setup.tokenizer.vocab_size()));
    let config = ExampleConfig::new(24).with_pairs(PairConfig::DocSentences);
    let (documents, plans) = (setup.documents.clone(), setup.folder.path().join("plans"));
    let masked = PretrainingData::new(documents, config, &setup.tokenizer, unigram, 1, plans);
    assert_eq!(
        masked.unwrap_err().to_string(),
        "the tokenizer has no mask ([MASK] or <mask>), which examples need"
    );
}

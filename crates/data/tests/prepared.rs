//! Prepared corpora: what is stored, when it is reused, and what becomes of builds that end badly.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::{
    CorpusConfig, DataError, Documents, ExampleConfig, Loader, OnError, PairConfig, PreparedCorpus,
    PretrainingData, Progress, Room, Silent, SpecialPieces, Split, UnigramCounts, documents, sentences,
};
use cloze_tokenizer::train::{BpeTrainer, WordPieceTrainer};
use cloze_tokenizer::{Tokenizer, Vocab};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// 40 documents, some sentences of several pieces, a paragraph of several sentences in each.
fn text() -> String {
    let mut text = String::new();
    for i in 0..40 {
        text += &format!("Document {i} has a heading.\nIt begins here. Mr. Brown, no. {i}, reads it!\n");
        text += &"And so it goes on.\n".repeat(i % 5);
        text.push('\n');
    }
    text
}

fn wordpiece() -> Tokenizer {
    WordPieceTrainer { vocab_size: 80, ..Default::default() }.train([text()]).unwrap()
}

struct Setup {
    folder: TempDir,
    tokenizer: Tokenizer,
    config: CorpusConfig,
}

impl Setup {
    fn new() -> Self {
        Self::with(wordpiece())
    }

    fn with(tokenizer: Tokenizer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), text()).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        Self { folder, tokenizer, config }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn prepare(&self) -> cloze_data::Result<(PreparedCorpus, cloze_data::PrepareReport)> {
        PreparedCorpus::prepare(&self.config, self.folder.path(), &self.tokenizer, &self.cache(), &Silent)
    }

    fn reused(&self) -> bool {
        self.prepare().unwrap().1.reused
    }

    /// The folder of the prepared corpus.
    fn prepared(&self) -> PathBuf {
        self.cache().join(self.prepare().unwrap().0.key())
    }
}

/// All that is stored: documents of sentences of ids.
fn stored(corpus: &PreparedCorpus) -> Vec<Vec<Vec<(u32, bool)>>> {
    let sentence = |sentence| corpus.tokens(corpus.sentence(sentence)).collect();
    (0..corpus.n_documents()).map(|document| corpus.document(document).map(sentence).collect()).collect()
}

#[test]
fn it_holds_the_tokens_of_every_sentence() {
    let byte_level = BpeTrainer { vocab_size: 300, ..Default::default() }.train([text()]).unwrap();
    for tokenizer in [wordpiece(), byte_level] {
        let setup = Setup::with(tokenizer);
        let (corpus, report) = setup.prepare().unwrap();
        let expected: Vec<Vec<Vec<(u32, bool)>>> = documents(&setup.config, setup.folder.path())
            .unwrap()
            .map(|document| {
                let document = document.unwrap();
                let sentences = document.paragraphs().flat_map(|paragraph| sentences(paragraph, "en"));
                let tokens = sentences.map(|sentence| {
                    let (mut ids, mut starts) = (Vec::new(), Vec::new());
                    setup.tokenizer.encode_into(sentence, &mut ids, &mut starts).unwrap();
                    assert_eq!(ids, setup.tokenizer.encode(sentence, false).unwrap().ids);
                    ids.into_iter().zip(starts).collect()
                });
                tokens.collect()
            })
            .collect();
        assert_eq!(stored(&corpus), expected);
        assert_eq!(expected[0].len(), 3, "heading, and two sentences of a paragraph");
        let counts = (report.documents, report.sentences, report.tokens);
        assert_eq!(counts, (corpus.n_documents(), corpus.n_sentences(), corpus.n_tokens()));
        assert_eq!(report.documents, 40);
        let tokens: usize = expected.iter().flatten().map(Vec::len).sum();
        assert_eq!(report.tokens, tokens as u64);
        assert!(!report.reused && report.skipped.is_empty());
    }
}

#[test]
fn a_range_is_told_apart_by_documents() {
    let setup = Setup::new();
    let (corpus, _) = setup.prepare().unwrap();
    let all: Vec<_> = corpus.documents_of(0..corpus.n_tokens()).collect();
    assert_eq!(all.len(), 40);
    assert!(all.windows(2).all(|pair| pair[0].1.end == pair[1].1.start));
    let (start, end) = (all[3].1.start + 2, all[5].1.start + 1);
    let parts: Vec<_> = corpus.documents_of(start..end).collect();
    assert_eq!(parts, [(3, start..all[3].1.end), (4, all[4].1.clone()), (5, all[5].1.start..end)]);
    assert_eq!(corpus.documents_of(end..end).count(), 0);
    assert_eq!(corpus.documents_of(corpus.n_tokens()..corpus.n_tokens()).count(), 0);
}

#[test]
fn it_is_reused_while_nothing_changed() {
    let mut setup = Setup::new();
    let before = stored(&setup.prepare().unwrap().0);
    assert!(setup.reused());
    // What does not shape the documents: another name, another time.
    fs::rename(setup.folder.path().join("a.txt"), setup.folder.path().join("b.txt")).unwrap();
    setup.config.files = vec!["b.*".into()];
    assert!(setup.reused());
    assert_eq!(stored(&setup.prepare().unwrap().0), before);
}

#[test]
fn every_change_has_it_built_anew() {
    let mut setup = Setup::new();
    let file = setup.folder.path().join("a.txt");
    assert!(!setup.reused() && setup.reused());
    fs::write(&file, text().replacen("Document 3 ", "Document 4 ", 1)).unwrap();
    assert!(!setup.reused(), "another text of the same length");
    fs::write(&file, text()).unwrap();
    assert!(setup.reused(), "back to what it was");
    setup.config.files = vec!["a.txt".into(), "a.txt".into()];
    assert!(!setup.reused(), "another list of files");
    setup.config.files.pop();
    let changes: [fn(&mut CorpusConfig); 5] = [
        |config| config.language = "de".into(),
        |config| config.max_document_bytes = 40,
        |config| config.max_line_bytes = 1_000,
        |config| config.on_error = OnError::Skip,
        |config| config.text_column = "body".into(),
    ];
    for change in changes {
        let before = setup.config.clone();
        change(&mut setup.config);
        assert!(!setup.reused() && setup.reused(), "{:?}", setup.config);
        setup.config = before;
    }
    assert!(setup.reused());
    setup.tokenizer = WordPieceTrainer { vocab_size: 79, ..Default::default() }.train([text()]).unwrap();
    assert!(!setup.reused() && setup.reused(), "another tokenizer");
}

#[test]
fn the_same_bytes_of_another_format_are_another_corpus() {
    let mut setup = Setup::new();
    let row = "{\"text\": \"One sentence.\"}\n";
    fs::write(setup.folder.path().join("rows.txt"), row).unwrap();
    fs::write(setup.folder.path().join("rows.jsonl"), row).unwrap();
    setup.config.files = vec!["rows.txt".into()];
    let as_text = stored(&setup.prepare().unwrap().0);
    setup.config.files = vec!["rows.jsonl".into()];
    assert_ne!(stored(&setup.prepare().unwrap().0), as_text);
}

#[test]
fn a_damaged_one_is_built_anew() {
    let setup = Setup::new();
    let whole = stored(&setup.prepare().unwrap().0);
    let folder = setup.prepared();
    let damage = |file: &str, damage: &dyn Fn(&Path)| {
        assert!(setup.reused());
        damage(&folder.join(file));
        assert!(!setup.reused(), "{file}");
        assert_eq!(stored(&setup.prepare().unwrap().0), whole, "{file}");
    };
    let shorten = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(path.metadata().unwrap().len() - 1).unwrap();
    };
    let lengthen = |path: &Path| fs::write(path, [fs::read(path).unwrap(), vec![0; 8]].concat()).unwrap();
    for file in ["tokens.bin", "sentences.bin", "documents.bin"] {
        damage(file, &lengthen);
    }
    for file in ["tokens.bin", "sentences.bin", "documents.bin", "meta.json"] {
        damage(file, &shorten);
        damage(file, &|path| fs::remove_file(path).unwrap());
        damage(file, &|path| fs::write(path, "").unwrap());
    }
    let edit = |path: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    damage("meta.json", &|path| edit(path, "\"documents\": 40", "\"documents\": 39"));
    damage("meta.json", &|path| edit(path, "\"format\": ", "\"format\": 9"));
    damage("meta.json", &|path| edit(path, "\"skipped\": {}", "\"skipped\": {\"bad UTF-8\": 1}"));
    damage("meta.json", &|path| fs::write(path, b"\xFF\x00{").unwrap());
    // The last end does not agree with the count.
    damage("sentences.bin", &|path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() = 1;
        fs::write(path, bytes).unwrap();
    });
}

/// Folders under construction.
fn building(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".building-")).collect()
}

#[test]
fn an_interrupted_build_is_never_taken_for_whole_and_goes_in_the_end() {
    let setup = Setup::new();
    // What a killed build leaves: everything but the rename, or half of it.
    let folder = setup.prepared();
    let left = setup.cache().join(".building-abc");
    fs::rename(&folder, &left).unwrap();
    let half = setup.cache().join(".building-def");
    fs::create_dir(&half).unwrap();
    fs::copy(left.join("tokens.bin"), half.join("tokens.bin")).unwrap();
    assert!(!setup.reused(), "a whole build without its name");
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::copy(left.join("tokens.bin"), folder.join("tokens.bin")).unwrap();
    assert!(!setup.reused(), "a name without a whole build");
    assert_eq!(building(&setup.cache()).len(), 2, "they may be at work still");

    // A day later one of them still writes; other folders are none of its business.
    let old = SystemTime::now() - Duration::from_secs(25 * 3600);
    let age = |path: &Path| File::open(path).unwrap().set_modified(old).unwrap();
    let other = setup.cache().join("notes");
    fs::create_dir(&other).unwrap();
    for entry in fs::read_dir(&left).unwrap() {
        age(&entry.unwrap().path());
    }
    for path in [&left, &half, &other] {
        age(path);
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(!setup.reused());
    assert_eq!(building(&setup.cache()), [half]);
    assert!(other.exists());
}

#[test]
fn a_build_that_fails_leaves_nothing() {
    let mut setup = Setup::new();
    fs::write(setup.folder.path().join("bad.txt"), b"fine\n\n\xFF\n").unwrap();
    setup.config.files = vec!["a.txt".into(), "bad.txt".into()];
    let message = setup.prepare().unwrap_err().to_string();
    let path = setup.folder.path().join("bad.txt");
    assert!(message.starts_with(&format!("{}:3: not UTF-8 (byte 1 is 0xff)", path.display())), "{message}");
    assert_eq!(fs::read_dir(setup.cache()).unwrap().count(), 0);
    setup.config.on_error = OnError::Skip;
    let (_, report) = setup.prepare().unwrap();
    assert_eq!((report.documents, report.skipped.to_string()), (41, "1 × bad UTF-8".to_string()));
    assert_eq!(report.skipped.first_places(), format!("{}:3", path.display()));
    // The count is there also when it is reused.
    let (_, report) = setup.prepare().unwrap();
    assert!(report.reused);
    assert_eq!(report.skipped.to_string(), "1 × bad UTF-8");
}

#[test]
fn a_corpus_without_text_is_an_error_that_says_why() {
    let mut setup = Setup::new();
    fs::write(setup.folder.path().join("blank.txt"), " \n\n\t\n").unwrap();
    fs::write(setup.folder.path().join("bad.txt"), b"\xFF\n\xFE\n").unwrap();
    setup.config.files = vec!["blank.txt".into(), "bad.txt".into()];
    let message = setup.prepare().unwrap_err().to_string();
    assert!(message.contains("blank.txt: the file has no text; "), "{message}");
    setup.config.on_error = OnError::Skip;
    let expected = "the corpus (blank.txt, bad.txt) has no text; left out: 2 × bad UTF-8, 1 × empty file";
    assert_eq!(setup.prepare().unwrap_err().to_string(), expected);
}

#[test]
fn many_may_prepare_at_once() {
    let setup = Setup::new();
    for round in 0..5 {
        // An invalid one in the way, which each wants to replace.
        if round > 0 {
            fs::remove_file(setup.prepared().join(["meta.json", "tokens.bin"][round % 2])).unwrap();
        }
        let all_ready = Barrier::new(6);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    all_ready.wait();
                    assert_eq!(stored(&setup.prepare().unwrap().0).len(), 40);
                });
            }
        });
        assert!(building(&setup.cache()).is_empty());
    }
}

/// Collects what it is told.
#[derive(Default)]
struct Log(Mutex<Vec<(u64, u64, u64)>>);

impl Progress for Log {
    fn prepared(&self, read: u64, total: u64, tokens: u64) {
        self.0.lock().unwrap().push((read, total, tokens));
    }
}

#[test]
fn progress_reaches_the_end() {
    let setup = Setup::new();
    // More than one chunk of text.
    fs::write(setup.folder.path().join("a.txt"), text().repeat(4_000)).unwrap();
    let log = Log::default();
    let (corpus, _) =
        PreparedCorpus::prepare(&setup.config, setup.folder.path(), &setup.tokenizer, &setup.cache(), &log)
            .unwrap();
    let log = log.0.into_inner().unwrap();
    let total = setup.folder.path().join("a.txt").metadata().unwrap().len();
    assert!(log.len() > 1 && log.is_sorted() && log.iter().all(|(_, of, _)| *of == total), "{log:?}");
    assert_eq!(*log.last().unwrap(), (total, total, corpus.n_tokens()));
}

#[test]
fn tokenizers_that_cannot_be_used_are_refused() {
    let mut vocab = Vocab::default();
    for (id, token) in [(0, "[PAD]"), (1, "[UNK]"), (2, "[CLS]"), (7, "[SEP]")] {
        vocab.insert(token.into(), id).unwrap();
    }
    let setup = Setup::with(Tokenizer::bert(vocab, true).unwrap());
    let message = "the tokenizer has 4 pieces but none with id 3: models need consecutive ids from 0";
    assert_eq!(setup.prepare().unwrap_err().to_string(), message);

    let vocab = Vocab::from_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]).unwrap();
    let setup = Setup::with(Tokenizer::bert(vocab, true).unwrap());
    let message = data(&setup, 16, PairConfig::default(), 0.0).unwrap_err().to_string();
    assert_eq!(message, "the tokenizer has no mask ([MASK] or <mask>), which examples need");
}

fn data(
    setup: &Setup,
    seq_len: usize,
    pairs: PairConfig,
    held_out: f64,
) -> cloze_data::Result<PretrainingData> {
    let documents = Documents::new(Arc::new(setup.prepare()?.0), Split::Train, held_out, 1)?;
    let unigram = Arc::new(UnigramCounts::new(&documents, setup.tokenizer.vocab_size()));
    let config = ExampleConfig::new(seq_len).with_pairs(pairs);
    PretrainingData::new(documents, config, &setup.tokenizer, unigram, 1, setup.cache())
}

#[test]
fn parts_and_examples_that_cannot_be_are_refused() {
    let setup = Setup::new();
    let pairs = PairConfig::default();
    for (seq_len, least, pairs) in [(4, 5, &pairs), (0, 5, &pairs), (2, 3, &PairConfig::DocSentences)] {
        let message = format!(
            "`examples.seq_len` = {seq_len} leaves no room beside the special tokens: set it to {least} or more"
        );
        assert_eq!(data(&setup, seq_len, pairs.clone(), 0.0).unwrap_err().to_string(), message);
        // The least works.
        let data = Arc::new(data(&setup, least, pairs.clone(), 0.0).unwrap());
        let batch = Loader::new(data, 3).one_pass(9).unwrap().remove(0);
        assert_eq!(batch.tokens.padded_len(), least);
    }
    let message = data(&setup, 16, pairs.clone(), 1.0).unwrap_err().to_string();
    let expected = "the training part is empty: the corpus has 40 documents and `eval.heldout_fraction` is 1; \
                    documents are separated by blank lines";
    assert_eq!(message, expected);

    // One document: no pairs with another.
    let one = Setup::new();
    fs::write(one.folder.path().join("a.txt"), "One document. Of two sentences.").unwrap();
    assert!(matches!(data(&one, 16, pairs.clone(), 0.0), Err(DataError::OneDocument)));
    let documents = Documents::new(Arc::new(one.prepare().unwrap().0), Split::Train, 0.0, 1).unwrap();
    let room = Room::new(16, &SpecialPieces::find(&one.tokenizer));
    let sampled = pairs.sampler().examples(&documents, room, 0, &mut |_| Ok(()));
    assert!(matches!(sampled, Err(DataError::OneDocument)), "also without `PretrainingData`");
    // Documents of one sentence have no order.
    fs::write(one.folder.path().join("a.txt"), "One.\n\nTwo.\n").unwrap();
    let order = PairConfig::SentenceOrder { short_seq_prob: 0.0 };
    let data = Arc::new(data(&one, 16, order, 0.0).unwrap());
    assert!(matches!(Loader::new(data, 1).one_pass(1), Err(DataError::NoExamples)));
}

#[test]
fn the_same_on_real_text() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/corpus");
    if !corpus.exists() {
        println!("skipped: no development corpus beside the checkout");
        return;
    }
    let mut setup = Setup::new();
    setup.config.files = vec![corpus.join("tinyshakespeare.txt").to_str().unwrap().into()];
    let (prepared, report) = setup.prepare().unwrap();
    assert!(report.documents > 1_000 && report.tokens > 200_000, "{report:?}");
    let mut texts = documents(&setup.config, setup.folder.path()).unwrap();
    let first = texts.next().unwrap().unwrap();
    let ids: Vec<u32> = first
        .paragraphs()
        .flat_map(|paragraph| sentences(paragraph, "en"))
        .flat_map(|sentence| setup.tokenizer.encode(sentence, false).unwrap().ids)
        .collect();
    let (sentences, tokens) = (prepared.document(0), |sentence| prepared.tokens(prepared.sentence(sentence)));
    assert_eq!(sentences.flat_map(tokens).map(|(id, _)| id).collect::<Vec<_>>(), ids);
}

//! Speed and memory beside the `tokenizers` crate, in the same process, and its Python package:
//! `cargo xtask bench tokenizer [--megabytes N] [--rounds N]`, or `cargo bench -p cloze-tokenizer -- …`.
//!
//! Lines in, ids out. The three sides take turns, and medians are shown: of the time on a processor for
//! what runs on one thread, of wall time for what runs on more. Every run has a fresh cache. Text and
//! vocabularies are looked for in `shared/` beside the repository.

mod measure;
mod python;

use std::{
    cell::RefCell,
    collections::HashSet,
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use cloze_tokenizer::{
    ByteLevel, Tokenizer,
    train::{BpeTrainer, WordPieceTrainer},
};
use measure::{Counting, Side, medians, megabytes, processor, wall};
use python::Python;
use tokenizers as theirs;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Reference = theirs::Tokenizer;

/// What the command line says.
struct Settings {
    /// Of text at most.
    megabytes: usize,
    rounds: usize,
}

impl Settings {
    fn read() -> Result<Self, String> {
        let mut settings = Self { megabytes: 8, rounds: 5 };
        let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
        while let Some(arg) = args.next() {
            let slot = match arg.as_str() {
                "--megabytes" => &mut settings.megabytes,
                "--rounds" => &mut settings.rounds,
                _ => return Err(format!("{arg:?} is not known; expected --megabytes N or --rounds N")),
            };
            let number = args.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            *slot = number.ok_or_else(|| format!("{arg} needs a number above 0"))?;
        }
        Ok(settings)
    }
}

/// Lines, in memory and in a file for Python.
struct Text {
    lines: Vec<String>,
    bytes: usize,
    file: PathBuf,
}

impl Text {
    fn new(lines: Vec<String>, file: PathBuf) -> std::io::Result<Self> {
        let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
        fs::write(&file, &text)?;
        Ok(Self { lines, bytes: text.len(), file })
    }

    fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1e6
    }
}

/// Lines of all corpora, evenly spread, of about `megabytes` in all.
fn real_lines(folder: &Path, megabytes: usize) -> std::io::Result<Vec<String>> {
    let mut files: Vec<_> =
        fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    let texts: Vec<_> = files.iter().map(fs::read_to_string).collect::<std::io::Result<_>>()?;
    let total: usize = texts.iter().map(String::len).sum();
    let step = (total / (megabytes * 1_000_000)).max(1);
    Ok(texts.iter().flat_map(|text| text.lines().step_by(step)).map(str::to_owned).collect())
}

/// Lines of twelve words of 3 to 12 random letters, no word twice.
fn random_lines(megabytes: usize) -> Vec<String> {
    let mut state = 1u64;
    let mut number = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let mut seen = HashSet::new();
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while bytes < megabytes * 1_000_000 {
        let mut line = String::new();
        for _ in 0..12 {
            let word = loop {
                let len = 3 + number(10);
                let word: String = (0..len).map(|_| char::from(b'a' + number(26) as u8)).collect();
                if seen.insert(word.clone()) {
                    break word;
                }
            };
            line.push_str(&word);
            line.push(' ');
        }
        bytes += line.len();
        lines.push(line);
    }
    lines
}

/// A row of the table: the figure of each side, and how many times faster than the crate and the package.
fn row(what: &str, unit: &str, figure: impl Fn(f64) -> f64, [ours, krate, package]: [Option<f64>; 3]) {
    let mut line = format!("{what:<46}");
    for time in [ours, krate, package] {
        match time {
            Some(time) => line += &format!(" {:>9.1}", figure(time)),
            None => line += &format!(" {:>9}", "–"),
        }
    }
    line += &format!(" {unit:<5}");
    for peer in [krate, package] {
        match (ours, peer) {
            (Some(ours), Some(peer)) => line += &format!(" {:>7.1} ×", peer / ours),
            _ => line += &format!(" {:>9}", "–"),
        }
    }
    println!("{line}");
}

struct Bench {
    settings: Settings,
    python: Option<RefCell<Python>>,
    real: Text,
    random: Text,
    folder: tempfile::TempDir,
}

/// A vocabulary, as both sides read it.
struct Model {
    name: &'static str,
    file: PathBuf,
    ours: Tokenizer,
    reference: Reference,
}

impl Bench {
    fn python<'a>(&'a self, task: String) -> Side<'a> {
        Box::new(move || self.python.as_ref()?.borrow_mut().time(&task))
    }

    fn model(&self, name: &'static str, source: &Path) -> Result<Model, Box<dyn std::error::Error>> {
        let mut ours = Tokenizer::load(source)?;
        ours.set_truncation(None)?;
        ours.set_padding(None)?;
        let file = self.folder.path().join(format!("{name}.json"));
        ours.save(&file)?;
        let reference = Reference::from_file(&file).map_err(|error| error.to_string())?;
        Ok(Model { name, file, ours, reference })
    }

    /// Loading, and the memory of what is loaded.
    fn load(&self, model: &Model) {
        let file = &model.file;
        let load_ours = || Tokenizer::load(file).expect("a file of ours");
        let load_theirs = || Reference::from_file(file).expect("a file of ours");
        let times = medians(
            2 * self.settings.rounds,
            [
                Box::new(|| Some(processor(|| drop(black_box(load_ours()))))),
                Box::new(|| Some(processor(|| drop(black_box(load_theirs()))))),
                self.python(format!("load\t{}", file.display())),
            ],
        );
        row(&format!("load {}: {} pieces", model.name, model.ours.vocab_size()), "ms", |t| t * 1e3, times);
        let (ours, our_size) = megabytes(load_ours);
        let (reference, their_size) = megabytes(load_theirs);
        let (mut ids, mut starts) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
        let (_, our_use) = megabytes(|| {
            for line in &self.real.lines {
                ids.clear();
                starts.clear();
                ours.encode_into(line, &mut ids, &mut starts).expect("an encoding");
            }
        });
        let (_, their_use) = megabytes(|| {
            for line in &self.real.lines {
                black_box(reference.encode_fast(line.as_str(), false).expect("an encoding"));
            }
        });
        println!(
            "    memory: ours {our_size:.1} MB + {our_use:.1} MB after encoding on one thread (cache {:.1} MB); \
             crate {their_size:.1} + {their_use:.1} MB",
            ours.cache_memory() as f64 / 1e6
        );
    }

    /// Ids only.
    fn ids(&self, model: &Model, text: &Text, what: &str) {
        self.beside(
            model,
            text,
            what,
            "ids",
            |ours| encode_into(ours, &text.lines),
            |reference, line| reference.encode_fast(line, false),
        );
    }

    /// Offsets, masks and all.
    fn whole(&self, model: &Model) {
        let text = &self.real;
        self.beside(
            model,
            text,
            "with offsets and masks",
            "encode",
            |ours| {
                for line in &text.lines {
                    black_box(ours.encode(line, true).expect("an encoding"));
                }
            },
            |reference, line| reference.encode(line, true),
        );
    }

    /// All lines beside the crate and its Python package, which is told to do the work called `verb`; all with
    /// cold caches.
    fn beside(
        &self,
        model: &Model,
        text: &Text,
        what: &str,
        verb: &str,
        encode: impl Fn(&Tokenizer),
        encode_theirs: impl Fn(&Reference, &str) -> theirs::Result<theirs::Encoding>,
    ) {
        let times = medians(
            self.settings.rounds,
            [
                Box::new(|| {
                    let ours = model.ours.clone();
                    Some(processor(|| encode(&ours)))
                }),
                Box::new(|| {
                    let reference = model.reference.clone();
                    Some(processor(|| {
                        for line in &text.lines {
                            black_box(encode_theirs(&reference, line).expect("an encoding"));
                        }
                    }))
                }),
                self.python(format!("{verb}\t{}\t{}", model.file.display(), text.file.display())),
            ],
        );
        row(&format!("{}: {what}", model.name), "MB/s", |t| text.megabytes() / t, times);
    }

    /// Two threads, beside one; wall time.
    fn threads(&self, model: &Model) {
        // Each takes the next lines when it has done its own, as a thread pool's do: texts of one corpus are
        // longer, and slower, than those of another.
        let blocks: Vec<_> = self.real.lines.chunks(256).collect();
        let run = |threads: usize| {
            let ours = model.ours.clone();
            let next = AtomicUsize::new(0);
            let work = || {
                while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    encode_into(&ours, block);
                }
            };
            Some(wall(|| {
                std::thread::scope(|scope| {
                    (1..threads).for_each(|_| {
                        scope.spawn(work);
                    });
                    work();
                });
            }))
        };
        let times = medians(self.settings.rounds, [Box::new(|| run(1)), Box::new(|| run(2))]);
        if let [Some(one), Some(two)] = times {
            println!(
                "{:<46} {:>9.1} MB/s, {:.2} × one thread",
                format!("{}: two threads, wall time", model.name),
                self.real.megabytes() / two,
                one / two
            );
        }
    }

    /// Ids by `encode_ids_batch` beside what `encode` gives, on one thread and two; wall time.
    fn batches(&self, model: &Model) {
        let megabytes = self.real.megabytes();
        for threads in [1, 2] {
            let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() else {
                return;
            };
            let timed = |work: &(dyn Fn(&Tokenizer) + Sync)| {
                let ours = model.ours.clone();
                Some(wall(|| pool.install(|| work(&ours))))
            };
            let lines = &self.real.lines;
            let times = medians(
                self.settings.rounds,
                [
                    Box::new(|| {
                        timed(&|ours| {
                            drop(black_box(ours.encode_ids_batch(lines, true).expect("an encoding")))
                        })
                    }),
                    Box::new(|| {
                        timed(&|ours| drop(black_box(ours.encode_batch(lines, true).expect("an encoding"))))
                    }),
                ],
            );
            if let [Some(ids), Some(whole)] = times {
                println!(
                    "{:<46} {:>9.1} MB/s, encode_batch {:.1} MB/s",
                    format!("{}: encode_ids_batch, threads: {threads}", model.name),
                    megabytes / ids,
                    megabytes / whole
                );
            }
        }
    }

    /// Long words of one kind, 1 and 10 MB.
    fn linear(&self, model: &Model) {
        for (what, unit) in [("one word", "ab"), ("spaces", "  "), ("one emoji", "🙂")] {
            let texts = [1, 10].map(|n| unit.repeat((n << 20) / unit.len()));
            let sides = texts.each_ref().map(|text| -> Side {
                Box::new(|| {
                    let lines = std::slice::from_ref(text);
                    Some(processor(|| encode_into(&model.ours, lines)))
                })
            });
            if let [Some(one), Some(ten)] = medians(self.settings.rounds, sides) {
                println!(
                    "{:<46} {:>9.1} ms, 10 MB {:.1} ms: {:.1} ×",
                    format!("{}: 1 MB of {what}", model.name),
                    one * 1e3,
                    ten * 1e3,
                    ten / one
                );
            }
        }
    }

    /// Training, with the settings of both libraries' own pipelines; wall time.
    fn train(&self) {
        const SIZE: usize = 30_000;
        let text = &self.real;
        let rounds = self.settings.rounds.min(3);
        let special = |names: [&str; 5]| names.map(|name| theirs::AddedToken::from(name, true)).to_vec();
        let times = medians(
            rounds,
            [
                Box::new(|| {
                    let trainer = WordPieceTrainer { vocab_size: SIZE, ..Default::default() };
                    Some(wall(|| drop(trainer.train(text.lines.iter()).expect("a vocabulary"))))
                }),
                Box::new(|| {
                    use theirs::models::wordpiece::{WordPiece, WordPieceTrainer};
                    let mut reference = Reference::new(WordPiece::default());
                    let bert = theirs::normalizers::bert::BertNormalizer::default();
                    reference.with_normalizer(Some(bert)).expect("a normaliser");
                    reference.with_pre_tokenizer(Some(theirs::pre_tokenizers::bert::BertPreTokenizer));
                    let mut trainer = theirs::models::TrainerWrapper::from(
                        WordPieceTrainer::builder()
                            .vocab_size(SIZE)
                            .show_progress(false)
                            .special_tokens(special(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
                            .build(),
                    );
                    Some(wall(|| {
                        reference.train(&mut trainer, text.lines.iter()).expect("a vocabulary");
                    }))
                }),
                self.python(format!("wordpiece\t{}\t{SIZE}", text.file.display())),
            ],
        );
        row("train WordPiece, 30,000 pieces", "s", |t| t, times);
        let times = medians(
            rounds,
            [
                Box::new(|| {
                    let trainer = BpeTrainer { vocab_size: SIZE, ..Default::default() };
                    Some(wall(|| drop(trainer.train(text.lines.iter()).expect("a vocabulary"))))
                }),
                Box::new(|| {
                    use theirs::{models::bpe, pre_tokenizers::byte_level};
                    let mut reference = Reference::new(bpe::BPE::default());
                    let byte_level = byte_level::ByteLevel::default().add_prefix_space(false);
                    reference.with_pre_tokenizer(Some(byte_level));
                    let mut trainer = theirs::models::TrainerWrapper::from(
                        bpe::BpeTrainer::builder()
                            .vocab_size(SIZE)
                            .show_progress(false)
                            .special_tokens(special(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]))
                            .initial_alphabet(ByteLevel::alphabet().collect())
                            .build(),
                    );
                    Some(wall(|| {
                        reference.train(&mut trainer, text.lines.iter()).expect("a vocabulary");
                    }))
                }),
                self.python(format!("bpe\t{}\t{SIZE}", text.file.display())),
            ],
        );
        row("train byte-level BPE, 30,000 pieces", "s", |t| t, times);
    }
}

fn encode_into(tokenizer: &Tokenizer, lines: &[String]) {
    let (mut ids, mut starts) = (Vec::new(), Vec::new());
    for line in lines {
        ids.clear();
        starts.clear();
        tokenizer.encode_into(line, &mut ids, &mut starts).expect("an encoding");
        black_box(&ids);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::read()?;
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let corpus = shared.join("data/corpus");
    if !corpus.is_dir() {
        println!("skipped: no shared/data/corpus beside the repository");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let bench = Bench {
        python: Python::start().map(RefCell::new),
        real: Text::new(real_lines(&corpus, settings.megabytes)?, folder.path().join("real.txt"))?,
        random: Text::new(random_lines(settings.megabytes), folder.path().join("random.txt"))?,
        settings,
        folder,
    };
    match &bench.python {
        Some(python) => println!("Python package: tokenizers {}", python.borrow().version),
        None => println!("Python package: not found (name a Python that has it in CLOZE_PYTHON)"),
    }
    println!(
        "{:.1} MB of real text, {:.1} MB of distinct random words; medians of {} alternating runs\n",
        bench.real.megabytes(),
        bench.random.megabytes(),
        bench.settings.rounds
    );
    println!(
        "{:<46} {:>9} {:>9} {:>9} {:<5} {:>9} {:>9}",
        "", "ours", "crate", "package", "", "crate", "package"
    );
    for (name, path) in [
        ("WordPiece", "models/all-MiniLM-L6-v2"),
        ("cased WordPiece", "tokenizers/bert-base-cased"),
        ("byte-level BPE", "tokenizers/gpt2"),
    ] {
        let path = shared.join(path);
        if !path.is_dir() {
            println!("skipped: no {} beside the repository", path.display());
            continue;
        }
        let model = bench.model(name, &path)?;
        bench.ids(&model, &bench.real, "real text");
        bench.ids(&model, &bench.random, "distinct random words");
        bench.whole(&model);
        bench.threads(&model);
        bench.batches(&model);
        bench.linear(&model);
        bench.load(&model);
    }
    bench.train();
    Ok(())
}

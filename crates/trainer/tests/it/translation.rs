//! Translation runs: a custom model from parallel text to a saved folder; interrupted runs end in the same bits.

use crate::notes::Notes;
use crate::stop_after::StopAfter;
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use cloze_model::blocks::PositionKind;
use cloze_model::generate::{NextToken, StepOutput};
use cloze_model::seq2seq::{DecodeOptions, EncoderDecoder};
use cloze_model::{ParamInit, Sequences, weights};
use cloze_trainer::engine::{Outcome, OwnParameters, RunOptions};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::metrics::{METRICS_FILE, Record, jsonl};
use cloze_trainer::translate::{TranslateConfig, Translator};
use cloze_trainer::translation::{
    TranslationConfig, Vocabularies, load_vocabularies, read_translation_file, train_translation,
    train_translation_model,
};
use cloze_trainer::{Place, Result};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Looks at the mean of the source and at the token before: enough to learn what follows what.
#[derive(Module, Debug)]
struct Bigram {
    source: Param<Tensor<2>>,
    target: Param<Tensor<2>>,
    output: Param<Tensor<2>>,
}

impl Bigram {
    fn new(vocabularies: &Vocabularies, device: &Device) -> Self {
        let mut init = ParamInit::new(device, 7).with_std(0.1);
        let [source, target] = [&vocabularies.source, &vocabularies.target].map(|of| of.vocab_size());
        Self {
            source: init.truncated_normal([source, 16]),
            target: init.truncated_normal([target, 16]),
            output: init.truncated_normal([16, target]),
        }
    }

    fn rows(table: &Param<Tensor<2>>, ids: &[i32], device: &Device) -> Tensor<2> {
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids.to_vec(), [ids.len()]), device);
        table.val().select(0, ids)
    }

    /// The mean of each source, `[sources, 16]`.
    fn means(&self, source: &Sequences, device: &Device) -> Tensor<2> {
        let mean = |ids: &[i32]| Self::rows(&self.source, ids, device).mean_dim(0);
        Tensor::cat(source.iter().map(mean).collect(), 0)
    }
}

impl EncoderDecoder for Bigram {
    fn logits(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        let of: Vec<i32> =
            target.lengths().iter().enumerate().flat_map(|(i, n)| vec![i as i32; *n]).collect();
        let of = Tensor::<1, Int>::from_data(TensorData::new(of, [target.n_tokens()]), device);
        let hidden =
            self.means(source, device).select(0, of) + Self::rows(&self.target, target.ids(), device);
        activation::tanh(hidden).matmul(self.output.val())
    }

    fn begin(&self, source: &Sequences, _: DecodeOptions, device: &Device) -> Tensor<2> {
        self.means(source, device)
    }
}

impl NextToken for Bigram {
    type State = Tensor<2>;

    fn step(&self, tokens: &[i32], state: &mut Tensor<2>) -> StepOutput {
        let hidden = state.clone() + Self::rows(&self.target, tokens, &state.device());
        StepOutput::new(activation::tanh(hidden).matmul(self.output.val()))
    }

    fn select(&self, state: &mut Tensor<2>, rows: &[usize]) {
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let rows = Tensor::<1, Int>::from_data(TensorData::new(rows.clone(), [rows.len()]), &state.device());
        *state = state.clone().select(0, rows);
    }

    fn join(&self, state: &mut Tensor<2>, other: Tensor<2>) {
        *state = Tensor::cat(vec![state.clone(), other], 0);
    }
}

/// 60 pairs of few words.
fn write_data(folder: &Path) {
    let (nouns, verbs) = (["dog", "cat", "man", "boat"], ["runs", "sleeps", "sinks"]);
    let (german, german_verbs) = (["Hund", "Katze", "Mann", "Boot"], ["rennt", "schläft", "sinkt"]);
    let (mut source, mut target) = (String::new(), String::new());
    for i in 0..60 {
        source += &format!("The {} {}{}.\n", nouns[i % 4], verbs[i % 3], ", he says".repeat(i % 2));
        target += &format!("Das {} {}{}.\n", german[i % 4], german_verbs[i % 3], ", sagt er".repeat(i % 2));
    }
    fs::write(folder.join("a.en"), source).unwrap();
    fs::write(folder.join("a.de"), target).unwrap();
}

fn config(folder: &Path, sets: &[&str]) -> TranslationConfig {
    let at = folder.display();
    let text = format!(
        r#"
parallel = {{ source = "en", target = "de", max_len = 64, train = {{ source = ["{at}/a.en"], target = ["{at}/a.de"] }}, dev = {{ source = ["{at}/a.en"], target = ["{at}/a.de"] }} }}
tokenizer = {{ kind = "train-bpe", vocab_size = 60 }}
model = {{ kind = "recurrent", d_embedding = 8, d_model = 8 }}
train = {{ steps = 40, batch_tokens = 300, label_smoothing = 0.1, accumulate = 2 }}
optimizer.lr = 2e-2
schedule = {{ kind = "noam", warmup_steps = 10 }}
eval = {{ every = 10, bleu_every = 0 }}
checkpoint.every = 7
log.every = 5
"#
    );
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    TranslationConfig::parse(&text, "toy", &Place::file(Path::new("toy.toml")), &sets).unwrap()
}

fn run(
    config: &TranslationConfig,
    folder: &Path,
    change: impl FnOnce(RunOptions<'static>) -> RunOptions<'static>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let options = RunOptions::new(Device::flex(), folder).cache(folder.with_file_name("cache"));
    let make = |of: &Vocabularies, device: &Device| Ok((Bigram::new(of, device), OwnParameters));
    train_translation_model(config, make, &change(options), progress)
}

fn weights_of(run: &Path) -> Vec<u8> {
    fs::read(run.join("model/model.safetensors")).unwrap()
}

fn records(run: &Path) -> Vec<Record> {
    jsonl::read(&run.join(METRICS_FILE)).unwrap().iter().map(Record::without_timing).collect()
}

#[test]
fn a_model_of_one_s_own_is_trained_measured_and_saved() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let path = folder.path().join("run");
    let mut notes = Notes::default();
    let outcome = run(&config(folder.path(), &[]), &path, |options| options, &mut notes).unwrap();
    let figures = outcome.figures("dev").unwrap();
    let names: Vec<&str> = figures.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["loss", "perplexity", "token_accuracy"]);
    assert!(figures.get("loss").unwrap() < 2.5 && figures.get("token_accuracy").unwrap() > 0.3, "{figures}");
    assert!(notes.0.contains("en → de") && notes.0.contains("60"), "{}", notes.0);
    assert!(!notes.0.contains("no development data"), "{}", notes.0);
    let file = read_translation_file(&path.join("model")).unwrap().unwrap();
    assert_eq!((&*file.source, &*file.target, file.max_len), ("en", "de", 64));
    let saved = load_vocabularies(&path.join("model")).unwrap();
    assert!(saved.is_joint() && saved.special.begin == 0);
    assert!(path.join("tokenizer.json").exists());
}

#[test]
fn a_run_without_development_data_says_that_nothing_is_measured() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let mut notes = Notes::default();
    let sets = ["parallel.dev={ source = [], target = [] }", "train.steps=2", "schedule.warmup_steps=1"];
    run(&config(folder.path(), &sets), &folder.path().join("run"), |options| options, &mut notes).unwrap();
    let said = "no development data: nothing is measured, and the last model is saved, good or bad";
    assert!(notes.0.contains(said), "{}", notes.0);
}

#[test]
fn transformers_learn_with_each_kind_of_positions() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    for kind in PositionKind::ALL {
        let name = kind.name();
        let model = format!(
            "model={{ kind = \"transformer\", n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32, dropout = 0.0, positions = \
             {name:?} }}"
        );
        let config = config(folder.path(), &[&*model, "train.steps=20", "eval.bleu_every=1"]);
        let path = folder.path().join(name);
        let options = RunOptions::new(Device::flex(), &path).cache(folder.path().join("cache"));
        let outcome = train_translation(&config, &options, &mut Silent).unwrap();
        assert!(outcome.figures("dev").unwrap().get("bleu").is_some(), "{name}");
        let losses: Vec<f64> = records(&path)
            .into_iter()
            .filter_map(|record| match record {
                Record::Train(record) => Some(record.loss),
                _ => None,
            })
            .collect();
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(losses.len() > 2 && last < 0.95 * first, "{name}: {losses:?}");
    }
}

/// Words are pieces, as outputs for large vocabularies want them.
const WORDS: &str = "tokenizer={ kind = \"train-words\", vocab_size = 60, min_frequency = 1 }";
const ADAPTIVE: &str = "model.output={ kind = \"adaptive\", cutoffs = [6, 12], divisor = 2.0 }";
const SAMPLED: &str = "model.output={ kind = \"sampled\", samples = 10 }";

#[test]
fn outputs_for_large_vocabularies_learn_the_same_pairs() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let networks = [
        "model={ kind = \"transformer\", n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32, dropout = 0.0 }",
        "model={ kind = \"recurrent\", d_embedding = 16, d_model = 16, dropout = 0.0 }",
        "model={ kind = \"convolutional\", n_layers = 2, d_embedding = 16, d_model = 16, dropout = 0.0 }",
    ];
    let train = |name: &str, sets: &[&str], change: &dyn Fn(RunOptions<'static>) -> RunOptions<'static>| {
        let mut all = vec![WORDS, "train.label_smoothing=0.0", "train.steps=60", "eval.every=60"];
        all.extend(sets);
        let path = folder.path().join(name);
        let options = RunOptions::new(Device::flex(), &path).cache(folder.path().join("cache"));
        train_translation(&config(folder.path(), &all), &change(options), &mut Silent)
    };
    for (place, network) in networks.into_iter().enumerate() {
        let loss = |output: &str, sets: &[&str]| {
            let done = train(&format!("{output}-{place}"), &[&[network], sets].concat(), &|options| options);
            done.unwrap().figures("dev").unwrap().get("loss").unwrap()
        };
        let whole = loss("whole", &[]);
        let untrained = loss("untrained", &["train.steps=1", "schedule.warmup_steps=1"]);
        assert!(whole < 0.7 * untrained, "{network}: {whole} from {untrained}");
        for (output, set) in [("adaptive", ADAPTIVE), ("sampled", SAMPLED)] {
            // With what is drawn for it, each loss is also that of the whole vocabulary.
            let found = loss(output, &[set]);
            assert!(
                found < 0.75 * untrained,
                "{network}, {output}: {found}, and {whole} of the whole softmax"
            );
            let model = folder.path().join(format!("{output}-{place}/model"));
            let translator = Translator::load(&model, TranslateConfig::default(), &Device::flex()).unwrap();
            let written =
                translator.translate(&["The dog runs.".into()], &[]).unwrap().next().unwrap().unwrap();
            assert!(written[0].text.contains("Das"), "{network}, {output}: {written:?}");
        }
    }
    // What is drawn is drawn again.
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let sets = [networks[1], SAMPLED];
    let options =
        RunOptions::new(Device::flex(), folder.path().join("resumed")).cache(folder.path().join("cache"));
    let mut all = vec![WORDS, "train.label_smoothing=0.0", "train.steps=60", "eval.every=60"];
    all.extend(sets);
    train_translation(&config(folder.path(), &all), &options.stop(stop), &mut StopAfter(23, stop)).unwrap();
    train("resumed", &sets, &|options| options.resume(true)).unwrap();
    assert_eq!(weights_of(&folder.path().join("resumed")), weights_of(&folder.path().join("sampled-1")));

    let refused = |sets: &[&str]| {
        train("refused", &[&[networks[1]], sets].concat(), &|options| options).unwrap_err().to_string()
    };
    let message = refused(&["model.output={ kind = \"sampled\", samples = 500 }"]);
    assert!(message.starts_with("`model.output.samples` is 500; expected 1 to "), "{message}");
    let message = refused(&["model.output={ kind = \"adaptive\", cutoffs = [5, 900] }"]);
    assert!(message.contains("`model.output.cutoffs` is [5, 900]"), "{message}");
}

#[test]
fn a_report_has_translations_beside_their_references() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let path = folder.path().join("run");
    let sets = ["train.steps=10", "eval.bleu_every=1", "eval.beams=2"];
    let outcome = run(&config(folder.path(), &sets), &path, |options| options, &mut Silent).unwrap();
    assert!(outcome.figures("dev").unwrap().get("bleu").is_some());
    let read = |name: &str| fs::read_to_string(path.join("report/dev").join(name)).unwrap();
    let page = read("report.html");
    for part in [
        "Best translations",
        "Worst translations",
        "Random translations",
        "line 1<",
        "the best of a beam search with 2 beams",
        "the source left untranslated",
        "<mark class=\"missed\">",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    let rows = read("predictions.tsv");
    assert_eq!(rows.lines().count(), 61);
    assert!(rows.starts_with("line\tsource\treference\ttranslation\tchrf\n1\tThe "), "{rows}");
    let translations: Vec<&str> = rows.lines().skip(1).map(|row| row.split('\t').nth(3).unwrap()).collect();
    assert_eq!(read("translations.txt").lines().collect::<Vec<_>>(), translations);
    let curve = fs::read_to_string(path.join("curve.svg")).unwrap();
    assert!(curve.contains("training (running mean, label smoothing 0.1)"), "{curve}");
}

#[test]
fn separate_vocabularies_lie_in_folders_of_their_own() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let path = folder.path().join("run");
    let mut separate = config(folder.path(), &["train.steps=10"]);
    separate.source_tokenizer = separate.tokenizer.take();
    separate.target_tokenizer = separate.source_tokenizer.clone();
    run(&separate, &path, |options| options, &mut Silent).unwrap();
    let saved = load_vocabularies(&path.join("model")).unwrap();
    assert!(!saved.is_joint());
    let knows = |tokenizer: &cloze_tokenizer::Tokenizer, text: &str| {
        let unk = tokenizer.token_to_id("<unk>").unwrap();
        !tokenizer.encode_ids(text, true).unwrap().contains(&unk)
    };
    assert!(knows(&saved.source, "The boat") && !knows(&saved.source, "schläft"));
    assert!(knows(&saved.target, "Katze schläft"));
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    for (place, average) in [
        "",
        "average={kind='ema', decay=0.9}",
        "average={kind='last', checkpoints=3, every=6}",
        "average={kind='best', checkpoints=2}",
    ]
    .iter()
    .enumerate()
    {
        let sets: Vec<&str> = Some(*average).filter(|set| !set.is_empty()).into_iter().collect();
        let config = config(folder.path(), &sets);
        let whole = folder.path().join(format!("whole-{place}"));
        run(&config, &whole, |options| options, &mut Silent).unwrap();
        for at in [1, 13, 24, 39] {
            let path = folder.path().join(format!("{place}-{at}"));
            let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
            let stopped =
                run(&config, &path, |options| options.stop(stop), &mut StopAfter(at, stop)).unwrap();
            assert_eq!(stopped, Outcome::Stopped { step: at });
            run(&config, &path, |options| options.resume(true), &mut Silent).unwrap();
            assert_eq!(weights_of(&path), weights_of(&whole), "{average}, stopped after step {at}");
            assert_eq!(records(&path), records(&whole), "{average}, stopped after step {at}");
            for page in ["index.html", "curve.svg"] {
                let [resumed, expected] =
                    [&path, &whole].map(|run| fs::read_to_string(run.join(page)).unwrap());
                assert_eq!(resumed, expected, "{average}, stopped after step {at}, {page}");
            }
        }
    }
    // Training is the same, the results are not.
    let results: Vec<_> =
        (0..4).map(|place| weights_of(&folder.path().join(format!("whole-{place}")))).collect();
    assert!((0..4).all(|a| (0..a).all(|b| results[a] != results[b])));
    let losses = |place: usize| -> Vec<f64> {
        let of = |record: Record| match record {
            Record::Train(record) => Some(record.loss),
            _ => None,
        };
        records(&folder.path().join(format!("whole-{place}"))).into_iter().filter_map(of).collect()
    };
    assert!((1..4).all(|place| losses(place) == losses(0)));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let run = |name: &str, sets: &[&str]| {
        let path = folder.path().join(name);
        run(&config(folder.path(), sets), &path, |options| options, &mut Silent).unwrap();
        weights_of(&path)
    };
    let one = run("one", &["train.steps=12"]);
    assert_eq!(run("three", &["train.steps=12", "train.workers=3", "train.prefetch=9"]), one);
    assert_ne!(run("other", &["train.steps=12", "run.seed=43"]), one);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let path = folder.path().join("run");
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    run(&config(folder.path(), &[]), &path, |options| options.stop(stop), &mut StopAfter(8, stop)).unwrap();
    let resume = |sets: &[&str]| {
        run(&config(folder.path(), sets), &path, |options| options.resume(true), &mut Silent)
            .unwrap_err()
            .to_string()
    };
    let other = resume(&["train.label_smoothing=0.2"]);
    assert!(other.contains("train.label_smoothing: 0.1 became 0.2"), "{other}");
    let other = resume(&["average={kind='ema', decay=0.9}"]);
    assert!(other.contains("average"), "{other}");
    fs::write(folder.path().join("a.en"), "other\n".repeat(60)).unwrap();
    let changed = resume(&[]);
    assert!(changed.contains("a.en has changed since the run in"), "{changed}");

    let fresh = |sets: &[&str]| {
        let path = folder.path().join("fresh");
        run(&config(folder.path(), sets), &path, |options| options, &mut Silent).unwrap_err().to_string()
    };
    let at = folder.path().display();
    fs::write(folder.path().join("a.en"), "one line\n").unwrap();
    let unequal = fresh(&[]);
    assert!(unequal.contains("a.de:2: this line has no counterpart"), "{unequal}");
    let missing = fresh(&[&format!("parallel.dev={{files=['{at}/none.tsv']}}")]);
    assert!(missing.contains("none.tsv` of parallel data"), "{missing}");
    write_data(folder.path());
    let long = fresh(&["parallel.max_len=5"]);
    assert!(long.contains("expected at most 5 (`parallel.max_len`)"), "{long}");
}

#[test]
fn teacher_forcing_and_steps_agree() {
    let _held = crate::generator();
    let vocabularies = {
        let trainer = cloze_tokenizer::train::BpeTrainer { vocab_size: 270, ..Default::default() };
        Vocabularies::joint(trainer.train(["a b"]).unwrap()).unwrap()
    };
    let device = Device::flex();
    let model = Bigram::new(&vocabularies, &device);
    assert_eq!(weights::shapes(&model).len(), 3);
    let source: Sequences = [&[5, 6, 2][..], &[7, 2]].into_iter().collect();
    let target: Sequences = [&[2, 9][..], &[2, 10]].into_iter().collect();
    let all = model.logits(&source, &target, &device);
    let mut state = model.begin(&source, DecodeOptions::default(), &device);
    for (step, tokens) in [[2, 2], [9, 10]].iter().enumerate() {
        let logits = model.step(tokens, &mut state).logits;
        for row in 0..2 {
            let expected = all.clone().slice(2 * row + step..2 * row + step + 1);
            let found = logits.clone().slice(row..row + 1);
            assert_eq!(found.into_data(), expected.into_data());
        }
    }
}

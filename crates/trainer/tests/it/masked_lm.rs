//! The masked-LM head put to use: continued pretraining, and prompts.

use crate::notes::Notes;
use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, MlmHead};
use cloze_model::blocks::PositionKind;
use cloze_model::huggingface::{Architecture, Family, PretrainedFolder, SaveConfig, save_pretrained};
use cloze_model::tasks::BertForMaskedLm;
use cloze_model::weights::NamedTensors;
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::WordPieceTrainer;
use cloze_trainer::config::RunConfig;
use cloze_trainer::embed::{EmbedConfig, Embedder};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::fill_mask::FillMask;
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, TaskFile, TaskSection, fine_tune};
use cloze_trainer::metrics::progress::Silent;
use cloze_trainer::metrics::{METRICS_FILE, Record, jsonl};
use cloze_trainer::pretraining::pretrain;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A folder for runs, with a tokenizer, texts, and texts that are good or bad by one word of theirs.
struct Bench {
    folder: tempfile::TempDir,
    tokenizer: Tokenizer,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (train, dev) = (rows(160, 1), rows(60, 2));
        let trainer = WordPieceTrainer { vocab_size: 120, ..Default::default() };
        let all = train.iter().map(|(text, _)| text.as_str()).chain(["it was ."; 9]);
        let tokenizer = trainer.train(all).unwrap();
        let texts = rows(400, 3);
        let documents = texts.chunks(4).map(|rows| {
            rows.iter().map(|(text, _)| format!("{text}. It was so.")).collect::<Vec<_>>().join(" ")
        });
        fs::write(folder.path().join("corpus.txt"), documents.collect::<Vec<_>>().join("\n\n")).unwrap();
        for (name, rows) in [("train.tsv", &train), ("dev.tsv", &dev)] {
            let lines: String = rows.iter().map(|(text, label)| format!("{text}\t{label}\n")).collect();
            fs::write(folder.path().join(name), format!("text\tlabel\n{lines}")).unwrap();
        }
        Self { folder, tokenizer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn encoder(&self, family: Family) -> BertConfig {
        family.encoder(
            BertConfig::new(self.tokenizer.vocab_size(), 2, 32)
                .with_d_ff(64)
                .with_n_heads(2)
                .with_max_positions(32)
                .with_d_embedding((family == Family::ALBERT).then_some(24))
                .with_hidden_dropout(0.0)
                .with_attention_dropout(0.0),
        )
    }

    /// A checkpoint of random weights, with or without a masked-LM head.
    fn checkpoint(&self, name: &str, family: Family, head: bool) -> PathBuf {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        self.tokenizer.save(&folder).unwrap();
        let init = &mut ParamInit::new(&Device::flex(), 3).with_std(0.1);
        match head {
            true => {
                let config = self.encoder(family).with_pooler(false);
                let model =
                    BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
                let save = SaveConfig::new(Architecture::MaskedLm).with_family(family);
                save_pretrained(&folder, &model, &config, &save).unwrap();
            }
            false => {
                let config = self.encoder(family);
                let model = config.init_encoder(init);
                let save = SaveConfig::new(Architecture::Encoder).with_family(family);
                save_pretrained(&folder, &model, &config, &save).unwrap();
            }
        }
        folder
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.path("config.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn options<'a>(&self, name: &str, resume: bool, stop: &'a AtomicBool) -> RunOptions<'a> {
        RunOptions::new(Device::flex(), self.path(name)).cache(self.path("cache")).resume(resume).stop(stop)
    }

    fn pretraining(&self, model: &str, sets: &[&str]) -> RunConfig {
        let corpus = self.path("corpus.txt");
        let path = self.write(&format!(
            "corpus = {{ files = [{corpus:?}] }}\nexamples = {{ seq_len = 24, pairs = {{ kind = \"doc-sentences\" }} }}\n\
             model = {model}\ntrain = {{ steps = 8, batch_size = 16 }}\noptimizer.lr = 3e-3\n\
             schedule.kind = \"constant\"\neval = {{ every = 8, heldout_fraction = 0.2 }}\n"
        ));
        RunConfig::load(path, &owned(sets)).unwrap()
    }

    fn pretrain(&self, name: &str, config: &RunConfig) -> (PathBuf, Figures, String) {
        let mut notes = Notes::default();
        let outcome =
            pretrain(config, &self.options(name, false, &AtomicBool::new(false)), &mut notes).unwrap();
        let evaluation = outcome.figures("heldout").unwrap().clone();
        let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
        (model, evaluation, notes.0)
    }

    fn prompt(&self, model: &Path, sets: &[&str]) -> FineTuneConfig {
        let [train, dev] = ["train.tsv", "dev.tsv"].map(|name| self.path(name));
        let path = self.write(&format!(
            "task = {{ kind = \"prompt\", template = \"{{text}} It was {{mask}}.\", verbaliser = {{ good = [\"sea\"], \
             bad = [\"ships\", \"film\"] }} }}\nmodel.path = {model:?}\ntrain = {{ epochs = 12, batch_size = 8 }}\n\
             data = {{ train = {{ files = [{train:?}] }}, dev = [{dev:?}], max_len = 24 }}\n\
             optimizer.lr = 3e-3\nschedule = {{ kind = \"linear\", warmup_steps = 5 }}\n"
        ));
        FineTuneConfig::load(&path, &owned(sets)).unwrap()
    }

    fn tune(&self, name: &str, config: &FineTuneConfig) -> cloze_trainer::Result<Outcome> {
        fine_tune(config, &self.options(name, false, &AtomicBool::new(false)), &mut Silent)
    }
}

fn owned(sets: &[&str]) -> Vec<String> {
    sets.iter().map(|set| (*set).to_owned()).collect()
}

/// Texts with their class, from a seed.
fn rows(n: usize, seed: u64) -> Vec<(String, &'static str)> {
    let mut state = seed;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let plain = ["the", "film", "was", "a", "story", "of", "ships", "and", "sea"];
    let told = [("dull", "bad"), ("weak", "bad"), ("fine", "good"), ("great", "good")];
    (0..n)
        .map(|_| {
            let (word, label) = told[random(4)];
            let mut words: Vec<&str> = (0..2 + random(6)).map(|_| plain[random(plain.len())]).collect();
            words.insert(random(words.len() + 1), word);
            (words.join(" "), label)
        })
        .collect()
}

fn parameters(model: &Path) -> NamedTensors {
    let tensors = cloze_model::huggingface::read_tensors(&model.join("model.safetensors")).unwrap();
    assert!(!tensors.is_empty());
    tensors
}

/// The evaluation before the first step.
fn first_evaluation(run: &Path) -> Figures {
    let records = jsonl::read(&run.join(METRICS_FILE)).unwrap();
    let found = records.into_iter().find_map(|record| match record {
        Record::Evaluation(record) if record.step == 0 => Some(record.figures),
        _ => None,
    });
    found.unwrap()
}

/// What is saved is found again by whatever reads encoders.
#[test]
fn new_encoders_have_each_kind_of_positions() {
    let _held = crate::generator();
    let bench = Bench::new();
    let tokenizer = bench.path("tokenizer");
    fs::create_dir(&tokenizer).unwrap();
    bench.tokenizer.save(&tokenizer).unwrap();
    let tokenizer = format!(
        "tokenizer={{ kind = \"load\", path = {:?} }}",
        tokenizer.join("tokenizer.json").display().to_string()
    );
    let device = Device::flex();
    for kind in PositionKind::ALL {
        let name = kind.name();
        let model = format!(
            "{{ n_layers = 1, d_model = 32, n_heads = 2, d_ff = 64, init_std = 0.1, hidden_dropout = 0.0, positions = {name:?} }}"
        );
        let config = bench.pretraining(&model, &[&*tokenizer, "train.steps=24"]);
        let (saved, evaluation, _) = bench.pretrain(name, &config);
        let before = first_evaluation(&bench.path(name)).get("masked_loss").unwrap();
        let after = evaluation.get("masked_loss").unwrap();
        assert!(after < 0.95 * before, "{name}: {before} to {after}");

        let opened = PretrainedFolder::open(&saved).unwrap().config;
        let is_berts = kind == PositionKind::Learned;
        assert_eq!(opened.family, if is_berts { Family::BERT } else { Family::CLOZE_BERT });
        assert_eq!(opened.encoder.positions(), Some(kind.into()));
        let filled = FillMask::load(&saved, &device).unwrap().fill("the story of [MASK] and sea", 3).unwrap();
        assert_eq!(filled[0].len(), 3);
        let embedded =
            Embedder::load(&saved, EmbedConfig::default(), &device).unwrap().embed(&["the sea"]).unwrap();
        assert!(embedded.values.len() == 32 && embedded.values.iter().all(|value| value.is_finite()));

        // It is tuned with what it was pretrained with.
        let tuned = bench.tune(&format!("{name}-tuned"), &bench.prompt(&saved, &["train.epochs=1"])).unwrap();
        let Outcome::Done { model, .. } = tuned else { panic!("not stopped") };
        assert_eq!(PretrainedFolder::open(&model).unwrap().config.encoder.positions(), Some(kind.into()));
    }
}

/// DistilBERT's student: one layer of its teacher's, drawn to its distributions and its last states.
#[test]
fn a_student_is_pretrained_by_a_teacher() {
    let _held = crate::generator();
    let bench = Bench::new();
    let path = bench.checkpoint("teacher", Family::BERT, true);
    let student = format!("{{ path = {path:?}, layers = [1] }}");
    let teacher = format!("distillation.teacher={:?}", path.display().to_string());
    let distil = ["distillation.soft=5", "distillation.hard=0", "distillation.inner={ cosine = 1 }"];
    let long = ["train.steps=40", "log.every=1", "optimizer.lr=1e-3"];
    let sets = [&[&*teacher], &distil[..], &long].concat();
    let (model, figures, notes) = bench.pretrain("distil", &bench.pretraining(&student, &sets));
    assert!(notes.contains("teacher, 2 layers of width 32"), "{notes}");
    assert!(figures.get("masked_loss").unwrap().is_finite());
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["num_hidden_layers"], 1);
    let records = jsonl::read(&bench.path("distil").join(METRICS_FILE)).unwrap();
    let term = |name: &str| {
        let steps = records.iter().filter_map(|record| match record {
            Record::Train(record) => record.losses.iter().find(|(of, _)| of == name).map(|(_, loss)| *loss),
            _ => None,
        });
        let values: Vec<f64> = steps.collect();
        assert!(values.len() > 30, "{name}");
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        (mean(&values[..5]), mean(&values[values.len() - 5..]))
    };
    for name in ["teacher", "cosine"] {
        let (first, last) = term(name);
        assert!(first > 0.0 && last < 0.8 * first, "{name} from {first} to {last}");
    }
    // A stop changes no bit.
    let config = bench.pretraining(&student, &sets);
    let stop = AtomicBool::new(false);
    pretrain(&config, &bench.options("stopped", false, &stop), &mut StopAfter(17, &stop)).unwrap();
    pretrain(&config, &bench.options("stopped", true, &AtomicBool::new(false)), &mut Silent).unwrap();
    assert_eq!(parameters(&bench.path("stopped/model")), parameters(&model));

    let headless = bench.checkpoint("headless", Family::BERT, false);
    let teacher = format!("distillation.teacher={:?}", headless.display().to_string());
    let run = |sets: &[&str]| {
        let config = bench.pretraining(&student, &[&[&*teacher], sets].concat());
        pretrain(&config, &bench.options("other", false, &AtomicBool::new(false)), &mut Silent)
    };
    let told = run(&[]).unwrap_err().to_string();
    assert!(told.contains("expected a teacher with a head for masked pieces ("), "{told}");
    run(&["distillation.soft=0", "distillation.inner={ states = 1, layers = [1] }"]).unwrap();
}

#[test]
fn pretraining_goes_on_from_a_checkpoint() {
    let _held = crate::generator();
    let bench = Bench::new();
    let device = Device::flex();
    let path = bench.checkpoint("encoder", Family::BERT, false);
    let config = bench.pretraining(&format!("{{ path = {path:?} }}"), &["train.steps=40"]);
    let (model, evaluation, notes) = bench.pretrain("first", &config);
    let line = notes.lines().find(|line| line.contains("newly initialised")).unwrap();
    assert!(line.contains("cls.predictions.bias, cls.predictions.transform.LayerNorm.bias"), "{line}");
    assert!(notes.contains(&path.display().to_string()), "{notes}");
    let before = first_evaluation(&bench.path("first"));
    assert!(evaluation.main().1 < before.main().1 - 1.0, "{} {}", before.main().1, evaluation.main().1);

    let saved = PretrainedFolder::open(&model).unwrap();
    assert_eq!(saved.config.architecture, Architecture::MaskedLm);
    assert_eq!(saved.config.encoder, bench.encoder(Family::BERT).with_pooler(false));
    let (_, _, report) = saved.load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
    assert_eq!(report.missing, Vec::<String>::new());
    assert_eq!(Tokenizer::load(&model).unwrap().vocab_size(), bench.tokenizer.vocab_size());
    let filled = FillMask::load(&model, &device).unwrap().fill("the story of [MASK] and sea", 3).unwrap();
    assert_eq!((filled.len(), filled[0].len()), (1, 3));
    let embedded =
        Embedder::load(&model, EmbedConfig::default(), &device).unwrap().embed(&["the sea"]).unwrap();
    assert_eq!(embedded.values.len(), 32);

    // A second run finds the head: its first evaluation is the first run's last.
    let config = bench.pretraining(&format!("{{ path = {model:?}, hidden_dropout = 0.1 }}"), &[]);
    let (_, _, notes) = bench.pretrain("second", &config);
    assert!(!notes.contains("newly initialised") && !notes.contains("not used"), "{notes}");
    let again = first_evaluation(&bench.path("second"));
    assert!((again.main().1 - evaluation.main().1).abs() < 1e-4);
    assert_eq!(again.get("masked_tokens"), evaluation.get("masked_tokens"));
}

#[test]
fn every_family_goes_on_with_what_heads_it_has() {
    let _held = crate::generator();
    let bench = Bench::new();
    let stop = AtomicBool::new(false);
    let path = bench.checkpoint("without-masks", Family::XLNET, false);
    let config = bench.pretraining(&format!("{{ path = {path:?} }}"), &[]);
    let error = pretrain(&config, &bench.options("refused", false, &stop), &mut Silent).unwrap_err();
    let expected =
        "`model.family` is \"xlnet\"; expected another one: of XLNet there are only XLNetModel and ";
    assert!(error.to_string().starts_with(expected), "{error}");
    for &family in Family::ALL.iter().filter(|family| family.pretraining(false).is_some()) {
        let path = bench.checkpoint(&format!("{family}"), family, true);
        let plain = format!("{{ path = {path:?} }}");
        let (model, _, notes) = bench.pretrain(&format!("{family}-run"), &bench.pretraining(&plain, &[]));
        assert!(!notes.contains("newly initialised"), "{notes}");
        let saved = PretrainedFolder::open(&model).unwrap();
        assert_eq!((saved.config.architecture, saved.config.family), (Architecture::MaskedLm, family));
        assert_ne!(parameters(&model), parameters(&path));
        FillMask::load(&model, &Device::flex()).unwrap();

        let pairs = bench.pretraining(&plain, &["examples.pairs={ kind = \"sentence-order\" }"]);
        let name = format!("{family}-pairs");
        if [Family::BERT, Family::ALBERT, Family::CLOZE_BERT].contains(&family) {
            let (model, evaluation, notes) = bench.pretrain(&name, &pairs);
            assert!(notes.contains("newly initialised") && evaluation.get("pair_loss").is_some());
            let saved = PretrainedFolder::open(&model).unwrap();
            assert_eq!(saved.config.architecture, Architecture::PreTraining);
            continue;
        }
        let stop = AtomicBool::new(false);
        let error =
            pretrain(&pairs, &bench.options(&name, false, &stop), &mut Silent).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "`examples.pairs.kind` is of sentence pairs; expected doc-sentences or full-sentences: {family} has \
                 no head for pairs"
            )
        );
    }
}

#[test]
fn what_a_checkpoint_cannot_do_is_said_before_the_corpus_is_read() {
    let _held = crate::generator();
    let bench = Bench::new();
    let path = bench.checkpoint("model", Family::BERT, true);
    let plain = format!("{{ path = {path:?} }}");
    let error = |name: &str, config: &RunConfig| {
        let stop = AtomicBool::new(false);
        let error =
            pretrain(config, &bench.options(name, false, &stop), &mut Silent).unwrap_err().to_string();
        assert!(!bench.path("cache").exists());
        error
    };
    assert_eq!(
        error("long", &bench.pretraining(&plain, &["examples.seq_len=33"])),
        "`examples.seq_len` is 33; expected at most 32, the checkpoint's positions"
    );
    let none = error("none", &bench.pretraining("{ path = \"no/such\" }", &[]));
    assert!(none.contains("no/such"), "{none}");
    let vocab: String = (0..200).map(|i| format!("w{i}\n")).collect();
    fs::remove_file(path.join("tokenizer.json")).unwrap();
    fs::write(path.join("vocab.txt"), format!("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{vocab}")).unwrap();
    let other = error("other", &bench.pretraining(&plain, &[]));
    assert!(other.contains("the tokenizer has 205 pieces"), "{other}");
}

#[test]
fn an_interrupted_run_from_a_checkpoint_ends_with_the_same_bits() {
    let _held = crate::generator();
    let bench = Bench::new();
    let path = bench.checkpoint("encoder", Family::BERT, false);
    let config = bench.pretraining(&format!("{{ path = {path:?}, attention_dropout = 0.2 }}"), &[]);
    let (whole, ..) = bench.pretrain("whole", &config);
    let stop = AtomicBool::new(false);
    let outcome = pretrain(&config, &bench.options("run", false, &stop), &mut StopAfter(3, &stop)).unwrap();
    assert_eq!(outcome, Outcome::Stopped { step: 3 });
    let stop = AtomicBool::new(false);
    let outcome = pretrain(&config, &bench.options("run", true, &stop), &mut Silent).unwrap();
    let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
    assert_eq!(parameters(&model), parameters(&whole));
}

#[test]
fn a_pretraining_runs_model_is_prompted() {
    let _held = crate::generator();
    let bench = Bench::new();
    let new = "{ n_layers = 2, d_model = 32, n_heads = 2, d_ff = 64, max_positions = 32 }";
    let vocabulary = "tokenizer={ kind = \"train-wordpiece\", vocab_size = 120 }";
    let (model, ..) = bench.pretrain("pretrained", &bench.pretraining(new, &[vocabulary]));
    let before = parameters(&model);

    // Without a step: what is measured is the model as it was.
    let config = bench.prompt(&model, &["train.epochs=0"]);
    let mut notes = Notes::default();
    let options_stop = AtomicBool::new(false);
    let done = fine_tune(&config, &bench.options("zero", false, &options_stop), &mut notes).unwrap();
    let dev = done.figures("dev").cloned();
    let Outcome::Done { model: zero, .. } = done else { panic!("not stopped") };
    assert!(!notes.0.contains("new "), "{}", notes.0);
    for (name, data) in parameters(&zero) {
        assert_eq!(before[&name], data, "{name}");
    }
    let predictor = Predictor::load(&zero, &Device::flex(), false).unwrap();
    let files = [bench.path("dev.tsv").display().to_string()];
    let evaluation = predictor.evaluate(&config, EvaluationData::Files(&files), &mut |_| {}).unwrap();
    assert_eq!(evaluation.figures.get("accuracy"), dev.unwrap().get("accuracy"));

    // With some the word in the text is found.
    let outcome = bench.tune("all", &bench.prompt(&model, &[])).unwrap();
    let dev = outcome.figures("dev").cloned();
    let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
    assert!(dev.as_ref().unwrap().get("accuracy").unwrap() > 0.9, "{dev:?}");
    let TaskFile { task: TaskSection::Prompt(section), max_len, .. } =
        TaskFile::read(&model).unwrap().unwrap()
    else {
        panic!("another task")
    };
    assert_eq!((section.positive.as_deref(), max_len), (Some("good"), 24));
    let predictor = Predictor::load(&model, &Device::flex(), false).unwrap();
    let long = format!("{:?}", format!("a great story{}", " of the sea".repeat(20)));
    let lines = ["\"a great story\"", " ", "{\"text\": \"the weak film\"}", &long];
    let predicted = predictor.predict(&lines, &mut |_| {}).unwrap();
    let labels: Vec<Option<&str>> = predicted.values.iter().map(|value| value["label"].as_str()).collect();
    assert_eq!(labels, [Some("good"), None, Some("bad"), Some("good")]);
    assert_eq!(predicted.truncated, 1);
    let refused = predictor.predict(&["{\"text\": \"a\", \"pair\": \"b\"}"], &mut |_| {}).unwrap().refused;
    let error = refused.unwrap().to_string();
    let expected = "the model's template has no place for `pair`; expected {\"text\": \"…\"} or \"…\"";
    assert_eq!(error, expected);
    let rounded = Predictor::load(&model, &Device::flex(), true).unwrap();
    let rounded = rounded.predict(&lines, &mut |_| {}).unwrap();
    assert_eq!(rounded.values[0]["label"], "good");
}

#[test]
fn a_few_shots_are_drawn_by_the_seed() {
    let _held = crate::generator();
    let bench = Bench::new();
    let path = bench.checkpoint("model", Family::BERT, true);
    let sets = ["data.shots=4", "train.epochs=3", "model.dropout.hidden=0.1", "schedule.warmup_steps=1"];
    let config = bench.prompt(&path, &sets);
    bench.tune("whole", &config).unwrap();
    bench.tune("again", &config).unwrap();
    let of = |name: &str| parameters(&bench.path(name).join("model"));
    assert_eq!(of("whole"), of("again"));
    bench.tune("other", &bench.prompt(&path, &[&sets[..], &["run.seed=7"]].concat())).unwrap();
    assert_ne!(of("whole"), of("other"));

    // Eight examples are a step; of three, the second is cut short.
    let stop = AtomicBool::new(false);
    let stopped = fine_tune(&config, &bench.options("run", false, &stop), &mut StopAfter(2, &stop)).unwrap();
    assert_eq!(stopped, Outcome::Stopped { step: 2 });
    let resume = || fine_tune(&config, &bench.options("run", true, &AtomicBool::new(false)), &mut Silent);
    resume().unwrap();
    assert_eq!(of("run"), of("whole"));
    // Other examples in the same places are not continued with.
    let rows: String = rows(160, 9).iter().map(|(text, label)| format!("{text}\t{label}\n")).collect();
    fs::write(bench.path("train.tsv"), format!("text\tlabel\n{rows}")).unwrap();
    let error = resume().unwrap_err().to_string();
    assert!(error.contains("train.tsv has changed since the run in"), "{error}");
    // A checkpoint knows its examples by itself too.
    fs::remove_file(bench.path("run/run.json")).unwrap();
    let error = resume().unwrap_err().to_string();
    assert!(error.contains("was made with other training examples"), "{error}");
}

#[test]
fn what_a_prompt_needs_is_said() {
    let _held = crate::generator();
    let bench = Bench::new();
    let path = bench.checkpoint("model", Family::BERT, true);
    let mut runs = 0..;
    let mut error = |sets: &[&str]| {
        let name = format!("run-{}", runs.next().unwrap());
        bench.tune(&name, &bench.prompt(&path, sets)).unwrap_err().to_string()
    };
    let pieces = bench.tokenizer.encode("unseaworthy", false).unwrap().tokens.join(" ");
    assert_eq!(
        error(&["task.verbaliser={ good = [\"sea\"], bad = [\"unseaworthy\"] }"]),
        format!(
            "`task.verbaliser.bad` is \"unseaworthy\", which is {pieces} to the tokenizer; expected a word that is one \
             piece of the vocabulary"
        )
    );
    for (set, expected) in [
        ("task.verbaliser.good=[\"Film\"]", "`task.verbaliser.good` is \"Film\"; expected distinct words"),
        ("task.verbaliser.good=[]", "`task.verbaliser.good` is []; expected at least one word"),
        (
            "task.verbaliser.good=[\"\"]",
            "`task.verbaliser.good` is \"\", which is nothing to the tokenizer; expected a word that is one piece of the vocabulary",
        ),
        ("task.positive=best", "`task.positive` is \"best\"; expected one of bad, good"),
        ("task.template=\"{text}\"", "`task.template` is \"{text}\"; expected one {mask}"),
        ("data.shots=100", "`data.shots` is 100; expected at most"),
        (
            "data.max_len=6",
            "`data.max_len` is 6; expected at least 7: the template, the special tokens and a token of each text",
        ),
    ] {
        let message = error(&[set]);
        assert!(message.starts_with(expected), "{message}");
    }
    let more = error(&["task.verbaliser.none=[\"story\"]", "data.shots=1"]);
    assert!(more.ends_with("expected at most 0, the training examples of class \"none\""), "{more}");
    let headless = bench.checkpoint("headless", Family::BERT, false);
    let message = bench.tune("headless-run", &bench.prompt(&headless, &[])).unwrap_err().to_string();
    assert!(message.contains("has no masked-LM head (`cls.predictions.bias` is missing)"), "{message}");

    let refused = |sets: &[&str]| {
        bench.prompt(&path, &[]);
        FineTuneConfig::load(bench.path("config.toml"), &owned(sets)).unwrap_err().to_string()
    };
    assert!(refused(&["data.shots=0"]).ends_with("`data.shots` is 0; expected a whole number of 1 or more"));
    assert!(
        refused(&["model.dropout.head=0.1"]).ends_with("expected none: the masked-LM head has no dropout")
    );
    let regression = refused(&["task={ kind = \"regression\" }", "data.shots=3"]);
    assert!(
        regression.ends_with("`data.shots` is 3; expected a task with a class for each example"),
        "{regression}"
    );
    let epochs = refused(&["task={ kind = \"classification\" }", "train.epochs=0"]);
    assert!(epochs.ends_with("`train.epochs` is 0; expected a whole number of 1 or more"), "{epochs}");
    let config = bench.prompt(&path, &[]);
    fs::write(bench.path("back.toml"), cloze_trainer::config::FolderConfig::to_toml(&config)).unwrap();
    assert_eq!(FineTuneConfig::load(bench.path("back.toml"), &[]).unwrap(), config);
}

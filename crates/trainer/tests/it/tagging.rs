//! Fine-tuning on tagged sentences, end to end on a small random checkpoint: what is learnt, saved, resumed.

use crate::stop_after::StopAfter;
use burn::module::Module;
use burn::tensor::{Device, TensorData};
use cloze_data::labelled::LabelledSource;
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{
    self, Architecture, Family, PretrainedFolder, SaveConfig, save_pretrained, write_tensors,
};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::weights::NamedTensors;
use cloze_tokenizer::{Tokenizer, Vocab};
use cloze_trainer::TrainerError;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::PretrainedTask as _;
use cloze_trainer::finetune::{
    FineTuneConfig, Predictor, TagTask, TaskFile, TaskSection, fine_tune, outputs, predict,
};
use cloze_trainer::metrics::progress::Silent;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// A folder with a checkpoint, tagged sentences and a config.
struct Bench {
    folder: TempDir,
}

/// Sentences in IOB1: `p` begins a person that any number of `q` continue, `l` is a place; all else is outside.
/// A person that follows another has the `B-`.
fn sentences(n: usize, phase: usize) -> String {
    let mut text = String::new();
    for i in phase..phase + n {
        let mut before = "O";
        for j in 0..3 + i * 7 % 9 {
            let (word, tag) = match (i * 31 + j * j * 5 + i * j) % 7 {
                0 | 1 if before == "PER" => ("p", "B-PER"),
                0 | 1 => ("p", "I-PER"),
                2 | 3 if before == "PER" => ("qq", "I-PER"),
                4 if before != "LOC" => ("l", "I-LOC"),
                5 => ("ab", "O"),
                _ => ("c.", "O"),
            };
            before = tag.split_once('-').map_or("O", |(_, kind)| kind);
            writeln!(text, "{word} {tag}").unwrap();
        }
        text.push('\n');
    }
    text
}

const CONFIG: &str = r#"[task]
kind = "tagging"
long_sentences = { windows = { stride = 2 } }

[model]
path = "FOLDER/checkpoint"

[data]
train = { files = ["FOLDER/train.conll"] }
dev = ["FOLDER/dev.conll"]
max_len = 12

[train]
epochs = 6
batch_size = 8

[optimizer]
lr = 1e-2

[schedule]
kind = "linear"
"#;

impl Bench {
    fn new() -> Self {
        Self::of(Family::BERT)
    }

    /// With a checkpoint of this family.
    fn of(family: Family) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
        let pieces = ["a", "##b", "c", ".", "p", "q", "##q", "l"].map(String::from);
        let vocab = Vocab::from_tokens(specials.into_iter().chain(pieces)).unwrap();
        let tokenizer = Tokenizer::bert(vocab, false).unwrap();
        let shape = BertConfig::new(tokenizer.vocab_size(), 2, 16)
            .with_n_heads(2)
            .with_d_ff(32)
            .with_max_positions(16);
        let shape = family.encoder(shape);
        let model = shape.init_encoder(&mut ParamInit::new(&Device::flex(), 7).with_std(0.3));
        let path = bench.path("checkpoint");
        std::fs::create_dir(&path).unwrap();
        let save = SaveConfig::new(Architecture::Encoder).with_family(family);
        save_pretrained(&path, &model, &shape, &save).unwrap();
        tokenizer.save(&path).unwrap();
        crate::frame_for(family, &path);
        bench.write("train.conll", &sentences(60, 0));
        bench.write("dev.conll", &sentences(20, 60));
        bench.write("run.toml", CONFIG);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let text = text.replace("FOLDER", self.folder.path().to_str().unwrap());
        std::fs::write(self.path(name), text).unwrap();
    }

    fn config(&self, sets: &[&str]) -> Result<FineTuneConfig, TrainerError> {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        FineTuneConfig::load(self.path("run.toml"), &sets)
    }

    fn run(
        &self,
        out: &str,
        sets: &[&str],
        resume: bool,
        stop_after: Option<u64>,
    ) -> Result<Outcome, TrainerError> {
        let stop = AtomicBool::new(false);
        let options = RunOptions::new(Device::flex(), self.path(out))
            .cache(self.path("cache"))
            .resume(resume)
            .stop(&stop);
        match stop_after {
            Some(step) => fine_tune(&self.config(sets)?, &options, &mut StopAfter(step, &stop)),
            None => fine_tune(&self.config(sets)?, &options, &mut Silent),
        }
    }

    /// Makes a whole run; the saved model's tensors and its figures.
    fn finish(&self, out: &str, sets: &[&str], resume: bool) -> (NamedTensors, Figures) {
        let done = self.run(out, sets, resume, None).unwrap();
        let dev = done.figures("dev").cloned();
        let Outcome::Done { model, .. } = done else { panic!("{done:?}") };
        (huggingface::read_tensors(&model.join("model.safetensors")).unwrap(), dev.unwrap())
    }
}

/// The task of a saved folder and its model.
fn reopen(folder: &Path) -> (TagTask, <TagTask as cloze_trainer::finetune::Task>::Model, TaskFile) {
    let file = TaskFile::read(folder).unwrap().unwrap();
    let TaskSection::Tagging(section) = &file.task else { panic!("{file:?}") };
    let task = TagTask::spelt_out(section).unwrap();
    let checkpoint = PretrainedFolder::open(folder).unwrap();
    assert_eq!(checkpoint.config.architecture, Architecture::TokenClassification);
    assert_eq!(checkpoint.config.labels, task.labels.names());
    let init = &mut ParamInit::new(&Device::flex(), 99);
    let (_, model, report) = task.model(checkpoint, &DropoutOverrides::default(), init).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    (task, model.valid(), file)
}

/// Sentences of [`sentences`] as CoNLL-U, each word with the class that it alone decides.
fn treebank(n: usize, phase: usize) -> String {
    let text = sentences(n, phase);
    let sentence = |sentence: &str| {
        let word = |(i, line): (usize, &str)| {
            let form = line.split(' ').next().unwrap();
            let class = match form {
                "p" | "qq" => "PROPN",
                "l" => "NOUN",
                "ab" => "VERB",
                _ => "PUNCT",
            };
            format!("{}\t{form}\t_\t{class}\t_\t_\t0\troot\t_\t_\n", i + 1)
        };
        sentence.lines().enumerate().map(word).collect::<String>() + "\n"
    };
    text.split("\n\n").filter(|part| !part.is_empty()).map(sentence).collect()
}

#[test]
fn classes_of_words_are_learnt_measured_and_asked_for() {
    let _generator = crate::generator();
    let bench = Bench::new();
    bench.write("train.conllu", &treebank(60, 0));
    bench.write("dev.conllu", &treebank(20, 60));
    let config = CONFIG
        .replace(".conll\"", ".conllu\"")
        .replace("kind = \"tagging\"", "kind = \"tagging\"\nscheme = \"words\"");
    bench.write("run.toml", &config);
    let (tensors, dev) = bench.finish("run", &[], false);
    let (main, accuracy) = dev.main();
    assert_eq!(main, "accuracy");
    assert!(accuracy > 0.95, "{dev}");
    assert!(tensors.contains_key("classifier.weight"));
    let folder = bench.path("run/model");
    let (task, _, _) = reopen(&folder);
    assert_eq!(task.labels.names(), ["NOUN", "PROPN", "PUNCT", "VERB"]);
    let model = PretrainedFolder::open(&folder).unwrap();
    assert_eq!(model.config.labels, ["NOUN", "PROPN", "PUNCT", "VERB"]);

    // A model of classes is not measured as one of entities, and the other way round.
    let predictor = Predictor::load(&folder, &Device::flex(), false).unwrap();
    let measure = |config: &FineTuneConfig| {
        let files = cloze_trainer::finetune::EvaluationData::Files(&config.data.dev);
        predictor.evaluate(config, files, &mut |_| ())
    };
    let measured = measure(&bench.config(&[]).unwrap()).unwrap();
    assert_eq!(measured.figures.main(), ("accuracy", accuracy));
    bench.write("run.toml", CONFIG);
    let error = measure(&bench.config(&[]).unwrap()).err().unwrap().to_string();
    assert_eq!(
        error,
        "`task.scheme` is of entities; expected \"words\": the model's tags are classes of words"
    );
    let error = bench.config(&["task.predict_scheme=words"]).unwrap_err().to_string();
    assert!(
        error.contains("`task.predict_scheme` is \"words\"; expected no such key, or \"words\" with `task.scheme` = \"words\""),
        "{error}"
    );
}

fn learns_and_is_saved_whole(crf: &str) {
    let bench = Bench::new();
    let (tensors, dev) = bench.finish("run", &[crf, "task.crf_lr_scale=10"], false);
    let (main, f1) = dev.main();
    assert_eq!(main, "f1");
    assert!(f1 > 0.9, "{dev}");
    let has_crf = crf.ends_with("true");
    assert_eq!(tensors.contains_key("crf.transitions"), has_crf);
    assert!(tensors.contains_key("classifier.weight"), "{:?}", tensors.keys());

    let folder = bench.path("run/model");
    let (task, model, file) = reopen(&folder);
    assert_eq!(task.labels.names(), ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]);
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let source = LabelledSource::new([bench.path("dev.conll").to_str().unwrap()]);
    let examples = task.read_more(&source).unwrap().examples;
    let (data, report) = task.encode(&tokenizer, examples, file.max_len).unwrap();
    assert!(report.long_sentences > 0, "{report:?}");
    assert!(data.features.iter().any(|features| features.windows.len() > 1));
    let device = Device::flex();
    for batch_tokens in [1, 64, 10_000] {
        let figures = predict(&task, &model, &data, batch_tokens, &device, &mut |_| {}).unwrap().figures();
        assert_eq!(figures.main(), dev.main(), "{batch_tokens} tokens in a batch");
    }
    if has_crf {
        let found = outputs(&task, &model, &data.features, 64, &device, &mut |_| {});
        for tags in task.tags(&data.examples, &data.features, &found) {
            task.scheme().spans(&tags).unwrap();
        }
    }
    assert!(bench.path("run/report/dev/types.tsv").is_file());

    // Weights so large that scores overflow: no tags are made of them.
    let file = folder.join("model.safetensors");
    let mut tensors = tensors;
    let bias = tensors.get_mut("classifier.bias").unwrap();
    *bias = TensorData::full(vec![5], f32::MAX);
    let weight = tensors.get_mut("classifier.weight").unwrap();
    *weight = TensorData::full(weight.shape().to_vec(), f32::MAX);
    write_tensors(&file, &tensors, &[("format", "pt")]).unwrap();
    let model = Predictor::load(&folder, &device, false).unwrap();
    let error = model.predict(&["\"p q o l\""], &mut |_| {}).err().unwrap();
    assert!(matches!(error, TrainerError::OutputNotFinite), "{error}");
}

#[test]
fn softmax_learns_and_is_saved_whole() {
    let _held = crate::generator();
    learns_and_is_saved_whole("task.crf=false");
}

#[test]
fn a_head_of_several_layers_learns() {
    let _held = crate::generator();
    let bench = Bench::of(Family::MODERNBERT);
    let (tensors, dev) = bench.finish("run", &["task.crf=false"], false);
    assert!(dev.main().1 > 0.9, "{dev}");
    assert!(tensors.contains_key("head.dense.weight") && tensors.contains_key("classifier.bias"));
}

#[test]
fn the_encoder_of_a_t5_learns() {
    let _held = crate::generator();
    let bench = Bench::of(Family::T5);
    let (tensors, dev) = bench.finish("run", &["task.crf=false"], false);
    assert!(dev.main().1 > 0.9, "{dev}");
    assert!(tensors.contains_key("transformer.shared.weight") && tensors.contains_key("classifier.bias"));
}

#[test]
fn xlnet_learns_tags() {
    let _held = crate::generator();
    let bench = Bench::of(Family::XLNET);
    let (tensors, dev) = bench.finish("run", &["task.crf=false"], false);
    assert!(dev.main().1 > 0.9, "{dev}");
    assert!(tensors.contains_key("transformer.mask_emb") && tensors.contains_key("classifier.bias"));
}

#[test]
fn a_crf_learns_and_is_saved_whole() {
    let _held = crate::generator();
    learns_and_is_saved_whole("task.crf=true");
}

#[test]
fn tags_are_learnt_from_a_teacher_alone_whatever_its_pieces() {
    let _held = crate::generator();
    let bench = Bench::new();
    bench.finish("taught", &["task.crf=false"], false);
    let teacher = format!("distillation.teacher={:?}", bench.path("taught/model").display().to_string());
    let sets = ["task.crf=false", "distillation.soft=1", &teacher];
    let (first, dev) = bench.finish("student", &sets, false);
    assert!(dev.main().1 > 0.8, "{dev}");
    let stopped = bench.run("parted", &sets, false, Some(5)).unwrap();
    assert_eq!(stopped, Outcome::Stopped { step: 5 });
    let (parted, _) = bench.finish("parted", &sets, true);
    assert_eq!(first, parted, "the same bits after a stop");
    // Other numbers for the pieces: the student's words are the teacher's all the same.
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let pieces = ["l", "##q", "q", "p", ".", "c", "##b", "a"].map(String::from);
    let vocab = Vocab::from_tokens(specials.into_iter().chain(pieces)).unwrap();
    Tokenizer::bert(vocab, false).unwrap().save(bench.path("checkpoint")).unwrap();
    let (_, dev) = bench.finish("other-pieces", &sets, false);
    assert!(dev.main().1 > 0.7, "{dev}");
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let _held = crate::generator();
    for crf in ["task.crf=false", "task.crf=true"] {
        let bench = Bench::new();
        let sets = [crf, "train.epochs=2"];
        let (whole, dev) = bench.finish("whole", &sets, false);
        let stopped = bench.run("stopped", &sets, false, Some(5)).unwrap();
        assert_eq!(stopped, Outcome::Stopped { step: 5 });
        let (resumed, dev_resumed) = bench.finish("stopped", &sets, true);
        assert!(resumed == whole, "the trained parameters differ with {crf}");
        assert_eq!(dev_resumed, dev);
    }
}

#[test]
fn the_crf_has_a_rate_of_its_own_unless_groups_say_otherwise() {
    let _held = crate::generator();
    let bench = Bench::new();
    let transitions = |out: &str, sets: &[&str]| {
        let sets: Vec<&str> = ["task.crf=true", "train.epochs=1"].iter().chain(sets).copied().collect();
        let (mut tensors, _) = bench.finish(out, &sets, false);
        tensors.remove("crf.transitions").unwrap()
    };
    let frozen = transitions("frozen", &["task.crf_lr_scale=0"]);
    let group = r#"optimizer.groups=[{ parameters = "crf.*", lr_scale = 0.0 }]"#;
    assert!(transitions("group", &[group]) == frozen);
    assert!(transitions("usual", &[]) != frozen);
    // So little has nothing learnt, and what has not is as small as it was drawn.
    assert!(frozen.iter::<f32>().all(|score| score.abs() <= 0.04), "{frozen:?}");
}

#[test]
fn sentences_that_lose_words_keep_to_the_scheme() {
    let _held = crate::generator();
    let bench = Bench::new();
    // More pieces than fit; the second word has none; what is cut off ends an entity.
    bench.write(
        "long.conll",
        "p B-PER\n\u{7} I-PER\nq I-PER\nc O\n\u{7} B-PER\nq I-PER\nqq I-PER\nqq E-PER\nl S-LOC\n",
    );
    let tags = |sets: &[&str]| {
        let mut config = bench.config(sets).unwrap();
        config.data.train.files = vec![bench.path("long.conll").to_str().unwrap().to_owned()];
        let TaskSection::Tagging(section) = &config.task else { panic!("{config:?}") };
        let (task, read) = TagTask::read(section, &config.data.train).unwrap();
        let tokenizer = Tokenizer::load(&config.model.path).unwrap();
        let (data, _) = task.encode(&tokenizer, read.examples, 8).unwrap();
        let [features] = &data.features[..] else { panic!("{:?}", data.features) };
        let names = features.labels.iter().map(|label| task.labels.name(*label).unwrap().to_owned());
        let names: Vec<String> = names.collect();
        let words: Vec<usize> = features.words().collect();
        task.scheme().spans(&names).unwrap();
        (words, names.join(" "))
    };
    let cut = [r#"task.long_sentences="truncate""#];
    assert_eq!(tags(&cut), (vec![0, 2, 3, 5, 6], "B-PER E-PER O B-PER E-PER".into()));
    let bio = ["task.long_sentences={ windows = { stride = 2 } }", r#"task.predict_scheme="bio""#];
    assert_eq!(tags(&bio), (vec![0, 2, 3, 5, 6, 7, 8], "B-PER I-PER O B-PER I-PER I-PER B-LOC".into()));
}

#[test]
fn a_share_is_held_out() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["data.dev=[]", "data.dev_fraction=0.25", "train.epochs=1", r#"task.predict_scheme="bioes""#];
    let (tensors, dev) = bench.finish("run", &sets, false);
    assert!((8..25).contains(&dev.examples()), "{} of 60", dev.examples());
    assert_eq!(tensors["classifier.bias"].shape()[..], [9]);
    let (again, _) = bench.finish("again", &sets, false);
    assert!(again == tensors);
    let message = bench.config(&["data.dev_fraction=0.25"]).unwrap_err().to_string();
    assert!(
        message.ends_with(
            "`data.dev_fraction` is 0.25; expected nothing with `data.dev` (`data.dev=[]` removes that)"
        ),
        "{message}"
    );
}

#[test]
fn mistakes_are_named() {
    let _held = crate::generator();
    let bench = Bench::new();
    let error = |sets: &[&str]| bench.run("run", sets, false, None).unwrap_err().to_string();
    let scheme = error(&[r#"task.scheme="bio""#]);
    assert!(
        scheme.contains(" is not valid in BIO here: ") && scheme.contains(" (the `scheme` is set)"),
        "{scheme}"
    );
    let _ = std::fs::remove_dir_all(bench.path("run"));
    let labels = error(&[r#"task.labels=["O", "PER"]"#]);
    assert!(labels.contains("`PER` is not a tag of BIO"), "{labels}");
    let scale = error(&["task.crf_lr_scale=-1"]);
    assert!(scale.ends_with("`task.crf_lr_scale` is -1; expected a number of 0 or more"), "{scale}");
    let key = error(&["task.crff=true"]);
    assert!(key.contains("crff"), "{key}");
    bench.write("dev.conll", "p B-ORG\n");
    let _ = std::fs::remove_dir_all(bench.path("run"));
    let tag = error(&[]);
    assert!(tag.contains("dev.conll:1: word 1: tag `B-ORG`, expected one of O, B-LOC"), "{tag}");
    bench.write("dev.conll", "p O\n\np O\np X-LOC\n");
    let _ = std::fs::remove_dir_all(bench.path("run"));
    let tag = error(&[]);
    assert!(tag.contains("dev.conll:3: word 2: `X-LOC` is not an entity tag; expected `O`, or a "), "{tag}");
}

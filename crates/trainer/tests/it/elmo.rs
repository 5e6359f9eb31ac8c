//! ELMo in training: what it learns, where a run may stop, what it leaves.

use crate::bench::Bench;
use burn::tensor::Device;
use cloze_model::elmo::ElmoConfig;
use cloze_model::huggingface::{load_published, read_tensors};
use cloze_model::{ParamInit, Sequences};
use cloze_tokenizer::Tokenizer;
use cloze_trainer::config::ElmoRunConfig;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, fine_tune};
use cloze_trainer::metrics::progress::{RunProgress, Silent, Status};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

const CONFIG: &str = r#"
objective.kind = "bidirectional-language-model"
tokenizer = { kind = "train-byte-bpe", vocab_size = 300 }
blocks.seq_len = 16
model = { max_characters = 10, d_character = 6, filters = [[1, 8], [2, 16], [3, 16]], n_highway = 1, d_hidden = 32, d_projection = 20, dropout = 0.0 }
train = { steps = 8, batch_size = 4 }
optimizer.lr = 5e-3
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_blocks = 40 }
log.every = 1
"#;

fn bench() -> Bench<ElmoRunConfig> {
    Bench::new(CONFIG, |i| format!("The ship number {i} sailed.\nNo ship sank.\n"))
}

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = bench();
    for (number, sets) in [
        vec!["model.dropout=0.1", "train.workers=2"],
        vec!["blocks.documents=apart", "train.accumulate=2", "average={ kind = \"ema\", decay = 0.5 }"],
    ]
    .into_iter()
    .enumerate()
    {
        bench.assert_same_bits_after_a_stop(&number.to_string(), &sets);
    }
}

#[test]
fn a_model_learns_its_text_both_ways_and_is_gone_on_with() {
    let _generator = crate::generator();
    let bench = bench();
    let loss = |outcome: &Outcome, name| outcome.figures("heldout").unwrap().get(name).unwrap();
    let untrained = loss(&bench.run("short", &["train.steps=1", "optimizer.lr=1e-9"]).unwrap(), "loss");
    let done = bench.run("first", &["train.steps=150", "eval.every=200"]).unwrap();
    let after = loss(&done, "loss");
    // The numbers of ships are hard to tell, all else is not.
    assert!(after < 0.4 * untrained, "{after} from {untrained}");
    assert!((loss(&done, "perplexity") - after.exp()).abs() < 1e-9);
    let metrics = std::fs::read_to_string(bench.path("first/metrics.jsonl")).unwrap();
    let mut lines = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let last = lines.rfind(|line| line.get("losses").is_some()).unwrap();
    let [forward, backward] = ["forward", "backward"].map(|term| last["losses"][term].as_f64().unwrap());
    assert!((last["loss"].as_f64().unwrap() - 0.5 * (forward + backward)).abs() < 1e-5, "{last}");
    // Both directions learn.
    assert!(forward < 0.5 * untrained && backward < 0.5 * untrained, "{forward}, {backward} of {untrained}");

    // What the run leaves has the tokenizer's pieces in bytes, and reads its ids.
    let folder = bench.path("first/model");
    let device = Device::flex();
    let (config, model, report) =
        load_published::<ElmoConfig>(&folder, &mut ParamInit::new(&device, 1)).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    let tokenizer = Tokenizer::load(&folder).unwrap();
    assert_eq!(config.vocab_size(), tokenizer.vocab_size());
    let ids: Vec<i32> =
        tokenizer.encode_ids("No ship sank.", false).unwrap().into_iter().map(|id| id as i32).collect();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| config.pieces.get(*id).to_vec()).collect();
    assert_eq!(bytes, b"No ship sank.");
    let text: Sequences = [ids.as_slice()].into_iter().collect();
    let mean = model.losses(&text, &device).previous.mean().into_scalar::<f32>();
    assert!(f64::from(mean) < 0.4 * untrained, "{mean}");

    let path = format!("model={{ path = {:?} }}", folder.display().to_string());
    let sets = [&path, "tokenizer={ kind = \"checkpoint\" }", "train.steps=1", "optimizer.lr=1e-9"];
    let again = bench.run("second", &sets).unwrap();
    assert!((loss(&again, "loss") - after).abs() < 1e-4);
}

#[test]
fn what_does_not_fit_is_said_before_the_first_step() {
    let bench = bench();
    let tokenizer = bench.path("characters.json");
    let characters = Tokenizer::characters(('a'..='z').chain([' ']), Vec::<String>::new(), None).unwrap();
    std::fs::write(&tokenizer, characters.to_json()).unwrap();
    let error = |sets: &[&str]| bench.run("refused", sets).unwrap_err().to_string();
    let message =
        error(&[&format!("tokenizer={{ kind = \"load\", path = {:?} }}", tokenizer.display().to_string())]);
    assert!(
        message.contains("characters.json; expected a tokenizer of bytes")
            && message.contains("`tokenizer.path`")
            && message.contains("`objective.kind` = \"bidirectional-language-model\""),
        "{message}"
    );
    let message = error(&["blocks.end=\"<gone>\""]);
    assert!(message.contains("`blocks.end` is \"<gone>\""), "{message}");
}

const TASK: &str = r#"
train = { epochs = 12, batch_size = 8 }
optimizer.lr = 1e-2
schedule.kind = "constant"
log.every = 5
"#;

/// Texts that are good or bad by one word of theirs, and sentences in which the word behind a title is a name; and an
/// ELMo of such texts.
fn tasks() -> Bench<ElmoRunConfig> {
    let row = |i: usize| {
        let words = [("dull", "bad"), ("weak", "bad"), ("fine", "good"), ("great", "good")];
        let (word, label) = words[i * 7 % 4];
        let thing = ["ship", "film", "story", "sea", "song"][i * 3 % 5];
        (format!("the {thing} was {word}"), label)
    };
    let bench = Bench::new(CONFIG, |i| row(i).0 + "\n");
    for (name, range) in [("train", 0..120), ("dev", 120..160)] {
        let (mut texts, mut sentences) = ("text\tlabel\n".to_owned(), String::new());
        for i in range {
            let (text, label) = row(i);
            writeln!(texts, "{text}\t{label}").unwrap();
            let name = ["story", "film", "sea"][i % 3];
            let plain = ["ship", "song", "story"][i / 3 % 3];
            writeln!(sentences, "the O\n{plain} O\ncaptain O\n{name} B-PER\nwas O\n").unwrap();
        }
        std::fs::write(bench.path(&format!("{name}.tsv")), texts).unwrap();
        std::fs::write(bench.path(&format!("{name}.conll")), sentences).unwrap();
    }
    bench
}

fn task(bench: &Bench<ElmoRunConfig>, kind: &str, ending: &str, sets: &[&str]) -> FineTuneConfig {
    let path = bench.path("task.toml");
    let [train, dev] = ["train", "dev"].map(|name| bench.path(&format!("{name}.{ending}")));
    let data = format!(
        "task.kind = {kind:?}\nmodel.path = {:?}\n\
         data = {{ train = {{ files = [{train:?}] }}, dev = [{dev:?}], max_len = 64 }}\n",
        bench.path("lm/model")
    );
    std::fs::write(&path, data + TASK).unwrap();
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    FineTuneConfig::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"))
}

/// Asks the run to stop after a step.
struct StopAfter<'a>(u64, &'a AtomicBool);

impl RunProgress for StopAfter<'_> {
    fn step(&mut self, status: &Status) {
        if status.step == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_classifier_and_a_tagger_read_the_layers_by_a_mix_of_their_own() {
    let _generator = crate::generator();
    let bench = tasks();
    bench.run("lm", &["train.steps=150", "eval.every=200"]).unwrap();
    let before = read_tensors(&bench.path("lm/model/model.safetensors")).unwrap();
    for (kind, ending, metric, sets) in [
        ("classification", "tsv", "accuracy", vec!["model.dropout={ head = 0.1 }"]),
        (
            "tagging",
            "conll",
            "f1",
            vec![
                "model.dropout={ head = 0.1 }",
                "model.freeze=[\"encoder.*\"]",
                "task.crf=true",
                "task.crf_lr_scale=1",
            ],
        ),
    ] {
        let config = task(&bench, kind, ending, &sets);
        let options = RunOptions::new(Device::flex(), bench.path(kind)).cache(bench.path("cache"));
        let tuned = fine_tune(&config, &options, &mut Silent).unwrap();
        let found = tuned.figures("dev").unwrap().get(metric).unwrap();
        assert!(found > 0.9, "{kind}: {:?}", tuned.figures("dev"));
        let Outcome::Done { model, .. } = &tuned else { panic!("stopped") };
        let after = read_tensors(&model.join("model.safetensors")).unwrap();
        let moved = |name: &str| after[name] != before[name];
        let names = ["encoder.characters.projection.weight", "encoder.layers.1.reverse.recurrent"];
        assert_eq!(names.map(moved), [kind == "classification"; 2], "{kind}");
        let weights: Vec<f32> = after["reader.mix.weights"].iter::<f32>().collect();
        assert!(weights.len() == 3 && weights.iter().all(|weight| *weight != 0.0), "{kind}: {weights:?}");
        // The saved model says what the run said.
        let predictor = Predictor::load(model, &Device::flex(), false).unwrap();
        let measured =
            predictor.evaluate(&config, EvaluationData::Files(&config.data.dev), &mut |_| {}).unwrap();
        assert_eq!(measured.figures.get(metric), Some(found), "{kind}");
        // Stopped, and gone on with.
        let stop = AtomicBool::new(false);
        let out = format!("{kind}-stopped");
        let options = RunOptions::new(Device::flex(), bench.path(&out)).cache(bench.path("cache"));
        let stopped = fine_tune(&config, &options.clone().stop(&stop), &mut StopAfter(7, &stop)).unwrap();
        assert_eq!(stopped, Outcome::Stopped { step: 7 });
        fine_tune(&config, &options.resume(true), &mut Silent).unwrap();
        assert!(bench.weights(&out) == bench.weights(kind), "{kind}: other weights after a stop");
    }
    let predictor = Predictor::load(&bench.path("classification/model"), &Device::flex(), false).unwrap();
    let answers =
        predictor.predict(&["\"the song was dull\"", "\"the film was great\""], &mut |_| {}).unwrap();
    assert_eq!([&answers.values[0]["label"], &answers.values[1]["label"]], ["bad", "good"]);
}

#[test]
fn what_a_task_on_elmo_does_not_have_is_refused() {
    let _generator = crate::generator();
    let bench = tasks();
    bench.run("lm", &["train.steps=1"]).unwrap();
    for (set, expected) in [
        (
            "model.dropout.attention=0.1",
            "`model.dropout.attention` is 0.1; expected none, but `hidden` or `head`: `model.path` is an ELMo",
        ),
        ("model.lora.rank=2", "`model.lora` is a table; expected none: `model.path` is an ELMo"),
        ("task.pooling=mean", "`task.pooling` is Mean; expected none: `model.path` is an ELMo"),
        ("train.recompute=true", "`train.recompute` is true; expected false: `model.path` is an ELMo"),
        ("model.freeze_layers=3", "`model.freeze_layers` is 3; expected at most 2, the checkpoint's layers"),
    ] {
        let config = task(&bench, "classification", "tsv", &[set]);
        let options = RunOptions::new(Device::flex(), bench.path(&set.replace(['.', '='], "-")));
        let error = fine_tune(&config, &options.cache(bench.path("cache")), &mut Silent).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

//! Every example is trained, interrupted and resumed, and ends with the same bits.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use burn::tensor::Device;
use cloze_examples::requests::{self, Surprise};
use cloze_examples::{EXAMPLES, Example, neural_lm, pruning, replicas};
use cloze_model::ParamInit;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::read_tensors;
use cloze_tokenizer::{Tokenizer, Vocab};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::{RunProgress, Silent, Status};
use cloze_trainer::metrics::{METRICS_FILE, Record, jsonl};
use cloze_trainer::requests::{Queue, Respond};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps of a run, and the one after which it is stopped.
const STEPS: u64 = 24;
const STOP: u64 = 9;

/// Stops the run after a step, and keeps its notes.
struct Watched<'a>(u64, &'a AtomicBool);

impl RunProgress for Watched<'_> {
    fn step(&mut self, status: &Status) {
        if status.step == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

/// The main figures of the evaluations, in order.
fn measured(run: &Path) -> Vec<f64> {
    let records = jsonl::read(&run.join(METRICS_FILE)).unwrap();
    let figures = records.iter().filter_map(|record| match record {
        Record::Evaluation(record) => record.figures.get("loss").or(Some(record.figures.main().1)),
        Record::Train(_) => None,
    });
    figures.collect()
}

fn check(name: &str) {
    let Example { run, .. } = EXAMPLES.into_iter().find(|example| example.name == name).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let go = |out: &str, stop_after: u64, resume: bool| {
        let stop = AtomicBool::new(false);
        let options =
            RunOptions::new(Device::flex(), path(out)).cache(path("cache")).resume(resume).stop(&stop);
        run(STEPS, &options, &mut Watched(stop_after, &stop)).unwrap()
    };
    let Outcome::Done { model, figures } = go("whole", u64::MAX, false) else { panic!("not stopped") };
    assert_eq!(figures.len(), 1);
    let losses = measured(&path("whole"));
    assert!(losses.last() < losses.first(), "it has learnt nothing: {losses:?}");
    assert!(path("whole/curve.svg").exists() && path("whole/result.json").exists());

    assert_eq!(go("stopped", STOP, false), Outcome::Stopped { step: STOP });
    assert!(matches!(go("stopped", u64::MAX, true), Outcome::Done { .. }));
    let weights = |model: &Path| std::fs::read(model.join("model.safetensors")).unwrap();
    assert_eq!(weights(&path("stopped/model")), weights(&model), "stopped and resumed");
    assert_eq!(measured(&path("stopped")), losses);
}

/// The masks hold to the end.
#[test]
fn what_is_pruned_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions::new(Device::flex(), folder.path().join("run"));
    pruning::run(30, &options, &mut Silent).unwrap();
    let weights = read_tensors(&folder.path().join("run/model/model.safetensors")).unwrap();
    let matrices: Vec<_> = weights.iter().filter(|(_, data)| data.shape().num_dims() == 2).collect();
    assert_eq!(matrices.len(), 4);
    for (path, data) in matrices {
        let zeros = data.iter::<f32>().filter(|x| *x == 0.0).count();
        let share = zeros as f64 / data.num_elements() as f64;
        assert!((share - 0.9).abs() < 1e-3, "{path}: {share}");
    }
}

/// Any number of replicas ends with the bits of one that has all micro-batches, also if it changes on the way.
#[test]
fn replicas_make_the_steps_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let options = |out: &str| RunOptions::new(Device::flex(), path(out)).cache(path("cache"));
    neural_lm::train_with(6, replicas::ACCUMULATE, &options("one"), &mut Silent).unwrap();
    let file = |run: &str, file: &str| std::fs::read(path(run).join(file)).unwrap();
    let losses = |run: &str| {
        let records = jsonl::read(&path(run).join(METRICS_FILE)).unwrap();
        let losses = records.into_iter().map(|record| match record {
            Record::Train(record) => (record.loss, record.grad_norm, record.tokens),
            Record::Evaluation(record) => (record.figures.get("loss").unwrap(), 0.0, 0),
        });
        losses.collect::<Vec<_>>()
    };
    let assert_same = |run: &str| {
        assert!(file(run, "model/model.safetensors") == file("one", "model/model.safetensors"), "{run}");
        let moments = "checkpoints/step-00000006/optimizer.safetensors";
        assert!(file(run, moments) == file("one", moments), "the moments of {run}");
        assert_eq!(losses(run), losses("one"), "{run}");
    };
    for size in 2..5 {
        let run = format!("of-{size}");
        replicas::run_with(size, 6, &options(&run), &mut Silent).unwrap();
        assert_same(&run);
    }
    for (before, after) in [(1, 3), (3, 2), (4, 1)] {
        let run = format!("of-{before}-and-{after}");
        let stop = AtomicBool::new(false);
        let stopped = options(&run).stop(&stop);
        let outcome = replicas::run_with(before, 6, &stopped, &mut Watched(2, &stop)).unwrap();
        assert_eq!(outcome, Outcome::Stopped { step: 2 });
        replicas::run_with(after, 6, &options(&run).resume(true), &mut Silent).unwrap();
        assert_same(&run);
    }
}

/// What many threads ask has the bits of each text alone, and a text that is too short fails alone.
#[test]
#[cfg(target_arch = "x86_64")]
fn requests_of_threads_have_the_bits_of_each_alone() {
    let letters = ["[UNK]"].into_iter().map(String::from).chain(('a'..='z').map(String::from));
    let letters: Vec<String> = letters.chain(('a'..='z').map(|letter| format!("##{letter}"))).collect();
    let tokenizer = Tokenizer::bert(Vocab::from_tokens(letters).unwrap(), true).unwrap();
    let device = Device::flex();
    let model = GptConfig::gpt2(tokenizer.vocab_size(), 2, 32).init(&mut ParamInit::new(&device, 5));
    let queue = Queue::new(Surprise::new(tokenizer, model, device), 100);
    let texts: Vec<String> = (0..40).map(|i| "abc de f ".repeat(i % 13)).collect();
    let alone = |text: &String| {
        let model = queue.model();
        Some(model.answer(&[&model.encode(text.clone()).ok()?]).remove(0).unwrap())
    };
    let expected: Vec<Option<f64>> = texts.iter().map(alone).collect();
    assert_eq!(expected.iter().filter(|answer| answer.is_none()).count(), 4);
    let found = requests::ask_from_threads(&queue, &texts);
    assert_eq!(found.into_iter().map(Result::ok).collect::<Vec<_>>(), expected);
}

macro_rules! examples {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test] fn $test() { check($name); })*

        #[test]
        fn every_example_is_checked() {
            assert_eq!(EXAMPLES.map(|example| example.name), [$($name),*]);
        }
    };
}

examples! {
    linear_attention: "linear-attention",
    rotary_positions: "rotary-positions",
    span_masking: "span-masking",
    left_to_right: "left-to-right",
    two_losses: "two-losses",
    own_task: "own-task",
    teacher: "teacher",
    vectors: "vectors",
    neural_lm: "neural-lm",
    image_backbone: "image-backbone",
    pruning: "pruning",
    run_kind: "run-kind",
    replicas: "replicas",
}

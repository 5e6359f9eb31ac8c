//! A hundred sentences of Multi30k, from text to models that translate them.

use burn::tensor::Device;
use cloze_trainer::engine::{Plan, RunOptions};
use cloze_trainer::metrics::progress::Silent;
use cloze_trainer::translation::TranslationConfig;
use std::fs;
use std::path::Path;

/// Trains this model on a hundred captions, with a config's other settings, and translates them.
fn learn_by_heart(config: &str, model: &str, lr: f64) {
    let _held = crate::generator();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/multi30k");
    if !data.is_dir() {
        eprintln!("skipped: {} is not there", data.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for language in ["en", "de"] {
        let text = fs::read_to_string(data.join(format!("train.{language}"))).unwrap();
        let first: String = text.lines().take(100).map(|line| format!("{line}\n")).collect();
        fs::write(folder.path().join(format!("a.{language}")), first).unwrap();
    }
    let at = folder.path().display();
    let files = format!("{{source=['{at}/a.en'], target=['{at}/a.de']}}");
    let sets = [
        format!("parallel.train={files}"),
        format!("parallel.dev={files}"),
        "parallel.test={}".into(),
        "tokenizer.vocab_size=600".into(),
        format!("model={model}"),
        "train={steps=300, batch_tokens=1500}".into(),
        format!("optimizer.lr={lr}"),
        "schedule.warmup_steps=50".into(),
        "average={kind='last', checkpoints=2, every=10}".into(),
        "eval.every=300".into(),
    ];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(config);
    let config = TranslationConfig::load(&path, &sets).unwrap();
    let options =
        RunOptions::new(Device::flex(), folder.path().join("run")).cache(folder.path().join("cache"));
    let outcome = config.run(&options, &mut Silent).unwrap();
    let figures = outcome.figures("dev").unwrap();
    assert!(figures.get("loss").unwrap() < 0.5 && figures.get("bleu").unwrap() > 60.0, "{figures}");
    let translations = fs::read_to_string(folder.path().join("run/report/dev/translations.txt")).unwrap();
    assert_eq!(translations.lines().count(), 100);
}

#[test]
fn a_transformer_learns_a_hundred_captions_by_heart() {
    let model = "{kind='transformer', n_layers=2, d_model=128, n_heads=4, d_ff=256, dropout=0.0}";
    learn_by_heart("multi30k-transformer.toml", model, 3e-3);
}

#[test]
fn a_convolutional_model_learns_a_hundred_captions_by_heart() {
    let model = "{kind='convolutional', n_layers=2, d_embedding=128, d_model=128, dropout=0.0}";
    learn_by_heart("multi30k-convolutional.toml", model, 3e-3);
}

#[test]
fn a_recurrent_model_with_attention_learns_a_hundred_captions_by_heart() {
    let model = "{kind='recurrent', cell='gru', d_embedding=128, d_model=128, dropout=0.0}";
    learn_by_heart("multi30k-rnn-attention.toml", model, 1e-2);
}

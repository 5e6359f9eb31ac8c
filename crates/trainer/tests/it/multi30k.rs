//! A hundred sentences of Multi30k, from text to a model that translates them.

use burn::tensor::Device;
use cloze_trainer::engine::{Plan, RunOptions};
use cloze_trainer::metrics::progress::Silent;
use cloze_trainer::translation::TranslationConfig;
use std::fs;
use std::path::Path;

#[test]
fn a_hundred_captions_are_learnt_by_heart() {
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
        "model={kind='transformer', n_layers=2, d_model=128, n_heads=4, d_ff=256, dropout=0.0}".into(),
        "train={steps=300, batch_tokens=1500}".into(),
        "optimizer.lr=3e-3".into(),
        "schedule.warmup_steps=50".into(),
        "average={kind='last', checkpoints=2, every=10}".into(),
        "eval.every=300".into(),
    ];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/multi30k-transformer.toml");
    let config = TranslationConfig::load(&path, &sets).unwrap();
    let options =
        RunOptions::new(Device::flex(), folder.path().join("run")).cache(folder.path().join("cache"));
    let outcome = config.run(&options, &mut Silent).unwrap();
    let figures = outcome.figures("dev").unwrap();
    assert!(figures.get("loss").unwrap() < 0.5 && figures.get("bleu").unwrap() > 60.0, "{figures}");
    let translations = fs::read_to_string(folder.path().join("run/report/dev/translations.txt")).unwrap();
    assert_eq!(translations.lines().count(), 100);
}

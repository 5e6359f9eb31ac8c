//! What any model that translates has to learn: to copy a sequence, and to write it backwards.

use burn::tensor::Device;
use cloze_data::Random;
use cloze_trainer::Place;
use cloze_trainer::engine::{Outcome, Plan, RunOptions};
use cloze_trainer::metrics::progress::Silent;
use cloze_trainer::translation::TranslationConfig;
use std::fs;
use std::path::Path;

/// Sequences of three to eight letters out of ten, and what is to be written of each.
fn write_data(folder: &Path, name: &str, seed: u64, n: usize, reversed: bool) {
    let mut random = Random::derive(seed, &[n as u64]);
    let (mut source, mut target) = (String::new(), String::new());
    for _ in 0..n {
        let len = 3 + random.below(6) as usize;
        let mut letters: Vec<String> =
            (0..len).map(|_| char::from(b'a' + random.below(10) as u8).to_string()).collect();
        source += &(letters.join(" ") + "\n");
        if reversed {
            letters.reverse();
        }
        target += &(letters.join(" ") + "\n");
    }
    fs::write(folder.join(format!("{name}.source")), source).unwrap();
    fs::write(folder.join(format!("{name}.target")), target).unwrap();
}

/// Trains a model of this kind, and returns its share of tokens that are predicted right and its BLEU on sequences that it
/// has not seen.
fn learnt(model: &str, sets: &[&str], reversed: bool) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path(), "train", 1, 3_000, reversed);
    write_data(folder.path(), "dev", 2, 100, reversed);
    let at = folder.path().display();
    let files =
        |name: &str| format!(r#"{{ source = ["{at}/{name}.source"], target = ["{at}/{name}.target"] }}"#);
    let text = format!(
        r#"
parallel = {{ source = "letters", target = "copies", max_len = 16, train = {train}, dev = {dev} }}
tokenizer = {{ kind = "train-wordpiece", vocab_size = 32 }}
model = {model}
train = {{ steps = 500, batch_size = 64 }}
optimizer = {{ lr = 3e-3, beta2 = 0.98, weight_decay = 0.0 }}
schedule = {{ kind = "linear", warmup_steps = 50 }}
eval = {{ every = 1000, beams = 2 }}
"#,
        train = files("train"),
        dev = files("dev"),
    );
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let config =
        TranslationConfig::parse(&text, "copies", &Place::file(Path::new("copies.toml")), &sets).unwrap();
    let options =
        RunOptions::new(Device::flex(), folder.path().join("run")).cache(folder.path().join("cache"));
    let outcome = config.run(&options, &mut Silent).unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }));
    let figures = outcome.figures("dev").unwrap();
    (figures.get("token_accuracy").unwrap(), figures.get("bleu").unwrap())
}

#[track_caller]
fn assert_learns(model: &str, sets: &[&str]) {
    for reversed in [false, true] {
        let (accuracy, bleu) = learnt(model, sets, reversed);
        assert!(accuracy > 0.99 && bleu > 97.0, "reversed {reversed}: accuracy {accuracy}, BLEU {bleu}");
    }
}

#[test]
fn a_transformer_copies_and_reverses() {
    let _held = crate::generator();
    assert_learns(
        r#"{ kind = "transformer", n_layers = 2, d_model = 64, n_heads = 4, d_ff = 128, dropout = 0.0, norm = "pre" }"#,
        &[],
    );
}

#[test]
fn recurrent_models_with_attention_copy_and_reverse() {
    let _held = crate::generator();
    // At first, attention is nearly even, and it takes longer than a Transformer to find its place.
    assert_learns(
        r#"{ kind = "recurrent", d_embedding = 32, d_model = 64, dropout = 0.0 }"#,
        &["train.steps=1500"],
    );
}

#[test]
fn a_recurrent_model_with_input_feeding_copies_and_reverses() {
    let _held = crate::generator();
    assert_learns(
        r#"{ kind = "recurrent", cell = "gru", attention = "luong-input-feeding", score = "general", d_embedding = 32,
             d_model = 64, dropout = 0.0 }"#,
        &[],
    );
}

#[test]
fn a_convolutional_model_copies_and_reverses() {
    let _held = crate::generator();
    assert_learns(
        r#"{ kind = "convolutional", n_layers = 2, d_embedding = 64, d_model = 64, dropout = 0.0 }"#,
        &[],
    );
}

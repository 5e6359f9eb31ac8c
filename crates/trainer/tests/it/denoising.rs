//! Encoder–decoders that learn to undo noise: what they learn, where a run may stop, what it leaves.

use crate::bench::Bench;
use crate::notes::Notes;
use burn::tensor::Device;
use cloze_data::{DenoisingConfig, Sentinels};
use cloze_model::ParamInit;
use cloze_model::seq2seq::{AnyEncoderDecoder, AnyEncoderDecoderConfig};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::BpeTrainer;
use cloze_trainer::config::DenoisingRunConfig;
use cloze_trainer::denoising::{figure, train_denoising, train_denoising_model};
use cloze_trainer::engine::{FolderConfig, RunOptions};
use cloze_trainer::metrics::progress::Silent;
use cloze_trainer::translate::{TranslateConfig, Translator};
use std::path::Path;
use std::sync::atomic::AtomicBool;

const CONFIG: &str = r#"
objective.kind = "denoising"
denoising.kind = "bart"
tokenizer = { kind = "train-byte-bpe", vocab_size = 330 }
examples.seq_len = 32
model = { kind = "bart", n_layers = 1, d_model = 32, n_heads = 2, d_ff = 64, max_positions = 32, dropout = 0.0, init_std = 0.1 }
train = { steps = 8, batch_size = 4 }
optimizer.lr = 5e-3
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_examples = 40 }
log.every = 1
"#;

/// T5's noise in place of BART's.
const T5: &str = "denoising={ kind = \"t5\" }";

/// T5's network in place of BART's, narrow and with heads of a width of their own.
const T5_NETWORK: &str = "model={ kind = \"t5\", n_layers = 1, d_model = 32, n_heads = 2, d_head = 12, d_ff = 64, max_positions = 32, dropout = 0.0, max_distance = 20 }";

fn bench() -> Bench<DenoisingRunConfig> {
    Bench::new(CONFIG, |i| format!("The ship number {i} sailed.\nNo ship sank.\nAll of them came home.\n"))
}

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = bench();
    let noises =
        "denoising.noises=[{ kind = \"rotation\" }, { kind = \"deletion\" }, { kind = \"substitution\" }]";
    for (number, sets) in [
        vec!["model.dropout=0.1", "model.attention_dropout=0.1", "train.accumulate=2"],
        vec![T5, "train.precision=bf16", "train.workers=2"],
        vec![T5, T5_NETWORK, "model.dropout=0.1", "model.gated=true", "model.tied=false"],
        vec![
            noises,
            "model={ kind = \"recurrent\", d_embedding = 8, d_model = 16 }",
            "examples.pairs.kind=doc-sentences",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        bench.assert_same_bits_after_a_stop(&number.to_string(), &sets);
    }
}

#[test]
fn a_bart_learns_to_restore_its_text_and_is_asked_for_it() {
    let _generator = crate::generator();
    let bench = bench();
    let sets = ["train.steps=150", "train.batch_size=8", "eval.every=200", "optimizer.lr=1e-2"];
    let mut notes = Notes::default();
    let done = bench.run_with("bart", &sets, false, &AtomicBool::new(false), &mut notes).unwrap();
    let value = |name| done.figures("heldout").unwrap().get(name).unwrap();
    let loss = value(figure::LOSS);
    // The same sentences in every document, so that little but their numbers has to be guessed.
    assert!(loss < 2.0, "{loss}");
    assert!((value(figure::PERPLEXITY) - loss.exp()).abs() < 1e-9);
    assert!(value(figure::TOKEN_ACCURACY) > 0.5, "{}", value(figure::TOKEN_ACCURACY));
    for part in
        ["memory: about", "masked, of the tokens", "sentences moved", "noisy   ", "<mask>", "model   "]
    {
        assert!(notes.0.contains(part), "{part}: {}", notes.0);
    }
    let samples = std::fs::read_to_string(bench.path("bart/report/heldout/samples.txt")).unwrap();
    assert_eq!(samples.matches("noisy   ").count(), 8);

    // What the run leaves is a folder of transformers' BART, and says what its texts begin and end with.
    let folder = bench.path("bart/model");
    let json = std::fs::read_to_string(folder.join("config.json")).unwrap();
    assert!(json.contains("\"BartForConditionalGeneration\""), "{json}");
    let (config, _) =
        AnyEncoderDecoderConfig::load(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
    let AnyEncoderDecoderConfig::Transformer(bart) = config else { panic!("{config:?}") };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let id = |name: &str| tokenizer.token_to_id(name).unwrap() as usize;
    assert_eq!((bart.tokens.decoder_start, bart.tokens.eos), (id("</s>"), id("</s>")));
    assert_eq!((bart.tokens.forced_bos, bart.tokens.pad), (Some(id("<s>")), id("<pad>")));

    // A noisy text is asked for as a translation is.
    let translator = Translator::load(&folder, TranslateConfig::default(), &Device::flex()).unwrap();
    let text = "No ship<mask>. All of them came home.";
    let restored = translator.translate(&[text.into()], &[]).unwrap().next().unwrap().unwrap().remove(0);
    assert!(restored.text.contains("came home"), "{restored:?}");
}

#[test]
fn spans_are_learnt_behind_their_sentinels() {
    let _generator = crate::generator();
    let bench = bench();
    let sets = [T5, "train.batch_size=8", "optimizer.lr=1e-2", "eval.every=200"];
    let loss = |steps: &str, out: &str| {
        let done = bench.run(out, &[&sets[..], &[steps]].concat()).unwrap();
        done.figures("heldout").unwrap().get(figure::LOSS).unwrap()
    };
    let (early, late) = (loss("train.steps=2", "early"), loss("train.steps=150", "late"));
    assert!(late < early - 1.5, "{early}, then {late}");
    let tokenizer = Tokenizer::load(bench.path("late/model")).unwrap();
    // 31 tokens without the end piece: 5 of them in 2 spans, and the last sentinel.
    assert_eq!(Sentinels::find(&tokenizer).len(), 3);
    let around = tokenizer.encode_ids("", true).unwrap();
    assert_eq!(around, [tokenizer.token_to_id("</s>").unwrap()]);
    let samples = std::fs::read_to_string(bench.path("late/report/heldout/samples.txt")).unwrap();
    let targets = samples.lines().filter_map(|line| line.strip_prefix("target  "));
    assert!(
        targets.clone().count() > 0 && targets.clone().all(|line| line.starts_with("<extra_id_0>")),
        "{samples}"
    );
}

#[test]
fn a_t5_learns_spans_and_is_asked_for_them() {
    let _generator = crate::generator();
    let bench = bench();
    let sets = [T5, T5_NETWORK, "train.batch_size=8", "optimizer.lr=1e-2", "eval.every=200"];
    let loss = |steps: &str, out: &str| {
        let done = bench.run(out, &[&sets[..], &[steps]].concat()).unwrap();
        done.figures("heldout").unwrap().get(figure::LOSS).unwrap()
    };
    let (early, late) = (loss("train.steps=2", "early"), loss("train.steps=150", "late"));
    assert!(late < early - 1.5, "{early}, then {late}");
    // What the run leaves is a folder of transformers' T5, whose targets begin with padding.
    let folder = bench.path("late/model");
    let json = std::fs::read_to_string(folder.join("config.json")).unwrap();
    assert!(json.contains("\"T5ForConditionalGeneration\"") && json.contains("\"d_kv\": 12"), "{json}");
    let (config, _) =
        AnyEncoderDecoderConfig::load(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
    let AnyEncoderDecoderConfig::Transformer(t5) = config else { panic!("{config:?}") };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let id = |name: &str| tokenizer.token_to_id(name).unwrap() as usize;
    assert_eq!(
        (t5.tokens.decoder_start, t5.tokens.pad, t5.tokens.eos),
        (id("<pad>"), id("<pad>"), id("</s>"))
    );
    // A text with a sentinel is asked for as a translation is.
    let translator = Translator::load(&folder, TranslateConfig::default(), &Device::flex()).unwrap();
    let text = "No ship<extra_id_0> All of them came home.";
    let spans = translator.translate(&[text.into()], &[]).unwrap().next().unwrap().unwrap().remove(0);
    // Which words a model this small fills in depends on the processor's rounding; that a sentinel is first does not.
    let (first, words) = spans.tokens.split_first().unwrap();
    assert!(first == "<extra_id_0>" && words.iter().any(|word| !word.starts_with('<')), "{spans:?}");
}

#[test]
fn a_model_of_ones_own_is_trained_too() {
    let _generator = crate::generator();
    let bench = bench();
    let config = bench.config(&["train.steps=2"]).unwrap();
    let options = RunOptions::new(Device::flex(), bench.path("own")).cache(bench.path("cache"));
    let make = |vocabularies: &cloze_trainer::translation::Vocabularies, device: &Device| {
        let model = config.model.config(vocabularies.sizes(), config.max_len(), true);
        let AnyEncoderDecoder::Transformer(model) = model.init(&mut ParamInit::new(device, 3)) else {
            panic!("a BART is a Transformer")
        };
        Ok((model, cloze_trainer::engine::OwnParameters))
    };
    train_denoising_model(&config, make, &options, &mut Silent).unwrap();
    assert!(bench.path("own/model/model.safetensors").is_file());
}

#[test]
fn what_cannot_be_trained_is_refused_in_one_line() {
    let _generator = crate::generator();
    let bench = bench();
    let message = |sets: &[&str]| {
        let message = bench.run("refused", sets).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    let tokenizer = |name: &str, special: &[&str]| {
        let special_tokens = special.iter().map(|name| (*name).to_owned()).collect();
        let trainer = BpeTrainer { vocab_size: 300, special_tokens, ..Default::default() };
        trainer.train(["The ship sailed."]).unwrap().save(bench.path(name)).unwrap();
        format!("tokenizer={{ kind = \"load\", path = {:?} }}", bench.path(name))
    };
    let plain = tokenizer("plain.json", &["<s>", "<pad>", "</s>", "<unk>"]);
    let sentinels = message(&[T5, &plain]);
    assert!(sentinels.starts_with("the tokenizer has 0 of the pieces <extra_id_0>"), "{sentinels}");
    assert!(sentinels.contains("needs 3 of them with `examples.seq_len` = 32"), "{sentinels}");
    let mask = message(&[&plain]);
    assert!(mask.contains("no mask"), "{mask}");
    let end = message(&[&tokenizer("endless.json", &["<pad>", "<mask>"])]);
    assert!(end.contains("expected one that ends texts with `</s>`"), "{end}");
    let pad = message(&[&tokenizer("padless.json", &["<s>", "</s>", "<mask>"])]);
    assert!(pad.contains("a tokenizer without a padding piece; expected one with `<pad>`"), "{pad}");
    // Noises without a mask need none.
    bench.run("rotated", &[&plain, "train.steps=1", "denoising.noises=[{ kind = \"rotation\" }]"]).unwrap();

    let large = bench.config(&["model.d_model=65536", "model.n_layers=1000", "model.d_ff=65536"]).unwrap();
    let options = RunOptions::new(Device::flex(), bench.path("large")).memory(Some(1 << 30));
    let error = train_denoising(&large, &options, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("`model.d_model` (65536)"), "{error}");
    assert!(!Path::new(&bench.path("large")).exists(), "{}", large.to_toml());
    assert!(matches!(large.denoising, DenoisingConfig::Bart { .. }));
}

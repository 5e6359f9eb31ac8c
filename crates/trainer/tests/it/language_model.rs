//! Language models in training: what they learn, where a run may stop, what it leaves.

use crate::bench::Bench;
use crate::notes::Notes;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{load_published, read_tensors};
use cloze_tokenizer::Tokenizer;
use cloze_trainer::config::LanguageModelConfig;
use cloze_trainer::engine::{FolderConfig, Outcome, RunOptions};
use cloze_trainer::generate::{GenerateConfig, Generator};
use cloze_trainer::language_model::{figure, train_language_model};
use cloze_trainer::metrics::progress::Silent;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const CONFIG: &str = r#"
objective.kind = "left-to-right"
tokenizer.kind = "train-characters"
blocks.seq_len = 24
model = { n_layers = 1, d_model = 32, n_heads = 2, max_positions = 32, init_std = 0.1 }
train = { steps = 8, batch_size = 4 }
optimizer.lr = 5e-3
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_blocks = 40 }
log.every = 1
"#;

const WORDS: &str = r#"tokenizer={ kind = "train-words", vocab_size = 40, min_frequency = 1 }"#;
const ADAPTIVE: &str = r#"model.output={ kind = "adaptive", cutoffs = [6, 12], divisor = 2.0 }"#;
const SAMPLED: &str = r#"model.output={ kind = "sampled", samples = 12 }"#;

fn bench() -> Bench<LanguageModelConfig> {
    Bench::new(CONFIG, |i| format!("The ship number {i} sailed.\nNo ship sank.\n"))
}

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = bench();
    for (number, sets) in [
        vec!["model.hidden_dropout=0.1", "model.attention_dropout=0.1"],
        vec!["blocks.order=random", "blocks.documents=apart", "train.precision=bf16", "train.accumulate=2"],
        vec!["model.shape=llama", "model.n_kv_heads=1", "train.recompute=true", "train.workers=2"],
        vec!["blocks.prefix_share=0.5", "train.recompute=true", "train.workers=2"],
        vec!["blocks.prefix_share=1", "blocks.documents=apart", "model.shape=llama"],
        vec![r#"tokenizer={ kind = "train-byte-bpe", vocab_size = 270 }"#],
        vec![r#"tokenizer={ kind = "train-wordpiece", vocab_size = 60 }"#],
        vec![WORDS, ADAPTIVE, "train.accumulate=2", "model.hidden_dropout=0.1"],
        vec![WORDS, SAMPLED, "train.accumulate=2", "train.workers=2", "model.tied=false"],
    ]
    .into_iter()
    .enumerate()
    {
        bench.assert_same_bits_after_a_stop(&number.to_string(), &sets);
    }
}

#[test]
fn a_run_that_diverges_says_so_beside_the_baseline() {
    let _generator = crate::generator();
    let bench = bench();
    let said = |name: &str, sets: &[&str]| {
        let mut notes = Notes::default();
        bench.run_with(name, sets, false, &AtomicBool::new(false), &mut notes).unwrap();
        notes.0
    };
    let diverged = said("diverged", &["optimizer.lr=1"]);
    assert!(diverged.contains("baseline: the same probability for each of the "), "{diverged}");
    assert!(diverged.contains("warning: the loss on held-out text is "), "{diverged}");
    assert!(diverged.contains(", above that before training, "), "{diverged}");
    let fine = said("fine", &["train.steps=60", "eval.every=60", "optimizer.lr=1e-2"]);
    assert!(fine.contains("baseline: ") && !fine.contains("warning"), "{fine}");
}

#[test]
fn a_model_learns_its_text_and_is_gone_on_with() {
    let _generator = crate::generator();
    let bench = bench();
    let loss = |outcome: &Outcome, name| outcome.figures("heldout").unwrap().get(name).unwrap();
    let done = bench.run("first", &["train.steps=120", "eval.every=200", "optimizer.lr=1e-2"]).unwrap();
    let after = loss(&done, figure::LOSS);
    assert!(after < 1.0, "{after}");
    assert!((loss(&done, figure::PERPLEXITY) - after.exp()).abs() < 1e-9);
    // Every token is a character of one byte, but the end of each text.
    let bits = loss(&done, figure::BITS_PER_BYTE);
    assert!((bits - loss(&done, figure::BITS_PER_CHARACTER)).abs() < 1e-9);
    assert!((1.0..1.1).contains(&(bits / (after / std::f64::consts::LN_2))), "{bits} bits, {after} nats");

    // What the run leaves is a folder in Hugging Face's format.
    let folder = bench.path("first/model");
    let (config, model, report) =
        load_published::<GptConfig>(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
    assert!(report.unexpected.is_empty() && config.tied);
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let end = tokenizer.token_to_id("<|endoftext|>").unwrap();
    assert_eq!(config.end_token_id, Some(end as usize));
    let ids: Vec<i32> =
        tokenizer.encode("No ship ", false).unwrap().ids.iter().map(|id| *id as i32).collect();
    let logits = model.logits(&[&ids[..]].into_iter().collect(), &Device::flex());
    let next = logits.narrow(0, ids.len() - 1, 1).argmax(1).into_scalar::<i32>();
    assert_eq!(tokenizer.id_to_token(next as u32), Some("s"));

    // A second run begins where the first one ended.
    let path = format!("model={{ path = {folder:?} }}");
    let sets = [&path, "tokenizer={ kind = \"checkpoint\" }", "train.steps=1", "optimizer.lr=1e-9"];
    let more = bench.run("second", &sets).unwrap();
    assert!((loss(&more, figure::LOSS) - after).abs() < 1e-4);
    let before = read_tensors(&folder.join("model.safetensors")).unwrap();
    let again = read_tensors(&bench.path("second/model").join("model.safetensors")).unwrap();
    assert!(before.keys().eq(again.keys()));

    let refused = |sets: &[&str]| bench.run("third", sets).unwrap_err().to_string();
    let long = [&path, "tokenizer={ kind = \"checkpoint\" }", "blocks.seq_len=40"];
    assert_eq!(refused(&long), "`blocks.seq_len` is 40; expected at most 32, the positions of `model.path`");
}

#[test]
fn outputs_for_large_vocabularies_learn_the_same_text() {
    let _generator = crate::generator();
    let bench = bench();
    let sets = [WORDS, "train.steps=150", "eval.every=200"];
    let loss = |name: &str, set: &[&str]| {
        let done = bench.run(name, &[&sets[..], set].concat()).unwrap();
        done.figures("heldout").unwrap().get(figure::LOSS).unwrap()
    };
    let whole = loss("whole", &[]);
    let untrained = loss("untrained", &["train.steps=1"]);
    assert!(whole < 0.6 * untrained, "{whole} from {untrained}");
    for (name, set) in [("adaptive", ADAPTIVE), ("sampled", SAMPLED)] {
        let found = loss(name, &[set]);
        assert!(
            (found - whole).abs() < 0.1 * untrained,
            "{name}: {found}, and {whole} with the whole softmax"
        );
        // The folder predicts as the run measured it, and writes words.
        let folder = bench.path(&format!("{name}/model"));
        let mut config = GenerateConfig::default();
        config.decoding.settings.max_new = Some(3);
        let generator = Generator::load(&folder, config, &Device::flex()).unwrap();
        let written = generator.generate(&["No ship"], None).unwrap().next().unwrap().unwrap();
        assert!(written[0].text.trim_start().starts_with("sank"), "{name}: {written:?}");
        let (config, _, report) =
            load_published::<GptConfig>(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
        assert_eq!((config.output.is_some(), config.tied), (name == "adaptive", name != "adaptive"));
        assert!(report.unexpected.is_empty());
    }
    let refused = |set: &str| bench.run("refused", &[WORDS, set]).unwrap_err().to_string();
    let message = refused(r#"model.output={ kind = "sampled", samples = 500 }"#);
    assert_eq!(message, "`model.output.samples` is 500; expected 1 to 20, half of the vocabulary");
    let message = refused(r#"model.output={ kind = "adaptive", cutoffs = [5, 900] }"#);
    let expected =
        "`model.output.cutoffs` is [5, 900]; expected numbers below the size of the vocabulary, which is 40";
    assert_eq!(message, expected);
}

#[test]
fn what_is_behind_a_prefix_is_learned() {
    let _generator = crate::generator();
    let bench = bench();
    // With one layer the last token of a prompt would see the same both ways.
    let sets = [
        "train.steps=600",
        "eval.every=600",
        "optimizer.lr=1e-2",
        "blocks.prefix_share=1",
        "model.n_layers=2",
    ];
    let done = bench.run("prefixes", &sets).unwrap();
    let figures = done.figures("heldout").unwrap();
    assert!(figures.get(figure::LOSS).unwrap() < 1.0, "{figures:?}");
    // What is in prefixes is not predicted: a little less than half of 40 blocks of 24 tokens.
    assert!((280..720).contains(&figures.examples()), "{figures:?}");
    assert_eq!(figures.get(figure::BITS_PER_BYTE), None);

    // The folder is a left-to-right model's, whose prompts may be read in both directions.
    let folder = bench.path("prefixes/model");
    let written = |both: bool| {
        let mut config = GenerateConfig::default();
        (config.decoding.settings.max_new, config.bidirectional_prompts) = (Some(6), both);
        let generator = Generator::load(&folder, config, &Device::flex()).unwrap();
        generator.generate(&["No ship "], None).unwrap().next().unwrap().unwrap().remove(0)
    };
    let (both, one) = (written(true), written(false));
    assert!(both.text.starts_with("s"), "{both:?}, and left to right {one:?}");
    assert_ne!(both.log_prob, one.log_prob);
}

#[test]
fn what_cannot_be_trained_is_refused_in_one_line() {
    let _generator = crate::generator();
    let bench = bench();
    let message = |sets: &[&str]| bench.run("refused", sets).unwrap_err().to_string();
    let no_piece = message(&["blocks.end=\"<end>\""]);
    assert_eq!(no_piece, "`blocks.end` is \"<end>\"; expected a piece of the tokenizer");
    let large = bench.config(&["model.d_model=65536", "model.n_layers=1000"]).unwrap();
    let options = RunOptions::new(Device::flex(), bench.path("large")).memory(Some(1 << 30));
    let error = train_language_model(&large, &options, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("`model.d_model` (65536)"), "{error}");
    assert!(!Path::new(&bench.path("large")).exists(), "{}", large.to_toml());
}

//! Custom parts, each in one file, trained by the engine's own run: with metrics, evaluations, checkpoints that
//! a killed run goes on from, and a learning curve. They use what the crates make public, and nothing else. [`requests`]
//! has a trained model asked by many threads.

pub mod image_backbone;
pub mod left_to_right;
pub mod linear_attention;
pub mod neural_lm;
pub mod own_task;
pub mod positions;
pub mod pruning;
pub mod replicas;
pub mod requests;
pub mod run_kind;
pub mod span_masking;
pub mod teacher;
pub mod text;
pub mod two_losses;
pub mod vectors;

use burn::module::Module;
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, BertForPreTraining};
use cloze_model::blocks::{Attention, Positions};
use cloze_trainer::config::RunConfig;
use cloze_trainer::engine::run_folder::RunFolder;
use cloze_trainer::engine::{Outcome, Recipe, RunOptions, train_in};
use cloze_trainer::metrics::progress::RunProgress;
use cloze_trainer::pretraining::{PretrainingRecipe, PretrainingSplits, run_tokenizer};
use cloze_trainer::{Place, Result};
use std::path::{Path, PathBuf};

/// An example.
pub struct Example {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Makes so many steps of it.
    pub run: fn(u64, &RunOptions<'_>, &mut dyn RunProgress) -> Result<Outcome>,
}

/// All of them.
pub const EXAMPLES: [Example; 13] = [
    Example { name: "linear-attention", about: "a custom attention in BERT", run: linear_attention::run },
    Example { name: "rotary-positions", about: "custom positions in BERT", run: positions::run },
    Example { name: "span-masking", about: "a custom masking", run: span_masking::run },
    Example {
        name: "left-to-right",
        about: "a custom objective: a left-to-right language model on packed text",
        run: left_to_right::run,
    },
    Example {
        name: "two-losses",
        about: "a custom head with two losses, fine-tuned from rows in memory",
        run: two_losses::run,
    },
    Example {
        name: "own-task",
        about: "a task of one's own, from its config to the answers of its saved model",
        run: own_task::run,
    },
    Example { name: "teacher", about: "a teacher put round any task", run: teacher::run },
    Example { name: "vectors", about: "a task whose model reads vectors, not text", run: vectors::run },
    Example { name: "neural-lm", about: "a model without a Transformer", run: neural_lm::run },
    Example { name: "image-backbone", about: "a network of one's own for images", run: image_backbone::run },
    Example { name: "pruning", about: "an extension of a run: masks on weights", run: pruning::run },
    Example { name: "run-kind", about: "a kind of run, with a config file of its own", run: run_kind::run },
    Example { name: "replicas", about: "two threads that make each step together", run: replicas::run },
];

/// The sample of text that the repository has.
pub fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/sotu.txt.zst")
}

/// A small pretraining run on the sample, as a configuration file would say it.
///
/// # Errors
/// None, as long as the keys are those of a configuration.
pub fn pretraining(name: &str, steps: u64) -> Result<RunConfig> {
    let text = format!(
        "corpus.files = [{:?}]
         tokenizer = {{ kind = \"train-wordpiece\", vocab_size = 2048 }}
         examples = {{ seq_len = 48, pairs.kind = \"doc-sentences\" }}
         model = {{ preset = \"tiny\", max_positions = 48, init_std = 0.05 }}
         train = {{ steps = {steps}, batch_size = 16 }}
         optimizer.lr = 2e-3
         schedule = {{ kind = \"linear\", warmup_steps = {} }}
         eval = {{ every = 50, max_examples = 128 }}
         checkpoint.every = 50",
        sample(),
        steps / 10
    );
    RunConfig::parse(&text, name, &Place::file(Path::new("examples")), &[])
}

/// Pretrains a BERT with custom parts on the sample, and loads it again.
///
/// # Errors
/// Those of a run.
pub fn pretrain<A: Attention, P: Positions>(
    name: &str,
    steps: u64,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
    new: impl Fn(&BertConfig, &mut ParamInit) -> BertForPreTraining<A, P>,
) -> Result<Outcome> {
    let config = pretraining(name, steps)?;
    let folder = RunFolder::open(&options.folder, &config, options.resume)?;
    let tokenizer = run_tokenizer(&config, &folder, options, progress)?;
    let splits = PretrainingSplits::prepare(&config, &tokenizer, options, progress)?;
    let bert = config.model.as_new().expect("it names no checkpoint").bert(&tokenizer);
    let model = |seed| {
        let mut init = ParamInit::new(&options.device.clone().autodiff(), seed).with_std(bert.init_std);
        new(&bert, &mut init)
    };
    let recipe = PretrainingRecipe::new(&config, splits);
    let outcome =
        train_in(&folder, &recipe, model(config.common.run.seed), &config.run_settings(), options, progress)?;
    // What was saved is this model, and no plain BERT: any other one of its kind takes its parameters.
    if let Outcome::Done { model: saved, .. } = &outcome {
        let loaded = recipe.load(model(0).valid(), saved)?;
        let figures = recipe.evaluate(&loaded, &options.device, &mut |_| ())?;
        progress.note(&format!("loaded again: {}", figures.line()));
    }
    Ok(outcome)
}

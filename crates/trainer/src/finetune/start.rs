//! Preparation of a fine-tuning run before its first step.

use super::config::Tuning;
use super::distillation::Distillation;
use super::evaluate::figures;
use super::format::PretrainedFormat;
use super::model_folder::{ModelFolder, TaskFile};
use super::reading::TaskData;
use super::recipe::{Masks, Rounded, TaskRecipe};
use super::task::{Encoded, Features, PretrainedTask, Task, bad_setting, n_cut, no_teacher};
use crate::classes::Classes;
use crate::engine::optimizer::ParamGroup;
use crate::engine::{
    Cadence, CheckpointSection, Epochs, Export, LogSection, ModelFormat, Rounds, RunOptions, RunSettings,
    watched,
};
use crate::fit::check_fit;
use crate::gradual_unfreezing::gradual_unfreezing;
use crate::layer_decay::layer_decay;
use crate::memory::{Keys, Load, MemoryEstimate, check, n_parameters};
use crate::metrics::progress::RunProgress;
use crate::pruning::{Granularity, weight_targets};
use crate::quantization::{InputRanges, InputRounding, RANGES, SeenInputs, attach};
use crate::{Result, TrainerError, recompute};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_data::labelled::{BatchSize, Buckets};
use cloze_evaluation::table;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{PretrainedFolder, check_floats};
use cloze_model::{Backbone, HasBackbone, ModelError, ParamInit, first_layers, freeze};
use cloze_tokenizer::Tokenizer;
use std::time::Instant;

/// Separates the random stream of new parameters from all others of a seed.
const INIT_STREAM: u64 = 0xF17E;
/// The same for the order of examples.
const ORDER_STREAM: u64 = 0x0DE5;

/// The training examples on which ranges of inputs are first measured, and of them those that are computed together.
const FIRST_EXAMPLES: usize = 256;
const FIRST_BATCH: usize = 32;

/// Maximum steps of a run.
const MOST_STEPS: u64 = 1 << 40;
/// Maximum elements of a split's summaries: one gibibyte.
const MOST_SUMMARIES: usize = 1 << 28;

/// Maximum epochs of a run with batches counted in tokens: every epoch then has different batches, which are
/// computed in advance.
const MOST_UNEVEN_EPOCHS: u64 = 10_000;

/// What the engine trains.
pub(super) struct Prepared<'a, T: Task> {
    pub recipe: TaskRecipe<'a, T>,
    pub model: T::Model,
    pub settings: RunSettings,
}

/// Builds the model and the batches, and prints information about them.
///
/// # Errors
/// Settings inconsistent with the data, the checkpoint, or each other; checkpoint errors; a run that certainly
/// needs more memory than available.
pub(super) fn prepare<'a, T: PretrainedTask>(
    config: Tuning<'a>,
    options: &RunOptions<'_>,
    tokenizer: &'a Tokenizer,
    task: &'a T,
    data: TaskData<T>,
    progress: &mut dyn RunProgress,
) -> Result<Prepared<'a, T>> {
    if data.train.features.is_empty() {
        return Err(TrainerError::NoExamples { split: "training" });
    }
    // Known before the first step, and not after the first epoch.
    figures(&*task.predictions(&[], &[], &[]), config.eval.metric.as_deref())?;
    let device = options.device.clone().autodiff();
    recompute::check(config.train.recompute, &device)?;
    let mut init = new_parameters(config, &device);
    check_floats(&config.model.path)?;
    let pretrained = PretrainedFolder::open(&config.model.path)?.replacing_heads();
    let mut pretrained = if config.model.untrained { pretrained.without_weights() } else { pretrained };
    if let Some(name) = &config.data.language {
        let refused = |expected| bad_setting("data.language", format!("\"{name}\""), expected);
        pretrained.config.encoder.language = Some(pretrained.config.language(name).map_err(refused)?);
    }
    let (family, languages) = (pretrained.config.family, pretrained.config.languages.clone());
    let (encoder, model, report) = task.model(pretrained, &config.model.dropout, &mut init)?;
    let (encoder, model) = chosen_layers(config, task, encoder, model)?;
    check_fit(tokenizer, &encoder, &config.model.path, task.has_pairs())?;
    if config.data.max_len > encoder.max_positions {
        let expected = format!("at most {}, the checkpoint's positions", encoder.max_positions);
        return Err(bad_setting("data.max_len", config.data.max_len, expected));
    }
    let mut model = prepare_model(config, task, model, &mut init)?;
    recompute::set(&mut model.backbone_mut().encoder, config.train.recompute);

    let buckets = buckets(config, task, &data);
    let load = Load {
        recompute: config.train.recompute,
        batches: config.train.accumulate as u64,
        ..load(&data.train.features, &buckets.epoch(0))
    };
    let (parameters, trained) = (n_parameters(&model), n_trained(&model) as u64);
    let memory = MemoryEstimate::new(&encoder, parameters, trained, load);
    check(&memory, options.memory, &keys(config, &options.device))?;
    let (epochs, steps) = epochs(config, &buckets)?;
    let rounds = config.pruning.and_then(|section| section.rounds(steps));
    if let Some((Rounds { rewind, .. }, _)) = rounds.filter(|(rounds, _)| rounds.rewind >= steps) {
        return Err(bad_setting(
            "pruning.rewind",
            rewind,
            format!("less than {steps}, the steps of a round"),
        ));
    }
    let steps = rounds.map_or(steps, |(rounds, n)| rounds.all_steps(n));
    let mut settings = settings(config, epochs.clone(), steps);
    settings.rounds = rounds.map(|(rounds, _)| rounds);
    settings.best_from = config.pruning.map(|section| section.settled(steps, rounds));
    settings.optimizer.groups.extend(groups(config, task, &model, &epochs, progress));
    let masks = config.pruning.map(|section| Masks {
        section,
        targets: section.targets(&model),
        rounds: settings.rounds,
        steps,
    });

    let fingerprint = fingerprint(&data.train.features);
    let max_len = config.data.max_len;
    let (file, saved_as, labels) = (TaskFile::of(task, max_len), task.saved_as(), task.labels());
    let folder =
        ModelFolder { family, encoder: encoder.clone(), languages, tokenizer, file, saved_as, labels };
    folder.check()?;
    let format = Box::new(PretrainedFormat { config, task, folder });
    let distillation =
        Distillation::open::<T, T>(task, &data, Some((&encoder, tokenizer)), config, options, progress)?;
    let inner = distillation.as_ref().and_then(|distillation| distillation.inner.as_ref());
    model.backbone_mut().teacher_maps = inner.and_then(|inner| inner.teacher_maps(&mut init));
    let rounding = config.quantization.map(|section| {
        let all = weight_targets(&model, Granularity::Weights);
        Rounded::new(section, section.targets(all))
    });
    if let Some(rounded) = rounding.as_ref().filter(|rounded| rounded.section.inputs.has_ranges()) {
        let ranges = first_ranges(task, &model, rounded, &data.train.features, options);
        let is_learnt = rounded.section.inputs == InputRounding::Learnt;
        attach(model.backbone_mut(), &ranges, is_learnt, &options.device.clone().autodiff());
        if is_learnt {
            let lr_scale = rounded.section.range_lr() / config.common.optimizer.lr;
            let group = ParamGroup { lr_scale, weight_decay: Some(0.0), ..ParamGroup::new(RANGES) };
            settings.added_groups.push(group);
        }
    }
    let mut recipe = TaskRecipe {
        config,
        task,
        data,
        fingerprint,
        buckets,
        epochs,
        format,
        distillation,
        masks,
        rounding,
    };
    let new = if config.model.untrained { "all".into() } else { report.missing.join(", ") };
    let origin = [
        ("checkpoint", config.model.path.display().to_string()),
        ("new", new),
        ("not used", report.unexpected.join(", ")),
    ];
    introduce(&recipe, &model, steps, origin, progress);
    progress.note(&format!("memory: {memory}"));
    summarise(&mut recipe, &encoder, &mut model, &options.device, progress);
    Ok(Prepared { recipe, model, settings })
}

/// Builds the batches of a run with a new model, and prints information about it.
///
/// # Errors
/// Settings inconsistent with the data.
pub(super) fn prepare_new<'a, T: Task>(
    config: Tuning<'a>,
    task: &'a T,
    data: TaskData<T>,
    model: T::Model,
    format: Box<dyn ModelFormat<T::Model> + Send + 'a>,
    distillation: Option<Distillation<'a>>,
    progress: &mut dyn RunProgress,
) -> Result<Prepared<'a, T>> {
    let origin = [("checkpoint", String::new()), ("new", "all".into()), ("not used", String::new())];
    let groups = |_: &T::Model, _: &Epochs, _: &mut dyn RunProgress| task.parameter_groups();
    prepare_with(config, task, data, model, groups, format, origin, distillation, progress)
}

/// The same for a model with a checkpoint's backbone, parts of which the config may freeze, slow down, or
/// unfreeze later. `origin` lists its new parameters and the checkpoint's unused ones.
///
/// # Errors
/// Settings inconsistent with the data or the model.
#[expect(clippy::too_many_arguments, reason = "a model, and what a run has of it")]
pub(super) fn prepare_backbone<'a, T: Task<Model: HasBackbone>>(
    config: Tuning<'a>,
    task: &'a T,
    data: TaskData<T>,
    model: T::Model,
    format: Box<dyn ModelFormat<T::Model> + Send + 'a>,
    [new, unused]: [String; 2],
    distillation: Option<Distillation<'a>>,
    progress: &mut dyn RunProgress,
) -> Result<Prepared<'a, T>> {
    let model = freeze_parts(config, model)?;
    let path = config.model.path.display().to_string();
    let origin = [("checkpoint", path), ("new", new), ("not used", unused)];
    let groups = |model: &T::Model, epochs: &Epochs, progress: &mut dyn RunProgress| {
        groups(config, task, model, epochs, progress)
    };
    prepare_with(config, task, data, model, groups, format, origin, distillation, progress)
}

#[expect(clippy::too_many_arguments, reason = "what both kinds of models have in common")]
fn prepare_with<'a, T: Task>(
    config: Tuning<'a>,
    task: &'a T,
    data: TaskData<T>,
    model: T::Model,
    groups: impl FnOnce(&T::Model, &Epochs, &mut dyn RunProgress) -> Vec<ParamGroup>,
    format: Box<dyn ModelFormat<T::Model> + Send + 'a>,
    origin: [(&str, String); 3],
    distillation: Option<Distillation<'a>>,
    progress: &mut dyn RunProgress,
) -> Result<Prepared<'a, T>> {
    if config.distillation.is_some() && distillation.is_none() {
        return Err(no_teacher());
    }
    if config.pruning.is_some() {
        let expected = "no such section: masks are for a checkpoint with an encoder";
        return Err(bad_setting("pruning", "given", expected.into()));
    }
    if config.quantization.is_some() {
        let expected = "no such section: the layers of a checkpoint with an encoder are rounded";
        return Err(bad_setting("quantization", "given", expected.into()));
    }
    if data.train.features.is_empty() {
        return Err(TrainerError::NoExamples { split: "training" });
    }
    figures(&*task.predictions(&[], &[], &[]), config.eval.metric.as_deref())?;
    let buckets = buckets(config, task, &data);
    let (epochs, steps) = epochs(config, &buckets)?;
    let mut settings = settings(config, epochs.clone(), steps);
    settings.optimizer.groups.extend(groups(&model, &epochs, progress));
    let fingerprint = fingerprint(&data.train.features);
    let (masks, rounding) = (None, None);
    let recipe = TaskRecipe {
        config,
        task,
        data,
        fingerprint,
        buckets,
        epochs,
        format,
        distillation,
        masks,
        rounding,
    };
    introduce(&recipe, &model, steps, origin, progress);
    Ok(Prepared { recipe, model, settings })
}

/// The ranges of the inputs of the first training examples, in a model without dropout whose tokens are rounded by themselves.
fn first_ranges<T: PretrainedTask>(
    task: &T,
    model: &T::Model,
    rounded: &Rounded<'_>,
    features: &[T::Features],
    options: &RunOptions<'_>,
) -> InputRanges {
    let model = model.valid();
    let all = SeenInputs::default();
    for batch in features[..features.len().min(FIRST_EXAMPLES)].chunks(FIRST_BATCH) {
        let batch: Vec<&T::Features> = batch.iter().collect();
        let (_, seen) = rounded.rounded(&model, true, || task.scores(&model, &batch, &options.device));
        all.add(seen);
    }
    let prefix = T::Model::path_of("");
    let of_encoder = |place: usize| {
        let path = rounded.targets[place].path.strip_suffix(".weight")?;
        Some(path.strip_prefix(&prefix)?.to_owned())
    };
    all.take().into_iter().filter_map(|(place, range)| Some((of_encoder(place)?, range))).collect()
}

/// Batches of the training examples.
fn buckets<T: Task>(config: Tuning<'_>, task: &T, data: &TaskData<T>) -> Buckets {
    let lengths: Vec<usize> = data.train.features.iter().map(Features::cost).collect();
    let examples = config.train.batch_size;
    let size = match config.train.batch_tokens {
        Some(tokens) => BatchSize::Within { examples, tokens },
        None => BatchSize::Examples(examples),
    };
    let buckets = Buckets::new(lengths, size, derive_seed(config.common.run.seed, &[ORDER_STREAM]));
    let buckets = if task.mixes_lengths() { buckets.mixed() } else { buckets };
    match task.keys(&data.train.features) {
        Some(keys) => buckets.with_keys(keys),
        None => buckets,
    }
}

/// The initialiser of new parameters.
pub(super) fn new_parameters(config: Tuning<'_>, device: &Device) -> ParamInit {
    ParamInit::new(device, derive_seed(config.common.run.seed, &[INIT_STREAM])).with_std(0.02)
}

/// The ends of the epochs, and their total steps.
fn epochs(config: Tuning<'_>, buckets: &Buckets) -> Result<(Epochs, u64)> {
    let n_steps = |epoch| buckets.epoch(epoch).len().div_ceil(config.train.accumulate) as u64;
    let epochs = config.train.epochs;
    let most = |most: String| bad_setting("train.epochs", epochs, format!("at most {most}"));
    if buckets.is_even() {
        // Batches of this many examples are as many in every epoch.
        let steps = n_steps(0);
        let all = epochs.checked_mul(steps).filter(|all| *all <= MOST_STEPS);
        let all = all.ok_or_else(|| most(format!("{MOST_STEPS} steps together, {steps} in each")))?;
        return Ok((Epochs::Even(steps), all));
    }
    if epochs > MOST_UNEVEN_EPOCHS {
        return Err(most(format!("{MOST_UNEVEN_EPOCHS} where epochs differ in their batches")));
    }
    let ends = (0..epochs.max(1)).scan(0, |end, epoch| {
        *end += n_steps(epoch);
        Some(*end)
    });
    let ends: Vec<u64> = ends.collect();
    let all = if epochs == 0 { 0 } else { ends.last().copied().unwrap_or(0) };
    Ok((Epochs::Ends(ends), all))
}

/// The engine's settings. The result is the best model on the development data, which is kept as exported.
fn settings(config: Tuning<'_>, epochs: Epochs, steps: u64) -> RunSettings {
    let mut settings = RunSettings::new(&config.common.run.name, steps, config.common.optimizer.lr);
    settings.seed = config.common.run.seed;
    settings.non_finite = config.train.non_finite;
    settings.precision = config.train.precision;
    settings.evaluate_untrained = false;
    settings.evaluate = Cadence::OfEpoch { epochs, parts: config.eval.per_epoch };
    settings.patience = config.eval.patience;
    settings.export = Export::Best;
    settings.optimizer = config.common.optimizer.clone();
    settings.schedule = config.common.schedule.clone();
    settings.average = config.common.average.clone();
    settings.checkpoint = CheckpointSection { keep_best: false, ..config.common.checkpoint.clone() };
    settings.ranks = config.common.ranks.clone();
    // A short run has a learning curve too.
    settings.log = LogSection { every: config.common.log.every.min(steps.div_ceil(20)).max(1) };
    settings
}

/// The model with the configured layers of its encoder.
fn chosen_layers<T: PretrainedTask>(
    config: Tuning<'_>,
    task: &T,
    encoder: BertConfig,
    model: T::Model,
) -> Result<(BertConfig, T::Model)> {
    let Some(layers) = &config.model.layers else { return Ok((encoder, model)) };
    let refused = |error| match error {
        ModelError::Setting { found, expected, .. } => bad_setting("model.layers", found, expected),
        error => error.into(),
    };
    let encoder = encoder.with_chosen_layers(layers).map_err(refused)?;
    let model = task.map_encoder(model, |bert| Ok(bert.with_layers(layers)))?;
    Ok((encoder, model))
}

/// Freezes parts of the model and attaches adapters, as configured.
fn prepare_model<T: PretrainedTask>(
    config: Tuning<'_>,
    task: &T,
    mut model: T::Model,
    init: &mut ParamInit,
) -> Result<T::Model> {
    let section = &config.model;
    if let Some(adapters) = &section.lora {
        let d_model = model.backbone().shape().d_model;
        if adapters.rank > d_model {
            let expected = format!("at most {d_model}, the encoder's width");
            return Err(bad_setting("model.lora.rank", adapters.rank, expected));
        }
        model = task.map_encoder(model, |bert| Ok(adapters.attach(bert, init)?))?;
    }
    freeze_parts(config, model)
}

/// Freezes parts of the model as configured.
fn freeze_parts<M: HasBackbone>(config: Tuning<'_>, model: M) -> Result<M> {
    let section = &config.model;
    let mut frozen = section.freeze.clone();
    if let Some(n_layers) = section.freeze_layers {
        let most = model.backbone().layer_paths().len();
        if n_layers > most {
            let expected = format!("at most {most}, the checkpoint's layers");
            return Err(bad_setting("model.freeze_layers", n_layers, expected));
        }
        frozen.extend(first_layers(&model, n_layers));
    }
    let model = if frozen.is_empty() { model } else { freeze(model, &frozen)? };
    if n_trained(&model) == 0 && config.train.epochs > 0 {
        let expected = "patterns that do not freeze everything".into();
        return Err(bad_setting("model.freeze", section.freeze.join(", "), expected));
    }
    Ok(model)
}

/// Encodes the examples once, before training, if the run does not change the encoder.
fn summarise<T: PretrainedTask>(
    recipe: &mut TaskRecipe<'_, T>,
    encoder: &BertConfig,
    model: &mut T::Model,
    device: &Device,
    progress: &mut dyn RunProgress,
) {
    let TaskRecipe { config, task, data, .. } = recipe;
    let changes = n_trained(model.backbone_mut()) > 0;
    let drops = encoder.hidden_dropout > 0.0 || encoder.attention_dropout > 0.0;
    if changes || drops || config.train.epochs < 2 {
        return;
    }
    let model = model.valid();
    let tokens = config.eval.batch_tokens;
    let start = Instant::now();
    let splits = [("train", Some(&mut data.train)), ("dev", data.dev.as_mut()), ("test", data.test.as_mut())];
    let mut kept = 0;
    for (name, split) in splits {
        let Some(Encoded { features, .. }) = split else { continue };
        if features.len() * encoder.d_model > MOST_SUMMARIES {
            continue;
        }
        let work = format!("encoding {name}");
        if task.summarise(&model, features, tokens, device, &mut watched(&work, progress)) {
            kept += features.len();
        }
    }
    if kept > 0 {
        progress.note(&format!(
            "the encoder is frozen and has no dropout: {} examples encoded once, in {:.0} s",
            table::grouped(kept as u64),
            start.elapsed().as_secs_f64()
        ));
    }
}

/// Prints information about the run before it starts.
fn introduce<T: Task>(
    recipe: &TaskRecipe<'_, T>,
    model: &T::Model,
    steps: u64,
    [checkpoint, new, unused]: [(&str, String); 3],
    progress: &mut dyn RunProgress,
) {
    let TaskRecipe { config, data, .. } = recipe;
    let (parameters, trained) = (model.num_params(), n_trained(model));
    let count = |split: &Option<Encoded<_, _>>| {
        split.as_ref().map_or("–".into(), |split| table::grouped(split.examples.len() as u64))
    };
    let trained = if trained < parameters { table::grouped(trained as u64) } else { String::new() };
    progress.note(&table::facts(
        "fine-tuning",
        [
            checkpoint,
            ("parameters", table::grouped(parameters as u64)),
            ("  trained", trained),
            new,
            unused,
            ("training examples", table::grouped(data.train.examples.len() as u64)),
            ("development, test", format!("{}, {}", count(&data.dev), count(&data.test))),
            ("steps", table::grouped(steps)),
            (
                "teacher",
                recipe.distillation.as_ref().map_or_else(String::new, |taught| taught.origin.clone()),
            ),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
    let splits = [("train", Some(&data.train)), ("dev", data.dev.as_ref()), ("test", data.test.as_ref())];
    let of_classes = splits
        .iter()
        .filter_map(|(name, split)| Some((*name, recipe.task.class_counts(&(*split)?.examples))))
        .collect();
    if let Some(classes) = Classes::new(of_classes) {
        classes.tell(config.data.shots, progress);
    }
    let cut: usize =
        splits.into_iter().filter_map(|(_, split)| split).map(|split| n_cut(&split.features)).sum();
    if cut > 0 {
        let (cut, max_len) = (table::grouped(cut as u64), config.data.max_len);
        progress.note(&format!("examples with more than {max_len} tokens, which were cut: {cut}"));
    }
    if data.dev.is_none() && steps > 0 {
        progress.note("no development data: the last model is saved, good or bad");
    }
}

/// The load of the largest of these batches; layers are not recomputed.
fn load<F: Features>(features: &[F], batches: &[Vec<usize>]) -> Load {
    let tokens = |batch: &[usize]| batch.iter().map(|i| features[*i].cost()).sum::<usize>();
    let largest = batches.iter().max_by_key(|batch| tokens(batch)).map_or(&[][..], Vec::as_slice);
    let sequences: usize = largest.iter().map(|i| features[*i].n_sequences()).sum();
    let mean_len = tokens(largest) as f64 / sequences.max(1) as f64;
    Load { sequences: sequences as u64, mean_len, predicted: 0.0, batches: 1, recompute: false }
}

/// The config keys that determine the run's memory.
fn keys(config: Tuning<'_>, device: &Device) -> Keys {
    let Tuning { model, train, data, .. } = config;
    Keys {
        can_recompute: !train.recompute && recompute::is_possible(device),
        model: format!("the model's size, which `model.path` ({}) decides", model.path.display()),
        batch: format!("`train.batch_size` ({}) or `data.max_len` ({})", train.batch_size, data.max_len),
    }
}

/// The number of trained parameters of a model.
fn n_trained<M: Module>(model: &M) -> usize {
    struct Trained(usize);

    impl ModuleVisitor for Trained {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_require_grad() {
                self.0 += param.shape().num_elements();
            }
        }
    }

    let mut trained = Trained(0);
    model.visit(&mut trained);
    trained.0
}

/// The parameter groups of the task, layer-wise decay and gradual unfreezing; they come after the config's own.
fn groups<T: Task<Model: HasBackbone>>(
    config: Tuning<'_>,
    task: &T,
    model: &T::Model,
    epochs: &Epochs,
    progress: &mut dyn RunProgress,
) -> Vec<ParamGroup> {
    let mut groups = task.parameter_groups();
    let decay = config.model.layer_decay.unwrap_or(1.0);
    if config.model.gradual_unfreezing {
        let of_layers = gradual_unfreezing(model, decay, epochs);
        let (needed, found) = (of_layers.len() as u64 + 1, config.train.epochs);
        if found < needed {
            progress.note(&format!(
                "gradual unfreezing: the lowest layers are never trained in {found} epochs; all are from epoch {needed} on"
            ));
        }
        groups.extend(of_layers);
    } else if decay < 1.0 {
        groups.extend(layer_decay(model, decay));
    }
    groups
}

/// A hash of the examples' tokens, in order.
pub(super) fn fingerprint<F: Features>(features: &[F]) -> String {
    let mut hasher = blake3::Hasher::new();
    for features in features {
        features.hash(&mut |bytes| {
            hasher.update(bytes);
        });
    }
    hasher.finalize().to_hex().to_string()
}

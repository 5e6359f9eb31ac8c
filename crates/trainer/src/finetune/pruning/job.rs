//! The removal itself, for any task with an encoder.

use super::super::config::Tuning;
use super::super::evaluate::{figures, predict};
use super::super::format::PretrainedFormat;
use super::super::model_folder::{ModelFolder, TaskFile};
use super::super::reading::TaskData;
use super::super::task::{PretrainedTask, bad_setting};
use super::{Importance, PruneConfig, PruneReport, choice, importance, layers};
use crate::engine::{ModelFormat, Outcome, RunOptions, watched};
use crate::fit::check_fit;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_evaluation::figures::Figures;
use cloze_model::bert::{BertConfig, Removal};
use cloze_model::huggingface::{PretrainedFolder, check_floats};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ModelError, ParamInit, freeze, weights};
use cloze_tokenizer::Tokenizer;
use std::cell::RefCell;
use std::path::Path;

/// A removal that is asked for.
pub(in crate::finetune) struct Job<'a> {
    pub config: &'a PruneConfig,
    pub out: &'a Path,
    /// What came of it.
    pub report: RefCell<Option<PruneReport>>,
}

/// Nothing is dropped while importance is measured.
fn no_dropout() -> DropoutOverrides {
    let mut none = DropoutOverrides::default();
    (none.hidden, none.attention, none.head) = (Some(0.0), Some(0.0), Some(0.0));
    none
}

impl Job<'_> {
    /// Removes what is asked for from the configured checkpoint, and saves the rest.
    ///
    /// # Errors
    /// As [`prune`](super::prune).
    pub fn run<T: PretrainedTask>(
        &self,
        config: Tuning<'_>,
        options: &RunOptions<'_>,
        tokenizer: &Tokenizer,
        task: &T,
        data: TaskData<T>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let pruning = self.config;
        let device = options.device.clone().autodiff();
        check_floats(&config.model.path)?;
        let pretrained = PretrainedFolder::open(&config.model.path)?;
        let (family, languages) = (pretrained.config.family, pretrained.config.languages.clone());
        let with_dropout = family.adapted(pretrained.encoder(task.saved_as().0));
        let (encoder, model, report) =
            task.model(pretrained, &no_dropout(), &mut ParamInit::new(&device, 0))?;
        if let Some(missing) = report.missing.into_iter().next() {
            return Err(TrainerError::NoTaskHead { folder: config.model.path.clone(), missing });
        }
        check_fit(tokenizer, &encoder, &config.model.path, task.has_pairs())?;
        if config.data.max_len > encoder.max_positions {
            let expected = format!("at most {}, the model's positions", encoder.max_positions);
            return Err(bad_setting("data.max_len", config.data.max_len, expected));
        }
        let saved_config = encoder
            .with_hidden_dropout(with_dropout.hidden_dropout)
            .with_attention_dropout(with_dropout.attention_dropout);
        let folder = |encoder: BertConfig| ModelFolder {
            family,
            encoder,
            languages: languages.clone(),
            tokenizer,
            file: TaskFile::of(task, config.data.max_len),
            saved_as: task.saved_as(),
            labels: task.labels(),
        };
        self.check(&saved_config, |encoder| folder(encoder).check())?;
        let measured =
            |model: &T::Model, work: &str, progress: &mut dyn RunProgress| -> Result<Option<Figures>> {
                let Some(dev) = &data.dev else { return Ok(None) };
                let advanced = &mut watched(work, progress);
                let tokens = config.eval.batch_tokens;
                let predictions = predict(task, &model.valid(), dev, tokens, &options.device, advanced)?;
                figures(&*predictions, config.eval.metric.as_deref()).map(Some)
            };
        let before = measured(&model, "measuring dev before", progress)?;
        let n_before = model.num_params();

        let (layers, layer_losses) = match (&pruning.layers, pruning.n_layers) {
            (Some(layers), _) => {
                saved_config.with_chosen_layers(layers).map_err(|error| match error {
                    ModelError::Setting { found, expected, .. } => bad_setting("--layers", found, expected),
                    other => other.into(),
                })?;
                (layers.clone(), Vec::new())
            }
            (None, Some(n)) => {
                self.layers(n, config, task, (&saved_config, &model), &data, &options.device, progress)?
            }
            (None, None) => ((0..saved_config.n_layers).collect(), Vec::new()),
        };
        let (mut encoder, mut model) = (saved_config, model);
        if layers.len() < encoder.n_layers {
            encoder = encoder.with_chosen_layers(&layers)?;
            model = task.map_encoder(model, |bert| Ok(bert.with_layers(&layers)))?;
        }
        let (removal, importance, rounds) =
            self.heads_and_neurons(config, task, &model, &data, &device, progress)?;
        if !removal.is_empty() {
            model = match pruning.padded {
                true => task.map_encoder(model, |bert| Ok(bert.with_zeros(&removal)))?,
                false => {
                    encoder = encoder.without(&removal)?;
                    task.map_encoder(model, |bert| Ok(bert.without(&removal)))?
                }
            };
        }
        let after = measured(&model, "measuring dev after", progress)?;
        let parameters = [n_before, model.num_params()];
        let format = PretrainedFormat { config, task, folder: folder(encoder) };
        format.save(&model, self.out)?;
        let figures = before.zip(after).map(|(before, after)| [before, after]);
        let outcome = figures
            .iter()
            .map(|[_, after]| ("dev".to_owned(), after.clone()))
            .collect::<Vec<(String, Figures)>>();
        *self.report.borrow_mut() =
            Some(PruneReport { layers, layer_losses, importance, removal, rounds, parameters, figures });
        Ok(Outcome::Done { model: self.out.into(), figures: outcome })
    }

    /// Refuses what cannot be removed or saved, before anything is measured.
    fn check(&self, encoder: &BertConfig, is_saved: impl Fn(BertConfig) -> Result<()>) -> Result<()> {
        let pruning = self.config;
        if (pruning.heads > 0.0 || pruning.neurons > 0.0) && encoder.share_layers {
            let (option, share) = match pruning.heads > 0.0 {
                true => ("--heads", pruning.heads),
                false => ("--neurons", pruning.neurons),
            };
            let expected = "none: the model's layers share their parameters".into();
            return Err(bad_setting(option, share, expected));
        }
        if pruning.heads > 0.0 {
            if let Some(reason) = encoder.fixed_heads() {
                return Err(bad_setting("--heads", pruning.heads, format!("none: {reason}")));
            }
            if !pruning.padded && encoder.n_heads > 1 {
                let mut lists = vec![Vec::new(); encoder.n_layers];
                lists[0] = vec![0];
                let one = encoder.clone().with_pruned_heads(lists);
                is_saved(one).map_err(|error| match error {
                    TrainerError::Model(ModelError::Setting { key: "pruned_heads", .. }) => {
                        let expected =
                            "--padded with it: transformers has no class of this family with fewer heads";
                        bad_setting("--heads", pruning.heads, expected.into())
                    }
                    other => other,
                })?;
            }
        }
        is_saved(encoder.clone())
    }

    /// The layers that stay, and those that go with the losses without them.
    #[expect(clippy::too_many_arguments, reason = "a model, its data, and what the run says of them")]
    fn layers<T: PretrainedTask>(
        &self,
        n: usize,
        config: Tuning<'_>,
        task: &T,
        (encoder, model): (&BertConfig, &T::Model),
        data: &TaskData<T>,
        device: &Device,
        progress: &mut dyn RunProgress,
    ) -> Result<layers::Choice> {
        let Some(dev) = &data.dev else {
            let expected =
                "`data.dev` or `data.dev_fraction`, to measure the loss without a layer; or --layers".into();
            return Err(bad_setting("--n-layers", n, expected));
        };
        if n > encoder.n_layers {
            return Err(bad_setting(
                "--n-layers",
                n,
                format!("at most {}, the model's layers", encoder.n_layers),
            ));
        }
        let model = model.valid();
        let loss = |model: &T::Model| layers::loss(task, model, dev, config.eval.batch_tokens, device);
        let advanced = &mut watched("measuring dev without each layer", progress);
        layers::greedy(task, (encoder, &model), n, loss, advanced)
    }

    /// What is removed of heads and neurons; the importance of all of them at the beginning; and the number of rounds.
    fn heads_and_neurons<T: PretrainedTask>(
        &self,
        config: Tuning<'_>,
        task: &T,
        model: &T::Model,
        data: &TaskData<T>,
        device: &Device,
        progress: &mut dyn RunProgress,
    ) -> Result<(Removal, Option<Importance>, usize)> {
        let pruning = self.config;
        let layers = &model.backbone().encoder.layers;
        let heads: Vec<usize> = layers.iter().map(|layer| layer.attention.n_heads()).collect();
        let n_heads: usize = heads.iter().sum();
        let d_ff = layers.first().map_or(0, |layer| layer.feed_forward.down.weight.dims()[0]);
        let part = |share: f64, all: usize| (share * all as f64).round() as usize;
        let targets = [part(pruning.heads, n_heads), part(pruning.neurons, d_ff)];
        let mut removal =
            Removal { heads: vec![Vec::new(); layers.len()], neurons: vec![Vec::new(); layers.len()] };
        if targets == [0, 0] {
            return Ok((removal, None, 0));
        }
        let most = n_heads - layers.len();
        if targets[0] > most {
            let expected = format!(
                "at most {:.4}: that is {most} of {n_heads} heads, and each of {} layers keeps one",
                most as f64 / n_heads as f64,
                layers.len()
            );
            return Err(bad_setting("--heads", pruning.heads, expected));
        }
        if targets[1] >= d_ff {
            return Err(bad_setting(
                "--neurons",
                pruning.neurons,
                format!("less: a layer has {d_ff} neurons"),
            ));
        }
        if data.train.features.is_empty() {
            return Err(TrainerError::NoExamples { split: "training" });
        }
        // Evenly spaced, so that data sorted by class is seen whole.
        let all = data.train.features.len();
        let n = pruning.examples.min(all);
        let features: Vec<&T::Features> = (0..n).map(|at| &data.train.features[at * all / n]).collect();
        let compares = task.mixes_lengths() || task.keys(&data.train.features[..1]).is_some();
        let unit = if compares { config.train.batch_size } else { 1 };
        let model = with_gradients_of_rows(model.clone())?;
        let steps = [part(pruning.per_round, n_heads).max(1), part(pruning.per_round, d_ff).max(1)];
        let n_rounds = targets.iter().zip(steps).map(|(all, step)| all.div_ceil(step)).max().unwrap_or(0);
        let mut first = None;
        for round in 1..=n_rounds {
            let masked = task.map_encoder(model.clone(), |bert| Ok(bert.with_zeros(&removal)))?;
            let work = format!("measuring importance, round {round} of {n_rounds}");
            let advanced = &mut watched(&work, progress);
            let found = importance(task, &masked, &features, unit, device, advanced);
            let normed = found.normed();
            let so_far = |lists: &[Vec<usize>]| lists.iter().map(Vec::len).sum::<usize>();
            let n_next = steps[0].min(targets[0] - so_far(&removal.heads));
            for (layer, head) in choice::heads(&normed.heads, &removal.heads, n_next) {
                removal.heads[layer].push(head);
            }
            for (of, gone) in normed.neurons.iter().zip(&mut removal.neurons) {
                gone.extend(choice::neurons(of, gone, steps[1].min(targets[1] - gone.len())));
            }
            removal.heads.iter_mut().chain(&mut removal.neurons).for_each(|list| list.sort_unstable());
            first.get_or_insert(found);
        }
        Ok((removal, first, n_rounds))
    }
}

/// The model with gradients of nothing but the maps whose rows belong to heads and neurons.
fn with_gradients_of_rows<M: HasBackbone>(model: M) -> Result<M> {
    let rows = ["attention.output.weight", "feed_forward.down.weight"];
    let paths = weights::shapes(&model).into_iter().map(|(path, _)| path);
    let others: Vec<String> = paths.filter(|path| !rows.iter().any(|end| path.ends_with(end))).collect();
    Ok(freeze(model, &others)?)
}

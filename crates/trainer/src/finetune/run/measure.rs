//! What a model is worth: evaluations during a run, the best model, its report.

use super::super::evaluate::{Advance, figures, predict};
use super::super::model_folder::{ModelFolder, TaskFile};
use super::super::task::Task;
use super::Run;
use crate::Result;
use crate::checkpoint::Best;
use crate::evaluation::figures::{Better, Figures};
use crate::evaluation::report::Report;
use crate::metrics::progress::{Pass, RunProgress};
use crate::metrics::{FiguresRecord, Record};
use crate::run_folder::write_whole_folder;
use burn::module::Module;
use cloze_model::bert::Bert;
use cloze_model::huggingface::Checkpoint as Pretrained;
use cloze_model::lora;
use std::time::Instant;
use tracing::trace_span;

impl<T: Task> Run<'_, T> {
    /// Measures on the development data, where there is any; a model better than all before is saved.
    pub(super) fn evaluate(&mut self, progress: &mut dyn RunProgress) -> Result<()> {
        let Some(dev) = &self.data.dev else {
            return Ok(());
        };
        let _evaluation = trace_span!("evaluate").entered();
        let start = Instant::now();
        let model = self.training.model().valid();
        let device = self.training.device.clone().inner();
        let tokens = self.config.eval.batch_tokens;
        let predictions =
            predict(self.task, &model, dev, tokens, &device, &mut watched("measuring dev", progress));
        let figures = figures(&*predictions, self.config.eval.metric.as_deref())?;
        let step = self.training.state.step;
        let (name, value) = figures.main();
        progress.note(&format!("step {step}: {}", line(&figures)));
        let loss = figures.get("loss").filter(|_| name != "loss");
        // Between equals the loss decides: it still falls when every example is right.
        let improves = self.training.state.best.is_none_or(|best| {
            let falls = || loss.zip(best.tie).is_some_and(|(loss, least)| loss < least);
            Better::of(name).improves(value, best.figure) || value == best.figure && falls()
        });
        self.training.log.write(&Record::Figures(FiguresRecord {
            step,
            split: "dev".into(),
            figures,
            seconds: start.elapsed().as_secs_f64(),
        }))?;
        if improves {
            self.training.state.best = Some(Best { step, figure: value, tie: loss });
            self.export()?;
        }
        Ok(())
    }

    /// Saves the model as it is, adapters merged.
    pub(super) fn export(&self) -> Result<()> {
        let model = self.merged()?;
        write_whole_folder(&self.folder.model(), |path| self.model_folder().save(&model, path))
    }

    /// What is saved beside the weights.
    pub(super) fn model_folder(&self) -> ModelFolder<'_> {
        let max_len = self.config.data.max_len;
        let file = TaskFile { task: self.task.section(), max_len, pairs: self.task.pairs() };
        ModelFolder { encoder: &self.encoder, tokenizer: self.tokenizer, file, labels: self.task.labels() }
    }

    /// The parameters of the saved model in the one at hand.
    pub(super) fn best_model(&self) -> Result<T::Model> {
        let pretrained = Pretrained::open(&self.folder.model())?;
        let architecture = pretrained.config.architecture;
        Ok(pretrained.load_into(self.merged()?, architecture, &[])?.0)
    }

    /// The model without autodiff and adapters.
    fn merged(&self) -> Result<T::Model> {
        let model = self.training.model().valid();
        match self.config.model.lora {
            Some(_) => self.task.map_encoder(model, |bert: Bert| Ok(lora::merge(bert))),
            None => Ok(model),
        }
    }

    /// The best model's figures on a split, with everything about it in a folder.
    pub(super) fn report(
        &mut self,
        model: &T::Model,
        split: &str,
        progress: &mut dyn RunProgress,
    ) -> Result<Option<Figures>> {
        let data = match split {
            "dev" => &self.data.dev,
            _ => &self.data.test,
        };
        let Some(data) = data else {
            return Ok(None);
        };
        let start = Instant::now();
        let device = self.training.device.clone().inner();
        let (tokens, work) = (self.config.eval.batch_tokens, format!("measuring {split}"));
        let predictions = predict(self.task, model, data, tokens, &device, &mut watched(&work, progress));
        let figures = figures(&*predictions, self.config.eval.metric.as_deref())?;
        let folder = self.folder.path().join("report").join(split);
        let facts = [
            ("model", self.folder.model().display().to_string()),
            ("split", split.to_string()),
            ("step", self.training.state.best.map_or(self.training.state.step, |best| best.step).to_string()),
        ];
        let title = format!("{}: {split}", self.config.run.name);
        Report { title: &title, facts: &facts, figures: &figures, predictions: &*predictions }
            .write_with_curve(
                &folder,
                (self.training.state.step > 0).then(|| self.folder.curve()).as_deref(),
            )?;
        let of = self
            .training
            .state
            .best
            .map_or(String::new(), |best| format!(", the model after step {}", best.step));
        progress.note(&format!("{split}{of}\n{figures}\n{}", folder.join("report.html").display()));
        let seconds = start.elapsed().as_secs_f64();
        if split != "dev" {
            let (step, split) = (self.training.state.step, split.to_string());
            self.training.log.write(&Record::Figures(FiguresRecord {
                step,
                split,
                figures: figures.clone(),
                seconds,
            }))?;
        }
        Ok(Some(figures))
    }
}

/// Tells of a pass that begins now.
pub(super) fn watched<'p>(work: &'p str, progress: &'p mut dyn RunProgress) -> impl FnMut(Advance) + 'p {
    let start = Instant::now();
    move |Advance { done, share }| progress.pass(&Pass { work, done, share, elapsed: start.elapsed() })
}

/// The figures in one line, the main one first.
fn line(figures: &Figures) -> String {
    let (main, value) = figures.main();
    let rest = figures.iter().filter(|(name, _)| *name != main);
    std::iter::once((main, value))
        .chain(rest)
        .map(|(name, value)| format!("{name} {value:.4}"))
        .collect::<Vec<_>>()
        .join(" · ")
}

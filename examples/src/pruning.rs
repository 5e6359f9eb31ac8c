//! An extension of a run: gradual magnitude pruning (Zhu & Gupta 2018, eq. 1) of the [neural language model](crate::neural_lm).
//!
//! ```text
//! s_t = s · (1 − (1 − t/T)³)
//! ```
//!
//! Every few steps, until step `T`, the smallest `s_t` of each matrix' weights are masked; they are 0 from then on. The masks are
//! kept in checkpoints, as what is masked depends on the weights at that step and not on those of later ones.

use crate::neural_lm::{NeuralLm, NextWord, prepare};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use cloze_evaluation::figures::Figures;
use cloze_model::weights::{OnDevice, TensorsOnDevice};
use cloze_trainer::Result;
use cloze_trainer::engine::{
    Advance, Cadence, Extension, Extensions, KeptState, Objective, Outcome, Position, Recipe, RunOptions,
    RunSettings, StepBatches, Term, train,
};
use cloze_trainer::metrics::progress::RunProgress;

/// Steps between two masks.
const EVERY: u64 = 5;

/// Masks on the matrices of any model.
#[derive(Debug)]
pub struct Pruning {
    /// The share of each matrix' weights that is 0 in the end, `s`.
    pub sparsity: f64,
    /// The step of the last mask, `T`.
    pub until: u64,
    /// For each matrix, 1 where a weight stays; empty before the first mask.
    masks: Vec<Tensor<1>>,
}

impl Pruning {
    /// Without masks yet.
    pub fn new(sparsity: f64, until: u64) -> Self {
        Self { sparsity, until, masks: Vec::new() }
    }

    /// `s_t`
    fn sparsity_at(&self, step: u64) -> f64 {
        let left = 1.0 - (step as f64 / self.until.max(1) as f64).min(1.0);
        self.sparsity * (1.0 - left.powi(3))
    }
}

impl<M: Module> Extension<M> for Pruning {
    fn name(&self) -> &str {
        "pruning"
    }

    fn after_update(&mut self, model: M, step: u64) -> M {
        if step.is_multiple_of(EVERY) && step <= self.until {
            let mut masks = Masks { sparsity: self.sparsity_at(step), masks: Vec::new() };
            model.visit(&mut masks);
            self.masks = masks.masks;
        }
        model.map(&mut Masked(self.masks.iter()))
    }

    fn tensors(&self) -> TensorsOnDevice {
        let masks = self.masks.iter().enumerate();
        masks.map(|(place, mask)| (place.to_string(), OnDevice::new(mask.clone()))).collect()
    }

    fn restore(&mut self, model: &M, mut kept: KeptState) -> std::result::Result<(), String> {
        // Before the first mask there is none.
        if kept.tensors.is_empty() {
            return Ok(());
        }
        let mut shapes = Masks { sparsity: 0.0, masks: Vec::new() };
        model.visit(&mut shapes);
        let read = |(place, all): (usize, Tensor<1>)| {
            let mask = kept.tensors.remove(&place.to_string()).ok_or(format!("mask {place} is missing"))?;
            match mask.num_elements() == all.dims()[0] {
                true => Ok(Tensor::from_data(mask, &all.device())),
                false => Err(format!("mask {place} is of another matrix")),
            }
        };
        let masks: std::result::Result<Vec<_>, _> = shapes.masks.into_iter().enumerate().map(read).collect();
        self.masks = masks?;
        Ok(())
    }
}

/// Finds the masks of all matrices.
struct Masks {
    sparsity: f64,
    masks: Vec<Tensor<1>>,
}

impl ModuleVisitor for Masks {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D != 2 {
            return;
        }
        let values = param.val().inner();
        let sizes: Vec<f32> = values.to_data().iter::<f32>().map(f32::abs).collect();
        let mut sorted = sizes.clone();
        sorted.sort_by(f32::total_cmp);
        let n_pruned = (self.sparsity * sizes.len() as f64) as usize;
        let least = sorted.get(n_pruned).copied().unwrap_or(f32::INFINITY);
        let mask: Vec<f32> = sizes.iter().map(|size| f32::from(u8::from(*size >= least))).collect();
        let n = mask.len();
        self.masks.push(Tensor::from_data(TensorData::new(mask, [n]), &values.device()));
    }
}

/// Multiplies all matrices by their masks.
struct Masked<'a>(std::slice::Iter<'a, Tensor<1>>);

impl ModuleMapper for Masked<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(mask) = (D == 2).then(|| self.0.next()).flatten() else { return param };
        let (id, value, mapper) = param.consume();
        let (shape, tracked) = (value.dims(), value.is_require_grad());
        let value = Tensor::from_inner(value.inner() * mask.clone().reshape(shape));
        Param::from_mapped_value(id, if tracked { value.require_grad() } else { value }, mapper)
    }
}

/// The training of the language model, with pruning.
pub struct Pruned {
    next_word: NextWord,
    sparsity: f64,
    until: u64,
}

impl Objective for Pruned {
    type Model = NeuralLm;
    type Batch = Vec<i32>;

    fn terms(&self, step: u64) -> Vec<Term> {
        self.next_word.terms(step)
    }

    fn counts(&self, batch: &Vec<i32>) -> Vec<f64> {
        self.next_word.counts(batch)
    }

    fn sums(&self, model: &NeuralLm, batch: &Vec<i32>, device: &Device) -> Vec<Tensor<1>> {
        self.next_word.sums(model, batch, device)
    }
}

impl Recipe for Pruned {
    fn data(&self) -> String {
        self.next_word.data()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Vec<i32>>>> + '_> {
        self.next_word.steps(from)
    }

    fn extensions(&self) -> Extensions<NeuralLm> {
        vec![Box::new(Pruning::new(self.sparsity, self.until))]
    }

    fn split(&self) -> Option<&str> {
        self.next_word.split()
    }

    fn evaluate(
        &self,
        model: &NeuralLm,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        self.next_word.evaluate(model, device, advanced)
    }
}

/// Trains it until nine of ten weights are 0.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let mut settings = RunSettings::new("pruning", steps, 2e-3);
    settings.evaluate = Cadence::Every(50);
    settings.checkpoint.every = 50;
    let (next_word, model) = prepare([64, 128], 32, 1, settings.seed, &options.device)?;
    let recipe = Pruned { next_word, sparsity: 0.9, until: steps * 2 / 3 };
    train(&recipe, model, &settings, options, progress)
}

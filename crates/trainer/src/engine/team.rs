//! A step's way between replicas: gradients to the owners of their slices, updated values back.

use super::messages::{Words, gather, gather_numbers};
use super::optimizer::Optimizer;
use super::replicas::Replicas;
use super::settings::Exchange;
use super::slices::{Piece, Slices};
use super::tree_sum::{Node, TreeSum};
use crate::Result;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_ops::SquaredSums;
use half::bf16;
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

/// Additions per task.
const TASK: usize = 64 << 10;

/// Several replicas, as a step needs them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Team<'a> {
    pub replicas: &'a dyn Replicas,
    pub slices: &'a Slices,
    /// Whether each replica updates its slice alone; otherwise all make the whole update.
    pub divides_update: bool,
    /// The format of gradients on their way.
    pub exchange: Exchange,
}

/// The summed gradients of a replica's slice: for each of its pieces in order, none if no micro-batch has any.
#[derive(Debug)]
pub(super) struct SliceGradients(Vec<Option<Vec<f32>>>);

/// Values of updated parameters.
#[derive(Debug)]
pub(super) struct Updated(HashMap<ParamId, Vec<f32>>);

impl Updated {
    /// The model with these values.
    pub fn replace<M: Module>(self, model: M, device: &Device) -> M {
        model.map(&mut Replace { values: self.0, device })
    }
}

impl Team<'_> {
    /// The gradients of this replica's slice, summed over the micro-batches of all replicas: `sum` has those of this
    /// one.
    pub fn sum<M: Module>(&self, model: &M, sum: TreeSum<GradientsParams>) -> Result<SliceGradients> {
        let _exchange = tracing::trace_span!("exchange gradients").entered();
        let nodes = sum.nodes();
        let mut messages: Vec<Vec<u32>> = vec![vec![nodes.len() as u32]; self.slices.size()];
        for Node { level, place, value } in nodes {
            messages.iter_mut().for_each(|message| message.extend([level, place as u32]));
            let (slices, exchange) = (self.slices, self.exchange);
            model.visit(&mut Pack { gradients: value, slices, exchange, messages: &mut messages });
        }
        let lengths: Vec<usize> =
            self.slices.of(self.replicas.rank()).map(|(_, range)| range.len()).collect();
        let added = |left, right| added(left, right, self.exchange);
        let mut total = TreeSum::default();
        for (rank, message) in self.replicas.exchange(messages)?.into_iter().enumerate() {
            let mut words = Words::new(&message, rank);
            for _ in 0..words.one()? {
                let (level, place) = (words.one()?, u64::from(words.one()?));
                let value = lengths.iter().map(|length| take_gradients(&mut words, *length, self.exchange));
                total.push(Node { level, place, value: value.collect::<Result<_>>()? }, added);
            }
        }
        Ok(SliceGradients(total.total(added).unwrap_or_else(|| vec![None; lengths.len()])))
    }

    /// All gradients, of all slices.
    pub fn whole(&self, own: SliceGradients, device: &Device) -> Result<GradientsParams> {
        let mut gradients = Whole { gradients: GradientsParams::new(), device };
        self.gathered(own.0, |id, shape, values| gradients.register(id, shape, values))?;
        Ok(gradients.gradients)
    }

    /// The Euclidean norm of the gradients of all slices: the same bits as [`global_norm`](super::gradients::global_norm)
    /// of all of them.
    pub fn norm(&self, own: &SliceGradients, device: &Device) -> Result<f64> {
        let mut squares = SquaredSums::default();
        for values in own.0.iter().flatten() {
            squares.push(Tensor::<1>::from_data(values.as_slice(), device));
        }
        let parts = squares.parts().map_or_else(Vec::new, |parts| parts.into_data().iter::<f64>().collect());
        Ok(gather_numbers(self.replicas, &parts)?.into_iter().flatten().sum::<f64>().sqrt())
    }

    /// The parameters' values after an update, of which each replica makes its slice.
    pub fn update<M: Module>(
        &self,
        model: &M,
        optimizer: &mut Optimizer,
        own: SliceGradients,
        device: &Device,
        lr: f64,
        scale: f64,
    ) -> Result<Updated> {
        let pieces = self.slices.of(self.replicas.rank());
        let gradients: HashMap<ParamId, (Range<usize>, Tensor<1>)> = pieces
            .zip(own.0)
            .filter_map(|((parameter, range), values)| {
                Some((parameter.id, (range.clone(), Tensor::from_data(values?.as_slice(), device))))
            })
            .collect();
        let mut updated = optimizer.step_slices(model, gradients, lr, scale);
        let pieces = self.slices.of(self.replicas.rank());
        let own = pieces.map(|(parameter, _)| updated.remove(&parameter.id).map(values_of)).collect();
        let mut values = HashMap::new();
        self.gathered(own, |id, _, whole| drop(values.insert(id, whole)))?;
        Ok(Updated(values))
    }

    /// Gathers what every replica has for the pieces of its slice, and passes on each whole parameter.
    fn gathered(
        &self,
        own: Vec<Option<Vec<f32>>>,
        pass_on: impl FnMut(ParamId, &[usize], Vec<f32>),
    ) -> Result<()> {
        let _exchange = tracing::trace_span!("exchange slices").entered();
        let mut message = Vec::new();
        own.into_iter().for_each(|values| put(&mut message, values.as_deref()));
        self.wholes(&gather(self.replicas, message)?, pass_on)
    }

    /// Puts the pieces that every replica has [`put`] into its message together, and passes on each whole parameter.
    fn wholes(
        &self,
        messages: &[Vec<u32>],
        mut pass_on: impl FnMut(ParamId, &[usize], Vec<f32>),
    ) -> Result<()> {
        let mut words: Vec<_> =
            messages.iter().enumerate().map(|(rank, message)| Words::new(message, rank)).collect();
        for parameter in self.slices.parameters() {
            let mut whole: Option<Vec<f32>> = None;
            for Piece { owner, range } in &parameter.pieces {
                let Some(values) = take(&mut words[*owner], range.len())? else { continue };
                match &mut whole {
                    Some(whole) => whole.extend(values),
                    None => whole = Some(values),
                }
            }
            if let Some(whole) = whole {
                pass_on(parameter.id, &parameter.shape, whole);
            }
        }
        Ok(())
    }

    /// The whole of the tensors of which every replica has its slice, such as moments, on the first replica; none on the
    /// others. `own` returns this replica's part for the elements of a parameter.
    pub fn whole_on_first(
        &self,
        mut own: impl FnMut(ParamId) -> Option<Tensor<1>>,
    ) -> Result<HashMap<ParamId, Vec<f32>>> {
        let mut message = Vec::new();
        for (parameter, _) in self.slices.of(self.replicas.rank()) {
            put(&mut message, own(parameter.id).map(values_of).as_deref());
        }
        let mut messages = vec![Vec::new(); self.slices.size()];
        messages[0] = message;
        let messages = self.replicas.exchange(messages)?;
        let mut wholes = HashMap::new();
        if self.replicas.rank() > 0 {
            return Ok(wholes);
        }
        self.wholes(&messages, |id, _, whole| drop(wholes.insert(id, whole)))?;
        Ok(wholes)
    }
}

fn values_of(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Adds what one node has for each piece to what another has, both rounded to the format of exchange.
fn added(
    left: Vec<Option<Vec<f32>>>,
    right: Vec<Option<Vec<f32>>>,
    exchange: Exchange,
) -> Vec<Option<Vec<f32>>> {
    let sum = match exchange {
        Exchange::F32 => |left: f32, right: f32| left + right,
        Exchange::Bf16 => {
            |left: f32, right: f32| bf16::from_f32(left).to_f32() + bf16::from_f32(right).to_f32()
        }
    };
    let both = left.into_iter().zip(right).map(|pair| match pair {
        (Some(mut left), Some(right)) => {
            left.par_chunks_mut(TASK).zip(right.par_chunks(TASK)).for_each(|(left, right)| {
                left.iter_mut().zip(right).for_each(|(left, right)| *left = sum(*left, *right));
            });
            Some(left)
        }
        (left, right) => left.or(right),
    });
    both.collect()
}

/// Appends gradients, or that there are none; in bf16, two to a word.
fn put_gradients(message: &mut Vec<u32>, values: Option<&[f32]>, exchange: Exchange) {
    match exchange {
        Exchange::F32 => put(message, values),
        Exchange::Bf16 => {
            message.push(u32::from(values.is_some()));
            let bits =
                |value: Option<&f32>| value.map_or(0, |value| u32::from(bf16::from_f32(*value).to_bits()));
            let pairs = values.unwrap_or_default().chunks(2);
            message.extend(pairs.map(|pair| bits(pair.first()) | bits(pair.get(1)) << 16));
        }
    }
}

/// Appends values, or that there are none.
fn put(message: &mut Vec<u32>, values: Option<&[f32]>) {
    message.push(u32::from(values.is_some()));
    message.extend(values.unwrap_or_default().iter().map(|value| value.to_bits()));
}

/// What [`put_gradients`] appended to a message.
fn take_gradients(words: &mut Words<'_>, length: usize, exchange: Exchange) -> Result<Option<Vec<f32>>> {
    match exchange {
        Exchange::F32 => take(words, length),
        Exchange::Bf16 if words.one()? == 0 => Ok(None),
        Exchange::Bf16 => {
            let words = words.take(length.div_ceil(2))?;
            let pairs = words.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]);
            Ok(Some(pairs.take(length).map(|bits| bf16::from_bits(bits).to_f32()).collect()))
        }
    }
}

/// What [`put`] appended to a message.
fn take(words: &mut Words<'_>, length: usize) -> Result<Option<Vec<f32>>> {
    match words.one()? {
        0 => Ok(None),
        _ => words.values(length).map(Some),
    }
}

/// Appends the gradients of each piece to the message to its owner.
struct Pack<'a> {
    gradients: GradientsParams,
    slices: &'a Slices,
    exchange: Exchange,
    messages: &'a mut [Vec<u32>],
}

impl ModuleVisitor for Pack<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(parameter) = self.slices.get(param.id) else { return };
        let gradient = self.gradients.remove::<D>(param.id).map(Tensor::into_data);
        let values: Option<Vec<f32>> = gradient.map(|data| data.iter().collect());
        for Piece { owner, range } in &parameter.pieces {
            let values = values.as_ref().map(|values| &values[range.clone()]);
            put_gradients(&mut self.messages[*owner], values, self.exchange);
        }
    }
}

/// Collects gradients of any rank.
struct Whole<'a> {
    gradients: GradientsParams,
    device: &'a Device,
}

impl Whole<'_> {
    fn register(&mut self, id: ParamId, shape: &[usize], values: Vec<f32>) {
        let data = TensorData::new(values, shape.to_vec());
        macro_rules! of_rank {
            ($($rank:literal)*) => {
                match shape.len() {
                    $($rank => self.gradients.register(id, Tensor::<$rank>::from_data(data, self.device)),)*
                    rank => unreachable!("a parameter of {rank} dimensions"),
                }
            };
        }
        of_rank!(1 2 3 4 5 6);
    }
}

/// Puts values in the place of parameters.
struct Replace<'a> {
    values: HashMap<ParamId, Vec<f32>>,
    device: &'a Device,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(values) = self.values.remove(&param.id) else { return param };
        let (id, tensor, mapper) = param.consume();
        let data = TensorData::new(values, tensor.dims());
        let value = Tensor::from_inner(Tensor::from_data(data, self.device));
        let value = if tensor.is_require_grad() { value.require_grad() } else { value };
        Param::from_mapped_value(id, value, mapper)
    }
}

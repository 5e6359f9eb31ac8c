//! A step's way between replicas: gradients to the owners of their slices, updated values back.

use super::messages::{Words, gather, gather_numbers};
use super::optimizer::Optimizer;
use super::replicas::Replicas;
use super::settings::Exchange;
use super::slices::{Part, Slices};
use super::tree_sum::{Node, TreeSum};
use crate::Result;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
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
        let read = |Node { level, place, value }| {
            let mut read = Read { gradients: value, slices: self.slices, values: HashMap::new() };
            model.visit(&mut read);
            Node { level, place, value: read.values }
        };
        let mut nodes: Vec<Node<HashMap<ParamId, Vec<f32>>>> = sum.nodes().into_iter().map(read).collect();
        let rank = self.replicas.rank();
        let lengths: Vec<usize> = self.slices.of(rank).map(|(_, range)| range.len()).collect();
        let mut own: Vec<Option<Vec<f32>>> = vec![None; lengths.len()];
        for bucket in self.slices.buckets() {
            let message = |parts: &Vec<Part<'_>>| {
                let mut message = vec![nodes.len() as u32];
                for Node { level, place, value } in &nodes {
                    message.extend([*level, *place as u32]);
                    for Part { parameter, range, .. } in parts {
                        let values = value.get(&parameter.id).map(|values| &values[range.clone()]);
                        put_gradients(&mut message, values, self.exchange);
                    }
                }
                message
            };
            let messages = bucket.parts.iter().map(message).collect();
            for parameter in &bucket.ends {
                nodes.iter_mut().for_each(|node| drop(node.value.remove(&parameter.id)));
            }
            let parts = &bucket.parts[rank];
            let total = self.total(self.replicas.exchange(messages)?, parts)?;
            for (Part { piece, begin, .. }, values) in parts.iter().zip(total) {
                if let Some(values) = values {
                    let own = own[*piece].get_or_insert_with(|| vec![0.0; lengths[*piece]]);
                    own[*begin..*begin + values.len()].copy_from_slice(&values);
                }
            }
        }
        Ok(SliceGradients(own))
    }

    /// The sum of what all replicas have sent for these parts of this one's pieces.
    fn total(&self, messages: Vec<Vec<u32>>, parts: &[Part<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        let added = |left, right| added(left, right, self.exchange);
        let mut total = TreeSum::default();
        for (rank, message) in messages.into_iter().enumerate() {
            let mut words = Words::new(&message, rank);
            for _ in 0..words.one()? {
                let (level, place) = (words.one()?, u64::from(words.one()?));
                let value =
                    parts.iter().map(|part| take_gradients(&mut words, part.range.len(), self.exchange));
                total.push(Node { level, place, value: value.collect::<Result<_>>()? }, added);
            }
        }
        Ok(total.total(added).unwrap_or_else(|| vec![None; parts.len()]))
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
        self.wholes(own, |message| gather(self.replicas, message), pass_on)
    }

    /// Puts the pieces of all replicas together, and passes on each whole parameter. `exchanged` returns the messages of all
    /// replicas, or none on a replica that is told nothing.
    fn wholes(
        &self,
        own: Vec<Option<Vec<f32>>>,
        exchanged: impl Fn(Vec<u32>) -> Result<Vec<Vec<u32>>>,
        mut pass_on: impl FnMut(ParamId, &[usize], Vec<f32>),
    ) -> Result<()> {
        let mut wholes: HashMap<ParamId, Vec<f32>> = HashMap::new();
        for bucket in self.slices.buckets() {
            let mut message = Vec::new();
            for Part { piece, begin, range, .. } in &bucket.parts[self.replicas.rank()] {
                put(&mut message, own[*piece].as_ref().map(|values| &values[*begin..*begin + range.len()]));
            }
            for (rank, message) in exchanged(message)?.iter().enumerate() {
                let mut words = Words::new(message, rank);
                for Part { parameter, range, .. } in &bucket.parts[rank] {
                    if let Some(values) = take(&mut words, range.len())? {
                        let whole =
                            wholes.entry(parameter.id).or_insert_with(|| vec![0.0; parameter.n_elements()]);
                        whole[range.clone()].copy_from_slice(&values);
                    }
                }
            }
            for parameter in bucket.ends {
                if let Some(whole) = wholes.remove(&parameter.id) {
                    pass_on(parameter.id, &parameter.shape, whole);
                }
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
        let pieces = self.slices.of(self.replicas.rank());
        let own = pieces.map(|(parameter, _)| own(parameter.id).map(values_of)).collect();
        let to_first = |message| {
            let mut messages = vec![Vec::new(); self.slices.size()];
            messages[0] = message;
            let told = self.replicas.exchange(messages)?;
            Ok(if self.replicas.rank() == 0 { told } else { Vec::new() })
        };
        let mut wholes = HashMap::new();
        self.wholes(own, to_first, |id, _, whole| drop(wholes.insert(id, whole)))?;
        Ok(wholes)
    }
}

fn values_of<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert_dtype(DType::F32).try_into_vec().expect("just converted")
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

/// Reads the gradients of all trained parameters from the device.
struct Read<'a> {
    gradients: GradientsParams,
    slices: &'a Slices,
    values: HashMap<ParamId, Vec<f32>>,
}

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.slices.contains(param.id) {
            return;
        }
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.values.insert(param.id, values_of(gradient));
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

#[cfg(test)]
mod tests {
    use super::super::slices::Cut;
    use super::*;
    use cloze_model::ParamInit;
    use cloze_model::bert::{BertConfig, BertForPreTraining};
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    /// Where replicas in threads leave messages: from each, to each.
    #[derive(Debug)]
    struct Board {
        messages: Mutex<Vec<Vec<Vec<u32>>>>,
        all_are_here: Barrier,
    }

    /// A replica in a thread.
    #[derive(Debug)]
    struct Thread<'a> {
        rank: usize,
        board: &'a Board,
    }

    impl Replicas for Thread<'_> {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.board.messages.lock().unwrap().len()
        }

        fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
            self.board.messages.lock().unwrap()[self.rank] = messages;
            self.board.all_are_here.wait();
            let told =
                self.board.messages.lock().unwrap().iter().map(|from| from[self.rank].clone()).collect();
            self.board.all_are_here.wait();
            Ok(told)
        }
    }

    /// What each of so many replicas returns.
    fn by_all<T: Send>(size: usize, work: impl Fn(&Thread<'_>) -> T + Sync) -> Vec<T> {
        let board = Board { messages: Mutex::new(vec![Vec::new(); size]), all_are_here: Barrier::new(size) };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..size)
                .map(|rank| {
                    let (work, board) = (&work, &board);
                    scope.spawn(move || work(&Thread { rank, board }))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn model() -> BertForPreTraining {
        BertConfig::new(50, 1, 16).init(&mut ParamInit::new(&Device::flex(), 3))
    }

    /// Numbers of a micro-batch for all parameters but one, whose sums depend on their order.
    struct Numbers {
        part: u64,
        left_out: ParamId,
        gradients: GradientsParams,
    }

    impl ModuleVisitor for Numbers {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.id != self.left_out {
                let n = param.val().shape().num_elements();
                let values: Vec<f32> =
                    (0..n).map(|at| ((self.part * 7 + at as u64) as f32).sin() * 1e3).collect();
                let data = TensorData::new(values, param.val().dims());
                self.gradients.register(param.id, Tensor::<D>::from_data(data, &Device::flex()));
            }
        }
    }

    fn ids(model: &BertForPreTraining) -> Vec<ParamId> {
        super::super::optimizer::paths(model).into_iter().map(|(_, id, _)| id).collect()
    }

    /// The sum of the micro-batches in a range, as one replica has it.
    fn sum(model: &BertForPreTraining, parts: Range<u64>) -> TreeSum<GradientsParams> {
        let mut sum = TreeSum::default();
        for part in parts {
            let left_out = ids(model)[1];
            let mut numbers = Numbers { part, left_out, gradients: GradientsParams::new() };
            model.visit(&mut numbers);
            let add = |left, right| super::super::gradients::add_rounded(model, left, right, Exchange::F32);
            sum.push(Node::part(part, numbers.gradients), add);
        }
        sum
    }

    fn values(
        model: &BertForPreTraining,
        gradients: GradientsParams,
        slices: &Slices,
    ) -> HashMap<ParamId, Vec<f32>> {
        let mut read = Read { gradients, slices, values: HashMap::new() };
        model.visit(&mut read);
        read.values
    }

    /// Neither the number of replicas nor the size of buckets changes a bit.
    #[test]
    fn buckets_change_no_sum() {
        let model = model();
        let add = |left, right| super::super::gradients::add_rounded(&model, left, right, Exchange::F32);
        let whole = sum(&model, 0..6).total(add).unwrap();
        let expected = values(&model, whole, &Slices::new(&model, 1, Cut::Anywhere, |_, _| true));
        assert_eq!(expected.len() + 1, ids(&model).len());
        for (size, bucket, cut) in [
            (2, 1_000, Cut::Anywhere),
            (3, 97, Cut::Nowhere),
            (3, 5, Cut::Nowhere),
            (2, 1 << 20, Cut::Anywhere),
        ] {
            let all = by_all(size, |replicas| {
                let slices = Slices::new(&model, size, cut, |_, _| true).with_bucket(bucket);
                let team = Team { replicas, slices: &slices, divides_update: true, exchange: Exchange::F32 };
                let parts = (6 * replicas.rank / size) as u64..(6 * (replicas.rank + 1) / size) as u64;
                let own = team.sum(&model, sum(&model, parts)).unwrap();
                values(&model, team.whole(own, &Device::flex()).unwrap(), &slices)
            });
            for found in all {
                assert!(found == expected, "{size} replicas, buckets of {bucket}");
            }
        }
    }

    #[test]
    fn the_first_replica_gets_whole_tensors() {
        let model = model();
        let all = by_all(3, |replicas| {
            let slices = Slices::new(&model, 3, Cut::Nowhere, |_, _| true).with_bucket(64);
            let team = Team { replicas, slices: &slices, divides_update: true, exchange: Exchange::F32 };
            let owned: HashMap<ParamId, usize> =
                slices.of(replicas.rank).map(|(parameter, range)| (parameter.id, range.len())).collect();
            let own = |id: ParamId| {
                Some(Tensor::from_data(vec![replicas.rank as f32; owned[&id]].as_slice(), &Device::flex()))
            };
            let told: HashMap<ParamId, Vec<f32>> = team.whole_on_first(own).unwrap();
            told.into_iter()
                .map(|(id, values)| {
                    (id, values.len(), values.iter().map(|value| *value as usize).collect::<HashSet<_>>())
                })
                .collect::<Vec<_>>()
        });
        assert!(all[1].is_empty() && all[2].is_empty());
        assert_eq!(all[0].len(), ids(&model).len());
        let owners: HashSet<usize> = all[0].iter().flat_map(|(_, _, owners)| owners.clone()).collect();
        assert_eq!(owners, HashSet::from([0, 1, 2]));
    }
}

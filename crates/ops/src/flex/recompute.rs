//! Gradient checkpointing as one graph operation, whose backward pass has its own graph.

use super::{BLOCK, Input, TAKEN, dense, op, output, seeds, tensor, tracked, values};
use crate::{Precision, with_precision};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Gradients as InnerGradients, Shape, Tensor};
use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::fmt;
use std::marker::PhantomData;

/// A module's parameters detached from their graph: as leaves of a future graph, or untracked.
struct Detached {
    as_leaves: bool,
    /// The leaves' nodes in their original graph, in module-tree order.
    places: Vec<NodeId>,
}

impl Detached {
    fn new(as_leaves: bool) -> Self {
        Self { as_leaves, places: Vec::new() }
    }
}

impl ModuleMapper for Detached {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        let place = tracked(&value).filter(|_| self.as_leaves && value.is_require_grad());
        // Not `detach`: the tensor would still be known to the other graph, which is locked in a backward pass.
        let mut value = Tensor::from_inner(value.inner());
        if let Some(place) = place {
            self.places.push(place.id());
            value = value.require_grad();
        }
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Finds a trained parameter.
#[derive(Default)]
struct FirstLeaf(Option<NodeGuard>);

impl ModuleVisitor for FirstLeaf {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.0.is_none() && param.is_require_grad() {
            self.0 = Input::strided(param.val()).node;
        }
    }
}

/// Moves the leaves' gradients to their original nodes.
struct Return<'a> {
    places: std::vec::IntoIter<NodeId>,
    from: InnerGradients,
    to: &'a mut Gradients,
}

impl ModuleVisitor for Return<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            return;
        }
        let place = self.places.next().expect("every leaf has its place");
        if let Some(gradient) = param.val().grad_remove(&mut self.from) {
            self.to.register::<Flex>(place, gradient.try_into_primitive::<Flex>().expect(TAKEN));
        }
    }
}

/// State for the recomputation.
#[derive(Clone)]
struct Saved<M, F> {
    module: M,
    forward: F,
    x: FlexTensor,
    seeds: Vec<u64>,
    precision: Precision,
    fingerprint: u64,
}

impl<M, F> fmt::Debug for Saved<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saved").field("x", &self.x).finish_non_exhaustive()
    }
}

struct Recompute<M, F, const D: usize>(PhantomData<fn(M, F)>);

impl<M, F, const D: usize> fmt::Debug for Recompute<M, F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recompute")
    }
}

/// The first parent is the input. At most one parameter is a parent, so that the output is tracked even if
/// the input is not: all are leaves, whose gradients nothing waits for.
impl<M, F, const D: usize, const N: usize> Backward<Flex, N> for Recompute<M, F, D>
where
    M: Module + 'static,
    F: Fn(&M, Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
{
    type State = Saved<M, F>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("recompute_backward");
        let gradient = grads.consume::<Flex>(&ops.node);
        let Saved { module, forward, x, seeds, precision, fingerprint: first } = ops.state;
        let mut leaves = Detached::new(true);
        let module = module.map(&mut leaves);
        let below = ops.parents[0].as_ref();
        let x = outside::<D>(x).set_require_grad(below.is_some());
        let y = with_precision(precision, || seeds::again(seeds, || forward(&module, x.clone())));
        assert_eq!(
            fingerprint(&value(y.clone())),
            first,
            "a second computation gave something else than the first: random numbers must be those of `cloze_ops`"
        );
        let mut inner = with_gradient(y, gradient).backward();
        if let (Some(below), Some(gradient)) = (below, x.grad_remove(&mut inner)) {
            grads.register::<Flex>(below.id, gradient.try_into_primitive::<Flex>().expect(TAKEN));
        }
        module.visit(&mut Return { places: leaves.places.into_iter(), from: inner, to: grads });
    }
}

pub(crate) fn recompute<M, const D: usize>(
    module: &M,
    x: Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D>
where
    M: Module + 'static,
{
    let Input { value: x, node } = Input::strided(x);
    let untracked = module.clone().map(&mut Detached::new(false));
    let (y, seeds) = seeds::noting(|| value(forward(&untracked, outside(x.clone()))));
    let fingerprint = fingerprint(&y);
    let module = module.clone();
    let saved = Saved { module, forward, x, seeds, precision: Precision::current(), fingerprint };
    let mut leaf = FirstLeaf::default();
    saved.module.visit(&mut leaf);
    match leaf.0 {
        Some(leaf) => output(Recompute(PhantomData), [node, Some(leaf)], y, || saved),
        None => output(Recompute(PhantomData), [node], y, || saved),
    }
}

/// A tensor with autodiff, outside any graph.
fn outside<const D: usize>(x: FlexTensor) -> Tensor<D> {
    Tensor::from_inner(Tensor::from_primitive::<Flex>(x))
}

fn value<const D: usize>(x: Tensor<D>) -> FlexTensor {
    x.inner().try_into_primitive::<Flex>().expect(TAKEN)
}

/// A fingerprint that distinguishes results of different random numbers.
fn fingerprint(y: &FlexTensor) -> u64 {
    if y.dtype() != DType::F32 {
        return 0;
    }
    let sum = |block: &[f32]| block.iter().map(|y| u64::from(y.to_bits())).sum::<u64>();
    values(&dense(y.clone())).par_chunks(BLOCK).map(sum).sum()
}

/// Passes a given gradient on.
#[derive(Debug)]
struct Given;

impl Backward<Flex, 1> for Given {
    type State = FlexTensor;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        if let [Some(y)] = ops.parents {
            grads.register::<Flex>(y.id, ops.state);
        }
    }
}

/// A tensor whose backward pass starts with this gradient of `y`.
fn with_gradient<const D: usize>(y: Tensor<D>, gradient: FlexTensor) -> Tensor<1> {
    output(Given, [Input::strided(y).node], tensor(vec![0.0], Shape::new([1])), || gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dropout, linear};
    use burn::tensor::{Device, TensorData};

    #[derive(Module, Debug)]
    struct Map {
        weight: Param<Tensor<2>>,
        bias: Param<Tensor<1>>,
    }

    type Form = fn(&Map, Tensor<2>) -> Tensor<2>;

    fn forward(map: &Map, x: Tensor<2>) -> Tensor<2> {
        dropout(linear(x, map.weight.val(), Some(map.bias.val())), 0.3).tanh()
    }

    fn recomputed(map: &Map, x: Tensor<2>) -> Tensor<2> {
        recompute(map, x, forward)
    }

    fn twice_recomputed(map: &Map, x: Tensor<2>) -> Tensor<2> {
        recompute(map, x, recomputed)
    }

    fn leaf<const D: usize>(shape: [usize; D], phase: f32) -> Tensor<D> {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
        Tensor::<1>::from_data(values.as_slice(), &Device::flex().autodiff()).reshape(shape)
    }

    /// Output and gradients of one map applied three times.
    fn results(form: Form, x_is_tracked: bool, weight_is_trained: bool) -> Vec<Option<TensorData>> {
        Device::flex().seed(4);
        let map = Map {
            weight: Param::from_tensor(leaf([7, 7], 2.0)).set_require_grad(weight_is_trained),
            bias: Param::from_tensor(leaf([7], 3.0)),
        };
        let x = leaf([5, 7], 0.1).set_require_grad(x_is_tracked);
        let y = (0..3).fold(x.clone(), |x, _| form(&map, x));
        let mut gradients = (y.clone() * leaf([5, 7], 4.0)).sum().backward();
        let [x, weight] = [x, map.weight.val()].map(|leaf| leaf.grad_remove(&mut gradients));
        let bias = map.bias.val().grad_remove(&mut gradients);
        vec![
            Some(y.into_data()),
            x.map(Tensor::into_data),
            weight.map(Tensor::into_data),
            bias.map(Tensor::into_data),
        ]
    }

    #[test]
    fn gradients_are_the_same_bits_whatever_is_tracked() {
        for (x, weight) in [(true, true), (false, true), (true, false), (false, false)] {
            let kept = results(forward, x, weight);
            assert_eq!(kept.iter().map(Option::is_some).collect::<Vec<_>>(), [true, x, weight, true]);
            assert_eq!(results(recomputed, x, weight), kept);
            assert_eq!(results(twice_recomputed, x, weight), kept, "recomputed in a recomputation");
        }
    }

    #[test]
    fn nothing_is_kept_of_what_is_frozen() {
        let map =
            Map { weight: Param::from_tensor(leaf([7, 7], 2.0)), bias: Param::from_tensor(leaf([7], 3.0)) };
        let map = map.no_grad();
        let y = recomputed(&map, leaf([5, 7], 0.1));
        let shift = leaf([7], 1.0).require_grad();
        let mut gradients = (y + shift.clone().unsqueeze()).sum().backward();
        assert!(shift.grad_remove(&mut gradients).is_some());
        assert!(map.weight.val().grad_remove(&mut gradients).is_none());
    }

    #[test]
    #[should_panic(expected = "activations are recomputed where operations are fused, not on")]
    fn a_device_that_cannot_is_refused() {
        let device = Device::flex().autodiff().gradient_checkpointing();
        let weight = Param::from_tensor(Tensor::zeros([7, 7], &device));
        let map = Map { weight, bias: Param::from_tensor(Tensor::zeros([7], &device)) };
        crate::recompute(&map, Tensor::zeros([5, 7], &device), forward);
    }
}

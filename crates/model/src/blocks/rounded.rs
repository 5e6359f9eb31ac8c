//! Linear maps whose inputs are rounded as a quantised model rounds them, while it is trained for that.

use crate::ops::scoped;
use burn::module::{Param, ParamId};
use burn::tensor::Tensor;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The steps of an input.
const STEPS: f64 = 255.0;

/// The maps whose inputs are rounded, by the ids of their weights.
#[derive(Debug)]
pub struct RoundedInputs {
    maps: HashSet<ParamId>,
    seen: Option<RefCell<HashMap<ParamId, [f32; 2]>>>,
}

impl RoundedInputs {
    /// The inputs of these maps.
    pub fn new(maps: HashSet<ParamId>) -> Self {
        Self { maps, seen: None }
    }

    /// The same, noting the [ranges](Self::ranges) of inputs.
    pub fn noting_ranges(self) -> Self {
        Self { seen: Some(RefCell::default()), ..self }
    }

    /// The least and the greatest input so far of each map that has had one, and 0.
    pub fn ranges(&self) -> HashMap<ParamId, [f32; 2]> {
        self.seen.as_ref().map(|seen| seen.borrow().clone()).unwrap_or_default()
    }

    fn note<const D: usize>(&self, weight: ParamId, x: &Tensor<D>) {
        let Some(seen) = &self.seen else { return };
        let x = x.clone().detach();
        let [least, most] = [x.clone().min(), x.max()].map(|x| x.into_scalar::<f32>());
        let mut seen = seen.borrow_mut();
        let range = seen.entry(weight).or_insert([0.0; 2]);
        *range = [range[0].min(least), range[1].max(most)];
    }
}

thread_local! {
    static INPUTS: RefCell<Option<Rc<RoundedInputs>>> = const { RefCell::new(None) };
}

/// Runs `run`; meanwhile on this thread every [`Linear`](super::Linear) whose weight is among the maps rounds its inputs to 256
/// steps, as 8-bit inference does. The gradient passes straight through the rounding (Bengio et al. 2013, "Estimating or
/// Propagating Gradients Through Stochastic Neurons").
///
/// The steps of a token are between its least and its greatest number, both on their side of 0. Those of a map with an
/// [`input_range`](super::Linear::input_range) are between the range's ends, for all tokens: what is beyond them passes no
/// gradient to the input but one to the end, and what is between them gives the step's width the gradient of its rounding
/// error, all of it times `1 / √(255·n)` for `n` numbers (Esser et al. 2020, "Learned Step Size Quantization", eq. 3 and §2.2;
/// Bhalgat et al. 2020, "LSQ+", for two ends).
pub fn with_rounded_inputs<R>(inputs: Rc<RoundedInputs>, run: impl FnOnce() -> R) -> R {
    scoped(&INPUTS, Some(inputs), run).0
}

/// Whether the inputs of the map with this weight are rounded on this thread.
pub(super) fn is_rounded(weight: ParamId) -> bool {
    INPUTS.with_borrow(|inputs| inputs.as_ref().is_some_and(|inputs| inputs.maps.contains(&weight)))
}

/// A map's input, rounded if the map's inputs are.
pub(super) fn rounded<const D: usize>(
    weight: ParamId,
    range: Option<&Param<Tensor<1>>>,
    x: Tensor<D>,
) -> Tensor<D> {
    if !is_rounded(weight) {
        return x;
    }
    if let Some(inputs) = INPUTS.with_borrow(Clone::clone) {
        inputs.note(weight, &x);
    }
    match range {
        Some(range) => within(range.val(), x),
        None => by_token(x),
    }
}

fn by_token<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let exact = x.clone().detach();
    let least = exact.clone().min_dim(D - 1).clamp_max(0.0);
    let most = exact.clone().max_dim(D - 1).clamp_min(0.0);
    // A token of zeros has no range.
    let scale = ((most - least.clone()) / STEPS).clamp_min(f32::MIN_POSITIVE);
    let zero = (least.neg() / scale.clone()).round();
    let steps = (exact.clone() / scale.clone()).round() + zero.clone();
    let rounded = (steps.clamp(0.0, STEPS) - zero) * scale;
    x + (rounded - exact)
}

/// All tokens between the ends of a range, `[2]`.
fn within<const D: usize>(range: Tensor<1>, x: Tensor<D>) -> Tensor<D> {
    let n = x.dims().iter().product::<usize>();
    let share = 1.0 / (STEPS * n.max(1) as f64).sqrt();
    let range = range.clone() * share + range.detach() * (1.0 - share);
    let end = |i: usize| range.clone().narrow(0, i, 1);
    let (least, most) = (end(0).clamp_max(0.0), end(1).clamp_min(0.0));
    let scale = ((most - least.clone()) / STEPS).clamp_min(f32::MIN_POSITIVE);
    // 0 is a step of its own.
    let zero = straight(least.neg() / scale.clone());
    let (scale, zero) = (scale.reshape([1; D]), zero.reshape([1; D]));
    let steps = straight((x / scale.clone() + zero.clone()).clamp(0.0, STEPS));
    (steps - zero) * scale
}

/// Rounded, with the gradient of the exact number.
fn straight<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let exact = x.clone().detach();
    x + (exact.clone().round() - exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::blocks::Linear;
    use crate::ops::TokenRange;
    use burn::tensor::{Device, Tolerance};

    const X: [[f32; 3]; 3] = [[0.37, -0.2, 1.1], [0.0, 0.0, 0.0], [2.0, 0.71, 0.3]];

    fn inputs_of(map: &Linear) -> Rc<RoundedInputs> {
        Rc::new(RoundedInputs::new(HashSet::from([map.weight.id])).noting_ranges())
    }

    /// As inference rounds it.
    fn rounded(x: f32, range: TokenRange) -> f32 {
        match range.scale {
            0.0 => 0.0,
            scale => {
                ((x / scale).round() + f32::from(range.zero)).clamp(0.0, 255.0) * scale
                    - f32::from(range.zero) * scale
            }
        }
    }

    /// The product is that of the integers that inference has, and its gradient that of the exact product.
    #[test]
    fn inputs_are_rounded_and_gradients_are_not() {
        let device = Device::flex().autodiff();
        let init = &mut ParamInit::new(&device, 1);
        let (map, other) = (Linear::without_bias(3, 2, init), Linear::without_bias(3, 2, init));
        let input = Tensor::<2>::from_data(X, &device).require_grad();
        let (found, exact) = with_rounded_inputs(inputs_of(&map), || {
            (map.forward(input.clone()), other.forward(input.clone()))
        });
        let expected = X.map(|row| {
            let range = TokenRange::of(
                row.iter().copied().fold(f32::INFINITY, f32::min),
                row.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            );
            row.map(|x| rounded(x, range))
        });
        let expected = map.forward(Tensor::from_data(expected, &device));
        let far = (found.clone() - expected).abs().max().into_scalar::<f32>();
        assert!(far < 1e-6, "{far}");
        let changed = (found.clone() - map.forward(input.clone())).abs().max().into_scalar::<f32>();
        assert!(changed > 1e-5, "{changed}");
        assert_eq!(exact.into_data(), other.forward(input.clone()).into_data());
        let straight = input.grad(&found.sum().backward()).unwrap().into_data();
        let plain = input.grad(&map.forward(input.clone()).sum().backward()).unwrap().into_data();
        assert_eq!(straight, plain);
    }

    /// One range for all tokens: inference's numbers, and the gradients of the ends.
    #[test]
    fn a_range_is_that_of_inference_and_learns() {
        let device = Device::flex().autodiff();
        let init = &mut ParamInit::new(&device, 1);
        let mut map = Linear::without_bias(3, 1, init);
        let ends = [-0.13_f32, 1.07];
        let param = Param::from_tensor(Tensor::<1>::from_data(ends, &device).require_grad());
        map.input_range = Some(param);
        let input = Tensor::<2>::from_data(X, &device).require_grad();
        let inputs = inputs_of(&map);
        let found = with_rounded_inputs(inputs.clone(), || map.forward(input.clone()));
        let range = TokenRange::of(ends[0], ends[1]);
        let x = X.map(|row| row.map(|x| rounded(x, range)));
        let expected = map.forward(Tensor::<2>::from_data(x, &device)).into_data();
        found.clone().into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        assert_eq!(inputs.ranges(), HashMap::from([(map.weight.id, [-0.2, 2.0])]));

        let gradients = found.sum().backward();
        let weight: Vec<f32> = map.weight.val().inner().into_data().iter().collect();
        let of_input = input.grad(&gradients).unwrap().into_data();
        let of_ends: Vec<f32> =
            map.input_range.as_ref().unwrap().val().grad(&gradients).unwrap().into_data().iter().collect();
        // x̂ = s·(q − z): s = (most − least) / 255, z = −least / s.
        let (scale, zero) = (f64::from(range.scale), f64::from(range.zero));
        let (mut expected_input, mut least, mut most) = (Vec::new(), 0.0, 0.0);
        for (x, w) in X.iter().flatten().zip(weight.iter().cycle()) {
            let (exact, w) = (f64::from(*x) / scale + zero, f64::from(*w));
            let is_inside = (0.0..=255.0).contains(&exact);
            expected_input.push(if is_inside { w as f32 } else { 0.0 });
            let q = exact.clamp(0.0, 255.0).round();
            // By the rule of products, with the zero as the exact quotient in gradients.
            let of_scale = (q - zero) - if is_inside { f64::from(*x) / scale } else { 0.0 };
            let of_zero = if is_inside { 0.0 } else { -scale };
            let (least_now, s) = (f64::from(ends[0]), f64::from(ends[1] - ends[0]) / 255.0);
            let zero_by_scale = least_now / (s * s);
            let by_scale = of_scale + of_zero * zero_by_scale;
            least += w * (by_scale * (-1.0 / 255.0) + of_zero * (-1.0 / s));
            most += w * by_scale / 255.0;
        }
        let expected: Tensor<2> = Tensor::<1>::from_data(&expected_input[..], &device).reshape([3, 3]);
        of_input.assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
        let share = 1.0 / (255.0_f64 * 9.0).sqrt();
        assert!((f64::from(of_ends[0]) - least * share).abs() < 1e-5, "{of_ends:?}, {least}");
        assert!((f64::from(of_ends[1]) - most * share).abs() < 1e-5, "{of_ends:?}, {most}");
        assert!(most.abs() > 1e-3 && least.abs() > 1e-4, "{least} {most}");
    }
}

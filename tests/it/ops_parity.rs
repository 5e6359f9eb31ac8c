//! The operations against PyTorch's, results and gradients: `tests/fixtures/ops/export.py`. Fused and
//! composed alike.

use crate::golden::{Golden, fixture, relative_error};
use burn::tensor::{Bool, Device, Gradients, Tensor};
use cloze_model::ops::{self, AttentionMask, CrossEntropy, Residual};

/// Relative to the largest value of a tensor.
const TOLERANCE: f32 = 2e-5;

/// The inputs of a case and what PyTorch made of them.
struct Case<'a> {
    golden: &'a Golden,
    name: String,
    device: &'a Device,
}

impl Case<'_> {
    fn leaf<const D: usize>(&self, name: &str) -> Tensor<D> {
        self.golden.float(&format!("{}.{name}", self.name), self.device).require_grad()
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    fn assert_close<const D: usize>(&self, what: &str, actual: Tensor<D>) {
        let expected = self.golden.data(&self.key(what));
        let error = relative_error(&actual.into_data(), &expected);
        assert!(error <= TOLERANCE, "{}: {error}", self.key(what));
    }

    /// Compares the output and, after the weighted sum's backward pass, the leaves' gradients.
    fn check<const D: usize>(&self, y: Tensor<D>, leaves: &[Leaf]) {
        let weights = self.golden.float::<D>(&self.key("weights"), self.device);
        self.assert_close("y", y.clone());
        let gradients = (y * weights).sum().backward();
        leaves.iter().for_each(|compare| compare(self, &gradients));
    }
}

/// Compares a leaf's gradient.
type Leaf = Box<dyn Fn(&Case, &Gradients)>;

fn leaf<const D: usize>(name: &'static str, leaf: Tensor<D>) -> Leaf {
    Box::new(move |case, gradients| case.assert_close(&format!("d_{name}"), leaf.grad(gradients).unwrap()))
}

/// Runs `check` on all cases of an operation, fused and composed; there must be `count`.
fn cases(operation: &str, count: usize, check: impl Fn(&Case)) {
    let golden = Golden::open(&fixture("ops"));
    let fused = Device::flex().autodiff();
    // Where activations are computed again, operations are composed.
    let composed = fused.clone().gradient_checkpointing();
    for number in 0..count {
        for device in [&fused, &composed] {
            check(&Case { golden: &golden, name: format!("{operation}.{number}"), device });
        }
    }
    assert!(!golden.has(&format!("{operation}.{count}.y")), "a case is left out");
}

#[test]
fn linear() {
    cases("linear", 4, |case| {
        let (x, weight, bias) = (case.leaf::<3>("x"), case.leaf::<2>("weight"), case.leaf::<1>("bias"));
        let y = ops::linear(x.clone(), weight.clone(), Some(bias.clone()));
        case.check(y, &[leaf("x", x), leaf("weight", weight), leaf("bias", bias)]);
    });
}

#[test]
fn attention() {
    cases("attention", 6, |case| {
        let [query, key, value] = ["query", "key", "value"].map(|name| case.leaf::<4>(name));
        let flag = |name: &str| case.golden.data(&case.key(name));
        let pad_mask = Tensor::<2, Bool>::from_data(flag("pad_mask"), case.device);
        let mut mask = AttentionMask::default().with_pad_mask(pad_mask);
        mask.causal = flag("causal").iter::<bool>().next().unwrap();
        let y = ops::attention(query.clone(), key.clone(), value.clone(), &mask, 0.0);
        let (with_weights, _) =
            ops::attention_with_weights(query.clone(), key.clone(), value.clone(), &mask, 0.0);
        case.assert_close("y", with_weights);
        case.check(y, &[leaf("query", query), leaf("key", key), leaf("value", value)]);
    });
}

#[test]
fn layer_norm() {
    cases("layer_norm", 4, |case| {
        let (x, gamma, beta) = (case.leaf::<3>("x"), case.leaf::<1>("gamma"), case.leaf::<1>("beta"));
        let y = ops::layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5);
        case.check(y, &[leaf("x", x), leaf("gamma", gamma), leaf("beta", beta)]);
    });
    cases("add_layer_norm", 4, |case| {
        let [x, residual] = ["x", "residual"].map(|name| case.leaf::<3>(name));
        let (gamma, beta) = (case.leaf::<1>("gamma"), case.leaf::<1>("beta"));
        let residual_of = Residual { input: residual.clone(), dropout: 0.0 };
        let y = ops::add_layer_norm(x.clone(), residual_of, gamma.clone(), beta.clone(), 1e-5);
        case.check(y, &[leaf("x", x), leaf("residual", residual), leaf("gamma", gamma), leaf("beta", beta)]);
    });
}

#[test]
fn gelu() {
    for (operation, form) in
        [("gelu", ops::gelu as fn(Tensor<1>) -> Tensor<1>), ("gelu_tanh", ops::gelu_tanh)]
    {
        cases(operation, 1, |case| {
            let x = case.leaf::<1>("x");
            case.check(form(x.clone()), &[leaf("x", x)]);
        });
    }
}

#[test]
fn cross_entropy() {
    cases("cross_entropy", 4, |case| {
        let logits = case.leaf::<2>("logits");
        let labels = case.golden.int::<1>(&case.key("labels"), case.device);
        let smoothing = case.golden.data(&case.key("smoothing")).iter::<f64>().next().unwrap();
        let loss =
            CrossEntropy { label_smoothing: smoothing, ignored_label: Some(-100), ..CrossEntropy::default() };
        let y = loss.forward(logits.clone(), labels);
        case.check(y, &[leaf("logits", logits)]);
    });
}

#[test]
fn embedding() {
    cases("embedding", 3, |case| {
        let weight = case.leaf::<2>("weight");
        let ids = case.golden.int::<2>(&case.key("ids"), case.device);
        let y = ops::embedding(weight.clone(), ids);
        case.check(y, &[leaf("weight", weight)]);
    });
}

//! Recurrent layers against torch.nn.LSTM and torch.nn.GRU, states and gradients:
//! `tests/fixtures/recurrent/export.py`. Fused and composed alike.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use cloze_model::ParamInit;
use cloze_model::ops::Packing;
use cloze_model::recurrent::{Cell, Reading, Recurrent, RecurrentConfig, RecurrentState};

/// Relative to the largest value of a tensor.
const TOLERANCE: f32 = 2e-5;

/// Puts golden parameters into a model by their paths.
struct Put<'a> {
    golden: &'a Golden,
    path: Vec<String>,
}

impl ModuleMapper for Put<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        param.map(|x| self.golden.float::<D>(&path, &x.device()).require_grad())
    }
}

/// `[layers · directions, sequences, d]` as this project has it: directions side by side.
fn by_layer(x: Tensor<3>, directions: usize) -> Vec<Tensor<2>> {
    let [n, _, _] = x.dims();
    let one = |i: usize| x.clone().narrow(0, i, 1).squeeze_dim::<2>(0);
    let layer = |layer: usize| Tensor::cat((0..directions).map(|d| one(layer * directions + d)).collect(), 1);
    (0..n / directions).map(layer).collect()
}

fn check(name: &str, config: &RecurrentConfig, device: &Device) {
    let golden = Golden::open(&fixture("recurrent"));
    let key = |what: &str| format!("{name}.{what}");
    let close = |what: &str, actual: burn::tensor::TensorData| {
        let error = relative_error(&actual, &golden.data(what));
        assert!(error <= TOLERANCE, "{what}: {error}");
    };
    let stack: Recurrent = config.init(&mut ParamInit::new(device, 1));
    let stack = stack.map(&mut Put { golden: &golden, path: vec![name.to_string()] });
    let lengths: Vec<usize> = golden.data("lengths").iter::<i64>().map(|len| len as usize).collect();
    let directions = config.reading.directions();
    let x = golden.float::<2>(&key("x"), device).require_grad();
    let h = golden.float::<3>(&key("h"), device).require_grad();
    let c = (config.cell == Cell::Lstm).then(|| golden.float::<3>(&key("c"), device).require_grad());
    let mut cells = c.clone().map(|c| by_layer(c, directions).into_iter());
    let initial = by_layer(h.clone(), directions).into_iter();
    let initial = initial
        .map(|hidden| RecurrentState { hidden, cell: cells.as_mut().map(|cells| cells.next().unwrap()) });
    let output = stack.forward(x.clone(), &Packing::new(lengths), Some(initial.collect()));
    close(&key("states"), output.states.to_data());
    let weight = |what: &str| by_layer(golden.float::<3>(&key(what), device), directions);
    let mut loss = (output.states * golden.float::<2>(&key("weights"), device)).sum();
    let last_h = by_layer(golden.float::<3>(&key("last_h"), device), directions);
    for ((last, weights), expected) in output.last.iter().zip(weight("weights_h")).zip(last_h) {
        let error = relative_error(&last.hidden.to_data(), &expected.into_data());
        assert!(error <= TOLERANCE, "{name}, last states: {error}");
        loss = loss + (last.hidden.clone() * weights).sum();
    }
    if c.is_some() {
        let last_c = by_layer(golden.float::<3>(&key("last_c"), device), directions);
        for ((last, weights), expected) in output.last.iter().zip(weight("weights_c")).zip(last_c) {
            let cell = last.cell.clone().unwrap();
            let error = relative_error(&cell.to_data(), &expected.into_data());
            assert!(error <= TOLERANCE, "{name}, last cells: {error}");
            loss = loss + (cell * weights).sum();
        }
    }
    let grads = loss.backward();
    close(&key("d_x"), x.grad(&grads).unwrap().into_data());
    close(&key("d_h"), h.grad(&grads).unwrap().into_data());
    if let Some(c) = c {
        close(&key("d_c"), c.grad(&grads).unwrap().into_data());
    }
    let gradients = gradients_of(&stack, GradientsParams::from_grads(grads, &stack));
    let per_direction = if config.cell == Cell::Gru { 4 } else { 3 };
    assert_eq!(gradients.len(), config.n_layers * directions * per_direction);
    for (path, gradient) in gradients {
        close(&format!("d_{name}.{path}"), gradient);
    }
}

#[test]
fn layers_are_those_of_pytorch() {
    let fused = Device::flex().autodiff();
    let composed = fused.clone().gradient_checkpointing();
    for device in [&fused, &composed] {
        for (name, cell) in [("lstm", Cell::Lstm), ("gru", Cell::Gru)] {
            let one = RecurrentConfig::new(cell, 5, 7);
            check(name, &one, device);
            let both = one.with_layers(2).with_reading(Reading::Both);
            check(&format!("{name}_both"), &both, device);
        }
    }
}

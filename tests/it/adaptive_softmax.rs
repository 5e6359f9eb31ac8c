//! The adaptive softmax against PyTorch's `AdaptiveLogSoftmaxWithLoss`, with gradients, fused and composed:
//! `tests/fixtures/adaptive_softmax/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::blocks::AdaptiveSoftmaxConfig;
use cloze_model::{ParamInit, weights};

/// Relative to the largest value of a tensor.
const TOLERANCE: f32 = 1e-5;

fn check(device: &Device) {
    let golden = Golden::open(&fixture("adaptive_softmax"));
    for (name, cutoffs, divisor) in [("a", vec![5, 20], 4.0), ("b", vec![12, 20, 35], 2.0)] {
        let key = |what: &str| format!("{name}.{what}");
        let close = |what: &str, actual: &TensorData| {
            let expected = golden.data(&key(what));
            if expected.iter::<f32>().all(|value| value == 0.0) {
                assert!(actual.iter::<f32>().all(|value| value == 0.0), "{name}.{what}");
                return;
            }
            let error = relative_error(actual, &expected);
            assert!(error <= TOLERANCE, "{name}.{what}: {error}");
        };
        let output = AdaptiveSoftmaxConfig::new(cutoffs).with_divisor(divisor);
        let output = output.init(50, 32, &mut ParamInit::new(device, 1));
        let paths = weights::shapes(&output).into_iter().map(|(path, _)| path);
        let output = weights::replace(
            output.clone(),
            paths.map(|path| (path.clone(), golden.data(&key(&path)))).collect(),
        );
        let states = Tensor::<2>::from_data(golden.data(&key("states")), device).require_grad();
        let next: Vec<i32> = golden.data(&key("next")).iter::<i64>().map(|id| id as i32).collect();
        close("log_probs", &output.log_probs(states.clone()).to_data());
        let losses = output.losses(states.clone(), &next);
        close("losses", &losses.to_data());
        let factors: Vec<f32> = (0..next.len()).map(|i| 1.0 + i as f32 / 8.0).collect();
        let loss = (losses * Tensor::<1>::from_data(factors.as_slice(), device)).sum();
        let gradients = loss.backward();
        close("d_states", &states.grad(&gradients).unwrap().into_data());
        let gradients = gradients_of(&output, GradientsParams::from_grads(gradients, &output));
        assert_eq!(gradients.len(), weights::shapes(&output).len());
        for (path, gradient) in gradients {
            close(&format!("d_{path}"), &gradient);
        }
    }
}

#[test]
fn an_adaptive_output_is_that_of_pytorch() {
    let fused = Device::flex().autodiff();
    check(&fused);
    check(&fused.gradient_checkpointing());
}

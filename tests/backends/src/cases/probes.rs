//! Probes of an encoder's states.

use crate::Values;
use crate::values::{classified, trained};
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::blocks::ScalarMixConfig;
use cloze_model::probes::{ClassProbe, MixedProbe, StructuralProbe};

const WIDTH: usize = 6;

/// States between −1 and 1, `[rows, features]`.
fn states(rows: usize, features: usize, device: &Device) -> Tensor<2> {
    let values = (0..rows * features).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<f32>>();
    Tensor::from_data(TensorData::new(values, [rows, features]), device)
}

pub fn class(device: &Device) -> Values {
    classified(
        device,
        |init| ClassProbe::new(WIDTH, Some(5), 3, init),
        |probe, device| probe.forward(states(7, WIDTH, device)),
    )
}

pub fn mixed(device: &Device) -> Values {
    classified(
        device,
        |init| MixedProbe {
            mix: ScalarMixConfig::new(3).init(init),
            probe: ClassProbe::new(WIDTH, None, 4, init),
        },
        |probe, device| probe.forward(states(7, 3 * WIDTH, device)),
    )
}

/// Distances of two sentences' words, and below them depths.
pub fn structural(device: &Device) -> Values {
    trained(
        device,
        |init| StructuralProbe::new(WIDTH, 4, init),
        |probe, device| {
            let states = states(10, WIDTH, device).reshape([2, 5, WIDTH]);
            let distances = probe.distances(states.clone()).reshape([10, 5]);
            Tensor::cat(vec![distances, probe.depths(states)], 0)
        },
        |_, found| (found - 1.0).abs().reshape([60]),
    )
}

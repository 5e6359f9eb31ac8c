//! AWD-LSTM without dropout against the same model of torch.nn.LSTM layers, with its regularisers and gradients, in two
//! stretches of the same streams: `tests/fixtures/awd_lstm/export.py`. Fused and composed alike.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::awd_lstm::{
    AwdLstmConfig, AwdLstmDropout, StreamMemory, StreamedAwdLstm, activation_squares, temporal_squares,
};
use cloze_model::{ParamInit, Sequences, weights};

/// Relative to the largest value of a tensor.
const TOLERANCE: f32 = 2e-5;
/// What the regularisers count.
const WEIGHTS: [f32; 3] = [1.0, 2.0, 1.0];

fn check(device: &Device) {
    let golden = Golden::open(&fixture("awd_lstm"));
    let close = |what: &str, actual: &TensorData| {
        let error = relative_error(actual, &golden.data(what));
        assert!(error <= TOLERANCE, "{what}: {error}");
    };
    let dropout = AwdLstmDropout::none();
    let config =
        AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 3, dropout, ..AwdLstmConfig::new(23) };
    let model = config.init(&mut ParamInit::new(device, 1));
    let parameters = weights::shapes(&model).into_iter().map(|(path, _)| {
        let data = golden.data(&path);
        (path, data)
    });
    let model = weights::replace(model.clone(), parameters.collect());
    let StreamedAwdLstm { model, memory } =
        StreamedAwdLstm { model, memory: StreamMemory::new(&config, 4, device) };
    let mut loss = None;
    for stretch in ["first", "second"] {
        let key = |what: &str| format!("{stretch}.{what}");
        let ids =
            |what: &str| -> Vec<i32> { golden.data(&key(what)).iter::<i64>().map(|id| id as i32).collect() };
        let (tokens, next) = (ids("ids"), ids("next"));
        let sequences: Sequences = tokens.chunks(tokens.len() / 4).collect();
        // Nothing is remembered of the first one, and zeros are read.
        let output = model.forward(&sequences, Some(memory.read(0, 4)), device);
        memory.write(0, &output.last);
        close(&key("states"), &output.states.to_data());
        close(&key("logits"), &model.project(output.dropped.clone()).to_data());
        let (n, d) = (tokens.len() as f32, 6.0);
        let terms = [
            model.losses(output.dropped.clone(), &next).sum() / n,
            activation_squares(output.dropped) / (n * d),
            temporal_squares(output.states, &sequences.packing()) / ((n - 4.0) * d),
        ];
        close(&key("terms"), &Tensor::cat(terms.to_vec(), 0).to_data());
        let weighted = terms.into_iter().zip(WEIGHTS).map(|(term, weight)| term * weight);
        loss = weighted.reduce(|sum, term| sum + term);
    }
    let gradients = GradientsParams::from_grads(loss.unwrap().backward(), &model);
    let gradients = gradients_of(&model, gradients);
    assert_eq!(gradients.len(), 2 + 3 * 3);
    for (path, gradient) in gradients {
        close(&format!("d_{path}"), &gradient);
    }
}

#[test]
fn a_language_model_is_that_of_pytorch() {
    let fused = Device::flex().autodiff();
    check(&fused);
    check(&fused.gradient_checkpointing());
}

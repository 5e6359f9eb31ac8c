use cloze::burn::optim::GradientsParams;
use cloze::burn::tensor::{Tensor, TensorData};
use cloze::device::DeviceName;
use cloze::model::ParamInit;
use cloze::model::bert::{BertConfig, BertInput};
use cloze::model::tasks::{BertForSequenceClassification, SequenceHead};
use cloze::ops::cross_entropy;
use cloze::trainer::engine::optimizer::{Optimizer, OptimizerConfig};

/// Learns whether a text of six tokens has the token 5 in it, on `flex`, `wgpu`, `cuda:0`, `tch`, …
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name: DeviceName = std::env::args().nth(1).as_deref().unwrap_or("auto").parse()?;
    let device = cloze::device::open(name)?.autodiff();

    let config = BertConfig::new(20, 2, 32).with_n_heads(2).with_d_ff(64).with_max_positions(6);
    let init = &mut ParamInit::new(&device, 1);
    let head = SequenceHead::new(config.d_model, 2, 0.0, init);
    let mut model = BertForSequenceClassification::new(config.init_encoder(init), head);
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), &model)?;

    for step in 0..40 {
        // Another batch of 32 texts each time.
        let ids: Vec<i32> = (0..32 * 6).map(|i| 4 + (i * 7 + i * i / 5 + step * 13) % 8).collect();
        let labels: Vec<i32> = ids.chunks(6).map(|text| i32::from(text.contains(&5))).collect();
        let input = BertInput::new(Tensor::from_data(TensorData::new(ids, [32, 6]), &device));
        let logits = model.forward(input);
        let loss = cross_entropy(logits, Tensor::from_data(labels.as_slice(), &device)).mean();
        if step % 10 == 0 {
            println!("step {step}: loss {:.3}", loss.clone().into_scalar::<f32>());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(model, gradients, 2e-3, 1.0);
    }
    Ok(())
}

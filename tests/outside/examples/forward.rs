use cloze::Device;
use cloze::burn::tensor::{Int, Tensor};
use cloze::model::ParamInit;
use cloze::model::bert::{BertConfig, BertInput};
use cloze::tokenizer::Tokenizer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tokenizer = Tokenizer::load("my-tokenizer")?;
    let ids: Vec<i32> = tokenizer.encode_ids("Hello, world", true)?.into_iter().map(|id| id as i32).collect();

    let device = Device::flex();
    let config = BertConfig::tiny(tokenizer.vocab_size());
    let model = config.init(&mut ParamInit::new(&device, 42));
    let input = Tensor::<1, Int>::from_data(ids.as_slice(), &device).unsqueeze();
    let output = model.bert.forward(BertInput::new(input));
    println!("{:?}", output.last_hidden_state.dims());
    Ok(())
}

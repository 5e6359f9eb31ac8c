//! A sentence encoder trained by the other pairs of a batch.

use super::encoders;
use crate::Values;
use crate::values::{gradients, init, trained};
use burn::tensor::{Device, Tensor, TensorData};
use cloze::data::labelled::SentenceExample;
use cloze::evaluation::report::SimilarityKind;
use cloze::tokenizer::Tokenizer;
use cloze::tokenizer::train::WordPieceTrainer;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::SentenceConfig;
use cloze_trainer::engine::gradients_by_rows;
use cloze_trainer::finetune::{
    EmbeddingFeatures, EmbeddingSection, EmbeddingTask, LossSection, SentenceEncoder, Task,
};

/// Pairs, of different lengths.
const PAIRS: [[&str; 2]; 4] = [
    ["a storm at sea", "the sea is rough and the night is dark"],
    ["bread", "a loaf of bread"],
    ["the king and the queen of the land", "a court"],
    ["boats", "the boats in the harbour at night"],
];

/// A task and what it takes of the pairs. Of so many sentences at a time the graph is in memory, or of all.
fn task(chunk: Option<usize>) -> (EmbeddingTask, Vec<EmbeddingFeatures>, BertConfig) {
    let tokenizer: Tokenizer = WordPieceTrainer { vocab_size: 60, ..WordPieceTrainer::default() }
        .train([PAIRS.concat().join("\n").repeat(9)])
        .expect("texts with words");
    // A usual temperature, 0.05, would show twenty times the rounding in gradients that are 0, as those of keys' biases.
    let mut section =
        EmbeddingSection::new(LossSection::InBatchNegatives { temperature: 1.0, symmetric: true });
    (section.chunk, section.normalize) = (chunk, Some(true));
    let loss = section.loss();
    let task = EmbeddingTask::new(section, loss, SentenceConfig::default(), SimilarityKind::Pairs)
        .expect("the pooling is known");
    let example = |[text, pair]: [&str; 2]| SentenceExample {
        text: text.into(),
        pair: Some(pair.into()),
        negatives: Vec::new(),
        score: None,
        class: None,
    };
    let features = task.encode(&tokenizer, PAIRS.map(example).into(), 16).expect("room for tokens").features;
    let mut config = encoders::config();
    config.vocab_size = tokenizer.vocab_size();
    (task, features, config)
}

/// The embeddings of all sentences, `[sentences, width]`.
fn embeddings(
    task: &EmbeddingTask,
    model: &SentenceEncoder,
    batch: &[&EmbeddingFeatures],
    device: &Device,
) -> Tensor<2> {
    let rows: Vec<Vec<f32>> = task.outputs(model, batch, device).concat();
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape), device)
}

/// The loss over the whole batch.
pub fn in_batch(device: &Device) -> Values {
    let (task, features, config) = task(None);
    let batch: Vec<&EmbeddingFeatures> = features.iter().collect();
    trained(
        device,
        |init| SentenceEncoder::from(config.init_encoder(init)),
        |model, device| embeddings(&task, model, &batch, device),
        |model, found| task.loss(task.scores(model, &batch, &found.device()), &batch),
    )
}

/// The same loss and its gradients, three sentences at a time (GradCache).
pub fn in_chunks(device: &Device) -> Values {
    let (task, features, config) = task(Some(3));
    let batch: Vec<&EmbeddingFeatures> = features.iter().collect();
    let device = device.clone().autodiff();
    let model = SentenceEncoder::from(config.init_encoder(&mut init(&device)));
    let by_rows = task.by_rows().expect("there are chunks");
    let (sums, found) = gradients_by_rows(by_rows, &model, &batch[..], &[0.25], 5, &device);
    let mut values = gradients(&model, &found);
    values.insert("loss".into(), sums[0].clone().into_data());
    values
}

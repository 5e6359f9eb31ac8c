//! A custom kind of requests: how surprised a language model is by a text, asked by any number of threads.
//!
//! ```text
//! surprise = − mean_i log P(u_i | u_1, …, u_{i−1})
//! ```
//!
//! A [`Queue`] encodes each text on the thread that asks and computes the texts of all threads together; each answer has
//! the bits that it has alone.

use burn::tensor::{Device, Int, Tensor};
use cloze_model::blocks::pack_weights;
use cloze_model::gpt::Gpt;
use cloze_model::ops;
use cloze_tokenizer::Tokenizer;
use cloze_trainer::requests::{Queue, Respond};
use cloze_trainer::{Result, TrainerError};

/// A language model that is asked how surprised it is.
pub struct Surprise {
    tokenizer: Tokenizer,
    model: Gpt,
    device: Device,
}

impl Surprise {
    /// With weights that are packed, so that a text has the same bits among any others.
    pub fn new(tokenizer: Tokenizer, mut model: Gpt, device: Device) -> Self {
        pack_weights(&mut model);
        Self { tokenizer, model, device }
    }
}

impl Respond for Surprise {
    type Request = String;
    type Unit = Vec<i32>;
    /// The mean over all tokens but the first, in nats.
    type Answer = f64;

    fn encode(&self, text: String) -> Result<Vec<i32>> {
        let ids: Vec<i32> = self.tokenizer.encode_ids(&text, false)?.iter().map(|id| *id as i32).collect();
        // Nothing is predicted of fewer.
        if ids.len() < 2 { Err(TrainerError::EmptyPrompt) } else { Ok(ids) }
    }

    fn cost(&self, ids: &Vec<i32>) -> usize {
        ids.len()
    }

    fn answer(&self, texts: &[&Vec<i32>]) -> Vec<Result<f64>> {
        // All tokens of all texts one after the other.
        let logits = self.model.logits(&texts.iter().map(|ids| &ids[..]).collect(), &self.device);
        let mut start = 0;
        let surprise = |ids: &&Vec<i32>| {
            let predicted = logits.clone().narrow(0, start, ids.len() - 1);
            start += ids.len();
            let next = Tensor::<1, Int>::from_data(&ids[1..], &self.device);
            let losses: Vec<f64> = ops::cross_entropy(predicted, next).into_data().iter().collect();
            Ok(losses.iter().sum::<f64>() / losses.len() as f64)
        };
        texts.iter().map(surprise).collect()
    }
}

/// Asks about each text on a thread of its own.
///
/// # Errors
/// Of each text its own.
pub fn ask_from_threads(queue: &Queue<Surprise>, texts: &[String]) -> Vec<Result<f64>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = texts.iter().map(|text| scope.spawn(|| queue.ask(text.clone()))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a request does not panic its thread"))
            .collect()
    })
}

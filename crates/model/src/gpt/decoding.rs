//! Text generation: prompts are read in one pass, then each step takes one token per row.

use super::Gpt;
use super::model::{flat, with_prefixes};
use crate::Sequences;
use crate::blocks::KeyValueCache;
use crate::generate::{LanguageModel, NextToken, StepOutput};
use crate::ops::AttentionMask;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The keys and values of each row's tokens, in every layer.
#[derive(Debug, Clone)]
pub struct GptState {
    caches: Vec<KeyValueCache>,
}

impl GptState {
    /// The number of tokens in each row.
    pub fn lengths(&self) -> Vec<usize> {
        self.caches.first().map_or_else(Vec::new, KeyValueCache::lengths)
    }
}

impl Gpt {
    /// The states of new tokens after all layers, before the final normalisation.
    fn advance(
        &self,
        ids: Tensor<2, Int>,
        mask: &AttentionMask,
        k_len: usize,
        caches: &mut [KeyValueCache],
    ) -> Tensor<3> {
        let [_, len] = ids.dims();
        let mut x = self.embed(ids, &mask.query_positions(len, k_len));
        for (layer, cache) in self.layers.iter().zip(caches) {
            x = layer.forward(x, mask, Some(cache));
        }
        x
    }
}

impl NextToken for Gpt {
    type State = GptState;

    fn step(&self, tokens: &[i32], state: &mut GptState) -> StepOutput {
        let device = self.tokens.weight.lazy_device();
        let lengths = state.lengths();
        assert_eq!(tokens.len(), lengths.len(), "a token a row");
        let mask = state.caches[0].step_mask();
        let k_len = lengths.iter().map(|len| len + 1).sum();
        let ids = Tensor::from_data(TensorData::new(tokens.to_vec(), [1, tokens.len()]), &device);
        let x = self.advance(ids, &mask, k_len, &mut state.caches).squeeze_dim::<2>(0);
        StepOutput::new(self.project(self.normalised(x)))
    }

    fn select(&self, state: &mut GptState, rows: &[usize]) {
        state.caches.iter_mut().for_each(|cache| cache.select(rows));
    }

    fn join(&self, state: &mut GptState, other: GptState) {
        for (cache, other) in state.caches.iter_mut().zip(other.caches) {
            cache.join(other);
        }
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.max_positions)
    }
}

impl LanguageModel for Gpt {
    fn read(&self, prompts: &Sequences, device: &Device) -> (GptState, StepOutput) {
        let (ids, mask) = self.input(prompts, device);
        let mask = match self.bidirectional_prompts {
            true => with_prefixes(mask, prompts, prompts.lengths()),
            false => mask,
        };
        let mut caches = vec![KeyValueCache::new(); self.layers.len()];
        let [_, len] = ids.dims();
        let x = self.advance(ids, &mask, len, &mut caches);
        // Padding at the end of rows.
        caches.iter_mut().for_each(|cache| cache.truncate(prompts.lengths()));
        let ends = prompts.lengths().iter().scan(0, |end, len| {
            *end += *len as i32;
            Some(*end - 1)
        });
        let ends: Vec<i32> = ends.collect();
        let last = flat(x, prompts).select(0, Tensor::from_data(ends.as_slice(), device));
        (GptState { caches }, StepOutput::new(self.project(self.normalised(last))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{close, configs, devices};
    use super::*;
    use crate::ParamInit;

    #[test]
    fn prompts_may_be_read_in_both_directions() {
        for (config, device) in configs().iter().flat_map(|config| devices().map(|device| (config, device))) {
            let mut model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
            let mut rows: Vec<Vec<i32>> = vec![vec![1, 2, 3, 4, 5], vec![6], vec![7, 8, 9]];
            let prefixes = [5, 1, 3];
            let prompts: Sequences = rows.iter().map(Vec::as_slice).collect();
            let (_, left_to_right) = model.read(&prompts, &device);
            model.bidirectional_prompts = true;
            let uncached = |rows: &[Vec<i32>]| {
                let last = rows.iter().zip(prefixes).map(|(row, prefix)| {
                    let states = model.prefix_states(&[&row[..]].into_iter().collect(), &[prefix], &device);
                    model.project(states.narrow(0, row.len() - 1, 1))
                });
                Tensor::cat(last.collect(), 0)
            };
            let (mut state, output) = model.read(&prompts, &device);
            let difference = (output.logits.clone() - left_to_right.logits).abs().max();
            assert!(difference.into_scalar::<f32>() > 1e-4, "prompts are read as before");
            close(output.logits, uncached(&rows));
            for step in 0..3 {
                let tokens: Vec<i32> = (0..3).map(|row| (3 * row + 7 * step) % 23).collect();
                let output = model.step(&tokens, &mut state);
                rows.iter_mut().zip(&tokens).for_each(|(row, token)| row.push(*token));
                close(output.logits, uncached(&rows));
            }
        }
    }

    #[test]
    fn cached_is_uncached() {
        for (config, device) in configs().iter().flat_map(|config| devices().map(|device| (config, device))) {
            let model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
            let mut rows: Vec<Vec<i32>> = vec![vec![1, 2, 3, 4, 5], vec![6], vec![7, 8, 9]];
            let uncached = |row: &Vec<i32>| {
                let logits = model.logits(&[&row[..]].into_iter().collect(), &device);
                logits.narrow(0, row.len() - 1, 1)
            };
            let all = |rows: &[Vec<i32>]| Tensor::cat(rows.iter().map(uncached).collect(), 0);
            let prompts: Sequences = rows.iter().map(Vec::as_slice).collect();
            let (mut state, output) = model.read(&prompts, &device);
            close(output.logits, all(&rows));
            for step in 0..6 {
                let tokens: Vec<i32> = (0..rows.len() as i32).map(|row| (3 * row + 7 * step) % 23).collect();
                let output = model.step(&tokens, &mut state);
                rows.iter_mut().zip(&tokens).for_each(|(row, token)| row.push(*token));
                close(output.logits, all(&rows));
                assert_eq!(state.lengths(), rows.iter().map(Vec::len).collect::<Vec<_>>());
                // Rows diverge, end and join.
                match step {
                    1 => {
                        model.select(&mut state, &[2, 2, 0]);
                        rows = vec![rows[2].clone(), rows[2].clone(), rows[0].clone()];
                    }
                    3 => {
                        let new = [&[5, 4][..]];
                        let (other, _) = model.read(&new.into_iter().collect(), &device);
                        model.join(&mut state, other);
                        rows.push(vec![5, 4]);
                    }
                    _ => (),
                }
            }
        }
    }
}

//! Text generation: prompts are read in one pass, then each step takes one token per row.

use super::AwdLstm;
use crate::Sequences;
use crate::generate::{LanguageModel, NextToken, StepOutput};
use crate::recurrent::RecurrentState;
use burn::tensor::{Device, Int, Tensor};

/// Each layer's state for each row.
#[derive(Debug, Clone)]
pub struct AwdLstmState(Vec<RecurrentState>);

impl AwdLstmState {
    fn change(&mut self, change: impl Fn(RecurrentState) -> RecurrentState) {
        self.0 = std::mem::take(&mut self.0).into_iter().map(change).collect();
    }
}

impl NextToken for AwdLstm {
    type State = AwdLstmState;

    fn step(&self, tokens: &[i32], state: &mut AwdLstmState) -> StepOutput {
        let device = self.device();
        let tokens: Sequences = tokens.iter().map(std::slice::from_ref).collect();
        let output = self.forward(&tokens, Some(std::mem::take(&mut state.0)), &device);
        state.0 = output.last;
        StepOutput::new(self.project(output.dropped))
    }

    fn select(&self, state: &mut AwdLstmState, rows: &[usize]) {
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let device = self.device();
        let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
        state.change(|state| state.select(rows.clone()));
    }

    fn join(&self, state: &mut AwdLstmState, other: AwdLstmState) {
        let states = std::mem::take(&mut state.0).into_iter().zip(other.0);
        state.0 = states.map(|(state, other)| state.cat(other, 0)).collect();
    }
}

impl LanguageModel for AwdLstm {
    fn read(&self, prompts: &Sequences, device: &Device) -> (AwdLstmState, StepOutput) {
        let output = self.forward(prompts, None, device);
        let packing = prompts.packing();
        let ends = packing.starts().zip(packing.lengths()).map(|(start, len)| (start + len - 1) as i32);
        let ends: Vec<i32> = ends.collect();
        let last = output.dropped.select(0, Tensor::<1, Int>::from_data(ends.as_slice(), device));
        (AwdLstmState(output.last), StepOutput::new(self.project(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::awd_lstm::AwdLstmConfig;
    use burn::tensor::Tolerance;

    #[test]
    fn step_by_step_is_at_once() {
        let device = Device::flex();
        let config = AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 2, ..AwdLstmConfig::new(23) };
        let model = config.init(&mut ParamInit::new(&device, 3));
        let at_once = |row: &Vec<i32>| model.read(&[&row[..]].into_iter().collect(), &device).1.logits;
        let close = |found: Tensor<2>, rows: &[Vec<i32>]| {
            let expected = Tensor::cat(rows.iter().map(at_once).collect(), 0).into_data();
            found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        };
        let mut rows: Vec<Vec<i32>> = vec![vec![1, 2, 3], vec![6], vec![7, 8]];
        let (mut state, output) = model.read(&rows.iter().map(Vec::as_slice).collect(), &device);
        close(output.logits, &rows);
        for step in 0..4 {
            let tokens: Vec<i32> = (0..rows.len() as i32).map(|row| (3 * row + 7 * step) % 23).collect();
            let output = model.step(&tokens, &mut state);
            rows.iter_mut().zip(&tokens).for_each(|(row, token)| row.push(*token));
            close(output.logits, &rows);
            match step {
                1 => {
                    model.select(&mut state, &[2, 2, 0]);
                    rows = vec![rows[2].clone(), rows[2].clone(), rows[0].clone()];
                }
                2 => {
                    let (other, _) = model.read(&[&[5, 4][..]].into_iter().collect(), &device);
                    model.join(&mut state, other);
                    rows.push(vec![5, 4]);
                }
                _ => (),
            }
        }
    }
}

//! Several models that write one text together.

use super::read_input::{Inputs, RowLogits, Rows};
use crate::{Result, ops};
use burn::tensor::Device;
use rayon::prelude::*;

/// How an ensemble combines its members' probabilities of the next token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EnsembleMean {
    /// The mean of the log-probabilities, `1/K · Σₖ log Pₖ(y_t | y_<t, x)`. A token that one member excludes is excluded.
    ///
    /// Where members disagree, the probabilities sum to less than 1. They are not normalised again, so a hypothesis on which
    /// the members agree scores higher: as in OpenNMT-py, and up to the factor `1/K` in Marian.
    #[default]
    Log,
    /// The logarithm of the mean probability, `log(1/K · Σₖ Pₖ(y_t | y_<t, x))`: as fairseq, and as OpenNMT-py with
    /// `-avg_raw_probs`.
    Probability,
}

/// Models with the same tokens, which all read what is written.
pub(super) struct Ensemble<'m> {
    /// At least one.
    members: Vec<Box<dyn Rows + 'm>>,
    mean: EnsembleMean,
}

impl<'m> Ensemble<'m> {
    pub fn new(members: Vec<Box<dyn Rows + 'm>>, mean: EnsembleMean) -> Self {
        assert!(!members.is_empty(), "an ensemble has a member");
        Self { members, mean }
    }

    /// Each member with its inputs, of which there is one for each or one for all.
    fn with_inputs<'i>(&self, inputs: &Inputs<'i>) -> impl Iterator<Item = (&(dyn Rows + 'm), Inputs<'i>)> {
        let inputs: Vec<Inputs<'i>> =
            (0..self.members.len()).map(|member| of_member(inputs, member)).collect();
        self.members.iter().map(|member| &**member).zip(inputs)
    }
}

/// The outputs of all members as one.
fn combined(mean: EnsembleMean, mut outputs: Vec<RowLogits>) -> RowLogits {
    let n_rows = outputs[0].n_rows;
    assert!(outputs.iter().all(|output| output.n_rows == n_rows), "all members have the same rows");
    // Models may have more rows than there are tokens, rounded up for speed.
    let vocab_size = outputs.iter().map(|output| output.vocab_size).min().unwrap_or_default();
    let alignment = outputs[0].alignment.take();
    let mut logits = vec![0.0; n_rows * vocab_size];
    logits.par_chunks_exact_mut(vocab_size.max(1)).enumerate().for_each(|(row, combined)| {
        let members: Vec<MemberRow> = outputs.iter().map(|output| MemberRow::new(output, row)).collect();
        match mean {
            EnsembleMean::Log => mean_of_logs(&members, combined),
            EnsembleMean::Probability => log_of_mean(&members, combined),
        }
    });
    RowLogits { logits, n_rows, vocab_size, is_normalised: true, alignment }
}

/// The input of a member.
fn of_member<'i>(inputs: &Inputs<'i>, member: usize) -> Inputs<'i> {
    vec![*inputs.get(member).unwrap_or(&inputs[0])]
}

/// A member's logits of a row, and their normaliser.
struct MemberRow<'a> {
    logits: &'a [f32],
    log_sum: f32,
}

impl<'a> MemberRow<'a> {
    fn new(output: &'a RowLogits, row: usize) -> Self {
        let logits = &output.logits[row * output.vocab_size..][..output.vocab_size];
        let log_sum = if output.is_normalised { 0.0 } else { ops::best(logits, 0).log_sum };
        Self { logits, log_sum }
    }
}

fn mean_of_logs(members: &[MemberRow], combined: &mut [f32]) {
    let n = members.len() as f32;
    for member in members {
        combined.iter_mut().zip(member.logits).for_each(|(sum, logit)| *sum += logit - member.log_sum);
    }
    combined.iter_mut().for_each(|sum| *sum /= n);
}

/// Below this probability, exponentials lose digits and the logarithms are compared instead.
const TINY: f32 = 1e-30;

fn log_of_mean(members: &[MemberRow], combined: &mut [f32]) {
    let n = members.len() as f32;
    let mut probabilities = Vec::new();
    for member in members {
        probabilities.clear();
        probabilities.extend_from_slice(member.logits);
        let greatest = member.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        ops::exponentials(&mut probabilities, 1.0);
        // A member may be an ensemble itself, whose probabilities do not sum to 1.
        let scale = (greatest - member.log_sum).exp();
        combined.iter_mut().zip(&probabilities).for_each(|(sum, p)| *sum += p * scale);
    }
    for (token, sum) in combined.iter_mut().enumerate() {
        *sum = match *sum < TINY {
            true => {
                let logs = members.iter().map(|member| f64::from(member.logits[token] - member.log_sum));
                (log_sum_exp(logs) - f64::from(n).ln()) as f32
            }
            false => (*sum / n).ln(),
        };
    }
}

fn log_sum_exp(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let greatest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    match greatest.is_finite() {
        true => greatest + logs.map(|log| (log - greatest).exp()).sum::<f64>().ln(),
        false => greatest,
    }
}

impl Rows for Ensemble<'_> {
    fn n_inputs(&self) -> usize {
        self.members.len()
    }

    fn device(&self) -> &Device {
        self.members[0].device()
    }

    fn check_inputs(&self, inputs: &Inputs) -> Result<()> {
        self.with_inputs(inputs).try_for_each(|(member, inputs)| member.check_inputs(&inputs))
    }

    fn before(&self, inputs: &Inputs) -> Vec<i32> {
        self.members[0].before(inputs)
    }

    fn seen(&self, inputs: &Inputs, longest: usize) -> usize {
        self.members[0].seen(inputs, longest)
    }

    fn room(&self, inputs: &Inputs) -> Option<usize> {
        self.with_inputs(inputs).filter_map(|(member, inputs)| member.room(&inputs)).min()
    }

    fn begin(&mut self, inputs: &[Inputs]) -> RowLogits {
        let outputs = self.members.iter_mut().enumerate().map(|(i, member)| {
            let inputs: Vec<Inputs> = inputs.iter().map(|inputs| of_member(inputs, i)).collect();
            member.begin(&inputs)
        });
        combined(self.mean, outputs.collect())
    }

    fn join(&mut self, rows: &[usize], n_rows: usize) {
        self.members.iter_mut().for_each(|member| member.join(rows, n_rows));
    }

    fn step(&mut self, tokens: &[i32]) -> RowLogits {
        combined(self.mean, self.members.iter_mut().map(|member| member.step(tokens)).collect())
    }

    fn select(&mut self, rows: &[usize], n_rows: usize) {
        self.members.iter_mut().for_each(|member| member.select(rows, n_rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(mean: EnsembleMean, rows: &[&[f32]]) -> Vec<f32> {
        let output = |row: &&[f32]| RowLogits {
            logits: row.to_vec(),
            n_rows: 1,
            vocab_size: row.len(),
            is_normalised: false,
            alignment: None,
        };
        combined(mean, rows.iter().map(output).collect()).logits
    }

    #[test]
    fn unlikely_tokens_keep_their_order() {
        let rows: [&[f32]; 2] = [&[0.0, -200.0, -300.0, f32::NEG_INFINITY], &[0.0, -210.0, -250.0, -1.0]];
        for mean in [EnsembleMean::Log, EnsembleMean::Probability] {
            let found = row_of(mean, &rows);
            let log_probs = |row: &[f32]| -> Vec<f64> {
                let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
                row.iter().map(|x| f64::from(*x) - total.ln()).collect()
            };
            let (a, b) = (log_probs(rows[0]), log_probs(rows[1]));
            for (i, found) in found.iter().enumerate() {
                let expected = match mean {
                    EnsembleMean::Log => (a[i] + b[i]) / 2.0,
                    EnsembleMean::Probability => log_sum_exp([a[i], b[i]].into_iter()) - 2f64.ln(),
                };
                let found = f64::from(*found);
                assert!(found == expected || (found - expected).abs() < 1e-4, "{mean:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_member_that_is_not_finite_is_told() {
        for mean in [EnsembleMean::Log, EnsembleMean::Probability] {
            for bad in [f32::NAN, f32::INFINITY] {
                let found = row_of(mean, &[&[0.0, 1.0, 2.0], &[0.0, bad, 1.0]]);
                assert!(!ops::best(&found, 1).log_sum.is_finite(), "{mean:?}: {found:?}");
            }
        }
    }
}

//! Occlusion: what the score loses without a token.

use super::explained::{Explained, Words};
use burn::tensor::Tensor;

/// `F(x) − F(x without token i)` of each token that the baseline does not keep, in whose place the baseline stands; 0 for
/// the others (Zeiler & Fergus 2014, of words Li et al. 2016).
pub(super) fn occlusion(explained: &Explained<'_>) -> [Vec<f64>; 2] {
    let (score, words, baseline) = (explained.score.value, explained.words(), explained.baseline());
    let mut values: Vec<Vec<f64>> = words.iter().map(|words| vec![0.0; words.dims()[1]]).collect();
    let tokens = values
        .iter()
        .enumerate()
        .flat_map(|(side, values)| (0..values.len()).map(move |token| (side, token)));
    let tokens: Vec<(usize, usize)> = tokens.filter(|(side, token)| !explained.kept[*side][*token]).collect();
    for tokens in tokens.chunks(explained.most_copies) {
        let without: Words = words
            .iter()
            .zip(&baseline)
            .enumerate()
            .map(|(side, (words, base))| {
                let hidden = tokens.iter().map(|(of, token)| (*of == side).then_some(*token));
                without(words, base, &hidden.collect::<Vec<_>>())
            })
            .collect();
        for ((side, token), other) in tokens.iter().zip(explained.scores(&without)) {
            values[*side][*token] = score - other;
        }
    }
    explained.split(values)
}

/// Copies of the words, in each of which at most one token is replaced, `[copies, len, d]`.
fn without(words: &Tensor<3>, baseline: &Tensor<3>, hidden: &[Option<usize>]) -> Tensor<3> {
    let [_, len, _] = words.dims();
    let flags = hidden
        .iter()
        .flat_map(|hidden| (0..len).map(move |token| f32::from(u8::from(Some(token) == *hidden))));
    let flags: Vec<f32> = flags.collect();
    let flags = Tensor::<1>::from_data(flags.as_slice(), &words.device()).reshape([hidden.len(), len, 1]);
    words.clone() + (baseline.clone() - words.clone()) * flags
}

//! Structural probes: distances and depths of dependency trees (Hewitt & Manning 2019).

use super::classes::shuffle;
use super::config::StructureSection;
use super::sentences::ParsedSentence;
use super::states::WordStates;
use crate::Result;
use crate::engine::optimizer::{Optimizer, OptimizerConfig};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::Random;
use cloze_evaluation::probing::{StructuralFigures, StructuralScore};
use cloze_model::ParamInit;
use cloze_model::probes::StructuralProbe;

/// Sentences with known states and trees.
#[derive(Clone, Copy)]
pub(super) struct Treebank<'a> {
    pub states: &'a WordStates,
    pub sentences: &'a [ParsedSentence],
}

/// What squared lengths under a probe's projection must equal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Distances between words.
    Distances,
    /// Words' depths.
    Depths,
}

/// Several sentences, padded to the longest.
struct Batch {
    /// `[batch, n_words, width]`
    states: Tensor<3>,
    n_words: usize,
}

impl Treebank<'_> {
    fn batch(&self, layer: usize, sentences: &[usize], device: &Device) -> Batch {
        let width = self.states.vectors.width;
        let n_words = sentences.iter().map(|s| self.sentences[*s].words.len()).max().unwrap_or(0);
        let mut values = vec![0.0; sentences.len() * n_words * width];
        for (sentence, row) in sentences.iter().zip(values.chunks_exact_mut(n_words * width)) {
            let states = self.states.sentence(layer, *sentence);
            row[..states.len()].copy_from_slice(states);
        }
        let values = TensorData::new(values, [sentences.len(), n_words, width]);
        Batch { states: Tensor::from_data(values, device), n_words }
    }

    /// The gold values of a batch, and the weight of each in the loss, which is 0 for padding.
    ///
    /// The loss of distances is `1/|s|² · Σ_ij |d(i, j) − ‖B(h_i − h_j)‖²|`, that of depths `1/|s| · Σ_i |d(i)
    /// − ‖B·h_i‖²|`; a batch's loss is the mean over its sentences (§2.2 and appendix A.1, and the authors'
    /// code).
    fn gold(&self, target: Target, sentences: &[usize], n_words: usize) -> (Vec<f32>, Vec<f32>) {
        let columns = if target == Target::Distances { n_words } else { 1 };
        let mut gold = vec![0.0; sentences.len() * n_words * columns];
        let mut weights = gold.clone();
        for (at, sentence) in sentences.iter().enumerate() {
            let tree = &self.sentences[*sentence].tree;
            let n = tree.len();
            let (numbers, row) = match target {
                Target::Distances => (tree.distances(), n),
                Target::Depths => (tree.depths().to_vec(), 1),
            };
            let weight = 1.0 / (numbers.len() * sentences.len()) as f32;
            for (word, numbers) in numbers.chunks_exact(row).enumerate() {
                let start = (at * n_words + word) * columns;
                for (column, number) in numbers.iter().enumerate() {
                    gold[start + column] = *number as f32;
                    weights[start + column] = weight;
                }
            }
        }
        (gold, weights)
    }

    fn train(
        &self,
        target: Target,
        layer: usize,
        section: &StructureSection,
        device: &Device,
        seed: u64,
    ) -> Result<StructuralProbe> {
        let device = device.clone().autodiff();
        let init = &mut ParamInit::new(&device, seed);
        let mut probe = StructuralProbe::new(self.states.vectors.width, section.rank, init);
        let config = OptimizerConfig { eps: 1e-8, weight_decay: 0.0, ..OptimizerConfig::default() };
        let mut optimizer = Optimizer::new(config, &probe)?;
        let mut order: Vec<usize> = (0..self.sentences.len()).collect();
        for epoch in 0..section.epochs {
            shuffle(&mut order, &mut Random::derive(seed, &[epoch as u64]));
            for sentences in order.chunks(section.batch_size) {
                let Batch { states, n_words } = self.batch(layer, sentences, &device);
                let (gold, weights) = self.gold(target, sentences, n_words);
                let n = gold.len();
                let found: Tensor<1> = match target {
                    Target::Distances => probe.distances(states).reshape([n]),
                    Target::Depths => probe.depths(states).reshape([n]),
                };
                let [gold, weights] =
                    [gold, weights].map(|values| Tensor::<1>::from_data(values.as_slice(), &device));
                let loss = ((found - gold).abs() * weights).sum();
                let gradients = GradientsParams::from_grads(loss.backward(), &probe);
                probe = optimizer.step(probe, gradients, section.lr, 1.0);
            }
        }
        Ok(probe.valid())
    }
}

/// Trains a distance and a depth probe on a layer, and evaluates both on other sentences.
///
/// # Errors
/// None for a valid config.
pub(super) fn probe(
    [train, dev]: [Treebank<'_>; 2],
    layer: usize,
    section: &StructureSection,
    device: &Device,
    seed: u64,
) -> Result<StructuralFigures> {
    let distances = train.train(Target::Distances, layer, section, device, seed)?;
    let depths = train.train(Target::Depths, layer, section, device, seed)?;
    let mut score = StructuralScore::default();
    for (number, sentence) in dev.sentences.iter().enumerate() {
        let states = dev.batch(layer, &[number], device).states;
        let numbers = |data: TensorData| data.iter::<f32>().map(f64::from).collect::<Vec<f64>>();
        let kept = sentence.kept();
        score.push_distances(
            &sentence.tree,
            &kept,
            &numbers(distances.distances(states.clone()).into_data()),
        );
        score.push_depths(&sentence.tree, &kept, &numbers(depths.depths(states).into_data()));
    }
    Ok(score.figures())
}

#[cfg(test)]
mod tests {
    use super::super::states::LayerVectors;
    use super::*;
    use cloze_evaluation::probing::DependencyTree;

    const WIDTH: usize = 48;

    /// Sentences of six words with random trees. A planted state is the sum of random directions of the word's ancestors, so
    /// that squared distances are near those of the tree; else it is random.
    fn treebank(n: usize, planted: bool, seed: u64) -> (WordStates, Vec<ParsedSentence>) {
        let mut random = Random::new(seed);
        let (mut values, mut starts, mut sentences) = (Vec::new(), vec![0], Vec::new());
        for _ in 0..n {
            let heads: Vec<usize> =
                (0..6).map(|word| if word == 0 { 0 } else { random.below(word) as usize + 1 }).collect();
            let mut states = vec![0.0_f32; 6 * WIDTH];
            for word in 0..6 {
                // A direction of this word and sentence.
                let own = (0..4).map(|_| (random.below(WIDTH as u64) as usize, 0.5));
                let own: Vec<(usize, f32)> = own.collect();
                if planted && heads[word] > 0 {
                    states.copy_within((heads[word] - 1) * WIDTH..heads[word] * WIDTH, word * WIDTH);
                    // The root is the origin.
                    own.iter().for_each(|(feature, by)| states[word * WIDTH + feature] += by);
                } else if !planted {
                    own.iter().for_each(|(feature, by)| states[word * WIDTH + feature] = *by);
                }
            }
            values.extend(states);
            starts.push(starts[starts.len() - 1] + 6);
            sentences.push(ParsedSentence {
                words: vec!["w".into(); 6],
                parts_of_speech: vec!["NOUN".into(); 6],
                relations: vec!["dep".into(); 6],
                tree: DependencyTree::new(&heads).unwrap(),
            });
        }
        let vectors = LayerVectors { of_layers: vec![values], width: WIDTH };
        (WordStates { vectors, starts }, sentences)
    }

    fn figures(planted: bool) -> StructuralFigures {
        let section = StructureSection { rank: 32, epochs: 10, batch_size: 10, lr: 0.01 };
        let (train, dev) = (treebank(100, planted, 1), treebank(40, planted, 2));
        let bank = |of: &(WordStates, Vec<ParsedSentence>)| -> StructuralFigures {
            let whole = Treebank { states: &train.0, sentences: &train.1 };
            let dev = Treebank { states: &of.0, sentences: &of.1 };
            probe([whole, dev], 0, &section, &Device::flex(), 5).unwrap()
        };
        let found = bank(&dev);
        assert_eq!(found.uuas.to_bits(), bank(&dev).uuas.to_bits());
        found
    }

    #[test]
    fn planted_trees_are_found_and_random_ones_are_not() {
        let (planted, random) = (figures(true), figures(false));
        assert!(planted.uuas > 0.8 && planted.root_accuracy > 0.9, "{planted:?}");
        assert!(planted.distance_spearman > 0.7 && planted.depth_spearman > 0.7, "{planted:?}");
        assert!(random.uuas < 0.6 && random.root_accuracy < 0.6, "{random:?}");
    }
}

//! t-SNE: a map that preserves neighbourhoods.

use bhtsne::Neighbor;

use super::components::principal_components;
use super::neighbours::{Near, nearest};
use crate::embeddings::Vectors;
use crate::{EvaluationError, Result};

/// Number of principal components in which neighbours are searched.
const COMPONENTS: usize = 50;

/// The standard deviation of the initial positions along the first component, and of their random part.
const FIRST: f64 = 1e-4;
const RANDOM: f64 = 1e-6;

/// The accuracy of forces from distant points (θ of Barnes-Hut).
const THETA: f64 = 0.5;

/// How a map is made.
#[derive(Debug, Clone, PartialEq)]
pub struct TsneConfig {
    /// Effective number of neighbours of each vector, from 1 to a third of the other vectors.
    pub perplexity: f64,
    /// Steps of the gradient descent; in the first 250 attraction is twelve times as strong.
    pub steps: usize,
}

impl TsneConfig {
    /// Perplexity 30 as in scikit-learn, or the maximum for fewer vectors, and 1,000 steps.
    ///
    /// # Errors
    /// [`EvaluationError::FewVectors`] if there are fewer than 4.
    pub fn of(vectors: usize) -> Result<Self> {
        match vectors {
            0..4 => Err(EvaluationError::FewVectors { expected: 4, found: vectors }),
            _ => Ok(Self { perplexity: 30.0_f64.min(largest_perplexity(vectors)), steps: 1_000 }),
        }
    }
}

/// A third of the others.
fn largest_perplexity(vectors: usize) -> f64 {
    vectors.saturating_sub(1) as f64 / 3.0
}

/// Embeds vectors in the plane, `[n · 2]`, by Barnes-Hut t-SNE (van der Maaten & Hinton 2008; van der Maaten
/// 2014), which minimises the divergence between the distributions of pairs given by Euclidean distances of
/// the vectors and in the plane. The optimisation is that of the crate `bhtsne`.
///
/// Distances are of the first 50 principal components, as in the papers, and the neighbours are exact. The
/// map is initialised with the first two components plus a little noise from `uniform`, which yields numbers
/// in `0..1`. Deviation: the papers use a purely random initialisation (on components see Kobak & Berens
/// 2019). The same numbers give the same map, bit for bit, regardless of the number of threads. `progress`
/// receives the number of completed steps.
///
/// # Errors
/// [`EvaluationError::FewVectors`] for fewer than 4 vectors, [`EvaluationError::Perplexity`].
pub fn tsne(
    vectors: Vectors<'_>,
    config: &TsneConfig,
    uniform: &mut dyn FnMut() -> f64,
    progress: &mut (dyn FnMut(usize) + Send),
) -> Result<Vec<f64>> {
    let n = vectors.len();
    TsneConfig::of(n)?;
    let most = largest_perplexity(n);
    if !(1.0..=most).contains(&config.perplexity) {
        return Err(EvaluationError::Perplexity { perplexity: config.perplexity, vectors: n, most });
    }
    let count = COMPONENTS.min(vectors.width()).max(2);
    let components = principal_components(vectors, count).positions;
    // A vector's distribution is the same at any scale; squares of unscaled distances can be too large for 32 bits.
    let largest = components.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let scale = if largest > 0.0 { largest.recip() } else { 1.0 };
    let short: Vec<f32> = components.iter().map(|x| (x * scale) as f32).collect();
    let near = nearest(&short, count, (3.0 * config.perplexity) as usize);
    let neighbours: Vec<Vec<Neighbor<f64>>> = near.iter().map(|row| beyond_the_nearest(row)).collect();
    let first = first_positions(&components, count, uniform);
    // Sums on several threads differ in their last digits from run to run, and steps make other maps of that: one thread.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.map_err(|error| EvaluationError::Thread { reason: error.to_string() })?;
    // The crate looks at neighbours alone.
    let rows = vec![(); n];
    Ok(pool.install(|| {
        let mut map: bhtsne::tSNE<'_, f64, ()> = bhtsne::tSNE::new(&rows);
        map.perplexity(config.perplexity).epochs(config.steps).initial_embedding(first);
        map.epoch_callback(|step, _| progress(step + 1));
        map.barnes_hut_with_neighbors(THETA, &neighbours);
        map.embedding()
    }))
}

/// The neighbours of a vector, nearest first, with the nearest one's squared distance subtracted from all
/// squares.
///
/// A vector's distribution `exp(−β·d²) / Σ exp(−β·d²)` and its entropy are the same with and without it. But
/// the crate adds 2⁻⁵² to the sum, which dominates if a vector's neighbours are all far away: nothing would
/// then attract the vector.
fn beyond_the_nearest(row: &[Near]) -> Vec<Neighbor<f64>> {
    let least = row.first().map_or(0.0, |near| f64::from(near.square));
    let distance = |near: &Near| (f64::from(near.square) - least).max(0.0).sqrt();
    row.iter().map(|near| Neighbor { index: near.place as usize, distance: distance(near) }).collect()
}

/// `[n · 2]`: the first two of `count` components with the standard deviation [`FIRST`], plus random numbers,
/// which separate equal vectors.
fn first_positions(components: &[f64], count: usize, uniform: &mut dyn FnMut() -> f64) -> Vec<f64> {
    let n = components.len() / count;
    let variance = components.chunks_exact(count).map(|row| row[0] * row[0]).sum::<f64>() / n as f64;
    let scale = if variance > 0.0 { FIRST / variance.sqrt() } else { 0.0 };
    // Of numbers between −1 and 1 the variance is 1/3.
    let mut noise = || RANDOM * 3.0_f64.sqrt() * (2.0 * uniform() - 1.0);
    let row = |row: &[f64]| [row[0] * scale + noise(), row[1] * scale + noise()];
    components.chunks_exact(count).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in `0..1` that are the same each time (Marsaglia's xorshift).
    fn uniform(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Vectors of `width` around as many centres as there are classes, and their classes.
    fn clusters(n: usize, width: usize, classes: usize) -> (Vec<f32>, Vec<usize>) {
        let mut uniform = uniform(3);
        let mut values = Vec::with_capacity(n * width);
        for i in 0..n {
            for feature in 0..width {
                let centre = if feature % classes == i % classes { 4.0 } else { 0.0 };
                values.push((centre + uniform() - 0.5) as f32);
            }
        }
        (values, (0..n).map(|i| i % classes).collect())
    }

    fn map(values: &[f32], width: usize, config: &TsneConfig, seed: u64) -> Vec<f64> {
        tsne(Vectors::new(values, width).unwrap(), config, &mut uniform(seed), &mut |_| {}).unwrap()
    }

    /// The share of points whose nearest point is of their class.
    fn purity(positions: &[f64], classes: &[usize]) -> f64 {
        let short: Vec<f32> = positions.iter().map(|x| *x as f32).collect();
        let near = nearest(&short, 2, 1);
        let right =
            near.iter().zip(classes).filter(|(near, class)| classes[near[0].place as usize] == **class);
        right.count() as f64 / classes.len() as f64
    }

    #[test]
    fn planted_clusters_are_apart_and_the_same_twice() {
        let (values, classes) = clusters(120, 12, 4);
        let config = TsneConfig { perplexity: 10.0, steps: 500 };
        let found = map(&values, 12, &config, 1);
        assert_eq!(found.len(), 240);
        assert!(found.iter().all(|x| x.is_finite()));
        assert_eq!(purity(&found, &classes), 1.0);
        assert_eq!(found, map(&values, 12, &config, 1));
        assert_ne!(found, map(&values, 12, &config, 2));
        let components = principal_components(Vectors::new(&values, 12).unwrap(), 2).positions;
        assert_eq!(purity(&components, &classes), 1.0);
    }

    #[test]
    fn vectors_whose_squares_are_beyond_32_bits_have_the_same_neighbours() {
        let (values, classes) = clusters(60, 6, 3);
        let far: Vec<f32> = values.iter().map(|x| x * 2.0_f32.powi(80)).collect();
        let config = TsneConfig { perplexity: 8.0, steps: 300 };
        let found = map(&far, 6, &config, 1);
        assert!(found.iter().all(|x| x.is_finite()));
        assert_eq!(purity(&found, &classes), 1.0);
    }

    #[test]
    fn threads_change_no_bit() {
        let (values, _) = clusters(90, 6, 3);
        let config = TsneConfig { perplexity: 8.0, steps: 60 };
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| map(&values, 6, &config, 5))
        };
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn the_nearest_of_far_neighbours_counts() {
        let near = |place, square| Near { place, square };
        let found = beyond_the_nearest(&[near(7, 900.0), near(2, 904.0), near(4, 909.0)]);
        let neighbour = |index, distance| Neighbor { index, distance };
        assert_eq!(found, [neighbour(7, 0.0), neighbour(2, 2.0), neighbour(4, 3.0)]);
        assert!(beyond_the_nearest(&[]).is_empty());
    }

    #[test]
    fn steps_are_told_and_equal_vectors_are_no_harm() {
        let values = [1.0_f32, 2.0].repeat(12);
        let config = TsneConfig { perplexity: 2.0, steps: 7 };
        let mut told = Vec::new();
        let vectors = Vectors::new(&values, 2).unwrap();
        let found = tsne(vectors, &config, &mut uniform(1), &mut |step| told.push(step)).unwrap();
        assert!(found.iter().all(|x| x.is_finite()), "{found:?}");
        assert_eq!(told, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_perplexity_has_to_fit_the_vectors() {
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let made = |n: usize, perplexity: f64| {
            let config = TsneConfig { perplexity, steps: 1 };
            let vectors = Vectors::new(&values[..n], 1).unwrap();
            tsne(vectors, &config, &mut uniform(1), &mut |_| {}).map_err(|error| error.to_string())
        };
        assert!(made(7, 2.0).is_ok());
        assert_eq!(
            made(7, 3.0).unwrap_err(),
            "the perplexity is 3; expected from 1 to 2, a third of the other 6 vectors"
        );
        for perplexity in [0.5, f64::NAN, f64::INFINITY] {
            assert!(made(7, perplexity).is_err());
        }
        assert_eq!(made(3, 1.0).unwrap_err(), "there are too few texts or vectors: 3; expected 4 or more");
        assert_eq!(TsneConfig::of(4).unwrap().perplexity, 1.0);
        assert_eq!(TsneConfig::of(1_000).unwrap().perplexity, 30.0);
    }
}

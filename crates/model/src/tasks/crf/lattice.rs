//! One sequence's lattice of tags: sums over paths and the best path, on the host in 64 bits.

use super::TagRules;

/// The score of a transition that the rules forbid. It is finite, so that the loss of a gold path that breaks
/// the rules is finite, but far larger than emissions can compensate.
const FORBIDDEN: f64 = -10_000.0;

/// The scores shared by all sequences.
pub(super) struct Scores {
    n_tags: usize,
    start: Vec<f64>,
    end: Vec<f64>,
    /// `[from, to]`
    transitions: Vec<f64>,
    /// `[to, from]`
    arrivals: Vec<f64>,
}

/// Expectations over all paths of a sequence, weighted by their probabilities.
pub(super) struct Expectations {
    /// `log Σ exp(score)` over all paths.
    pub log_partition: f64,
    /// The probability of each tag at each token, `[len, n_tags]`.
    pub tags: Vec<f64>,
    /// How often each tag is expected to follow each other tag, `[from, to]`.
    pub pairs: Vec<f64>,
}

impl Scores {
    /// # Panics
    /// If the lengths are not `n_tags` and its square.
    pub fn new(start: &[f32], transitions: &[f32], end: &[f32], rules: Option<&TagRules>) -> Self {
        let n_tags = start.len();
        assert!(end.len() == n_tags && transitions.len() == n_tags * n_tags);
        let score =
            |score: f32, allowed: bool| if allowed { f64::from(score) } else { f64::from(score) + FORBIDDEN };
        let each = |scores: &[f32], allowed: &dyn Fn(usize) -> bool| -> Vec<f64> {
            scores.iter().enumerate().map(|(i, s)| score(*s, allowed(i))).collect()
        };
        let follows = |pair: usize| rules.is_none_or(|rules| rules.follows(pair / n_tags, pair % n_tags));
        let transitions = each(transitions, &follows);
        let arrivals = (0..n_tags * n_tags).map(|i| transitions[i % n_tags * n_tags + i / n_tags]).collect();
        Self {
            n_tags,
            start: each(start, &|tag| rules.is_none_or(|rules| rules.begins(tag))),
            end: each(end, &|tag| rules.is_none_or(|rules| rules.ends(tag))),
            transitions,
            arrivals,
        }
    }

    fn tokens<'a>(&self, emissions: &'a [f32]) -> std::slice::ChunksExact<'a, f32> {
        emissions.chunks_exact(self.n_tags)
    }

    /// The score of one path; 0 for an empty path.
    pub fn path(&self, emissions: &[f32], tags: &[usize]) -> f64 {
        let (Some(first), Some(last)) = (tags.first(), tags.last()) else {
            return 0.0;
        };
        let emitted: f64 = self.tokens(emissions).zip(tags).map(|(row, tag)| f64::from(row[*tag])).sum();
        let moved: f64 = tags.windows(2).map(|pair| self.transitions[pair[0] * self.n_tags + pair[1]]).sum();
        self.start[*first] + emitted + moved + self.end[*last]
    }

    /// For each token and tag, the log of the sum over all paths that end there, `[len, n_tags]`: `α_t(j) = e_t(j) +
    /// log Σ_i exp(α_{t−1}(i) + T(i, j))`.
    fn forward(&self, emissions: &[f32]) -> Vec<f64> {
        let n = self.n_tags;
        let mut alpha = vec![0.0; emissions.len()];
        let mut arriving = vec![0.0; n];
        for (t, row) in self.tokens(emissions).enumerate() {
            let (before, now) = alpha.split_at_mut(t * n);
            for (j, (now, emission)) in now[..n].iter_mut().zip(row).enumerate() {
                let reached = match t {
                    0 => self.start[j],
                    _ => {
                        let from = before[(t - 1) * n..].iter().zip(&self.arrivals[j * n..][..n]);
                        arriving.iter_mut().zip(from).for_each(|(sum, (alpha, score))| *sum = alpha + score);
                        log_sum_exp(&arriving)
                    }
                };
                *now = reached + f64::from(*emission);
            }
        }
        alpha
    }

    fn log_partition_of(&self, alpha: &[f64]) -> f64 {
        let Some(last) = alpha.len().checked_sub(self.n_tags) else {
            return 0.0;
        };
        let ends: Vec<f64> = alpha[last..].iter().zip(&self.end).map(|(alpha, end)| alpha + end).collect();
        log_sum_exp(&ends)
    }

    /// `log Σ exp(score)` over all paths; 0 for an empty sequence, whose only path is empty.
    pub fn log_partition(&self, emissions: &[f32]) -> f64 {
        self.log_partition_of(&self.forward(emissions))
    }

    /// The forward–backward algorithm, which gives the gradient of the log partition with respect to all scores.
    pub fn expectations(&self, emissions: &[f32]) -> Expectations {
        let n = self.n_tags;
        let alpha = self.forward(emissions);
        let log_partition = self.log_partition_of(&alpha);
        let (mut tags, mut pairs) = (vec![0.0; alpha.len()], vec![0.0; n * n]);
        // `β_t(i)`, the log of the sum over all paths onwards from here.
        let mut beta = self.end.clone();
        let (mut onward, mut parts) = (vec![0.0; n], vec![0.0; n]);
        for t in (0..alpha.len() / n.max(1)).rev() {
            let alpha = &alpha[t * n..][..n];
            if (t + 1) * n < emissions.len() {
                let next = &emissions[(t + 1) * n..][..n];
                onward
                    .iter_mut()
                    .zip(next.iter().zip(&beta))
                    .for_each(|(sum, (e, b))| *sum = f64::from(*e) + b);
                for i in 0..n {
                    let leaving = &self.transitions[i * n..][..n];
                    parts.iter_mut().zip(leaving.iter().zip(&onward)).for_each(|(sum, (t, o))| *sum = t + o);
                    let greatest = greatest(&parts);
                    parts.iter_mut().for_each(|part| *part = (*part - greatest).exp());
                    beta[i] = greatest + parts.iter().sum::<f64>().ln();
                    let share = (alpha[i] + greatest - log_partition).exp();
                    pairs[i * n..][..n].iter_mut().zip(&parts).for_each(|(pair, part)| *pair += share * part);
                }
            }
            let here = tags[t * n..][..n].iter_mut().zip(alpha.iter().zip(&beta));
            here.for_each(|(tag, (alpha, beta))| *tag = (alpha + beta - log_partition).exp());
        }
        Expectations { log_partition, tags, pairs }
    }

    /// The best path, by the Viterbi algorithm; ties go to lower tags.
    pub fn best(&self, emissions: &[f32]) -> Vec<usize> {
        let n = self.n_tags;
        let len = emissions.len() / n.max(1);
        if len == 0 {
            return Vec::new();
        }
        let (mut scores, mut came_from) = (self.start.clone(), vec![0; len * n]);
        for (t, row) in self.tokens(emissions).enumerate() {
            if t > 0 {
                let before = scores.clone();
                for j in 0..n {
                    let arrivals = before.iter().zip(&self.arrivals[j * n..][..n]).map(|(s, t)| s + t);
                    (came_from[t * n + j], scores[j]) = first_greatest(arrivals);
                }
            }
            scores.iter_mut().zip(row).for_each(|(score, emission)| *score += f64::from(*emission));
        }
        let (mut tag, _) = first_greatest(scores.iter().zip(&self.end).map(|(score, end)| score + end));
        let mut path = vec![0; len];
        for t in (0..len).rev() {
            path[t] = tag;
            tag = came_from[t * n + tag];
        }
        path
    }
}

fn greatest(x: &[f64]) -> f64 {
    x.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn log_sum_exp(x: &[f64]) -> f64 {
    let greatest = greatest(x);
    greatest + x.iter().map(|x| (x - greatest).exp()).sum::<f64>().ln()
}

/// The maximum and its index; the first if tied.
fn first_greatest(x: impl Iterator<Item = f64>) -> (usize, f64) {
    x.enumerate().fold((0, f64::NEG_INFINITY), |best, (i, x)| if x > best.1 { (i, x) } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, phase: f64) -> Vec<f32> {
        (0..n).map(|i| (((i as f64 + 1.0) * (0.917 + phase)).sin() * 12.9898).sin() as f32 * 2.0).collect()
    }

    /// All paths of `len` tokens, in the order of their tags.
    fn paths(n_tags: usize, len: usize) -> Vec<Vec<usize>> {
        let digits = |mut number: usize| {
            let mut path = vec![0; len];
            for tag in path.iter_mut().rev() {
                (*tag, number) = (number % n_tags, number / n_tags);
            }
            path
        };
        (0..n_tags.pow(len as u32)).map(digits).collect()
    }

    fn rules() -> TagRules {
        TagRules::new(3, [(0, 0), (0, 1), (1, 2), (2, 0), (2, 1)], 0..2, [0, 2])
    }

    #[test]
    fn sums_and_best_path_are_those_of_all_paths() {
        let rules = rules();
        for (n_tags, len, rules) in [
            (1, 1, None),
            (1, 4, None),
            (2, 1, None),
            (3, 5, None),
            (4, 6, None),
            (5, 3, None),
            (3, 1, Some(&rules)),
            (3, 6, Some(&rules)),
        ] {
            let (start, end) = (numbers(n_tags, 0.1), numbers(n_tags, 0.2));
            let scores = Scores::new(&start, &numbers(n_tags * n_tags, 0.3), &end, rules);
            let emissions = numbers(len * n_tags, 0.4);
            let all = paths(n_tags, len);
            let weights: Vec<f64> = all.iter().map(|path| scores.path(&emissions, path).exp()).collect();
            let total: f64 = weights.iter().sum();
            let (mut tags, mut pairs) = (vec![0.0; len * n_tags], vec![0.0; n_tags * n_tags]);
            for (path, weight) in all.iter().zip(&weights) {
                path.iter().enumerate().for_each(|(t, tag)| tags[t * n_tags + tag] += weight / total);
                path.windows(2).for_each(|pair| pairs[pair[0] * n_tags + pair[1]] += weight / total);
            }
            let found = scores.expectations(&emissions);
            assert!((found.log_partition - total.ln()).abs() < 1e-12);
            assert_eq!(found.log_partition, scores.log_partition(&emissions));
            for (found, expected) in [(&found.tags, tags), (&found.pairs, pairs)] {
                for (found, expected) in found.iter().zip(expected) {
                    assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
                }
            }
            let (best, _) = first_greatest(weights.iter().copied());
            assert_eq!(scores.best(&emissions), all[best]);
            assert!(rules.is_none_or(|rules| rules.allow(&all[best])));
        }
    }

    #[test]
    fn an_empty_sequence_has_one_path() {
        let scores = Scores::new(&[0.5, 1.0], &[0.0; 4], &[2.0, 3.0], None);
        assert_eq!(scores.path(&[], &[]), 0.0);
        assert_eq!(scores.log_partition(&[]), 0.0);
        assert_eq!(scores.best(&[]), [0; 0]);
        let none = scores.expectations(&[]);
        assert_eq!((none.log_partition, none.tags.len(), none.pairs), (0.0, 0, vec![0.0; 4]));
    }

    #[test]
    fn great_scores_do_not_overflow() {
        let scores = Scores::new(&[0.0; 2], &[1e4, -1e4, -1e4, 1e4], &[0.0; 2], None);
        let emissions = [1e4f32, -1e4].repeat(50);
        let found = scores.expectations(&emissions);
        assert!((found.log_partition - (50.0 * 1e4 + 49.0 * 1e4)).abs() < 1e-6);
        assert!((found.pairs[0] - 49.0).abs() < 1e-9 && found.pairs[3] == 0.0);
    }
}

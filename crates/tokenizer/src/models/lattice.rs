//! All segmentations of a text into pieces with probabilities, and the best of them (Kudo 2018).

use rand::{Rng, RngExt};

use super::trie::{NONE, Trie};

/// How much worse an unknown character is than the worst piece, in log probability.
const UNKNOWN_PENALTY: f64 = 10.0;

/// Pieces with their log probabilities. A character that is not itself a piece gets an unknown piece,
/// with its own id and log probability, so every text has a segmentation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lattice<'a> {
    trie: &'a Trie,
    /// By id.
    scores: &'a [f64],
    unknown: u32,
    unknown_score: f64,
}

/// One step of a path: the piece and its end; it begins at the previous one's end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    pub id: u32,
    pub end: usize,
}

/// The best path to a position: its last piece (of `len` bytes, 0 for no path yet) and its log
/// probability.
#[derive(Debug, Clone, Copy)]
struct Best {
    score: f64,
    len: u32,
    id: u32,
}

/// One of the best paths to a position: its last piece, that piece's start, and which of the paths to
/// the start it continues.
#[derive(Debug, Clone, Copy)]
struct Way {
    score: f64,
    id: u32,
    from: usize,
    rank: usize,
}

/// A piece at a position.
#[derive(Debug, Clone, Copy)]
struct Edge {
    start: usize,
    end: usize,
    id: u32,
    score: f64,
}

/// Text probabilities above this are not affected by underflow: any lost part is less than 1e-100 of them.
const SMALL: f64 = 1e-200;

/// Reused by [`Lattice::expect`].
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// All pieces at all positions, by start.
    edges: Vec<Edge>,
    forward: Vec<f64>,
    backward: Vec<f64>,
}

/// `ln(eᵃ + eᵇ)`.
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// The bytes of the character that begins with `first`.
#[inline]
fn char_len(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    }
}

impl<'a> Lattice<'a> {
    /// `min_score` is the lowest log probability; unknown characters get 10 less.
    pub fn new(trie: &'a Trie, scores: &'a [f64], unknown: u32, min_score: f64) -> Self {
        Self { trie, scores, unknown, unknown_score: min_score - UNKNOWN_PENALTY }
    }

    /// Calls `edge` with end, id and log probability of every piece that begins at `start`, short ones
    /// first, except `without`.
    #[inline]
    fn edges(&self, text: &[u8], start: usize, without: u32, mut edge: impl FnMut(usize, u32, f64)) {
        let single = start + char_len(text[start]);
        let mut has_single = false;
        let mut node = Trie::ROOT;
        for (i, &byte) in text[start..].iter().enumerate() {
            let Some(child) = self.trie.child(node, u32::from(byte)) else {
                break;
            };
            node = child;
            let id = self.trie.value(node);
            if id != NONE && id != without {
                let end = start + i + 1;
                has_single |= end == single;
                edge(end, id, self.scores[id as usize]);
            }
        }
        if !has_single {
            edge(single, self.unknown, self.unknown_score);
        }
    }

    /// The most probable path, by the Viterbi algorithm; ties go to the longest last piece. Calls `step` with
    /// its pieces in order and returns its log probability. The piece `without` is excluded ([`NONE`]: none).
    ///
    /// Time is linear in the text length, and memory in the longest stretch of overlapping pieces:
    /// where no piece overlaps, the path so far is final.
    pub fn best(&self, text: &str, without: u32, mut step: impl FnMut(Step)) -> f64 {
        let text = text.as_bytes();
        // The best paths to the places from `certain` on, which all paths pass.
        let mut certain = 0;
        let mut table = vec![Best { score: 0.0, len: 0, id: 0 }];
        let mut steps = Vec::new();
        let mut start = 0;
        loop {
            let here = table[start - certain].score;
            if start > certain && start - certain + 1 == table.len() {
                let mut end = start;
                while end > certain {
                    let best = table[end - certain];
                    steps.push(Step { id: best.id, end });
                    end -= best.len as usize;
                }
                steps.drain(..).rev().for_each(&mut step);
                certain = start;
                table.clear();
                table.push(Best { score: here, len: 0, id: 0 });
            }
            let Some(&first) = text.get(start) else {
                return here;
            };
            self.edges(text, start, without, |end, id, score| {
                let place = end - certain;
                if place >= table.len() {
                    table.resize(place + 1, Best { score: 0.0, len: 0, id: 0 });
                }
                let score = here + score;
                if table[place].len == 0 || score > table[place].score {
                    table[place] = Best { score, len: (end - start) as u32, id };
                }
            });
            start += char_len(first);
        }
    }

    /// The `n` most probable paths with their log probabilities, the best first.
    pub fn nbest(&self, text: &str, n: usize) -> Vec<(f64, Vec<Step>)> {
        let bytes = text.as_bytes();
        let mut ways: Vec<Vec<Way>> = vec![Vec::new(); bytes.len() + 1];
        let begin = Way { score: 0.0, id: NONE, from: 0, rank: 0 };
        ways[0].push(begin);
        for (start, _) in text.char_indices() {
            let mut here = std::mem::take(&mut ways[start]);
            // Stable, so that of equals the one that [`best`](Self::best) takes comes first.
            here.sort_by(|a, b| b.score.total_cmp(&a.score));
            here.truncate(n);
            self.edges(bytes, start, NONE, |end, id, score| {
                let next = here.iter().enumerate();
                ways[end].extend(next.map(|(rank, way)| Way {
                    score: way.score + score,
                    id,
                    from: start,
                    rank,
                }));
            });
            ways[start] = here;
        }
        let last = &mut ways[bytes.len()];
        last.sort_by(|a, b| b.score.total_cmp(&a.score));
        last.truncate(n);
        let path = |way: &Way| {
            let (mut way, mut end) = (way, bytes.len());
            let mut steps = Vec::new();
            while end > 0 {
                steps.push(Step { id: way.id, end });
                end = way.from;
                way = &ways[end][way.rank];
            }
            steps.reverse();
            steps
        };
        ways[bytes.len()].iter().map(|way| (way.score, path(way))).collect()
    }

    /// Samples a path with probability proportional to its probability to the power of `alpha`: a
    /// backward sum, then forward sampling (Kudo 2018, section 3.2). Returns its log probability.
    pub fn sample(&self, text: &str, alpha: f64, rng: &mut impl Rng, mut step: impl FnMut(Step)) -> f64 {
        let bytes = text.as_bytes();
        // The log of the sum over all ways to spell the rest of the text.
        let mut rest = vec![0.0; bytes.len() + 1];
        for (start, _) in text.char_indices().rev() {
            let mut sum = f64::NEG_INFINITY;
            self.edges(bytes, start, NONE, |end, _, score| sum = log_add(sum, alpha * score + rest[end]));
            rest[start] = sum;
        }
        let (mut start, mut total) = (0, 0.0);
        while start < bytes.len() {
            let mut left: f64 = rng.random();
            let mut chosen = None;
            self.edges(bytes, start, NONE, |end, id, score| {
                // The first is always taken, so that rounding cannot leave none.
                if chosen.is_none() || left >= 0.0 {
                    chosen = Some((end, id, score));
                    left -= (alpha * score + rest[end] - rest[start]).exp();
                }
            });
            let Some((end, id, score)) = chosen else {
                break;
            };
            total += score;
            step(Step { id, end });
            start = end;
        }
        total
    }

    /// One of the `n` best paths, drawn in the same way, with its log probability.
    pub fn sample_nbest(&self, text: &str, n: usize, alpha: f64, rng: &mut impl Rng) -> (f64, Vec<Step>) {
        let mut paths = self.nbest(text, n.max(1));
        let best = paths.first().map_or(0.0, |path| path.0);
        // Of the best one's weight, so that none is too large for a number.
        let weight = |path: &(f64, Vec<Step>)| (alpha * (path.0 - best)).exp();
        let mut left = rng.random::<f64>() * paths.iter().map(weight).sum::<f64>();
        let chosen = paths.iter().position(|path| {
            left -= weight(path);
            left < 0.0
        });
        // Rounding may leave none: the best.
        if paths.is_empty() { Default::default() } else { paths.swap_remove(chosen.unwrap_or(0)) }
    }

    /// Adds to `expected` how often each piece is used on average over all paths, times `count`: the
    /// forward-backward algorithm. Returns the log probability of the text.
    pub fn expect(&self, text: &str, count: f64, expected: &mut [f64], scratch: &mut Scratch) -> f64 {
        let bytes = text.as_bytes();
        let Scratch { edges, forward, backward } = scratch;
        edges.clear();
        for (start, _) in text.char_indices() {
            self.edges(bytes, start, NONE, |end, id, score| edges.push(Edge { start, end, id, score }));
        }
        let reset = |sums: &mut Vec<f64>, with| {
            sums.clear();
            sums.resize(bytes.len() + 1, with);
        };
        // First with probabilities, which is fast; those of a long text are too small for a number.
        reset(forward, 0.0);
        reset(backward, 0.0);
        forward[0] = 1.0;
        for edge in edges.iter() {
            forward[edge.end] += forward[edge.start] * edge.score.exp();
        }
        let total = forward[bytes.len()];
        if total > SMALL && total.is_finite() {
            backward[bytes.len()] = 1.0;
            let scale = count / total;
            for edge in edges.iter().rev() {
                let after = edge.score.exp() * backward[edge.end];
                backward[edge.start] += after;
                expected[edge.id as usize] += forward[edge.start] * after * scale;
            }
            return total.ln();
        }
        reset(forward, f64::NEG_INFINITY);
        reset(backward, f64::NEG_INFINITY);
        forward[0] = 0.0;
        for edge in edges.iter() {
            forward[edge.end] = log_add(forward[edge.end], forward[edge.start] + edge.score);
        }
        let total = forward[bytes.len()];
        backward[bytes.len()] = 0.0;
        for edge in edges.iter().rev() {
            let after = edge.score + backward[edge.end];
            backward[edge.start] = log_add(backward[edge.start], after);
            expected[edge.id as usize] += count * (forward[edge.start] + after - total).exp();
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [&str; 6] = ["a", "b", "c", "ab", "bc", "abc"];
    const SCORES: [f64; 6] = [-1.0, -1.5, -2.0, -1.8, -4.0, -4.4];

    fn with<T>(scores: &[f64], run: impl FnOnce(Lattice) -> T) -> T {
        let keys = PIECES.iter().zip(0..).map(|(p, id)| (p.as_bytes(), id)).collect();
        let trie = Trie::new(keys);
        run(Lattice::new(&trie, scores, 6, -4.4))
    }

    /// All paths of a text, by recursion.
    fn all(lattice: &Lattice, text: &str, start: usize) -> Vec<(f64, Vec<Step>)> {
        if start == text.len() {
            return vec![(0.0, Vec::new())];
        }
        let mut paths = Vec::new();
        lattice.edges(text.as_bytes(), start, NONE, |end, id, score| {
            for (rest, steps) in all(lattice, text, end) {
                let steps = std::iter::once(Step { id, end }).chain(steps).collect();
                paths.push((score + rest, steps));
            }
        });
        paths.sort_by(|a, b| b.0.total_cmp(&a.0));
        paths
    }

    #[test]
    fn the_best_paths_in_order() {
        with(&SCORES, |lattice| {
            let text = "abcxabcéab";
            let all = all(&lattice, text, 0);
            let found = lattice.nbest(text, 20);
            assert_eq!(found.len(), 20);
            for ((a, _), (b, _)) in all.iter().zip(&found) {
                assert!((a - b).abs() < 1e-9);
            }
            let mut best = Vec::new();
            let score = lattice.best(text, NONE, |step| best.push(step));
            assert_eq!((score, &best), (found[0].0, &found[0].1));
            assert_eq!(lattice.nbest("", 3), [(0.0, Vec::new())]);
            assert_eq!(lattice.nbest("a", 0), []);
        });
    }

    #[test]
    fn samples_follow_their_probabilities() {
        with(&SCORES, |lattice| {
            let text = "abcab";
            let all = all(&lattice, text, 0);
            for alpha in [0.0, 0.5, 1.0] {
                let weights: Vec<f64> = all.iter().map(|(score, _)| (alpha * score).exp()).collect();
                let sum: f64 = weights.iter().sum();
                let mut rng = rand_pcg::Pcg64Mcg::new(7);
                let mut drawn = vec![0; all.len()];
                for _ in 0..20_000 {
                    let mut path = Vec::new();
                    lattice.sample(text, alpha, &mut rng, |step| path.push(step));
                    drawn[all.iter().position(|(_, steps)| *steps == path).unwrap()] += 1;
                }
                for (drawn, weight) in drawn.iter().zip(&weights) {
                    let share = f64::from(*drawn) / 20_000.0;
                    assert!((share - weight / sum).abs() < 0.015, "{share} {}", weight / sum);
                }
            }
        });
    }

    #[test]
    fn expectations_are_averages_over_all_paths() {
        let scores = SCORES.iter().copied().chain([-14.4]).collect::<Vec<_>>();
        with(&scores, |lattice| {
            let text = "abcxab";
            // So long that its probability is no number: as often, for each of its parts.
            let long = "abcxab".repeat(60);
            let mut many = [0.0; 7];
            let total = lattice.expect(&long, 3.0, &mut many, &mut Scratch::default());
            assert!(total < -1000.0);
            let all = all(&lattice, text, 0);
            let sum: f64 = all.iter().map(|(score, _)| score.exp()).sum();
            let mut wanted = [0.0; 7];
            for (score, steps) in &all {
                for step in steps {
                    wanted[step.id as usize] += 3.0 * score.exp() / sum;
                }
            }
            let mut expected = [0.0; 7];
            let total = lattice.expect(text, 3.0, &mut expected, &mut Scratch::default());
            assert!((total - sum.ln()).abs() < 1e-9);
            for ((a, b), many) in wanted.iter().zip(&expected).zip(&many) {
                assert!((a - b).abs() < 1e-9);
                assert!((60.0 * a - many).abs() < 1e-6, "no piece reaches from part to part");
            }
        });
    }
}

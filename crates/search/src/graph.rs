//! Hierarchical navigable small worlds (Malkov and Yashunin 2018): a graph in which a query's neighbours are found by
//! going from row to row.
//!
//! It is our own, as crates that were measured take longer than FAISS (benches/README.md). Three things are unlike the paper:
//!
//! - A row's layers are a function of its number and the seed.
//! - Rows are put in by groups. All of a group look for their neighbours in the graph that is there, on all threads; then
//!   they are linked. So the graph depends on neither threads nor time, and nothing is locked. A group is a sixteenth of the
//!   rows that are there at most: that few more neighbours cost nothing that can be measured.
//! - A new row takes as many neighbours in the lowest layer as fit there, twice `M`, as in FAISS.

use crate::best::{Best, Scored};
use crate::bits::Bits;
use crate::config::GraphConfig;
use crate::space::{Query, Scratch, Space};
use rayon::prelude::*;
use std::collections::BinaryHeap;
use std::ops::Range;

/// No neighbour.
const NONE: u32 = u32::MAX;
/// Rows of a group at most.
const GROUP: usize = 1024;
/// Layers at most, above the lowest one: with two neighbours there are no more among 2³² rows, almost surely.
const MOST_LAYERS: usize = 31;
/// The first word of a file.
const MAGIC: u32 = 0x3148_5243;

/// A graph that can be searched.
#[derive(Debug, Clone)]
pub(crate) struct Graph<'a> {
    /// Neighbours of a row in the upper layers.
    m: usize,
    /// Neighbours of each row in the lowest layer, `2·m` places each.
    ground: &'a [u32],
    /// The layers above it, the lowest one first.
    upper: Vec<Layer<'a>>,
}

/// A layer of some of the rows.
#[derive(Debug, Clone, Copy)]
struct Layer<'a> {
    /// The rows in it, in their order.
    nodes: &'a [u32],
    /// The neighbours of each, `m` places each.
    links: &'a [u32],
}

/// A graph that grows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GraphBuilder {
    m: usize,
    ground: Vec<u32>,
    upper: Vec<(Vec<u32>, Vec<u32>)>,
}

/// What a search needs, kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The number of the search that last saw each row, of the last 255.
    seen: Vec<u8>,
    search: u8,
    ahead: BinaryHeap<Scored>,
    rows: Vec<u32>,
    scores: Vec<f32>,
    scratch: Scratch,
}

impl Walk {
    fn begin(&mut self, rows: usize) {
        if self.seen.len() < rows || self.search == u8::MAX {
            self.seen.clear();
            self.seen.resize(rows, 0);
            self.search = 0;
        }
        self.search += 1;
        self.ahead.clear();
    }

    /// Whether a row is seen for the first time.
    #[inline]
    fn is_new(&mut self, row: u32) -> bool {
        let seen = &mut self.seen[row as usize];
        let is_new = *seen != self.search;
        *seen = self.search;
        is_new
    }

    /// Scores of `self.rows`.
    fn score(&mut self, space: &Space<'_>, query: &Query) {
        self.scores.resize(self.rows.len(), 0.0);
        space.scores(query, &self.rows, &mut self.scratch, &mut self.scores);
    }
}

impl<'a> Graph<'a> {
    /// What [`GraphBuilder::words`] made; none if it is something else.
    pub fn of_words(words: &'a [u32], rows: usize) -> Option<Self> {
        let (&[magic, found, m, n_upper], words) = words.split_first_chunk()?;
        let m = m as usize;
        if magic != MAGIC
            || found as usize != rows
            || !(2..=256).contains(&m)
            || n_upper as usize > MOST_LAYERS
        {
            return None;
        }
        let (counts, words) = words.split_at_checked(n_upper as usize)?;
        let (ground, mut words) = words.split_at_checked(rows.checked_mul(2 * m)?)?;
        let mut upper = Vec::with_capacity(counts.len());
        for count in counts {
            let (nodes, rest) = words.split_at_checked(*count as usize)?;
            let (links, rest) = rest.split_at_checked((*count as usize).checked_mul(m)?)?;
            upper.push(Layer { nodes, links });
            words = rest;
        }
        words.is_empty().then_some(Self { m, ground, upper })
    }

    /// Whether all links lead to rows of their layer.
    pub fn is_sound(&self) -> bool {
        let rows = self.rows() as u32;
        let is_row = |row: &u32| *row < rows;
        self.ground.iter().all(|row| is_row(row) || *row == NONE)
            && self.upper.iter().all(|Layer { nodes, links }| {
                let is_node = |row: &u32| *row == NONE || nodes.binary_search(row).is_ok();
                !nodes.is_empty() && nodes.is_sorted_by(|a, b| a < b) && nodes.iter().all(is_row)
                    && links.iter().all(is_node)
            })
            // Who goes down finds the row in the layer below.
            && self.upper.windows(2).all(|two| two[1].nodes.iter().all(|row| two[0].nodes.binary_search(row).is_ok()))
    }

    /// The neighbours of a row in a layer, of which the lowest one is 0.
    #[inline]
    fn links(&self, layer: usize, row: u32) -> &'a [u32] {
        let Some(above) = layer.checked_sub(1) else {
            return &self.ground[row as usize * 2 * self.m..][..2 * self.m];
        };
        let Layer { nodes, links } = self.upper[above];
        // A link leads to a row of the same layer.
        let place = nodes.partition_point(|node| *node < row);
        &links[place * self.m..][..self.m]
    }

    /// Where every search begins: the first row of the highest layer.
    fn entry(&self) -> u32 {
        self.upper.last().map_or(0, |layer| layer.nodes[0])
    }

    fn rows(&self) -> usize {
        self.ground.len() / (2 * self.m)
    }

    /// The best of the `allowed` rows, the best one first, as far as they are found by keeping `breadth` of them.
    pub fn search(
        &self,
        space: &Space<'_>,
        query: &Query,
        breadth: usize,
        allowed: Option<&Bits>,
        walk: &mut Walk,
    ) -> Vec<Scored> {
        if self.ground.is_empty() {
            return Vec::new();
        }
        let entry = self.descend(space, query, 0, walk);
        self.search_layer(space, query, 0, &[entry], breadth, allowed, walk)
    }

    /// The row nearest to the query that is reached by going downhill in all layers above `to`.
    fn descend(&self, space: &Space<'_>, query: &Query, to: usize, walk: &mut Walk) -> Scored {
        walk.rows.clear();
        walk.rows.push(self.entry());
        walk.score(space, query);
        let mut nearest = Scored { score: walk.scores[0], row: walk.rows[0] };
        for layer in (to + 1..=self.upper.len()).rev() {
            loop {
                walk.rows.clear();
                let links = self.links(layer, nearest.row).iter().take_while(|row| **row != NONE);
                walk.rows.extend(links);
                walk.score(space, query);
                let scored = walk
                    .scores
                    .iter()
                    .zip(&walk.rows)
                    .map(|(score, row)| Scored { score: *score, row: *row });
                match scored.max().filter(|best| best.score > nearest.score) {
                    Some(better) => nearest = better,
                    None => break,
                }
            }
        }
        nearest
    }

    /// Algorithm 2 of the paper.
    #[allow(clippy::too_many_arguments)]
    fn search_layer(
        &self,
        space: &Space<'_>,
        query: &Query,
        layer: usize,
        entries: &[Scored],
        breadth: usize,
        allowed: Option<&Bits>,
        walk: &mut Walk,
    ) -> Vec<Scored> {
        walk.begin(self.rows());
        let is_allowed = |row: u32| allowed.is_none_or(|allowed| allowed.has(row as usize));
        let mut found = Best::new(breadth);
        for entry in entries {
            if walk.is_new(entry.row) {
                walk.ahead.push(*entry);
                if is_allowed(entry.row) {
                    found.push(*entry);
                }
            }
        }
        while let Some(next) = walk.ahead.pop() {
            if found.is_full() && next.score < found.floor() {
                break;
            }
            walk.rows.clear();
            for row in self.links(layer, next.row) {
                if *row == NONE {
                    break;
                }
                if walk.is_new(*row) {
                    space.fetch(*row);
                    walk.rows.push(*row);
                }
            }
            walk.score(space, query);
            for (score, row) in walk.scores.iter().zip(&walk.rows) {
                if !found.is_full() || *score > found.floor() {
                    let scored = Scored { score: *score, row: *row };
                    walk.ahead.push(scored);
                    if is_allowed(*row) {
                        found.push(scored);
                    }
                }
            }
        }
        found.into_sorted()
    }
}

impl GraphBuilder {
    /// A graph without rows.
    pub fn new(config: &GraphConfig) -> Self {
        Self { m: config.neighbours, ground: Vec::new(), upper: Vec::new() }
    }

    /// A copy of a graph, to go on from.
    pub fn of(graph: &Graph<'_>) -> Self {
        let upper = graph.upper.iter().map(|layer| (layer.nodes.to_vec(), layer.links.to_vec())).collect();
        Self { m: graph.m, ground: graph.ground.to_vec(), upper }
    }

    /// The rows in it.
    pub fn rows(&self) -> usize {
        self.ground.len() / (2 * self.m)
    }

    /// The graph as it lies in a file.
    pub fn words(&self) -> Vec<u32> {
        let counts = self.upper.iter().map(|(nodes, _)| nodes.len() as u32);
        let mut words = vec![MAGIC, self.rows() as u32, self.m as u32, self.upper.len() as u32];
        words.extend(counts);
        words.extend(&self.ground);
        self.upper.iter().for_each(|(nodes, links)| {
            words.extend(nodes);
            words.extend(links);
        });
        words
    }

    pub fn graph(&self) -> Graph<'_> {
        let upper = self.upper.iter().map(|(nodes, links)| Layer { nodes, links }).collect();
        Graph { m: self.m, ground: &self.ground, upper }
    }

    /// Puts in the rows up to `to`; `progress` is told how many there are.
    pub fn extend(
        &mut self,
        space: &Space<'_>,
        to: usize,
        config: &GraphConfig,
        progress: &mut dyn FnMut(usize),
    ) {
        while self.rows() < to {
            let start = self.rows();
            let group = (start / 16).clamp(1, GROUP).min(to - start);
            self.insert(space, start as u32..(start + group) as u32, config);
            progress(start + group);
        }
    }

    /// Puts in a group of rows.
    fn insert(&mut self, space: &Space<'_>, rows: Range<u32>, config: &GraphConfig) {
        let graph = self.graph();
        let all: Vec<u32> = rows.clone().collect();
        let part = all.len().div_ceil(4 * rayon::current_num_threads());
        // Of each row, its neighbours in each of its layers.
        let found: Vec<Vec<Vec<Scored>>> = all
            .par_chunks(part)
            .flat_map_iter(|rows| {
                let mut walk = Walk::default();
                let found = rows.iter().map(|row| graph.neighbours(space, *row, config, &mut walk));
                found.collect::<Vec<_>>()
            })
            .collect();
        let mut back: Vec<(usize, u32, Scored)> = Vec::new();
        for (row, layers) in rows.zip(found) {
            self.ground.resize(self.ground.len() + 2 * self.m, NONE);
            for (layer, neighbours) in layers.into_iter().enumerate() {
                if layer > 0 {
                    if self.upper.len() < layer {
                        self.upper.push((Vec::new(), Vec::new()));
                    }
                    let (nodes, links) = &mut self.upper[layer - 1];
                    nodes.push(row);
                    links.resize(links.len() + self.m, NONE);
                }
                let new: Vec<u32> = neighbours.iter().map(|found| found.row).collect();
                back.extend(neighbours.iter().map(|found| (layer, found.row, Scored { row, ..*found })));
                self.set_links(layer, row, &new);
            }
        }
        back.sort_unstable_by_key(|(layer, at, new)| (*layer, *at, new.row));
        let groups: Vec<&[(usize, u32, Scored)]> = back.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).collect();
        let graph = self.graph();
        let part = groups.len().div_ceil(8 * rayon::current_num_threads()).max(1);
        let linked: Vec<(usize, u32, Vec<u32>)> = groups
            .par_chunks(part)
            .flat_map_iter(|groups| {
                let mut walk = Walk::default();
                let linked = groups.iter().map(|new| graph.linked(space, new, &mut walk));
                linked.collect::<Vec<_>>()
            })
            .collect();
        for (layer, row, links) in linked {
            self.set_links(layer, row, &links);
        }
    }

    fn set_links(&mut self, layer: usize, row: u32, to: &[u32]) {
        let m = self.m;
        let links = match layer.checked_sub(1) {
            None => &mut self.ground[row as usize * 2 * m..][..2 * m],
            Some(above) => {
                let (nodes, links) = &mut self.upper[above];
                &mut links[nodes.partition_point(|node| *node < row) * m..][..m]
            }
        };
        links[..to.len()].copy_from_slice(to);
        links[to.len()..].fill(NONE);
    }
}

impl Graph<'_> {
    /// The neighbours that a new row is to have in each of its layers, the lowest one first (algorithm 1).
    fn neighbours(
        &self,
        space: &Space<'_>,
        row: u32,
        config: &GraphConfig,
        walk: &mut Walk,
    ) -> Vec<Vec<Scored>> {
        let top = top_layer(row, self.m, config.seed);
        let mut layers = vec![Vec::new(); top + 1];
        if self.ground.is_empty() {
            return layers;
        }
        let query = space.query_of(row);
        let highest = top.min(self.upper.len());
        let mut entries = vec![self.descend(space, &query, highest, walk)];
        for layer in (0..=highest).rev() {
            entries = self.search_layer(space, &query, layer, &entries, config.breadth, None, walk);
            layers[layer] = self.chosen(space, &entries, self.places(layer), walk);
        }
        layers
    }

    /// Neighbours of a row in a layer at most.
    fn places(&self, layer: usize) -> usize {
        if layer == 0 { 2 * self.m } else { self.m }
    }

    /// Of candidates for a row's neighbours, the best one first, those that are nearer to the row than to any chosen one
    /// before them (algorithm 4).
    fn chosen(&self, space: &Space<'_>, candidates: &[Scored], most: usize, walk: &mut Walk) -> Vec<Scored> {
        let mut chosen: Vec<Scored> = Vec::with_capacity(most);
        for candidate in candidates {
            if chosen.len() == most {
                break;
            }
            let query = space.query_of(candidate.row);
            // Few at a time: most candidates are nearer to one of the first.
            let is_near = chosen.chunks(8).any(|some| {
                walk.rows.clear();
                walk.rows.extend(some.iter().map(|chosen| chosen.row));
                walk.score(space, &query);
                walk.scores.iter().any(|score| *score > candidate.score)
            });
            if !is_near {
                chosen.push(*candidate);
            }
        }
        chosen
    }

    /// A row's neighbours in a layer once `new` ones, all of that row and layer, have linked to it.
    fn linked(
        &self,
        space: &Space<'_>,
        new: &[(usize, u32, Scored)],
        walk: &mut Walk,
    ) -> (usize, u32, Vec<u32>) {
        let (layer, row, _) = new[0];
        let old: Vec<u32> = self.links(layer, row).iter().copied().take_while(|row| *row != NONE).collect();
        if old.len() + new.len() <= self.places(layer) {
            let links = old.into_iter().chain(new.iter().map(|(_, _, new)| new.row));
            return (layer, row, links.collect());
        }
        let query = space.query_of(row);
        walk.rows.clear();
        walk.rows.extend(&old);
        walk.score(space, &query);
        let old = walk.scores.iter().zip(&walk.rows).map(|(score, row)| Scored { score: *score, row: *row });
        let mut candidates: Vec<Scored> = old.chain(new.iter().map(|(_, _, new)| *new)).collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let chosen = self.chosen(space, &candidates, self.places(layer), walk);
        (layer, row, chosen.into_iter().map(|chosen| chosen.row).collect())
    }
}

/// The highest layer that a row is in: layer `l` has one of `mˡ` rows.
fn top_layer(row: u32, m: usize, seed: u64) -> usize {
    // SplitMix64 (Steele, Lea and Flood 2014).
    let mut bits = seed.wrapping_add(u64::from(row).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    let uniform = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    ((-uniform.ln() / (m as f64).ln()) as usize).min(MOST_LAYERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Rows;

    /// Points on a line of 16 features, in an order like any other.
    fn points(n: usize) -> Vec<f32> {
        (0..n * 16).map(|i| ((i * 7919 + i / 16 * 104_729) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    fn build(values: &[f32], halves: &[f32], to: &[usize]) -> GraphBuilder {
        let space = Space { rows: Rows::F32(values), width: 16, halves: Some(halves) };
        let config = GraphConfig { neighbours: 8, breadth: 40, ..GraphConfig::default() };
        let mut builder = GraphBuilder::new(&config);
        to.iter().for_each(|to| builder.extend(&space, *to, &config, &mut |_| {}));
        builder
    }

    fn halves(values: &[f32]) -> Vec<f32> {
        values.chunks(16).map(crate::space::half_square).collect()
    }

    #[test]
    fn nearly_all_neighbours_are_found_and_only_allowed_ones() {
        let values = points(3000);
        let halves = halves(&values);
        let builder = build(&values, &halves, &[3000]);
        let words = builder.words();
        let graph = Graph::of_words(&words, 3000).unwrap();
        let space = Space { rows: Rows::F32(&values), width: 16, halves: Some(&halves) };
        let mut even = Bits::none(3000);
        (0..3000).step_by(2).for_each(|row| even.insert(row));
        let (mut walk, mut hits, mut wanted) = (Walk::default(), 0, 0);
        // More searches than there are numbers for them.
        for i in 0..300 {
            let query = space.query(&points(3300)[(3000 + i) * 16..][..16]);
            let all: Vec<u32> = (0..3000).collect();
            let mut scores = vec![0.0; 3000];
            space.scores(&query, &all, &mut Scratch::default(), &mut scores);
            for allowed in [None, Some(&even)] {
                let mut truth = Best::new(10);
                for (row, score) in (0..).zip(&scores) {
                    if allowed.is_none_or(|allowed| allowed.has(row as usize)) {
                        truth.push(Scored { score: *score, row });
                    }
                }
                let found = graph.search(&space, &query, 64, allowed, &mut walk);
                assert!(found.is_sorted_by(|a, b| a > b));
                assert!(found.iter().all(|found| found.score == scores[found.row as usize]));
                assert!(allowed.is_none() || found.iter().all(|found| found.row % 2 == 0));
                let truth = truth.into_sorted();
                hits += truth.iter().filter(|row| found.contains(row)).count();
                wanted += truth.len();
            }
        }
        assert!(hits * 100 >= wanted * 97, "{hits} of {wanted}");
    }

    #[test]
    fn a_graph_depends_on_neither_threads_nor_steps() {
        let values = points(700);
        let halves = halves(&values);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let three = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let built = [&one, &three].map(|pool| pool.install(|| build(&values, &halves, &[700])));
        assert_eq!(built[0], built[1]);
        // Stopped between, groups are others: the same layers, and as good a graph.
        let grown = build(&values, &halves, &[300, 700]);
        assert_eq!(
            grown.upper.iter().map(|(nodes, _)| nodes).collect::<Vec<_>>(),
            built[0].upper.iter().map(|(nodes, _)| nodes).collect::<Vec<_>>()
        );
        let again = GraphBuilder::of(&grown.graph());
        assert_eq!(again, grown);
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let values = points(50);
        let words = build(&values, &halves(&values), &[50]).words();
        assert!(Graph::of_words(&words, 50).is_some());
        assert!(Graph::of_words(&words, 49).is_none());
        assert!(Graph::of_words(&words[..words.len() - 1], 50).is_none());
        assert!(Graph::of_words(&[], 50).is_none());
        let mut other = words.clone();
        other[0] += 1;
        assert!(Graph::of_words(&other, 50).is_none());
    }

    #[test]
    fn rows_that_are_all_alike_are_found() {
        let values = vec![0.5; 16 * 200];
        let halves = halves(&values);
        let builder = build(&values, &halves, &[200]);
        let space = Space { rows: Rows::F32(&values), width: 16, halves: Some(&halves) };
        let query = space.query(&[0.5; 16]);
        let found = builder.graph().search(&space, &query, 10, None, &mut Walk::default());
        assert_eq!(found.len(), 10);
    }
}

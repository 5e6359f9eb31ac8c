//! Hierarchical navigable small worlds (Malkov and Yashunin 2018): a graph in which a query's neighbours are
//! found by walking from row to row.
//!
//! It is our own implementation, since the crates measured are slower than FAISS (benches/README.md). Five
//! things differ from the paper:
//!
//! - A node is a vector, not a row. Rows with the same numbers, or that differ by less than the codes'
//!   rounding, are in the lists of one node ([`Lists`]). Otherwise a thousand equal rows would link only to
//!   one another: a search could not leave them, and rows inserted later would be unreachable.
//! - A row's layers are a function of its number and the seed.
//! - Rows are inserted in groups. All rows of a group search their neighbours in the existing graph, on all
//!   threads; then they are linked. So the graph depends on neither threads nor timing, and nothing is
//!   locked. A group is at most a sixteenth of the existing rows, which has no measurable effect on recall.
//! - A new row takes up to twice `M` neighbours in the lowest layer, as in FAISS.
//! - When a graph is done, some of its nodes are searched for ([`GraphBuilder::mend`]). If too many are not
//!   found, all nodes are searched for, and lost ones are relinked. Nodes still lost are strays: each query
//!   is compared with them.

use crate::best::{Best, Scored};
use crate::bits::Bits;
use crate::config::GraphConfig;
use crate::filter::{Hash, first_half};
use crate::space::{Query, Rows, Scratch, Space, of};
use rayon::prelude::*;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// No neighbour.
const NONE: u32 = u32::MAX;
/// Maximum rows per group.
const GROUP: usize = 1024;
/// Maximum layers above the lowest one: with two neighbours, 2³² rows almost surely have no more.
const MOST_LAYERS: usize = 31;
/// The first word of a file, and of one whose nodes are rows.
const MAGIC: u32 = 0x3248_5243;
const MAGIC_OF_ROWS: u32 = 0x3148_5243;
/// Maximum vectors of a node besides its own, all compared with a passing query.
const MOST_NEAR: usize = 256;
/// Number of nodes searched for when a graph is finished, and the breadth of that search.
const SAMPLE: usize = 500;
const BREADTH: usize = 64;
/// Cost of one graph step, in scanned rows.
pub(crate) const SCANNED: usize = 4;
/// Number of rounds of relinking lost nodes.
const ROUNDS: usize = 3;

/// A graph that can be searched.
#[derive(Debug, Clone)]
pub(crate) struct Graph<'a> {
    /// Neighbours of a row in the upper layers.
    m: usize,
    /// Neighbours of each row in the lowest layer, in `2·m` slots each.
    ground: &'a [u32],
    /// The layers above it, the lowest one first.
    upper: Vec<Layer<'a>>,
    /// For a vector's first row, the other rows with the same numbers.
    equal: Lists<'a>,
    /// For a node, the first rows of the vectors equivalent to its own.
    near: Lists<'a>,
    /// Unreachable nodes.
    strays: &'a [u32],
    /// Whether a node is a vector; in graphs of earlier versions a node was a row.
    is_current: bool,
}

/// Lists of rows, for some rows.
#[derive(Debug, Clone, Copy, Default)]
struct Lists<'a> {
    /// The rows that have a list, in order.
    of: &'a [u32],
    /// Where each list ends.
    ends: &'a [u32],
    rows: &'a [u32],
}

impl<'a> Lists<'a> {
    /// The list of a row; most have none.
    #[inline]
    fn get(&self, row: u32) -> &'a [u32] {
        let Ok(place) = self.of.binary_search(&row) else { return &[] };
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.rows[start..self.ends[place] as usize]
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &'a [u32])> {
        self.of.iter().map(|row| (*row, self.get(*row)))
    }

    fn is_sound(&self, rows: u32) -> bool {
        let is_row = |row: &u32| *row < rows;
        self.of.is_sorted_by(|a, b| a < b)
            && self.of.iter().all(is_row)
            && self.rows.iter().all(is_row)
            && self.ends.is_sorted()
            && self.ends.last().map_or(0, |end| *end as usize) == self.rows.len()
    }
}

/// The rows that may be found.
#[derive(Debug)]
pub(crate) struct Allowed<'a> {
    rows: &'a Bits,
    /// The nodes that have such a row.
    nodes: Bits,
    /// Number of rows.
    count: usize,
}

/// A graph query's settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Nodes kept during the search.
    pub breadth: usize,
    /// Maximum rows returned.
    pub rows: usize,
    /// The rows that may be found; `None` if all may.
    pub allowed: Option<&'a Allowed<'a>>,
}

/// A layer of some of the rows.
#[derive(Debug, Clone, Copy)]
struct Layer<'a> {
    /// The rows in it, in order.
    nodes: &'a [u32],
    /// The neighbours of each, in `m` slots each.
    links: &'a [u32],
}

/// A graph under construction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GraphBuilder {
    m: usize,
    ground: Vec<u32>,
    upper: Vec<(Vec<u32>, Vec<u32>)>,
    equal: BTreeMap<u32, Vec<u32>>,
    near: BTreeMap<u32, Vec<u32>>,
    strays: Vec<u32>,
    /// Number of rows that are nodes.
    nodes: usize,
}

/// Scratch memory of a search, reused.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The number of the search that last saw each row, of the last 255.
    seen: Vec<u8>,
    search: u8,
    ahead: BinaryHeap<Scored>,
    rows: Vec<u32>,
    scores: Vec<f32>,
    scratch: Scratch,
    /// Number of rows compared.
    compared: usize,
}

impl Walk {
    fn begin(&mut self, rows: usize) {
        if self.seen.len() < rows || self.search == u8::MAX {
            self.seen.clear();
            self.seen.resize(rows, 0);
            self.search = 0;
        }
        self.search += 1;
        self.compared = 0;
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

    /// The rows compared last, with their scores.
    fn scored(&self) -> impl Iterator<Item = Scored> {
        self.scores.iter().zip(&self.rows).map(|(score, row)| Scored { score: *score, row: *row })
    }

    /// Scores of `self.rows`.
    fn score(&mut self, space: &Space<'_>, query: &Query) {
        self.scores.resize(self.rows.len(), 0.0);
        self.compared += self.rows.len();
        space.scores(query, &self.rows, &mut self.scratch, &mut self.scores);
    }
}

impl<'a> Graph<'a> {
    /// A graph from [`GraphBuilder::words`]; `None` if invalid.
    pub fn of_words(words: &'a [u32], rows: usize) -> Option<Self> {
        let (&[magic, found, m, n_upper], words) = words.split_first_chunk()?;
        let m = m as usize;
        let is_current = magic == MAGIC;
        if !(is_current || magic == MAGIC_OF_ROWS)
            || found as usize != rows
            || !(2..=256).contains(&m)
            || n_upper as usize > MOST_LAYERS
        {
            return None;
        }
        let (counts, words) = words.split_at_checked(n_upper as usize)?;
        let (lengths, words) = words.split_at_checked(if is_current { 5 } else { 0 })?;
        let (ground, mut words) = words.split_at_checked(rows.checked_mul(2 * m)?)?;
        let mut take = |count: usize| {
            let (taken, rest) = words.split_at_checked(count)?;
            words = rest;
            Some(taken)
        };
        let mut upper = Vec::with_capacity(counts.len());
        for count in counts {
            let nodes = take(*count as usize)?;
            upper.push(Layer { nodes, links: take((*count as usize).checked_mul(m)?)? });
        }
        let mut lists = |lists: &[u32]| {
            let (of, ends) = (take(lists[0] as usize)?, take(lists[0] as usize)?);
            Some(Lists { of, ends, rows: take(lists[1] as usize)? })
        };
        let (mut equal, mut near, mut strays) = (Lists::default(), Lists::default(), &[][..]);
        if is_current {
            (equal, near) = (lists(&lengths[..2])?, lists(&lengths[2..4])?);
            strays = take(lengths[4] as usize)?;
        }
        words.is_empty().then_some(Self { m, ground, upper, equal, near, strays, is_current })
    }

    /// Whether all links lead to rows of their layer, and all lists to rows.
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
            && self.equal.is_sound(rows)
            && self.near.is_sound(rows)
            && self.strays.iter().all(is_row)
    }

    /// Whether rows with equal vectors are one node, as in graphs of the current version.
    pub fn is_current(&self) -> bool {
        self.is_current
    }

    /// Number of unreachable nodes, which are compared with each query.
    pub fn strays(&self) -> usize {
        self.strays.len()
    }

    /// The filter for a search that may find only these rows.
    pub fn allow<'b>(&self, rows: &'b Bits, count: usize) -> Allowed<'b> {
        let mut nodes = rows.clone();
        for lists in [self.equal, self.near] {
            for (of, list) in lists.iter() {
                if list.iter().any(|row| nodes.has(*row as usize)) {
                    nodes.insert(of as usize);
                }
            }
        }
        Allowed { rows, nodes, count }
    }

    /// The neighbours of a row in a layer; 0 is the lowest.
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

    /// The entry point of every search: the first row of the highest layer.
    fn entry(&self) -> u32 {
        self.upper.last().map_or(0, |layer| layer.nodes[0])
    }

    fn rows(&self) -> usize {
        self.ground.len() / (2 * self.m)
    }

    /// The best rows, best first, found while keeping [`Wanted::breadth`] nodes; `None` if so few allowed
    /// rows are near the query that scanning them is as fast.
    pub fn search(
        &self,
        space: &Space<'_>,
        query: &Query,
        wanted: Wanted<'_>,
        walk: &mut Walk,
    ) -> Option<Vec<Scored>> {
        if self.ground.is_empty() {
            return Some(Vec::new());
        }
        let entry = self.descend(space, query, 0, walk);
        let mut nodes = self.search_layer(space, query, 0, &[entry], wanted, walk)?;
        walk.rows.clear();
        walk.rows.extend(self.strays.iter().filter(|row| walk.seen[**row as usize] != walk.search));
        walk.score(space, query);
        nodes.extend(walk.scored());
        let allowed = wanted.allowed.map(|allowed| allowed.rows);
        let mut best = Best::new(wanted.rows);
        for node in nodes {
            self.push(node, allowed, &mut best);
            walk.rows.clear();
            walk.rows.extend(self.near.get(node.row));
            walk.score(space, query);
            walk.scored().for_each(|vector| self.push(vector, allowed, &mut best));
        }
        Some(best.into_sorted())
    }

    /// Pushes the rows of a vector to `best`.
    fn push(&self, vector: Scored, allowed: Option<&Bits>, best: &mut Best) {
        let is_allowed = |row: &u32| allowed.is_none_or(|allowed| allowed.has(*row as usize));
        for row in std::iter::once(vector.row).chain(self.equal.get(vector.row).iter().copied()) {
            // They are alike, and the first ones are the better.
            if best.is_full() && best.floor() > vector.score {
                return;
            }
            if is_allowed(&row) {
                best.push(Scored { row, ..vector });
            }
        }
    }

    /// The row nearest to the query reached by greedy descent through all layers above `to`.
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
                match walk.scored().max().filter(|best| best.score > nearest.score) {
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
        wanted: Wanted<'_>,
        walk: &mut Walk,
    ) -> Option<Vec<Scored>> {
        walk.begin(self.rows());
        let is_allowed = |row: u32| wanted.allowed.is_none_or(|allowed| allowed.nodes.has(row as usize));
        let most = wanted.allowed.map_or(usize::MAX, |allowed| allowed.count / SCANNED);
        let mut found = Best::new(wanted.breadth);
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
            if walk.compared > most {
                return None;
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
        Some(found.into_sorted())
    }

    /// The best nodes of a layer, unfiltered.
    fn nodes(
        &self,
        space: &Space<'_>,
        query: &Query,
        layer: usize,
        entries: &[Scored],
        breadth: usize,
        walk: &mut Walk,
    ) -> Vec<Scored> {
        let wanted = Wanted { breadth, rows: 0, allowed: None };
        self.search_layer(space, query, layer, entries, wanted, walk).expect("all rows may be found")
    }
}

impl GraphBuilder {
    /// A graph without rows.
    pub fn new(config: &GraphConfig) -> Self {
        let (ground, upper, strays) = (Vec::new(), Vec::new(), Vec::new());
        let (equal, near) = (BTreeMap::new(), BTreeMap::new());
        Self { m: config.neighbours, ground, upper, equal, near, strays, nodes: 0 }
    }

    /// A copy of a graph, to extend.
    pub fn of(graph: &Graph<'_>) -> Self {
        let upper = graph.upper.iter().map(|layer| (layer.nodes.to_vec(), layer.links.to_vec())).collect();
        let lists = |lists: Lists<'_>| lists.iter().map(|(of, list)| (of, list.to_vec())).collect();
        Self {
            m: graph.m,
            ground: graph.ground.to_vec(),
            upper,
            equal: lists(graph.equal),
            near: lists(graph.near),
            strays: graph.strays.to_vec(),
            nodes: graph.rows() - graph.equal.rows.len() - graph.near.rows.len(),
        }
    }

    /// The rows in it.
    pub fn rows(&self) -> usize {
        self.ground.len() / (2 * self.m)
    }

    /// The graph in file form.
    pub fn words(&self) -> Vec<u32> {
        let counts = self.upper.iter().map(|(nodes, _)| nodes.len() as u32);
        let mut words = vec![MAGIC, self.rows() as u32, self.m as u32, self.upper.len() as u32];
        words.extend(counts);
        let lists = [&self.equal, &self.near];
        for lists in lists {
            words.extend([lists.len() as u32, lists.values().map(Vec::len).sum::<usize>() as u32]);
        }
        words.push(self.strays.len() as u32);
        words.extend(&self.ground);
        self.upper.iter().for_each(|(nodes, links)| {
            words.extend(nodes);
            words.extend(links);
        });
        for lists in lists {
            words.extend(lists.keys());
            words.extend(lists.values().scan(0, |end, list| {
                *end += list.len() as u32;
                Some(*end)
            }));
            words.extend(lists.values().flatten());
        }
        words.extend(&self.strays);
        words
    }

    /// The graph of the nodes, without lists.
    fn links(&self) -> Graph<'_> {
        let upper = self.upper.iter().map(|(nodes, links)| Layer { nodes, links }).collect();
        let (equal, near) = (Lists::default(), Lists::default());
        Graph { m: self.m, ground: &self.ground, upper, equal, near, strays: &[], is_current: true }
    }

    /// Inserts the rows up to `to`; `progress` receives the number inserted.
    pub fn extend(
        &mut self,
        space: &Space<'_>,
        to: usize,
        config: &GraphConfig,
        progress: &mut dyn FnMut(usize),
    ) {
        let hashes: Vec<Hash> = (0..to as u32).into_par_iter().map(|row| hash(space, row)).collect();
        let squares: Vec<f32> = (0..to as u32).into_par_iter().map(|row| square(space, row)).collect();
        let mut first: HashMap<Hash, u32> = HashMap::with_capacity(to);
        for (row, hash) in (0..).zip(&hashes[..self.rows()]) {
            first.entry(*hash).or_insert(row);
        }
        while self.rows() < to {
            let group = (self.nodes / 16).clamp(1, GROUP);
            let mut vectors = Vec::with_capacity(group);
            let mut row = self.rows();
            while row < to && vectors.len() < group {
                match first.get(&hashes[row]) {
                    Some(first) => self.equal.entry(*first).or_default().push(row as u32),
                    None => {
                        first.insert(hashes[row], row as u32);
                        vectors.push(row as u32);
                    }
                }
                row += 1;
            }
            self.insert(space, &squares, &vectors, row, config);
            progress(row);
        }
    }

    /// Inserts a group of rows with new vectors, and makes room for all rows up to `to`.
    fn insert(&mut self, space: &Space<'_>, squares: &[f32], rows: &[u32], to: usize, config: &GraphConfig) {
        let graph = self.links();
        let part = rows.len().div_ceil(4 * rayon::current_num_threads()).max(1);
        let found: Vec<Neighbours> = rows
            .par_chunks(part)
            .flat_map_iter(|rows| {
                let mut walk = Walk::default();
                let found = rows.iter().map(|row| graph.neighbours(space, squares, *row, config, &mut walk));
                found.collect::<Vec<_>>()
            })
            .collect();
        self.ground.resize(to * 2 * self.m, NONE);
        let mut back: Vec<(usize, u32, Scored)> = Vec::new();
        // The group's own nodes, by the node that is nearest to them: rows that are near one another have the same.
        let mut together: HashMap<Option<u32>, Vec<u32>> = HashMap::new();
        let mut walk = Walk::default();
        for (row, Neighbours { layers, near }) in rows.iter().copied().zip(found) {
            let has_room = |node: &u32| self.near.get(node).is_none_or(|near| near.len() < MOST_NEAR);
            let nearest = layers[0].first().map(|nearest| nearest.row);
            let own = together.entry(nearest).or_default();
            let node = near.into_iter().find(has_room).or_else(|| {
                walk.rows.clone_from(own);
                walk.score(space, &space.query_of(row));
                let near = walk.scored().find(|own| is_near(space, squares, row, *own) && has_room(&own.row));
                near.map(|own| own.row)
            });
            if let Some(node) = node {
                self.near.entry(node).or_default().push(row);
                continue;
            }
            own.push(row);
            self.nodes += 1;
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
        let graph = self.links();
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

    /// Searches for some nodes and, if too many are not found, for all. Lost nodes are linked from the nodes
    /// nearest to them, replacing the farthest link; those still lost are strays.
    pub fn mend(&mut self, space: &Space<'_>) {
        let listed: std::collections::HashSet<u32> =
            self.equal.values().chain(self.near.values()).flatten().copied().collect();
        let nodes: Vec<u32> = (0..self.rows() as u32).filter(|row| !listed.contains(row)).collect();
        self.strays.clear();
        let some: Vec<u32> = nodes.iter().copied().step_by(nodes.len().div_ceil(SAMPLE).max(1)).collect();
        // One in two hundred is what a good graph may lose by its nature, and more than a sample can tell.
        let lost = self.lost(space, &some).len();
        if lost == 0 || some.len() < nodes.len() && lost * 200 <= some.len() {
            return;
        }
        for round in 0.. {
            let lost = self.lost(space, &nodes);
            if lost.is_empty() {
                return;
            }
            if round == ROUNDS || lost.len() <= nodes.len() / 1000 + 16 {
                self.strays = lost.into_iter().map(|(node, _)| node).collect();
                return;
            }
            let mut back: Vec<(u32, u32)> = lost
                .into_iter()
                .flat_map(|(node, nearest)| nearest.into_iter().map(move |near| (near.row, node)))
                .collect();
            back.sort_unstable();
            for new in back.chunk_by(|a, b| a.0 == b.0) {
                let at = new[0].0 as usize * 2 * self.m;
                let links = &mut self.ground[at..][..2 * self.m];
                let end = links.iter().position(|row| *row == NONE).unwrap_or(links.len());
                // Links are in no order of their lengths once others were added; half of them stay.
                let start = end.min(links.len().saturating_sub(new.len()).max(self.m));
                let new = new.iter().map(|(_, node)| *node).filter(|node| !links[..start].contains(node));
                let new: Vec<u32> = new.collect();
                links[start..].iter_mut().zip(new).for_each(|(link, node)| *link = node);
            }
        }
    }

    /// The nodes that a search for them does not find, although none is as near, each with the nearest nodes
    /// found.
    fn lost(&self, space: &Space<'_>, nodes: &[u32]) -> Vec<(u32, Vec<Scored>)> {
        let graph = self.links();
        let part = nodes.len().div_ceil(4 * rayon::current_num_threads()).max(1);
        let of_part = |nodes: &[u32]| {
            let mut walk = Walk::default();
            let lost = |node: &u32| {
                let query = space.query_of(*node);
                let entry = graph.descend(space, &query, 0, &mut walk);
                let found = graph.nodes(space, &query, 0, &[entry], BREADTH, &mut walk);
                walk.rows.clear();
                walk.rows.push(*node);
                walk.score(space, &query);
                let own = walk.scores[0];
                let is_lost = found.iter().all(|found| found.row != *node)
                    && (found.len() < BREADTH || found[BREADTH - 1].score < own);
                is_lost.then(|| (*node, found.into_iter().take(2).collect()))
            };
            nodes.iter().filter_map(lost).collect::<Vec<_>>()
        };
        nodes.par_chunks(part).flat_map_iter(of_part).collect()
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
    /// A new row's neighbours in each of its layers (algorithm 1), and the nodes equivalent to it.
    fn neighbours(
        &self,
        space: &Space<'_>,
        squares: &[f32],
        row: u32,
        config: &GraphConfig,
        walk: &mut Walk,
    ) -> Neighbours {
        let top = top_layer(row, self.m, config.seed);
        let (mut layers, mut near) = (vec![Vec::new(); top + 1], Vec::new());
        if self.ground.is_empty() {
            return Neighbours { layers, near };
        }
        let query = space.query_of(row);
        let highest = top.min(self.upper.len());
        let mut entries = vec![self.descend(space, &query, highest, walk)];
        for layer in (0..=highest).rev() {
            entries = self.nodes(space, &query, layer, &entries, config.breadth, walk);
            if layer == 0 {
                let is_near = |found: &&Scored| is_near(space, squares, row, **found);
                near = entries.iter().filter(is_near).map(|found| found.row).collect();
            }
            layers[layer] = self.chosen(space, &entries, self.places(layer), walk);
        }
        Neighbours { layers, near }
    }

    /// Maximum neighbours of a row in a layer.
    fn places(&self, layer: usize) -> usize {
        if layer == 0 { 2 * self.m } else { self.m }
    }

    /// From a row's candidate neighbours, best first, selects those nearer to the row than to any neighbour
    /// already chosen (algorithm 4).
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

    /// A row's neighbours in a layer after adding the links `new`, all for that row and layer.
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
        let mut candidates: Vec<Scored> = walk.scored().chain(new.iter().map(|(_, _, new)| *new)).collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let chosen = self.chosen(space, &candidates, self.places(layer), walk);
        (layer, row, chosen.into_iter().map(|chosen| chosen.row).collect())
    }
}

/// The search results for a new row before insertion.
struct Neighbours {
    /// Its neighbours in each of its layers, lowest first.
    layers: Vec<Vec<Scored>>,
    /// The nodes equivalent to it.
    near: Vec<u32>,
}

/// A hash of the numbers by which a row is compared.
fn hash(space: &Space<'_>, row: u32) -> Hash {
    let mut hasher = blake3::Hasher::new();
    let half = space.halves.map_or(0.0, |halves| halves[row as usize]);
    hasher.update(&half.to_le_bytes());
    match space.rows {
        Rows::F32(values) => hasher.update(bytemuck::cast_slice(of(values, space.width, row))),
        Rows::Bf16(values) => hasher.update(bytemuck::cast_slice(of(values, space.width, row))),
        Rows::Int8 { scales, codes } => hasher
            .update(&scales[row as usize].to_le_bytes())
            .update(bytemuck::cast_slice(of(codes, space.width, row))),
        Rows::Binary(codes) => hasher.update(bytemuck::cast_slice(of(codes, space.width.div_ceil(64), row))),
    };
    first_half(hasher.finalize())
}

/// The squared norm of a row's numbers; 0 for bits, which do not need it.
fn square(space: &Space<'_>, row: u32) -> f32 {
    if matches!(space.rows, Rows::Binary(_)) {
        return 0.0;
    }
    let mut score = [0.0];
    space.scores(&space.query_of(row), &[row], &mut Scratch::default(), &mut score);
    score[0] + 2.0 * space.half(row)
}

/// Whether a row's numbers differ from those compared only as much as rounding and computation may cause for
/// the same text: by 0.3 % of its norm, 1.4 % in 8 bits, or 2 % of its bits.
fn is_near(space: &Space<'_>, squares: &[f32], row: u32, found: Scored) -> bool {
    if matches!(space.rows, Rows::Binary(_)) {
        return -found.score <= 0.02 * space.width as f32;
    }
    // Of Euclidean distances, too, by the product: the halves are of the vectors, and not of their codes.
    let product = found.score + space.half(row) + space.half(found.row);
    let (own, other) = (squares[row as usize], squares[found.row as usize]);
    let most = if matches!(space.rows, Rows::Int8 { .. }) { 2e-4 } else { 1e-5 };
    own + other - 2.0 * product <= most * own
}

/// A row's highest layer: layer `l` has one in `mˡ` rows.
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

    /// Points on a line of 16 features, in an arbitrary order.
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
        let (mut walk, mut hits, mut n_wanted) = (Walk::default(), 0, 0);
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
                let of = allowed.map(|rows| graph.allow(rows, usize::MAX));
                let wanted = Wanted { breadth: 64, rows: 64, allowed: of.as_ref() };
                let found = graph.search(&space, &query, wanted, &mut walk).unwrap();
                assert!(found.is_sorted_by(|a, b| a > b));
                assert!(found.iter().all(|found| found.score == scores[found.row as usize]));
                assert!(allowed.is_none() || found.iter().all(|found| found.row % 2 == 0));
                let truth = truth.into_sorted();
                hits += truth.iter().filter(|row| found.contains(row)).count();
                n_wanted += truth.len();
            }
        }
        assert!(hits * 100 >= n_wanted * 97, "{hits} of {n_wanted}");
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
        let again = GraphBuilder::of(&Graph::of_words(&grown.words(), 700).unwrap());
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
    fn a_graph_of_an_earlier_version_is_read() {
        let values = points(50);
        let halves = halves(&values);
        let words = build(&values, &halves, &[50]).words();
        let n_upper = words[3] as usize;
        // Without lists: five lengths, which are 0 here.
        let mut old = [&[MAGIC_OF_ROWS], &words[1..4 + n_upper]].concat();
        assert_eq!(words[4 + n_upper..][..5], [0; 5]);
        old.extend(&words[9 + n_upper..]);
        let graph = Graph::of_words(&old, 50).unwrap();
        assert!(graph.is_sound() && !graph.is_current());
        let space = Space { rows: Rows::F32(&values), width: 16, halves: Some(&halves) };
        let wanted = Wanted { breadth: 50, rows: 50, allowed: None };
        let found = graph.search(&space, &space.query(&values[..16]), wanted, &mut Walk::default()).unwrap();
        assert_eq!((found.len(), found[0].row), (50, 0));
    }

    /// Unreachable nodes are linked, and those not linked are compared with each query.
    #[test]
    fn what_no_way_leads_to_is_mended() {
        let values = points(600);
        let halves = halves(&values);
        let space = Space { rows: Rows::F32(&values), width: 16, halves: Some(&halves) };
        let mut builder = build(&values, &halves, &[600]);
        // All ways to a fifth of the nodes are cut.
        let cut = |row: u32| row % 5 == 2;
        for links in builder.ground.chunks_exact_mut(2 * builder.m) {
            let kept: Vec<u32> = links.iter().copied().filter(|row| *row != NONE && !cut(*row)).collect();
            links[..kept.len()].copy_from_slice(&kept);
            links[kept.len()..].fill(NONE);
        }
        for (nodes, links) in &mut builder.upper {
            assert_eq!(nodes.len() * builder.m, links.len());
            links.fill(NONE);
        }
        let found = |builder: &GraphBuilder| {
            let words = builder.words();
            let graph = Graph::of_words(&words, 600).unwrap();
            assert!(graph.is_sound());
            let wanted = Wanted { breadth: BREADTH, rows: 10, allowed: None };
            let is_found = |row: &u32| {
                let query = space.query_of(*row);
                graph.search(&space, &query, wanted, &mut Walk::default()).unwrap()[0].row == *row
            };
            (0..600).filter(|row| is_found(row)).count()
        };
        let before = found(&builder);
        assert!(before <= 500, "{before}");
        builder.mend(&space);
        assert_eq!(found(&builder), 600);
        // Where no link can be made, nothing is lost either.
        for links in builder.ground.chunks_exact_mut(2 * builder.m) {
            links.fill(NONE);
        }
        builder.strays = (0..600).collect();
        assert_eq!(found(&builder), 600);
    }

    #[test]
    fn rows_that_are_all_alike_are_found() {
        let values = vec![0.5; 16 * 200];
        let halves = halves(&values);
        let builder = build(&values, &halves, &[200]);
        let space = Space { rows: Rows::F32(&values), width: 16, halves: Some(&halves) };
        let query = space.query(&[0.5; 16]);
        let words = builder.words();
        let wanted = Wanted { breadth: 10, rows: 12, allowed: None };
        let found =
            Graph::of_words(&words, 200).unwrap().search(&space, &query, wanted, &mut Walk::default());
        let rows: Vec<u32> = found.unwrap().iter().map(|found| found.row).collect();
        assert_eq!(rows, (0..12).collect::<Vec<u32>>());
    }
}

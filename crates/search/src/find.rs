//! Nearest-neighbour search in an index.

use crate::best::Scored;
use crate::bits::Bits;
use crate::graph::{SCANNED, Walk, Wanted};
use crate::scan::scan;
use crate::segment::Segment;
use crate::space::{Query, Rows, exact};
use crate::{Index, IndexConfig, Method, Metric, Result, SearchConfig, SearchError};
use rayon::prelude::*;

/// A row that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The cosine, dot product or Euclidean distance of the stored vector.
    pub score: f64,
    /// Which row it is, for [`Index::row`].
    pub place: Place,
}

/// A row's place in an index, valid while the index is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub(crate) segment: usize,
    pub(crate) row: u32,
}

/// Maximum queries processed together, and their total candidates.
const AT_ONCE: usize = 1024;
const CANDIDATES: usize = 1 << 22;
/// Rows beyond `k` that are rescored in 64 bits, so that rounding misses none.
const MARGIN: usize = 8;
/// Candidates whose memory is prefetched before rescoring.
const AHEAD: usize = 4;
/// If rows are so similar that 8 bits may order them wrongly, this many times as many are rescored; also the
/// limit.
const WIDER: usize = 4;
const MOST_RESCORED: usize = 4096;
/// Scores with a smaller relative difference belong to the same text.
const ALIKE: f64 = 1e-6;
/// Rows that a graph search compares with a query, per row kept.
const STEPS: usize = 24;

impl Index {
    /// The `k` nearest rows of each query, nearest first; fewer if fewer rows meet the conditions. Ties go to
    /// the rows added first.
    ///
    /// `queries` are vectors of [`width`](IndexConfig::width) features, concatenated.
    ///
    /// # Errors
    /// [`SearchError::Setting`]; [`SearchError::UnknownField`]; [`SearchError::Vector`] for queries of
    /// another width, with non-finite features, or zero if the metric is cosine.
    pub fn find(&self, queries: &[f32], config: &SearchConfig) -> Result<Vec<Vec<Found>>> {
        config.check()?;
        self.check_fields(config)?;
        let index = self.config();
        let queries = prepared(queries, index, "query")?;
        let mut found = Vec::with_capacity(queries.len() / index.width);
        let n = queries.len() / index.width;
        let at_once = (CANDIDATES / config.candidates()).clamp(16, AT_ONCE);
        // Parts of like size: a few queries that were left over would be summed in another order.
        let part = n.div_ceil(n.div_ceil(at_once).max(1)).max(1);
        for queries in queries.chunks(part * index.width) {
            let mut all: Vec<Vec<Found>> = vec![Vec::new(); queries.len() / index.width];
            for (number, segment) in self.segments().iter().enumerate() {
                let of_segment = of_segment(number, segment, queries, index, config);
                for (all, of_segment) in all.iter_mut().zip(of_segment) {
                    all.extend(of_segment);
                }
            }
            all.iter_mut().for_each(|all| keep_best(all, index.metric, config.k));
            found.extend(all);
        }
        Ok(found)
    }

    /// Checks that the fields in conditions exist.
    fn check_fields(&self, config: &SearchConfig) -> Result<()> {
        let Some(fields) = self.fields().filter(|_| !self.is_empty()) else { return Ok(()) };
        let unknown = config.conditions.iter().find(|condition| !fields.contains(&condition.key));
        unknown.map_or(Ok(()), |condition| {
            let names: Vec<String> = fields.iter().map(|field| format!("{field:?}")).collect();
            let known = match &names[..] {
                [] => {
                    "its rows were added without fields: name them with --field where rows are added".into()
                }
                names => format!("there are {}", names.join(", ")),
            };
            Err(SearchError::UnknownField { field: condition.key.clone(), known })
        })
    }

    /// The share of true neighbours that `config` finds, averaged over all queries that have any.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn recall(&self, queries: &[f32], config: &SearchConfig) -> Result<f64> {
        let truth = self.find(queries, &SearchConfig { method: Method::Exact, ..config.clone() })?;
        Ok(recall(&self.find(queries, config)?, &truth))
    }
}

impl SearchConfig {
    /// Maximum rows rescored by their vectors after a search by codes.
    fn candidates(&self) -> usize {
        self.k.saturating_mul(self.rescored).max(self.k.saturating_add(MARGIN))
    }
}

/// The share of true neighbours found, averaged over all queries that have any; 1 if none has.
pub fn recall(found: &[Vec<Found>], truth: &[Vec<Found>]) -> f64 {
    let shares = found.iter().zip(truth).filter(|(_, truth)| !truth.is_empty()).map(|(found, truth)| {
        let hits = truth.iter().filter(|truth| found.iter().any(|found| found.place == truth.place));
        hits.count() as f64 / truth.len() as f64
    });
    let (sum, n) = shares.fold((0.0, 0), |(sum, n), share| (sum + share, n + 1));
    if n == 0 { 1.0 } else { sum / f64::from(n) }
}

/// Vectors in the form compared and stored: finite, and of length 1 for cosines.
pub(crate) fn prepared(vectors: &[f32], config: &IndexConfig, what: &'static str) -> Result<Vec<f32>> {
    let width = config.width;
    let wrong = |place, problem| Err(SearchError::Vector { what, place, problem });
    if !vectors.len().is_multiple_of(width) {
        let problem =
            format!("{} features for vectors of {width}; the index has {width} per vector", vectors.len());
        return wrong(vectors.len() / width, problem);
    }
    let mut prepared = vectors.to_vec();
    for (place, vector) in prepared.chunks_exact_mut(width).enumerate() {
        if let Some(feature) = vector.iter().position(|x| !x.is_finite()) {
            let problem =
                format!("feature {feature} of the vector is {}; expected a finite number", vector[feature]);
            return wrong(place, problem);
        }
        // A product of two vectors stays finite in 32 bits.
        if let Some(feature) = vector.iter().position(|x| x.abs() > 1e16) {
            let problem =
                format!("feature {feature} of the vector is {}; expected at most 1e16", vector[feature]);
            return wrong(place, problem);
        }
        if config.metric == Metric::Cosine {
            let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
            if norm < 1e-30 {
                return wrong(place, "the vector is zero, which has no direction to compare".into());
            }
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
        }
    }
    Ok(prepared)
}

/// Sorts rows, and keeps the `k` best.
fn keep_best(found: &mut Vec<Found>, metric: Metric, k: usize) {
    found.sort_unstable_by(|a, b| {
        let order = match metric {
            Metric::Euclidean => a.score.total_cmp(&b.score),
            Metric::Cosine | Metric::Dot => b.score.total_cmp(&a.score),
        };
        order.then(a.place.cmp(&b.place))
    });
    found.truncate(k);
}

/// The best rows of a segment for each query.
fn of_segment(
    number: usize,
    segment: &Segment,
    queries: &[f32],
    index: &IndexConfig,
    config: &SearchConfig,
) -> Vec<Vec<Found>> {
    let allowed = allowed(segment, config);
    let n_allowed = allowed.as_ref().map_or(segment.rows(), Bits::count);
    if n_allowed == 0 {
        return Vec::new();
    }
    let allowed = allowed.as_ref();
    let breadth = config.breadth.max(config.k);
    let graph = segment.graph().filter(|_| config.method == Method::Auto);
    // Where few rows are allowed, the walk to so many of them takes longer than to look at each.
    let steps = STEPS.saturating_mul(breadth).saturating_mul(segment.rows() / n_allowed);
    let graph = graph.filter(|_| allowed.is_none() || steps.saturating_mul(SCANNED) < n_allowed);
    let space = match config.method {
        Method::Exact => segment.vectors(index),
        Method::Auto | Method::Codes => segment.short(index),
    };
    let queries: Vec<&[f32]> = queries.chunks_exact(index.width).collect();
    let vectors = segment.vectors(index);
    let is_int8 = matches!(space.rows, Rows::Int8 { .. });
    let again = |query: &[f32], candidates: Vec<Scored>| {
        let mut vector = vec![0.0; index.width];
        let mut found = Vec::with_capacity(candidates.len());
        let (mut error, mut worst) = (0f64, f64::INFINITY);
        for (place, Scored { row, score }) in candidates.iter().enumerate() {
            if let Some(soon) = candidates.get(place + AHEAD) {
                vectors.fetch(soon.row);
            }
            vectors.read(*row, &mut vector);
            let true_score = exact(index.metric, query, &vector);
            let comparable = comparable(index.metric, true_score);
            error = error.max((comparable - f64::from(*score)).abs());
            worst = worst.min(comparable);
            found.push(Found { score: true_score, place: Place { segment: number, row: *row } });
        }
        keep_best(&mut found, index.metric, config.k);
        let is_sure = !is_int8 || candidates.len() >= n_allowed || {
            let last = candidates.last().map_or(f64::NEG_INFINITY, |last| f64::from(last.score));
            let least = found.last().map_or(f64::NEG_INFINITY, |found| comparable(index.metric, found.score));
            found.len() == config.k && (last + error < least || least - worst <= ALIKE * least.abs())
        };
        Compared { found, is_sure }
    };
    let rescored = config.candidates();
    let is_exact = config.method == Method::Exact || matches!(space.rows, Rows::F32(_) | Rows::Bf16(_));
    let scanned = |queries: &[&[f32]]| -> Vec<Vec<Found>> {
        let mut all = vec![Vec::new(); queries.len()];
        let mut open: Vec<usize> = (0..queries.len()).collect();
        let mut most = if is_exact { config.k + MARGIN } else { rescored };
        while !open.is_empty() {
            let asked: Vec<Query> = open.iter().map(|place| space.query(queries[*place])).collect();
            let candidates = scan(&space, &asked, segment.rows(), allowed, most);
            let compared = open
                .par_iter()
                .zip(candidates)
                .map(|(place, candidates)| (*place, again(queries[*place], candidates)));
            let compared: Vec<(usize, Compared)> = compared.collect();
            open = compared.iter().filter(|(_, found)| !found.is_sure).map(|(place, _)| *place).collect();
            compared.into_iter().for_each(|(place, compared)| all[place] = compared.found);
            if most >= MOST_RESCORED {
                break;
            }
            most = most.saturating_mul(WIDER);
        }
        all
    };
    if let Some(graph) = graph {
        let of_graph = allowed.map(|rows| graph.allow(rows, n_allowed));
        let wanted = Wanted { breadth, rows: rescored, allowed: of_graph.as_ref() };
        let part = queries.len().div_ceil(4 * rayon::current_num_threads()).max(1);
        let walked = queries.par_chunks(part).flat_map_iter(|queries| {
            let mut walk = Walk::default();
            let found = queries.iter().map(|query| {
                let candidates = graph.search(&space, &space.query(query), wanted, &mut walk);
                let candidates = candidates.filter(|found| found.len() >= config.k.min(n_allowed));
                let compared = candidates.map(|candidates| again(query, candidates));
                compared.filter(|compared| compared.is_sure).map(|compared| compared.found)
            });
            found.collect::<Vec<_>>()
        });
        let mut walked: Vec<Option<Vec<Found>>> = walked.collect();
        let open: Vec<&[f32]> = queries
            .iter()
            .zip(&walked)
            .filter(|(_, found)| found.is_none())
            .map(|(query, _)| *query)
            .collect();
        let mut scanned = scanned(&open).into_iter();
        walked.iter_mut().filter(|found| found.is_none()).for_each(|found| *found = scanned.next());
        return walked.into_iter().flatten().collect();
    }
    scanned(&queries)
}

/// The best rescored rows.
struct Compared {
    found: Vec<Found>,
    /// Whether no row with a lower code score can be better, judging by the codes' errors here.
    is_sure: bool,
}

/// A vector's score on the codes' scale: greater means nearer.
fn comparable(metric: Metric, score: f64) -> f64 {
    match metric {
        Metric::Cosine | Metric::Dot => score,
        Metric::Euclidean => -score * score / 2.0,
    }
}

/// The rows that may be found; `None` if all may.
fn allowed(segment: &Segment, config: &SearchConfig) -> Option<Bits> {
    if config.conditions.is_empty() && segment.deleted().is_none() {
        return None;
    }
    let mut allowed = Bits::all(segment.rows());
    if let Some(deleted) = segment.deleted() {
        allowed.remove(deleted);
    }
    for condition in &config.conditions {
        allowed.keep(&condition.rows(segment.fields(), segment.rows()));
    }
    Some(allowed)
}

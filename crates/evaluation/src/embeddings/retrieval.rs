//! Retrieval: ranked documents against graded judgements, as in trec_eval, pytrec_eval and BEIR.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::similarity::{cosine, norm};
use super::{Similarity, Vectors};
use crate::figures::Figures;

/// A retrieved document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit<'a> {
    /// The document's id.
    pub id: &'a str,
    /// Its score, in the 32 bits that trec_eval compares.
    pub score: f32,
}

impl Hit<'_> {
    /// trec_eval's order: higher scores first; ties by descending id, compared as bytes.
    pub fn order(&self, other: &Self) -> Ordering {
        // Zero is added because -0 is no other score than 0.
        (other.score + 0.0).total_cmp(&(self.score + 0.0)).then_with(|| other.id.cmp(self.id))
    }
}

/// Documents for exhaustive search.
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    ids: &'a [String],
    vectors: Vectors<'a>,
    norms: Vec<f64>,
    similarity: Similarity,
}

impl<'a> Documents<'a> {
    /// Documents with their vectors.
    ///
    /// # Panics
    /// If the numbers of ids and vectors differ.
    pub fn new(ids: &'a [String], vectors: Vectors<'a>, similarity: Similarity) -> Self {
        assert_eq!(ids.len(), vectors.len(), "an id for each vector");
        Self { ids, vectors, norms: vectors.iter().map(norm).collect(), similarity }
    }

    /// The `k` documents most similar to a query, in [`Hit::order`]. A document with the query's own id is
    /// excluded, as in BEIR.
    ///
    /// # Panics
    /// If the query has another width.
    pub fn nearest(&self, query_id: &str, query: &[f32], k: usize) -> Vec<Hit<'a>> {
        let query_norm = norm(query);
        let score = |(place, vector): (usize, &[f32])| match self.similarity {
            Similarity::Cosine => cosine(query, vector, query_norm, self.norms[place]),
            other => other.of(query, vector),
        };
        let all = self.vectors.iter().enumerate().filter(|(place, _)| self.ids[*place] != query_id);
        let mut hits: Vec<Hit> = all
            .map(|(place, vector)| Hit { id: &self.ids[place], score: score((place, vector)) as f32 })
            .collect();
        if k < hits.len() {
            hits.select_nth_unstable_by(k, Hit::order);
            hits.truncate(k);
        }
        hits.sort_unstable_by(Hit::order);
        hits
    }
}

/// Quality of a ranking down to rank `k`, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankingScores {
    /// The normalised discounted cumulative gain (Järvelin and Kekäläinen 2002), with the grade as gain:
    /// trec_eval's `ndcg_cut`.
    pub ndcg: f64,
    /// The average precision, over all relevant documents: trec_eval's `map_cut`.
    pub map: f64,
    /// The share of relevant documents found: trec_eval's `recall`.
    pub recall: f64,
    /// The number of relevant documents found divided by `k`: trec_eval's `P`.
    pub precision: f64,
    /// The reciprocal rank of the first relevant document, 0 without one: trec_eval's `recip_rank` of `k`
    /// documents.
    pub mrr: f64,
}

impl RankingScores {
    /// The scores of a query down to rank `k`. `found` are the grades of the ranked documents, 0 for an
    /// unjudged one; `judged` are the grades of all judgements. A grade above 0 is relevant; without any, all
    /// scores are 0.
    pub fn at(k: usize, found: &[i64], judged: &[i64]) -> Self {
        let n_relevant = judged.iter().filter(|grade| **grade > 0).count();
        if n_relevant == 0 || k == 0 {
            return Self::default();
        }
        let gain = |(place, grade): (usize, &i64)| (*grade).max(0) as f64 / (place as f64 + 2.0).log2();
        let mut ideal: Vec<i64> = judged.iter().copied().filter(|grade| *grade > 0).collect();
        ideal.sort_unstable_by_key(|grade| std::cmp::Reverse(*grade));
        let found = &found[..k.min(found.len())];
        let dcg = |grades: &[i64]| grades.iter().enumerate().map(gain).sum::<f64>();
        let (mut right, mut precisions, mut first) = (0, 0.0, None);
        for (place, _) in found.iter().enumerate().filter(|(_, grade)| **grade > 0) {
            right += 1;
            precisions += f64::from(right) / (place + 1) as f64;
            first = first.or(Some(place));
        }
        Self {
            ndcg: dcg(found) / dcg(&ideal[..k.min(n_relevant)]),
            map: precisions / n_relevant as f64,
            recall: f64::from(right) / n_relevant as f64,
            precision: f64::from(right) / k as f64,
            mrr: first.map_or(0.0, |place| 1.0 / (place + 1) as f64),
        }
    }
}

/// One of the scores.
type Score = fn(&RankingScores) -> f64;

/// Accumulates the scores of queries.
#[derive(Clone, Debug)]
pub struct Retrieval {
    ks: Vec<usize>,
    sums: Vec<RankingScores>,
    n_queries: usize,
}

impl Retrieval {
    /// Scores at each of these ranks.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn new(ks: &[usize]) -> Self {
        assert!(!ks.is_empty(), "no rank to score down to");
        Self { ks: ks.to_vec(), sums: vec![RankingScores::default(); ks.len()], n_queries: 0 }
    }

    /// Adds a query: the ids of its ranked documents, and the judgements by id. An unjudged document is not
    /// relevant.
    pub fn add<'a>(&mut self, found: impl IntoIterator<Item = &'a str>, judgements: &BTreeMap<String, i64>) {
        let found: Vec<i64> = found.into_iter().map(|id| judgements.get(id).copied().unwrap_or(0)).collect();
        let judged: Vec<i64> = judgements.values().copied().collect();
        for (k, sum) in self.ks.iter().zip(&mut self.sums) {
            let scores = RankingScores::at(*k, &found, &judged);
            sum.ndcg += scores.ndcg;
            sum.map += scores.map;
            sum.recall += scores.recall;
            sum.precision += scores.precision;
            sum.mrr += scores.mrr;
        }
        self.n_queries += 1;
    }

    /// The means over the queries: `ndcg@k`, `map@k`, `recall@k`, `precision@k` and `mrr@k` for each k; NaN
    /// without queries. The main one is `ndcg@10`, as in BEIR, else the first.
    pub fn figures(&self) -> Figures {
        let kinds: [(&'static str, Score); 5] = [
            ("ndcg", |scores| scores.ndcg),
            ("map", |scores| scores.map),
            ("recall", |scores| scores.recall),
            ("precision", |scores| scores.precision),
            ("mrr", |scores| scores.mrr),
        ];
        let of_kind = |(name, value): (&'static str, Score)| {
            let means = self.ks.iter().zip(&self.sums);
            means.map(move |(k, sum)| (format!("{name}@{k}"), value(sum) / self.n_queries as f64))
        };
        let figures = Figures::new(self.n_queries, kinds.into_iter().flat_map(of_kind));
        figures.clone().with_main("ndcg@10").unwrap_or(figures)
    }
}

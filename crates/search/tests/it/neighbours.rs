//! What is found.

use crate::places::{Random, assert_same, config, naive, row, rows, told};
use cloze_search::{
    Condition, GraphConfig, Index, IndexConfig, IndexWriter, Method, Metric, OnId, Precision, SearchConfig,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::Dot, Metric::Euclidean];
const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::Int8, Precision::Binary];

fn exact(k: usize) -> SearchConfig {
    SearchConfig { k, method: Method::Exact, ..SearchConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn an_exact_search_finds_what_a_naive_one_does(
        seed: u64, n in 1usize..230, width in 1usize..50, k in 1usize..30, metric in 0usize..3, precision in 0usize..4,
        queries in 1usize..9,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let (metric, precision) = (METRICS[metric], PRECISIONS[precision]);
        let mut vectors = random.vectors(n, width);
        if precision == Precision::Bf16 {
            // Vectors that bfloat16 holds, but not when they are scaled.
            prop_assume!(metric != Metric::Cosine);
            vectors.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits() & 0xFFFF_0000));
        }
        let mut writer = IndexWriter::create(folder.path(), IndexConfig { metric, precision, ..config(width) }).unwrap();
        // In two parts.
        let half = n / 2;
        writer.add(&rows(0..half), &vectors[..half * width], OnId::Error).unwrap();
        writer.add(&rows(half..n), &vectors[half * width..], OnId::Error).unwrap();
        let index = Index::open(folder.path()).unwrap();
        let all: Vec<(String, Vec<f32>)> =
            vectors.chunks_exact(width).enumerate().map(|(id, row)| (format!("id-{id}"), row.to_vec())).collect();
        let queries = random.vectors(queries, width);
        let found = index.find(&queries, &exact(k)).unwrap();
        for (query, found) in queries.chunks_exact(width).zip(&found) {
            let (found, expected) = (told(&index, found), naive(metric, &all, query, k));
            prop_assert_eq!(found.len(), expected.len());
            // Rows that are as near but for rounding may be in another order.
            for (i, ((id, score), (_, expected))) in found.iter().zip(&expected).enumerate() {
                prop_assert!((score - expected).abs() < 2e-6 * (1.0 + expected.abs()), "{i} {id}: {score}, {expected}");
            }
        }
    }

    #[test]
    fn changes_leave_what_they_should(seed: u64, precision in 0usize..4, metric in 0usize..3) {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let width = 9;
        let (metric, precision) = (METRICS[metric], PRECISIONS[precision]);
        let graph = Some(GraphConfig { neighbours: 4, breadth: 20, from_rows: 30, seed });
        let config = IndexConfig { metric, precision, graph, ..config(width) };
        let mut writer = IndexWriter::create(folder.path(), config).unwrap();
        let mut rows_now: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        for step in 0..14 {
            match random.below(5) {
                0 | 1 => {
                    let ids: Vec<usize> = (0..random.below(40)).map(|_| random.below(90)).collect();
                    let ids: std::collections::BTreeSet<usize> = ids.into_iter().collect();
                    let mut vectors = random.vectors(ids.len(), width);
                    vectors.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits() & 0xFFFF_0000));
                    let replaced = ids.iter().filter(|id| rows_now.contains_key(id)).count();
                    let found = writer.add(&rows(ids.iter().copied()), &vectors, OnId::Accept).unwrap();
                    prop_assert_eq!(found, replaced);
                    rows_now.extend(ids.into_iter().zip(vectors.chunks_exact(width).map(<[f32]>::to_vec)));
                }
                2 => {
                    let ids: Vec<usize> = (0..10).map(|_| random.below(90)).collect();
                    let names: Vec<String> = ids.iter().map(|id| format!("id-{id}")).collect();
                    let before = rows_now.len();
                    let deleted = writer.delete(&names, OnId::Accept).unwrap();
                    ids.iter().for_each(|id| drop(rows_now.remove(id)));
                    prop_assert_eq!(deleted, before - rows_now.len());
                }
                3 => writer.maintain(&mut |_, _| {}).unwrap(),
                _ => {
                    writer.compact(&mut |_, _| {}).unwrap();
                    let info = writer.index().info();
                    prop_assert!(info.deleted == 0 && info.parts <= 1);
                }
            }
            let index = match step % 2 {
                0 => Index::open(folder.path()).unwrap(),
                _ => writer.index().clone(),
            };
            prop_assert_eq!(index.len(), rows_now.len());
            let query = random.vectors(1, width);
            for (condition, holds) in [("", None), ("parity=even", Some(0)), ("parity!=even", Some(1))] {
                let conditions: Vec<Condition> = condition.parse().into_iter().collect();
                let live: Vec<(String, Vec<f32>)> = rows_now.iter()
                    .filter(|(id, _)| holds.is_none_or(|rest| *id % 2 == rest))
                    .map(|(id, row)| (format!("id-{id}"), row.clone())).collect();
                let found = index.find(&query, &SearchConfig { conditions: conditions.clone(), ..exact(200) }).unwrap();
                let (mut found, mut expected) = (told(&index, &found[0]), naive(metric, &live, &query, 200));
                // Of cosines bfloat16 rounds the scaled vectors: the order may be another.
                found.sort_by(|a, b| a.0.cmp(&b.0));
                expected.sort_by(|a, b| a.0.cmp(&b.0));
                prop_assert_eq!(found.len(), expected.len());
                for (a, b) in found.iter().zip(&expected) {
                    prop_assert!(a.0 == b.0 && (a.1 - b.1).abs() < 0.02, "{a:?} {b:?}");
                }
                // By whatever way: live rows that meet the conditions, each once.
                let found = index.find(&query, &SearchConfig { k: 5, conditions, ..SearchConfig::default() }).unwrap();
                let mut ids: Vec<String> = told(&index, &found[0]).into_iter().map(|(id, _)| id).collect();
                prop_assert_eq!(ids.len(), live.len().min(5));
                prop_assert!(ids.iter().all(|id| live.iter().any(|(live, _)| live == id)));
                ids.sort();
                ids.dedup();
                prop_assert_eq!(ids.len(), live.len().min(5));
            }
        }
    }
}

#[test]
fn codes_and_graphs_find_most_of_the_true_neighbours() {
    let (n, width) = (4000, 96);
    let vectors = Random(3).clustered(n, width);
    let queries = Random(4).clustered(200, width);
    for (precision, with_graph, metric, least) in [
        (Precision::F32, true, Metric::Cosine, 0.97),
        (Precision::F32, true, Metric::Euclidean, 0.97),
        (Precision::Bf16, true, Metric::Dot, 0.9),
        (Precision::Int8, false, Metric::Cosine, 0.999),
        (Precision::Int8, false, Metric::Euclidean, 0.999),
        (Precision::Int8, true, Metric::Cosine, 0.97),
        (Precision::Binary, false, Metric::Cosine, 0.8),
        (Precision::Binary, true, Metric::Cosine, 0.75),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let graph = with_graph.then(|| GraphConfig { from_rows: 100, ..GraphConfig::default() });
        let config = IndexConfig { precision, metric, graph, ..IndexConfig::new(width) };
        let mut writer = IndexWriter::create(folder.path(), config).unwrap();
        writer.add(&rows(0..n), &vectors, OnId::Error).unwrap();
        writer.maintain(&mut |_, _| {}).unwrap();
        let index = Index::open(folder.path()).unwrap();
        assert_eq!(index.info().rows_with_graph, if with_graph { n } else { 0 });
        let search = SearchConfig { breadth: 128, rescored: 8, ..SearchConfig::default() };
        let recall = index.recall(&queries, &search).unwrap();
        println!("{precision:?} {metric:?} graph: {with_graph}: {recall}");
        assert!(recall >= least, "{precision:?} {metric:?} graph: {with_graph}: {recall}");
    }
}

#[test]
fn a_graph_goes_on_with_what_is_added() {
    let (n, width) = (3000, 32);
    let vectors = Random(5).clustered(n, width);
    let folder = tempfile::tempdir().unwrap();
    let graph = Some(GraphConfig { from_rows: 500, ..GraphConfig::default() });
    let mut writer =
        IndexWriter::create(folder.path(), IndexConfig { graph, ..IndexConfig::new(width) }).unwrap();
    let mut put = 0;
    for step in [1500, 900, 300, 200, 50, 50] {
        writer.add(&rows(put..put + step), &vectors[put * width..(put + step) * width], OnId::Error).unwrap();
        put += step;
        writer.maintain(&mut |_, _| {}).unwrap();
    }
    let info = writer.index().info();
    assert!(info.parts <= 3, "{info:?}");
    let recall = writer.index().recall(&Random(6).clustered(100, width), &SearchConfig::default()).unwrap();
    assert!(recall > 0.97, "{recall}");
    // A part that has a graph is joined with a smaller one: the smaller one's rows alone go into the graph.
    let folder = tempfile::tempdir().unwrap();
    let graph = Some(GraphConfig { from_rows: 500, ..GraphConfig::default() });
    let mut writer =
        IndexWriter::create(folder.path(), IndexConfig { graph, ..IndexConfig::new(width) }).unwrap();
    let mut told = Vec::new();
    for part in [0..1000, 1000..1700] {
        writer.add(&rows(part.clone()), &vectors[part.start * width..part.end * width], OnId::Error).unwrap();
        told.clear();
        writer.maintain(&mut |done, _| told.push(done)).unwrap();
    }
    assert!(told[0] > 1000 && told.last() == Some(&1700), "{told:?}");
    assert_eq!((writer.index().info().parts, writer.index().info().rows_with_graph), (1, 1700));
}

#[test]
fn threads_change_no_answer() {
    let (n, width) = (1200, 24);
    let vectors = Random(7).clustered(n, width);
    let answers = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let folder = tempfile::tempdir().unwrap();
            let graph = Some(GraphConfig { from_rows: 500, ..GraphConfig::default() });
            let mut writer =
                IndexWriter::create(folder.path(), IndexConfig { graph, ..IndexConfig::new(width) }).unwrap();
            writer.add(&rows(0..n), &vectors, OnId::Error).unwrap();
            writer.maintain(&mut |_, _| {}).unwrap();
            let config = SearchConfig { breadth: 10, ..SearchConfig::default() };
            let all = writer.index().find(&vectors[..50 * width], &config).unwrap();
            let scan = SearchConfig { method: Method::Codes, ..config };
            (all, writer.index().find(&vectors[..50 * width], &scan).unwrap())
        })
    });
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn signs_find_long_vectors_by_their_distance() {
    let width = 64;
    let direction = Random(3).vectors(1, width);
    let mut vectors = Random(4).vectors(400, width);
    for (i, vector) in vectors.chunks_exact_mut(width).enumerate().take(10) {
        vector
            .iter_mut()
            .zip(&direction)
            .for_each(|(x, along)| *x = 100.0 * along * (1.0 + i as f32 / 100.0));
    }
    let query: Vec<f32> = direction.iter().map(|x| 100.0 * x).collect();
    for graph in [None, Some(GraphConfig { from_rows: 100, ..GraphConfig::default() })] {
        let folder = tempfile::tempdir().unwrap();
        let (precision, metric) = (Precision::Binary, Metric::Euclidean);
        let config = IndexConfig { precision, metric, graph, ..IndexConfig::new(width) };
        let mut writer = IndexWriter::create(folder.path(), config).unwrap();
        writer.add(&rows(0..400), &vectors, OnId::Error).unwrap();
        writer.maintain(&mut |_, _| {}).unwrap();
        for asked in [query.clone(), query.repeat(5)] {
            assert_eq!(writer.index().recall(&asked, &SearchConfig::default()).unwrap(), 1.0);
        }
    }
}

#[test]
fn what_else_is_asked_changes_no_answer() {
    // Widths that fill no register, and rows that fill no panel.
    let (n, width, queries) = (701, 70, 27);
    let vectors = Random(17).clustered(n + queries, width);
    let (vectors, asked) = vectors.split_at(n * width);
    for (metric, precision) in
        METRICS.into_iter().flat_map(|metric| PRECISIONS.map(|precision| (metric, precision)))
    {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            IndexWriter::create(folder.path(), IndexConfig { metric, precision, ..config(width) }).unwrap();
        let mut new = rows(0..n);
        new.iter_mut().enumerate().for_each(|(i, row)| {
            row.fields.insert("third".into(), (i % 3 == 0).into());
        });
        writer.add(&new, vectors, OnId::Error).unwrap();
        for method in [Method::Exact, Method::Codes] {
            for conditions in [vec![], vec!["third=true".parse::<Condition>().unwrap()]] {
                let config = SearchConfig { method, conditions, ..SearchConfig::default() };
                let together = writer.index().find(asked, &config).unwrap();
                for some in [1, 3, 4, 25] {
                    let parts = asked.chunks(some * width);
                    let apart: Vec<_> =
                        parts.flat_map(|asked| writer.index().find(asked, &config).unwrap()).collect();
                    assert_eq!(apart, together, "{metric:?}, {precision:?}, {method:?}, {some}");
                }
            }
        }
    }
}

#[test]
fn conditions_that_few_rows_meet_are_met_by_all_that_is_found() {
    let (n, width) = (3000, 16);
    let vectors = Random(8).clustered(n, width);
    let folder = tempfile::tempdir().unwrap();
    let graph = Some(GraphConfig { from_rows: 500, ..GraphConfig::default() });
    let mut writer =
        IndexWriter::create(folder.path(), IndexConfig { graph, ..IndexConfig::new(width) }).unwrap();
    let mut new = rows(0..n);
    for id in [5, 700, 2999] {
        new[id].fields.insert("rare".into(), true.into());
    }
    writer.add(&new, &vectors, OnId::Error).unwrap();
    writer.maintain(&mut |_, _| {}).unwrap();
    let find = |conditions: &[&str]| {
        let conditions = conditions.iter().map(|text| text.parse().unwrap()).collect();
        let config = SearchConfig { k: 20, conditions, ..SearchConfig::default() };
        let found = writer.index().find(&vectors[..width], &config).unwrap();
        told(writer.index(), &found[0])
            .into_iter()
            .map(|(id, _)| id[3..].parse().unwrap())
            .collect::<Vec<usize>>()
    };
    let mut rare = find(&["rare=true"]);
    rare.sort_unstable();
    assert_eq!(rare, [5, 700, 2999]);
    assert!(find(&["rare=false"]).is_empty());
    let most = find(&["group!=3", "parity=odd"]);
    assert!(most.len() == 20 && most.iter().all(|id| id % 7 != 3 && id % 2 == 1), "{most:?}");
}

#[test]
fn rows_without_ids_are_numbered_and_fields_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(folder.path(), config(2)).unwrap();
    let mut new = rows(0..3);
    new.iter_mut().for_each(|row| row.id = None);
    writer.add(&new[..2], &[1.0, 0.0, 0.0, 1.0], OnId::Error).unwrap();
    writer.delete(&["1"], OnId::Error).unwrap();
    writer.add(&new[2..], &[1.0, 1.0], OnId::Error).unwrap();
    let index = Index::open(folder.path()).unwrap();
    let found = index.find(&[1.0, 0.1], &SearchConfig::default()).unwrap();
    assert_same(&told(&index, &found[0]), &[("0".into(), 0.995_037), ("2".into(), 0.773_957)]);
    let stored = index.row(found[0][1].place).unwrap();
    assert_eq!((stored.text, stored.fields), (row(2).text, row(2).fields));
    assert!(index.contains("0") && !index.contains("1"));
}

/// The links of equal vectors lead to one another, and still all rows are found.
#[test]
fn many_equal_vectors_are_all_found() {
    let folder = tempfile::tempdir().unwrap();
    let graph = Some(GraphConfig { neighbours: 4, breadth: 16, from_rows: 40, seed: 0 });
    let mut writer =
        IndexWriter::create(folder.path(), IndexConfig { graph, ..IndexConfig::new(4) }).unwrap();
    let vectors: Vec<f32> = Random(5).vectors(8, 4).repeat(60);
    writer.add(&rows(0..480), &vectors, OnId::Error).unwrap();
    writer.maintain(&mut |_, _| {}).unwrap();
    let search = SearchConfig { k: 400, ..SearchConfig::default() };
    assert_eq!(writer.index().find(&vectors[..4], &search).unwrap()[0].len(), 400);
}

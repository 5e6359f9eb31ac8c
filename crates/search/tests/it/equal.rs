//! Many rows with equal or nearly equal vectors: no other row is lost behind them.

use crate::places::{Random, rows};
use cloze_search::{
    Found, GraphConfig, Index, IndexConfig, IndexWriter, Method, Metric, OnId, Precision, SearchConfig,
};

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::Dot, Metric::Euclidean];
const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::Int8, Precision::Binary];
const WIDTH: usize = 96;
const EQUAL: usize = 1200;
const OTHERS: usize = 2000;

/// Vectors of length 1: copies of one that differ by so much of its length, and others around centres.
fn vectors(noise: f32) -> (Vec<f32>, Vec<f32>) {
    let unit = |values: &mut Vec<f32>| {
        for vector in values.chunks_exact_mut(WIDTH) {
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            vector.iter_mut().for_each(|x| *x /= norm);
        }
    };
    let mut equal = Random(9).vectors(1, WIDTH).repeat(EQUAL);
    unit(&mut equal);
    let rough = Random(10).vectors(equal.len(), 1);
    // A feature of the noise is at most 1, and its square a third of that in the mean.
    let each = noise / (WIDTH as f32 / 3.0).sqrt();
    equal.iter_mut().zip(rough).for_each(|(x, r)| *x += each * r);
    let mut others = Random(11).clustered(OTHERS, WIDTH);
    unit(&mut others);
    (equal, others)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    First,
    Last,
    Mixed,
}

/// The vectors in this order, and where the others are.
fn ordered(equal: &[f32], others: &[f32], order: Order) -> (Vec<f32>, Vec<usize>) {
    let (mut equal, mut others) = (equal.chunks_exact(WIDTH), others.chunks_exact(WIDTH));
    let (mut random, mut all, mut places) = (Random(12), Vec::new(), Vec::new());
    loop {
        let is_equal = match order {
            Order::First => equal.len() > 0,
            Order::Last => others.len() == 0,
            Order::Mixed => random.below(EQUAL + OTHERS) < EQUAL && equal.len() > 0 || others.len() == 0,
        };
        match if is_equal { equal.next() } else { others.next() } {
            Some(vector) => all.extend_from_slice(vector),
            None => return (all, places),
        }
        if !is_equal {
            places.push(all.len() / WIDTH - 1);
        }
    }
}

/// The share of what is found that is as near as what is to be found.
fn share(index: &Index, queries: &[f32], config: &SearchConfig) -> f64 {
    let truth = index.find(queries, &SearchConfig { method: Method::Exact, ..config.clone() }).unwrap();
    let found = index.find(queries, config).unwrap();
    let is_distance = index.config().metric == Metric::Euclidean;
    let hits = |(found, truth): (&Vec<Found>, &Vec<Found>)| {
        let last = truth.last().unwrap().score;
        let good = |found: &&Found| match is_distance {
            true => found.score <= last + 1e-6,
            false => found.score >= last - 1e-6,
        };
        found.iter().filter(good).count() as f64 / truth.len() as f64
    };
    found.iter().zip(&truth).map(hits).sum::<f64>() / truth.len() as f64
}

fn queries(all: &[f32], places: &[usize]) -> Vec<f32> {
    let some = places.iter().step_by(places.len() / 200);
    some.flat_map(|place| all[place * WIDTH..][..WIDTH].to_vec()).collect()
}

#[test]
fn no_row_is_lost_behind_equal_ones() {
    let config = SearchConfig { rescored: 16, ..SearchConfig::default() };
    let mut wrong = Vec::new();
    for noise in [0.0, 1e-6, 1e-3, 1e-2] {
        let (equal, others) = vectors(noise);
        for (metric, precision) in METRICS.into_iter().flat_map(|m| PRECISIONS.map(|p| (m, p))) {
            for order in [Order::First, Order::Last, Order::Mixed] {
                let (all, places) = ordered(&equal, &others, order);
                let folder = tempfile::tempdir().unwrap();
                let graph = Some(GraphConfig { from_rows: 100, ..GraphConfig::default() });
                let index = IndexConfig { metric, precision, graph, ..IndexConfig::new(WIDTH) };
                let mut writer = IndexWriter::create(folder.path(), index).unwrap();
                writer.add(&rows(0..EQUAL + OTHERS), &all, OnId::Error).unwrap();
                writer.maintain(&mut |_, _| {}).unwrap();
                let index = Index::open(folder.path()).unwrap();
                let asked = queries(&all, &places);
                let codes = share(&index, &asked, &SearchConfig { method: Method::Codes, ..config.clone() });
                let graph = share(&index, &asked, &config);
                // Codes lose some that no graph can find.
                let is_good = graph >= 0.98 * codes;
                let of_equal = share(&index, &equal[..8 * WIDTH], &config);
                let at =
                    format!("{noise} {metric:?} {precision:?} {order:?}: {graph} of {codes}, {of_equal}");
                println!("{at} {:?}", index.info().strays);
                if !is_good || of_equal < 0.98 && noise == 0.0 {
                    wrong.push(at);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_added_deleted_and_compacted_stays_found() {
    for noise in [0.0, 1e-3] {
        let (equal, others) = vectors(noise);
        let folder = tempfile::tempdir().unwrap();
        let graph = Some(GraphConfig { from_rows: 100, ..GraphConfig::default() });
        let mut writer =
            IndexWriter::create(folder.path(), IndexConfig { graph, ..IndexConfig::new(WIDTH) }).unwrap();
        let (mut row, half) = (0, OTHERS / 2 * WIDTH);
        let mut put = |writer: &mut IndexWriter, vectors: &[f32]| {
            let n = vectors.len() / WIDTH;
            writer.add(&rows(row..row + n), vectors, OnId::Error).unwrap();
            writer.maintain(&mut |_, _| {}).unwrap();
            row += n;
        };
        let check = |writer: &IndexWriter, at: &str| {
            let asked: Vec<f32> =
                others.chunks_exact(WIDTH).take(OTHERS / 2).step_by(7).flatten().copied().collect();
            let found = share(writer.index(), &asked, &SearchConfig::default());
            assert!(found >= 0.98, "{noise}, {at}: {found}");
        };
        put(&mut writer, &equal);
        put(&mut writer, &others[..half]);
        check(&writer, "added");
        put(&mut writer, &equal);
        put(&mut writer, &others[half..]);
        check(&writer, "added again");
        // The first of the equal ones, which stands for them, is deleted.
        let ids: Vec<String> = (0..EQUAL / 2).map(|row| format!("id-{row}")).collect();
        writer.delete(&ids, OnId::Error).unwrap();
        check(&writer, "deleted");
        let of_equal = share(writer.index(), &equal[..WIDTH], &SearchConfig::default());
        assert!(noise > 0.0 || of_equal == 1.0, "{of_equal}");
        writer.compact(&mut |_, _| {}).unwrap();
        check(&writer, "compacted");
        let info = writer.index().info();
        assert_eq!((info.parts, info.deleted, info.rows_with_old_graph), (1, 0, 0));
    }
}

/// Rows that may be found lie far from what is asked, or are few, or many.
#[test]
fn conditions_are_met_by_the_nearest_rows_whatever_they_leave_out() {
    let (n, width) = (12_000, 48);
    let mut vectors = Random(21).clustered(n, width);
    let first = vectors[..width].to_vec();
    let dot = |row: &[f32]| row.iter().zip(&first).map(|(a, b)| a * b).sum::<f32>();
    let mut by_score: Vec<usize> = (0..n).collect();
    by_score
        .sort_by(|a, b| dot(&vectors[b * width..][..width]).total_cmp(&dot(&vectors[a * width..][..width])));
    let mut new = rows(0..n);
    for (rank, row) in by_score.iter().enumerate() {
        for parts in [2, 4, 16, 64] {
            new[*row].fields.insert(format!("part{parts}"), (rank * parts / n).into());
        }
    }
    let near: Vec<f32> =
        by_score[..60].iter().flat_map(|row| vectors[row * width..][..width].to_vec()).collect();
    // Some rows are far from what is asked, and like one another.
    let far = by_score[n - 1];
    let centre = vectors[far * width..][..width].to_vec();
    for row in (0..n).filter(|row| !by_score[..60].contains(row)).take(n / 4) {
        let noise = Random(row as u64).vectors(1, width);
        let vector = vectors[row * width..][..width].iter_mut().zip(&centre).zip(noise);
        vector.for_each(|((x, centre), noise)| *x = centre * (1.0 + 0.01 * noise));
        new[row].fields.insert("alike".into(), true.into());
    }
    for precision in [Precision::F32, Precision::Int8] {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            IndexWriter::create(folder.path(), IndexConfig { precision, ..IndexConfig::new(width) }).unwrap();
        writer.add(&new, &vectors, OnId::Error).unwrap();
        writer.maintain(&mut |_, _| {}).unwrap();
        assert_eq!(writer.index().info().rows_with_graph, n);
        let mut asked: Vec<String> = vec!["alike=true".into(), "alike!=true".into()];
        for parts in [2, 4, 16, 64] {
            asked.extend([
                format!("part{parts}={}", parts - 1),
                format!("part{parts}!=0"),
                format!("part{parts}=0"),
            ]);
        }
        for condition in asked {
            let config =
                SearchConfig { conditions: vec![condition.parse().unwrap()], ..SearchConfig::default() };
            let found = share(writer.index(), &near, &config);
            println!("{precision:?} {condition}: {found}");
            assert!(found >= 0.98, "{precision:?} {condition}: {found}");
        }
    }
}

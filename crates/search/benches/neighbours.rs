//! Building an index of clustered vectors and asking it, for `cargo xtask bench search`.
//!
//!     cargo bench -p cloze-search --bench neighbours -- make ROWS WIDTH QUERIES FOLDER
//!     cargo bench -p cloze-search --bench neighbours -- PRECISION exact|graph FOLDER K
//!
//! The first writes `rows.f32` and `queries.f32`, which FAISS reads too. The second prints a JSON line: seconds to build,
//! and of each way to search its queries a second and recall, with the process's peak memory.
#![allow(missing_docs)]

use cloze_search::{Index, IndexConfig, IndexWriter, Method, NewRow, OnId, Precision, SearchConfig, recall};
use serde_json::json;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

/// Rows that are added at a time.
const PART: usize = 100_000;

fn main() {
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", rows, width, queries, folder] => {
            make(number(rows), number(width), number(queries), folder.as_ref());
        }
        [precision, way @ ("exact" | "graph"), folder, k] => {
            let precision = serde_json::from_value(json!(precision)).expect("a precision");
            measure(precision, *way == "graph", folder.as_ref(), number(k));
        }
        // A bare `cargo bench` runs every benchmark.
        _ => println!("neighbours: make ROWS WIDTH QUERIES FOLDER, or PRECISION exact|graph FOLDER K"),
    }
}

/// Normally distributed numbers (Box and Muller 1958) of a linear congruential generator.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn next(&mut self) -> f32 {
        let (a, b) = (self.uniform(), self.uniform());
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    }
}

/// Vectors of length 1 around centres, a hundred rows to each, with three quarters of their spread.
fn make(rows: usize, width: usize, queries: usize, folder: &Path) {
    let mut random = Normal(1);
    let n_centres = (rows / 100).max(1);
    let centres: Vec<f32> = (0..n_centres * width).map(|_| random.next()).collect();
    for (name, count) in [("rows.f32", rows), ("queries.f32", queries)] {
        let mut file = BufWriter::new(fs::File::create(folder.join(name)).expect("a file"));
        for _ in 0..count {
            let centre = (random.uniform() * n_centres as f64) as usize;
            let centre = &centres[centre * width..][..width];
            let mut vector: Vec<f32> = centre.iter().map(|x| x + 0.75 * random.next()).collect();
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            vector.iter_mut().for_each(|x| *x /= norm);
            vector.iter().for_each(|x| file.write_all(&x.to_le_bytes()).expect("written"));
        }
        file.flush().expect("written");
    }
    fs::write(folder.join("width"), width.to_string()).expect("written");
}

fn measure(precision: Precision, with_graph: bool, folder: &Path, k: usize) {
    let width: usize =
        fs::read_to_string(folder.join("width")).expect("`make` first").parse().expect("a number");
    let floats = |name: &str| -> Vec<f32> {
        let bytes = fs::read(folder.join(name)).expect("`make` first");
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let place = folder.join("index");
    let _ = fs::remove_dir_all(&place);
    let mut config = IndexConfig { precision, ..IndexConfig::new(width) };
    if !with_graph {
        config.graph = None;
    }
    let rows = floats("rows.f32");
    let start = Instant::now();
    let mut writer = IndexWriter::create(&place, config).expect("an index");
    for part in rows.chunks(PART * width) {
        let new = vec![NewRow::default(); part.len() / width];
        writer.add(&new, part, OnId::Error).expect("added");
    }
    writer.maintain(&mut |_, _| {}).expect("maintained");
    let seconds = start.elapsed().as_secs_f64();
    drop((writer, rows));

    let start = Instant::now();
    let index = Index::open(&place).expect("an index");
    let opened = start.elapsed().as_secs_f64();
    let queries = floats("queries.f32");
    let ask = |config: &SearchConfig| {
        let start = Instant::now();
        let found = index.find(&queries, config).expect("neighbours");
        ((queries.len() / width) as f64 / start.elapsed().as_secs_f64(), found)
    };
    let of =
        |method, breadth, rescored| SearchConfig { k, method, breadth, rescored, ..SearchConfig::default() };
    let (exact_per_s, truth) = ask(&of(Method::Exact, 1, 1));
    let mut ways = vec![json!({"way": "exact", "per_s": exact_per_s, "recall": 1.0})];
    let mut add = |way: String, config: &SearchConfig| {
        let (per_s, found) = ask(config);
        ways.push(json!({"way": way, "per_s": per_s, "recall": recall(&found, &truth)}));
    };
    if with_graph {
        for breadth in [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512] {
            add(format!("graph, {breadth}"), &of(Method::Auto, breadth, 4));
        }
    } else if matches!(precision, Precision::Int8 | Precision::Binary) {
        for rescored in [2, 4, 8, 16, 32] {
            add(format!("codes, {rescored}"), &of(Method::Codes, 1, rescored));
        }
    }
    let bytes = index.info().bytes;
    println!(
        "{}",
        json!({"build_s": seconds, "open_s": opened, "bytes": bytes, "peak_mb": peak_mb(), "ways": ways})
    );
}

/// The most memory that the process had, mapped files among it.
fn peak_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().split(' ').next()?.parse::<f64>().ok()).map_or(f64::NAN, |kb| kb / 1e3)
}

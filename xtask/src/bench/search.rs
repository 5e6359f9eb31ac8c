//! Nearest neighbours beside FAISS: building, queries a second at the same recall, memory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::kept::target;
use super::measure;
use super::report;

/// How to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Vectors.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..))]
    rows: u32,
    /// Features of a vector.
    #[arg(long, value_name = "N", default_value_t = 384, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    width: u32,
    /// Queries.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    queries: u32,
    /// Neighbours of each query.
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    k: u32,
    /// How often the sides take turns.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

/// What a side prints.
#[derive(Debug, Clone, Deserialize)]
struct Built {
    build_s: f64,
    peak_mb: f64,
    ways: Vec<Way>,
    #[serde(default)]
    version: String,
}

/// A way to search.
#[derive(Debug, Clone, Deserialize)]
struct Way {
    way: String,
    per_s: f64,
    recall: f64,
}

/// Recalls at which ways are compared.
const RECALLS: [f64; 4] = [0.9, 0.95, 0.98, 0.99];

/// Our sides: a name, and what is built.
const OURS: [(&str, [&str; 2]); 6] = [
    ("exact, f32", ["f32", "exact"]),
    ("bf16", ["bf16", "exact"]),
    ("int8 codes", ["int8", "exact"]),
    ("binary codes", ["binary", "exact"]),
    ("graph, f32", ["f32", "graph"]),
    ("graph, int8", ["int8", "graph"]),
];

/// FAISS's.
const THEIRS: [(&str, &str); 2] = [("FAISS, IndexFlatIP", "flat"), ("FAISS, IndexHNSWFlat", "hnsw")];

/// A side and what it printed in each round.
struct Side {
    name: &'static str,
    rounds: Vec<Built>,
}

impl Side {
    fn median(&self, of: impl Fn(&Built) -> f64) -> f64 {
        measure::median(self.rounds.iter().map(of)).unwrap_or(f64::NAN)
    }

    /// The most queries a second with a recall of at least `recall`, and how that is reached.
    fn at(&self, recall: f64) -> Option<(String, f64)> {
        let first = self.rounds.first()?;
        let ways = first.ways.iter().enumerate().filter(|(_, way)| way.recall >= recall);
        let measured =
            ways.map(|(place, way)| (way.way.clone(), self.median(|built| built.ways[place].per_s)));
        measured.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

pub fn run(args: &Args) -> Result<()> {
    let python = measure::python();
    let executable = measure::build("cloze-search", "neighbours")?;
    let folder = target().join("search-bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.to_string_lossy().into_owned();
    let numbers = [args.rows, args.width, args.queries, args.k].map(|number| number.to_string());
    let [rows, width, queries, k] = numbers.each_ref().map(String::as_str);
    measure::output(&mut measure::ours(&executable, &["make", rows, width, queries, &path]))?;
    let new = |name| Side { name, rounds: Vec::new() };
    let mut ours = OURS.map(|(name, _)| new(name));
    let mut theirs: Vec<Side> = python.iter().flat_map(|_| THEIRS.map(|(name, _)| new(name))).collect();
    for round in 1..=args.rounds {
        let told = |name: &str| eprintln!("{name}, round {round} of {}", args.rounds);
        // FAISS's exact search first: its answers are what its graph's are compared with.
        for (side, (_, kind)) in theirs.iter_mut().zip(THEIRS) {
            told(side.name);
            let python = python.as_ref().context("no Python")?;
            side.rounds.push(read(&measure::last_line(&mut measure::peer(
                python,
                "search.py",
                &[kind, &path, k],
            ))?)?);
        }
        for (side, (_, [precision, way])) in ours.iter_mut().zip(OURS) {
            told(side.name);
            side.rounds.push(read(&measure::last_line(&mut measure::ours(
                &executable,
                &[precision, way, &path, k],
            ))?)?);
        }
    }
    clear(&folder);
    let version = theirs.first().and_then(|side| side.rounds.first()).map(|built| built.version.clone());
    let mut text = tables(&ours, &theirs);
    text += &format!(
        "\n\n{} vectors of {width}, {} queries, {k} neighbours each; medians of {} alternating rounds. {}{}.",
        report::short(f64::from(args.rows)),
        report::short(f64::from(args.queries)),
        args.rounds,
        report::machine(python.as_ref()),
        version.map(|version| format!("; FAISS {version}")).unwrap_or_default()
    );
    println!("{text}");
    if args.write { report::write_class("search", &text) } else { Ok(()) }
}

fn read(line: &str) -> Result<Built> {
    serde_json::from_str(line).with_context(|| format!("no measurement: {line}"))
}

/// Vectors take gigabytes.
fn clear(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        eprintln!("cannot remove {}: {error}", folder.display());
    }
}

/// What is exact or nearly so, and the most queries a second for each recall.
fn tables(ours: &[Side], theirs: &[Side]) -> String {
    let all: Vec<&Side> = ours.iter().chain(theirs).collect();
    let built = all.iter().map(|side| {
        let [seconds, peak] = [side.median(|built| built.build_s), side.median(|built| built.peak_mb)];
        let at = |recall| side.at(recall).map_or("–".to_owned(), |(_, per_s)| report::short(per_s));
        let cells = [side.name.to_owned(), report::short(seconds), report::short(peak)];
        cells.into_iter().chain([at(1.0)]).chain(RECALLS.map(at)).collect::<Vec<_>>()
    });
    let recalls: Vec<String> = RECALLS.iter().map(|recall| format!("at {recall}")).collect();
    let header = ["", "built, s", "peak MB", "queries/s, all found"]
        .into_iter()
        .chain(recalls.iter().map(String::as_str));
    let mut text = report::table(header, built);
    let best = |sides: &[Side], recall| {
        let found =
            sides.iter().filter_map(|side| side.at(recall).map(|(way, per_s)| (side.name, way, per_s)));
        found.max_by(|a, b| a.2.total_cmp(&b.2))
    };
    let compared = RECALLS.iter().chain(&[1.0]).filter_map(|recall| {
        let ((name, way, ours), (_, their_way, theirs)) = (best(ours, *recall)?, best(theirs, *recall)?);
        let ratio = format!("{:.2} ×", ours / theirs);
        Some([
            recall.to_string(),
            format!("{name} ({way})"),
            report::short(ours),
            their_way,
            report::short(theirs),
            ratio,
        ])
    });
    let compared: Vec<_> = compared.collect();
    if !compared.is_empty() {
        let header = ["recall, at least", "our fastest", "queries/s", "FAISS's", "queries/s ", "ratio"];
        text += &format!("\n\n{}", report::table(header, compared));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(ways: &[(f64, f64)]) -> Built {
        let way = |(per_s, recall): &(f64, f64)| Way {
            way: format!("way {per_s}"),
            per_s: *per_s,
            recall: *recall,
        };
        Built { build_s: 1.0, peak_mb: 2.0, ways: ways.iter().map(way).collect(), version: String::new() }
    }

    #[test]
    fn the_fastest_way_with_enough_recall_is_compared() {
        let ours = Side { name: "ours", rounds: vec![built(&[(400.0, 0.8), (200.0, 0.96), (100.0, 1.0)])] };
        assert_eq!(ours.at(0.95), Some(("way 200".into(), 200.0)));
        assert_eq!(ours.at(0.5), Some(("way 400".into(), 400.0)));
        let theirs = Side { name: "FAISS", rounds: vec![built(&[(100.0, 0.96)])] };
        assert_eq!(theirs.at(0.99), None);
        let text = tables(&[ours], &[theirs]);
        assert!(text.contains("| 0.95") && text.contains("2.00 ×") && !text.contains("| 0.99 "), "{text}");
    }

    #[test]
    fn a_side_is_read() {
        let line = r#"{"build_s": 2.5, "peak_mb": 7, "open_s": 1, "ways": [{"way": "exact", "per_s": 3, "recall": 1.0}]}"#;
        let built = read(line).unwrap();
        assert_eq!((built.build_s, built.ways[0].per_s), (2.5, 3.0));
        assert!(read("{}").is_err());
    }
}

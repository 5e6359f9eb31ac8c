//! Sentence embeddings beside PyTorch's and ONNX Runtime's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::measure::{self, Rounds, Row};
use super::processor::Processor;
use super::report;
use crate::step;

/// What is measured, and how.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    measure: Rounds,
    /// A sentence-transformers folder of a BERT encoder.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// A file of sentences, one a line: the first 2,000 are embedded.
    #[arg(long, value_name = "FILE")]
    sentences: Option<PathBuf>,
    /// Pairs of sentences with a score, tab-separated, for what bf16 and 8 bits lose.
    #[arg(long, value_name = "FILE")]
    pairs: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let shared = step::root().join("../shared");
    let given = |path: &Option<PathBuf>, usual: &str| path.clone().unwrap_or_else(|| shared.join(usual));
    let model = given(&args.model, "models/all-MiniLM-L6-v2");
    let pairs = given(&args.pairs, "data/sts2015/test.tsv");
    let text = measure::path_text(&first_sentences(&given(&args.sentences, "data/sst2/train.tsv"))?)?;
    let (model, pairs) = (measure::path_text(&model)?, measure::path_text(&pairs)?);

    let (python, processor) = (measure::python(), Processor::here());
    let bench = measure::build("cloze-trainer", "embedding")?;
    let ours = |work: &str, what: &str, rounds: &str, precision: &str| {
        measure::ours(&bench, &[work, &model, what, rounds, precision])
    };
    let peer = |peer: &str, what: &str, rounds: &str, precision: &str| {
        let python = python.as_ref()?;
        Some(measure::peer(python, "embed.py", &[peer, &model, what, rounds, precision]))
    };
    let rows = vec![
        Row {
            work: "2,000 sentences, f32",
            ours: ours("sentences", &text, "3", "f32"),
            peer: ("transformers, sorted batches of 32", peer("transformers", &text, "1", "f32")),
            floor: processor.goal([1.5, 2.71, 1.6]),
        },
        Row {
            work: "2,000 sentences, bf16",
            ours: ours("sentences", &text, "3", "bf16"),
            peer: ("the same, the faster of its bf16s", peer("transformers", &text, "1", "bf16")),
            floor: processor.goal([3.0, 0.0, 0.0]),
        },
        Row {
            work: "2,000 sentences, int8",
            ours: ours("sentences", &text, "3", "int8"),
            peer: ("ONNX Runtime, dynamic int8", peer("onnx", &text, "1", "int8")),
            floor: processor.goal([2.0, 1.93, 1.3]),
        },
        Row {
            work: "one sentence of 16 tokens, f32",
            ours: ours("latency", "16", "200", "f32"),
            peer: ("PyTorch", peer("latency", "16", "200", "f32")),
            floor: 2.0,
        },
        Row {
            work: "one sentence of 16 tokens, bf16",
            ours: ours("latency", "16", "200", "bf16"),
            peer: ("the faster of its bf16s", peer("latency", "16", "200", "bf16")),
            floor: 2.0,
        },
        Row {
            work: "load and embed one sentence",
            ours: ours("start", "A sentence to begin with.", "1", "f32"),
            peer: ("–", None),
            floor: 0.0,
        },
    ];
    let outcomes = measure::alternate(rows, &args.measure)?;
    let mut text = report::beside(&outcomes, "a second");
    if args.measure.only.is_none() {
        let spearman =
            |precision| measure::value(&mut ours("similarity", &pairs, "1", precision), "spearman");
        let (f32, bf16, int8) = (spearman("f32")?, spearman("bf16")?, spearman("int8")?);
        text += &format!(
            "\n\nWhat fewer bits lose: Spearman's coefficient of scores and cosines, pairs of {}: f32 {f32:.4}, bf16 \
             {bf16:.4} ({:+.4}), int8 {int8:.4} ({:+.4}).",
            Path::new(&pairs).file_name().unwrap_or_default().to_string_lossy(),
            bf16 - f32,
            int8 - f32
        );
    }
    text += &format!(
        "\n\n{}, medians of {} alternating rounds. {}.",
        Path::new(&model).file_name().unwrap_or_default().to_string_lossy(),
        args.measure.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.measure.write { report::write_class("infer", &text) } else { Ok(()) }
}

/// Writes 2,000 sentences of a file, the last column of labels and a header left out, where both sides read
/// them.
pub fn first_sentences(path: &Path) -> Result<PathBuf> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_table = path.extension().is_some_and(|extension| extension == "tsv");
    let lines = text.lines().skip(usize::from(is_table)).filter(|line| !line.is_empty()).take(2_000);
    let sentence =
        |line| if is_table { str::rsplit_once(line, '\t').map_or(line, |(left, _)| left) } else { line };
    let sentences = lines.map(sentence).fold(String::new(), |all, line| all + line + "\n");
    let target = std::env::temp_dir().join("cloze-bench-sentences.txt");
    std::fs::write(&target, sentences).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(target)
}

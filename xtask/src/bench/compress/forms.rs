//! Forms of one sentence encoder's weights: bytes, speed and memory beside the programs that read the same integers, and what is
//! lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::measure::{self, Measured, Rounds, path_text};
use crate::bench::processor::Processor;
use crate::bench::report;
use crate::step;

/// A form of weights.
struct Form {
    name: &'static str,
    /// Arguments of `cloze quantize`; none for the model as it is.
    quantize: &'static [&'static str],
    /// Who reads the same numbers, and how many times its rate is wanted with AMX, AVX-512 and AVX2.
    peers: &'static [(Peer, [f64; 3])],
}

#[derive(Clone, Copy)]
enum Peer {
    OnnxRuntime,
    /// ONNX Runtime with weights that it quantises itself.
    Dynamic,
    OpenVino,
    LlamaCpp,
}

const FORMS: [Form; 7] = [
    Form { name: "FP32", quantize: &[], peers: &[(Peer::OnnxRuntime, [0.0; 3]), (Peer::OpenVino, [0.0; 3])] },
    Form {
        name: "int8, a range for each token",
        quantize: &["--weights", "int8"],
        peers: &[(Peer::Dynamic, [0.0; 3])],
    },
    Form {
        name: "int8, static",
        quantize: &["--weights", "int8", "--ranges", "mse", "--calibrate", "TEXTS"],
        peers: &[(Peer::OnnxRuntime, [2.0, 2.0, 1.2]), (Peer::OpenVino, [1.0; 3])],
    },
    Form {
        name: "Q8_0, tables",
        quantize: &["--weights", "q8_0", "--tables"],
        peers: &[(Peer::LlamaCpp, [0.0; 3])],
    },
    Form {
        name: "Q4_0, tables",
        quantize: &["--weights", "q4_0", "--tables"],
        peers: &[(Peer::OnnxRuntime, [3.0; 3]), (Peer::LlamaCpp, [0.0; 3])],
    },
    Form {
        name: "Q4_0, GPTQ, tables",
        quantize: &["--weights", "q4_0", "--tables", "--gptq", "--calibrate", "TEXTS"],
        peers: &[],
    },
    Form {
        name: "integers alone",
        quantize: &["--weights", "int8", "--integers-only", "--calibrate", "TEXTS"],
        peers: &[],
    },
];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "ONNX Runtime, same integers",
            Self::Dynamic => "ONNX Runtime, dynamic",
            Self::OpenVino => "OpenVINO, same integers",
            Self::LlamaCpp => "llama.cpp, same integers",
        }
    }

    /// The module that its Python has to have.
    fn module(self) -> &'static str {
        match self {
            Self::OnnxRuntime | Self::Dynamic => "onnxruntime",
            Self::OpenVino => "openvino",
            Self::LlamaCpp => "xllamacpp",
        }
    }
}

/// The inputs of all forms.
struct Bench {
    program: PathBuf,
    library: PathBuf,
    model: PathBuf,
    sentences: PathBuf,
    pairs: PathBuf,
    texts: PathBuf,
    place: PathBuf,
}

/// Measures all forms; the text for benches/README.md.
pub fn run(program: PathBuf, args: &Rounds) -> Result<String> {
    let shared = step::root().join("../shared");
    let real = |usual: &str| {
        let path = shared.join(usual);
        path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
    };
    let place = std::env::temp_dir().join(format!("cloze-bench-forms-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let (sentences, texts) = split_sentences(&real("data/sst2/train.tsv")?, &place)?;
    let bench = Bench {
        program,
        library: measure::build("cloze-trainer", "embedding")?,
        model: real("models/all-MiniLM-L6-v2")?,
        sentences,
        texts,
        pairs: real("data/sts2015/test.tsv")?,
        place: place.clone(),
    };
    let text = bench.table(args);
    fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    text
}

impl Bench {
    fn table(&self, args: &Rounds) -> Result<String> {
        let (python, processor) = (measure::python(), Processor::here());
        let has = |peer: Peer| {
            let python = python.as_ref()?;
            let found =
                step::succeeds(Command::new(python).args(["-c", &format!("import {}", peer.module())]));
            if !found {
                eprintln!("{} is not installed: {} is left out", peer.module(), peer.name());
            }
            found.then_some(python)
        };
        let wanted = |form: &&Form| args.only.as_ref().is_none_or(|only| form.name.contains(only.as_str()));
        let (mut rows, mut beside, mut exact) = (Vec::new(), Vec::new(), None);
        for form in FORMS.iter().filter(wanted) {
            let folder = self.quantized(form)?;
            let mut ours = measure::ours(
                &self.library,
                &["sentences", &path_text(&folder)?, &path_text(&self.sentences)?, "1", "f32"],
            );
            let peers: Vec<_> = form
                .peers
                .iter()
                .filter_map(|(peer, floors)| Some((*peer, processor.goal(*floors), has(*peer)?)))
                .collect();
            let mut peers = peers
                .into_iter()
                .map(|(peer, floor, python)| Ok((peer, floor, self.peer(peer, &folder, python)?, Vec::new())))
                .collect::<Result<Vec<_>>>()?;
            let (mut measured, mut whole) = (Vec::new(), Vec::new());
            for round in 1..=args.rounds {
                eprintln!("{}, round {round} of {}", form.name, args.rounds);
                measured.push(Measured::from(&mut ours)?);
                let mut embed = Command::new(&self.program);
                embed.args(["embed", "--model"]).arg(&folder);
                whole.push(measure::process(&mut embed, &self.sentences, &self.place.join("vectors.jsonl"))?);
                for (_, _, command, times) in &mut peers {
                    times.push(Measured::from(command)?);
                }
            }
            let measured = Measured::median(&measured);
            let vectors = self.vectors(&folder)?;
            let exact = &*exact.get_or_insert_with(|| vectors.clone());
            let spearman = measure::value(
                &mut measure::ours(
                    &self.library,
                    &["similarity", &path_text(&folder)?, &path_text(&self.pairs)?, "1", "f32"],
                ),
                "spearman",
            )?;
            rows.push([
                form.name.to_owned(),
                report::short(weight_bytes(&folder)? as f64 / 1e6),
                report::short(measured.per_s),
                report::short(measure::median(whole.into_iter()).unwrap_or(f64::NAN) / 1e3),
                report::short(measured.peak_mb),
                format!("{:.2}", 100.0 * spearman),
                format!("{:.4}", mean_cosine(exact, &vectors)),
            ]);
            for (peer, floor, _, times) in peers {
                let theirs = Measured::median(&times);
                beside.push([
                    form.name.to_owned(),
                    peer.name().to_owned(),
                    report::short(measured.per_s),
                    report::short(theirs.per_s),
                    format!("{:.2} ×", measured.per_s / theirs.per_s),
                    if floor > 0.0 { format!("{floor} ×") } else { "–".to_owned() },
                    report::short(measured.peak_mb),
                    report::short(theirs.peak_mb),
                ]);
            }
        }
        let header =
            ["weights", "MB", "sentences/s", "`cloze embed`, s", "memory, MB", "STS 2015", "cosine to FP32"];
        let mut page = report::table(header, rows);
        if !beside.is_empty() {
            let header = ["weights", "peer", "sentences/s", "its", "ratio", "at least", "MB", "peer's MB"];
            page += &format!("\n\n{}", report::table(header, beside));
        }
        Ok(format!(
            "{page}\n\nall-MiniLM-L6-v2, 2,000 sentences of SST-2; medians of {} alternating rounds. `cloze embed` is the whole \
             process, from the file to the vectors. {}.",
            args.rounds,
            report::machine(python.as_ref())
        ))
    }

    /// The folder of a form.
    fn quantized(&self, form: &Form) -> Result<PathBuf> {
        if form.quantize.is_empty() {
            return Ok(self.model.clone());
        }
        let folder = self.place.join(form.name.replace(|c: char| !c.is_alphanumeric(), "-"));
        let texts = path_text(&self.texts)?;
        let mut quantize = Command::new(&self.program);
        quantize.args(["quantize", "--model"]).arg(&self.model);
        quantize.args(form.quantize.iter().map(|part| if *part == "TEXTS" { &*texts } else { part }));
        measure::output(quantize.arg("--out").arg(&folder))?;
        Ok(folder)
    }

    /// A peer on the same numbers, exported for it.
    fn peer(&self, peer: Peer, folder: &Path, python: &std::ffi::OsString) -> Result<Command> {
        // A quantised model's own graph; for a peer that quantises by itself, that of the whole model.
        let source = if matches!(peer, Peer::Dynamic) { &self.model } else { folder };
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let (format, out, file): (&[&str], _, _) = match peer {
            Peer::LlamaCpp => {
                let file = self.place.join(format!("{name}.gguf"));
                (&["gguf"], file.clone(), file)
            }
            _ => {
                let out = self.place.join(format!("{name}-onnx"));
                (&["onnx", "--states"], out.clone(), out.join("model.onnx"))
            }
        };
        if !out.exists() {
            let mut export = Command::new(&self.program);
            export.arg("export").args(format).arg("--model").arg(source).arg("--out").arg(&out);
            measure::output(&mut export)?;
        }
        let name = match peer {
            Peer::OnnxRuntime | Peer::Dynamic => "onnxruntime",
            Peer::OpenVino => "openvino",
            Peer::LlamaCpp => "llama.cpp",
        };
        let file = if matches!(peer, Peer::Dynamic) {
            format!("dynamic:{}", file.display())
        } else {
            path_text(&file)?
        };
        let tokenizer = path_text(&self.model.join("tokenizer.json"))?;
        Ok(measure::peer(
            python,
            "integers.py",
            &[name, &file, &tokenizer, &path_text(&self.sentences)?, "1"],
        ))
    }

    /// The vectors of the sentences.
    fn vectors(&self, folder: &Path) -> Result<Vec<Vec<f64>>> {
        let file = self.place.join("vectors.jsonl");
        let mut embed = Command::new(&self.program);
        embed.args(["embed", "--model"]).arg(folder);
        measure::process(&mut embed, &self.sentences, &file)?;
        let lines = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let vector = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line)?;
            let numbers = value["vector"]
                .as_array()
                .or_else(|| value["embedding"].as_array())
                .or_else(|| value.as_array());
            let numbers = numbers.context("a line of `cloze embed` without a vector")?;
            Ok(numbers.iter().filter_map(serde_json::Value::as_f64).collect())
        };
        lines.lines().map(vector).collect()
    }
}

/// The mean cosine of vectors of the same texts.
fn mean_cosine(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosines = a.iter().zip(b).map(|(a, b)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt());
    cosines.sum::<f64>() / a.len() as f64
}

/// Bytes of a folder's weights.
fn weight_bytes(folder: &Path) -> Result<u64> {
    let file = folder.join("model.safetensors");
    Ok(fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?.len())
}

/// The sentences of a table with labels, cut in two files: 2,000 to be embedded, and a thousand others to measure ranges on.
fn split_sentences(table: &Path, place: &Path) -> Result<(PathBuf, PathBuf)> {
    let read = fs::read_to_string(table).with_context(|| format!("cannot read {}", table.display()))?;
    let mut sentences = read.lines().skip(1).filter_map(|line| Some(line.rsplit_once('\t')?.0));
    let mut write = |name: &str, count: usize| {
        let path = place.join(name);
        let text = sentences.by_ref().take(count).fold(String::new(), |all, line| all + line + "\n");
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    let both: Result<(PathBuf, PathBuf)> =
        write("sentences.txt", 2_000).and_then(|first| Ok((first, write("texts.txt", 1_000)?)));
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_are_of_the_same_texts() {
        let a = vec![vec![1.0, 0.0], vec![0.0, 2.0]];
        assert!((mean_cosine(&a, &a) - 1.0).abs() < 1e-12);
        assert!((mean_cosine(&a, &[vec![1.0, 0.0], vec![1.0, 0.0]]) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn sentences_that_are_embedded_are_not_those_that_ranges_are_measured_on() {
        let place = tempfile::tempdir().unwrap();
        let table = place.path().join("table.tsv");
        let rows: String = (0..2_500).map(|row| format!("sentence {row}\t1\n")).collect();
        fs::write(&table, format!("sentence\tlabel\n{rows}")).unwrap();
        let (sentences, texts) = split_sentences(&table, place.path()).unwrap();
        let lines = |path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((lines(sentences).len(), lines(texts)[0].as_str()), (2_000, "sentence 2000"));
    }
}

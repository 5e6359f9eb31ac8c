//! Probing from the config to the report.

use super::classes::{Examples, Training, control, measure};
use super::config::{ProbeConfig, ProbeTask};
use super::geometry::{self, ScoredPairs};
use super::sentences::{self, ParsedSentence};
use super::states::{LayerEncoder, LayerVectors, Reading, WordStates};
use super::structure::{self, Treebank};
use crate::engine::FolderConfig;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::labelled::LabelSet;
use cloze_data::{Random, derive_seed};
use cloze_evaluation::probing::{OnlineCode, ProbeScore, StructuralFigures};
use cloze_evaluation::report::{LayerLine, LayerPanel, LayersReport};
use cloze_evaluation::table;
use cloze_files::write_atomic;
use std::path::{Path, PathBuf};

/// Number of sentence length classes.
const LENGTH_CLASSES: usize = 6;

/// Random streams.
const CONTROL: u64 = 1;
const ORDER: u64 = 2;
const GEOMETRY: u64 = 3;
const PROBE: u64 = 4;

/// The result of probing.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeResult {
    /// The metrics as tables for a terminal.
    pub text: String,
    /// The report's page; the metrics are next to it in `probe.json`.
    pub page: PathBuf,
}

/// Probes an encoder as configured, and writes `config.toml`, `probe.html` and `probe.json` into `folder`,
/// which is created if missing. `device` must be one without autodiff.
///
/// # Errors
/// Unusable data; a missing or damaged file in the model folder; a missing layer; states that need more memory
/// than `data.max_gib`; [`TrainerError::OutputNotFinite`]; files that cannot be written.
pub fn probe(
    config: &ProbeConfig,
    folder: &Path,
    device: &Device,
    progress: &mut dyn RunProgress,
) -> Result<ProbeResult> {
    let data = &config.data;
    // Whatever can be wrong with data is said before the encoder works.
    let train = sentences::read(&data.train, "train")?;
    let dev = sentences::read(&data.dev, "dev")?;
    let geometry = config.geometry.as_ref();
    let scored =
        geometry.and_then(|section| section.similarity.as_ref()).map(ScoredPairs::read).transpose()?;
    let layers = config.model.layers.as_deref();
    let encoder = LayerEncoder::load(&config.model.path, layers, (data.max_len, data.batch_tokens), device)?;
    if let Some(section) = geometry {
        geometry::components(section, encoder.width)?;
    }
    let (train, train_readings, mut left_out) = readable(train, data.max_train, &encoder, "train")?;
    let (dev, dev_readings, more) = readable(dev, data.max_dev, &encoder, "dev")?;
    left_out += more;
    if left_out > 0 {
        progress.note(&format!(
            "left out: {} sentences longer than {} tokens, or with words without a token",
            table::grouped(left_out as u64),
            encoder.max_len
        ));
    }
    let n_texts = scored.as_ref().map_or(0, ScoredPairs::n_texts);
    check_size(config, &encoder, [&train, &dev], n_texts, progress)?;
    std::fs::create_dir_all(folder).map_err(TrainerError::io("make", folder))?;
    write_atomic(&folder.join("config.toml"), config.to_toml().as_bytes())?;

    let [train, dev] = [("train", train, train_readings), ("dev", dev, dev_readings)].map(
        |(split, sentences, readings)| -> Result<Split> {
            let what = format!("reading {split}");
            let states = encoder.words(&readings, &what, &PeriodicNotes::new(&mut *progress))?;
            Ok(Split { sentences, states })
        },
    );
    let splits = [train?, dev?];
    let probing = Probing { config, encoder: &encoder, splits: &splits, device };
    let mut panels = probing.classes(progress)?;
    if let Some(section) = &config.structure {
        let notes = PeriodicNotes::new(&mut *progress);
        let [train, dev] =
            splits.each_ref().map(|split| Treebank { states: &split.states, sentences: &split.sentences });
        let mut figures = Vec::new();
        for at in 0..encoder.layers.len() {
            figures.push(structure::probe([train, dev], at, section, device, probing.seed(PROBE))?);
            notes.note(|seconds| remaining("structural probes", at + 1, encoder.layers.len(), seconds));
        }
        panels.push(structural_panel(&figures));
    }
    if let Some(section) = geometry {
        let random = &mut Random::new(probing.seed(GEOMETRY));
        panels.push(geometry::words(section, &splits[1].states, &splits[1].sentences, random));
        if let Some(scored) = &scored {
            let notes = PeriodicNotes::new(&mut *progress);
            panels.extend(scored.panels(section, &encoder, &notes, random)?);
        }
    }
    progress.finish();
    let counted = |split: &Split| {
        let (sentences, words) = (split.sentences.len() as u64, split.states.len() as u64);
        format!("{} sentences, {} words", table::grouped(sentences), table::grouped(words))
    };
    let facts = [
        ("model", config.model.path.display().to_string()),
        ("trained on", counted(&splits[0])),
        ("measured on", counted(&splits[1])),
        ("seed", config.run.seed.to_string()),
    ];
    let title = format!("Probing results by layer: {}", config.run.name);
    let report = LayersReport { title: &title, facts: &facts, layers: &encoder.layers, panels: &panels };
    report.write(folder, "probe")?;
    Ok(ProbeResult { text: report.to_text(), page: folder.join("probe.html") })
}

/// Sentences with their words' states.
struct Split {
    sentences: Vec<ParsedSentence>,
    states: WordStates,
}

/// A classification task's examples in both splits.
struct Labelled {
    vectors: [LayerVectors; 2],
    labels: [Vec<usize>; 2],
    n_classes: usize,
}

/// The first `most` sentences that fit the encoder, their readings, and how many do not fit.
fn readable(
    mut sentences: Vec<ParsedSentence>,
    most: usize,
    encoder: &LayerEncoder,
    split: &'static str,
) -> Result<(Vec<ParsedSentence>, Vec<Reading>, usize)> {
    sentences.truncate(most);
    let words: Vec<Vec<String>> = sentences.iter().map(|sentence| sentence.words.clone()).collect();
    let readings = encoder.readings(&words)?;
    let total = sentences.len();
    let (sentences, readings): (Vec<ParsedSentence>, Vec<Reading>) =
        sentences.into_iter().zip(readings).filter_map(|(of, reading)| Some((of, reading?))).unzip();
    match sentences.is_empty() {
        true => Err(TrainerError::NoExamples { split }),
        false => {
            let left_out = total - sentences.len();
            Ok((sentences, readings, left_out))
        }
    }
}

/// Reports the memory of the states, and fails if it exceeds the limit.
fn check_size(
    config: &ProbeConfig,
    encoder: &LayerEncoder,
    splits: [&[ParsedSentence]; 2],
    n_texts: usize,
    progress: &mut dyn RunProgress,
) -> Result<()> {
    let words: usize = splits.iter().flat_map(|of| of.iter()).map(|sentence| sentence.words.len()).sum();
    let sentences: usize = splits.iter().map(|of| of.len()).sum();
    let gib =
        gib(words, sentences, n_texts, [encoder.layers.len(), encoder.width], rayon::current_num_threads());
    progress.note(&format!(
        "states: {} words in {} layers, {gib:.2} GiB",
        table::grouped(words as u64),
        encoder.layers.len()
    ));
    let most = config.data.max_gib;
    match gib > most {
        true => Err(TrainerError::Setting {
            key: "data.max_gib".into(),
            found: format!("{most}, but the states need {gib:.2} GiB"),
            expected: "as much, or less of `data.max_train`, `data.max_dev` or `model.layers`".into(),
        }),
        false => Ok(()),
    }
}

/// The memory of the states: those of words, the sentence means for two tasks, and those of scored texts, with
/// what their corrections need for as many layers as there are threads.
fn gib(words: usize, sentences: usize, n_texts: usize, [layers, width]: [usize; 2], threads: usize) -> f64 {
    let states = (words + 2 * sentences + n_texts) as f64 * (layers * width) as f64 * 4.0;
    let corrections = match n_texts {
        0 => 0.0,
        _ => layers.min(threads) as f64 * geometry::correction_bytes(n_texts, width),
    };
    (states + corrections) / (1u64 << 30) as f64
}

/// Everything that classification probes need.
struct Probing<'a> {
    config: &'a ProbeConfig,
    encoder: &'a LayerEncoder,
    splits: &'a [Split; 2],
    device: &'a Device,
}

impl Probing<'_> {
    fn seed(&self, stream: u64) -> u64 {
        derive_seed(self.config.run.seed, &[stream])
    }

    /// A panel of metrics for each task.
    fn classes(&self, progress: &mut dyn RunProgress) -> Result<Vec<LayerPanel>> {
        let section = &self.config.probe;
        let n_layers = self.encoder.layers.len();
        let total = section.tasks.len() * n_layers;
        let mut panels = Vec::new();
        // Both tasks of sentences read means of words, but those of swapped words are other ones.
        let mut shuffled = None;
        if section.tasks.contains(&ProbeTask::WordOrder) {
            shuffled = Some(self.swapped(&PeriodicNotes::new(&mut *progress))?);
        }
        let notes = PeriodicNotes::new(progress);
        for (number, task) in section.tasks.iter().enumerate() {
            let note = |at: usize| {
                notes.note(|seconds| remaining("probes", number * n_layers + at + 1, total, seconds));
            };
            panels.push(match task {
                ProbeTask::PartOfSpeech | ProbeTask::Relation => {
                    let (labels, n_classes) = self.word_labels(*task)?;
                    let vectors = self.splits.each_ref().map(|split| &split.states.vectors);
                    self.panel(*task, vectors, &labels, n_classes, &note)?
                }
                ProbeTask::Length => {
                    let vectors = self.splits.each_ref().map(|split| split.states.means());
                    let (labels, n_classes) = self.lengths();
                    self.panel(*task, vectors.each_ref(), &labels, n_classes, &note)?
                }
                ProbeTask::WordOrder => {
                    let found = shuffled.take();
                    let Some(Labelled { vectors, labels, n_classes }) = found else { continue };
                    self.panel(*task, vectors.each_ref(), &labels, n_classes, &note)?
                }
            });
        }
        Ok(panels)
    }

    /// The classes of words: all that occur in either split.
    fn word_labels(&self, task: ProbeTask) -> Result<([Vec<usize>; 2], usize)> {
        let names = |split: &Split| -> Vec<String> {
            let of_sentence = |sentence: &ParsedSentence| match task {
                ProbeTask::Relation => sentence.relations.clone(),
                _ => sentence.parts_of_speech.clone(),
            };
            split.sentences.iter().flat_map(of_sentence).collect()
        };
        let names = self.splits.each_ref().map(names);
        let set = LabelSet::found(names.iter().flatten().cloned())?;
        let ids = |names: Vec<String>| names.iter().filter_map(|name| set.id(name)).collect();
        Ok((names.map(ids), set.names().len()))
    }

    /// The length classes of sentences, with equal numbers of training sentences as far as ties allow.
    fn lengths(&self) -> ([Vec<usize>; 2], usize) {
        let lengths = |split: &Split| -> Vec<usize> {
            split.sentences.iter().map(|sentence| sentence.words.len()).collect()
        };
        let [train, dev] = self.splits.each_ref().map(lengths);
        let bounds = bounds(&train);
        let class = |length: &usize| bounds.iter().filter(|bound| *bound <= length).count();
        ([train, dev].map(|lengths| lengths.iter().map(class).collect()), bounds.len() + 1)
    }

    /// Sentences, half of them with two neighbouring words swapped, and the labels.
    fn swapped(&self, notes: &PeriodicNotes) -> Result<Labelled> {
        let random = &mut Random::new(self.seed(ORDER));
        let mut read = |split: &Split, what: &str| -> Result<(LayerVectors, Vec<usize>)> {
            let words = split.sentences.iter().map(|sentence| &sentence.words);
            let (words, labels): (Vec<Vec<String>>, Vec<usize>) =
                words.filter_map(|words| swap(words, random)).unzip();
            let readings = self.encoder.readings(&words)?;
            let (readings, labels): (Vec<Reading>, Vec<usize>) =
                readings.into_iter().zip(labels).filter_map(|(of, label)| Some((of?, label))).unzip();
            Ok((self.encoder.means(&readings, what, notes)?, labels))
        };
        let (train, train_labels) = read(&self.splits[0], "reading train with words swapped")?;
        let (dev, dev_labels) = read(&self.splits[1], "reading dev with words swapped")?;
        if train_labels.is_empty() || dev_labels.is_empty() {
            return Err(TrainerError::Setting {
                key: "probe.tasks".into(),
                found: "a list with \"word-order\"".into(),
                expected: "no such task: no sentence has two different words".into(),
            });
        }
        Ok(Labelled { vectors: [train, dev], labels: [train_labels, dev_labels], n_classes: 2 })
    }

    /// The metrics of a task by layer.
    fn panel(
        &self,
        task: ProbeTask,
        [train, dev]: [&LayerVectors; 2],
        labels: &[Vec<usize>; 2],
        n_classes: usize,
        note: &dyn Fn(usize),
    ) -> Result<LayerPanel> {
        let section = &self.config.probe;
        let training = Training { section, n_classes, device: self.device, seed: self.seed(PROBE) };
        let controls = (section.control && task.is_of_words()).then(|| self.control(&labels[0]));
        let kinds: &[(&str, Option<usize>)] = match section.hidden {
            0 => &[("linear", None)],
            hidden => &[("linear", None), ("MLP", Some(hidden))],
        };
        let [train_rows, dev_rows] =
            labels.each_ref().map(|labels| (0..labels.len()).collect::<Vec<usize>>());
        let mut scores: Vec<Vec<ProbeScore>> = vec![Vec::new(); kinds.len()];
        for at in 0..self.encoder.layers.len() {
            let (train_layer, dev_layer) = ([&train.of_layers[at][..]], [&dev.of_layers[at][..]]);
            let width = train.width;
            let accuracy = |labels: &[Vec<usize>; 2], hidden| -> Result<f64> {
                let train = Examples { layers: &train_layer, width, labels: &labels[0] };
                let dev = Examples { layers: &dev_layer, width, labels: &labels[1] };
                let probe = training.probe(&train, &train_rows, hidden)?;
                Ok(measure(&probe, &dev, &dev_rows, self.device).accuracy)
            };
            for ((_, hidden), scores) in kinds.iter().zip(&mut scores) {
                let examples = Examples { layers: &train_layer, width, labels: &labels[0] };
                let code = match section.description_length {
                    true => training.code(&examples, *hidden)?,
                    false => OnlineCode::new(n_classes, 0),
                };
                let control = controls.as_ref().map(|of| accuracy(of, *hidden)).transpose()?;
                scores.push(ProbeScore { accuracy: accuracy(labels, *hidden)?, control, code });
            }
            note(at);
        }
        let mut lines = Vec::new();
        let mut line = |name: String, value: &dyn Fn(&ProbeScore) -> f64, scores: &[ProbeScore]| {
            lines.push(LayerLine::new(name, scores.iter().map(value).collect()));
        };
        for ((kind, _), scores) in kinds.iter().zip(&scores) {
            line(format!("{kind}: accuracy"), &|score| score.accuracy, scores);
            if controls.is_some() {
                line(
                    format!("{kind}: selectivity"),
                    &|score| score.selectivity().unwrap_or(f64::NAN),
                    scores,
                );
            }
        }
        let mut whole = vec![("majority class".to_owned(), majority(labels, n_classes))];
        if section.mix && self.encoder.layers.len() > 1 {
            let [train_layers, dev_layers] =
                [train, dev].map(|of| of.of_layers.iter().map(Vec::as_slice).collect::<Vec<&[f32]>>());
            let examples = Examples { layers: &train_layers, width: train.width, labels: &labels[0] };
            let mixed = training.mixed(&examples, &train_rows)?;
            let dev = Examples { layers: &dev_layers, width: dev.width, labels: &labels[1] };
            let accuracy = measure(&mixed, &dev, &dev_rows, self.device).accuracy;
            whole.push(("accuracy of all layers mixed".into(), accuracy));
            let weights: Vec<f64> = mixed.mix.shares().into_iter().map(f64::from).collect();
            let centre =
                weights.iter().zip(&self.encoder.layers).map(|(weight, layer)| weight * *layer as f64);
            whole.push(("centre of gravity".into(), centre.sum()));
            lines.push(LayerLine::new("weight in the mix", weights));
        }
        if section.description_length {
            for ((kind, _), scores) in kinds.iter().zip(&scores) {
                let best = scores.iter().map(|score| score.code.bits()).fold(f64::INFINITY, f64::min);
                whole.push((format!("{kind}: shortest code, kbit"), best / 1_000.0));
                // A share of the uniform code, so that it is of the size of the other figures.
                let share = |score: &ProbeScore| 1.0 / score.code.compression();
                lines.push(LayerLine::new(format!("{kind}: code"), scores.iter().map(share).collect()));
            }
        }
        let (title, note) = (task.title().into(), explanation(n_classes, &labels[1]));
        Ok(LayerPanel { title, note, lines, whole, is_quality: true })
    }

    /// Labels of the control task, see [`control`].
    fn control(&self, train_labels: &[usize]) -> [Vec<usize>; 2] {
        let [train, dev] = self.splits.each_ref().map(|split| {
            let words = split.sentences.iter().flat_map(|sentence| &sentence.words);
            words.map(String::as_str).collect::<Vec<&str>>()
        });
        control(&train, &dev, train_labels, &mut Random::new(self.seed(CONTROL)))
    }
}

/// An explanation of a task's metrics.
fn explanation(n_classes: usize, labels: &[usize]) -> String {
    format!(
        "{n_classes} classes, {} examples. Selectivity is accuracy less that on a control task with a random label for each \
         type of word (Hewitt & Liang 2019). Weights in the mix are those of a linear probe of all layers, and their centre of \
         gravity is their mean layer (Tenney et al. 2019). A code is the length of the training labels sent online, as a share \
         of a uniform code (Voita & Titov 2020): the shorter, the more the layer knows.",
        table::grouped(labels.len() as u64)
    )
}

/// The fraction of the most frequent training class among the evaluated labels.
fn majority([train, dev]: &[Vec<usize>; 2], n_classes: usize) -> f64 {
    let mut counts = vec![0; n_classes];
    train.iter().for_each(|label| counts[*label] += 1);
    let most = (0..n_classes).max_by_key(|label| counts[*label]);
    dev.iter().filter(|label| Some(**label) == most).count() as f64 / dev.len() as f64
}

/// The minimum lengths of all classes but the first, ascending.
fn bounds(lengths: &[usize]) -> Vec<usize> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let bound = |class: usize| sorted[class * sorted.len() / LENGTH_CLASSES];
    let mut bounds: Vec<usize> = (1..LENGTH_CLASSES).map(bound).collect();
    bounds.dedup();
    bounds.retain(|bound| *bound > sorted[0]);
    bounds
}

/// With equal probability, the words with label 0, or with two different neighbours swapped and label 1. None
/// if no two neighbours differ.
fn swap(words: &[String], random: &mut Random) -> Option<(Vec<String>, usize)> {
    let places: Vec<usize> = (1..words.len()).filter(|place| words[place - 1] != words[*place]).collect();
    if places.is_empty() {
        return None;
    }
    let mut words = words.to_vec();
    let swaps = random.chance(0.5);
    let place = places[random.below(places.len() as u64) as usize];
    if swaps {
        words.swap(place - 1, place);
    }
    Some((words, usize::from(swaps)))
}

fn structural_panel(figures: &[StructuralFigures]) -> LayerPanel {
    let line = |name: &str, value: &dyn Fn(&StructuralFigures) -> f64| {
        LayerLine::new(name, figures.iter().map(value).collect())
    };
    LayerPanel {
        title: "dependency trees".into(),
        note: "Structural probes (Hewitt & Manning 2019). UUAS is the share of gold edges in the spanning tree of predicted \
               distances, root accuracy that of sentences whose root has the least predicted depth, both without punctuation. \
               Spearman's coefficients are means over sentences of 5 to 50 words, by length."
            .into(),
        lines: vec![
            line("UUAS", &|of| of.uuas),
            line("distances: Spearman", &|of| of.distance_spearman),
            line("root accuracy", &|of| of.root_accuracy),
            line("depths: Spearman", &|of| of.depth_spearman),
        ],
        whole: Vec::new(),
        is_quality: true,
    }
}

/// Training progress.
fn remaining(what: &str, done: usize, total: usize, seconds: f64) -> String {
    let left = table::duration(seconds * (total - done) as f64 / done as f64);
    format!("{what}: {} · {left} left", table::percent(done as f64 / total as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_what_corrections_need() {
        assert_eq!(gib(1 << 17, 1 << 16, 0, [1, 1024], 8), 1.0);
        let with_texts = |threads| gib(0, 0, 64, [3, 1024], threads);
        let (states, one) = (64.0 * 3.0 * 1024.0 * 4.0, geometry::correction_bytes(64, 1024));
        assert!(one > 4.0 * 1024.0 * 1024.0 * 8.0);
        for (threads, layers) in [(1, 1.0), (2, 2.0), (8, 3.0)] {
            let expected = (states + layers * one) / (1u64 << 30) as f64;
            assert!((with_texts(threads) - expected).abs() < 1e-12, "{threads}");
        }
    }

    #[test]
    fn lengths_are_spread_over_classes() {
        let lengths: Vec<usize> = (1..=60).collect();
        assert_eq!(bounds(&lengths), [11, 21, 31, 41, 51]);
        assert_eq!(bounds(&[4, 4, 4, 4, 9, 9]), [9]);
        assert!(bounds(&[4]).is_empty());
    }

    #[test]
    fn different_neighbours_are_swapped() {
        let words: Vec<String> = ["a", "a", "b"].map(String::from).to_vec();
        let random = &mut Random::new(1);
        let found: Vec<(Vec<String>, usize)> = (0..40).filter_map(|_| swap(&words, random)).collect();
        assert_eq!(found.len(), 40);
        let swapped = found.iter().filter(|(_, label)| *label == 1).count();
        assert!((8..33).contains(&swapped));
        for (found, label) in found {
            assert_eq!(found, if label == 1 { ["a", "b", "a"] } else { ["a", "a", "b"] });
        }
        assert!(swap(&words[..2], random).is_none() && swap(&[], random).is_none());
    }

    #[test]
    fn the_majority_is_the_training_data_s() {
        assert_eq!(majority(&[vec![0, 1, 1], vec![0, 0, 1, 0]], 2), 0.25);
    }
}

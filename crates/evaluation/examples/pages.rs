//! Writes a page of each kind, of invented results, into a folder: for `cargo xtask look`, and to see a style.
//!
//! ```sh
//! cargo run --package cloze-evaluation --example pages -- FOLDER
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use cloze_evaluation::chart::{Chart, ChartLine, ChartPanel, Look, Places};
use cloze_evaluation::entities::Span;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{
    Answer, AnswerExample, AnswerPredictions, ChoiceExample, ChoicePredictions, ClassExample,
    ClassPredictions, EntityExample, EntityPredictions, InRun, IndexLink, IndexReport, IndexSplit,
    InspectionReport, LabelExample, LabelPredictions, LayerLine, LayerPanel, LayersReport, MapReport,
    Picture, Predictions, Report, RunCurves, RunsReport, SeedRun, SeedsReport, SimilarityExample,
    SimilarityKind, SimilarityPredictions, SquadVersion, TranslationExample, TranslationPredictions,
    ValueExample, ValuePredictions, WithPictures,
};
use cloze_evaluation::seeds::Seeds;
use cloze_evaluation::translation::{OfLength, draw_by_length};

#[path = "captions/mod.rs"]
mod captioned;
#[path = "invented/mod.rs"]
mod invented;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Texts as they come: short, long, of other scripts, with markup and without a space.
const TEXTS: [&str; 6] = [
    "a gorgeous, witty, seductive movie.",
    "The plot is so amusingly contrived and outlandish in its coincidences that no one could ever mistake it for anything \
     resembling reality; yet it moves along at a brisk, amusing pace, and the cast, above all in the smaller parts, is good.",
    "<script>alert(1)</script> & \"quotes\"",
    "https://example.org/a/very/long/address/without/any/space/in/it/that/a/narrow/window/has/to/break/somewhere?query=1234567890",
    "מה נשתנה הלילה הזה מכל הלילות",
    "彼はボートに乗っている男です。",
];

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or("expected a folder")?;
    fs::create_dir_all(&folder)?;
    curves(&folder)?;
    let curve = folder.join("curve.svg");
    reports(&folder, &curve)?;
    captions(&folder)?;
    layers(&folder)?;
    seeds(&folder, &curve)?;
    map(&folder)?;
    inspections(&folder)?;
    runs(&folder)?;
    run(&folder, &curve)
}

/// Numbers from 0 to 1 that are the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() * n as f64) as usize
    }
}

fn line(label: &str, color: usize, look: Look, points: Vec<(f64, f64)>) -> ChartLine {
    ChartLine { label: label.into(), look, color, points }
}

fn curves(folder: &Path) -> Result<()> {
    let mut noise = Noise(1);
    let mut curve = |from: f64, to: f64, spread: f64, every: usize| -> Vec<(f64, f64)> {
        let value = |step: usize, noise: &mut Noise| {
            to + (from - to) * (-(step as f64) / 4_000.0).exp() + spread * noise.next()
        };
        (1..=20_000 / every).map(|at| ((at * every) as f64, value(at * every, &mut noise))).collect()
    };
    let training = line(
        "training (running mean, label smoothing 0.1)",
        0,
        Look::Smoothed { raw: curve(10.2, 4.0, 1.2, 50) },
        curve(10.8, 4.6, 0.05, 50),
    );
    let upper = vec![
        training,
        line("held out", 1, Look::Marked, curve(10.4, 4.7, 0.1, 1_000)),
        line("unigram baseline", 0, Look::Baseline, vec![(1_000.0, 7.2)]),
    ];
    let lower = vec![
        line("masked tokens, held out", 1, Look::Marked, curve(0.02, 0.35, 0.01, 1_000)),
        line("replaced tokens: precision, held out", 2, Look::Marked, curve(0.1, 0.81, 0.02, 1_000)),
        line("replaced tokens: recall, held out", 3, Look::Marked, curve(0.05, 0.62, 0.02, 1_000)),
        line("unigram baseline", 0, Look::Baseline, vec![(1_000.0, 0.06)]),
    ];
    let panel = |axis: &str, lines| ChartPanel { axis: axis.into(), lines };
    let chart = |title: &str, panels| Chart {
        title: title.into(),
        axis: "step".into(),
        places: Places::Numbers,
        panels,
    };
    let panels = vec![panel("masked-token loss (nats)", upper), panel("accuracy", lower)];
    fs::write(folder.join("curve.svg"), chart("an-invented-run", panels).to_svg())?;
    let few = vec![line("mse, dev", 1, Look::Marked, vec![(2.0, 0.00012), (4.0, 0.00009)])];
    fs::write(
        folder.join("curve-few.svg"),
        chart("a run of four steps", vec![panel("figure", few)]).to_svg(),
    )?;

    let bounds = [(0, Some(10)), (11, Some(20)), (21, Some(30)), (31, Some(40)), (41, Some(60)), (61, None)];
    let systems: Vec<(String, Vec<OfLength>)> = ["marian.de", "transformer-base.de", "lstm.de"]
        .iter()
        .map(|name| {
            let of = |(from, to)| OfLength {
                from,
                to,
                n_lines: 100 + 900 * noise.below(3),
                value: 20.0 + 20.0 * noise.next(),
            };
            ((*name).to_owned(), bounds.into_iter().map(of).collect())
        })
        .collect();
    Ok(draw_by_length(&folder.join("by-length.svg"), "BLEU", &systems)?)
}

fn reports(folder: &Path, curve: &Path) -> Result<()> {
    let mut noise = Noise(2);
    let text = |at: usize| TEXTS[at % TEXTS.len()].to_owned();
    let classes = |n: usize, noise: &mut Noise| {
        let labels: Vec<String> = (0..n)
            .map(|class| match n {
                2 => ["negative", "positive"][class].to_owned(),
                _ => format!("a_class_with_a_rather_long_name_{class}"),
            })
            .collect();
        let example = |at: usize| {
            let gold = noise.below(n);
            let predicted = if noise.next() < 0.8 { gold } else { noise.below(n) };
            let loss = 4.0 * noise.next();
            ClassExample {
                id: (at + 1).to_string(),
                texts: vec![text(at)],
                gold,
                predicted,
                score: 0.9,
                loss,
            }
        };
        let examples = (0..400).map(example).collect();
        ClassPredictions { labels, positive: (n == 2).then_some(1), examples }
    };
    let values = (0..300).map(|at| {
        let gold = 5.0 * noise.next();
        ValueExample {
            id: (at + 1).to_string(),
            texts: vec![text(at), text(at + 1)],
            gold,
            predicted: gold + noise.next() - 0.5,
        }
    });
    let values = ValuePredictions { examples: values.collect() };
    let labels = (0..200).map(|at| LabelExample {
        id: (at + 1).to_string(),
        texts: vec![text(at)],
        gold: (0..4).filter(|_| noise.next() < 0.4).collect(),
        scores: (0..4).map(|_| noise.next()).collect(),
        loss: noise.next(),
    });
    let examples = labels.collect();
    let names = ["joy", "anger", "surprise", "no emotion at all"].map(String::from).to_vec();
    let labels = LabelPredictions { labels: names, threshold: 0.5, examples };
    let choices = (0..60).map(|at| ChoiceExample {
        id: (at + 1).to_string(),
        prompt: text(at),
        choices: (0..4).map(|choice| text(at + choice)).collect(),
        gold: noise.below(4),
        predicted: noise.below(4),
        score: 0.4,
        loss: 2.0 * noise.next(),
    });
    let choices = ChoicePredictions { examples: choices.collect() };
    let entities = |of_words: bool| {
        let words: Vec<String> = "Angela Merkel met the President of France in Berlin on Tuesday ."
            .split(' ')
            .map(String::from)
            .collect();
        let span = |label: &str, start, end| Span { label: label.into(), start, end };
        let example = |at: usize| {
            let (gold, predicted) = match of_words {
                true => {
                    let tags = |shift: usize| {
                        (0..words.len())
                            .map(|word| {
                                span(
                                    ["NOUN", "VERB", "DET", "ADP"][(word * word + shift) % 4],
                                    word,
                                    word + 1,
                                )
                            })
                            .collect()
                    };
                    (tags(0), tags(usize::from(at.is_multiple_of(3))))
                }
                false => (
                    vec![span("PER", 0, 2), span("LOC", 6, 7), span("LOC", 8, 9)],
                    vec![span("PER", 0, 1 + at % 2), span("ORG", 6, 7), span("LOC", 8, 9)],
                ),
            };
            EntityExample {
                id: (at + 1).to_string(),
                words: words.clone(),
                gold,
                predicted,
                loss: at as f64 / 10.0,
            }
        };
        EntityPredictions { examples: (0..60).map(example).collect(), of_words }
    };
    let context = "The Seine is a river in northern France. It flows through Paris and into the English Channel at Le Havre. ";
    let answers = |version: SquadVersion| {
        let example = |at: usize| AnswerExample {
            id: format!("5733be284776f4190066{at:04}"),
            question: ["What does it flow through?", "In how many cities?", "Where is Le Havre?"][at % 3]
                .into(),
            context: context.repeat(1 + at % 4),
            golds: if at % 3 == 1 && version != SquadVersion::One { vec![] } else { vec!["Paris".into()] },
            gold_range: Some(58..63),
            predicted: Answer { text: "through Paris".into(), range: Some(50..63) },
            score: 0.7,
            null_score: at as f64 - 30.0,
            loss: at as f64 / 20.0,
        };
        AnswerPredictions { version, examples: (0..60).map(example).collect() }
    };
    let similarities = |kind: SimilarityKind| {
        let mut noise = Noise(3);
        let mut example = |at: usize| {
            let gold = 5.0 * noise.next();
            let similarity = 0.2 * gold - 0.2 + 0.3 * noise.next();
            SimilarityExample {
                id: (at + 1).to_string(),
                texts: vec![text(at), text(at + 2), text(at + 3)],
                gold,
                similarity,
                rank: 1 + at % 4,
            }
        };
        SimilarityPredictions { kind, examples: (0..200).map(&mut example).collect() }
    };
    let translation = |at: usize| {
        let [source, reference] = [
            ["Ein Mann sitzt in einem kleinen Boot.", "A man sits in a small boat."],
            [
                "Zwei Hunde rennen über die Wiese und spielen mit einem Ball.",
                "Two dogs run across the meadow and play with a ball.",
            ],
            ["Eine Frau liest.", "A woman is reading."],
            ["一个男人坐在船上。", "男人坐在船里。"],
        ][at % 4];
        let words: Vec<&str> = reference.split(' ').collect();
        let kept = words
            .iter()
            .enumerate()
            .filter(|(word, _)| !(word + at).is_multiple_of(5))
            .map(|(_, word)| *word);
        let translation =
            if at.is_multiple_of(6) { reference.to_owned() } else { kept.collect::<Vec<_>>().join(" ") };
        TranslationExample {
            id: (at + 1).to_string(),
            source: source.into(),
            reference: reference.into(),
            translation,
        }
    };
    let translations = TranslationPredictions::new((0..120).map(translation).collect(), 42);
    let two = SquadVersion::Two { threshold: 0.0 };
    let all: [(&str, Box<dyn Predictions>); 14] = [
        ("classes-2", Box::new(classes(2, &mut noise))),
        ("classes-12", Box::new(classes(12, &mut noise))),
        ("classes-40", Box::new(classes(40, &mut noise))),
        ("values", Box::new(values)),
        ("labels", Box::new(labels)),
        ("choices", Box::new(choices)),
        ("entities", Box::new(entities(false))),
        ("words", Box::new(entities(true))),
        ("answers-1", Box::new(answers(SquadVersion::One))),
        ("answers-2", Box::new(answers(two))),
        ("similarities-scored", Box::new(similarities(SimilarityKind::Scored))),
        ("similarities-triplets", Box::new(similarities(SimilarityKind::Triplets))),
        ("similarities-pairs", Box::new(similarities(SimilarityKind::Pairs))),
        ("translations", Box::new(translations)),
    ];
    for (name, predictions) in &all {
        let facts = [
            ("model", format!("runs/{name}/model")),
            ("split", "dev".to_owned()),
            ("step", "20,000".to_owned()),
            ("decoding", "the best of a beam search with 4 beams".to_owned()),
        ];
        let (title, figures) = (format!("{name}: dev"), predictions.figures());
        let report =
            Report { title: &title, facts: &facts, figures: &figures, predictions: Some(&**predictions) };
        let place = InRun { curve: Some(curve), index: Some("../run/index.html"), baseline: None };
        report.write_in_run(&folder.join(name), &place)?;
    }
    Ok(())
}

fn captions(folder: &Path) -> Result<()> {
    for (name, are_scenes) in [("captions", false), ("scenes", true)] {
        let predictions = captioned::predictions(&TEXTS, are_scenes)?;
        let figures = predictions.figures();
        let picture = |_| vec![Picture { caption: "", png: captioned::scene() }];
        let predictions = WithPictures::new(predictions, picture);
        let facts = [("model", "runs/scenes".to_owned())];
        let report =
            Report { title: name, facts: &facts, figures: &figures, predictions: Some(&predictions) };
        report.write(&folder.join(name))?;
    }
    Ok(captioned::page(&TEXTS).write(&folder.join("attention.html"))?)
}

fn layers(folder: &Path) -> Result<()> {
    let layers: Vec<usize> = (0..=24).collect();
    let values =
        |shift: f64| layers.iter().map(|layer| 0.4 + shift + 0.02 * *layer as f64).collect::<Vec<f64>>();
    let panel = |title: &str, n: usize| LayerPanel {
        title: title.into(),
        note:
            "Share of words classified correctly, and selectivity: accuracy minus that on the control task."
                .into(),
        lines: (0..n)
            .map(|at| LayerLine::new(format!("mlp of rank {at}: selectivity"), values(0.03 * at as f64)))
            .collect(),
        whole: vec![
            ("majority class".into(), 0.1712),
            ("centre of gravity".into(), 6.25),
            ("linear: shortest code, kbit".into(), 211.3),
        ],
        is_quality: true,
    };
    let panels = [panel("part of speech", 4), panel("dependency relations", 14)];
    let facts = [
        ("model", "google-bert/bert-large-uncased".to_owned()),
        ("trained on", "12,543 sentences, 204,607 words".into()),
    ];
    let report = LayersReport {
        title: "Probing results by layer: probe-ud-ewt",
        facts: &facts,
        layers: &layers,
        panels: &panels,
    };
    Ok(report.write(folder, "probe")?)
}

fn seeds(folder: &Path, curve: &Path) -> Result<()> {
    let mut dev = Seeds::default();
    for seed in 1..=5 {
        dev.push(seed, Figures::new(872, [("accuracy", 0.9 + seed as f64 / 200.0), ("loss", 0.3)]));
    }
    let curve = fs::read_to_string(curve)?;
    let runs: Vec<SeedRun> = (1..=2).map(|seed| SeedRun { seed, curve: curve.clone() }).collect();
    let splits = [("dev", &dev)];
    Ok(SeedsReport { title: "sst2: 5 seeds", best: Some((5, "seed-5/model")), splits: &splits, runs: &runs }
        .write(folder)?)
}

fn map(folder: &Path) -> Result<()> {
    let mut noise = Noise(4);
    let texts: Vec<String> = (0..600).map(|at| TEXTS[at % TEXTS.len()].to_owned()).collect();
    let labels: Vec<String> = (0..600).map(|at| format!("topic {}", at % 14)).collect();
    let positions: Vec<f64> = (0..600)
        .flat_map(|at| {
            let angle = (at % 14) as f64;
            [4.0 * angle.cos() + noise.next(), 4.0 * angle.sin() + noise.next()]
        })
        .collect();
    let facts = [
        ("model", "sentence-transformers/all-MiniLM-L6-v2".to_owned()),
        ("method", "t-SNE, perplexity 30".into()),
    ];
    let report = MapReport {
        title: "Map of texts",
        facts: &facts,
        texts: &texts,
        labels: &labels,
        positions: &positions,
        pictures: &[],
    };
    Ok(fs::write(folder.join("map.html"), report.to_html())?)
}

fn runs(folder: &Path) -> Result<()> {
    let run = |number: usize, rate: f64| {
        let mut noise = Noise(number as u64 + 10);
        let mut curve = |from: f64, to: f64, spread: f64, every: usize| -> Vec<(f64, f64)> {
            let value = |step: f64, noise: &mut Noise| {
                to + (from - to) * (-step * rate * 10.0).exp() + spread * noise.next()
            };
            (1..=20_000 / every)
                .map(|at| ((at * every) as f64, value((at * every) as f64, &mut noise)))
                .collect()
        };
        let curves = vec![
            ("train/loss".to_owned(), curve(10.0, 3.0 + 0.2 * number as f64, 0.8, 50)),
            ("train/learning_rate".to_owned(), curve(rate, 0.0, 0.0, 500)),
            ("dev/loss".to_owned(), curve(9.0, 3.3 + 0.2 * number as f64, 0.1, 1_000)),
            ("dev/accuracy".to_owned(), curve(0.1, 0.8 - 0.05 * number as f64, 0.02, 1_000)),
        ];
        let pair = |key: &str, value: String| (key.to_owned(), value);
        RunCurves {
            name: format!("sst2-rate-{rate}"),
            state: if number < 3 { "finished".into() } else { "step 12,000 of 20,000".into() },
            page: (number < 3).then(|| "run/index.html".into()),
            curves,
            config: vec![
                pair("optimizer.learning_rate", rate.to_string()),
                pair("train.warmup", (500 * (number / 2)).to_string()),
                pair("train.seed", "42".into()),
                pair("data.train", "\"sst2/train.tsv\"".into()),
            ],
        }
    };
    let runs: Vec<RunCurves> = [0.000_02, 0.000_03, 0.000_05, 0.000_1]
        .into_iter()
        .enumerate()
        .map(|(number, rate)| run(number, rate))
        .collect();
    Ok(RunsReport { title: "runs/sst2", facts: &[], runs: &runs, refresh: None }
        .write(&folder.join("runs.html"))?)
}

/// Each as a page, and as the JSON that has all digits.
fn inspections(folder: &Path) -> Result<()> {
    for (name, inspection) in invented::inspections() {
        let report = InspectionReport { title: &inspection.model, facts: &[], inspection: &inspection };
        report.write(&folder.join(format!("inspect-{name}.html")))?;
        // The long one would have 200 MB.
        if inspection.source.len() < 100 {
            fs::write(folder.join(format!("inspect-{name}.json")), serde_json::to_vec(&inspection)?)?;
        }
    }
    Ok(())
}

fn run(folder: &Path, curve: &Path) -> Result<()> {
    let link = |path: &str, what: &str| IndexLink { path: path.into(), what: what.into() };
    let links = [
        link("model/", "the result, as a Hugging Face folder"),
        link("report/", "the evaluation of the result on each split: pages, tables and every prediction"),
        link("curve.svg", "the learning curve"),
        link(
            "checkpoints/",
            "the training state that `--resume` continues from; not needed to use the model",
        ),
    ];
    let split = |split: &str, value: f64| IndexSplit {
        split: split.into(),
        figures: Figures::new(872, [("accuracy", value), ("f1", value - 0.01), ("loss", 0.31)]),
        summary: format!(
            "The model's accuracy is {value:.4} on 872 examples; that of the baseline, the most frequent class of the training data, `positive`, for every example, is 0.5092."
        ),
        page: format!("report/{split}/report.html"),
    };
    let facts = [
        ("steps", "20,000".to_owned()),
        ("step of the result", "18,000".to_owned()),
        ("seed", "42".to_owned()),
    ];
    let splits = [split("dev", 0.9151), split("test", 0.9032)];
    fs::create_dir_all(folder.join("run"))?;
    let report =
        IndexReport { title: "sst2", facts: &facts, splits: &splits, curve: Some(curve), links: &links };
    Ok(report.write(&folder.join("run/index.html"))?)
}

//! Kinds of positions beside one another (Wang et al. 2021, "On Position Embeddings in BERT"): BERT-minis that differ in
//! nothing else, pretrained equally long, fine-tuned, and looked into.

mod probe;
mod shape;
pub(super) mod verdict;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::finetune::table::Spread;
use super::finetune::tasks::{TASKS, Task};
use super::kept::Key;
use super::pretrained::{self, Bench, Options, Pretrained, TUNED, chosen, scaled, tuned};
use super::{measure, records, report};
use probe::{Probed, probe};
use shape::{NEAR, Shape};
use verdict::{Scores, means, verdict};

/// The values of `model.positions`.
const KINDS: [&str; 7] = ["learned", "sinusoidal", "relative", "relative-bias", "rotary", "alibi", "none"];

/// Those by which a token sees distances rather than places.
const RELATIVE: [&str; 4] = ["relative", "relative-bias", "rotary", "alibi"];

/// The config that all kinds are pretrained with.
const CONFIG: &str = "bert-mini-corpus";

/// The longest sequence in training, and one beyond it, for which learned positions have vectors that are not trained.
const LENGTH: usize = 128;
const LONGER: usize = 2 * LENGTH;

/// Tokens of held-out text that the loss is measured with at each length.
const TEXT: usize = 65_536;

/// What each model is fine-tuned for: four tasks with classes, values, words and spans.
const CLASSES: [&str; 4] = ["sst2", "mrpc", "cola", "trec"];
const VALUES: &str = "sts2015";
const WORDS: Task = Task { name: "ud-ewt", config: "ud-ewt", ours: &[], figures: &["accuracy"], seeds: &[] };
const SPANS: &str = "squad";

/// What is trained, and for how long.
#[derive(clap::Args)]
#[command(after_long_help = "\
Each finished run is kept in target/positions-bench, and one that was interrupted goes on where it was: --only, --tasks and
--seeds make a part of the tables, and the next run takes it over. With the defaults all of it takes more than ten hours
on two cores. Needs the corpus and the data sets that the configs name.

  cargo xtask bench positions --only learned,rotary --tasks sst2,trec --seeds 1")]
pub struct Args {
    /// How long each model is pretrained, in minutes of its steps on this machine.
    #[arg(long, default_value_t = 30.0, value_name = "MINUTES")]
    minutes: f64,
    #[command(flatten)]
    options: Options,
}

/// What is found out of a pretrained model, and its loss in whole sequences of both lengths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Found {
    probed: Probed,
    loss: f64,
    longer: f64,
}

/// A row of both tables.
struct Row {
    kind: &'static str,
    pretrained: Pretrained,
    found: Found,
    /// The figures of each task, one for each seed.
    figures: Vec<Vec<f64>>,
}

pub fn run(args: &Args) -> Result<()> {
    let options = &args.options;
    let kinds = chosen("kind of positions", &KINDS, &options.only, |kind| kind)?;
    let all = tasks();
    let tasks = chosen("task", &all, &options.tasks, |task| task.name)?;
    let bench = options.bench("positions-bench", args.minutes)?;
    let mut rows = Vec::new();
    for kind in kinds.into_iter().copied() {
        let own = [format!("model.positions={kind:?}"), format!("model.max_positions={LONGER}")];
        let (key, pretrained) = bench.pretrain(CONFIG, &options.sets(&own))?;
        let found = find(&bench, &key)?;
        let mut figures = Vec::new();
        for task in &tasks {
            figures.push(bench.figures(&key, task, &options.seeds, &settings(task))?);
        }
        rows.push(Row { kind, pretrained, found, figures });
    }
    let text = format!(
        "{}\n\nBERT-minis, each pretrained for {}, {}, then fine-tuned with {}: means ± standard deviations, of the best \
         epoch by development data or the last one by test data.\n\n{}\n\nProperties: 1 holds everywhere; without order, \
         monotonicity and symmetry are ½. Own: of the products of position vectors, or of what positions add to the first \
         layer's scores. Attention: of the first layer between identical words. Near: at distances up to {NEAR}. Losses: of \
         held-out text in whole sequences of {LENGTH} tokens, as in training, and of {LONGER}, for which learned positions \
         have vectors that were not trained.\n\n{}{}.",
        quality(&rows, &tasks),
        bench.length.said(),
        options.precision,
        report::seeds(options.seeds.len()),
        properties(&rows),
        published(&rows, &tasks),
        report::machine(None)
    );
    println!("{text}");
    if options.write { report::write_class("positions", &text) } else { Ok(()) }
}

/// What the models are fine-tuned for, in the order of the table.
fn tasks() -> Vec<Task> {
    let known = |name: &str| TASKS.iter().find(|task| task.name == name).copied();
    let classes = CLASSES.into_iter().filter_map(known);
    classes.chain(known(VALUES)).chain([WORDS]).chain(known(SPANS)).collect()
}

/// What a task's config is changed by: no sequence is longer than in pretraining.
fn settings(task: &Task) -> Vec<String> {
    let mut sets = tuned(TUNED, task);
    if task.name == SPANS {
        sets.extend([format!("data.max_len={LENGTH}"), format!("task.stride={}", LENGTH / 4)]);
    }
    sets
}

/// What a pretrained model is asked without training.
fn find(bench: &Bench, pretrained: &Key) -> Result<Found> {
    let key = Key::new(&pretrained.to_string(), "found", 0, "", &[], bench.version());
    bench.once(&key, || {
        let model = bench.model(pretrained);
        let scratch = bench.kept.scratch(&key);
        let probed = probe(bench, &model, LENGTH, &scratch.with_extension("seen"))?;
        let loss = |length| loss(bench, &model, length, &scratch);
        Ok(Found { probed, loss: loss(LENGTH)?, longer: loss(LONGER)? })
    })
}

/// The masked-LM loss of held-out text in whole sequences of this length: that before the first step of a run that
/// continues from the model.
fn loss(bench: &Bench, model: &Path, length: usize, scratch: &Path) -> Result<f64> {
    let (path, config) = pretrained::read(CONFIG)?;
    let mut sets = scaled(&config, 1)?;
    sets.extend([
        format!("model={{ path = {model:?} }}"),
        "tokenizer={ kind = \"checkpoint\" }".to_owned(),
        format!("examples.seq_len={length}"),
        "examples.pairs={ kind = \"full-sentences\" }".to_owned(),
        // The same text at each length.
        format!("eval.max_examples={}", TEXT / length),
        "train.batch_size=1".to_owned(),
    ]);
    remove(scratch)?;
    let mut command = bench.cloze(&["train"]);
    command.arg(path).arg("--out").arg(scratch).args(sets.iter().flat_map(|set| ["--set", set]));
    measure::output(&mut command)?;
    let records = records::read(scratch)?;
    let evaluations = records::evaluations(&records, "heldout");
    let loss = evaluations.first().and_then(|first| first["figures"]["masked_loss"].as_f64());
    remove(scratch)?;
    loss.with_context(|| format!("{command:?} printed no loss"))
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

fn quality(rows: &[Row], tasks: &[&Task]) -> String {
    let facts = ["positions", "steps", "min", "held out"].map(str::to_owned);
    let header =
        facts.into_iter().chain(tasks.iter().map(|task| format!("{}, {}", task.name, task.figures[0])));
    let header: Vec<String> = header.collect();
    let cells = rows.iter().map(|row| {
        let facts = [
            row.kind.to_owned(),
            report::count(row.pretrained.steps),
            report::short(row.pretrained.seconds / 60.0),
            format!("{:.3}", row.pretrained.value),
        ];
        facts.into_iter().chain(row.figures.iter().map(|values| Spread::of(values.iter()).shown()))
    });
    report::table(header.iter().map(String::as_str), cells)
}

fn properties(rows: &[Row]) -> String {
    let longer = format!("loss at {LONGER}");
    let header = [
        "positions",
        "own: invariance",
        "monotonicity",
        "near",
        "symmetry",
        "attention: invariance",
        "monotonicity",
        "near",
        "symmetry",
        "loss at 128",
        &longer,
        "ratio",
    ];
    let shown = |shape: Option<Shape>| {
        let of = |figure: fn(Shape) -> Option<f64>| {
            shape.and_then(figure).map_or("–".to_owned(), |value| format!("{value:.3}"))
        };
        [of(|s| s.invariance), of(|s| s.monotonicity), of(|s| s.near), of(|s| s.symmetry)]
    };
    let cells = rows.iter().map(|row| {
        let Found { probed, loss, longer } = &row.found;
        let losses = [format!("{loss:.3}"), format!("{longer:.3}"), format!("{:.3}", longer / loss)];
        let shapes = shown(probed.own).into_iter().chain(shown(Some(probed.attention)));
        [row.kind.to_owned()].into_iter().chain(shapes).chain(losses)
    });
    report::table(header, cells)
}

/// What the paper found, and whether it is seen here; nothing where rows or tasks are missing.
fn published(rows: &[Row], tasks: &[&Task]) -> String {
    let scores = |names: &[&str]| -> Option<Vec<Scores>> {
        let places: Option<Vec<usize>> =
            names.iter().map(|name| tasks.iter().position(|task| task.name == *name)).collect();
        let places = places?;
        let of = |row: &Row| {
            let tasks: Vec<&[f64]> = places.iter().map(|place| row.figures[*place].as_slice()).collect();
            Scores { name: row.kind, values: means(&tasks) }
        };
        Some(rows.iter().map(of).collect())
    };
    let classes = scores(&CLASSES).and_then(|scores| verdict(&scores, &["learned"]));
    let spans = scores(&[SPANS]).and_then(|scores| verdict(&scores, &RELATIVE));
    let classes = classes.map(|said| {
        format!(
            "Published: learned positions are best for classes. The mean of {}: {said}. ",
            CLASSES.join(", ")
        )
    });
    let spans =
        spans.map(|said| format!("Published: relative positions are better for spans. {SPANS}: {said}. "));
    [classes, spans].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &'static str, class: f64, span: f64) -> Row {
        let shape =
            Shape { invariance: Some(0.5), monotonicity: Some(0.75), near: None, symmetry: Some(1.0) };
        let of = |task: &Task| if task.name == SPANS { span } else { class };
        Row {
            kind,
            pretrained: Pretrained {
                steps: 3000,
                tokens: 24.5e6,
                seconds: 1800.0,
                gflop_a_step: None,
                figure: "masked_loss".into(),
                value: 3.5,
            },
            found: Found { probed: Probed { own: None, attention: shape }, loss: 4.0, longer: 5.0 },
            figures: tasks().iter().map(|task| vec![of(task), of(task)]).collect(),
        }
    }

    #[test]
    fn all_tasks_have_their_configs() {
        let all = tasks();
        assert_eq!(all.len(), 7);
        for task in &all {
            assert!(task.path().is_file(), "{}", task.path().display());
        }
        assert_eq!(settings(&all[0])[2], "task.pooling=\"mean\"");
        assert_eq!(settings(&all[5]).len(), 2);
        assert_eq!(settings(&all[6])[2..], ["data.max_len=128", "task.stride=32"]);
        assert!(pretrained::read(CONFIG).unwrap().1.contains("seq_len = 128"));
    }

    #[test]
    fn rows_have_figures_and_properties() {
        let rows = [row("alibi", 0.5, 0.25)];
        let all = tasks();
        let all: Vec<&Task> = all.iter().collect();
        let cells = |text: &str| -> Vec<String> {
            text.lines().nth(2).unwrap().split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let found = cells(&quality(&rows, &all));
        assert_eq!(found[1..6], ["alibi", "3,000", "30.0", "3.500", "0.5000 ± 0.0000"]);
        assert_eq!(found[11], "0.2500 ± 0.0000");
        let found = cells(&properties(&rows));
        let expected =
            ["alibi", "–", "–", "–", "–", "0.500", "0.750", "–", "1.000", "4.000", "5.000", "1.250"];
        assert_eq!(found[1..13], expected);
    }

    #[test]
    fn the_published_order_is_seen_or_not() {
        let all = tasks();
        let all: Vec<&Task> = all.iter().collect();
        let rows = [row("learned", 0.75, 0.25), row("relative", 0.5, 0.5), row("none", 0.25, 0.0)];
        let said = published(&rows, &all);
        assert!(said.contains("learned 0.7500 ± 0.0000, relative 0.5000 ± 0.0000: seen."), "{said}");
        assert!(said.contains("squad: relative 0.5000 ± 0.0000, learned 0.2500 ± 0.0000: seen."), "{said}");
        // Without relative positions nothing is said of spans, and without a task of classes nothing of them.
        assert!(!published(&[rows.into_iter().next().unwrap()], &all).contains("seen"));
        assert_eq!(published(&[row("learned", 0.75, 0.25), row("alibi", 0.5, 0.5)], &all[1..6]), "");
    }
}

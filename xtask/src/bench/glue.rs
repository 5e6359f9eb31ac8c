//! `cloze glue` on the tasks whose real data is at hand, beside transformers' Trainer with the same settings.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::finetune::side::{Side, THREADS, Trained, peer, read_run};
use super::finetune::table::{Both, Row, text};
use super::finetune::tasks::Task;
use super::kept::{Kept, Key, remove_checkpoints, target};
use super::{measure, report};
use crate::{program, step};

/// A task: its name for `cloze glue`, and rows of its test as GLUE distributes it.
struct Glue {
    task: Task,
    option: &'static str,
    test_rows: usize,
}

impl Glue {
    const fn new(
        name: &'static str,
        option: &'static str,
        figures: &'static [&'static str],
        test_rows: usize,
    ) -> Self {
        Self { task: Task { name, config: "", ours: &[], figures, seeds: &[] }, option, test_rows }
    }
}

static TASKS: [Glue; 5] = [
    Glue::new("CoLA", "cola", &["matthews"], 1_063),
    Glue::new("SST-2", "sst2", &["accuracy"], 1_821),
    Glue::new("MRPC", "mrpc", &["f1", "accuracy"], 1_725),
    Glue::new("RTE", "rte", &["accuracy"], 3_000),
    Glue::new("WNLI", "wnli", &["accuracy"], 146),
];

/// What is trained.
#[derive(clap::Args)]
#[command(after_long_help = "\
The folder of GLUE and all runs are kept in target/glue-bench, so that an interrupted benchmark continues, and a task or seed is
added without training the others again. A part in a minute:
  cargo xtask bench glue --tasks wnli --seeds 1 --set train.epochs=1")]
pub struct Args {
    /// Only these tasks: cola, sst2, mrpc, rte, wnli.
    #[arg(long, value_delimiter = ',', value_name = "TASKS", conflicts_with = "write")]
    tasks: Vec<String>,
    /// Each task is trained once with each of these.
    #[arg(long, value_delimiter = ',', value_name = "SEEDS", default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// The model that is fine-tuned.
    #[arg(long, value_name = "DIR", default_value = "../shared/models/all-MiniLM-L6-v2")]
    model: String,
    /// Override a key of both sides' configurations, such as train.epochs=1; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "write")]
    sets: Vec<String>,
    /// The folder with glue-cola, sst2, mrpc, glue-rte and glue-wnli.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Train anew what is kept.
    #[arg(long)]
    again: bool,
    /// Put the table into benches/README.md.
    #[arg(long)]
    write: bool,
}

struct Bench<'a> {
    program: PathBuf,
    ours: Side,
    theirs: Option<(OsString, Side)>,
    kept: Kept,
    args: &'a Args,
    model: PathBuf,
    glue: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let tasks = chosen(&args.tasks)?;
    if args.seeds.is_empty() {
        bail!("--seeds: expected one seed or more");
    }
    let data = args.data.clone().unwrap_or_else(|| step::root().join("../shared/data"));
    let (program, python) = (program::build(None)?, measure::python());
    let bench = Bench {
        ours: Side::ours(program.clone())?,
        program,
        theirs: python.clone().map(|python| Side::theirs(&python).map(|side| (python, side))).transpose()?,
        kept: Kept::open(target().join("glue-bench"))?,
        args,
        model: std::path::absolute(step::root().join(&args.model))?,
        glue: target().join("glue-bench/GLUE"),
    };
    let mut rows = Vec::new();
    for glue in &tasks {
        lay_out(glue, &data, &bench.glue)?;
        rows.push(Row { task: &glue.task, quality: bench.both(glue)?, timed: Both::default() });
    }
    let mut text = text(&rows, &report::machine(python.as_ref()));
    text += &format!(
        "\n\nMean over {} tasks of each task's figures: ours {}",
        rows.len(),
        average(&rows, |both| &both.ours)
    );
    if bench.theirs.is_some() {
        text += &format!(", theirs {}", average(&rows, |both| &both.theirs));
    }
    text += ".";
    println!("{text}");
    if args.write { report::write("glue", &text) } else { Ok(()) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Glue>> {
    if let Some(name) = names.iter().find(|name| !TASKS.iter().any(|glue| glue.option == name.trim())) {
        let known: Vec<&str> = TASKS.iter().map(|glue| glue.option).collect();
        bail!("no task {name:?}; there are {}", known.join(", "));
    }
    let is_wanted = |glue: &&Glue| names.is_empty() || names.iter().any(|name| name.trim() == glue.option);
    Ok(TASKS.iter().filter(is_wanted).collect())
}

/// GLUE's average (Wang et al. 2019, §4.1) over these tasks: of each, the mean of its figures, which are means over seeds.
fn average(rows: &[Row], side: fn(&Both) -> &Vec<Trained>) -> String {
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let of_run = |row: &Row, run: &Trained| {
        let figure = |name: &&str| run.figures.get(*name).copied().unwrap_or(f64::NAN);
        mean(row.task.figures.iter().map(figure).collect())
    };
    let of_row = |row: &Row| mean(side(&row.quality).iter().map(|run| of_run(row, run)).collect());
    format!("{:.4}", mean(rows.iter().map(of_row).collect()))
}

/// Writes a task's files as GLUE distributes them.
fn lay_out(glue: &Glue, data: &Path, folder: &Path) -> Result<()> {
    let read = |name: &str| {
        let path = data.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let [train, dev, test] = match glue.option {
        // GLUE's training data is cut into two.
        "cola" => {
            let train = read("glue-cola/train.tsv")? + &read("glue-cola/val.tsv")?;
            [train, read("glue-cola/dev.tsv")?, read("glue-cola/test.tsv")?]
        }
        "sst2" => [read("sst2/train.tsv")?, read("sst2/dev.tsv")?, without_labels(&read("sst2/test.tsv")?)?],
        "mrpc" => [read("mrpc/train.tsv")?, read("mrpc/val.tsv")?, read("mrpc/test.tsv")?],
        "rte" => [read("glue-rte/train.tsv")?, read("glue-rte/dev.tsv")?, read("glue-rte/test.tsv")?],
        "wnli" => {
            // The second part has no header.
            let train = read("glue-wnli/train.tsv")? + &read("glue-wnli/val.tsv")?;
            [train, read("glue-wnli/dev.tsv")?, read("glue-wnli/test.tsv")?]
        }
        other => bail!("no files of {other}"),
    };
    let rows = test.lines().count().saturating_sub(1);
    if rows != glue.test_rows {
        bail!(
            "{}: the test has {rows} rows, and the one that GLUE distributes {}",
            glue.task.name,
            glue.test_rows
        );
    }
    let folder = folder.join(glue.task.name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in [("train.tsv", train), ("dev.tsv", dev), ("test.tsv", test)] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The test of SST-2 with an index in place of the labels.
fn without_labels(text: &str) -> Result<String> {
    let mut lines = text.lines();
    if lines.next() != Some("sentence\tlabel") {
        bail!("sst2/test.tsv: expected the columns sentence and label");
    }
    let mut numbered = "index\tsentence\n".to_owned();
    for (number, line) in lines.enumerate() {
        let (sentence, _) =
            line.rsplit_once('\t').with_context(|| format!("sst2/test.tsv:{}: no tab", number + 2))?;
        numbered += &format!("{number}\t{sentence}\n");
    }
    Ok(numbered)
}

impl Bench<'_> {
    /// Both sides' runs of a task, one for each seed.
    fn both(&self, glue: &Glue) -> Result<Both> {
        let runs = self.ours(glue)?;
        let mut both = Both::default();
        for ((config, ours), seed) in runs.into_iter().zip(&self.args.seeds) {
            if let Some((python, side)) = &self.theirs {
                let theirs = self.theirs(python, side, glue, &config, *seed)?;
                if ours.examples != theirs.examples {
                    let (ours, theirs) = (ours.examples, theirs.examples);
                    bail!(
                        "{}: our side is measured with {ours} examples, the peer with {theirs}",
                        glue.task.name
                    );
                }
                both.theirs.push(theirs);
            }
            both.ours.push(ours);
        }
        Ok(both)
    }

    /// Our runs with their configurations: `cloze glue`, which continues by itself.
    fn ours(&self, glue: &Glue) -> Result<Vec<(PathBuf, Trained)>> {
        let model = self.model.to_string_lossy();
        let sets: Vec<&str> =
            [&*model].into_iter().chain(self.args.sets.iter().map(String::as_str)).collect();
        let out = self.kept.scratch(&Key::new(glue.option, "ours", 0, "", &sets, self.ours.version()));
        if self.args.again && out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        }
        eprintln!("{}, ours, {} …", glue.task.name, report::seeds(self.args.seeds.len()));
        let seeds: Vec<String> = self.args.seeds.iter().map(u64::to_string).collect();
        let mut command = Command::new(&self.program);
        command.current_dir(step::root()).env("RAYON_NUM_THREADS", THREADS);
        command.arg("glue").arg("--data").arg(&self.glue).arg("--model").arg(&self.model);
        command.args([
            "--tasks",
            glue.option,
            "--seeds",
            &seeds.join(","),
            "--set",
            "checkpoint.keep_last=1",
        ]);
        command.args(self.args.sets.iter().flat_map(|set| ["--set", set])).arg("--out").arg(&out);
        measure::output(&mut command)?;
        remove_checkpoints(&out)?;
        let of = |seed: &String| {
            let folder = out.join(glue.task.name).join(format!("seed-{seed}"));
            Ok((folder.join("config.toml"), read_run(&folder)?))
        };
        seeds.iter().map(of).collect()
    }

    /// The peer's run of a configuration that our side has trained with.
    fn theirs(&self, python: &OsString, side: &Side, glue: &Glue, path: &Path, seed: u64) -> Result<Trained> {
        let config = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let key = Key::new(glue.option, side.name(), seed, &config, &[], side.version());
        if let Some(kept) = self.kept.read::<Trained>(&key)?.filter(|_| !self.args.again) {
            eprintln!("{key}: kept, {}", kept.line());
            return Ok(kept);
        }
        eprintln!("{key} …");
        let trained = peer(python, path, seed, &[], None)?;
        eprintln!("{key}: {}", trained.line());
        self.kept.write(&key, &trained)?;
        Ok(trained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_chosen_by_their_names() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&names).map(|tasks| tasks.iter().map(|glue| glue.task.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), 5);
        assert_eq!(names(&["wnli", " cola"]).unwrap(), ["CoLA", "WNLI"]);
        let error = names(&["mnli"]).unwrap_err().to_string();
        assert_eq!(error, "no task \"mnli\"; there are cola, sst2, mrpc, rte, wnli");
    }

    #[test]
    fn a_test_has_an_index_in_place_of_labels() {
        let numbered = without_labels("sentence\tlabel\nno \"movement\t0\nfine\t1\n").unwrap();
        assert_eq!(numbered, "index\tsentence\n0\tno \"movement\n1\tfine\n");
        assert!(without_labels("sentence\nfine\n").is_err());
        assert!(without_labels("sentence\tlabel\nfine\n").unwrap_err().to_string().contains("test.tsv:2"));
    }

    #[test]
    fn the_average_has_each_task_once() {
        let run = |figures: &[(&str, f64)]| {
            let mut run = Trained::of("accuracy", 0.0, 1.0);
            run.figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            run
        };
        let row = |glue: &'static Glue, ours| Row {
            task: &glue.task,
            quality: Both { ours, ..Both::default() },
            timed: Both::default(),
        };
        let mrpc = row(
            &TASKS[2],
            vec![run(&[("f1", 0.9), ("accuracy", 0.7)]), run(&[("f1", 0.8), ("accuracy", 0.8)])],
        );
        let rte = row(&TASKS[3], vec![run(&[("accuracy", 0.5)]), run(&[("accuracy", 0.7)])]);
        assert_eq!(average(&[mrpc, rte], |both| &both.ours), "0.7000");
    }

    #[test]
    fn tests_of_another_length_are_refused() {
        let folder = std::env::temp_dir().join(format!("cloze-glue-bench-{}", std::process::id()));
        let data = folder.join("glue-wnli");
        fs::create_dir_all(&data).unwrap();
        let header = "index\tsentence1\tsentence2\tlabel\n";
        fs::write(data.join("train.tsv"), header.to_owned() + "0\ta\tb\t1\n").unwrap();
        fs::write(data.join("val.tsv"), "1\tc\td\t0\n").unwrap();
        fs::write(data.join("dev.tsv"), header).unwrap();
        let test = |rows: usize| "index\tsentence1\tsentence2\n".to_owned() + &"0\ta\tb\n".repeat(rows);
        let glue = &TASKS[4];
        fs::write(data.join("test.tsv"), test(145)).unwrap();
        let error = lay_out(glue, &folder, &folder.join("GLUE")).unwrap_err().to_string();
        assert_eq!(error, "WNLI: the test has 145 rows, and the one that GLUE distributes 146");
        fs::write(data.join("test.tsv"), test(146)).unwrap();
        lay_out(glue, &folder, &folder.join("GLUE")).unwrap();
        let train = fs::read_to_string(folder.join("GLUE/WNLI/train.tsv")).unwrap();
        assert_eq!(train, header.to_owned() + "0\ta\tb\t1\n1\tc\td\t0\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}

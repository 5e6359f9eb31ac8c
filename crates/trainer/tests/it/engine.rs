//! The engine with a recipe that is not the crate's own: a model without a Transformer, trained by public names alone.

use crate::stop_after::StopAfter;
use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData, activation};
use cloze_evaluation::figures::Figures;
use cloze_trainer::TrainerError;
use cloze_trainer::engine::checkpoint::Checkpoints;
use cloze_trainer::engine::origin::Input;
use cloze_trainer::engine::run_folder::RunFolder;
use cloze_trainer::engine::{
    Advance, Cadence, Export, FolderConfig, NonFinite, Objective, Outcome, OverSeeds, Plan, Position, Recipe,
    RunOptions, RunSettings, StepBatches, Term, train, train_in, train_seeds,
};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::metrics::{METRICS_FILE, Record, jsonl};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A curve through points: two layers, and what makes it no mean feat, a second loss on their weights.
#[derive(Module, Debug)]
struct Curve {
    inner: Linear,
    outer: Linear,
}

impl Curve {
    fn new(seed: u64, device: &Device) -> Self {
        let device = device.clone().autodiff();
        let parameter = |place: u64, shape: [usize; 2]| {
            let value = |n: usize| ((seed * 31 + place * 17 + n as u64 * 7) % 23) as f32 / 11.5 - 1.0;
            let values: Vec<f32> = (0..shape[0] * shape[1]).map(value).collect();
            Tensor::<2>::from_data(TensorData::new(values, shape), &device)
        };
        let linear = |place: u64, d_in: usize, d_out: usize| Linear {
            weight: Param::from_tensor(parameter(place, [d_in, d_out])),
            bias: Some(Param::from_tensor(parameter(place + 1, [1, d_out]).squeeze_dim::<1>(0))),
        };
        Self { inner: linear(0, 1, 8), outer: linear(2, 8, 1) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.outer.forward(activation::tanh(self.inner.forward(x)))
    }
}

/// Points of a parabola, in batches that the step alone decides.
#[derive(Clone)]
struct Points {
    name: &'static str,
    measured: bool,
    /// From this step on the points are not numbers.
    broken_from: u64,
    /// In this step the device fails.
    lost_in: u64,
    /// In the evaluation after this step the device fails.
    lost_after: u64,
}

const POINTS: Points = Points {
    name: "parabola",
    measured: true,
    broken_from: u64::MAX,
    lost_in: u64::MAX,
    lost_after: u64::MAX,
};

impl Points {
    fn at(places: impl Iterator<Item = u64>) -> Vec<[f32; 2]> {
        let point = |place: u64| (place * 37 % 101) as f32 / 50.0 - 1.0;
        places.map(point).map(|x| [x, x * x]).collect()
    }

    fn tensors(points: &[[f32; 2]], device: &Device) -> [Tensor<2>; 2] {
        [0, 1].map(|column| {
            let values: Vec<f32> = points.iter().map(|point| point[column]).collect();
            Tensor::from_data(TensorData::new(values, [points.len(), 1]), device)
        })
    }
}

impl Objective for Points {
    type Model = Curve;
    type Batch = Vec<[f32; 2]>;

    fn terms(&self, _: u64) -> Vec<Term> {
        ["squared_error", "size"].map(Term::new).to_vec()
    }

    fn counts(&self, batch: &Self::Batch) -> Vec<f64> {
        vec![batch.len() as f64, 1_000.0]
    }

    fn sums(&self, model: &Curve, batch: &Self::Batch, device: &Device) -> Vec<Tensor<1>> {
        assert!(batch[0][0].is_finite() || batch[0][0].is_nan(), "the device is lost");
        let [x, y] = Self::tensors(batch, device);
        let error = (model.forward(x) - y).powf_scalar(2.0).sum();
        vec![error, model.inner.weight.val().powf_scalar(2.0).sum()]
    }
}

impl Recipe for Points {
    fn data(&self) -> String {
        self.name.into()
    }

    fn steps(
        &self,
        from: Position,
    ) -> Box<dyn Iterator<Item = cloze_trainer::Result<StepBatches<Self::Batch>>> + '_> {
        Box::new((from.step..).map(|step| {
            let mut points = Self::at(16 * step..16 * (step + 1));
            if step >= self.broken_from {
                points[0] = [f32::NAN; 2];
            }
            if step + 1 == self.lost_in {
                points[0] = [f32::INFINITY; 2];
            }
            let two = points.chunks(8).map(<[_]>::to_vec).collect();
            Ok(StepBatches { batches: two, ..StepBatches::one(Vec::new(), 16, step) })
        }))
    }

    fn split(&self) -> Option<&str> {
        self.measured.then_some("grid")
    }

    fn evaluate_after(
        &self,
        step: u64,
        model: &Curve,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> cloze_trainer::Result<Figures> {
        assert_ne!(step, self.lost_after, "the device is lost");
        self.evaluate(model, device, advanced)
    }

    fn evaluate(
        &self,
        model: &Curve,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> cloze_trainer::Result<Figures> {
        let [x, y] = Self::tensors(&Self::at(0..101), device);
        let errors: Vec<f64> = (model.forward(x) - y).into_data().iter::<f64>().collect();
        advanced(Advance { done: errors.len(), share: 1.0 });
        let mean = errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().fold(0.0, |worst: f64, error| worst.max(error.abs()));
        Ok(Figures::new(errors.len(), [("mse", mean), ("worst", worst)]))
    }
}

/// What a run says whose device fails, and whether it goes on to the same end.
fn lost(recipe: &Points, settings: &RunSettings, whole: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let error = run(recipe, settings, &options(&path), &mut Silent).unwrap_err().to_string();
    run(&POINTS, settings, &options(&path).resume(true), &mut Silent).unwrap();
    assert_eq!(weights(&path), weights(whole), "{error}");
    assert_eq!(records(&path), records(whole), "{error}");
    error
}

#[test]
fn a_device_that_fails_is_an_error_and_no_step_is_lost() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let mut settings = settings(40);
    (settings.export, settings.checkpoint.keep_best) = (Export::Best, true);
    run(&POINTS, &settings, &options(&whole), &mut Silent).unwrap();
    for step in [2, 8, 13, 40] {
        let error = lost(&Points { lost_in: step, ..POINTS }, &settings, &whole);
        let made = step - 1;
        let expected = format!(
            "step {step}: the device failed: the device is lost; only a new process can use it again; all is saved \
             after step {made}: resume with --resume, on another device if necessary (--device)"
        );
        assert_eq!(error, expected);
    }
    for step in [10, 40] {
        let error = lost(&Points { lost_after: step, ..POINTS }, &settings, &whole);
        assert!(error.contains(&format!("all is saved after step {step}: resume")), "{error}");
    }
    for nothing in [Points { lost_in: 1, ..POINTS }, Points { lost_after: 0, ..POINTS }] {
        let error = lost(&nothing, &settings, &whole);
        assert!(error.contains("there is no checkpoint yet: start again"), "{error}");
    }
}

fn settings(steps: u64) -> RunSettings {
    let mut settings = RunSettings::new("curve", steps, 2e-2);
    settings.evaluate = Cadence::Every(10);
    settings.checkpoint.every = 7;
    settings.log.every = 5;
    settings
}

fn run(
    recipe: &Points,
    settings: &RunSettings,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> cloze_trainer::Result<Outcome> {
    train(recipe, Curve::new(3, &options.device), settings, options, progress)
}

fn options(folder: impl Into<PathBuf>) -> RunOptions<'static> {
    RunOptions::new(Device::flex(), folder)
}

fn weights(run: &Path) -> Vec<u8> {
    fs::read(run.join("model/model.safetensors")).unwrap()
}

fn records(run: &Path) -> Vec<Record> {
    jsonl::read(&run.join(METRICS_FILE)).unwrap().iter().map(Record::without_timing).collect()
}

#[test]
fn a_recipe_of_one_s_own_is_trained_measured_and_saved() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let outcome = run(&POINTS, &settings(200), &options(&path), &mut Silent).unwrap();
    let figures = outcome.figures("grid").unwrap();
    assert!(figures.main().0 == "mse" && figures.main().1 < 0.01, "{figures}");
    for file in
        ["config.toml", "curve.svg", "result.json", "report/grid/report.html", "model/model.safetensors"]
    {
        assert!(path.join(file).exists(), "{file}");
    }
    let curve = fs::read_to_string(path.join("curve.svg")).unwrap();
    assert!(curve.contains("mse, grid") && curve.contains("training"), "{curve}");
    let (mut logged, mut measured) = (Vec::new(), Vec::new());
    for record in records(&path) {
        match record {
            Record::Train(record) => {
                let [(error, a), (size, b)] = &record.losses[..] else { panic!("{record:?}") };
                assert_eq!((error.as_str(), size.as_str()), ("squared_error", "size"));
                assert!((a + b - record.loss).abs() < 1e-9);
                assert_eq!(record.tokens, 16 * record.step);
                logged.push(record.step);
            }
            Record::Evaluation(record) => measured.push((record.split, record.step)),
        }
    }
    assert_eq!(logged, (1..=40).map(|n| 5 * n).collect::<Vec<_>>());
    assert_eq!(measured, (0..=20).map(|n| ("grid".to_owned(), 10 * n)).collect::<Vec<_>>());
    let saved = POINTS.load(Curve::new(9, &Device::flex()).valid(), &path.join("model")).unwrap();
    let again = POINTS.evaluate(&saved, &Device::flex(), &mut |_| ()).unwrap();
    assert_eq!(&again, figures);
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits_and_records() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    run(&POINTS, &settings(40), &options(&whole), &mut Silent).unwrap();
    for at in [1, 7, 20, 39] {
        let path = folder.path().join(at.to_string());
        let stop = AtomicBool::new(false);
        let stopped = run(&POINTS, &settings(40), &options(&path).stop(&stop), &mut StopAfter(at, &stop));
        assert_eq!(stopped.unwrap(), Outcome::Stopped { step: at });
        // What a kill leaves: the log is ahead of the checkpoints.
        run(&POINTS, &settings(40), &options(&path).resume(true), &mut Silent).unwrap();
        assert_eq!(weights(&path), weights(&whole), "stopped after step {at}");
        assert_eq!(records(&path), records(&whole), "stopped after step {at}");
        // A run that has ended is not trained on, and has its result again.
        let result = fs::read(path.join("result.json")).unwrap();
        run(&POINTS, &settings(40), &options(&path).resume(true), &mut Silent).unwrap();
        assert_eq!(fs::read(path.join("result.json")).unwrap(), result);
        assert_eq!(records(&path), records(&whole));
    }
}

#[test]
fn patience_ends_a_run_with_its_best_model() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    // So high a rate learns nothing for long.
    let mut patient = settings(10_000);
    (patient.patience, patient.export) = (Some(3), Export::Best);
    patient.optimizer.lr = 0.5;
    let path = folder.path().join("best");
    let outcome = run(&POINTS, &patient, &options(&path), &mut Silent).unwrap();
    let values: Vec<(u64, f64)> = records(&path)
        .iter()
        .filter_map(|record| match record {
            Record::Evaluation(record) if record.step > 0 => Some((record.step, record.figures.main().1)),
            _ => None,
        })
        .collect();
    let (best, least) = values.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let last = values.last().unwrap().0;
    assert!(last < 10_000 && last == best + 30, "best after step {best}, ended after {last}");
    assert_eq!(outcome.figures("grid").unwrap().main().1, least);
    let saved = POINTS.load(Curve::new(9, &Device::flex()).valid(), &path.join("model")).unwrap();
    assert_eq!(POINTS.evaluate(&saved, &Device::flex(), &mut |_| ()).unwrap().main().1, least);
    // To resume it changes nothing.
    let before = weights(&path);
    run(&POINTS, &patient, &options(&path).resume(true), &mut Silent).unwrap();
    assert_eq!(weights(&path), before);
}

#[test]
fn a_best_model_that_is_damaged_or_gone_is_made_again() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let mut patient = settings(10_000);
    (patient.patience, patient.export) = (Some(3), Export::Best);
    patient.optimizer.lr = 0.5;
    for keep_best in [true, false] {
        patient.checkpoint.keep_best = keep_best;
        for damage in ["signs", "gone", "cut", "file gone"] {
            let path = folder.path().join(format!("{damage}-{keep_best}"));
            run(&POINTS, &patient, &options(&path), &mut Silent).unwrap();
            let (before, log) = (weights(&path), records(&path));
            let file = path.join("model/model.safetensors");
            let mut bytes = before.clone();
            match damage {
                "signs" => *bytes.last_mut().unwrap() ^= 0x80,
                "cut" => bytes.truncate(bytes.len() / 2),
                _ => {}
            }
            match damage {
                "gone" => fs::remove_dir_all(path.join("model")).unwrap(),
                "file gone" => fs::remove_file(&file).unwrap(),
                _ => fs::write(&file, bytes).unwrap(),
            }
            run(&POINTS, &patient, &options(&path).resume(true), &mut Silent).unwrap();
            assert!(weights(&path) == before, "{damage}, keep_best = {keep_best}");
            assert_eq!(records(&path), log, "{damage}, keep_best = {keep_best}");
        }
    }
}

#[test]
fn a_run_without_anything_to_measure_saves_its_last_model() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let unmeasured = Points { measured: false, ..POINTS };
    for export in [Export::Last, Export::Best] {
        let path = folder.path().join(format!("{export:?}"));
        let mut settings = settings(20);
        settings.export = export;
        let outcome = run(&unmeasured, &settings, &options(&path), &mut Silent).unwrap();
        assert_eq!(outcome, Outcome::Done { model: path.join("model"), figures: Vec::new() });
        assert_eq!(fs::read_to_string(path.join("result.json")).unwrap(), "{}\n");
    }
    assert_eq!(weights(&folder.path().join("Last")), weights(&folder.path().join("Best")));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let stop = AtomicBool::new(false);
    run(&POINTS, &settings(40), &options(&path).stop(&stop), &mut StopAfter(8, &stop)).unwrap();
    let resume = |recipe: &Points, settings: &RunSettings| {
        run(recipe, settings, &options(&path).resume(true), &mut Silent).unwrap_err().to_string()
    };
    let other = resume(&Points { name: "circle", ..POINTS }, &settings(40));
    assert!(other.contains("was made with other training examples"), "{other}");
    let mut higher = settings(40);
    higher.optimizer.lr = 0.1;
    assert!(resume(&POINTS, &higher).contains("optimizer.lr: 0.02 became 0.1"));
    let again = run(&POINTS, &settings(40), &options(&path), &mut Silent).unwrap_err().to_string();
    assert!(again.contains("already holds a run"), "{again}");
    let broken = resume(&Points { broken_from: 12, ..POINTS }, &settings(40));
    assert!(broken.contains("step 13: the loss is not finite (squared_error NaN"), "{broken}");
    assert!(broken.contains("example 12 of epoch 0"), "{broken}");
    // Damage to the newest checkpoint costs the steps since the one before.
    let checkpoints = Checkpoints::open(path.join("checkpoints")).unwrap();
    let newest = *checkpoints.steps().unwrap().last().unwrap();
    fs::write(checkpoints.path(newest).join("model.safetensors"), "").unwrap();
    run(&POINTS, &settings(40), &options(&path).resume(true), &mut Silent).unwrap();
    assert!(path.join("checkpoints").join(format!("damaged-step-{newest:08}")).exists());
}

#[test]
fn steps_that_are_not_finite_can_be_left_out() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut lenient = settings(20);
    lenient.non_finite = NonFinite::Skip;
    run(&Points { broken_from: 13, ..POINTS }, &lenient, &options(&path), &mut Silent).unwrap();
    let Some(Record::Train(last)) =
        records(&path).into_iter().rfind(|record| matches!(record, Record::Train(_)))
    else {
        panic!("nothing was logged")
    };
    assert_eq!((last.step, last.skipped_steps), (20, 7));
    assert!(last.loss.is_nan());
}

/// A custom config, which describes a run and carries it out.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct CurveConfig {
    seed: u64,
    steps: u64,
    points: PathBuf,
}

impl FolderConfig for CurveConfig {
    const FREE_KEYS: &[&str] = &[];

    fn load(path: &Path) -> cloze_trainer::Result<Self> {
        let bad = |problem: String| TrainerError::BadInput { problem };
        let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        toml::from_str(&text).map_err(|error| bad(error.to_string()))
    }
}

impl Plan for CurveConfig {
    fn name(&self) -> &str {
        "curve"
    }

    fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    fn inputs(&self) -> cloze_trainer::Result<Vec<Input>> {
        Input::of([self.points.clone()])
    }

    fn run(
        &self,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> cloze_trainer::Result<Outcome> {
        let folder = RunFolder::open(&options.folder, self, options.resume)?;
        let mut settings = settings(self.steps);
        settings.seed = self.seed;
        train_in(&folder, &POINTS, Curve::new(self.seed, &options.device), &settings, options, progress)
    }
}

#[test]
fn a_config_of_one_s_own_runs_with_several_seeds() {
    let _held = crate::generator();
    let folder = tempfile::tempdir().unwrap();
    let points = folder.path().join("points.txt");
    fs::write(&points, "x²").unwrap();
    let plan = CurveConfig { seed: 0, steps: 30, points: points.clone() };
    let path = folder.path().join("all");
    let stop = AtomicBool::new(false);
    let stopped =
        train_seeds(&plan, &[4, 2], &options(&path).stop(&stop), &mut StopAfter(12, &stop)).unwrap();
    assert_eq!(stopped, OverSeeds::Stopped { seed: 4, step: 12 });
    let all = train_seeds(&plan, &[4, 2], &options(&path), &mut Silent).unwrap();
    let seeds = all.figures("grid").unwrap();
    assert_eq!(seeds.runs().iter().map(|run| run.seed).collect::<Vec<_>>(), [4, 2]);
    let OverSeeds::Done { best, model, .. } = &all else { panic!("{all:?}") };
    assert_eq!(Some(*best), seeds.best().map(|run| run.seed));
    assert!(model.join("model.safetensors").exists() && path.join("seeds.html").exists());
    let page = fs::read_to_string(path.join("index.html")).unwrap();
    assert!(page.contains("href=\"seeds.html\"") && page.contains("href=\"seed-4/index.html\""), "{page}");
    assert_ne!(weights(&path.join("seed-4")), weights(&path.join("seed-2")));
    // Figures of two data sets do not meet in one table.
    fs::write(&points, "x³").unwrap();
    let error = train_seeds(&plan, &[4, 2, 7], &options(&path), &mut Silent).unwrap_err().to_string();
    assert!(error.contains("points.txt has changed since the run in"), "{error}");
}

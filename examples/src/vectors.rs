//! A backbone that is not text: points of the plane, each a row of two numbers, and which of two spirals they lie on.
//!
//! The task has a section of its own, `kind = "vectors"`, features that are no tokens, and a model that no checkpoint has and
//! that is kept as its parameters alone. The rest of a fine-tuning stays: epochs, development data, the best model, checkpoints.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData, activation::gelu};
use cloze_data::Random;
use cloze_data::labelled::{LabelSet, LabelledSource, Labels, Loaded, Target, TextExample, texts};
use cloze_evaluation::report::{ClassExample, ClassPredictions, Predictions};
use cloze_model::blocks::Linear;
use cloze_model::{ParamInit, ops};
use cloze_trainer::config::ConfigFile;
use cloze_trainer::engine::{Outcome, OwnParameters, RunOptions};
use cloze_trainer::finetune::{
    Encoded, Features, FineTuneRun, OpenedModel, SavedModel, Task, TaskKind, TaskRun, TaskSettings,
};
use cloze_trainer::metrics::progress::RunProgress;
use cloze_trainer::runs::{Kind, plan_of};
use cloze_trainer::{Place, Result, TrainerError};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::path::Path;

/// `[task]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum VectorSection {
    /// A class of each vector.
    Vectors {
        /// Features of the hidden layers.
        hidden: usize,
    },
}

impl TaskSettings for VectorSection {
    fn is_of(kind: &str) -> bool {
        kind == "vectors"
    }

    fn kind(&self) -> Box<dyn TaskKind + '_> {
        Box::new(VectorKind(self))
    }
}

/// What is done for the section.
struct VectorKind<'a>(&'a VectorSection);

impl TaskKind for VectorKind<'_> {
    fn needs_checkpoint(&self) -> bool {
        false
    }

    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let VectorSection::Vectors { hidden } = *self.0;
        let task = Vectors { hidden };
        let train = task.read(&run.config.data.train)?;
        let read = |source: &LabelledSource| task.read(source);
        let data = run.reading(progress).data::<Vectors>(train, read, Vectors::encode)?;
        let device = run.options.device.clone().autodiff();
        let init = &mut ParamInit::new(&device, run.config.common.run.seed);
        let model = Spirals {
            first: Linear::uniform(2, hidden, init),
            second: Linear::uniform(hidden, hidden, init),
            output: Linear::uniform(hidden, 2, init),
        };
        run.train_new(&task, data, model, Box::new(OwnParameters), progress)
    }

    /// `Predictor` asks models of texts.
    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        Err(TrainerError::BadTaskFile {
            path: saved.folder.into(),
            reason: "a model of vectors; load it by `OwnParameters`".into(),
        })
    }
}

/// Three layers.
#[derive(Module, Debug)]
pub struct Spirals {
    first: Linear,
    second: Linear,
    output: Linear,
}

/// The task.
#[derive(Debug, Clone, Copy)]
pub struct Vectors {
    hidden: usize,
}

/// What the model takes of a row.
#[derive(Debug, Clone)]
pub struct Vector {
    numbers: [f32; 2],
    class: usize,
}

impl Features for Vector {
    fn cost(&self) -> usize {
        1
    }

    fn hash(&self, update: &mut dyn FnMut(&[u8])) {
        self.numbers.iter().for_each(|number| update(&number.to_le_bytes()));
    }
}

impl Vectors {
    fn read(&self, source: &LabelledSource) -> Result<Loaded<TextExample>> {
        let classes = LabelSet::given(["left", "right"])?;
        let (loaded, _) = texts(source, Path::new(""), Labels::Of(&classes))?;
        Ok(loaded)
    }

    fn encode(examples: Vec<TextExample>) -> Result<Encoded<TextExample, Vector>> {
        let vector = |example: &TextExample| {
            let mut numbers = example.text.split(' ').map(|number| number.parse().unwrap_or(f32::NAN));
            Vector {
                numbers: std::array::from_fn(|_| numbers.next().unwrap_or(f32::NAN)),
                class: class(example),
            }
        };
        Ok(Encoded { features: examples.iter().map(vector).collect(), examples })
    }
}

fn class(example: &TextExample) -> usize {
    match example.target {
        Target::Class(class) => class,
        _ => 0,
    }
}

impl Task for Vectors {
    type Model = Spirals;
    type Example = TextExample;
    type Features = Vector;
    type Scores = Tensor<2>;
    type Output = Vec<f32>;
    type Section = VectorSection;

    fn weight(&self, batch: &[&Vector]) -> f64 {
        batch.len() as f64
    }

    fn scores(&self, model: &Spirals, batch: &[&Vector], device: &Device) -> Tensor<2> {
        let numbers: Vec<f32> = batch.iter().flat_map(|vector| vector.numbers).collect();
        let x = Tensor::<2>::from_data(TensorData::new(numbers, [batch.len(), 2]), device);
        let x = gelu(model.second.forward(gelu(model.first.forward(x))));
        model.output.forward(x)
    }

    fn loss(&self, logits: Tensor<2>, batch: &[&Vector]) -> Tensor<1> {
        let classes: Vec<i32> = batch.iter().map(|vector| vector.class as i32).collect();
        let classes = Tensor::from_data(classes.as_slice(), &logits.device());
        ops::cross_entropy(logits, classes).sum()
    }

    fn outputs(&self, model: &Spirals, batch: &[&Vector], device: &Device) -> Vec<Vec<f32>> {
        let scores: Vec<f32> = self.scores(model, batch, device).into_data().iter::<f32>().collect();
        scores.chunks(2).map(<[f32]>::to_vec).collect()
    }

    fn predictions(
        &self,
        examples: &[TextExample],
        _: &[Vector],
        outputs: &[Vec<f32>],
    ) -> Box<dyn Predictions> {
        let examples = examples.iter().zip(outputs).enumerate().map(|(i, (example, scores))| {
            let right = 1.0 / (1.0 + f64::from(scores[0] - scores[1]).exp());
            let (gold, predicted) = (class(example), usize::from(right > 0.5));
            let of = |class: usize| if class == 1 { right } else { 1.0 - right };
            ClassExample {
                id: (i + 1).to_string(),
                texts: vec![example.text.clone()],
                gold,
                predicted,
                score: of(predicted),
                loss: -of(gold).ln(),
            }
        });
        let labels = ["left", "right"].map(String::from).to_vec();
        Box::new(ClassPredictions { labels, positive: None, examples: examples.collect() })
    }

    fn section(&self) -> VectorSection {
        VectorSection::Vectors { hidden: self.hidden }
    }
}

/// Points of both spirals, as rows of a file.
fn points(n: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut point = || {
        let (right, r) = (random.below(2) == 1, 0.1 + 0.9 * random.unit());
        let angle = 0.75 * TAU * r + if right { TAU / 2.0 } else { 0.0 };
        let class = if right { "right" } else { "left" };
        format!("{:.5} {:.5},{class}\n", r * angle.cos(), r * angle.sin())
    };
    std::iter::once("text,label\n".into()).chain((0..n).map(|_| point())).collect()
}

/// Trains it from a config.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let folder = options.cache.join("vectors");
    let io = |source| TrainerError::Io { action: "write", path: folder.clone(), source };
    std::fs::create_dir_all(&folder).map_err(io)?;
    let [train, dev] = ["train.csv", "dev.csv"].map(|name| folder.join(name));
    std::fs::write(&train, points(640, 1)).map_err(io)?;
    std::fs::write(&dev, points(160, 2)).map_err(io)?;
    let text = format!(
        "task = {{ kind = \"vectors\", hidden = 64 }}
         model = {{}}
         data = {{ train = {{ files = [{train:?}] }}, dev = [{dev:?}] }}
         train = {{ epochs = {}, batch_size = 64 }}
         optimizer.lr = 3e-3
         schedule.kind = \"constant\"",
        steps.div_ceil(10)
    );
    let file = ConfigFile::parse(&text, "vectors", &Place::file(Path::new("vectors.toml")))?;
    plan_of(&file, &[], &[Kind::of::<FineTuneRun<VectorSection>>()])?.run(options, progress)
}

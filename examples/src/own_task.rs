//! A custom task: how many stars a review gives, as an ordinal regression (Cheng, Wang & Pollastri 2008, §II).
//!
//! ```text
//! loss = − Σ_k [y > k] · log σ(z_k) + [y ≤ k] · log(1 − σ(z_k)),    stars = 1 + the number of leading k with z_k > 0
//! ```
//!
//! Each of the `levels − 1` outputs says whether the review gives more stars than so many. The task has a section of its own
//! in the config file, `kind = "ordinal"`, and in the saved folder's `task.json`. What `cloze train`, `cloze eval` and `cloze
//! predict` run does the rest: epochs, development data, freezing, adapters, the best model, checkpoints; figures and a report;
//! lines of JSON.

use crate::two_losses::reviews;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::labelled::{
    LabelSet, LabelledSource, Labels, Loaded, Target, TextExample, TokenSequence, encode_texts, texts,
};
use cloze_evaluation::report::{Predictions, ValueExample, ValuePredictions};
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{
    Architecture, LoadReport, PretrainedFolder, ProblemType, SaveConfig, save_pretrained,
};
use cloze_model::tasks::{BertForSequenceClassification, DropoutOverrides, binary_loss};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::WordPieceTrainer;
use cloze_trainer::config::{ConfigFile, Run};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{
    Cut, Encoded, EvaluationData, FineTuneRun, InputKey, LineFields, OpenedModel, PredictTask, Predictor,
    PretrainedTask, Read, SavedModel, Task, TaskKind, TaskRun, TaskSettings, TextClassifier, TextInput,
    TextTask,
};
use cloze_trainer::metrics::progress::RunProgress;
use cloze_trainer::runs::{KINDS, Kind, plan_of};
use cloze_trainer::{Place, Result, TrainerError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// `[task]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum OrdinalSection {
    /// A grade of each text.
    Ordinal {
        /// Grades are 1 to this.
        levels: usize,
    },
}

impl OrdinalSection {
    fn task(&self) -> Result<Ordinal> {
        let Self::Ordinal { levels } = *self;
        // One output for each "more than k".
        let names = (1..levels).map(|k| format!("more than {k}"));
        Ok(Ordinal { levels, outputs: TextTask::new(Some(LabelSet::given(names)?), None) })
    }
}

impl TaskSettings for OrdinalSection {
    fn is_of(kind: &str) -> bool {
        kind == "ordinal"
    }

    fn kind(&self) -> Box<dyn TaskKind + '_> {
        Box::new(OrdinalKind(self))
    }
}

/// What is done for the section.
struct OrdinalKind<'a>(&'a OrdinalSection);

impl TaskKind for OrdinalKind<'_> {
    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let (task, tokenizer, data) = (self.0.task()?, run.tokenizer()?, run.config.data);
        let splits = run.reading(progress).data::<Ordinal>(
            task.read(&data.train)?,
            |source| task.read(source),
            |examples| Ok(task.tokens(&tokenizer, examples, data.max_len)?.0),
        )?;
        run.train(&task, splits, &tokenizer, progress)
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        saved.open(self.0.task()?)
    }
}

/// The task.
#[derive(Debug, Clone)]
pub struct Ordinal {
    levels: usize,
    /// How a model with these outputs is loaded.
    outputs: TextTask,
}

impl Ordinal {
    /// Grades are read as numbers.
    fn read(&self, source: &LabelledSource) -> Result<Loaded<TextExample>> {
        let (loaded, _) = texts(source, Path::new(""), Labels::Values)?;
        let is_grade = |value: f64| (1..=self.levels).any(|grade| grade as f64 == value);
        match loaded.examples.iter().map(|example| grade(&example.target)).find(|value| !is_grade(*value)) {
            None => Ok(loaded),
            Some(value) => Err(TrainerError::Setting {
                key: "task.levels".into(),
                found: format!("{}, and a label is {value}", self.levels),
                expected: "labels from 1 to it".into(),
            }),
        }
    }

    /// The grade that outputs say.
    fn grade(outputs: &[f32]) -> f64 {
        1.0 + outputs.iter().take_while(|output| **output > 0.0).count() as f64
    }
}

fn grade(target: &Target) -> f64 {
    match target {
        Target::Value(value) => *value,
        _ => f64::NAN,
    }
}

impl Task for Ordinal {
    type Model = BertForSequenceClassification;
    type Example = TextExample;
    type Features = TextInput;
    type Scores = Tensor<2>;
    type Output = Vec<f32>;
    type Section = OrdinalSection;

    fn weight(&self, batch: &[&TextInput]) -> f64 {
        batch.len() as f64
    }

    fn scores(&self, model: &Self::Model, batch: &[&TextInput], device: &Device) -> Tensor<2> {
        let sequences: Vec<&TokenSequence> = batch.iter().map(|input| input.sequence()).collect();
        model.logits(&sequences, device)
    }

    fn loss(&self, logits: Tensor<2>, batch: &[&TextInput]) -> Tensor<1> {
        let more = |input: &&TextInput| {
            let grade = grade(input.target());
            (1..self.levels).map(move |k| f32::from(grade > k as f64))
        };
        let more: Vec<f32> = batch.iter().flat_map(more).collect();
        let targets = TensorData::new(more, [batch.len(), self.levels - 1]);
        let targets = Tensor::from_data(targets, &logits.device());
        binary_loss(logits, targets).sum()
    }

    fn outputs(&self, model: &Self::Model, batch: &[&TextInput], device: &Device) -> Vec<Vec<f32>> {
        let scores: Vec<f32> = self.scores(model, batch, device).into_data().iter::<f32>().collect();
        scores.chunks(self.levels - 1).map(<[f32]>::to_vec).collect()
    }

    fn predictions(
        &self,
        examples: &[TextExample],
        _: &[TextInput],
        outputs: &[Vec<f32>],
    ) -> Box<dyn Predictions> {
        let examples = examples.iter().zip(outputs).enumerate().map(|(i, (example, output))| ValueExample {
            id: (i + 1).to_string(),
            texts: vec![example.text.clone()],
            gold: grade(&example.target),
            predicted: Self::grade(output),
        });
        Box::new(ValuePredictions { examples: examples.collect() })
    }

    fn section(&self) -> OrdinalSection {
        OrdinalSection::Ordinal { levels: self.levels }
    }

    fn labels(&self) -> Option<&LabelSet> {
        self.outputs.labels.as_ref()
    }
}

impl PretrainedTask for Ordinal {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        (Architecture::SequenceClassification, Some(ProblemType::MultiLabel))
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, BertForSequenceClassification, LoadReport)> {
        self.outputs.model(pretrained, dropout, init)
    }
}

impl PredictTask for Ordinal {
    type Origin = ();

    fn input(&self) -> &'static str {
        r#"{"text": "…"} or "…""#
    }

    fn input_keys(&self) -> &'static [InputKey] {
        &[InputKey { name: "text", required: true, list: false }]
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        vec!["stars"]
    }

    fn read_line(&self, line: Value) -> Read<(TextExample, ())> {
        let mut fields = LineFields::or_text(line)?;
        let text = fields.text("text")?.ok_or("`text` is missing")?;
        fields.end()?;
        Ok((TextExample { text, pair: None, target: Target::None }, ()))
    }

    fn tokens(&self, tokenizer: &Tokenizer, examples: Vec<TextExample>, max_len: usize) -> Result<Cut<Self>> {
        let features = encode_texts(tokenizer, &examples, max_len)?;
        let cut = features.iter().filter(|features| features.truncated).count();
        Ok((Encoded { examples, features: features.into_iter().map(TextInput::from).collect() }, cut))
    }

    fn answer(&self, _: &[()], _: &Encoded<TextExample, TextInput>, outputs: &[Vec<f32>]) -> Vec<Value> {
        outputs.iter().map(|output| json!({ "stars": Self::grade(output) })).collect()
    }

    fn labelled(&self, _: &OrdinalSection, source: &LabelledSource) -> Result<(Self, Loaded<TextExample>)> {
        Ok((self.clone(), self.read(source)?))
    }
}

/// Reviews in files, and a checkpoint of random weights to begin with.
pub(crate) fn bench(folder: &Path, device: &Device) -> Result<[PathBuf; 3]> {
    let path = |name: &str| folder.join(name);
    let paths = ["checkpoint", "train.csv", "dev.csv"].map(path);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| TrainerError::Io { action: "write", path, source }
    };
    std::fs::create_dir_all(&paths[0]).map_err(io(&paths[0]))?;
    let [train, dev] = [reviews(320, 1), reviews(80, 2)];
    let trainer = WordPieceTrainer { vocab_size: 120, ..Default::default() };
    let tokenizer = trainer.train(train.iter().map(|review| review.text.as_str()))?;
    for (rows, path) in [(train, &paths[1]), (dev, &paths[2])] {
        let lines = rows.iter().map(|row| format!("{},{},{}\n", row.text, row.stars, row.good));
        let text = format!("text,stars,good\n{}", lines.collect::<String>());
        std::fs::write(path, text).map_err(io(path))?;
    }
    let config = BertConfig::tiny(tokenizer.vocab_size()).with_max_positions(32);
    let bert = config.init_encoder(&mut ParamInit::new(device, 1).with_std(0.05));
    save_pretrained(&paths[0], &bert, &config, &SaveConfig::new(Architecture::Encoder))?;
    tokenizer.save(&paths[0])?;
    Ok(paths)
}

/// The config of a run on these files for so many steps, 20 in each epoch; `task` and `label` are the ends of two lines.
pub(crate) fn config([checkpoint, train, dev]: &[PathBuf; 3], task: &str, label: &str, steps: u64) -> String {
    format!(
        "task = {task}
         model.path = {checkpoint:?}
         data = {{ train = {{ files = [{train:?}], columns = {{ label = {label:?} }} }}, dev = [{dev:?}], max_len = 32 }}
         train = {{ epochs = {}, batch_size = 16 }}
         optimizer.lr = 2e-3
         schedule.kind = \"constant\"",
        steps.div_ceil(20)
    )
}

/// Trains the task from a config, and asks the saved model.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    type Config = Run<FineTuneRun<OrdinalSection>>;
    let files = bench(&options.cache.join("own-task"), &options.device)?;
    let text =
        config(&files, "{ kind = \"ordinal\", levels = 5 }", "stars", steps) + "\neval.metric = \"mse\"";
    let place = Place::file(Path::new("ordinal.toml"));
    let file = ConfigFile::parse(&text, "own-task", &place)?;
    // Before the kinds that there are, of which one takes any `[task]`.
    let kinds = [&[Kind::of::<FineTuneRun<OrdinalSection>>()][..], &KINDS].concat();
    let outcome = plan_of(&file, &[], &kinds)?.run(options, progress)?;
    if let Outcome::Done { model, .. } = &outcome {
        let predictor = Predictor::load_as::<OrdinalSection>(model, &options.device, false)?;
        let lines = [r#"{"text": "the film was awful"}"#, "\"a great story of the sea\""];
        for (line, answer) in lines.iter().zip(predictor.predict(&lines, &mut |_| ())?.values) {
            progress.note(&format!("{line}: {answer}"));
        }
        let config = Config::parse(&text, "own-task", &place, &[])?;
        let measured = predictor.evaluate(&config, EvaluationData::Files(&config.data.dev), &mut |_| ())?;
        progress.note(&format!("measured again: {}", measured.figures.line()));
    }
    Ok(outcome)
}

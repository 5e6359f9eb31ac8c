//! Text classification with the masked-LM head: a template with a mask, and words for the classes.

use super::config::Tuning;
use super::kind::{DataSize, TaskKind};
use super::reading::draw_shots;
use super::saved_model::{OpenedModel, SavedModel};
use super::section::{PromptSection, TaskSection};
use super::task::{
    Encoded, PretrainedTask, Task, TokenFeatures, bad_setting, input, labels, pretrained_encoder, rows,
    sequences,
};
use super::task_run::TaskRun;
use super::template::{PromptFeatures, Template};
use super::texts::{class, class_predictions, text_counts};
use crate::config::validate::{Check, ensure};
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::labelled::{LabelSet, LabelledSource, Labels, Loaded, TextExample, TokenSequence, texts};
use cloze_evaluation::report::Predictions;
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, MlmHead};
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::{BertForMaskedLm, DropoutOverrides, classification_loss};
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// Classification with the masked-LM head.
#[derive(Debug, Clone)]
pub struct PromptTask {
    /// The classes: the verbaliser's, in the usual order of data classes.
    pub labels: LabelSet,
    section: PromptSection,
    template: Template,
    positive: Option<usize>,
    /// All words' ids, class after class.
    words: Vec<i32>,
    /// The weight of each word in each class, `[words, classes]`.
    shares: Vec<f32>,
}

impl PromptTask {
    /// The task configured by a section, for the tokenizer of the model in `folder`.
    ///
    /// # Errors
    /// [`TrainerError::NoMaskToken`]; a malformed template; words that are not a single piece of the vocabulary
    /// or that several classes share; an unknown positive class.
    pub fn new(section: &PromptSection, tokenizer: &Tokenizer, folder: &Path) -> Result<Self> {
        let mask = tokenizer.special_ids().mask;
        let mask = mask.and_then(|id| Some((tokenizer.id_to_token(id)?.to_owned(), id)));
        let mask = mask.ok_or_else(|| TrainerError::NoMaskToken { folder: folder.into() })?;
        let template = Template::parse(&section.template, mask)?;
        if section.verbaliser.len() < 2 {
            let found = format!("of {} classes", section.verbaliser.len());
            return Err(bad_setting("task.verbaliser", found, "at least two".into()));
        }
        let labels = LabelSet::found(section.verbaliser.keys().cloned())?;
        let mut words: Vec<i32> = Vec::new();
        let mut shares = Vec::new();
        for (class, name) in labels.names().iter().enumerate() {
            let key = format!("task.verbaliser.{name}");
            let of_class = &section.verbaliser[name];
            if of_class.is_empty() {
                return Err(bad_setting(&key, "[]", "at least one word".into()));
            }
            for word in of_class {
                let id = piece(word, &key, &template, tokenizer)?;
                if words.contains(&id) {
                    return Err(bad_setting(&key, format!("{word:?}"), "distinct words".into()));
                }
                words.push(id);
                let share = |other: usize| if other == class { 1.0 / of_class.len() as f32 } else { 0.0 };
                shares.extend((0..labels.len()).map(share));
            }
        }
        let positive = (labels.len() == 2).then_some(1);
        let task = Self { labels, section: section.clone(), template, positive, words, shares };
        match &section.positive {
            Some(name) => task.with_positive(name),
            None => Ok(task),
        }
    }

    /// The task with this positive class for precision, recall and F1.
    ///
    /// # Errors
    /// A name that is not one of the classes.
    pub fn with_positive(mut self, name: &str) -> Result<Self> {
        let Some(id) = self.labels.id(name) else {
            let expected = format!("one of {}", self.labels.names().join(", "));
            return Err(bad_setting("task.positive", format!("{name:?}"), expected));
        };
        self.positive = Some(id);
        Ok(self)
    }

    /// Reads a split's examples.
    ///
    /// # Errors
    /// Those of reading the data, including a label without words.
    pub fn read(&self, source: &LabelledSource) -> Result<Loaded<TextExample>> {
        let (loaded, _) = texts(source, Path::new(""), Labels::Of(&self.labels))?;
        Ok(loaded)
    }

    /// Examples with the tokens of their prompts.
    ///
    /// # Errors
    /// Those of [`Template::encode`].
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<TextExample>,
        max_len: usize,
    ) -> Result<Encoded<TextExample, PromptFeatures>> {
        let features = self.template.encode(tokenizer, &examples, max_len)?;
        Ok(Encoded { examples, features })
    }

    /// The template around the texts.
    pub fn template(&self) -> &Template {
        &self.template
    }
}

/// The single piece of a word in the mask's position.
fn piece(word: &str, key: &str, template: &Template, tokenizer: &Tokenizer) -> Result<i32> {
    let mut tokenizer = tokenizer.clone();
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    let space = if template.spaced_mask() { " " } else { "" };
    let encoding = tokenizer.encode(&format!("{space}{word}"), false)?;
    match encoding.ids.as_slice() {
        [id] if Some(*id) != tokenizer.special_ids().unk => Ok(*id as i32),
        _ => {
            let pieces = match encoding.tokens.is_empty() {
                true => "nothing".into(),
                false => encoding.tokens.join(" "),
            };
            let found = format!("{word:?}, which is {pieces} to the tokenizer");
            Err(bad_setting(key, found, "a word that is one piece of the vocabulary".into()))
        }
    }
}

/// Prompt-based classification, configured by a section.
pub(super) struct PromptKind<'a>(pub &'a PromptSection);

impl TaskKind for PromptKind<'_> {
    fn check(&self, config: Tuning<'_>) -> Check {
        let head = config.model.dropout.head;
        let expected = "none: the masked-LM head has no dropout";
        ensure(head.is_none(), "model.dropout.head", head.unwrap_or(0.0), expected)?;
        ensure(config.distillation.is_none(), "distillation", "given", "none: a prompt takes no teacher")
    }

    fn needs_training(&self) -> bool {
        false
    }

    fn has_classes(&self) -> bool {
        true
    }

    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let (config, tokenizer) = (run.config, run.tokenizer()?);
        let task = PromptTask::new(self.0, &tokenizer, &config.model.path)?;
        let train = task.read(&config.data.train)?;
        let data = run.reading(progress).selected::<PromptTask>(
            train,
            |source| task.read(source),
            |examples| task.encode(&tokenizer, examples, config.data.max_len),
            |examples| draw_shots(config, Some(&task.labels), examples),
        )?;
        run.train(&task, data, &tokenizer, progress)
    }

    fn size(&self, data: &LabelledSource) -> Result<Option<DataSize>> {
        let labels = LabelSet::given(self.0.verbaliser.keys().cloned())?;
        let (loaded, _) = texts(data, Path::new(""), Labels::Of(&labels))?;
        let classes = Some(labels.len());
        Ok(Some(DataSize { classes, ..DataSize::of_rows(loaded.examples.len()) }))
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        let task = PromptTask::new(self.0, saved.tokenizer, saved.folder)?;
        saved.open(task)
    }
}

impl TokenFeatures for PromptFeatures {
    fn sequences(&self) -> Vec<&TokenSequence> {
        vec![&self.sequence]
    }

    fn is_cut(&self) -> bool {
        self.truncated
    }
}

impl Task for PromptTask {
    type Model = BertForMaskedLm;
    type Example = TextExample;
    type Features = PromptFeatures;
    /// `[batch, classes]`
    type Scores = Tensor<2>;
    /// The classes' scores.
    type Output = Vec<f32>;
    type Section = TaskSection;

    fn is_finite(output: &Vec<f32>) -> bool {
        output.iter().all(|score| score.is_finite())
    }

    fn weight(&self, batch: &[&PromptFeatures]) -> f64 {
        batch.len() as f64
    }

    fn scores(&self, model: &Self::Model, batch: &[&PromptFeatures], device: &Device) -> Tensor<2> {
        let input = input(&model.bert, &sequences(batch), device);
        let starts = input.starts().into_iter();
        let masks = starts.zip(batch).map(|(start, features)| (start + features.mask) as i32).collect();
        let logits = model.forward(input, labels(masks, device));
        let words: Tensor<1, Int> = labels(self.words.clone(), device);
        let shares = TensorData::new(self.shares.clone(), [self.words.len(), self.labels.len()]);
        logits.select(1, words).matmul(Tensor::from_data(shares, device))
    }

    fn loss(&self, scores: Tensor<2>, batch: &[&PromptFeatures]) -> Tensor<1> {
        let classes = batch.iter().map(|features| class(&features.target) as i32).collect();
        let classes = labels(classes, &scores.device());
        classification_loss(scores, classes, &CrossEntropy::default()).sum()
    }

    fn outputs(&self, model: &Self::Model, batch: &[&PromptFeatures], device: &Device) -> Vec<Vec<f32>> {
        rows(self.scores(model, batch, device))
    }

    fn predictions(
        &self,
        examples: &[TextExample],
        _: &[PromptFeatures],
        outputs: &[Vec<f32>],
    ) -> Box<dyn Predictions> {
        Box::new(class_predictions(&self.labels, self.positive, examples, outputs))
    }

    fn section(&self) -> TaskSection {
        let positive = self.positive.and_then(|id| self.labels.name(id)).map(str::to_owned);
        TaskSection::Prompt(PromptSection { positive, ..self.section.clone() })
    }

    fn class_counts(&self, examples: &[TextExample]) -> Vec<(String, u64)> {
        text_counts(&self.labels, examples)
    }
}

impl PretrainedTask for PromptTask {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        (Architecture::MaskedLm, None)
    }

    /// # Errors
    /// Including [`TrainerError::NoMlmHead`]: words mean nothing to a new head.
    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, BertForMaskedLm, LoadReport)> {
        const ARCHITECTURE: Architecture = Architecture::MaskedLm;
        let mut init = init.deferred();
        let (config, bert, _) = pretrained_encoder(&pretrained, ARCHITECTURE, dropout, &mut init)?;
        let model = BertForMaskedLm { bert, mlm: MlmHead::new(&config, &mut init) };
        let folder = pretrained.folder().to_owned();
        let (model, report) = pretrained.load_into(model, ARCHITECTURE, &["mlm.*"])?;
        match report.missing.first() {
            Some(missing) => Err(TrainerError::NoMlmHead { folder, missing: missing.clone() }),
            None => Ok((config, model, report)),
        }
    }
}

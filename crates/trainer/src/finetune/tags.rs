//! Word tagging for named-entity recognition.

use super::config::Tuning;
use super::kind::{DataSize, RecurrentTask, TaskKind};
use super::reading::TaskData;
use super::saved_model::{OpenedModel, SavedModel};
use super::section::{TaggingSection, TaskSection, check_loss};
use super::task::{
    Encoded, Features, PretrainedTask, ScoreRows, Task, TokenFeatures, bad_setting, input, pretrained_encoder,
};
use super::task_run::TaskRun;
use crate::Result;
use crate::config::validate::{Check, ensure, not_negative};
use crate::engine::optimizer::ParamGroup;
use crate::engine::{Outcome, gradients};
use crate::metrics::progress::RunProgress;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor};
use cloze_data::labelled::{
    EntityTags, LabelSet, LabelledSource, Loaded, TagFeatures, TagReport, TagScheme, TaggedSentence,
    TokenSequence, encode_tags, entity_sentences,
};
use cloze_data::{DataError, derive_seed};
use cloze_evaluation::entities::Span;
use cloze_evaluation::report::{EntityExample, EntityPredictions, Predictions};
use cloze_evaluation::tags::entities;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::Linear;
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::{
    BertForTokenClassification, Crf, DropoutOverrides, TagRules, decode_tags, tagging_loss,
};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;

/// A model that tags words.
pub trait Tagger: Module + Send + Sync {
    /// Logits for the words of several windows, concatenated.
    fn logits(&self, windows: &[&TagFeatures], device: &Device) -> Tensor<2>;

    /// Its conditional random field.
    fn crf(&self) -> &Option<Crf>;

    /// The CRF, mutable.
    fn crf_mut(&mut self) -> &mut Option<Crf>;
}

impl Tagger for BertForTokenClassification {
    fn logits(&self, windows: &[&TagFeatures], device: &Device) -> Tensor<2> {
        let sequences: Vec<&TokenSequence> = windows.iter().map(|window| &window.sequence).collect();
        let input = input(&self.bert, &sequences, device);
        let mut positions = Vec::new();
        for (start, window) in input.starts().into_iter().zip(windows) {
            positions.extend(window.positions.iter().map(|position| (start + position) as i32));
        }
        self.forward(input, Tensor::<1, Int>::from_data(&positions[..], device))
    }

    fn crf(&self) -> &Option<Crf> {
        &self.crf
    }

    fn crf_mut(&mut self) -> &mut Option<Crf> {
        &mut self.crf
    }
}

/// The scores of a batch's words.
#[derive(Debug, Clone)]
pub struct TagScores {
    /// Logits of each word, `[words, tags]`.
    pub logits: Tensor<2>,
    /// The CRF that scores the words of a sentence jointly.
    pub crf: Option<Crf>,
}

impl ScoreRows for TagScores {
    fn rows(&self) -> Vec<Tensor<2>> {
        vec![self.logits.clone()]
    }
}

/// [`Tags`] with a checkpoint's encoder.
pub type TagTask = Tags<BertForTokenClassification>;

/// Token classification with one tag per word, on its first piece.
#[derive(Debug, Clone)]
pub struct Tags<M> {
    /// The tags.
    pub labels: LabelSet,
    /// Which tags may follow which.
    rules: TagRules,
    /// The loss of single words, without a CRF.
    loss: CrossEntropy,
    /// With labels and scheme filled in.
    pub(super) section: TaggingSection,
    model: PhantomData<fn() -> M>,
}

/// A sentence as the model's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceFeatures {
    /// The sentence's index among the examples.
    pub sentence: usize,
    /// One or more windows. Each word belongs to exactly one, and words are in order across windows.
    pub windows: Vec<TagFeatures>,
    /// The labels of the words in the windows, in order; empty if tags are unknown. If words in between are
    /// skipped, labels are adjusted to the scheme.
    pub labels: Vec<usize>,
}

impl TokenFeatures for SentenceFeatures {
    fn sequences(&self) -> Vec<&TokenSequence> {
        self.windows.iter().map(|window| &window.sequence).collect()
    }
}

impl SentenceFeatures {
    /// The words with tags, by their indices in the sentence.
    pub fn words(&self) -> impl Iterator<Item = usize> {
        self.windows.iter().flat_map(|window| &window.words).copied()
    }

    fn n_words(&self) -> usize {
        self.windows.iter().map(|window| window.words.len()).sum()
    }
}

/// The model's output for a sentence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentenceTags {
    /// The labels of the words in the windows.
    pub labels: Vec<usize>,
    /// The sentence's loss with a CRF, or the mean loss of its words; NaN if tags are unknown.
    pub loss: f64,
    /// Whether the scores are finite, as those of an intact model are. With non-finite scores the first labels
    /// are chosen.
    pub is_finite: bool,
}

impl<M: Tagger> Tags<M> {
    /// The configured task and its training examples, converted to the training scheme.
    ///
    /// # Errors
    /// Those of reading the data; tags that do not follow the scheme; invalid labels.
    pub fn read(section: &TaggingSection, source: &LabelledSource) -> Result<(Self, Loaded<TaggedSentence>)> {
        let expected = EntityTags { names: &section.tag_names, scheme: section.scheme, labels: None };
        let mut loaded = entity_sentences(source, Path::new(""), expected)?;
        let mut sentences = std::mem::take(&mut loaded.examples);
        let tags = || sentences.iter().map(|sentence| &sentence.tags[..]);
        let scheme = match (section.predict_scheme, section.scheme) {
            (Some(scheme), _) => scheme,
            (None, Some(scheme @ (TagScheme::Bioes | TagScheme::Words))) => scheme,
            (None, Some(TagScheme::Bio | TagScheme::Iob1)) => TagScheme::Bio,
            (None, None) => match TagScheme::detect(tags())? {
                TagScheme::Bioes => TagScheme::Bioes,
                _ => TagScheme::Bio,
            },
        };
        rewrite(&mut sentences, section.scheme, scheme)?;
        let labels = match section.labels.is_empty() {
            true => scheme.label_set(&sentences)?,
            false => LabelSet::given(section.labels.clone())?,
        };
        let mut task = Self::new(section, labels, scheme)?;
        task.loss = loss(section, &task.labels)?;
        loaded.examples = sentences;
        Ok((task, loaded))
    }

    /// The task of a section with explicit labels, as in a [model folder](super::TaskFile).
    ///
    /// # Errors
    /// No labels, or labels that are not tags of the scheme.
    pub fn spelt_out(section: &TaggingSection) -> Result<Self> {
        let labels = LabelSet::given(section.labels.clone())?;
        Self::new(section, labels, section.predict_scheme.unwrap_or_default())
    }

    fn new(section: &TaggingSection, labels: LabelSet, scheme: TagScheme) -> Result<Self> {
        let allowed = scheme.transitions(&labels)?;
        let rules = TagRules::new(labels.len(), allowed.pairs, allowed.starts, allowed.ends);
        let section = TaggingSection {
            labels: labels.names().to_vec(),
            predict_scheme: Some(scheme),
            ..section.clone()
        };
        Ok(Self { labels, rules, loss: CrossEntropy::default(), section, model: PhantomData })
    }

    /// The scheme that the model is trained on.
    pub fn scheme(&self) -> TagScheme {
        self.section.predict_scheme.unwrap_or_default()
    }

    /// Reads sentences of another split.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_more(&self, source: &LabelledSource) -> Result<Loaded<TaggedSentence>> {
        let TaggingSection { tag_names, scheme, .. } = &self.section;
        let expected = EntityTags { names: tag_names, scheme: *scheme, labels: Some(&self.labels) };
        let mut loaded = entity_sentences(source, Path::new(""), expected)?;
        rewrite(&mut loaded.examples, self.section.scheme, self.scheme())?;
        Ok(loaded)
    }

    /// A run's splits; `train` is already read.
    ///
    /// # Errors
    /// Those of [`read_more`](Self::read_more) and of [`encode`](Self::encode).
    pub(super) fn data(
        &self,
        train: Loaded<TaggedSentence>,
        tokenizer: &Tokenizer,
        run: &TaskRun<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<TaskData<Self>> {
        let mut lost = TagReport::default();
        let encode = |examples| {
            let (encoded, report) = self.encode(tokenizer, examples, run.config.data.max_len)?;
            lost.truncated_words += report.truncated_words;
            lost.vanished_words += report.vanished_words;
            Ok(encoded)
        };
        let read = |source: &LabelledSource| self.read_more(source);
        let data = run.reading(progress).data::<Self>(train, read, encode)?;
        let TagReport { truncated_words, vanished_words, .. } = lost;
        if truncated_words + vanished_words > 0 {
            progress.note(&format!(
                "words without a tag of the model's: {truncated_words} cut off, {vanished_words} without pieces"
            ));
        }
        Ok(data)
    }

    /// Sentences with their tokens. A sentence whose words all have no tokens gets no features: its words count
    /// as outside.
    ///
    /// # Errors
    /// A tag that does not occur in training; lengths that are too short.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<TaggedSentence>,
        max_len: usize,
    ) -> Result<(Encoded<TaggedSentence, SentenceFeatures>, TagReport)> {
        let (features, report) = self.features(tokenizer, &examples, max_len)?;
        Ok((Encoded { examples, features }, report))
    }

    fn features(
        &self,
        tokenizer: &Tokenizer,
        examples: &[TaggedSentence],
        max_len: usize,
    ) -> Result<(Vec<SentenceFeatures>, TagReport)> {
        let long = self.section.long_sentences;
        let (windows, report) = encode_tags(tokenizer, examples, &self.labels, max_len, long)?;
        let mut features: Vec<SentenceFeatures> = Vec::with_capacity(examples.len());
        for window in windows.into_iter().filter(|window| !window.words.is_empty()) {
            match features.last_mut().filter(|last| last.sentence == window.sentence) {
                Some(last) => last.windows.push(window),
                None => {
                    let sentence = window.sentence;
                    features.push(SentenceFeatures { sentence, windows: vec![window], labels: Vec::new() });
                }
            }
        }
        for features in &mut features {
            features.labels = self.labels_of(features, &examples[features.sentence])?;
        }
        Ok((features, report))
    }

    /// The labels of the words in the windows.
    fn labels_of(&self, features: &SentenceFeatures, sentence: &TaggedSentence) -> Result<Vec<usize>> {
        if sentence.tags.is_empty() {
            return Ok(Vec::new());
        }
        let kept: Vec<&str> = features.words().map(|word| sentence.tags[word].as_str()).collect();
        // What is left of an entity that has lost words must again be one.
        let kept = match kept.len() == sentence.words.len() {
            true => kept.into_iter().map(str::to_owned).collect(),
            false => self.scheme().tags(&self.scheme().lenient_spans(&kept), kept.len()),
        };
        let label = |(place, tag): (usize, String)| {
            self.labels.id(&tag).ok_or_else(|| {
                DataError::UnknownTag {
                    sentence: features.sentence + 1,
                    word: features.words().nth(place).unwrap_or_default() + 1,
                    tag,
                    labels: self.labels.names().join(", "),
                }
                .into()
            })
        };
        kept.into_iter().enumerate().map(label).collect()
    }

    /// The tags of all words of the examples; words without features count as outside.
    pub fn tags<'a>(
        &'a self,
        examples: &[TaggedSentence],
        features: &[SentenceFeatures],
        outputs: &[SentenceTags],
    ) -> Vec<Vec<&'a str>> {
        let mut tags: Vec<Vec<&str>> =
            examples.iter().map(|sentence| vec![OUTSIDE; sentence.words.len()]).collect();
        for (features, output) in features.iter().zip(outputs) {
            for (word, label) in features.words().zip(&output.labels) {
                tags[features.sentence][word] = self.labels.name(*label).unwrap_or(OUTSIDE);
            }
        }
        tags
    }

    /// Whether tags are word classes, not entities.
    pub(super) fn is_of_words(&self) -> bool {
        self.scheme() == TagScheme::Words
    }

    /// The entities of a sentence's tags, or its words with their classes.
    fn spans<T: AsRef<str>>(&self, tags: &[T]) -> Vec<Span> {
        let word = |(start, tag): (usize, &T)| Span { label: tag.as_ref().into(), start, end: start + 1 };
        match self.is_of_words() {
            true => tags.iter().enumerate().map(word).collect(),
            false => entities(tags),
        }
    }

    /// The model with its CRF restricted to the scheme's rules.
    pub(super) fn with_rules(&self, mut model: M) -> M {
        let field = model.crf_mut();
        *field = field.take().map(|crf| crf.with_rules(self.rules.clone()));
        model
    }
}

/// Maximum tokens of windows processed at once; a sentence may have any number.
const AT_ONCE: usize = 8_192;

/// Windows in parts of about equal size in tokens.
fn parts<'a, 'b>(windows: &'a [&'b TagFeatures]) -> impl Iterator<Item = &'a [&'b TagFeatures]> {
    let mut tokens = 0;
    windows.chunk_by(move |before, _| {
        tokens += before.sequence.len();
        let is_full = tokens >= AT_ONCE;
        tokens = if is_full { 0 } else { tokens };
        !is_full
    })
}

/// All windows of a batch.
fn windows<'a>(batch: &[&'a SentenceFeatures]) -> Vec<&'a TagFeatures> {
    batch.iter().flat_map(|features| &features.windows).collect()
}

/// Whether each word's logits are finite.
fn finite_rows(logits: Tensor<2>) -> Vec<bool> {
    let [_, n_tags] = logits.dims();
    let values: Vec<f32> = logits.into_data().iter::<f32>().collect();
    values.chunks(n_tags.max(1)).map(|row| row.iter().all(|value| value.is_finite())).collect()
}

/// The number of words of each sentence.
fn n_words(batch: &[&SentenceFeatures]) -> Vec<usize> {
    batch.iter().map(|features| features.n_words()).collect()
}

const OUTSIDE: &str = "O";

/// The loss without a CRF.
fn loss(section: &TaggingSection, labels: &LabelSet) -> Result<CrossEntropy> {
    let weights = &section.class_weights;
    if !weights.is_empty() && weights.len() != labels.len() {
        let expected = format!("{}: one for each of {}", labels.len(), labels.names().join(", "));
        return Err(bad_setting("task.class_weights", format!("{} numbers", weights.len()), expected));
    }
    Ok(CrossEntropy {
        label_smoothing: section.label_smoothing,
        class_weights: (!weights.is_empty()).then(|| weights.as_slice().into()),
        ..CrossEntropy::default()
    })
}

/// Converts tags to the scheme `to`, by way of their entities.
fn rewrite(sentences: &mut [TaggedSentence], from: Option<TagScheme>, to: TagScheme) -> Result<()> {
    Ok(from.unwrap_or(to).convert(sentences, to, from.is_none())?)
}

/// Tagging, configured by a section.
pub(super) struct TagKind<'a>(pub &'a TaggingSection);

impl TaskKind for TagKind<'_> {
    fn check(&self, _: Tuning<'_>) -> Check {
        let TaggingSection { crf, crf_lr_scale, label_smoothing, class_weights, .. } = self.0;
        if let Some(predicted) = self.0.predict_scheme {
            let is_of_words = |scheme| scheme == Some(TagScheme::Words);
            let expected = "no such key, or \"words\" with `task.scheme` = \"words\" and only with it: classes of words are \
                            no entities";
            let found = serde_json::to_string(&predicted).unwrap_or_default();
            let agree = is_of_words(Some(predicted)) == is_of_words(self.0.scheme);
            ensure(agree, "task.predict_scheme", found, expected)?;
        }
        check_loss(*label_smoothing, class_weights)?;
        let with_crf = |what: &str| format!("{what} with `task.crf`, whose loss is of whole sentences");
        ensure(!crf || *label_smoothing == 0.0, "task.label_smoothing", label_smoothing, with_crf("0"))?;
        let weights = format!("{class_weights:?}");
        ensure(!crf || class_weights.is_empty(), "task.class_weights", weights, with_crf("none"))?;
        not_negative("task.crf_lr_scale", *crf_lr_scale)
    }

    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let tokenizer = run.tokenizer()?;
        let (task, train) = TagTask::read(self.0, &run.config.data.train)?;
        let data = task.data(train, &tokenizer, &run, progress)?;
        run.train(&task, data, &tokenizer, progress)
    }

    fn size(&self, data: &LabelledSource) -> Result<Option<DataSize>> {
        let expected = EntityTags { names: &self.0.tag_names, scheme: self.0.scheme, labels: None };
        let loaded = entity_sentences(data, Path::new(""), expected)?;
        Ok(Some(DataSize::of_rows(loaded.examples.len())))
    }

    fn recurrent(&self) -> Option<RecurrentTask<'_>> {
        Some(RecurrentTask::Tags(self.0))
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        saved.open(TagTask::spelt_out(self.0)?)
    }
}

impl<M: Tagger> Task for Tags<M> {
    type Model = M;
    type Example = TaggedSentence;
    type Features = SentenceFeatures;
    type Scores = TagScores;
    type Output = SentenceTags;
    type Section = TaskSection;

    fn is_finite(output: &SentenceTags) -> bool {
        output.is_finite
    }

    /// Number of sentences with a CRF, weighted number of words without.
    fn weight(&self, batch: &[&SentenceFeatures]) -> f64 {
        match self.section.crf {
            true => batch.len() as f64,
            false => self.loss.total_weight(labels(batch).into_iter().map(|label| label as i64)),
        }
    }

    fn scores(&self, model: &M, batch: &[&SentenceFeatures], device: &Device) -> TagScores {
        TagScores { logits: model.logits(&windows(batch), device), crf: model.crf().clone() }
    }

    fn loss(&self, TagScores { logits, crf }: TagScores, batch: &[&SentenceFeatures]) -> Tensor<1> {
        tagging_loss(crf.as_ref(), logits, &labels(batch), &n_words(batch), &self.loss).sum()
    }

    fn n_rows(&self, batch: &[&SentenceFeatures]) -> usize {
        n_words(batch).iter().sum()
    }

    fn encode_again(
        &self,
        tokenizer: &Tokenizer,
        examples: &[TaggedSentence],
        max_len: usize,
    ) -> Result<Vec<SentenceFeatures>> {
        Ok(self.features(tokenizer, examples, max_len)?.0)
    }

    /// In parts if a sentence exceeds what is processed at once; a CRF's loss needs whole sentences.
    fn gradients(
        &self,
        model: &M,
        batch: &[&SentenceFeatures],
        factor: f64,
        seed: u64,
        device: &Device,
    ) -> Option<(f64, GradientsParams)> {
        if self.section.crf || batch.iter().all(|features| features.cost() <= AT_ONCE) {
            return None;
        }
        let (windows, labels) = (windows(batch), labels(batch));
        let (mut sum, mut all, mut from) = (0.0, None, 0);
        for (part, place) in parts(&windows).zip(0..) {
            device.seed(derive_seed(seed, &[place]));
            let n: usize = part.iter().map(|window| window.words.len()).sum();
            let of_part = &labels[from..from + n];
            from += n;
            let loss = tagging_loss(None, model.logits(part, device), of_part, &[n], &self.loss).sum();
            sum += loss.clone().into_scalar::<f64>();
            let more = GradientsParams::from_grads((loss * factor).backward(), model);
            all = Some(gradients::add(model, all, more));
        }
        Some((sum, all.unwrap_or_default()))
    }

    fn outputs(&self, model: &M, batch: &[&SentenceFeatures], device: &Device) -> Vec<SentenceTags> {
        let windows = windows(batch);
        let logits = parts(&windows).map(|windows| model.logits(windows, device)).collect();
        let (logits, n_words, crf) = (Tensor::cat(logits, 0), n_words(batch), model.crf().as_ref());
        let losses = tagging_loss(crf, logits.clone(), &labels(batch), &n_words, &CrossEntropy::default());
        let losses: Vec<f64> = losses.into_data().iter::<f64>().collect();
        let mut losses = losses.into_iter();
        let finite = finite_rows(logits.clone());
        let mut finite = finite.into_iter();
        let tags = decode_tags(crf, logits, &n_words);
        let outputs = batch.iter().zip(tags).map(|(features, labels)| {
            let is_finite = finite.by_ref().take(labels.len()).filter(|is_finite| !is_finite).count() == 0;
            let n = if self.section.crf { 1 } else { labels.len() };
            let loss = losses.by_ref().take(n).sum::<f64>() / n as f64;
            SentenceTags { labels, loss: if features.labels.is_empty() { f64::NAN } else { loss }, is_finite }
        });
        outputs.collect()
    }

    fn predictions(
        &self,
        examples: &[TaggedSentence],
        features: &[SentenceFeatures],
        outputs: &[SentenceTags],
    ) -> Box<dyn Predictions> {
        let mut losses = vec![0.0; examples.len()];
        for (features, output) in features.iter().zip(outputs) {
            losses[features.sentence] = output.loss;
        }
        let tags = self.tags(examples, features, outputs);
        let examples = examples.iter().zip(tags).zip(losses).enumerate();
        let examples = examples.map(|(i, ((sentence, tags), loss))| EntityExample {
            id: (i + 1).to_string(),
            words: sentence.words.clone(),
            gold: self.spans(&sentence.tags),
            predicted: self.spans(&tags),
            loss,
        });
        Box::new(EntityPredictions { examples: examples.collect(), of_words: self.is_of_words() })
    }

    fn labels(&self) -> Option<&LabelSet> {
        Some(&self.labels)
    }

    fn class_counts(&self, examples: &[TaggedSentence]) -> Vec<(String, u64)> {
        let class = |label: &String| match self.is_of_words() {
            true => Some(label.clone()),
            false => label.split_once('-').map(|(_, kind)| kind.to_owned()),
        };
        let mut counts: BTreeMap<String, u64> =
            self.labels.names().iter().filter_map(class).map(|class| (class, 0)).collect();
        for span in examples.iter().flat_map(|sentence| self.spans(&sentence.tags)) {
            *counts.entry(span.label).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn parameter_groups(&self) -> Vec<ParamGroup> {
        let TaggingSection { crf, crf_lr_scale, .. } = self.section;
        let group = ParamGroup { lr_scale: crf_lr_scale, ..ParamGroup::new("crf.*") };
        crf.then_some(group).into_iter().collect()
    }

    fn section(&self) -> TaskSection {
        let section =
            TaggingSection { class_weights: Vec::new(), label_smoothing: 0.0, ..self.section.clone() };
        TaskSection::Tagging(section)
    }
}

impl PretrainedTask for TagTask {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        (Architecture::TokenClassification, None)
    }

    fn of_saved(section: &TaskSection, _: Option<bool>) -> Result<Self> {
        match section {
            TaskSection::Tagging(section) => Self::spelt_out(section),
            _ => Err(bad_setting("task.kind", "another", "tagging".into())),
        }
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, BertForTokenClassification, LoadReport)> {
        const ARCHITECTURE: Architecture = Architecture::TokenClassification;
        let n_tags = self.labels.len();
        let mut init = init.deferred();
        let (config, bert, dropout) = pretrained_encoder(&pretrained, ARCHITECTURE, dropout, &mut init)?;
        let transform = ARCHITECTURE.head_transform(pretrained.config.family, &config, &mut init);
        let output = Linear::new(config.d_model, n_tags, &mut init);
        let crf = self.section.crf.then(|| Crf::new(n_tags, &mut init).with_rules(self.rules.clone()));
        let model = BertForTokenClassification { bert, transform, output, crf, dropout };
        let new = ["transform.*", "output.*", "crf.*"];
        let (model, report) = pretrained.load_into(model, ARCHITECTURE, &new)?;
        Ok((config, model, report))
    }
}

/// The labels of all words of a batch; the first label if tags are unknown.
fn labels(batch: &[&SentenceFeatures]) -> Vec<usize> {
    let of = |features: &&SentenceFeatures| match features.labels.is_empty() {
        true => vec![0; features.n_words()],
        false => features.labels.clone(),
    };
    batch.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finetune::testing::{saved, tokenizer};
    use cloze_data::labelled::LongSentences;

    /// A sentence of more tokens than are computed at once has the gradients that it has as a whole.
    #[test]
    fn long_sentences_are_trained_on_in_parts() {
        let labels = ["O", "B-x", "I-x"].map(String::from).to_vec();
        let long_sentences = LongSentences::Windows { stride: 2 };
        let section = TaggingSection { labels, long_sentences, ..TaggingSection::default() };
        let task = TagTask::spelt_out(&section).unwrap();
        let sentence = |n: usize| TaggedSentence {
            words: (0..n).map(|i| char::from(b'a' + (i % 26) as u8).to_string()).collect(),
            tags: (0..n).map(|i| if i % 5 == 0 { "B-x" } else { "O" }.to_owned()).collect(),
        };
        let folder = saved(task.clone(), 18);
        let device = Device::flex().autodiff();
        let pretrained = PretrainedFolder::open(folder.path()).unwrap();
        let mut dropout = DropoutOverrides::default();
        (dropout.hidden, dropout.attention, dropout.head) = (Some(0.0), Some(0.0), Some(0.0));
        let mut init = ParamInit::new(&device, 0);
        let (_, model, _) = task.model(pretrained, &dropout, &mut init).unwrap();
        let (data, _) = task.encode(&tokenizer(), vec![sentence(9_000), sentence(7)], 18).unwrap();
        let batch: Vec<&SentenceFeatures> = data.features.iter().collect();
        let (sum, in_parts) = task.gradients(&model, &batch, 0.5, 3, &device).unwrap();
        let whole = task.loss(task.scores(&model, &batch, &device), &batch);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-3 * (1.0 + b.abs());
        assert!(close(sum, whole.clone().into_scalar::<f64>()));
        let whole = GradientsParams::from_grads((whole * 0.5).backward(), &model);
        let gradient = |of: &GradientsParams| {
            let found = of.get::<2>(model.output.weight.id).unwrap();
            found.into_data().iter::<f64>().collect::<Vec<_>>()
        };
        let (in_parts, whole) = (gradient(&in_parts), gradient(&whole));
        assert!(whole.iter().any(|value| value.abs() > 1.0), "{whole:?}");
        assert!(in_parts.iter().zip(&whole).all(|(a, b)| close(*a, *b)), "{in_parts:?} {whole:?}");
        assert!(task.gradients(&model, &batch[1..], 0.5, 3, &device).is_none(), "nothing to cut");
    }
}

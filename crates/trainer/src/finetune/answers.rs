//! Extractive question answering: answers are spans of a text.

use super::config::Tuning;
use super::kind::{DataSize, TaskKind};
use super::saved_model::{OpenedModel, SavedModel};
use super::section::TaskSection;
use super::task::{
    Encoded, PretrainedTask, ScoreRows, Task, TokenFeatures, bad_setting, input, labels, pretrained_encoder,
    rows, sequences, softmax,
};
use super::task_run::TaskRun;
use crate::Result;
use crate::config::validate::{Check, at_least, ensure};
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use cloze_data::labelled::{
    AnswerConfig, LabelledSource, Loaded, PredictedAnswer, Question, QuestionFeatures, TokenSequence,
    WindowScores, Windows, best_answer, encode_questions, questions,
};
use cloze_evaluation::report::{Answer, AnswerExample, AnswerPredictions, Predictions, SquadVersion};
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::Linear;
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::tasks::{BertForQuestionAnswering, DropoutOverrides, SpanLogits, span_loss};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Extractive question answering (Devlin et al. 2019, §4.2 and §4.3). Long contexts are split into overlapping
/// windows.
///
/// A feature is a window. As in transformers' `run_qa`, the target of a window that does not contain the whole
/// answer is the no-answer token. Unlike there, the softmax covers only the tokens where an answer may begin or
/// end, i.e. the context's and the no-answer token; question and padding are excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerTask {
    /// Context tokens shared by consecutive windows.
    pub stride: usize,
    /// Maximum tokens of a question.
    pub max_question: usize,
    /// How answers are selected. With a threshold, a question may have no answer and is scored as in SQuAD 2.0.
    pub choose: AnswerConfig,
    /// Number of candidates listed besides the best one in predictions.
    pub listed: usize,
}

/// A window's scores: each of its tokens as the answer's first and as its last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpanScores {
    /// As the first token.
    pub starts: Vec<f32>,
    /// As the last token.
    pub ends: Vec<f32>,
}

impl AnswerTask {
    /// The task that a config's or a model folder's section describes.
    ///
    /// # Errors
    /// [`TrainerError::Setting`](crate::TrainerError::Setting) for a section of another kind.
    pub fn of(section: &TaskSection) -> Result<Self> {
        match *section {
            TaskSection::Answers { stride, max_question, max_answer, n_best, null_threshold } => {
                let choose = AnswerConfig { n_best, max_answer, null_threshold };
                Ok(Self { stride, max_question, choose, listed: 0 })
            }
            _ => Err(bad_setting("task.kind", "another", "answers".into())),
        }
    }

    /// The task that a config describes, and its training examples. If the config has no threshold and some of the
    /// examples have no answer, the threshold is 0.
    ///
    /// # Errors
    /// Those of [`of`](Self::of) and of reading the data.
    pub fn read(section: &TaskSection, source: &LabelledSource) -> Result<(Self, Loaded<Question>)> {
        let mut task = Self::of(section)?;
        let loaded = task.read_more(source)?;
        if loaded.examples.iter().any(|question| question.is_impossible) {
            task.choose.null_threshold.get_or_insert(0.0);
        }
        Ok((task, loaded))
    }

    /// Reads examples of another split.
    ///
    /// # Errors
    /// Those of reading the data.
    pub fn read_more(&self, source: &LabelledSource) -> Result<Loaded<Question>> {
        Ok(questions(source, Path::new(""), true)?)
    }

    /// Questions with their windows.
    ///
    /// # Errors
    /// A `max_len` too short for question, stride and one more token.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<Question>,
        max_len: usize,
    ) -> Result<Encoded<Question, QuestionFeatures>> {
        let features = self.encode_again(tokenizer, &examples, max_len)?;
        Ok(Encoded { examples, features })
    }

    /// The answer to each question, in order.
    ///
    /// # Panics
    /// If the number of outputs differs from the number of features.
    pub fn answers(
        &self,
        questions: &[Question],
        features: &[QuestionFeatures],
        outputs: &[SpanScores],
    ) -> Vec<PredictedAnswer> {
        let answers = of_questions(features, outputs)
            .map(|windows| best_answer(&questions[windows[0].window.question], &windows, self.choose));
        answers.collect()
    }
}

/// The windows of each question with their scores.
fn of_questions<'a>(
    features: &'a [QuestionFeatures],
    outputs: &'a [SpanScores],
) -> impl Iterator<Item = Vec<WindowScores<'a>>> {
    assert_eq!(features.len(), outputs.len(), "an output for each window");
    let mut outputs = outputs.iter();
    features.chunk_by(|a, b| a.question == b.question).map(move |windows| {
        let scored = windows.iter().zip(outputs.by_ref());
        scored.map(|(window, SpanScores { starts, ends })| WindowScores { window, starts, ends }).collect()
    })
}

/// The mean of both cross-entropies, in nats.
fn window_loss(scores: &WindowScores) -> f64 {
    let (start, end) = scores.window.answer;
    let of = |scores: &[f32], token: usize| -softmax(scores)[token].ln();
    (of(scores.starts, start) + of(scores.ends, end)) / 2.0
}

/// Question answering, configured by a section.
pub(super) struct AnswerKind<'a>(pub &'a TaskSection);

impl TaskKind for AnswerKind<'_> {
    fn check(&self, _: Tuning<'_>) -> Check {
        let TaskSection::Answers { max_answer, n_best, null_threshold, .. } = self.0 else {
            return Ok(());
        };
        at_least(1, "task.max_answer", *max_answer)?;
        at_least(1, "task.n_best", *n_best)?;
        let threshold = null_threshold.unwrap_or(0.0);
        ensure(threshold.is_finite(), "task.null_threshold", threshold, "a number")
    }

    fn default_max_len(&self) -> usize {
        384
    }

    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let (data, tokenizer) = (run.config.data, run.tokenizer()?);
        let (task, train) = AnswerTask::read(self.0, &data.train)?;
        let data = run.reading(progress).data::<AnswerTask>(
            train,
            |source| task.read_more(source),
            |examples| task.encode(&tokenizer, examples, data.max_len),
        )?;
        run.train(&task, data, &tokenizer, progress)
    }

    fn size(&self, data: &LabelledSource) -> Result<Option<DataSize>> {
        let loaded = questions(data, Path::new(""), true)?;
        Ok(Some(DataSize::of_rows(loaded.examples.len())))
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        saved.open(AnswerTask::of(self.0)?)
    }
}

impl TokenFeatures for QuestionFeatures {
    fn sequences(&self) -> Vec<&TokenSequence> {
        vec![&self.sequence]
    }
}

impl ScoreRows for SpanLogits {
    fn rows(&self) -> Vec<Tensor<2>> {
        vec![self.start.clone(), self.end.clone()]
    }
}

impl Task for AnswerTask {
    type Model = BertForQuestionAnswering;
    type Example = Question;
    type Features = QuestionFeatures;
    type Scores = SpanLogits;
    type Output = SpanScores;
    type Section = TaskSection;

    fn is_finite(SpanScores { starts, ends }: &SpanScores) -> bool {
        starts.iter().chain(ends).all(|score| score.is_finite())
    }

    fn has_pairs(&self) -> bool {
        true
    }

    fn weight(&self, batch: &[&QuestionFeatures]) -> f64 {
        batch.len() as f64
    }

    /// The logits of context and no-answer tokens; others cannot begin or end an answer.
    fn scores(&self, model: &Self::Model, batch: &[&QuestionFeatures], device: &Device) -> SpanLogits {
        let input = input(&model.bert, &sequences(batch), device);
        let longest = input.longest();
        let outside = batch.iter().flat_map(|window| {
            (0..longest).map(|token| token != window.null && !window.context.contains(&token))
        });
        let outside = TensorData::new(outside.collect::<Vec<bool>>(), [batch.len(), longest]);
        model.forward(input, Some(Tensor::<2, Bool>::from_data(outside, device)))
    }

    fn loss(&self, logits: SpanLogits, batch: &[&QuestionFeatures]) -> Tensor<1> {
        let device = logits.start.device();
        let side = |token: fn(&QuestionFeatures) -> usize| {
            labels(batch.iter().map(|window| token(window) as i32).collect(), &device)
        };
        let (starts, ends) = (side(|window| window.answer.0), side(|window| window.answer.1));
        span_loss(logits, starts, ends).sum()
    }

    fn rows_are_of_tokens(&self) -> bool {
        true
    }

    fn encode_again(
        &self,
        tokenizer: &Tokenizer,
        examples: &[Question],
        max_len: usize,
    ) -> Result<Vec<QuestionFeatures>> {
        let Self { stride, max_question, .. } = *self;
        Ok(encode_questions(tokenizer, examples, Windows { max_len, stride, max_question })?)
    }

    fn outputs(&self, model: &Self::Model, batch: &[&QuestionFeatures], device: &Device) -> Vec<SpanScores> {
        let SpanLogits { start, end } = self.scores(model, batch, device);
        let scores = batch.iter().zip(rows(start).into_iter().zip(rows(end)));
        scores
            .map(|(window, (mut starts, mut ends))| {
                starts.truncate(window.sequence.len());
                ends.truncate(window.sequence.len());
                SpanScores { starts, ends }
            })
            .collect()
    }

    /// The best answers, ignoring the threshold, which the report applies; a question's loss is the mean over
    /// its windows.
    fn predictions(
        &self,
        questions: &[Question],
        features: &[QuestionFeatures],
        outputs: &[SpanScores],
    ) -> Box<dyn Predictions> {
        let always = AnswerConfig { null_threshold: None, ..self.choose };
        let examples = of_questions(features, outputs).map(|windows| {
            let question = &questions[windows[0].window.question];
            let found = best_answer(question, &windows, always);
            let first = question.answers.first();
            AnswerExample {
                id: question.id.clone(),
                question: question.question.clone(),
                context: question.context.to_string(),
                golds: question.answers.iter().map(|answer| answer.text.clone()).collect(),
                gold_range: first.map(|answer| answer.start..answer.start + answer.text.len()),
                score: found.candidates.first().map_or(0.0, |best| best.probability),
                // Without a candidate no answer is given, whatever stands here.
                null_score: found.null_difference.unwrap_or(0.0),
                predicted: Answer { text: found.text, range: found.bytes },
                loss: windows.iter().map(window_loss).sum::<f64>() / windows.len() as f64,
            }
        });
        let examples = examples.collect();
        let version = match self.choose.null_threshold {
            Some(threshold) => SquadVersion::Two { threshold },
            None => SquadVersion::One,
        };
        Box::new(AnswerPredictions { version, examples })
    }

    fn section(&self) -> TaskSection {
        let Self { stride, max_question, choose, .. } = *self;
        let AnswerConfig { n_best, max_answer, null_threshold } = choose;
        TaskSection::Answers { stride, max_question, max_answer, n_best, null_threshold }
    }
}

impl PretrainedTask for AnswerTask {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        (Architecture::QuestionAnswering, None)
    }

    fn of_saved(section: &TaskSection, _: Option<bool>) -> Result<Self> {
        Self::of(section)
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, BertForQuestionAnswering, LoadReport)> {
        const ARCHITECTURE: Architecture = Architecture::QuestionAnswering;
        if let Some(p) = dropout.head {
            return Err(bad_setting("model.dropout.head", p, "none: this head has no dropout".into()));
        }
        let mut init = init.deferred();
        let (config, bert, _) = pretrained_encoder(&pretrained, ARCHITECTURE, dropout, &mut init)?;
        let transform = ARCHITECTURE.head_transform(pretrained.config.family, &config, &mut init);
        let output = Linear::new(config.d_model, 2, &mut init);
        let model = BertForQuestionAnswering { bert, transform, output };
        let (model, report) = pretrained.load_into(model, ARCHITECTURE, &["transform.*", "output.*"])?;
        Ok((config, model, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[CLS] q [SEP] context [SEP]`, the context letters with spaces between them.
    fn window(question: usize, letters: std::ops::Range<usize>, answer: (usize, usize)) -> QuestionFeatures {
        let len = letters.len() + 4;
        QuestionFeatures {
            sequence: TokenSequence { input_ids: vec![1; len], token_type_ids: vec![0; len] },
            question,
            context: 3..3 + letters.len(),
            offsets: letters.map(|letter| (2 * letter, 2 * letter + 1)).collect(),
            null: 0,
            answer,
        }
    }

    /// Scores of 0 but at a token for the start and one for the end.
    fn scores(len: usize, start: (usize, f32), end: (usize, f32)) -> SpanScores {
        let with = |(token, score)| (0..len).map(|place| if place == token { score } else { 0.0 }).collect();
        SpanScores { starts: with(start), ends: with(end) }
    }

    fn question(id: &str, answer: Option<(usize, &str)>) -> Question {
        let answers =
            answer.into_iter().map(|(start, text)| cloze_data::labelled::Answer { start, text: text.into() });
        Question {
            id: id.into(),
            title: String::new(),
            context: "a b c d".into(),
            question: "q".into(),
            answers: answers.collect(),
            is_impossible: answer.is_none(),
        }
    }

    #[test]
    fn windows_are_joined_to_their_question() {
        let questions = [question("one", Some((4, "c d"))), question("two", None)];
        let features = [window(0, 0..2, (0, 0)), window(0, 2..4, (3, 4)), window(1, 0..3, (0, 0))];
        let outputs = [
            scores(6, (0, 1.0), (0, 1.0)),
            scores(6, (3, 4.0), (4, 4.0)),
            // None, which scores 5, is better than `b`, which scores 3.
            SpanScores {
                starts: vec![3.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0],
                ends: vec![2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            },
        ];
        let section = TaskSection::Answers {
            stride: 1,
            max_question: 1,
            max_answer: 2,
            n_best: 5,
            null_threshold: Some(0.0),
        };
        let task = AnswerTask::of(&section).unwrap();
        assert_eq!(task.section(), section);
        let answers = task.answers(&questions, &features, &outputs);
        assert_eq!(answers.iter().map(|answer| answer.text.as_str()).collect::<Vec<_>>(), ["c d", ""]);

        let predictions = task.predictions(&questions, &features, &outputs);
        assert_eq!(predictions.figures().get("exact"), Some(1.0));
        let columns = predictions.columns();
        let cell = |row: usize, name: &str| {
            predictions.row(row)[columns.iter().position(|column| column == name).unwrap()].clone()
        };
        // What is best apart from none, and by how much none is better.
        assert_eq!((cell(1, "best_answer"), cell(1, "null_score")), ("b".into(), 2.0.into()));
        // The mean over both windows of one question, each of six tokens.
        let of = |score: f64| -(score.exp() / (score.exp() + 5.0)).ln();
        assert!((predictions.loss(0) - (of(1.0) + of(4.0)) / 2.0).abs() < 1e-12);
    }

    #[test]
    fn another_kind_of_task_is_an_error() {
        let error = AnswerTask::of(&TaskSection::MultipleChoice {}).unwrap_err().to_string();
        assert_eq!(error, "`task.kind` is another; expected answers");
    }
}

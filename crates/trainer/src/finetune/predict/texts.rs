//! Classification of texts and text pairs, and regression.

use super::super::section::TaskSection;
use super::super::task::{Encoded, Task, argmax, n_cut, softmax};
use super::super::texts::{TextClassifier, TextInput, Texts, sigmoid};
use super::{Cut, InputKey, LineFields, PredictTask, Read, number, required};
use crate::Result;
use cloze_data::labelled::{LabelSet, LabelledSource, Loaded, Target, TextExample};
use cloze_tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// The keys read from a line.
pub(super) const TEXT_AND_PAIR: [InputKey; 2] = [InputKey::text("text"), InputKey::text("pair").or_none()];

/// The keys of an answer with one class.
pub(super) const CLASS: [&str; 3] = ["label", "score", "scores"];

/// For classes `{"label": …, "score": …, "scores": {…}}` with all probabilities, for multiple labels
/// `{"labels": […], "scores": {…}}`, for numbers `{"value": …}`.
impl<M: TextClassifier> PredictTask for Texts<M> {
    type Origin = ();

    fn input(&self) -> &'static str {
        match self.pairs() {
            Some(true) => r#"{"text": "…", "pair": "…"}"#,
            Some(false) => r#"{"text": "…"} or "…""#,
            None => r#"{"text": "…"}, {"text": "…", "pair": "…"} or "…""#,
        }
    }

    fn input_keys(&self) -> &'static [InputKey] {
        &TEXT_AND_PAIR
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        match (&self.labels, self.threshold()) {
            (Some(_), Some(_)) => vec!["labels", "scores"],
            (Some(_), None) => CLASS.into(),
            (None, _) => vec!["value"],
        }
    }

    fn read_line(&self, line: Value) -> Read<(TextExample, ())> {
        let example = text(line)?;
        match (self.misfit(&example), &example.pair) {
            (false, _) => Ok((example, ())),
            (true, Some(_)) => Err("`pair` is given, but the model was trained with single texts".into()),
            (true, None) => Err("`pair` is missing, but the model was trained with pairs".into()),
        }
    }

    fn tokens(&self, tokenizer: &Tokenizer, examples: Vec<TextExample>, max_len: usize) -> Result<Cut<Self>> {
        let data = Self::encode(tokenizer, examples, max_len)?;
        let cut = n_cut(&data.features);
        Ok((data, cut))
    }

    fn answer(&self, _: &[()], _: &Encoded<TextExample, TextInput>, outputs: &[Vec<f32>]) -> Vec<Value> {
        match (&self.labels, self.threshold()) {
            (Some(labels), Some(threshold)) => several(labels, threshold, outputs),
            (Some(labels), None) => classes(labels, outputs),
            (None, _) => {
                outputs.iter().map(|output| json!({ "value": number(self.value(output[0])) })).collect()
            }
        }
    }

    fn predict_above(&mut self, threshold: f64) -> bool {
        let applies = self.threshold().is_some();
        if applies {
            *self = self.clone().with_threshold(threshold);
        }
        applies
    }

    fn labelled(
        &self,
        section: &TaskSection,
        source: &LabelledSource,
    ) -> Result<(Self, Loaded<TextExample>)> {
        let mut task = self.clone();
        match section {
            TaskSection::Classification { positive: Some(name), .. } => task = task.with_positive(name)?,
            TaskSection::MultiLabel { threshold, .. } => task = task.with_threshold(*threshold),
            _ => {}
        }
        let loaded = task.read_more(source)?;
        Ok((task, loaded))
    }
}

/// A text or a pair of texts.
pub(super) fn text(line: Value) -> Read<TextExample> {
    let mut fields = LineFields::or_text(line)?;
    let (text, pair) = (fields.text("text")?, fields.text("pair")?);
    fields.end()?;
    Ok(TextExample { text: required("text", text)?, pair, target: Target::None })
}

/// The labels of each example with probabilities above the threshold, and all probabilities.
fn several(labels: &LabelSet, threshold: f64, outputs: &[Vec<f32>]) -> Vec<Value> {
    let answer = |logits: &Vec<f32>| {
        let scores: Vec<(&String, f64)> =
            labels.names().iter().zip(logits.iter().map(|logit| sigmoid(*logit))).collect();
        let above = scores.iter().filter(|(_, score)| *score > threshold);
        let above: Vec<&String> = above.map(|(name, _)| *name).collect();
        let all = scores.iter().map(|(name, score)| ((*name).clone(), number(*score)));
        json!({ "labels": above, "scores": all.collect::<Map<_, _>>() })
    };
    outputs.iter().map(answer).collect()
}

/// The most likely class of each example, from the class logits.
pub(super) fn classes(labels: &LabelSet, outputs: &[Vec<f32>]) -> Vec<Value> {
    let class = |logits: &Vec<f32>| {
        let scores = softmax(logits);
        let best = argmax(&scores);
        let all = labels.names().iter().cloned().zip(scores.iter().map(|score| number(*score)));
        let all: Map<_, _> = all.collect();
        json!({ "label": labels.name(best), "score": number(scores[best]), "scores": all })
    };
    outputs.iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::texts::TextTask;
    use super::super::testing::{ask, refused, saved};
    use super::*;
    use crate::finetune::{Predictor, ValueLoss};
    use burn::tensor::Device;
    use cloze_data::labelled::{Column, Columns};

    fn task() -> TextTask {
        TextTask::new(Some(LabelSet::given(["no", "yes"]).unwrap()), None)
    }

    #[test]
    fn a_regression_predicts_a_number() {
        let folder = saved(TextTask::new(None, None), 12);
        let values = ask(folder.path(), &[r#""some words""#, r#"{"text": "b"}"#]).values;
        assert!(values.iter().all(|value| value["value"].is_f64() && value.as_object().unwrap().len() == 1));
        assert_ne!(values[0], values[1]);
    }

    #[test]
    fn a_number_trained_by_cross_entropy_is_a_probability() {
        let lines = [r#""some words""#, r#"{"text": "b"}"#];
        let of = |loss| {
            let folder = saved(TextTask::new(None, None).with_value_loss(loss), 12);
            let values = ask(folder.path(), &lines).values;
            values.iter().map(|value| value["value"].as_f64().unwrap()).collect::<Vec<_>>()
        };
        let [plain, probabilities] = [ValueLoss::SquaredError, ValueLoss::BinaryCrossEntropy].map(of);
        for (plain, probability) in plain.iter().zip(probabilities) {
            assert!((1.0 / (1.0 + (-plain).exp()) - probability).abs() < 1e-6, "{plain}, {probability}");
        }
    }

    #[test]
    fn any_number_of_labels_is_above_the_threshold() {
        let names = ["a", "b", "c"];
        let task = TextTask::new(Some(LabelSet::given(names).unwrap()), None).with_threshold(0.5);
        let folder = saved(task, 12);
        let mut predictor = Predictor::load(folder.path(), &Device::flex(), false).unwrap();
        let value = predictor.predict(&["\"some words\""], &mut |_| {}).unwrap().values.remove(0);
        let scores: Vec<f64> = names.iter().map(|name| value["scores"][name].as_f64().unwrap()).collect();
        let above = |threshold: f64| -> Vec<&str> {
            names
                .iter()
                .zip(&scores)
                .filter(|(_, score)| **score > threshold)
                .map(|(name, _)| *name)
                .collect()
        };
        assert_eq!(value["labels"], json!(above(0.5)));
        let mut sorted = scores.clone();
        sorted.sort_by(f64::total_cmp);
        let between = f64::midpoint(sorted[0], sorted[1]);
        predictor.predict_above(between).unwrap();
        let value = predictor.predict(&["\"some words\""], &mut |_| {}).unwrap().values.remove(0);
        assert_eq!(value["labels"], json!(above(between)));
        assert_eq!(above(between).len(), 2);
        let message = predictor.predict_above(1.5).unwrap_err().to_string();
        assert!(message.contains("`threshold` is 1.5; expected a number above 0 and below 1"), "{message}");
    }

    #[test]
    fn labelled_data_is_of_pairs_where_training_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dev.csv").display().to_string();
        std::fs::write(&path, "text,other,label\na,b,1\n").unwrap();
        let of = |pair: Option<&str>| {
            let example =
                TextExample { text: "a".into(), pair: pair.map(Into::into), target: Target::Value(1.0) };
            TextTask::new(None, None).of_kind(&[example])
        };
        let singles = LabelledSource::new([path.as_str()]);
        let mut pairs = singles.clone();
        pairs.columns.insert("pair".into(), Columns::One(Column::Name("other".into())));
        assert_eq!(of(None).read_more(&singles).unwrap().examples[0].pair, None);
        assert_eq!(of(Some("b")).read_more(&pairs).unwrap().examples[0].pair.as_deref(), Some("b"));
        let message = |task: TextTask, source| task.read_more(source).unwrap_err().to_string();
        assert_eq!(
            message(of(Some("b")), &singles),
            format!(
                "`data.train.columns.pair` is a field that rows of {path} lack; expected the second text of each row: \
                 the model is trained with pairs"
            )
        );
        assert_eq!(
            message(of(None), &pairs),
            format!(
                "`data.train.columns.pair` is a field that rows of {path} have; expected none: the model is trained \
                 with single texts"
            )
        );
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = saved(task(), 12);
        for (line, problem) in [
            ("plain text", "not JSON (expected value at line 1 column 1)"),
            (r#"["a"]"#, "neither an object nor a string"),
            ("7", "neither an object nor a string"),
            (r#"{"pair": "a"}"#, "`text` is missing"),
            (r#"{"text": null}"#, "`text` is missing"),
            (r#"{"text": 7}"#, "`text` is not a string"),
            (r#"{"text": "a", "pare": "b"}"#, "unknown key `pare`"),
        ] {
            let message = refused(folder.path(), line);
            assert_eq!(message, format!("{problem}; expected {}", task().input()));
        }
        // What training had, and each of the other kind.
        for (pairs, line, problem) in [
            (
                false,
                r#"{"text": "a", "pair": "b"}"#,
                "`pair` is given, but the model was trained with single texts",
            ),
            (true, r#""a""#, "`pair` is missing, but the model was trained with pairs"),
        ] {
            let target = Target::Class(0);
            let pair = pairs.then(|| "b".to_owned());
            let example = TextExample { text: "a".into(), pair, target };
            let task = task().of_kind(&[example]);
            let folder = saved(task.clone(), 12);
            let message = refused(folder.path(), line);
            assert_eq!(message, format!("{problem}; expected {}", task.input()));
        }
        // Shorter than a pair needs.
        let folder = saved(task(), 3);
        let short = Predictor::load(folder.path(), &Device::flex(), false).unwrap();
        let error = short.predict(&[r#"{"text": "a", "pair": "b"}"#], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("`max_len` = 3"), "{error}");
    }
}

//! Choosing the right one of several texts.

use super::super::choices::ChoiceTask;
use super::super::section::TaskSection;
use super::super::task::{Encoded, argmax, softmax};
use super::{Cut, InputKey, LineFields, PredictTask, Read, number, required};
use crate::Result;
use cloze_data::labelled::{ChoiceExample, ChoiceFeatures, LabelledSource, Loaded};
use cloze_tokenizer::Tokenizer;
use serde_json::{Value, json};

/// `{"choice": …, "score": …, "scores": […]}`: the index of the best, and the probabilities of all.
impl PredictTask for ChoiceTask {
    type Origin = ();

    fn input(&self) -> &'static str {
        r#"{"text": "…", "choices": ["…", "…"]}, or `context` in place of `text`"#
    }

    fn input_keys(&self) -> &'static [InputKey] {
        const {
            &[
                InputKey::text("text").or_none(),
                InputKey::text("context").or_none(),
                InputKey::texts("choices"),
            ]
        }
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        vec!["choice", "score", "scores"]
    }

    fn read_line(&self, line: Value) -> Read<(ChoiceExample, ())> {
        let mut fields = LineFields::of(line)?;
        let (context, text) = (fields.text("context")?, fields.text("text")?);
        let choices = fields.texts("choices")?;
        fields.end()?;
        if context.is_some() && text.is_some() {
            return Err("both `text` and `context`".into());
        }
        let (context, choices) = (required("text", context.or(text))?, required("choices", choices)?);
        match choices.len() {
            0 | 1 => Err("fewer than two `choices`".into()),
            _ => Ok((ChoiceExample { context, choices, label: None }, ())),
        }
    }

    fn tokens(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<ChoiceExample>,
        max_len: usize,
    ) -> Result<Cut<Self>> {
        let data = self.encode(tokenizer, examples, max_len)?;
        let cut = data.features.iter().filter(|features| features.truncated > 0).count();
        Ok((data, cut))
    }

    fn answer(
        &self,
        _: &[()],
        _: &Encoded<ChoiceExample, ChoiceFeatures>,
        outputs: &[Vec<f32>],
    ) -> Vec<Value> {
        let choice = |scores: &Vec<f32>| {
            let scores = softmax(scores);
            let best = argmax(&scores);
            let all: Vec<Value> = scores.iter().map(|score| number(*score)).collect();
            json!({ "choice": best, "score": number(scores[best]), "scores": all })
        };
        outputs.iter().map(choice).collect()
    }

    fn labelled(&self, _: &TaskSection, source: &LabelledSource) -> Result<(Self, Loaded<ChoiceExample>)> {
        Ok((*self, self.read(source)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ask, refused, saved};
    use super::*;

    #[test]
    fn the_best_choice_and_all_probabilities_are_answered() {
        let folder = saved(ChoiceTask, 12);
        let lines = [
            r#"{"text": "a b", "choices": ["c", "d e", "a long choice"]}"#,
            r#"{"text": "", "choices": ["", "x"]}"#,
            "",
        ];
        let all = ask(folder.path(), &lines);
        assert_eq!(all.truncated, 1);
        let context = lines[0].replace("text", "context");
        assert_eq!(ask(folder.path(), &[&context]).values[0]["choice"], all.values[0]["choice"]);
        assert!(all.values[2].is_null());
        for (value, n) in all.values.iter().zip([3, 2]) {
            let scores: Vec<f64> =
                value["scores"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
            assert_eq!(scores.len(), n);
            assert!((scores.iter().sum::<f64>() - 1.0).abs() < 1e-6);
            let best = value["choice"].as_u64().unwrap() as usize;
            assert_eq!(value["score"], scores[best]);
            assert!(scores.iter().all(|score| *score <= scores[best]));
        }
    }

    #[test]
    fn what_is_no_choice_is_refused() {
        let folder = saved(ChoiceTask, 12);
        for (line, problem) in [
            (r#""a""#, "not an object"),
            (r#"{"text": "a"}"#, "`choices` is missing"),
            (r#"{"choices": ["a", "b"]}"#, "`text` is missing"),
            (r#"{"text": "a", "context": "a", "choices": ["b", "c"]}"#, "both `text` and `context`"),
            (r#"{"text": "a", "choices": "b"}"#, "`choices` is not a list of strings"),
            (r#"{"text": "a", "choices": ["b", 1]}"#, "`choices` is not a list of strings"),
            (r#"{"text": "a", "choices": ["b"]}"#, "fewer than two `choices`"),
            (r#"{"text": "a", "choices": ["b", "c"], "label": 1}"#, "unknown key `label`"),
        ] {
            let message = refused(folder.path(), line);
            assert_eq!(message, format!("{problem}; expected {}", ChoiceTask.input()));
        }
    }
}

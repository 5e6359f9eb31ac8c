//! Answering questions about a text.

use super::super::answers::{AnswerTask, SpanScores};
use super::super::section::TaskSection;
use super::super::task::Encoded;
use super::{Cut, InputKey, LineFields, PredictTask, Read, number, required};
use crate::Result;
use cloze_data::labelled::{LabelledSource, Loaded, PredictedAnswer, Question, QuestionFeatures};
use cloze_tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::ops::Range;

/// `{"answer": …, "start": …, "end": …, "score": …}`: the text, its characters `start..end` in the context, and
/// its probability among the candidates. No answer is an empty text with null offsets. `"n_best"` lists as many
/// of the best candidates as [requested](PredictTask::list), best first.
impl PredictTask for AnswerTask {
    type Origin = ();

    fn input(&self) -> &'static str {
        r#"{"question": "…", "context": "…"}"#
    }

    fn input_keys(&self) -> &'static [InputKey] {
        const { &[InputKey::text("question"), InputKey::text("context")] }
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        let listed = (self.listed > 0).then_some("n_best");
        ["answer", "start", "end", "score"].into_iter().chain(listed).collect()
    }

    fn read_line(&self, line: Value) -> Read<(Question, ())> {
        let mut fields = LineFields::of(line)?;
        let (question, context) = (fields.text("question")?, fields.text("context")?);
        fields.end()?;
        let question = Question {
            id: String::new(),
            title: String::new(),
            context: required("context", context)?.into(),
            question: required("question", question)?,
            answers: Vec::new(),
            is_impossible: false,
        };
        Ok((question, ()))
    }

    /// Contexts are split into windows, so none is truncated.
    fn tokens(&self, tokenizer: &Tokenizer, examples: Vec<Question>, max_len: usize) -> Result<Cut<Self>> {
        Ok((self.encode(tokenizer, examples, max_len)?, 0))
    }

    fn answer(
        &self,
        _: &[()],
        data: &Encoded<Question, QuestionFeatures>,
        outputs: &[SpanScores],
    ) -> Vec<Value> {
        let answers = self.answers(&data.examples, &data.features, outputs);
        let answers = data.examples.iter().zip(answers).map(|(question, answer)| {
            let PredictedAnswer { text, bytes, candidates, .. } = answer;
            let chosen = candidates.iter().find(|candidate| candidate.bytes == bytes);
            let context = &question.context;
            let mut line = span(context, &text, &bytes, chosen.map(|chosen| chosen.probability));
            if self.listed > 0 {
                let listed = candidates.iter().take(self.listed).map(|candidate| {
                    span(context, &candidate.text, &candidate.bytes, Some(candidate.probability))
                });
                line["n_best"] = listed.collect();
            }
            line
        });
        answers.collect()
    }

    /// Split and selected as configured. The threshold is the config's, else the model's, else 0 if there are
    /// unanswerable questions.
    fn labelled(&self, section: &TaskSection, source: &LabelledSource) -> Result<(Self, Loaded<Question>)> {
        let mut task = Self::of(section)?;
        let loaded = task.read_more(source)?;
        let of_data = loaded.examples.iter().any(|question| question.is_impossible).then_some(0.0);
        let choose = &mut task.choose;
        choose.null_threshold = choose.null_threshold.or(self.choose.null_threshold).or(of_data);
        Ok((task, loaded))
    }

    fn list(&mut self, n: usize) -> bool {
        self.listed = n;
        true
    }
}

/// A span of a context, with its position in characters.
fn span(context: &str, text: &str, bytes: &Option<Range<usize>>, probability: Option<f64>) -> Value {
    let place = |byte: usize| context[..byte].chars().count();
    json!({
        "answer": text,
        "start": bytes.as_ref().map(|bytes| place(bytes.start)),
        "end": bytes.as_ref().map(|bytes| place(bytes.end)),
        "score": probability.map_or(Value::Null, number),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::predictor::Predictor;
    use super::super::testing::{ask, refused, saved};
    use super::*;
    use burn::tensor::Device;
    use cloze_data::labelled::AnswerConfig;
    use std::collections::HashSet;

    fn task(null_threshold: Option<f64>) -> AnswerTask {
        let choose = AnswerConfig { max_answer: 4, null_threshold, ..AnswerConfig::default() };
        AnswerTask { stride: 2, max_question: 4, choose, listed: 0 }
    }

    /// Of letters outside ASCII the tokenizer makes pieces too, and longer than a window.
    const LINE: &str =
        r#"{"question": "ab", "context": "é a b ü c d e f g h 日 i j k l m n o p q r s t ü v"}"#;
    const CONTEXT: &str = "é a b ü c d e f g h 日 i j k l m n o p q r s t ü v";

    fn cut(value: &Value) -> String {
        let place = |key: &str| value[key].as_u64().unwrap() as usize;
        CONTEXT.chars().skip(place("start")).take(place("end") - place("start")).collect()
    }

    #[test]
    fn answers_are_found_at_their_characters_in_any_window() {
        let folder = saved(task(None), 14);
        let value = ask(folder.path(), &[LINE]).values.remove(0);
        assert_eq!(
            value.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["answer", "start", "end", "score"]
        );
        assert_eq!(value["answer"], cut(&value));

        let mut predictor = Predictor::load(folder.path(), &Device::flex(), false).unwrap();
        predictor.list(500).unwrap();
        let listed = predictor.predict(&[LINE], &mut |_| {}).unwrap().values.remove(0);
        let best = listed["n_best"].as_array().unwrap();
        assert_eq!(best.len(), AnswerConfig::default().n_best);
        assert!(best.iter().all(|value| value["answer"] == cut(value)));
        let first = &best[0];
        assert_eq!((&first["answer"], &first["score"]), (&value["answer"], &value["score"]));
        let starts: HashSet<u64> = best.iter().map(|value| value["start"].as_u64().unwrap()).collect();
        assert!(starts.len() > 1);
        predictor.list(3).unwrap();
        let three = predictor.predict(&[LINE], &mut |_| {}).unwrap().values.remove(0);
        assert_eq!(three["n_best"].as_array().unwrap()[..], best[..3]);
    }

    #[test]
    fn a_threshold_lets_questions_have_no_answer() {
        let folder = saved(task(Some(-1e3)), 14);
        let none = ask(folder.path(), &[LINE]).values.remove(0);
        assert_eq!((&none["answer"], &none["start"], &none["end"]), (&"".into(), &Value::Null, &Value::Null));
        let folder = saved(task(Some(1e3)), 14);
        assert_ne!(ask(folder.path(), &[LINE]).values[0]["answer"], "");
        // Nor is there one in nothing.
        let folder = saved(task(None), 14);
        let nothing = ask(folder.path(), &[r#"{"question": "a", "context": " "}"#]).values.remove(0);
        assert_eq!(nothing, json!({ "answer": "", "start": null, "end": null, "score": null }));
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let folder = saved(task(None), 14);
        for (line, problem) in [
            (r#""a""#, "not an object"),
            (r#"{"question": "a"}"#, "`context` is missing"),
            (r#"{"context": "a"}"#, "`question` is missing"),
            (r#"{"question": "a", "context": ["b"]}"#, "`context` is not a string"),
            (r#"{"question": "a", "context": "b", "answers": []}"#, "unknown key `answers`"),
        ] {
            let message = refused(folder.path(), line);
            assert_eq!(message, format!("{problem}; expected {}", task(None).input()));
        }
    }
}

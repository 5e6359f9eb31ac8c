//! A score with its signature, as a line and as JSON.

use serde_json::{Map, Value};

use super::signature::Signature;

/// A metric's score of a system's translations.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The metric's name: `BLEU`, `chrF2++`, `TER`.
    pub name: String,
    /// The score: from 0 to 100, except for TER, which exceeds 100 if there are more edits than
    /// words.
    pub value: f64,
    /// Details; empty for metrics without any.
    pub verbose: String,
    /// The settings it was computed with.
    pub signature: Signature,
    /// The confidence interval, if estimated.
    pub confidence: Option<Confidence>,
}

/// A score's distribution over samples of the lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval that contains 95 % of the samples.
    pub half_width: f64,
}

impl Score {
    /// The score with this many decimals, and its confidence: `36.2 (μ = 36.2 ± 1.1)`.
    pub fn number(&self, decimals: usize) -> String {
        match &self.confidence {
            // Of a mean of zero sacreBLEU says nothing.
            Some(confidence) if confidence.mean > 0.0 => {
                format!("{:.decimals$} ({})", self.value, confidence.text(decimals))
            }
            _ => format!("{:.decimals$}", self.value),
        }
    }

    /// The whole line in sacreBLEU's format: `BLEU|nrefs:1|… = 36.2 67.4/43.5/29.8/20.8 (BP = 0.980
    /// ratio = 0.980 hyp_len = 12 ref_len = 12)`.
    pub fn line(&self, decimals: usize) -> String {
        let line = format!("{}|{} = {} {}", self.name, self.signature, self.number(decimals), self.verbose);
        line.trim_end().to_owned()
    }

    /// The score as JSON, with sacreBLEU's keys in its order: `name`, `score`, `signature`, `confidence…`,
    /// `verbose_score`, and the parts of the signature.
    pub fn json(&self, decimals: usize) -> Value {
        let rounded = |value: f64| rounded(value, decimals);
        let mut all = Map::new();
        let mut put = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
        put("name", self.name.as_str().into());
        put("score", rounded(self.value));
        put("signature", self.signature.to_string().into());
        if let Some(confidence) = self.confidence.filter(|confidence| confidence.mean > 0.0) {
            put("confidence_mean", rounded(confidence.mean));
            put("confidence_var", rounded(confidence.half_width));
            put("confidence", confidence.text(decimals).into());
        }
        if !self.verbose.is_empty() {
            put("verbose_score", self.verbose.as_str().into());
        }
        self.signature.iter().for_each(|(name, value)| put(name, value.into()));
        all.into()
    }
}

impl Confidence {
    fn text(self, decimals: usize) -> String {
        format!("μ = {:.decimals$} ± {:.decimals$}", self.mean, self.half_width)
    }
}

/// A number with this many decimals, as JSON.
fn rounded(value: f64, decimals: usize) -> Value {
    format!("{value:.decimals$}").parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::super::signature::VERSION;
    use super::*;

    fn score() -> Score {
        let signature = Signature::new(Some(1), vec![("tok", "13a".into())]);
        Score { name: "BLEU".into(), value: 36.25, verbose: "1/2".into(), signature, confidence: None }
    }

    #[test]
    fn lines_are_as_sacrebleus() {
        let mut score = score();
        // Halves go to the even digit, as in Python.
        assert_eq!(score.line(1), format!("BLEU|nrefs:1|tok:13a|version:{VERSION} = 36.2 1/2"));
        score.confidence = Some(Confidence { mean: 36.125, half_width: 0.75 });
        score.verbose.clear();
        assert!(score.line(2).ends_with(" = 36.25 (μ = 36.12 ± 0.75)"));
    }

    #[test]
    fn json_has_sacrebleus_keys_in_order() {
        let mut score = score();
        score.confidence = Some(Confidence { mean: 36.125, half_width: 0.75 });
        let expected = format!(
            "{{\"name\":\"BLEU\",\"score\":36.2,\"signature\":\"nrefs:1|tok:13a|version:{VERSION}\",\
             \"confidence_mean\":36.1,\"confidence_var\":0.8,\"confidence\":\"μ = 36.1 ± 0.8\",\
             \"verbose_score\":\"1/2\",\"nrefs\":\"1\",\"tok\":\"13a\",\"version\":\"{VERSION}\"}}"
        );
        assert_eq!(score.json(1).to_string(), expected);
    }
}

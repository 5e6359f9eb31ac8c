//! What each family calls its parameters.

mod albert;
mod bert;
mod distilbert;
mod electra;
mod roberta;

use super::Architecture;
use crate::bert::Family;

/// Pairs of a fragment of this crate's parameter paths and Hugging Face's name for it.
type Fragments = &'static [(&'static str, &'static str)];

/// The names of one family.
struct Names {
    /// What stands in front of the encoder's names in a model with a head.
    prefix: &'static str,
    /// Within the encoder; replaced in this order, after the [embeddings'](EMBEDDINGS).
    encoder: Fragments,
    /// The head of sequence classification.
    sequence: Fragments,
    /// The head of multiple choice.
    choice: Fragments,
    /// The heads of pretraining.
    mlm: Fragments,
    /// Copies of other tensors that files may hold, each with the one it is tied to.
    tied: Fragments,
}

/// What all families call the same.
const EMBEDDINGS: Fragments = &[
    ("embeddings.token_types.", "embeddings.token_type_embeddings."),
    ("embeddings.tokens.", "embeddings.word_embeddings."),
    ("embeddings.positions.table.", "embeddings.position_embeddings."),
    ("embeddings.norm.", "embeddings.LayerNorm."),
];

const TOKENS: Fragments = &[("output.", "classifier.")];
const SPANS: Fragments = &[("output.", "qa_outputs.")];

fn names(family: Family) -> &'static Names {
    match family {
        Family::Bert => &bert::NAMES,
        Family::Roberta => &roberta::NAMES,
        Family::DistilBert => &distilbert::NAMES,
        Family::Albert => &albert::NAMES,
        Family::Electra => &electra::NAMES,
    }
}

/// The name of one of this crate's parameters in a file, and whether transformers knows it: a parameter that
/// has no counterpart there keeps its path.
///
/// The encoder's parameters begin with `bert.` in a model with a head, and with nothing in one without.
pub(super) fn to_file(family: Family, architecture: Architecture, path: &str) -> (String, bool) {
    let names = names(family);
    let (inner, prefix) = match path.strip_prefix("bert.") {
        Some(inner) => (inner, names.prefix),
        None => (path, ""),
    };
    let (name, known) = if ["embeddings.", "encoder.", "pooler."].iter().any(|part| inner.starts_with(part)) {
        let fragments = EMBEDDINGS.iter().chain(names.encoder);
        let name = fragments.fold(inner.to_string(), |name, (ours, theirs)| name.replace(ours, theirs));
        (format!("{prefix}{name}"), true)
    } else {
        let head = match architecture {
            Architecture::Encoder => &[],
            Architecture::PreTraining | Architecture::MaskedLm => names.mlm,
            Architecture::SequenceClassification => names.sequence,
            Architecture::MultipleChoice => names.choice,
            Architecture::TokenClassification => TOKENS,
            Architecture::QuestionAnswering => SPANS,
        };
        match head.iter().find_map(|(ours, theirs)| Some((path.strip_prefix(ours)?, theirs))) {
            Some((rest, theirs)) => (format!("{theirs}{rest}"), true),
            None => return (path.to_string(), false),
        }
    };
    let name = modern(&name);
    let known = known && (name.ends_with(".weight") || name.ends_with(".bias"));
    (name, known)
}

/// The copies that files may hold of the masked-LM head's tied parameters, each with the name of the one it
/// is tied to; in [`canonical`] form.
pub(super) fn tied(family: Family) -> impl Iterator<Item = (String, String)> {
    names(family).tied.iter().map(|(copy, original)| (canonical(copy), canonical(original)))
}

/// A tensor's name in the one form compared with: without what wrappers and the encoder's place in a model
/// put in front, and with the layer norm's new parameter names.
pub(super) fn canonical(name: &str) -> String {
    let wrappers = ["module.", "model."];
    let prefixes = || wrappers.into_iter().chain(Family::ALL.map(|family| names(family).prefix));
    let mut name = name;
    while let Some(inner) = prefixes().find_map(|prefix| name.strip_prefix(prefix)) {
        name = inner;
    }
    modern(name)
}

/// Checkpoints converted from TensorFlow call the scale and the shift `gamma` and `beta`, as this crate does.
fn modern(name: &str) -> String {
    let renamed = |old, new| Some(format!("{}{new}", name.strip_suffix(old)?));
    renamed(".gamma", ".weight").or_else(|| renamed(".beta", ".bias")).unwrap_or_else(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(family: Family, architecture: Architecture, path: &str) -> String {
        let (name, known) = to_file(family, architecture, path);
        assert!(known, "{path}");
        name
    }

    #[test]
    fn a_model_without_a_head_has_no_prefix() {
        for family in Family::ALL {
            let inner = name(family, Architecture::Encoder, "encoder.layers.0.attention.query.weight");
            let whole = name(family, Architecture::MaskedLm, "bert.encoder.layers.0.attention.query.weight");
            assert!(whole.len() > inner.len() && whole.ends_with(&inner));
            assert_eq!(canonical(&whole), inner);
        }
    }

    #[test]
    fn old_names_and_wrappers_are_seen_through() {
        assert_eq!(canonical("module.bert.embeddings.LayerNorm.gamma"), "embeddings.LayerNorm.weight");
        assert_eq!(canonical("model.roberta.pooler.dense.bias"), "pooler.dense.bias");
        assert_eq!(
            canonical("cls.predictions.transform.LayerNorm.beta"),
            "cls.predictions.transform.LayerNorm.bias"
        );
        assert_eq!(canonical("classifier.weight"), "classifier.weight");
    }

    #[test]
    fn heads_go_by_architecture() {
        use Architecture::{MultipleChoice, QuestionAnswering, SequenceClassification, TokenClassification};
        let roberta = |architecture| name(Family::Roberta, architecture, "head.output.weight");
        assert_eq!(roberta(SequenceClassification), "classifier.out_proj.weight");
        assert_eq!(roberta(MultipleChoice), "classifier.weight");
        let output = |architecture| name(Family::Bert, architecture, "output.bias");
        assert_eq!(output(TokenClassification), "classifier.bias");
        assert_eq!(output(QuestionAnswering), "qa_outputs.bias");
    }

    #[test]
    fn what_transformers_does_not_know_keeps_its_path() {
        let found = to_file(Family::Bert, Architecture::TokenClassification, "crf.transitions");
        assert_eq!(found, ("crf.transitions".to_string(), false));
        let found = to_file(Family::Bert, Architecture::SequenceClassification, "head.dense.weight");
        assert!(!found.1);
    }
}

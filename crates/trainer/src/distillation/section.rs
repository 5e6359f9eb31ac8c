//! The config section of a teacher.

use crate::config::validate::{Check, at_least, ensure, not_negative, positive};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[distillation]`: a teacher, and how much its outputs count beside the labels (Hinton, Vinyals & Dean 2015).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DistillationSection {
    /// The teacher: the folder of a model that is fine-tuned for the same task, or pretrained on masked pieces. A
    /// task's teacher may have another vocabulary (not for answers) and its labels in another order. It has no
    /// dropout and is not trained.
    pub teacher: PathBuf,
    /// What the distance to the teacher's outputs counts in the loss: `T²·KL(softmax(t/T) ‖ softmax(s/T))` of
    /// classes, tags, choices, begins and ends of answers, and masked pieces; the same of each label's two
    /// sides; the squared difference of numbers. Default 0.5.
    #[serde(default = "half")]
    pub soft: f64,
    /// What the task's own loss counts, or that of masked pieces. 0 trains from the teacher alone. Default:
    /// 1 − `soft`, at least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<f64>,
    /// The temperature T that both models' outputs are divided by. Default 2.
    #[serde(default = "two")]
    pub temperature: f64,
    /// Whether the teacher's outputs are computed once, before training, and kept in the cache folder for further
    /// runs with the same teacher and the same data. Default false: in every step. Only for tasks, and without
    /// `inner`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cache: bool,
    /// `[distillation.inner]`: what is compared inside of both models. Default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<InnerSection>,
}

/// `[distillation.inner]`: what each distance between states or attentions counts in the loss; 0 by default. Both
/// models read the same tokens.
///
/// TinyBERT (Jiao et al. 2020) has `embeddings`, `states` and `scores`; DistilBERT (Sanh et al. 2019) `cosine`;
/// MiniLM (Wang et al. 2020) `attention` and `values`; MiniLMv2 (Wang et al. 2021) `queries`, `keys` and `values`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct InnerSection {
    /// The squared difference of the states that enter the first layer, averaged over the features.
    #[serde(skip_serializing_if = "is_zero")]
    pub embeddings: f64,
    /// That of the states that leave a layer and its layer of the teacher, summed over the layers.
    #[serde(skip_serializing_if = "is_zero")]
    pub states: f64,
    /// That of their attention scores before softmax, averaged over heads and keys.
    #[serde(skip_serializing_if = "is_zero")]
    pub scores: f64,
    /// `1 − cos` of the last states.
    #[serde(skip_serializing_if = "is_zero")]
    pub cosine: f64,
    /// `KL(t ‖ s)` of the distributions of the last layer's attention, averaged over its heads.
    #[serde(skip_serializing_if = "is_zero")]
    pub attention: f64,
    /// The same of `softmax(QQᵀ/√d)`, the relations between its queries.
    #[serde(skip_serializing_if = "is_zero")]
    pub queries: f64,
    /// The same of its keys.
    #[serde(skip_serializing_if = "is_zero")]
    pub keys: f64,
    /// The same of its values.
    #[serde(skip_serializing_if = "is_zero")]
    pub values: f64,
    /// For `states` and `scores`: the teacher's layer of each of the student's, counted from 0. Default: evenly
    /// spread, up to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// For `attention`, `queries`, `keys` and `values`: the teacher's layer, which the student's last learns from.
    /// Default: the last. MiniLMv2 takes one below the last from large teachers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<usize>,
    /// For `queries`, `keys` and `values`: how many relation heads both models' vectors are cut into. Default: the
    /// heads of attention, which both must have as many of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
}

/// What two models are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    Embeddings,
    States,
    Scores,
    Cosine,
    Attention,
    Queries,
    Keys,
    Values,
}

impl Compared {
    fn key(self) -> &'static str {
        match self {
            Self::Embeddings => "distillation.inner.embeddings",
            Self::States => "distillation.inner.states",
            Self::Scores => "distillation.inner.scores",
            Self::Cosine => "distillation.inner.cosine",
            Self::Attention => "distillation.inner.attention",
            Self::Queries => "distillation.inner.queries",
            Self::Keys => "distillation.inner.keys",
            Self::Values => "distillation.inner.values",
        }
    }

    /// The key in its table, and the term's name in metrics.
    pub fn name(self) -> &'static str {
        self.key().rsplit('.').next().unwrap_or_default()
    }
}

fn half() -> f64 {
    0.5
}

fn two() -> f64 {
    2.0
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(weight: &f64) -> bool {
    *weight == 0.0
}

impl DistillationSection {
    /// What the task's own loss counts.
    pub fn hard(&self) -> f64 {
        self.hard.unwrap_or((1.0 - self.soft).max(0.0))
    }

    pub(crate) fn check(&self, recompute: bool) -> Check {
        positive("distillation.temperature", self.temperature)?;
        for (key, weight) in [("distillation.soft", self.soft), ("distillation.hard", self.hard())] {
            not_negative(key, weight)?;
        }
        if let Some(inner) = &self.inner {
            inner.check()?;
            let expected = "false with `[distillation.inner]`, which compares more than outputs";
            ensure(!self.cache, "distillation.cache", true, expected)?;
            let expected = "false with `[distillation.inner]`, which compares what recomputing would forget";
            return ensure(!recompute, "train.recompute", true, expected);
        }
        let counts = self.soft + self.hard() > 0.0;
        ensure(counts, "distillation.hard", self.hard(), "more than 0 where `distillation.soft` is 0")
    }
}

impl InnerSection {
    /// What is compared, with its weight.
    pub(super) fn weights(&self) -> [(Compared, f64); 8] {
        [
            (Compared::Embeddings, self.embeddings),
            (Compared::States, self.states),
            (Compared::Scores, self.scores),
            (Compared::Cosine, self.cosine),
            (Compared::Attention, self.attention),
            (Compared::Queries, self.queries),
            (Compared::Keys, self.keys),
            (Compared::Values, self.values),
        ]
    }

    fn check(&self) -> Check {
        for (compared, weight) in self.weights() {
            not_negative(compared.key(), weight)?;
        }
        let some = self.weights().iter().any(|(_, weight)| *weight > 0.0);
        let expected = "a weight above 0 of at least one of `embeddings`, `states`, `scores`, `cosine`, `attention`, \
                        `queries`, `keys` and `values`";
        ensure(some, "distillation.inner", "given", expected)?;
        let none = |is_none: bool, key, expected| ensure(is_none, key, "given", expected);
        let by_layer = self.states + self.scores > 0.0;
        none(
            by_layer || self.layers.is_none(),
            "distillation.inner.layers",
            "none without `states` or `scores`",
        )?;
        let relations = self.queries + self.keys + self.values > 0.0;
        let of_one = relations || self.attention > 0.0;
        let expected = "none without `attention`, `queries`, `keys` or `values`";
        none(of_one || self.layer.is_none(), "distillation.inner.layer", expected)?;
        let expected = "none without `queries`, `keys` or `values`";
        none(relations || self.heads.is_none(), "distillation.inner.heads", expected)?;
        at_least(1, "distillation.inner.heads", self.heads.unwrap_or(1))
    }
}

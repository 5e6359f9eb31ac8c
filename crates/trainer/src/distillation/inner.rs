//! The terms of a loss that compare what happens inside a student and its teacher.

use super::section::{Compared, DistillationSection, InnerSection};
use crate::engine::Term;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_model::ParamInit;
use cloze_model::bert::{BertConfig, TeacherMaps};
use cloze_model::blocks::{Heads, Pass};
use cloze_model::distillation::{Relations, cosine_distance, squared_distance};

/// One of the two models.
pub(crate) struct Side<'a> {
    /// Its encoder.
    pub encoder: &'a BertConfig,
    /// What it is called in errors.
    pub name: String,
}

/// What is compared, and between which layers.
pub(crate) struct Inner {
    section: InnerSection,
    /// For each of the student's layers the teacher's.
    layers: Vec<usize>,
    /// The teacher's layer that the student's last learns relations from.
    layer: usize,
    /// The widths of both, if they differ and states are compared.
    maps: Option<[usize; 2]>,
}

impl Inner {
    /// Plans the configured comparisons; none if there are none.
    ///
    /// # Errors
    /// Layers that are not there; heads that cannot be compared or divide no width; attention that sees some tokens
    /// only.
    pub fn plan(
        section: &DistillationSection,
        student: &Side<'_>,
        teacher: &Side<'_>,
    ) -> Result<Option<Self>> {
        let Some(section) = section.inner.clone() else { return Ok(None) };
        let refused = |key: &str, found: String, expected: String| {
            let key = format!("distillation.inner.{key}");
            Err(TrainerError::Setting { key, found, expected })
        };
        let (s, t) = (student.encoder, teacher.encoder);
        let (n, of) = (s.n_layers, t.n_layers);
        let layers = match &section.layers {
            Some(layers) => layers.clone(),
            None => (1..=n).map(|layer| (layer * of / n).max(1) - 1).collect(),
        };
        let are_there = format!("layers of {}, 0 to {}", teacher.name, of - 1);
        if layers.len() != n {
            let expected = format!("one layer of the teacher for each of the student's {n}");
            return refused("layers", format!("{layers:?}"), expected);
        }
        if layers.iter().any(|layer| *layer >= of) {
            return refused("layers", format!("{layers:?}"), are_there);
        }
        let layer = section.layer.unwrap_or(of - 1);
        if layer >= of {
            return refused("layer", layer.to_string(), are_there);
        }
        let heads = |side: &Side<'_>| format!("{} has {}", side.name, side.encoder.n_heads);
        let unequal = || format!("{}, {}", heads(student), heads(teacher));
        let same_heads = s.n_heads == t.n_heads && s.pruned_heads.is_empty() && t.pruned_heads.is_empty();
        for (key, weight) in [("scores", section.scores), ("attention", section.attention)] {
            if weight == 0.0 {
                continue;
            }
            if !same_heads {
                return refused(key, unequal(), "models with equally many heads in all layers".into());
            }
            let shares =
                |side: &&Side<'_>| side.encoder.n_kv_heads.is_some_and(|heads| heads != side.encoder.n_heads);
            if let Some(side) = [student, teacher].into_iter().find(shares) {
                let found = format!("{}, whose heads share keys", side.name);
                return refused(key, found, "heads with keys of their own".into());
            }
            let partial = |side: &&Side<'_>| side.encoder.causal || side.encoder.local.is_some();
            if let Some(side) = [student, teacher].into_iter().find(partial) {
                let found = format!("{}, whose tokens do not see all others", side.name);
                return refused(key, found, "attention to the whole sequence".into());
            }
        }
        if section.queries + section.keys + section.values > 0.0 {
            match section.heads {
                None if !same_heads => {
                    let expected = "a number of relation heads, where the models differ in theirs".into();
                    return refused("heads", format!("none, and {}", unequal()), expected);
                }
                None => {}
                Some(heads) => {
                    for side in [student, teacher] {
                        let encoder = side.encoder;
                        let heads_of_keys = encoder.n_kv_heads.unwrap_or(encoder.n_heads);
                        let width = encoder.head_width() * heads_of_keys;
                        if !width.is_multiple_of(heads) {
                            let expected = format!("a divisor of {width}, the width of {}", side.name);
                            return refused("heads", heads.to_string(), expected);
                        }
                    }
                }
            }
        }
        let states = section.embeddings + section.states + section.cosine > 0.0;
        let maps = (states && s.d_model != t.d_model).then_some([s.d_model, t.d_model]);
        Ok(Some(Self { section, layers, layer, maps }))
    }

    /// New maps from the student's width to the teacher's, if they differ.
    pub fn teacher_maps(&self, init: &mut ParamInit) -> Option<TeacherMaps> {
        self.maps.map(|[from, to]| TeacherMaps::new(from, to, init))
    }

    /// The terms.
    pub fn terms(&self) -> impl Iterator<Item = Term> {
        self.weights().map(|(compared, weight)| Term::new(compared.name()).with_weight(weight))
    }

    /// The number of terms.
    pub fn n_terms(&self) -> usize {
        self.weights().count()
    }

    fn weights(&self) -> impl Iterator<Item = (Compared, f64)> {
        self.section.weights().into_iter().filter(|(_, weight)| *weight > 0.0)
    }

    /// The first term that compares scores of single tokens, which words of several tokens have none of.
    pub fn of_tokens(&self) -> Option<&'static str> {
        let of_tokens = |compared: &Compared| matches!(compared, Compared::Scores | Compared::Attention);
        self.weights().map(|(compared, _)| compared).find(of_tokens).map(Compared::name)
    }

    /// The sum of each term over the tokens of a pass, in the order of the [terms](Self::terms).
    ///
    /// # Panics
    /// If the passes are of other tokens.
    pub fn sums(&self, student: &Pass, teacher: &Pass, device: &Device) -> Vec<Tensor<1>> {
        assert_eq!(student.lengths, teacher.lengths, "both models read the same tokens");
        let relations = Relations::of(student, device);
        let last = [student.heads.last().expect("layers with heads"), &teacher.heads[self.layer]];
        let related = |of: fn(&Heads) -> &Tensor<2>| {
            let [student, teacher] = last.map(|heads| {
                let n_heads = self.section.heads.unwrap_or(heads.n_heads);
                relations.products(of(heads).clone(), of(heads).clone(), n_heads)
            });
            relations.divergence(student, teacher)
        };
        let by_layer = |of: &dyn Fn(usize, usize) -> Tensor<1>| {
            let sums = self.layers.iter().enumerate().map(|(layer, taught_by)| of(layer, *taught_by));
            sums.reduce(|sum, one| sum + one).expect("a layer")
        };
        let sum = |(compared, _): (Compared, f64)| match compared {
            Compared::Embeddings => squared_distance(student.states[0].clone(), teacher.states[0].clone()),
            // The states before the first layer come first.
            Compared::States => by_layer(&|layer, of| {
                squared_distance(student.states[layer + 1].clone(), teacher.states[of + 1].clone())
            }),
            Compared::Scores => by_layer(&|layer, of| {
                let scores = |heads: &Heads| relations.scores(heads);
                relations.distance(scores(&student.heads[layer]), scores(&teacher.heads[of]))
            }),
            Compared::Cosine => {
                let last = |pass: &Pass| pass.states.last().expect("states").clone();
                cosine_distance(last(student), last(teacher))
            }
            Compared::Attention => {
                let [student, teacher] = last;
                relations.divergence(relations.scores(student), relations.scores(teacher))
            }
            Compared::Queries => related(|heads| &heads.queries),
            Compared::Keys => related(|heads| &heads.keys),
            Compared::Values => related(|heads| &heads.values),
        };
        self.weights().map(sum).collect()
    }
}

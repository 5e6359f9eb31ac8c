//! A pretrained encoder as a teacher of masked pieces (Sanh et al. 2019, "DistilBERT"), and of what happens inside.

use super::objective::{masked_input, vector};
use crate::config::RunConfig;
use crate::distillation::{DistillationSection, Inner, Side};
use crate::engine::Term;
use crate::fit::check_fit;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::PretrainingBatch;
use cloze_model::bert::{BertConfig, BertForPreTraining, MlmHead, TeacherMaps};
use cloze_model::blocks::{Pass, pack_weights, record_pass};
use cloze_model::distillation::soft_targets;
use cloze_model::huggingface::{Architecture, PretrainedFolder};
use cloze_model::ops::on_awake_cores;
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::fmt;

/// A teacher without dropout or gradient, and what its student is compared with.
pub(super) struct Teacher {
    pub section: DistillationSection,
    inner: Option<Inner>,
    model: BertForPreTraining,
    device: Device,
    /// What its folder is said to be.
    pub origin: String,
}

impl fmt::Debug for Teacher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teacher").field("section", &self.section).finish_non_exhaustive()
    }
}

impl Teacher {
    /// Opens the configured teacher of this student; none if there is none.
    ///
    /// # Errors
    /// A folder that cannot be read; another vocabulary; sequences that are too long for it; a teacher without a head for
    /// masked pieces where that counts; inner layers that cannot be compared.
    pub fn open(
        config: &RunConfig,
        student: &BertConfig,
        tokenizer: &Tokenizer,
        device: &Device,
    ) -> Result<Option<Self>> {
        let Some(section) = config.distillation.clone() else { return Ok(None) };
        let folder = &section.teacher;
        let refused = |expected: String| TrainerError::Setting {
            key: "distillation.teacher".into(),
            found: format!("\"{}\"", folder.display()),
            expected,
        };
        let pretrained = PretrainedFolder::open(folder)?;
        let own = Tokenizer::load(folder)?;
        if let Some(id) = (0..own.vocab_size().max(tokenizer.vocab_size()) as u32)
            .find(|id| own.id_to_token(*id) != tokenizer.id_to_token(*id))
        {
            let piece =
                |of: &Tokenizer| of.id_to_token(id).map_or("nothing".into(), |piece| format!("{piece:?}"));
            let (student, teacher) = (piece(tokenizer), piece(&own));
            return Err(refused(format!(
                "a teacher with the student's vocabulary: piece {id} is {student} here and {teacher} there"
            )));
        }
        let architecture = match pretrained.config.family.pretraining(false) {
            Some(_) => Architecture::MaskedLm,
            None => {
                let family = pretrained.config.family;
                return Err(refused(format!(
                    "an encoder that predicts masked pieces, which {family} does not"
                )));
            }
        };
        let encoder = pretrained.encoder(architecture);
        check_fit(tokenizer, &encoder, folder, config.examples.has_pairs())?;
        let (len, most) = (config.examples.seq_len, encoder.max_positions);
        if len > most {
            let expected = format!("at most {most}, the teacher's positions");
            let key = "examples.seq_len".into();
            return Err(TrainerError::Setting { key, found: len.to_string(), expected });
        }
        let init = &mut ParamInit::new(device, 0).deferred();
        let model = BertForPreTraining {
            bert: encoder.init_encoder(init),
            mlm: MlmHead::new(&encoder, init),
            next_sentence: None,
            span_boundary: None,
        };
        let pooler = <BertForPreTraining>::path_of("pooler.*");
        let (mut model, report) = pretrained.load_into(model, architecture, &["mlm.*", &pooler])?;
        if let Some(missing) = report.missing.into_iter().next().filter(|_| section.soft > 0.0) {
            return Err(refused(format!(
                "a teacher with a head for masked pieces ({missing} is missing), or `distillation.soft` = 0"
            )));
        }
        if section.inner.is_some() && !model.bert.can_be_recorded() {
            return Err(refused("a teacher in floats: one of integers alone shows no layers".into()));
        }
        pack_weights(&mut model.bert);
        let of_student = Side { encoder: student, name: "the student".into() };
        let inner =
            Inner::plan(&section, &of_student, &Side { encoder: &encoder, name: "the teacher".into() })?;
        let origin =
            format!("{}, {} layers of width {}", folder.display(), encoder.n_layers, encoder.d_model);
        Ok(Some(Self { section, inner, model, device: device.clone(), origin }))
    }

    /// New maps from the student's width to the teacher's, if they are needed.
    pub fn maps(&self, init: &mut ParamInit) -> Option<TeacherMaps> {
        self.inner.as_ref().and_then(|inner| inner.teacher_maps(init))
    }

    /// The terms that it adds: its distribution over the pieces, if that counts, and what is inside.
    pub fn terms(&self) -> Vec<Term> {
        let soft = (self.section.soft > 0.0).then(|| Term::new("teacher").with_weight(self.section.soft));
        soft.into_iter().chain(self.inner.iter().flat_map(Inner::terms)).collect()
    }

    /// What each of its terms averages over: masked pieces, and tokens.
    pub fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        let soft = (self.section.soft > 0.0).then_some(batch.masked_labels.len() as f64);
        let n_inner = self.inner.as_ref().map_or(0, Inner::n_terms);
        soft.into_iter().chain(vec![batch.tokens.n_tokens() as f64; n_inner]).collect()
    }

    /// Runs the student, and records its pass if that is compared.
    pub fn watch<R>(&self, run: impl FnOnce() -> R) -> (R, Option<Pass>) {
        match &self.inner {
            None => (run(), None),
            Some(_) => {
                let (result, pass) = record_pass(run);
                (result, Some(pass))
            }
        }
    }

    /// The sum of each of its terms over a batch: of the student's logits of the masked pieces, and of its pass.
    pub fn sums(
        &self,
        batch: &PretrainingBatch,
        logits: &Tensor<2>,
        student: Option<Pass>,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        let run = || {
            let (input, positions) = masked_input(&self.model.bert, batch, &self.device);
            let states = self.model.bert.states_at(input, vector(&positions, &self.device));
            let is_asked = self.section.soft > 0.0;
            is_asked.then(|| self.model.mlm.forward(states, self.model.bert.embeddings.tokens.weight.val()))
        };
        let (of_teacher, teacher) = on_awake_cores(&self.device, || self.watch(run));
        let temperature = self.section.temperature;
        let soft =
            of_teacher.map(|teacher| soft_targets(logits.clone(), Tensor::from_inner(teacher), temperature));
        let compared = self.inner.iter().zip(student.zip(teacher));
        let inner = compared
            .flat_map(|(inner, (student, teacher))| inner.sums(&student, &teacher.from_inner(), device));
        soft.into_iter().chain(inner).collect()
    }
}

use super::super::fields::Fields;
use super::super::names::listed;
use super::super::{Architecture, FloatType, TensorRules};
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_keys::LANGUAGE;
use super::{
    albert, bert, cloze_bert, deberta, distilbert, electra, gte, left_to_right, modernbert, mpnet, nomic,
    roberta, t5_encoder, xlm, xlnet,
};
use crate::bert::BertConfig;
use crate::nearest;
use crate::{ModelError, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A published family of encoders: the names in its folders, and the heads of its classes.
///
/// The encoder is a [`Bert`](crate::bert::Bert) in every family: switches in [`BertConfig`] express where their
/// arithmetic differs.
#[derive(Clone, Copy)]
pub struct Family(&'static dyn FamilyDefinition);

impl Family {
    /// BERT (Devlin et al. 2019), and MiniLM (Wang et al. 2020), which has the same architecture.
    pub const BERT: Self = Self(&bert::Bert);

    /// RoBERTa (Liu et al. 2019), and DistilRoBERTa, which has fewer layers: positions start at the padding's id plus 1,
    /// and there is one segment.
    pub const ROBERTA: Self = Self(&roberta::ROBERTA);

    /// XLM-RoBERTa (Conneau et al. 2020): RoBERTa of a hundred languages.
    pub const XLM_ROBERTA: Self = Self(&roberta::XLM_ROBERTA);

    /// CamemBERT (Martin et al. 2020): RoBERTa of French.
    pub const CAMEMBERT: Self = Self(&roberta::CAMEMBERT);

    /// I-BERT (Kim et al. 2021): RoBERTa, which is computed in integers alone with `quant_mode`.
    pub const IBERT: Self = Self(&roberta::IBERT);

    /// DistilBERT (Sanh et al. 2019): it has neither segments nor a pooler.
    pub const DISTILBERT: Self = Self(&distilbert::DistilBert);

    /// ALBERT (Lan et al. 2020): one layer applied many times, and narrow embeddings.
    pub const ALBERT: Self = Self(&albert::Albert);

    /// ELECTRA's discriminator and generator (Clark et al. 2020): narrow embeddings in the small size, and no pooler.
    pub const ELECTRA: Self = Self(&electra::Electra);

    /// ModernBERT (Warner et al. 2024): rotary positions, local attention in two of three layers, gated feed-forward
    /// networks, normalisation before each sub-layer, and no biases.
    pub const MODERNBERT: Self = Self(&modernbert::ModernBert);

    /// MPNet (Song et al. 2020): RoBERTa's positions, and a bias of all layers' scores by distance.
    pub const MPNET: Self = Self(&mpnet::MpNet);

    /// DeBERTa v2 (He et al. 2021) and v3 (He et al. 2023), which has the same architecture: disentangled attention in
    /// place of absolute positions.
    pub const DEBERTA_V2: Self = Self(&deberta::DebertaV2);

    /// The encoder of T5 (Raffel et al. 2020), of T5 1.1 and of Flan-T5: normalisation by the root mean square before each
    /// sub-layer, a bias of all layers' scores by distance, and no other biases. transformers has it alone
    /// (`T5EncoderModel`) and with a head over tokens (`T5ForTokenClassification`). Its one dropout is the encoder's
    /// [`hidden_dropout`](BertConfig::hidden_dropout). A folder of the whole T5 is read too, without the decoder.
    pub const T5: Self = Self(&t5_encoder::T5);

    /// The encoder of mT5 (Xue et al. 2021): [T5's](Self::T5), with other defaults.
    pub const MT5: Self = Self(&t5_encoder::MT5);

    /// NomicBERT (Nussbaum et al. 2024): BERT with rotary positions, gated feed-forward networks and no biases in its
    /// linear maps.
    pub const NOMIC_BERT: Self = Self(&nomic::NomicBert);

    /// The encoders of GTE v1.5 and of the multilingual GTE (Zhang et al. 2024, "mGTE"): BERT with rotary positions and
    /// gated feed-forward networks. Its authors' folders call it `new`, transformers `gte`; both are read, and the latter
    /// is written.
    pub const GTE: Self = Self(&gte::Gte);

    /// XLNet (Yang et al. 2019) as it is fine-tuned: without an order, without a second stream and without a memory. The
    /// model that is pretrained is an [`XlnetConfig`](crate::xlnet::XlnetConfig).
    pub const XLNET: Self = Self(&xlnet::Xlnet);

    /// XLM (Conneau & Lample 2019): each token's embedding has its language's added, if there are several languages; the
    /// masked-LM head projects the states as they are.
    pub const XLM: Self = Self(&xlm::Xlm);

    /// BERT with other positions, which transformers has no class for: a format of this project's own, with the
    /// [kind of positions](crate::blocks::PositionsConfig) as the key `positions` of its `config.json`.
    pub const CLOZE_BERT: Self = Self(&cloze_bert::ClozeBert);

    /// GPT-2 (Radford et al. 2019).
    pub const GPT2: Self = Self(&left_to_right::GPT2);

    /// Llama (Touvron et al. 2023).
    pub const LLAMA: Self = Self(&left_to_right::LLAMA);

    /// Mistral (Jiang et al. 2023): Llama with a window.
    pub const MISTRAL: Self = Self(&left_to_right::MISTRAL);

    /// Ministral: Mistral with a window in some layers.
    pub const MINISTRAL: Self = Self(&left_to_right::MINISTRAL);

    /// Qwen2: Llama with biases in the maps to queries, keys and values.
    pub const QWEN2: Self = Self(&left_to_right::QWEN2);

    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::BERT,
        Self::ROBERTA,
        Self::XLM_ROBERTA,
        Self::CAMEMBERT,
        Self::IBERT,
        Self::DISTILBERT,
        Self::ALBERT,
        Self::ELECTRA,
        Self::MODERNBERT,
        Self::MPNET,
        Self::DEBERTA_V2,
        Self::T5,
        Self::MT5,
        Self::NOMIC_BERT,
        Self::GTE,
        Self::XLNET,
        Self::XLM,
        Self::CLOZE_BERT,
        Self::GPT2,
        Self::LLAMA,
        Self::MISTRAL,
        Self::MINISTRAL,
        Self::QWEN2,
    ];

    /// The family in `config.json`, such as `"roberta"`.
    pub fn model_type(self) -> &'static str {
        self.0.model_type()
    }

    /// Whether an encoder of this family may have a pooler.
    pub fn may_pool(self) -> bool {
        self.0.has_pooler(Architecture::Encoder)
    }

    /// An encoder of this family with the sizes of `sizes`, and the family's switches for everything that its class in
    /// transformers fixes.
    ///
    /// ```
    /// # use cloze_model::{bert::BertConfig, huggingface::Family};
    /// let albert = Family::ALBERT.encoder(BertConfig::base(30_000).with_d_embedding(Some(128)));
    /// assert!(albert.share_layers && Family::BERT.encoder(albert) == BertConfig::base(30_000));
    /// ```
    pub fn encoder(self, sizes: BertConfig) -> BertConfig {
        let pooler = sizes.pooler && self.may_pool();
        BertConfig { pooler, ..self.0.format().switched(self.0.with_defaults(sizes)) }
    }

    /// Whether transformers has a class of this family for an architecture. T5 has few for its encoder alone, and XLNet
    /// has none with a masked-LM head.
    pub fn has_class(self, architecture: Architecture) -> bool {
        self.0.has_class(architecture)
    }

    /// The same encoder after a change of its sizes, with what follows from them in this family: in XLNet one number is
    /// the probability of all dropout.
    pub fn adapted(self, encoder: BertConfig) -> BertConfig {
        self.0.format().switched(encoder)
    }

    /// The architecture that an encoder of this family is pretrained as: its class with a head for sentence pairs where
    /// there are `pairs`, else that with the masked-LM head alone. None if the family has no such head.
    pub fn pretraining(self, pairs: bool) -> Option<Architecture> {
        match pairs {
            true => self.0.pretraining_class().filter(|class| *class == Architecture::PreTraining),
            false => Some(Architecture::MaskedLm).filter(|class| self.has_class(*class)),
        }
    }

    /// The family with this `model_type`.
    ///
    /// # Errors
    /// For an unknown name, those that are known.
    fn of_model_type(name: &str) -> std::result::Result<Self, String> {
        let is_called = |family: &&Self| {
            let authors = family.0.authors_names().map(|names| names.model_type);
            [Some(family.model_type()), authors].contains(&Some(name))
        };
        let found = Self::ALL.iter().find(is_called);
        found.copied().ok_or_else(|| {
            let known = || Self::ALL.iter().map(|family| family.model_type());
            let meant = nearest(name, known()).map(|near| format!("; did you mean \"{near}\"?"));
            listed(known()) + &meant.unwrap_or_default()
        })
    }

    /// The family of a folder whose classes are `architectures`. Old files have no `model_type`: then the class's name
    /// decides, or else keys that only one family has.
    ///
    /// # Errors
    /// [`ModelError::Config`] for an unknown `model_type`.
    pub(in crate::huggingface) fn of_config(fields: &Fields, architectures: &[String]) -> Result<Self> {
        if let Some(name) = fields.text("model_type")? {
            let refused = |expected: String| fields.refuse("model_type", &name.into(), &expected);
            return Self::of_model_type(name).map_err(refused);
        }
        let by_class = |name: &String| Self::ALL.iter().find(|family| family.without_prefix(name).is_some());
        let by_keys = || Self::ALL.iter().find(|family| family.0.is_told_by(fields));
        Ok(architectures.iter().find_map(by_class).or_else(by_keys).copied().unwrap_or_default())
    }

    /// The class in transformers for an architecture.
    pub(in crate::huggingface) fn class_name(self, architecture: Architecture) -> String {
        // A family without a class for both pretraining heads has its masked LM's, one without a discriminator its bare
        // encoder's.
        let architecture = match architecture {
            one if self.0.pretraining_class() == Some(one) => one,
            Architecture::PreTraining => Architecture::MaskedLm,
            Architecture::ReplacedTokens => Architecture::Encoder,
            other => other,
        };
        format!("{}{}", self.0.class_prefix(), self.0.class_suffix(architecture))
    }

    /// The name of one of the family's classes without that of the family.
    fn without_prefix(self, class_name: &str) -> Option<&str> {
        let authors = || class_name.strip_prefix(self.0.authors_names()?.class_prefix);
        class_name.strip_prefix(self.0.class_prefix()).or_else(authors)
    }

    /// The architecture of one of the family's classes.
    pub(in crate::huggingface) fn architecture(self, class_name: &str) -> Option<Architecture> {
        let suffix = self.without_prefix(class_name)?;
        let of_family = |found: &Architecture| self.0.class_suffix(*found) == suffix;
        let found = Architecture::ALL.into_iter().find(of_family)?;
        match found {
            Architecture::PreTraining | Architecture::ReplacedTokens => self.0.pretraining_class(),
            other => Some(other).filter(|class| self.has_class(*class)),
        }
    }

    /// Whether the class for an architecture has a pooler.
    pub(in crate::huggingface) fn has_pooler(self, architecture: Architecture) -> bool {
        self.0.has_pooler(architecture)
    }

    /// The layer before the output of a head over sequences; none if the head has only the output layer.
    pub(in crate::huggingface) fn head_layer(self, architecture: Architecture) -> Option<HeadLayer> {
        self.0.head_layer(architecture)
    }

    /// Whether a head's output layer has biases.
    pub(in crate::huggingface) fn head_output_bias(self, architecture: Architecture) -> bool {
        self.0.head_output_bias(architecture)
    }

    /// Whether the heads over single states have a [transform](crate::tasks::HeadTransform).
    pub(in crate::huggingface) fn transforms_states(self) -> bool {
        self.0.transforms_states()
    }

    /// The key of a head's dropout in `config.json`, and its default; no default if that is the encoder's hidden
    /// dropout.
    pub(in crate::huggingface) fn head_dropout(
        self,
        architecture: Architecture,
    ) -> Option<(&'static str, Option<f64>)> {
        self.0.head_dropout(architecture)
    }

    /// The encoder that a `config.json` describes, without a pooler.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a value that this crate does not support, by its name in the file.
    pub(in crate::huggingface) fn read(self, fields: &Fields) -> Result<BertConfig> {
        let encoder = self.0.read(fields)?;
        let language = fields.size(LANGUAGE)?.or(encoder.language).filter(|_| encoder.n_token_types > 0);
        Ok(BertConfig { language, ..encoder })
    }

    /// The name of a [`BertConfig`] field in a `config.json`.
    pub(in crate::huggingface) fn key_of(self, fields: &Fields, field: &'static str) -> &'static str {
        self.0.format_of(fields).key_of(field)
    }

    /// Adds an encoder to a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for an encoder with an invalid value or one that no class of transformers builds.
    pub(in crate::huggingface) fn write(
        self,
        encoder: &BertConfig,
        dtype: FloatType,
        config: &mut Map<String, Value>,
    ) -> Result<()> {
        encoder.validate()?;
        if encoder.pooler && !self.may_pool() {
            let expected = format!("false: {self} has none");
            return Err(ModelError::Setting { key: "pooler", found: "true".into(), expected });
        }
        self.0.format().check(encoder).map_err(|(key, found, expected)| {
            let format = if self == Self::CLOZE_BERT { "its format" } else { "transformers" };
            let expected =
                format!("{expected}: {format} has no other {self}, so such a model cannot be saved");
            ModelError::Setting { key, found, expected }
        })?;
        self.0.write(encoder, dtype, config);
        if let Some(language) = encoder.language {
            config.insert(LANGUAGE.into(), language.into());
        }
        Ok(())
    }

    /// The rules for a model of `architecture` whose `encoder`'s parameters have the prefix `backbone`: it ends with a
    /// dot, or is empty if the model is the encoder alone. The class of the encoder alone has no prefix, whatever model it
    /// is saved from.
    pub(in crate::huggingface) fn rules(
        self,
        architecture: Architecture,
        encoder: &BertConfig,
        backbone: &str,
    ) -> TensorRules {
        let is_alone = backbone.is_empty() || architecture == Architecture::Encoder;
        let prefix = if is_alone { "" } else { self.0.prefix() };
        let wrappers = ["module.", "model."];
        let mut head = self.0.head_rules(architecture);
        if !encoder.mlm_tied {
            head = head.untied("mlm.decoder.weight");
        }
        let encoder = self.0.encoder_rules(encoder);
        // What begins names of the encoder itself, as `transformer.` does DistilBERT's, is no prefix of them.
        let prefixes: Vec<&str> = Self::ALL
            .iter()
            .map(|family| family.0.prefix())
            .filter(|prefix| !encoder.has_tensor_within(prefix))
            .collect();
        encoder
            .within(prefix, backbone)
            .and(head)
            .with_optional_prefixes(wrappers)
            .with_optional_prefixes(prefixes)
            .with_optional_prefixes(self.0.authors_names().map(|names| names.prefix))
    }
}

impl Default for Family {
    /// BERT, the family of old files that name none.
    fn default() -> Self {
        Self::BERT
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.model_type() == other.model_type()
    }
}

impl Eq for Family {}

impl Hash for Family {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.model_type().hash(state);
    }
}

/// As its `model_type`.
impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.model_type())
    }
}

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::of_model_type(&name)
            .map_err(|expected| de::Error::invalid_value(de::Unexpected::Str(&name), &expected.as_str()))
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Family({})", self.model_type())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::huggingface::rules::TensorRule;
    use Architecture::{MultipleChoice, QuestionAnswering, SequenceClassification, TokenClassification};

    /// The name of a parameter's tensor.
    fn name(family: Family, architecture: Architecture, backbone: &str, path: &str) -> Option<String> {
        let rules = family.rules(architecture, &family.encoder(BertConfig::tiny(10)), backbone);
        rules.rules().iter().find_map(|rule| match rule {
            TensorRule::Copy { tensor, parameter }
            | TensorRule::Transpose { tensor, parameter }
            | TensorRule::Reshape { tensor, parameter, .. }
                if parameter == path =>
            {
                Some(tensor.clone())
            }
            _ => None,
        })
    }

    #[test]
    fn every_family_is_found_by_its_names() {
        for (i, family) in Family::ALL.iter().enumerate() {
            for other in &Family::ALL[..i] {
                assert!(family != other && family.to_string() != other.to_string());
                assert_ne!(family.0.class_prefix(), other.0.class_prefix());
            }
        }
    }

    #[test]
    fn serde_names_families_by_their_model_type() {
        for &family in Family::ALL {
            let json = serde_json::to_string(&family).unwrap();
            assert_eq!(json, format!("\"{}\"", family.model_type()));
            assert_eq!(serde_json::from_str::<Family>(&json).unwrap(), family);
        }
        let error = serde_json::from_str::<Family>("\"robert\"").unwrap_err().to_string();
        assert!(error.contains("\"robert\"") && error.contains("did you mean \"roberta\"?"), "{error}");
    }

    #[test]
    fn some_families_have_a_head_for_pairs() {
        assert_eq!(Family::ALBERT.pretraining(true), Some(Architecture::PreTraining));
        assert_eq!(Family::ROBERTA.pretraining(true), None);
        assert_eq!(Family::ROBERTA.pretraining(false), Some(Architecture::MaskedLm));
        assert_eq!(Family::NOMIC_BERT.pretraining(true), None);
        assert_eq!(Family::XLNET.pretraining(false), None);
        assert_eq!(Family::XLM.pretraining(true), None);
        assert_eq!(Family::XLM.pretraining(false), Some(Architecture::MaskedLm));
    }

    #[test]
    fn a_model_without_a_head_has_no_prefix() {
        for &family in Family::ALL {
            let path = "encoder.layers.*.attention.output.weight";
            let inner = name(family, Architecture::Encoder, "", path).unwrap();
            let whole = name(family, Architecture::MaskedLm, "bert.", &format!("bert.{path}")).unwrap();
            assert!(whole.len() > inner.len() && whole.ends_with(&inner));
            let rules = family.rules(Architecture::Encoder, &BertConfig::tiny(10), "");
            assert_eq!(rules.canonical(&whole), inner);
        }
    }

    #[test]
    fn old_names_and_wrappers_are_seen_through() {
        let rules = Family::BERT.rules(Architecture::Encoder, &BertConfig::tiny(10), "");
        for (name, expected) in [
            ("module.bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"),
            ("model.roberta.pooler.dense.bias", "pooler.dense.bias"),
            ("cls.predictions.transform.LayerNorm.beta", "cls.predictions.transform.LayerNorm.bias"),
            ("classifier.weight", "classifier.weight"),
        ] {
            assert_eq!(rules.canonical(name), expected);
        }
    }

    #[test]
    fn a_network_with_a_gate_has_other_tensors_in_t5() {
        for (gated, expected) in [(false, "wi.weight"), (true, "wi_1.weight")] {
            let rules = Family::T5.rules(Architecture::Encoder, &BertConfig::tiny(10).with_gated(gated), "");
            let up = "encoder.layers.*.feed_forward.up.weight";
            let found = rules.rules().iter().find_map(|rule| match rule {
                TensorRule::Transpose { tensor, parameter } if parameter == up => Some(tensor.as_str()),
                _ => None,
            });
            let found = found.unwrap();
            assert!(found.ends_with(&format!("DenseReluDense.{expected}")), "{found}");
        }
    }

    #[test]
    fn a_class_that_transformers_lacks_is_not_parsed() {
        assert_eq!(Architecture::parse("T5EncoderModel"), Some((Family::T5, Architecture::Encoder)));
        let of_tokens = Architecture::parse("MT5ForTokenClassification");
        assert_eq!(of_tokens, Some((Family::MT5, TokenClassification)));
        // These have a decoder.
        for name in ["T5Model", "T5ForSequenceClassification", "MT5ForQuestionAnswering"] {
            assert_eq!(Architecture::parse(name), None, "{name}");
        }
        assert_eq!(Family::T5.pretraining(false), None);
    }

    #[test]
    fn xlms_classes_have_names_of_their_own() {
        let found = |name| Architecture::parse(name);
        assert_eq!(found("XLMWithLMHeadModel"), Some((Family::XLM, Architecture::MaskedLm)));
        assert_eq!(found("XLMForQuestionAnsweringSimple"), Some((Family::XLM, QuestionAnswering)));
        assert_eq!(found("XLMRobertaModel"), Some((Family::XLM_ROBERTA, Architecture::Encoder)));
        // It searches for the end by the beginning; the other's choices are weighed by two maps.
        for name in ["XLMForQuestionAnswering", "XLMForMultipleChoice"] {
            assert_eq!(found(name), None, "{name}");
        }
        let of_head = |architecture, path| name(Family::XLM, architecture, "bert.", path);
        assert_eq!(of_head(Architecture::MaskedLm, "mlm.bias").unwrap(), "pred_layer.proj.bias");
        assert_eq!(of_head(Architecture::MaskedLm, "mlm.dense.weight"), None);
        assert_eq!(
            of_head(SequenceClassification, "head.output.weight").unwrap(),
            "sequence_summary.summary.weight"
        );
    }

    #[test]
    fn names_are_transformers() {
        let head = |family, architecture, path| name(family, architecture, "bert.", path).unwrap();
        let bert = |path| head(Family::BERT, Architecture::PreTraining, path);
        assert_eq!(bert("mlm.norm.gamma"), "cls.predictions.transform.LayerNorm.weight");
        assert_eq!(
            bert("bert.encoder.layers.*.attention.output.weight"),
            "bert.encoder.layer.*.attention.output.dense.weight"
        );
        assert_eq!(
            bert("bert.encoder.layers.*.feed_forward_norm.beta"),
            "bert.encoder.layer.*.output.LayerNorm.bias"
        );
        let roberta = |architecture| head(Family::ROBERTA, architecture, "head.output.weight");
        assert_eq!(roberta(SequenceClassification), "classifier.out_proj.weight");
        assert_eq!(roberta(MultipleChoice), "classifier.weight");
        let output = |architecture| head(Family::BERT, architecture, "output.bias");
        assert_eq!(output(TokenClassification), "classifier.bias");
        assert_eq!(output(QuestionAnswering), "qa_outputs.bias");
        // The class has neither.
        assert_eq!(name(Family::BERT, SequenceClassification, "bert.", "head.dense.weight"), None);
        assert_eq!(name(Family::BERT, TokenClassification, "bert.", "crf.transitions"), None);
    }
}

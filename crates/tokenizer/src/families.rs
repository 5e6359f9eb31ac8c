//! Behaviour of transformers' tokenizer classes that a folder's files do not state: a model's inputs, its
//! padding side, and how a SentencePiece file becomes a tokenizer.

use std::path::Path;

use serde::Deserialize;

use crate::{
    AddedToken, Error, Normalizer, PostProcessor, Result, TemplatePiece, TemplateProcessing,
    TemplateSequence, Tokenizer, TokenizerConfig,
    files::{decoder_from_value, in_file, pre_tokenizer_from_value},
    sentencepiece::{Layout, Spm},
};

const MODEL_CONFIG: &str = "config.json";

/// What a tokenizer needs to know about its model: a few keys of `config.json`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ModelConfig {
    model_type: Option<String>,
    type_vocab_size: Option<u64>,
}

impl ModelConfig {
    /// Reads a folder's `config.json`; everything is empty if there is none.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MODEL_CONFIG);
        if !path.is_file() {
            return Ok(Self::default());
        }
        in_file(&path, |text| serde_json::from_str(text).map_err(|error| Error::json(MODEL_CONFIG, &error)))
    }

    /// The names of the model's inputs in transformers; `None` for an unknown model.
    pub fn input_names(&self) -> Option<Vec<String>> {
        let kind = self.model_type.as_deref()?;
        let takes_types = match kind {
            // Their `forward` has no such argument, or none that means types.
            "distilbert" | "mpnet" | "modernbert" | "gpt2" | "llama" | "mistral" | "qwen2" | "t5" | "mt5"
            | "marian" | "bart" | "xlm" => false,
            "bert" | "electra" | "deberta" | "deberta-v2" | "albert" | "xlnet" | "nomic_bert" => true,
            "roberta" | "xlm-roberta" | "camembert" | "ibert" | "new" | "gte" => {
                self.type_vocab_size.is_some_and(|size| size > 1)
            }
            _ => return None,
        };
        let names: &[&str] = match takes_types {
            true => &["input_ids", "token_type_ids", "attention_mask"],
            false => &["input_ids", "attention_mask"],
        };
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// The padding side of the model's transformers class.
    pub fn padding_side(&self) -> Option<&'static str> {
        match self.model_type.as_deref()? {
            "xlnet" | "llama" | "mistral" => Some("left"),
            _ => Some("right"),
        }
    }
}

/// A transformers class whose models are published with only a SentencePiece file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Albert,
    Camembert,
    DebertaV2,
    T5,
    XlmRoberta,
    Xlnet,
}

/// The classes whose SentencePiece files are read by [`Spm::tokenizer`].
const PLAIN: &[&str] =
    &["LlamaTokenizer", "PreTrainedTokenizer", "TokenizersBackend", "SentencePieceBackend"];

impl Class {
    const NAMES: [(&str, Self); 7] = [
        ("AlbertTokenizer", Self::Albert),
        ("CamembertTokenizer", Self::Camembert),
        ("DebertaV2Tokenizer", Self::DebertaV2),
        ("MT5Tokenizer", Self::T5),
        ("T5Tokenizer", Self::T5),
        ("XLMRobertaTokenizer", Self::XlmRoberta),
        ("XLNetTokenizer", Self::Xlnet),
    ];

    /// The class named by a folder's files: the tokenizer's class, else the model's default one.
    ///
    /// # Errors
    /// A class whose files are not supported.
    pub fn named(config: Option<&TokenizerConfig>, model: &ModelConfig) -> Result<Option<Self>> {
        let declared = config.and_then(|config| config.tokenizer_class.as_deref());
        let declared = declared.map(|name| name.strip_suffix("Fast").unwrap_or(name));
        if let Some(name) = declared.filter(|name| !PLAIN.contains(name)) {
            let known = Self::NAMES.iter().find(|(known, _)| *known == name);
            return match known {
                Some((_, class)) => Ok(Some(*class)),
                None => Err(Error::Unsupported {
                    at: "tokenizer_class, beside a SentencePiece file and no tokenizer.json".into(),
                    found: name.to_owned(),
                    supported: Self::NAMES
                        .iter()
                        .map(|(name, _)| *name)
                        .chain(PLAIN.iter().copied())
                        .collect(),
                }),
            };
        }
        Ok(match model.model_type.as_deref().unwrap_or_default() {
            _ if declared == Some("LlamaTokenizer") => None,
            "albert" => Some(Self::Albert),
            "camembert" => Some(Self::Camembert),
            "deberta-v2" => Some(Self::DebertaV2),
            "t5" | "mt5" | "umt5" | "longt5" => Some(Self::T5),
            "xlm-roberta" | "xlm-roberta-xl" => Some(Self::XlmRoberta),
            "xlnet" => Some(Self::Xlnet),
            _ => None,
        })
    }

    /// The tokenizer that transformers' converter for the class makes from a SentencePiece file.
    ///
    /// Versions 4 and 5 differ in edge cases. This follows 4.57.6, which uses the file's character rules and
    /// scores, as the published models were trained.
    pub fn tokenizer(self, spm: &Spm, mut config: TokenizerConfig) -> Result<Tokenizer> {
        self.complete(&mut config);
        let mut tokenizer = spm.with_layout(&self.layout(&config))?;
        let mut normalizers = self.normalizers(&config);
        normalizers.extend(spm.rules()?.map(Normalizer::Precompiled));
        let spaces = match self {
            Self::Albert | Self::DebertaV2 | Self::Xlnet => vec![replace(r#"{"Regex":" {2,}"}"#, " ")],
            Self::Camembert | Self::T5 | Self::XlmRoberta => {
                vec![normalizer(STRIP_RIGHT), replace(r#"{"Regex":" {2,}"}"#, "▁")]
            }
        };
        normalizers.extend(spaces);
        tokenizer.normalizer = Some(Normalizer::Sequence { normalizers });
        tokenizer.pre_tokenizer = pre_tokenizer_from_value(Some(self.pre_tokenizer(&config)))?;
        tokenizer.decoder = decoder_from_value(Some(metaspace(&config)))?;
        let own: Vec<_> =
            spm.added().filter(|token| tokenizer.token_to_id(&token.content).is_some()).collect();
        tokenizer.add_tokens(own)?;
        tokenizer.add_tokens(self.special(&config))?;
        config.add_tokens(&mut tokenizer)?;
        if let Some(template) = self.template(&tokenizer, &config)? {
            tokenizer = tokenizer.with_post_processor(PostProcessor::TemplateProcessing(template))?;
        }
        tokenizer.config = config;
        Ok(tokenizer)
    }

    /// Names the tokens that the files do not name.
    fn complete(self, config: &mut TokenizerConfig) {
        let (begin, end, unknown, separator, padding, class, mask) = match self {
            Self::Albert => ("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"),
            Self::DebertaV2 => ("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"),
            Self::Camembert | Self::XlmRoberta => ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"),
            Self::Xlnet => ("<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"),
            Self::T5 => ("", "</s>", "<unk>", "", "<pad>", "", ""),
        };
        for (token, usual) in [
            (&mut config.bos_token, begin),
            (&mut config.eos_token, end),
            (&mut config.unk_token, unknown),
            (&mut config.sep_token, separator),
            (&mut config.pad_token, padding),
            (&mut config.cls_token, class),
            (&mut config.mask_token, mask),
        ] {
            if token.is_none() && !usual.is_empty() {
                *token = Some(AddedToken::special(usual));
            }
        }
    }

    /// Where ids differ from the file's.
    fn layout(self, config: &TokenizerConfig) -> Layout {
        let piece = |text: &str| (text.to_owned(), 0.0);
        let plain = Layout::default();
        match self {
            // fairseq's four, and the file's without its three.
            Self::XlmRoberta => Layout {
                before: ["<s>", "<pad>", "</s>", "<unk>"].map(piece).into(),
                shift: 3,
                after: vec![piece("<mask>")],
                unk: Some(3),
                ..plain
            },
            Self::Camembert => Layout {
                before: [
                    ("<s>NOTUSED", 0.0),
                    ("<pad>", 0.0),
                    ("</s>NOTUSED", 0.0),
                    ("<unk>", 0.0),
                    ("<unk>NOTUSED", -100.0),
                ]
                .map(|(text, score)| (text.to_owned(), score))
                .into(),
                shift: 1,
                after: vec![piece("<mask>")],
                unk: Some(3),
                ..plain
            },
            Self::T5 => Layout { after: extra(config).map(|text| (text, 0.0)).collect(), ..plain },
            Self::Albert | Self::Xlnet => Layout { cuts_number_commas: true, ..plain },
            Self::DebertaV2 => plain,
        }
    }

    /// The normalisers before the file's character rules.
    fn normalizers(self, config: &TokenizerConfig) -> Vec<Normalizer> {
        let mut stages = Vec::new();
        if matches!(self, Self::Albert | Self::Xlnet) {
            stages.push(replace(r#"{"String":"``"}"#, "\""));
            stages.push(replace(r#"{"String":"''"}"#, "\""));
            if !config.keep_accents.unwrap_or(false) {
                stages.extend([Normalizer::NFKD, Normalizer::StripAccents]);
            }
        }
        let lowercase = match self {
            Self::Albert => config.do_lower_case.unwrap_or(true),
            Self::DebertaV2 | Self::Xlnet => config.do_lower_case.unwrap_or(false),
            Self::Camembert | Self::T5 | Self::XlmRoberta => false,
        };
        if lowercase {
            stages.push(Normalizer::Lowercase);
        }
        if self == Self::DebertaV2 {
            stages.push(normalizer(r#"{"type":"Strip","strip_left":true,"strip_right":true}"#));
        }
        stages
    }

    fn pre_tokenizer(self, config: &TokenizerConfig) -> serde_json::Value {
        let metaspace = metaspace(config);
        if self != Self::DebertaV2 || !config.split_by_punct.unwrap_or(false) {
            return metaspace;
        }
        let punctuation = serde_json::json!({"type": "Punctuation", "behavior": "Isolated"});
        serde_json::json!({"type": "Sequence", "pretokenizers": [punctuation, metaspace]})
    }

    /// The special tokens with the class's flags, if the files only name them.
    fn special(self, config: &TokenizerConfig) -> Vec<AddedToken> {
        let mut tokens = Vec::new();
        for (part, token) in config.parts() {
            let Some(token) = token else { continue };
            let mut token = token.clone();
            if token == AddedToken::special(token.content.as_str()) {
                token.lstrip = part == "mask_token" && self != Self::DebertaV2;
                token.normalized = part == "unk_token" && self == Self::DebertaV2;
            }
            tokens.push(token);
        }
        if self == Self::Camembert {
            tokens.extend(["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"].map(AddedToken::special));
        }
        if self == Self::T5 {
            tokens.extend(extra(config).map(AddedToken::special));
        }
        tokens
    }

    /// The special tokens around one text and around two.
    fn template(self, tokenizer: &Tokenizer, config: &TokenizerConfig) -> Result<Option<TemplateProcessing>> {
        let token = |part: &Option<AddedToken>| -> Result<(String, u32)> {
            let content = part.as_ref().map_or("", |token| &token.content);
            let id = tokenizer.token_to_id(content).ok_or_else(|| {
                Error::invalid(
                    "a special token",
                    format!("the vocabulary has no {content:?}, which is needed"),
                )
            })?;
            Ok((content.to_owned(), id))
        };
        let [a, b] = [TemplateSequence::A, TemplateSequence::B];
        let text = |id, type_id| TemplatePiece::Sequence { id, type_id };
        let special =
            |token: &(String, u32), type_id| TemplatePiece::SpecialToken { id: token.0.clone(), type_id };
        Ok(Some(match self {
            Self::Albert | Self::DebertaV2 => {
                let (cls, sep) = (token(&config.cls_token)?, token(&config.sep_token)?);
                TemplateProcessing::bert((&cls.0, cls.1), (&sep.0, sep.1))
            }
            Self::Camembert | Self::XlmRoberta => {
                let (bos, eos) = (token(&config.cls_token)?, token(&config.sep_token)?);
                let single = vec![special(&bos, 0), text(a, 0), special(&eos, 0)];
                let mut pair = single.clone();
                pair.extend([special(&eos, 0), text(b, 0), special(&eos, 0)]);
                TemplateProcessing::with(single, pair, [bos, eos])
            }
            Self::T5 => {
                let eos = token(&config.eos_token)?;
                let single = vec![text(a, 0), special(&eos, 0)];
                let mut pair = single.clone();
                pair.extend([text(b, 0), special(&eos, 0)]);
                TemplateProcessing::with(single, pair, [eos])
            }
            Self::Xlnet => {
                let (sep, cls) = (token(&config.sep_token)?, token(&config.cls_token)?);
                let single = vec![text(a, 0), special(&sep, 0), special(&cls, 2)];
                let pair = vec![text(a, 0), special(&sep, 0), text(b, 1), special(&sep, 1), special(&cls, 2)];
                TemplateProcessing::with(single, pair, [sep, cls])
            }
        }))
    }
}

const STRIP_RIGHT: &str = r#"{"type":"Strip","strip_left":false,"strip_right":true}"#;

/// T5's sentinels, in the order of their ids.
fn extra(config: &TokenizerConfig) -> impl Iterator<Item = String> + use<> {
    (0..config.extra_ids.unwrap_or(100)).rev().map(|i| format!("<extra_id_{i}>"))
}

fn metaspace(config: &TokenizerConfig) -> serde_json::Value {
    let scheme = match (config.add_prefix_space, config.legacy) {
        (Some(false), _) => "never",
        (_, Some(false)) => "first",
        _ => "always",
    };
    serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true})
}

fn normalizer(json: &str) -> Normalizer {
    serde_json::from_str(json).expect("a normaliser written here")
}

fn replace(pattern: &str, content: &str) -> Normalizer {
    let content = serde_json::Value::from(content);
    normalizer(&format!(r#"{{"type":"Replace","pattern":{pattern},"content":{content}}}"#))
}

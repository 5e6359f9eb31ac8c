//! `tokenizer_config.json`: the roles of tokens, and what older files say nowhere else.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    AddedToken, Decoder, Error, Metaspace, Normalizer, PostProcessor, PreTokenizer, PrependScheme, Result,
    TemplateProcessing, Tokenizer, families::ModelConfig,
};

/// Lengths from here up mean "no limit" in transformers.
const NO_LIMIT: f64 = 1e9;

/// The contents of a `tokenizer_config.json` that concern text and ids. Unsupported keys that change ids are
/// errors; other unsupported keys are in [`ignored`](Self::ignored), unless known to have no effect.
///
/// Next to a `tokenizer.json` it only names tokens and lengths; next to a `vocab.txt`, a `vocab.json` and
/// `merges.txt`, or a SentencePiece model, it also configures the stages, and `special_tokens_map.json` and
/// `added_tokens.json` of older models are read too.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// transformers' class, such as `BertTokenizer`.
    pub tokenizer_class: Option<String>,
    /// The model's maximum length in pieces, including special tokens; `None` means no limit. Encoding
    /// does not truncate to it: see [`Tokenizer::set_truncation`].
    #[serde(deserialize_with = "length")]
    pub model_max_length: Option<usize>,
    /// BERT: lower-case the text.
    pub do_lower_case: Option<bool>,
    /// BERT: strip accents; `None` follows lower-casing.
    pub strip_accents: Option<bool>,
    /// BERT: each Chinese character is a word.
    pub tokenize_chinese_chars: Option<bool>,
    /// GPT-2, RoBERTa: treat the first word like those after a space.
    pub add_prefix_space: Option<bool>,
    /// GPT-2 and SentencePiece models: add `bos_token` before each text.
    pub add_bos_token: Option<bool>,
    /// GPT-2 and SentencePiece models: add `eos_token` after each text.
    pub add_eos_token: Option<bool>,
    /// ALBERT, XLNet: keep accents; `None` drops them.
    pub keep_accents: Option<bool>,
    /// DeBERTa: each punctuation sign is a word.
    pub split_by_punct: Option<bool>,
    /// T5, Llama: `false` adds no space after a special token.
    pub legacy: Option<bool>,
    /// T5: number of sentinels after the vocabulary.
    pub extra_ids: Option<u32>,
    /// The model's inputs, as named by transformers; `None` means the family's default.
    pub model_input_names: Option<Vec<String>>,
    /// The side on which transformers pads, `left` or `right`; `None` means the family's default.
    pub padding_side: Option<String>,
    /// Begins a text.
    #[serde(deserialize_with = "token")]
    pub bos_token: Option<AddedToken>,
    /// Ends a text.
    #[serde(deserialize_with = "token")]
    pub eos_token: Option<AddedToken>,
    /// Stands for what the vocabulary cannot spell.
    #[serde(deserialize_with = "token")]
    pub unk_token: Option<AddedToken>,
    /// Ends a segment.
    #[serde(deserialize_with = "token")]
    pub sep_token: Option<AddedToken>,
    /// Pads short sequences.
    #[serde(deserialize_with = "token")]
    pub pad_token: Option<AddedToken>,
    /// Begins a sequence that is classified.
    #[serde(deserialize_with = "token")]
    pub cls_token: Option<AddedToken>,
    /// Hides a piece.
    #[serde(deserialize_with = "token")]
    pub mask_token: Option<AddedToken>,
    /// Special tokens without a role.
    #[serde(deserialize_with = "tokens")]
    pub additional_special_tokens: Vec<AddedToken>,
    /// Added tokens by id.
    pub added_tokens_decoder: BTreeMap<u32, AddedToken>,
    /// Special tokens in a text are ordinary text.
    pub split_special_tokens: Option<bool>,
    /// Keys that are set but not supported: unknown ones, and those known to change results, such as
    /// `truncation_side`.
    #[serde(skip)]
    pub ignored: Vec<String>,
}

/// The keys that the fields of a [`TokenizerConfig`] are read from, and `extra_special_tokens`.
const FOLLOWED: &[&str] = &[
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "added_tokens_decoder",
    "additional_special_tokens",
    "bos_token",
    "cls_token",
    "do_lower_case",
    "eos_token",
    "extra_ids",
    "extra_special_tokens",
    "keep_accents",
    "legacy",
    "mask_token",
    "model_input_names",
    "model_max_length",
    "pad_token",
    "padding_side",
    "sep_token",
    "split_by_punct",
    "split_special_tokens",
    "strip_accents",
    "tokenize_chinese_chars",
    "tokenizer_class",
    "unk_token",
];

/// Keys of transformers' classes (4.57 and 5.24) that do not change ids: file names, a tokenizer's origin,
/// display settings, keys ignored by fast tokenizers, and keys for Marian's files or chats.
const HARMLESS: &[&str] = &[
    "_commit_hash",
    "_name_or_path",
    "_spm_precompiled_charsmap",
    "auto_map",
    "backend",
    "chat_template",
    "clean_up_tokenization_spaces",
    "device_map",
    "do_basic_tokenize",
    "do_split_on_punc",
    "errors",
    "id2lang",
    "init_inputs",
    "is_fast",
    "is_local",
    "lang2id",
    "local_files_only",
    "max_input_chars_per_word",
    "max_len",
    "max_length",
    "merges_file",
    "model_specific_special_tokens",
    "name_or_path",
    "never_split",
    "pad_to_multiple_of",
    "pad_token_type_id",
    "processor_class",
    "remove_space",
    "return_special_tokens_mask",
    "separate_vocabs",
    "source_lang",
    "source_spm",
    "sp_model_kwargs",
    "spaces_between_special_tokens",
    "special_tokens_map_file",
    "stride",
    "target_lang",
    "target_spm",
    "target_vocab_file",
    "tokenizer_file",
    "trim_offsets",
    "truncation_strategy",
    "trust_remote_code",
    "unk_id",
    "use_default_system_prompt",
    "use_fast",
    "vocab_file",
    "vocab_type",
];

/// Keys that change ids, the value that does not, and what to do about other values.
const REFUSED: &[(&str, &str, &str)] = &[
    ("subword_tokenizer_type", "wordpiece", "save the folder with a tokenizer.json"),
    ("word_tokenizer_type", "basic", "cut the words beforehand"),
];

/// A special token: its text, or an object with its flags.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a token's text, or an object with its text as `content`")]
enum TokenField {
    Text(String),
    Flags {
        content: String,
        #[serde(default)]
        single_word: bool,
        #[serde(default)]
        lstrip: bool,
        #[serde(default)]
        rstrip: bool,
        #[serde(default)]
        normalized: bool,
    },
}

impl From<TokenField> for AddedToken {
    fn from(field: TokenField) -> Self {
        match field {
            TokenField::Text(content) => Self::special(content),
            TokenField::Flags { content, single_word, lstrip, rstrip, normalized } => {
                Self { single_word, lstrip, rstrip, normalized, ..Self::special(content) }
            }
        }
    }
}

fn token<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<AddedToken>, D::Error> {
    Ok(Option::<TokenField>::deserialize(from)?.map(AddedToken::from))
}

fn tokens<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<AddedToken>, D::Error> {
    let fields = Option::<Vec<TokenField>>::deserialize(from)?.unwrap_or_default();
    Ok(fields.into_iter().map(AddedToken::from).collect())
}

fn length<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    // "No limit" is an integer of thirty digits, which is read as a float.
    let length = Option::<f64>::deserialize(from)?;
    match length {
        Some(length) if length < 0.0 || length.fract() != 0.0 => {
            Err(serde::de::Error::custom(format!("model_max_length is {length}, expected a whole number")))
        }
        _ => Ok(length.filter(|&length| length < NO_LIMIT).map(|length| length as usize)),
    }
}

impl TokenizerConfig {
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let json = |error: serde_json::Error| Error::json("tokenizer_config.json", &error);
        let mut config: Self = serde_json::from_str(text).map_err(json)?;
        let keys: Map<String, Value> = serde_json::from_str(text).map_err(json)?;
        config.follow(&keys)?;
        Ok(config)
    }

    /// Reads settings that have no field of their own, and collects the unsupported keys.
    fn follow(&mut self, keys: &Map<String, Value>) -> Result<()> {
        // Version 5's name for additional special tokens.
        let extra: Vec<Value> = match keys.get("extra_special_tokens") {
            Some(Value::Array(tokens)) => tokens.clone(),
            Some(Value::Object(tokens)) => tokens.values().cloned().collect(),
            _ => Vec::new(),
        };
        for token in extra {
            let token = TokenField::deserialize(token)
                .map_err(|error| Error::invalid("extra_special_tokens", error.to_string()))?;
            let token = AddedToken::from(token);
            if !self.additional_special_tokens.iter().any(|known| known.content == token.content) {
                self.additional_special_tokens.push(token);
            }
        }
        for (key, value) in keys {
            let is_nothing = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(list) => list.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            let known = FOLLOWED.contains(&key.as_str()) || HARMLESS.contains(&key.as_str());
            if known || is_nothing || (key == "truncation_side" && value == "right") {
                continue;
            }
            match REFUSED.iter().find(|(refused, ..)| refused == key) {
                Some((_, usual, _)) if value == usual => {}
                Some((_, usual, instead)) => {
                    let message = format!("{value} is not followed here; expected {usual:?}: {instead}");
                    return Err(Error::invalid(key.as_str(), message));
                }
                None => self.ignored.push(key.clone()),
            }
        }
        self.ignored.sort_unstable();
        Ok(())
    }

    /// The special tokens with their roles, by name in the file.
    pub(crate) fn parts(&self) -> [(&'static str, &Option<AddedToken>); 7] {
        [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
            ("unk_token", &self.unk_token),
            ("sep_token", &self.sep_token),
            ("pad_token", &self.pad_token),
            ("cls_token", &self.cls_token),
            ("mask_token", &self.mask_token),
        ]
    }

    /// Roles from the usual names (BERT's, RoBERTa's, GPT-2's), for a tokenizer that declares none.
    fn usual(tokenizer: &Tokenizer) -> Self {
        let known = |names: &[&str]| {
            let mut added = tokenizer.added_tokens();
            added.find(|(_, t)| t.special && names.contains(&t.content.as_str())).map(|(_, t)| t.clone())
        };
        let end_of_text = "<|endoftext|>";
        Self {
            bos_token: known(&["<s>", end_of_text]),
            eos_token: known(&["</s>", end_of_text]),
            unk_token: known(&["[UNK]", "<unk>", end_of_text]),
            sep_token: known(&["[SEP]", "</s>"]),
            pad_token: known(&["[PAD]", "<pad>"]),
            cls_token: known(&["[CLS]", "<s>"]),
            mask_token: known(&["[MASK]", "<mask>"]),
            ..Self::default()
        }
    }

    /// Adds the tokens that the file names as special tokens.
    pub(crate) fn add_tokens(&self, tokenizer: &mut Tokenizer) -> Result<()> {
        let by_id = self.added_tokens_decoder.iter().map(|(id, token)| (Some(*id), token.clone()));
        tokenizer.add_with_ids(by_id).map_err(|error| rename(error, "added_tokens_decoder"))?;
        let parts = self.parts().into_iter().filter_map(|(_, token)| token.as_ref());
        for token in parts.chain(&self.additional_special_tokens) {
            // A name alone does not change the flags that the token has already.
            let bare = *token == AddedToken::special(token.content.as_str());
            let special = |(_, t): (u32, &AddedToken)| t.special && t.content == token.content;
            if !(bare && tokenizer.added_tokens().any(special)) {
                tokenizer.add_tokens([token.clone()]).map_err(|error| rename(error, "a special token"))?;
            }
        }
        Ok(())
    }

    /// Sets the stages of BERT's tokenizer.
    pub(crate) fn set_bert(self, mut tokenizer: Tokenizer) -> Result<Tokenizer> {
        if let Some(Normalizer::BertNormalizer(bert)) = &mut tokenizer.normalizer {
            bert.strip_accents = self.strip_accents;
            bert.handle_chinese_chars = self.tokenize_chinese_chars.unwrap_or(true);
        }
        self.add_tokens(&mut tokenizer)?;
        let [cls, sep] = [(&self.cls_token, "[CLS]"), (&self.sep_token, "[SEP]")].map(|(token, usual)| {
            let content = token.as_ref().map_or(usual, |token| &token.content);
            Some((content, tokenizer.token_to_id(content)?))
        });
        if let (Some(cls), Some(sep)) = (cls, sep) {
            let template = PostProcessor::TemplateProcessing(TemplateProcessing::bert(cls, sep));
            tokenizer = tokenizer.with_post_processor(template)?;
        }
        tokenizer.config = self;
        Ok(tokenizer)
    }

    /// Reads older models' files: `special_tokens_map` names tokens, and `added_tokens` has the ids of those
    /// outside the vocabulary. As in transformers, only if the config has no `added_tokens_decoder`, which
    /// replaced both.
    pub(crate) fn older_files(&mut self, map: Self, added: BTreeMap<String, u32>) {
        if !self.added_tokens_decoder.is_empty() {
            return;
        }
        let own = [
            &mut self.bos_token,
            &mut self.eos_token,
            &mut self.unk_token,
            &mut self.sep_token,
            &mut self.pad_token,
            &mut self.cls_token,
            &mut self.mask_token,
        ];
        for (own, (_, token)) in own.into_iter().zip(map.parts()) {
            if token.is_some() {
                own.clone_from(token);
            }
        }
        if !map.additional_special_tokens.is_empty() {
            self.additional_special_tokens = map.additional_special_tokens;
        }
        let parts = self.parts().map(|(_, token)| token.clone()).into_iter().flatten();
        let special: Vec<AddedToken> = parts.chain(self.additional_special_tokens.iter().cloned()).collect();
        for (content, id) in added {
            let known = special.iter().find(|token| token.content == content).cloned();
            // What is not special is searched for in normalised text.
            let plain = || AddedToken { normalized: true, ..AddedToken::plain(content.as_str()) };
            self.added_tokens_decoder.insert(id, known.unwrap_or_else(plain));
        }
    }

    /// Sets the stages that a SentencePiece model leaves open.
    pub(crate) fn set_sentencepiece(mut self, mut tokenizer: Tokenizer) -> Result<Tokenizer> {
        if self.tokenizer_class.as_deref().is_some_and(|name| name.starts_with("LlamaTokenizer")) {
            self.add_bos_token.get_or_insert(true);
            let tokens = [&mut self.bos_token, &mut self.eos_token, &mut self.unk_token];
            for (token, usual) in tokens.into_iter().zip(["<s>", "</s>", "<unk>"]) {
                token.get_or_insert_with(|| AddedToken::special(usual));
            }
        }
        if tokenizer.pre_tokenizer.is_none() && self.legacy == Some(false) {
            // The space in front of a text is not put behind its special tokens too.
            tokenizer.normalizer = None;
            tokenizer.pre_tokenizer = Some(PreTokenizer::Metaspace(Metaspace {
                prepend_scheme: match self.add_prefix_space {
                    Some(false) => PrependScheme::Never,
                    _ => PrependScheme::First,
                },
                split: false,
                ..Metaspace::default()
            }));
        }
        self.add_tokens(&mut tokenizer)?;
        let id = |token: &Option<AddedToken>, wanted: Option<bool>| {
            let content = &token.as_ref().filter(|_| wanted == Some(true))?.content;
            Some((content.clone(), tokenizer.token_to_id(content)?))
        };
        let ends = [id(&self.bos_token, self.add_bos_token), id(&self.eos_token, self.add_eos_token)];
        if ends.iter().any(Option::is_some) {
            let template = PostProcessor::TemplateProcessing(TemplateProcessing::ends(ends));
            tokenizer = tokenizer.with_post_processor(template)?;
        }
        tokenizer.config = self;
        Ok(tokenizer)
    }

    /// Names Marian's tokens that the file does not name.
    pub(crate) fn with_marian_names(mut self) -> Self {
        for (token, usual) in
            [(&mut self.unk_token, "<unk>"), (&mut self.eos_token, "</s>"), (&mut self.pad_token, "<pad>")]
        {
            token.get_or_insert_with(|| AddedToken::special(usual));
        }
        self
    }

    /// Sets the special tokens of Marian's tokenizers, one of which ends every text.
    pub(crate) fn set_marian(mut self, mut tokenizer: Tokenizer, byte_fallback: bool) -> Result<Tokenizer> {
        let vocab = tokenizer.model.vocab();
        // The ids may be those of the other language's vocabulary.
        self.added_tokens_decoder.retain(|id, token| vocab.id(&token.content).is_none_or(|own| own == *id));
        for token in [&self.eos_token, &self.pad_token].into_iter().flatten() {
            if vocab.id(&token.content).is_none() {
                let message = format!("there is no {:?}, which is needed", token.content);
                return Err(Error::invalid("the vocabulary", message));
            }
        }
        self.add_tokens(&mut tokenizer)?;
        if let Some(eos) = &self.eos_token
            && let Some(id) = tokenizer.token_to_id(&eos.content)
        {
            let template = TemplateProcessing::suffix((&eos.content, id));
            tokenizer = tokenizer.with_post_processor(PostProcessor::TemplateProcessing(template))?;
        }
        let special = tokenizer.added_tokens().filter(|(_, token)| token.special);
        let special_tokens = special.map(|(_, token)| token.content.clone()).collect();
        tokenizer.decoder = Some(Decoder::Marian { special_tokens, byte_fallback });
        tokenizer.config = self;
        Ok(tokenizer)
    }

    /// Sets the stages of GPT-2's and RoBERTa's tokenizers.
    pub(crate) fn set_byte_level(self, mut tokenizer: Tokenizer) -> Result<Tokenizer> {
        self.add_tokens(&mut tokenizer)?;
        let space = self.add_prefix_space.unwrap_or(false);
        if let Some(PreTokenizer::ByteLevel(settings)) = &mut tokenizer.pre_tokenizer {
            settings.add_prefix_space = space;
        }
        let id = |token: &Option<AddedToken>| {
            let content = &token.as_ref()?.content;
            Some((content.clone(), tokenizer.token_to_id(content)?))
        };
        if let (Some(cls), Some(sep)) = (id(&self.cls_token), id(&self.sep_token)) {
            tokenizer.post_processor = Some(PostProcessor::RobertaProcessing {
                sep,
                cls,
                trim_offsets: true,
                add_prefix_space: space,
            });
        } else if let (Some((bos, bos_id)), Some(true)) = (id(&self.bos_token), self.add_bos_token) {
            let template = TemplateProcessing::prefix((&bos, bos_id));
            tokenizer.post_processor = Some(PostProcessor::TemplateProcessing(template));
        } else if let Some(PostProcessor::RobertaProcessing { add_prefix_space, .. }) =
            &mut tokenizer.post_processor
        {
            *add_prefix_space = space;
        }
        tokenizer.config = self;
        Ok(tokenizer)
    }

    /// The roles of tokens: as declared, else by the usual names.
    fn declared_or_usual(&self, tokenizer: &Tokenizer) -> Option<Self> {
        let declared = self.parts().iter().any(|(_, token)| token.is_some());
        (!declared).then(|| Self::usual(tokenizer))
    }

    /// The text of the `special_tokens_map.json` that transformers 4 reads and 5 dropped.
    pub(crate) fn special_tokens_json(&self, tokenizer: &Tokenizer) -> String {
        let usual = self.declared_or_usual(tokenizer);
        let object = |token: &AddedToken| {
            let added = tokenizer.added_tokens().find(|(_, added)| added.content == token.content);
            let mut object = json!(added.map_or(token, |(_, added)| added));
            // There it is, as all of them are.
            object.as_object_mut().map(|object| object.remove("special"));
            object
        };
        let parts = usual.as_ref().unwrap_or(self).parts();
        let parts = parts.into_iter().filter_map(|(name, token)| Some((name, object(token.as_ref()?))));
        let mut file: Map<_, _> = parts.map(|(name, token)| (name.to_owned(), token)).collect();
        if !self.additional_special_tokens.is_empty() {
            file.insert(
                "additional_special_tokens".into(),
                self.additional_special_tokens.iter().map(object).collect(),
            );
        }
        serde_json::to_string_pretty(&file).expect("maps with text for keys become JSON")
    }

    /// The text of the file that makes transformers read the accompanying `tokenizer.json` unchanged and
    /// produce the inputs of `model`.
    pub(crate) fn to_json(&self, tokenizer: &Tokenizer, model: &ModelConfig) -> String {
        let usual = self.declared_or_usual(tokenizer);
        let mut file = Map::new();
        let by_id = tokenizer.added_tokens().map(|(id, token)| (id.to_string(), json!(token)));
        file.insert("added_tokens_decoder".into(), by_id.collect::<Map<_, _>>().into());
        for (name, token) in usual.as_ref().unwrap_or(self).parts() {
            if let Some(token) = token {
                file.insert(name.into(), token.content.as_str().into());
            }
        }
        if !self.additional_special_tokens.is_empty() {
            let names = self.additional_special_tokens.iter().map(|t| Value::from(t.content.as_str()));
            file.insert("additional_special_tokens".into(), names.collect());
        }
        if let Some(length) = self.model_max_length {
            file.insert("model_max_length".into(), length.into());
        }
        if let Some(PreTokenizer::ByteLevel(settings)) = tokenizer.pre_tokenizer() {
            // Where this file is silent, transformers sets it to false in the stage.
            file.insert("add_prefix_space".into(), settings.add_prefix_space.into());
        }
        if self.split_special_tokens == Some(true) {
            file.insert("split_special_tokens".into(), true.into());
        }
        // The class below would make token types in one version of transformers and none in another, and pad on the right.
        if let Some(names) = self.model_input_names.clone().or_else(|| model.input_names()) {
            file.insert("model_input_names".into(), names.into());
        }
        if let Some(side) = self.padding_side.as_deref().or_else(|| model.padding_side()) {
            file.insert("padding_side".into(), side.into());
        }
        // The decoder does what there is to clean up.
        file.insert("clean_up_tokenization_spaces".into(), false.into());
        // The class that changes nothing about the stages.
        file.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
        serde_json::to_string_pretty(&file).expect("maps with text for keys become JSON")
    }
}

/// Adds the location of an added token in this file.
fn rename(error: Error, at: &str) -> Error {
    match error {
        Error::Invalid { message, .. } => Error::invalid(at, message),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_followed_refused_or_named() {
        let read = |text: &str| TokenizerConfig::from_json(text);
        let config = read(
            r#"{"do_lower_case":true,"never_split":null,"errors":"replace","truncation_side":"left","novel":1,
                "extra_special_tokens":["<new>"],"padding_side":"left"}"#,
        )
        .unwrap();
        assert_eq!(config.ignored, ["novel", "truncation_side"]);
        assert_eq!(config.additional_special_tokens, [AddedToken::special("<new>")]);
        assert_eq!(config.padding_side.as_deref(), Some("left"));
        assert!(read(r#"{"truncation_side":"right","sp_model_kwargs":{}}"#).unwrap().ignored.is_empty());
        let error = read(r#"{"word_tokenizer_type":"mecab"}"#).unwrap_err().to_string();
        assert!(
            error.starts_with("word_tokenizer_type: \"mecab\" is not followed here; expected \"basic\""),
            "{error}"
        );
    }
}

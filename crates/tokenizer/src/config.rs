//! `tokenizer_config.json`: the parts that tokens play, and what the older files say nowhere else.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    AddedToken, Decoder, Error, Normalizer, PostProcessor, PreTokenizer, Result, TemplateProcessing,
    Tokenizer,
};

/// Lengths from here on are how transformers writes "no limit".
const NO_LIMIT: f64 = 1e9;

/// What a `tokenizer_config.json` declares, as far as it concerns text and ids. Other keys are ignored,
/// since the file is shared with other programs.
///
/// Beside a `tokenizer.json` it only names tokens and lengths; beside a `vocab.txt`, or a `vocab.json` and
/// `merges.txt`, or a SentencePiece model, it also decides how the stages are set; there `special_tokens_map.json`
/// and `added_tokens.json` of older models are read too.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// transformers' class, such as `BertTokenizer`.
    pub tokenizer_class: Option<String>,
    /// The most pieces the model takes, special tokens included; `None` without a limit. Encoding does not
    /// truncate to it: see [`Tokenizer::set_truncation`].
    #[serde(deserialize_with = "length")]
    pub model_max_length: Option<usize>,
    /// BERT: lower-case the text.
    pub do_lower_case: Option<bool>,
    /// BERT: strip accents; `None` as lower-casing does.
    pub strip_accents: Option<bool>,
    /// BERT: each Chinese character is a word.
    pub tokenize_chinese_chars: Option<bool>,
    /// GPT-2, RoBERTa: treat the first word like those after a space.
    pub add_prefix_space: Option<bool>,
    /// GPT-2 and SentencePiece models: put `bos_token` before each text.
    pub add_bos_token: Option<bool>,
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
    /// Fills up short sequences.
    #[serde(deserialize_with = "token")]
    pub pad_token: Option<AddedToken>,
    /// Begins a sequence that is classified.
    #[serde(deserialize_with = "token")]
    pub cls_token: Option<AddedToken>,
    /// Hides a piece.
    #[serde(deserialize_with = "token")]
    pub mask_token: Option<AddedToken>,
    /// Special tokens without such a part.
    #[serde(deserialize_with = "tokens")]
    pub additional_special_tokens: Vec<AddedToken>,
    /// Added tokens by id.
    pub added_tokens_decoder: BTreeMap<u32, AddedToken>,
}

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
        serde_json::from_str(text).map_err(|error| Error::json("tokenizer_config.json", &error))
    }

    /// The special tokens with their parts, under their names in the file.
    fn parts(&self) -> [(&'static str, &Option<AddedToken>); 7] {
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

    /// The parts that the usual names play in a tokenizer that declares none: BERT's, RoBERTa's, GPT-2's.
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

    /// Makes special tokens of those that the file names.
    fn add_tokens(&self, tokenizer: &mut Tokenizer) -> Result<()> {
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

    /// Takes what the files of older models say: `special_tokens_map` names tokens, and `added_tokens` has the
    /// ids of those outside the vocabulary. As transformers does, only where the config has no
    /// `added_tokens_decoder`, which replaced both.
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
    pub(crate) fn set_sentencepiece(self, mut tokenizer: Tokenizer) -> Result<Tokenizer> {
        self.add_tokens(&mut tokenizer)?;
        if let (Some(bos), Some(true)) = (&self.bos_token, self.add_bos_token)
            && let Some(id) = tokenizer.token_to_id(&bos.content)
        {
            let template = PostProcessor::TemplateProcessing(TemplateProcessing::prefix((&bos.content, id)));
            tokenizer = tokenizer.with_post_processor(template)?;
        }
        tokenizer.config = self;
        Ok(tokenizer)
    }

    /// Names the tokens of Marian's that the file does not name.
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

    /// The text of the file that makes transformers read the `tokenizer.json` beside it as it stands.
    pub(crate) fn to_json(&self, tokenizer: &Tokenizer) -> String {
        let declared = self.parts().iter().any(|(_, token)| token.is_some());
        let usual = if declared { None } else { Some(Self::usual(tokenizer)) };
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
        // The decoder does what there is to clean up.
        file.insert("clean_up_tokenization_spaces".into(), false.into());
        // The class that changes nothing about the stages.
        file.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
        serde_json::to_string_pretty(&file).expect("maps with text for keys become JSON")
    }
}

/// Says where in this file an added token stands.
fn rename(error: Error, at: &str) -> Error {
    match error {
        Error::Invalid { message, .. } => Error::invalid(at, message),
        other => other,
    }
}

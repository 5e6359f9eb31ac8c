//! SentencePiece's treatment of spaces: they become a visible character, which begins words (Kudo &
//! Richardson 2018).

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    pattern::{SplitBehavior, char_parts},
    splits::Splits,
};

/// Where to add a space that the text does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrependScheme {
    /// Before the text only.
    First,
    /// Nowhere.
    Never,
    /// Before every part between added tokens.
    #[default]
    Always,
}

/// Spaces as a visible character, as pre-tokenizer and as decoder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "File")]
pub struct Metaspace {
    /// Stands for a space, usually `▁`.
    pub replacement: char,
    /// Whether the first word gets one too.
    pub prepend_scheme: PrependScheme,
    /// Whether to cut before it.
    pub split: bool,
}

impl Default for Metaspace {
    fn default() -> Self {
        Self { replacement: '▁', prepend_scheme: PrependScheme::Always, split: true }
    }
}

/// The file format, including older files' fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    replacement: char,
    add_prefix_space: Option<bool>,
    #[serde(default)]
    prepend_scheme: Option<PrependScheme>,
    split: Option<bool>,
    #[serde(default, rename = "str_rep")]
    _str_rep: Option<String>,
}

impl TryFrom<File> for Metaspace {
    type Error = Error;

    fn try_from(file: File) -> Result<Self> {
        // What older files leave out means "always", and the reference refuses the contradiction too.
        let prepend_scheme = file.prepend_scheme.unwrap_or_default();
        if file.add_prefix_space == Some(false) && prepend_scheme != PrependScheme::Never {
            let message = "false does not go with \"prepend_scheme\" other than \"never\"";
            return Err(Error::invalid("add_prefix_space", message));
        }
        Ok(Self { replacement: file.replacement, prepend_scheme, split: file.split.unwrap_or(true) })
    }
}

impl Metaspace {
    pub(super) fn apply(&self, splits: &mut Splits) {
        let Self { replacement, prepend_scheme, split } = *self;
        splits.rewrite(|text, first, write| {
            let begins = text.starts_with([replacement, ' ']);
            let wanted = match prepend_scheme {
                PrependScheme::Always => true,
                PrependScheme::First => first,
                PrependScheme::Never => false,
            };
            if wanted && !begins {
                write(replacement, 0);
            }
            for (at, c) in text.char_indices() {
                write(if c == ' ' { replacement } else { c }, at);
            }
        });
        if split {
            splits.cut(|text, word| {
                let parts = char_parts(text, |c| c == replacement);
                SplitBehavior::MergedWithNext.ranges(parts).into_iter().for_each(word);
            });
        }
    }

    /// The text of the token at this index.
    pub(crate) fn decode(&self, place: usize, token: &str) -> String {
        let leave_out = place == 0 && self.prepend_scheme != PrependScheme::Never;
        token
            .chars()
            .filter(|c| !(leave_out && *c == self.replacement))
            .map(|c| if c == self.replacement { ' ' } else { c })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, PreTokenizer};

    #[test]
    fn there_and_back() {
        let metaspace = Metaspace::default();
        let words = PreTokenizer::Metaspace(metaspace.clone()).words("Hey  my friend").unwrap();
        assert_eq!(words, ["▁Hey", "▁", "▁my", "▁friend"]);
        assert_eq!(Decoder::Metaspace(metaspace).decode(words).unwrap(), "Hey  my friend");
        let never = Metaspace { prepend_scheme: PrependScheme::Never, split: false, ..Default::default() };
        assert_eq!(PreTokenizer::Metaspace(never).words("Hey you").unwrap(), ["Hey▁you"]);
    }

    #[test]
    fn older_files() {
        let read = |json: &str| serde_json::from_str::<PreTokenizer>(json);
        let old = r#"{"type":"Metaspace","replacement":"▁","add_prefix_space":true,"str_rep":"▁"}"#;
        assert_eq!(read(old).unwrap(), PreTokenizer::Metaspace(Metaspace::default()));
        assert!(read(r#"{"type":"Metaspace","replacement":"▁","add_prefix_space":false}"#).is_err());
        let new = r#"{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":false}"#;
        assert_eq!(serde_json::to_string(&read(new).unwrap()).unwrap(), new);
    }
}

//! Pieces and their ids, both ways.

use hashbrown::HashMap;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::{Error, Result};

/// The pieces of a model with their ids. Ids need not be contiguous.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocab {
    ids: HashMap<Box<str>, u32>,
    tokens: Vec<Option<Box<str>>>,
}

/// Ids above this are considered a mistake: the table of pieces would be mostly empty.
pub(crate) const MAX_ID: u32 = 1 << 22;

impl Vocab {
    /// Pieces with the ids 0, 1, …; fails if one is repeated.
    pub fn from_tokens<T: Into<String>>(tokens: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut vocab = Self::default();
        for (id, token) in tokens.into_iter().enumerate() {
            vocab.insert(token.into(), u32::try_from(id).unwrap_or(u32::MAX))?;
        }
        Ok(vocab)
    }

    /// Adds a piece; fails if the piece or the id already exists.
    pub fn insert(&mut self, token: String, id: u32) -> Result<()> {
        if id > MAX_ID {
            return Err(Error::invalid("vocab", format!("id {id} of {token:?} is above {MAX_ID}")));
        }
        let slot = id as usize;
        if slot >= self.tokens.len() {
            self.tokens.resize(slot + 1, None);
        }
        if let Some(other) = &self.tokens[slot] {
            let message = format!("{token:?} and {other:?} both have id {id}");
            return Err(Error::invalid("vocab", message));
        }
        if let Some(other) = self.ids.get(token.as_str()) {
            let message = format!("{token:?} comes twice, with ids {other} and {id}");
            return Err(Error::invalid("vocab", message));
        }
        let token: Box<str> = token.into();
        self.tokens[slot] = Some(token.clone());
        self.ids.insert(token, id);
        Ok(())
    }

    /// The id of a piece.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// The piece with an id.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)?.as_deref()
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no pieces.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// More than every id.
    pub(super) fn id_bound(&self) -> usize {
        self.tokens.len()
    }

    /// Ids and pieces, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        let all = self.tokens.iter().enumerate();
        all.filter_map(|(id, token)| Some((id as u32, token.as_deref()?)))
    }
}

impl Serialize for Vocab {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (id, token) in self.iter() {
            map.serialize_entry(token, &id)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocab;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object of pieces and ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut vocab = Vocab::default();
                while let Some((token, id)) = map.next_entry::<String, u32>()? {
                    vocab.insert(token, id).map_err(serde::de::Error::custom)?;
                }
                Ok(vocab)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let mut vocab = Vocab::from_tokens(["a", "b"]).unwrap();
        vocab.insert("d".into(), 5).unwrap();
        assert_eq!((vocab.id("b"), vocab.token(5), vocab.token(3)), (Some(1), Some("d"), None));
        let json = serde_json::to_string(&vocab).unwrap();
        assert_eq!(json, r#"{"a":0,"b":1,"d":5}"#);
        assert_eq!(serde_json::from_str::<Vocab>(&json).unwrap(), vocab);
    }

    #[test]
    fn doubles_are_refused() {
        let error = |json| serde_json::from_str::<Vocab>(json).unwrap_err().to_string();
        assert!(error(r#"{"a":0,"b":0}"#).contains("both have id 0"));
        assert!(error(r#"{"a":0,"a":1}"#).contains("comes twice"));
        assert!(error(r#"{"a":4000000000}"#).contains("above"));
    }
}

//! The pieces before and after a text: a `tokenizer.json` has them in its `post_processor`.

use super::{Source, refuse, text, type_of};
use crate::Result;
use serde_json::{Value as Json, json};

/// The pieces that begin and end one text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ends<'a> {
    pub first: Option<&'a str>,
    pub last: Option<&'a str>,
}

impl<'a> Ends<'a> {
    pub fn of(source: &Source<'a>) -> Result<Self> {
        match source.json.get("post_processor") {
            None | Some(Json::Null) => Ok(Self::default()),
            Some(stage) => Self::of_stage(stage),
        }
    }

    fn of_stage(stage: &'a Json) -> Result<Self> {
        match text(stage, "/type") {
            // Changes offsets alone.
            "ByteLevel" => Ok(Self::default()),
            "BertProcessing" | "RobertaProcessing" => {
                Ok(Self { first: Some(text(stage, "/cls/0")), last: Some(text(stage, "/sep/0")) })
            }
            "TemplateProcessing" => Self::of_template(stage),
            "Sequence" => {
                let stages = stage.get("processors").and_then(Json::as_array).map_or(&[][..], |all| all);
                let mut ends = Self::default();
                for stage in stages {
                    let more = Self::of_stage(stage)?;
                    if more != Self::default() && ends != Self::default() {
                        return Err(refuse("two stages of its post-processor add pieces; expected one"));
                    }
                    if more != Self::default() {
                        ends = more;
                    }
                }
                Ok(ends)
            }
            _ => Err(refuse(format_args!("its post-processor {} has no place in GGUF", type_of(stage)))),
        }
    }

    fn of_template(stage: &'a Json) -> Result<Self> {
        let parts = stage.get("single").and_then(Json::as_array).map_or(&[][..], |all| all);
        let special = |part: &'a Json| part.pointer("/SpecialToken/id").and_then(Json::as_str);
        let place = parts.iter().position(|part| part.get("Sequence").is_some());
        let (before, after) = parts.split_at(place.unwrap_or(0));
        let after = after.get(1..).unwrap_or_default();
        match (before, after) {
            ([] | [_], [] | [_]) if place.is_some() => {
                Ok(Self { first: before.first().and_then(special), last: after.first().and_then(special) })
            }
            _ => Err(refuse(
                "its template adds more than one piece before or after a text, which llama.cpp cannot",
            )),
        }
    }

    /// Checks that the pieces are those with these roles, which llama.cpp adds.
    pub fn check(&self, source: &Source, first: &str, last: &str) -> Result<()> {
        for (found, role) in [(self.first, first), (self.last, last)] {
            if let Some(found) = found
                && source.role(role) != Some(found)
            {
                let (found, expected) =
                    (found.escape_debug(), source.role(role).unwrap_or("none").escape_debug());
                return Err(refuse(format_args!(
                    "it adds the piece `{found}` to a text; llama.cpp would add the `{role}`, which is `{expected}`"
                )));
            }
        }
        Ok(())
    }
}

/// A `post_processor` that adds these pieces, with their ids.
pub(super) fn template(first: Option<(&str, usize)>, last: Option<(&str, usize)>) -> Json {
    let special = |token: Option<(&str, usize)>, kind: u8| {
        token.map(|(token, _)| json!({ "SpecialToken": { "id": token, "type_id": kind } }))
    };
    let sequence = |name: &str, kind: u8| Some(json!({ "Sequence": { "id": name, "type_id": kind } }));
    let of = |parts: &[Option<Json>]| parts.iter().flatten().cloned().collect::<Json>();
    let single = of(&[special(first, 0), sequence("A", 0), special(last, 0)]);
    let mut pair = vec![special(first, 0), sequence("A", 0), special(last, 0)];
    // Without a piece that ends it, a second text begins as the first does.
    if last.is_none() {
        pair.push(special(first, 1));
    }
    pair.extend([sequence("B", 1), special(last, 1)]);
    let tokens: serde_json::Map<String, Json> = first
        .into_iter()
        .chain(last)
        .map(|(token, id)| (token.to_owned(), json!({ "id": token, "ids": [id], "tokens": [token] })))
        .collect();
    json!({ "type": "TemplateProcessing", "single": single, "pair": of(&pair), "special_tokens": tokens })
}

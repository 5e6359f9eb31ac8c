//! A tokenizer without the pieces that a corpus lacks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{Error, Model, Result, Tokenizer};

/// A [pruned](Tokenizer::keeping) tokenizer, and where its pieces come from.
#[derive(Debug)]
pub struct PrunedTokenizer {
    /// The tokenizer, whose ids are consecutive.
    pub tokenizer: Tokenizer,
    /// The old id of each new one, in ascending order.
    pub old_ids: Vec<u32>,
}

impl Tokenizer {
    /// The tokenizer with only these pieces, by their ids, and those that it cannot do without. It cuts every text
    /// whose pieces are among `used` as before; pieces keep their order.
    ///
    /// Kept besides: added tokens, the unknown piece, the padding, and the tokens of the post-processor; ids below that
    /// of the padding, because RoBERTa counts positions from it; bytes. Of WordPiece and Unigram the characters of
    /// all pieces that are kept, so that other words of these characters have pieces; of Unigram also the least
    /// probable piece, which decides what an unknown character costs. Of BPE the pieces that no merge makes, and all
    /// that the merges of kept pieces pass through.
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Vocab};
    /// let vocab = Vocab::from_tokens(["[UNK]", "sea", "##side", "mountain", "s", "##e", "##a"])?;
    /// let tokenizer = Tokenizer::bert(vocab, true)?;
    /// let used = tokenizer.encode_ids("sea seaside", false)?;
    /// let pruned = tokenizer.keeping(used)?;
    /// assert_eq!(pruned.old_ids, [0, 1, 2, 4, 5, 6]);
    /// assert_eq!(pruned.tokenizer.encode("seaside", false)?.tokens, ["sea", "##side"]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// A Marian tokenizer, whose ids come from another vocabulary.
    pub fn keeping(&self, used: impl IntoIterator<Item = u32>) -> Result<PrunedTokenizer> {
        if matches!(self.model(), Model::Marian(_)) {
            let message = "Marian's ids come from a vocabulary of their own, which cannot be pruned";
            return Err(Error::invalid("model", message));
        }
        let mut file: Value = serde_json::from_str(&self.to_json()).expect("what was written is JSON");
        let mut kept: BTreeSet<u32> = used.into_iter().collect();
        kept.extend(self.added_tokens().map(|(id, _)| id));
        kept.extend(self.special_ids().pad.into_iter().flat_map(|pad| 0..=pad));
        each_id(&mut file, &mut |id| _ = kept.insert(*id));
        match &self.model() {
            Model::WordPiece(_) => {
                add_characters(self, &file["model"]["continuing_subword_prefix"], &mut kept)
            }
            Model::Unigram(_) => {
                add_characters(self, &Value::Null, &mut kept);
                kept.extend(least_probable(&file["model"]["vocab"]));
            }
            Model::Bpe(_) => add_merged(self, &file["model"]["merges"], &mut kept),
            _ => {}
        }
        kept.extend((0..=u8::MAX).filter_map(|byte| self.token_to_id(&format!("<0x{byte:02X}>"))));
        let old_ids: Vec<u32> = kept.into_iter().filter(|id| self.id_to_token(*id).is_some()).collect();
        let new: BTreeMap<u32, u32> = old_ids.iter().zip(0..).map(|(old, new)| (*old, new)).collect();
        each_id(&mut file, &mut |id| *id = new[id]);
        for token in file["added_tokens"].as_array_mut().into_iter().flatten() {
            renumber(&mut token["id"], &new);
        }
        cut_model(&mut file["model"], self, &new);
        let mut tokenizer = Self::from_json(&file.to_string())?;
        tokenizer.set_config(self.config().clone());
        Ok(PrunedTokenizer { tokenizer, old_ids })
    }
}

/// Passes on every id outside the model and the added tokens: those of the post-processor and the padding, and the
/// model's unknown piece.
fn each_id(file: &mut Value, visit: &mut dyn FnMut(&mut u32)) {
    let mut of = |value: &mut Value| {
        if let Some(id) = value.as_u64() {
            let mut id = id as u32;
            visit(&mut id);
            *value = id.into();
        }
    };
    fn processor(value: &mut Value, of: &mut dyn FnMut(&mut Value)) {
        for key in ["sep", "cls"] {
            // A token and its id.
            if let Some(id) = value.get_mut(key).and_then(|pair| pair.get_mut(1)) {
                of(id);
            }
        }
        for token in value.get_mut("special_tokens").and_then(Value::as_object_mut).into_iter().flatten() {
            token.1.get_mut("ids").and_then(Value::as_array_mut).into_iter().flatten().for_each(&mut *of);
        }
        for inner in value.get_mut("processors").and_then(Value::as_array_mut).into_iter().flatten() {
            processor(inner, of);
        }
    }
    processor(&mut file["post_processor"], &mut of);
    if let Some(id) = file["padding"].get_mut("pad_id") {
        of(id);
    }
    // Of Unigram; other models name it.
    if let Some(id) = file["model"].get_mut("unk_id") {
        of(id);
    } else if let Some(name) = file["model"]["unk_token"].as_str()
        && let Some(id) = file["model"]["vocab"].get(name).and_then(Value::as_u64)
    {
        // It has no place of its own to renumber.
        visit(&mut (id as u32));
    }
}

fn renumber(value: &mut Value, new: &BTreeMap<u32, u32>) {
    if let Some(id) = value.as_u64().and_then(|id| new.get(&(id as u32))) {
        *value = (*id).into();
    }
}

/// Adds the pieces of single characters, with and without the prefix of a word's later pieces, of all characters in
/// kept pieces.
fn add_characters(tokenizer: &Tokenizer, prefix: &Value, kept: &mut BTreeSet<u32>) {
    let prefix = prefix.as_str().unwrap_or_default();
    let pieces = kept.iter().filter_map(|id| tokenizer.id_to_token(*id));
    let inner = |piece: &str| piece.strip_prefix(prefix).unwrap_or(piece).to_owned();
    let characters: BTreeSet<char> =
        pieces.flat_map(|piece| inner(piece).chars().collect::<Vec<_>>()).collect();
    for character in characters {
        let names = [character.to_string(), format!("{prefix}{character}")];
        kept.extend(names.iter().filter_map(|name| tokenizer.token_to_id(name)));
    }
}

/// The id of the piece with the lowest score.
fn least_probable(vocab: &Value) -> Option<u32> {
    let scores = vocab.as_array()?.iter().map(|piece| piece.get(1).and_then(Value::as_f64));
    let scores = scores.enumerate().filter_map(|(id, score)| Some((id, score?)));
    scores.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(id, _)| id as u32)
}

/// Adds the pieces that no merge makes, and those that the merges of kept pieces are made of.
fn add_merged(tokenizer: &Tokenizer, merges: &Value, kept: &mut BTreeSet<u32>) {
    let mut parts: BTreeMap<u32, Vec<[u32; 2]>> = BTreeMap::new();
    for (pair, whole) in merged(tokenizer, merges) {
        parts.entry(whole).or_default().push(pair);
    }
    let alphabet = tokenizer.model().vocab().iter().map(|(id, _)| id).filter(|id| !parts.contains_key(id));
    kept.extend(alphabet);
    let mut open: Vec<u32> = kept.iter().copied().collect();
    while let Some(piece) = open.pop() {
        let parts = parts.get(&piece).into_iter().flatten().flatten();
        open.extend(parts.copied().filter(|part| kept.insert(*part)));
    }
}

/// The merges' parts and what they make.
fn merged<'a>(tokenizer: &'a Tokenizer, merges: &'a Value) -> impl Iterator<Item = ([u32; 2], u32)> + 'a {
    let Model::Bpe(model) = tokenizer.model() else { unreachable!("only BPE has merges") };
    let prefix = model.config().continuing_subword_prefix.as_deref().unwrap_or_default();
    merges.as_array().into_iter().flatten().filter_map(move |pair| {
        let (first, second) = (pair.get(0)?.as_str()?, pair.get(1)?.as_str()?);
        // The second part loses its prefix in the whole.
        let whole = format!("{first}{}", second.strip_prefix(prefix).unwrap_or(second));
        let id = |name: &str| tokenizer.model().vocab().id(name);
        Some(([id(first)?, id(second)?], id(&whole)?))
    })
}

/// Removes the pieces without a new id, and the merges that need them.
fn cut_model(model: &mut Value, tokenizer: &Tokenizer, new: &BTreeMap<u32, u32>) {
    if let Some(merges) = model.get("merges") {
        let keeps = merged(tokenizer, merges)
            .map(|([a, b], whole)| [a, b, whole].iter().all(|id| new.contains_key(id)));
        let keeps: Vec<bool> = keeps.collect();
        let mut keeps = keeps.into_iter();
        if let Some(merges) = model["merges"].as_array_mut() {
            merges.retain(|_| keeps.next() == Some(true));
        }
    }
    match &mut model["vocab"] {
        Value::Object(vocab) => {
            let ids = vocab.iter().filter_map(|(piece, id)| {
                Some((piece.clone(), Value::from(*new.get(&(id.as_u64()? as u32))?)))
            });
            *vocab = ids.collect::<Map<_, _>>();
        }
        // Unigram's pieces are in the order of their ids.
        Value::Array(pieces) => {
            let mut ids = 0..;
            pieces.retain(|_| ids.next().is_some_and(|id| new.contains_key(&id)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{BpeTrainer, UnigramTrainer, WordLevelTrainer, WordPieceTrainer};

    const CORPUS: [&str; 3] = ["the old sea", "the seaside was old", "she sells sea shells"];
    const OTHER: [&str; 2] = ["mountains are far away from here", "a valley full of flowers"];

    /// Every text of the corpus has the same pieces as before, and other texts can still be encoded.
    fn check(tokenizer: &Tokenizer) -> PrunedTokenizer {
        let used: Vec<u32> =
            CORPUS.iter().flat_map(|text| tokenizer.encode_ids(text, true).unwrap()).collect();
        let pruned = tokenizer.keeping(used).unwrap();
        assert!(pruned.old_ids.len() < tokenizer.vocab_size(), "{:?}", pruned.old_ids.len());
        assert_eq!(pruned.tokenizer.vocab_size(), pruned.old_ids.len());
        for text in CORPUS {
            let (before, after) =
                (tokenizer.encode(text, true).unwrap(), pruned.tokenizer.encode(text, true).unwrap());
            assert_eq!(before.tokens, after.tokens);
            let old: Vec<u32> = after.ids.iter().map(|id| pruned.old_ids[*id as usize]).collect();
            assert_eq!(old, before.ids);
        }
        for text in OTHER {
            pruned.tokenizer.encode(text, true).unwrap();
        }
        for (new, old) in pruned.old_ids.iter().enumerate() {
            assert_eq!(pruned.tokenizer.id_to_token(new as u32), tokenizer.id_to_token(*old));
        }
        // It is written and read.
        let again = Tokenizer::from_json(&pruned.tokenizer.to_json()).unwrap();
        assert_eq!(
            again.encode_ids(CORPUS[1], true).unwrap(),
            pruned.tokenizer.encode_ids(CORPUS[1], true).unwrap()
        );
        pruned
    }

    #[test]
    fn every_model_cuts_the_corpus_as_before() {
        let texts = || CORPUS.into_iter().chain(OTHER);
        check(&WordPieceTrainer { vocab_size: 120, ..WordPieceTrainer::default() }.train(texts()).unwrap());
        let bytes = check(&BpeTrainer { vocab_size: 330, ..BpeTrainer::default() }.train(texts()).unwrap());
        // Five special tokens, all bytes, and some of the merges.
        assert!(bytes.old_ids.len() > 261, "{}", bytes.old_ids.len());
        let prefixed =
            BpeTrainer { continuing_subword_prefix: Some("##".into()), ..BpeTrainer::characters() };
        for trainer in [BpeTrainer::characters(), prefixed] {
            check(&BpeTrainer { vocab_size: 120, ..trainer }.train(texts()).unwrap());
        }
        check(&UnigramTrainer { vocab_size: 70, ..UnigramTrainer::default() }.train(texts()).unwrap());
        check(&WordLevelTrainer::default().train(texts()).unwrap());
    }

    #[test]
    fn ids_stand_where_their_pieces_stand() {
        let tokenizer = WordPieceTrainer { vocab_size: 120, ..WordPieceTrainer::default() };
        let mut tokenizer = tokenizer.train(CORPUS.into_iter().chain(OTHER)).unwrap();
        // After the vocabulary, and known by its name alone.
        tokenizer.add_tokens([crate::AddedToken::special("[MINE]")]).unwrap();
        let pruned = check(&tokenizer).tokenizer;
        let (old, new) = (tokenizer.token_to_id("[MINE]").unwrap(), pruned.token_to_id("[MINE]").unwrap());
        assert!(new < old && pruned.is_special(new));
        assert_eq!(pruned.encode("[MINE] sea", true).unwrap().tokens, ["[CLS]", "[MINE]", "sea", "[SEP]"]);
        assert_eq!(pruned.config(), tokenizer.config());
    }
}

//! Words that fill a slot of a text, by their scores there.

use super::blanks::BlankText;
use super::{LeftToRight, Likelihood, Running, Scorer, plain};
use crate::fill_mask::FillMask;
use crate::{Result, TrainerError};
use cloze_tokenizer::{Encoding, Tokenizer};
use std::collections::BTreeMap;

/// Texts that are held at a time.
const TEXTS: usize = 8192;

/// A text with a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// What is before the slot.
    pub before: String,
    /// What is after it.
    pub after: String,
}

impl Slot {
    /// The text with a word in the slot.
    pub fn filled(&self, word: &str) -> String {
        format!("{}{word}{}", self.before, self.after)
    }
}

/// The number of pieces of words that share a copy, and those that are known of them. To each belong the words, and their next
/// pieces.
type Known<'a> = (usize, &'a [u32]);

/// What a masked model says at a slot of one piece.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The rank of the right piece among all pieces, from 1; of equal ones the lower id is before the higher.
    pub rank: usize,
    /// The right piece's log-probability, in nats.
    pub log_prob: f64,
    /// The most probable pieces, best first.
    pub best: Vec<u32>,
}

impl Likelihood {
    /// The pieces of a word in a slot.
    ///
    /// # Errors
    /// [`TrainerError::BadInput`] for a word with a part that the vocabulary lacks, or without a piece of its own; a text
    /// that the tokenizer rejects.
    pub fn pieces_in(&self, slot: &Slot, word: &str) -> Result<Vec<u32>> {
        let tokenizer = self.tokenizer();
        let encoding = tokenizer.encode(&slot.filled(word), false)?;
        let pieces: Vec<u32> = span(&encoding, slot, word).map(|at| encoding.ids[at]).collect();
        let unknown = tokenizer.special_ids().unk;
        match pieces.is_empty() || pieces.iter().any(|id| Some(*id) == unknown) {
            true => Err(TrainerError::BadInput {
                problem: format!(
                    "{word:?} has no piece in the model's vocabulary; expected a word of its pieces: correct it or leave it out"
                ),
            }),
            false => Ok(pieces),
        }
    }

    /// Checks that the model takes a slot with words of these pieces, or, without words, with one piece.
    ///
    /// # Errors
    /// [`TrainerError::BadInput`] for a text with a mask of its own, or without a piece to predict;
    /// [`TrainerError::TextTooLong`].
    pub fn check_slot(&self, slot: &Slot, words: &[String], pieces: &[Vec<u32>]) -> Result<()> {
        let longest = words.iter().zip(pieces).max_by_key(|(_, pieces)| pieces.len());
        match (&self.scorer, longest) {
            (Scorer::Masked(model), longest) => {
                let n = longest.map_or(1, |(_, pieces)| pieces.len());
                self.masked(model, slot, &[], n).map(drop)
            }
            (Scorer::LeftToRight(_), Some((word, _))) => self.encode(&slot.filled(word), None).map(drop),
            _ => Ok(()),
        }
    }

    /// A piece as a text.
    pub fn piece_text(&self, id: u32) -> String {
        let text = self.tokenizer().decode(&[id], false).unwrap_or_default();
        text.trim().to_owned()
    }

    /// The tokenizer of what is predicted.
    fn tokenizer(&self) -> &Tokenizer {
        match &self.scorer {
            Scorer::Masked(model) => &model.tokenizer,
            Scorer::Permutation { tokenizer, .. } => tokenizer,
            Scorer::LeftToRight(scorer) => &scorer.tokenizer,
            Scorer::EncoderDecoder(scorer) => &scorer.target,
        }
    }

    /// For each slot with its right piece, the piece's rank in the vocabulary and the `top` most probable ones.
    ///
    /// # Errors
    /// [`TrainerError::BadInput`] for a model that is not masked, or a text with a mask of its own;
    /// [`TrainerError::TextTooLong`]; [`TrainerError::OutputNotFinite`].
    pub fn answers(&self, slots: &[(Slot, u32)], top: usize) -> Result<Vec<Answer>> {
        let Scorer::Masked(model) = &self.scorer else {
            return Err(TrainerError::BadInput {
                problem:
                    "only a masked model ranks its whole vocabulary at a slot; expected a list of candidates"
                        .into(),
            });
        };
        let texts =
            slots.iter().map(|(slot, _)| self.masked(model, slot, &[], 1)).collect::<Result<Vec<_>>>()?;
        let nothing = Answer { rank: 0, log_prob: 0.0, best: Vec::new() };
        let mut answers = vec![nothing; slots.len()];
        let mut order: Vec<u32> = Vec::new();
        model.blank_distributions(&texts, self.batch_tokens, &mut |(text, _), row| {
            let right = slots[text].1 as usize;
            let is_before =
                |(id, value): (usize, &f32)| *value > row[right] || *value == row[right] && id < right;
            order.clear();
            order.extend(0..row.len() as u32);
            let by_value = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
            let top = top.min(order.len());
            if top > 0 {
                order.select_nth_unstable_by(top - 1, by_value);
                order.truncate(top);
                order.sort_by(by_value);
            }
            answers[text] = Answer {
                rank: 1 + row.iter().enumerate().filter(|place| is_before(*place)).count(),
                log_prob: f64::from(row[right]),
                best: if top == 0 { Vec::new() } else { order.clone() },
            };
        })?;
        Ok(answers)
    }

    /// The scores of words in slots: a row for each slot, a number for each word. `pieces` are the words' pieces there
    /// ([`pieces_in`](Self::pieces_in)).
    ///
    /// | model | score of a word |
    /// | --- | --- |
    /// | masked, XLNet | the mean of `log P` over its pieces, the later ones of which are hidden too |
    /// | left-to-right | `log P` of the whole text with the word in its slot |
    ///
    /// A word of several pieces is thus compared with one of one piece as in Kassner et al. 2021 ("Multilingual LAMA",
    /// §3.2), but for the earlier pieces, which are given.
    ///
    /// # Errors
    /// Those of [`answers`](Self::answers), and [`TrainerError::BadInput`] for an encoder–decoder.
    ///
    /// # Panics
    /// Unless there are pieces for each word.
    pub fn word_scores(
        &self,
        slots: &[Slot],
        words: &[String],
        pieces: &[Vec<u32>],
    ) -> Result<Vec<Vec<f64>>> {
        assert_eq!(words.len(), pieces.len(), "words, and their pieces");
        if words.is_empty() {
            return Ok(vec![Vec::new(); slots.len()]);
        }
        let mut scores = Vec::with_capacity(slots.len());
        for slots in slots.chunks((TEXTS / words.len()).max(1)) {
            scores.extend(match &self.scorer {
                Scorer::Masked(model) => self.masked_word_scores(model, slots, pieces)?,
                Scorer::Permutation { tokenizer, .. } => self.filled_word_scores(tokenizer, slots, words)?,
                Scorer::LeftToRight(scorer) => self.running_word_scores(scorer, slots, words)?,
                Scorer::EncoderDecoder(_) => {
                    let problem = "an encoder–decoder has no source for a text with a slot; expected a left-to-right or masked \
                                   model";
                    return Err(TrainerError::BadInput { problem: problem.into() });
                }
            });
        }
        Ok(scores)
    }

    /// The score of the whole text with each word in each slot. The tokens with which all texts of a slot begin are predicted
    /// in the first one alone.
    fn running_word_scores(
        &self,
        scorer: &LeftToRight,
        slots: &[Slot],
        words: &[String],
    ) -> Result<Vec<Vec<f64>>> {
        let texts: Vec<String> =
            slots.iter().flat_map(|slot| words.iter().map(|word| slot.filled(word))).collect();
        let pieces = scorer.tokenizer.encode_ids_batch(&texts, false)?;
        let mut all =
            pieces.iter().map(|pieces| self.running(scorer, pieces)).collect::<Result<Vec<Running>>>()?;
        for texts in all.chunks_mut(words.len()) {
            let shared = shared_beginning(texts).max(1);
            texts[1..].iter_mut().for_each(|text| text.done = shared);
        }
        let log_probs = self.running_log_probs(scorer, &all.iter().collect::<Vec<_>>(), &mut |_| ())?;
        let of_slot = |(texts, log_probs): (&[Running], &[Vec<f64>])| {
            let own = log_probs.iter().map(|log_probs| log_probs.iter().sum::<f64>());
            let shared = texts.get(1).map_or(0, |text| text.done - 1);
            let shared: f64 = log_probs[0][..shared].iter().sum();
            own.enumerate().map(|(word, own)| if word == 0 { own } else { shared + own }).collect()
        };
        Ok(all.chunks(words.len()).zip(log_probs.chunks(words.len())).map(of_slot).collect())
    }

    /// A text with `n` masks in its slot, of which the first ones are filled with `known` pieces and the next is predicted.
    fn masked(&self, model: &FillMask, slot: &Slot, known: &[u32], n: usize) -> Result<BlankText> {
        let text = slot.filled(&model.mask_token().repeat(n));
        let encoding = model.tokenizer.encode(&text, true)?;
        self.check_len(encoding.len(), Some(model.max_len()))?;
        let masks: Vec<usize> = (0..encoding.len()).filter(|at| encoding.ids[*at] == model.mask).collect();
        let first = match masks[..] {
            [first, ..] if masks.len() == n => first,
            _ => {
                let problem = format!(
                    "the text has {} masks of its own; expected none besides its slot: {text:?}",
                    masks.len().saturating_sub(n)
                );
                return Err(TrainerError::BadInput { problem });
            }
        };
        let mut text = plain(&encoding);
        for (at, id) in (first..).zip(known) {
            text.ids[at] = *id as i32;
        }
        text.blanks.push(first + known.len()..first + n);
        Ok(text)
    }

    /// Words that begin with the same pieces, and have as many of them, share their copies.
    fn masked_word_scores(
        &self,
        model: &FillMask,
        slots: &[Slot],
        pieces: &[Vec<u32>],
    ) -> Result<Vec<Vec<f64>>> {
        let mut nodes: BTreeMap<Known<'_>, Vec<(usize, usize)>> = BTreeMap::new();
        for (word, pieces) in pieces.iter().enumerate() {
            for (at, id) in pieces.iter().enumerate() {
                nodes.entry((pieces.len(), &pieces[..at])).or_default().push((word, *id as usize));
            }
        }
        let nodes: Vec<_> = nodes.into_iter().collect();
        let mut texts = Vec::with_capacity(slots.len() * nodes.len());
        for slot in slots {
            for ((n, known), _) in &nodes {
                texts.push(self.masked(model, slot, known, *n)?);
            }
        }
        let mut scores = vec![vec![0.0; pieces.len()]; slots.len()];
        model.blank_distributions(&texts, self.batch_tokens, &mut |(text, _), row| {
            for (word, id) in &nodes[text % nodes.len()].1 {
                scores[text / nodes.len()][*word] += f64::from(row[*id]) / pieces[*word].len() as f64;
            }
        })?;
        Ok(scores)
    }

    /// Each word in a text of its own, whose other pieces are given.
    fn filled_word_scores(
        &self,
        tokenizer: &Tokenizer,
        slots: &[Slot],
        words: &[String],
    ) -> Result<Vec<Vec<f64>>> {
        let mut texts = Vec::with_capacity(slots.len() * words.len());
        for slot in slots {
            for word in words {
                let encoding = tokenizer.encode(&slot.filled(word), true)?;
                let pieces: Vec<usize> = span(&encoding, slot, word).collect();
                let end = pieces.last().map_or(0, |last| last + 1);
                let blanks = pieces.iter().map(|at| *at..end).collect();
                texts.push(BlankText { blanks, ..plain(&encoding) });
            }
        }
        let mean = |log_probs: &Vec<f64>| log_probs.iter().sum::<f64>() / log_probs.len().max(1) as f64;
        let means: Vec<f64> = self.blank_log_probs(&texts)?.iter().map(mean).collect();
        Ok(means.chunks(words.len()).map(<[f64]>::to_vec).collect())
    }

    fn blank_log_probs(&self, texts: &[BlankText]) -> Result<Vec<Vec<f64>>> {
        match &self.scorer {
            Scorer::Permutation { model, .. } => super::permutation::blank_log_probs(
                model,
                texts,
                self.batch_tokens,
                &self.device,
                &mut |_| (),
            ),
            Scorer::Masked(model) => model.blank_log_probs(texts, self.batch_tokens, &mut |_| ()),
            _ => unreachable!("a model that sees both sides"),
        }
    }
}

/// The number of tokens with which all texts begin.
fn shared_beginning(texts: &[Running]) -> usize {
    let Some((first, others)) = texts.split_first() else { return 0 };
    others.iter().fold(first.ids.len(), |shared, text| {
        first.ids[..shared].iter().zip(&text.ids).take_while(|(a, b)| a == b).count()
    })
}

/// The pieces of the word in a slot.
fn span<'a>(encoding: &'a Encoding, slot: &Slot, word: &str) -> impl Iterator<Item = usize> + use<'a> {
    let (start, end) = (slot.before.len(), slot.before.len() + word.len());
    (0..encoding.len()).filter(move |at| {
        let (first, last) = encoding.offsets[*at];
        encoding.special_tokens_mask[*at] == 0 && first < end && last > start
    })
}

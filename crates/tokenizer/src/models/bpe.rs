//! Byte-pair encoding: characters joined pair by pair, in the order the pairs were learnt (Sennrich
//! et al. 2016).

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::{Piece, Vocab};
use crate::{Error, Result};

/// Settings of a [`Bpe`] model, named as in `tokenizer.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BpeConfig {
    /// Stands for characters outside the vocabulary, which are dropped if there is none.
    pub unk_token: Option<String>,
    /// Begins every piece inside a word.
    pub continuing_subword_prefix: Option<String>,
    /// Ends every piece at the end of a word.
    pub end_of_word_suffix: Option<String>,
    /// Whether neighbouring unknown characters become one unknown token.
    pub fuse_unk: bool,
    /// Whether a word that is a piece is taken whole, whatever the merges say.
    pub ignore_merges: bool,
}

/// A BPE model, of characters or (with the byte-level pre-tokenizer) of bytes.
#[derive(Debug, Clone)]
pub struct Bpe {
    vocab: Vocab,
    /// The pairs of pieces, in the order they were learnt.
    merges: Vec<(u32, u32)>,
    /// A pair's rank and what it becomes.
    ranks: HashMap<(u32, u32), (u32, u32)>,
    config: BpeConfig,
    unk_id: Option<u32>,
    /// Ids of one-character pieces below U+0180, which covers the byte-level alphabet.
    chars: Box<[Option<u32>]>,
}

/// Words up to this many symbols are merged by scanning, longer ones with a heap.
const SCAN: usize = 32;
const NONE: u32 = u32::MAX;

impl Bpe {
    /// A model from its vocabulary and the pairs, first learnt first.
    ///
    /// # Errors
    /// A merge (named by its 0-based number) or the unknown token is not in the vocabulary.
    pub fn new<A: AsRef<str>, B: AsRef<str>>(
        vocab: Vocab,
        merges: impl IntoIterator<Item = (A, B)>,
        config: BpeConfig,
    ) -> Result<Self> {
        let mut pairs = Vec::new();
        for (rank, (a, b)) in merges.into_iter().enumerate() {
            let id = |piece: &str| {
                vocab.id(piece).ok_or_else(|| {
                    Error::invalid(
                        format!("model.merges[{rank}]"),
                        format!("{piece:?} is not in the vocabulary"),
                    )
                })
            };
            pairs.push((id(a.as_ref())?, id(b.as_ref())?));
        }
        Self::from_ids(vocab, pairs, config)
    }

    pub(crate) fn from_ids(vocab: Vocab, merges: Vec<(u32, u32)>, config: BpeConfig) -> Result<Self> {
        let mut ranks = HashMap::with_capacity(merges.len());
        let prefix = config.continuing_subword_prefix.as_deref().unwrap_or("");
        let mut joined = String::new();
        for (rank, &(a, b)) in merges.iter().enumerate() {
            let text = |id| vocab.token(id).unwrap_or_default();
            joined.clear();
            joined.push_str(text(a));
            joined.push_str(text(b).strip_prefix(prefix).unwrap_or(text(b)));
            let id = vocab.id(&joined).ok_or_else(|| {
                Error::invalid(
                    format!("model.merges[{rank}]"),
                    format!("its result {joined:?} is not in the vocabulary"),
                )
            })?;
            ranks.insert((a, b), (rank as u32, id));
        }
        let unk_id = match &config.unk_token {
            Some(unk) => Some(vocab.id(unk).ok_or_else(|| {
                Error::invalid("model.unk_token", format!("{unk:?} is not in the vocabulary"))
            })?),
            None => None,
        };
        let chars = (0..0x180)
            .map(|code| char::from_u32(code).and_then(|c| vocab.id(c.encode_utf8(&mut [0; 4]))))
            .collect();
        Ok(Self { vocab, merges, ranks, config, unk_id, chars })
    }

    /// The pieces and their ids.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The settings.
    pub fn config(&self) -> &BpeConfig {
        &self.config
    }

    /// The merged pairs, in the order they were learnt.
    pub fn merges(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |id| self.vocab.token(id).unwrap_or_default();
        self.merges.iter().map(move |&(a, b)| (text(a), text(b)))
    }

    pub(crate) fn pieces(&self, word: &str, out: &mut Vec<Piece>) {
        if self.config.ignore_merges
            && let Some(id) = self.vocab.id(word)
        {
            out.push(Piece { id, end: word.len() });
            return;
        }
        let first = out.len();
        self.symbols(word, out);
        if out.len() - first <= SCAN {
            self.merge_by_scan(out, first);
        } else {
            self.merge_by_heap(out, first);
        }
    }

    /// Appends the pieces for the word's characters.
    fn symbols(&self, word: &str, out: &mut Vec<Piece>) {
        let prefix = self.config.continuing_subword_prefix.as_deref();
        let suffix = self.config.end_of_word_suffix.as_deref();
        let mut end = 0;
        let mut unknown = None;
        let mut dressed = String::new();
        for (i, c) in word.char_indices() {
            let next = i + c.len_utf8();
            let prefix = prefix.filter(|_| i > 0);
            let suffix = suffix.filter(|_| next == word.len());
            let id = if prefix.is_none() && suffix.is_none() {
                match self.chars.get(c as usize) {
                    Some(id) => *id,
                    None => self.vocab.id(&word[i..next]),
                }
            } else {
                dressed.clear();
                dressed.push_str(prefix.unwrap_or_default());
                dressed.push(c);
                dressed.push_str(suffix.unwrap_or_default());
                self.vocab.id(&dressed)
            };
            let mut push = |id, size: usize| {
                end += size;
                out.push(Piece { id, end });
            };
            match (id, self.unk_id) {
                (Some(id), _) => {
                    if let Some((unk, size)) = unknown.take() {
                        push(unk, size);
                    }
                    push(id, c.len_utf8());
                }
                (None, Some(unk)) => {
                    unknown = match unknown {
                        Some((unk, size)) if self.config.fuse_unk => Some((unk, size + c.len_utf8())),
                        Some((before, size)) => {
                            push(before, size);
                            Some((unk, c.len_utf8()))
                        }
                        None => Some((unk, c.len_utf8())),
                    };
                }
                // As in the reference, dropped characters take no part in the offsets either.
                (None, None) => {}
            }
        }
        if let Some((unk, size)) = unknown {
            out.push(Piece { id: unk, end: end + size });
        }
    }

    /// Joins the lowest-ranked, leftmost pair until there is none; quadratic, and fast for short words.
    fn merge_by_scan(&self, out: &mut Vec<Piece>, first: usize) {
        // ranks[i] is the merge of symbols i and i + 1.
        let mut ranks = [(NONE, 0); SCAN];
        let count = out.len() - first;
        if count < 2 {
            return;
        }
        let merge = |a: Piece, b: Piece| self.ranks.get(&(a.id, b.id)).copied();
        for i in 0..count - 1 {
            ranks[i] = merge(out[first + i], out[first + i + 1]).unwrap_or((NONE, 0));
        }
        let mut count = count;
        while count > 1 {
            let mut best = 0;
            for i in 1..count - 1 {
                if ranks[i].0 < ranks[best].0 {
                    best = i;
                }
            }
            let (rank, id) = ranks[best];
            if rank == NONE {
                break;
            }
            let at = first + best;
            out[at] = Piece { id, end: out[at + 1].end };
            out.remove(at + 1);
            ranks.copy_within(best + 1..count - 1, best);
            count -= 1;
            let rank_of = |i: usize| {
                if i + 1 < count {
                    merge(out[first + i], out[first + i + 1]).unwrap_or((NONE, 0))
                } else {
                    (NONE, 0)
                }
            };
            ranks[best] = rank_of(best);
            if best > 0 {
                ranks[best - 1] = rank_of(best - 1);
            }
        }
    }

    /// The same with a heap and a linked list, `n log n` for words of any length.
    fn merge_by_heap(&self, out: &mut Vec<Piece>, first: usize) {
        let symbols = &mut out[first..];
        let count = symbols.len();
        let mut next: Vec<usize> = (1..=count).collect();
        let mut previous: Vec<usize> = (0..count).map(|i| i.wrapping_sub(1)).collect();
        let mut gone = vec![false; count];
        // Rank, left symbol, and the two ids, by which stale entries are known.
        let mut heap = BinaryHeap::new();
        let consider = |heap: &mut BinaryHeap<_>, symbols: &[Piece], a: usize, b: usize| {
            let pair = (symbols[a].id, symbols[b].id);
            if let Some(&(rank, _)) = self.ranks.get(&pair) {
                heap.push(Reverse((rank, a, pair)));
            }
        };
        for i in 1..count {
            consider(&mut heap, symbols, i - 1, i);
        }
        while let Some(Reverse((_, a, pair))) = heap.pop() {
            let b = next[a];
            if gone[a] || b >= count || (symbols[a].id, symbols[b].id) != pair {
                continue;
            }
            let Some(&(_, id)) = self.ranks.get(&pair) else {
                continue;
            };
            symbols[a] = Piece { id, end: symbols[b].end };
            gone[b] = true;
            next[a] = next[b];
            if next[a] < count {
                previous[next[a]] = a;
                consider(&mut heap, symbols, a, next[a]);
            }
            if previous[a] < count {
                consider(&mut heap, symbols, previous[a], a);
            }
        }
        let mut i = 0;
        let mut kept = first;
        while i < count {
            out[kept] = out[first + i];
            kept += 1;
            i = next[i];
        }
        out.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(bpe: &Bpe, word: &str) -> Vec<(u32, usize)> {
        let mut out = Vec::new();
        bpe.pieces(word, &mut out);
        out.iter().map(|p| (p.id, p.end)).collect()
    }

    fn vocab() -> Vocab {
        Vocab::from_tokens(["a", "b", "ab", "abb", "<unk>", "c"]).unwrap()
    }

    #[test]
    fn merges_in_learnt_order() {
        let bpe = Bpe::new(vocab(), [("a", "b"), ("ab", "b")], BpeConfig::default()).unwrap();
        assert_eq!(ids(&bpe, "abbab"), [(3, 3), (2, 5)]);
        assert_eq!(ids(&bpe, "xab"), [(2, 2)], "no unknown token: dropped");
    }

    #[test]
    fn unknown_characters() {
        let config = BpeConfig { unk_token: Some("<unk>".into()), ..BpeConfig::default() };
        let bpe = Bpe::new(vocab(), [("a", "b")], config.clone()).unwrap();
        assert_eq!(ids(&bpe, "xéab"), [(4, 1), (4, 3), (2, 5)]);
        let fused = BpeConfig { fuse_unk: true, ..config };
        let bpe = Bpe::new(vocab(), [("a", "b")], fused).unwrap();
        assert_eq!(ids(&bpe, "xéab"), [(4, 3), (2, 5)]);
    }

    #[test]
    fn heap_and_scan_agree() {
        let bpe = Bpe::new(vocab(), [("ab", "b"), ("a", "b")], BpeConfig::default()).unwrap();
        let mut state = 1u64;
        for len in 2..SCAN {
            let word: String = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    ["a", "b", "b", "c"][(state >> 60) as usize % 4]
                })
                .collect();
            let mut scan = Vec::new();
            bpe.symbols(&word, &mut scan);
            let mut heap = scan.clone();
            bpe.merge_by_scan(&mut scan, 0);
            bpe.merge_by_heap(&mut heap, 0);
            assert_eq!(scan, heap, "{word}");
        }
    }

    #[test]
    fn suffix_and_prefix() {
        let config = BpeConfig { end_of_word_suffix: Some("</w>".into()), ..BpeConfig::default() };
        let vocab = Vocab::from_tokens(["l", "o</w>", "lo</w>"]).unwrap();
        let bpe = Bpe::new(vocab, [("l", "o</w>")], config).unwrap();
        assert_eq!(ids(&bpe, "lo"), [(2, 2)]);
        assert_eq!(ids(&bpe, "llo"), [(0, 1), (2, 3)]);
    }

    #[test]
    fn a_merge_outside_the_vocabulary_is_named() {
        let error = Bpe::new(vocab(), [("a", "b"), ("b", "c")], BpeConfig::default()).unwrap_err();
        assert_eq!(error.to_string(), "model.merges[1]: its result \"bc\" is not in the vocabulary");
    }
}

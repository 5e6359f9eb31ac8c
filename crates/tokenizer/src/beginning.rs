//! Reads only as much of a text as determines its first pieces.
//!
//! A beginning is cut where both sides are normalised independently. The first pre-tokenisation stage splits
//! it into words, and the last words, which may continue after the cut, are dropped. The rest is what the
//! whole text begins with.

use std::ops::Range;

use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::char::{canonical_combining_class, decompose_compatible};
use unicode_segmentation::UnicodeSegmentation;

use crate::{
    Error, Normalizer, Result, Tokenizer, TruncationDirection, normalized::NormalizedText, splits::Splits,
};

/// Minimum bytes to read first.
const FIRST: usize = 1 << 10;
/// Growth factor of the bytes read.
const GROWTH: usize = 4;
/// Bytes to search for a cut before the wanted one.
const SEARCHED: usize = 1 << 10;
/// Words at the end of a beginning that later text may change. With the known patterns this is two: an
/// unfinished contraction, `'l`, and a run of white space, whose line ends and spaces are separate words.
const UNCERTAIN: usize = 4;
/// Longer added tokens and replaced strings are not searched for across a cut.
const LONGEST: usize = 64;

impl Tokenizer {
    /// Number of pieces of each text that determine truncation, if it cuts at the end.
    pub(crate) fn least_pieces(&self) -> Option<usize> {
        let truncation = self.truncation.as_ref()?;
        match truncation.direction {
            TruncationDirection::Right => truncation.max_length.checked_add(1),
            TruncationDirection::Left => None,
        }
    }

    /// Runs `work` on the words of `text`, or of as much of it as yields `least` pieces; `len` counts them.
    /// The words are complete, and the whole text begins with them.
    ///
    /// # Errors
    /// [`Error::Undecided`] if `text` is not the `whole` text and is not certain to have that many
    /// pieces.
    pub(crate) fn read<T>(
        &self,
        text: &str,
        whole: bool,
        least: Option<usize>,
        track: bool,
        mut work: impl FnMut(&Splits) -> T,
        len: impl Fn(&T) -> usize,
    ) -> Result<T> {
        if let Some(least) = least
            && let Some(margin) = self.margin()
        {
            let mut wanted = least.saturating_mul(8).max(FIRST);
            loop {
                // Without what follows a cut nobody knows whether it is one.
                let last = wanted + margin + FIRST >= text.len();
                let wanted_cut = if last { text.len().saturating_sub(margin) } else { wanted };
                if last && whole {
                    break;
                }
                if let Some(cut) = self.cut_before(text, wanted_cut, margin)? {
                    let found = work(&self.certain(&text[..cut], track)?);
                    if len(&found) >= least {
                        return Ok(found);
                    }
                }
                if last {
                    break;
                }
                wanted = wanted.saturating_mul(GROWTH);
            }
        }
        if !whole {
            return Err(Error::Undecided { bytes: text.len(), truncates: least.is_some() });
        }
        Ok(work(&self.split(text, track)?))
    }

    /// The words of a beginning that later text cannot change.
    fn certain(&self, beginning: &str, track: bool) -> Result<Splits> {
        let mut splits = self.added.split(beginning, self.normalizer.as_ref(), self.tracks(track))?;
        let mut stages = Vec::new();
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.stages(&mut stages);
        }
        for (number, stage) in stages.into_iter().enumerate() {
            stage.cut(&mut splits)?;
            // Later stages work on complete words, each by itself.
            if number == 0 {
                splits.splits.truncate(splits.splits.len().saturating_sub(UNCERTAIN));
            }
        }
        if !self.model.spells_bytes() {
            splits.write_bytes();
        }
        Ok(splits)
    }

    /// Number of bytes on either side that determine whether a cut is valid; `None` if unbounded.
    fn margin(&self) -> Option<usize> {
        let mut stages = Vec::new();
        self.pre_tokenizer.as_ref()?.stages(&mut stages);
        let replaced = self.normalizer.as_ref().map_or(Some(0), Normalizer::reach)?;
        let longest = self.added.longest().max(replaced);
        // Four bytes of a text may become one.
        (stages.first()?.cuts_locally() && longest <= LONGEST).then_some(4 * longest)
    }

    /// The last position at or before `wanted` where `text` can be cut, if one is near.
    fn cut_before(&self, text: &str, wanted: usize, margin: usize) -> Result<Option<usize>> {
        let end = text.floor_char_boundary(wanted);
        let mut after = text[end..].chars().next();
        let mut cut = end;
        for before in text[..end].chars().rev() {
            if end - cut > SEARCHED {
                break;
            }
            if let Some(after) = after
                && can_part(before, after)
                && self.nothing_spans(text, cut, margin)?
            {
                return Ok(Some(cut));
            }
            after = Some(before);
            cut -= before.len_utf8();
        }
        Ok(None)
    }

    /// Whether no added token or replaced string is near a cut.
    fn nothing_spans(&self, text: &str, cut: usize, margin: usize) -> Result<bool> {
        if margin == 0 {
            return Ok(true);
        }
        let start = text.ceil_char_boundary(cut.saturating_sub(margin));
        let end = text.floor_char_boundary(cut.saturating_add(margin));
        let normalized = |range: Range<usize>| -> Result<Option<String>> {
            let mut piece = NormalizedText::new(&text[range], 0, false);
            let unchanged = match &self.normalizer {
                Some(normalizer) => normalizer.apply_unless_replaced(&mut piece)?,
                None => true,
            };
            Ok(unchanged.then(|| piece.into_text()))
        };
        let Some(around) = normalized(start..end)? else {
            return Ok(false);
        };
        if self.added.is_in(&text[start..end], &around) {
            return Ok(false);
        }
        // Characters that normalisation drops bring those behind them near.
        for side in [start..cut, cut..end] {
            if normalized(side)?.is_none_or(|side| side.len() < margin / 4) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether text may be cut between two characters: both are visible non-marks, or one is a space; they are in
/// different grapheme clusters in any context, and no normalisation form merges them.
fn can_part(before: char, after: char) -> bool {
    let visible = |c: char| {
        c.is_ascii_graphic()
            || !c.is_ascii() && (c.is_letter() || c.is_number() || c.is_punctuation() || c.is_symbol())
    };
    let [space_before, space_after] = [before, after].map(|c| c == ' ');
    if space_before && space_after || !(visible(before) || space_before) || !(visible(after) || space_after) {
        return false;
    }
    if before.is_ascii() && after.is_ascii() {
        return true;
    }
    // Flags are clusters of two, counted from the beginning of a run.
    let flag = |c: char| ('\u{1f1e6}'..='\u{1f1ff}').contains(&c);
    let two: String = [before, after].into_iter().collect();
    if flag(before) || two.graphemes(true).count() != 2 {
        return false;
    }
    let mut first = None;
    decompose_compatible(after, |c| _ = first.get_or_insert(c));
    // The vowels and last consonants of Hangul go with what is before them.
    first.is_some_and(|c| {
        canonical_combining_class(c) == 0 && !c.is_mark() && !('\u{1160}'..='\u{11ff}').contains(&c)
    })
}

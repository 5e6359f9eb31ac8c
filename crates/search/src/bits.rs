//! A set of rows as a bitmap.

/// A set of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// None of `len` rows.
    pub fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// All of `len` rows.
    pub fn all(len: usize) -> Self {
        let mut bits = Self { words: vec![u64::MAX; len.div_ceil(64)], len };
        bits.cut();
        bits
    }

    /// The set from the [`words`](Self::words) of `len` rows; `None` if the length differs or rows
    /// are out of range.
    pub fn of_words(words: Vec<u64>, len: usize) -> Option<Self> {
        let bits = Self { words, len };
        let mut cut = bits.clone();
        cut.cut();
        (bits.words.len() == len.div_ceil(64) && cut == bits).then_some(bits)
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    #[inline]
    pub fn has(&self, row: usize) -> bool {
        self.words[row / 64] >> (row % 64) & 1 == 1
    }

    pub fn insert(&mut self, row: usize) {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.words[row / 64] |= 1 << (row % 64);
    }

    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Keeps the rows also in `other`.
    pub fn keep(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= b);
    }

    /// Removes the rows in `other`.
    pub fn remove(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
    }

    /// Clears the bits after the last row.
    fn cut(&mut self) {
        if let (rest @ 1.., Some(last)) = (self.len % 64, self.words.last_mut()) {
            *last &= (1 << rest) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_no_rows_beyond_their_length() {
        for len in [0, 1, 63, 64, 65, 200] {
            let all = Bits::all(len);
            assert_eq!((all.count(), Bits::none(len).count()), (len, 0));
            assert_eq!(Bits::of_words(all.words().to_vec(), len), Some(all.clone()));
            let mut beyond = all.words().to_vec();
            beyond.push(0);
            assert_eq!(Bits::of_words(beyond, len), None);
        }
        assert_eq!(Bits::of_words(vec![1 << 63], 63), None);
    }

    #[test]
    fn rows_are_kept_and_removed() {
        let of = |rows: &[usize]| {
            let mut bits = Bits::none(130);
            rows.iter().for_each(|row| bits.insert(*row));
            bits
        };
        let (mut kept, mut removed) = (of(&[1, 64, 129]), of(&[1, 64, 129]));
        kept.keep(&of(&[2, 64, 129]));
        removed.remove(&of(&[2, 64]));
        assert_eq!((kept, removed.clone()), (of(&[64, 129]), of(&[1, 129])));
        assert!(removed.has(1) && !removed.has(64));
    }
}

//! The parts of a text that the tokens of two tokenizers have in common.

use cloze_data::labelled::TokenPlace;
use std::ops::Range;

/// For each token of a student and of its teacher the part that it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommonParts {
    /// None for tokens that the teacher has nothing for.
    pub student: Vec<Option<u32>>,
    /// The same for the student.
    pub teacher: Vec<Option<u32>>,
    /// The number of parts.
    pub n: usize,
}

impl CommonParts {
    /// The finest parts with whole tokens of both: a part ends where a token of each ends. Special tokens before, between and
    /// after the texts are a part each. What only one of them has, such as the end of a text that the other cuts, is in none.
    pub fn of(student: &[TokenPlace], teacher: &[TokenPlace]) -> Self {
        let mut parts = Self { student: vec![None; student.len()], teacher: vec![None; teacher.len()], n: 0 };
        let [ours, theirs] = [student, teacher].map(runs);
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            let (Some(first), Some(_)) = (student[ours.clone()].first(), teacher[theirs.clone()].first())
            else {
                continue;
            };
            match first.text {
                None => parts.add(ours, theirs),
                Some(_) => parts.add_text(student, teacher, ours, theirs),
            }
        }
        parts
    }

    fn add(&mut self, ours: Range<usize>, theirs: Range<usize>) {
        let part = Some(self.n as u32);
        self.student[ours].fill(part);
        self.teacher[theirs].fill(part);
        self.n += 1;
    }

    /// The parts of tokens of one text.
    fn add_text(
        &mut self,
        student: &[TokenPlace],
        teacher: &[TokenPlace],
        ours: Range<usize>,
        theirs: Range<usize>,
    ) {
        let (mut i, mut j) = (ours.start, theirs.start);
        while i < ours.end && j < theirs.end {
            let (first_i, first_j) = (i, j);
            let [mut end_i, mut end_j] = [student[i].bytes.end, teacher[j].bytes.end];
            (i, j) = (i + 1, j + 1);
            loop {
                // A token that begins before the end shares a character with the one before it.
                let reaches = end_i.max(end_j);
                if i < ours.end && (end_i < end_j || student[i].bytes.start < reaches) {
                    end_i = end_i.max(student[i].bytes.end);
                    i += 1;
                } else if j < theirs.end && (end_j < end_i || teacher[j].bytes.start < reaches) {
                    end_j = end_j.max(teacher[j].bytes.end);
                    j += 1;
                } else {
                    break;
                }
            }
            if end_i == end_j {
                self.add(first_i..i, first_j..j);
            }
        }
    }
}

/// The tokens before, in, between, in and after two texts; those of what is not there are empty.
fn runs(tokens: &[TokenPlace]) -> [Range<usize>; 5] {
    let ends = |text: u32| {
        let is_of = |token: &TokenPlace| token.text == Some(text);
        let first = tokens.iter().position(is_of);
        first.map(|first| first..tokens.iter().rposition(is_of).unwrap_or(first) + 1)
    };
    let n = tokens.len();
    let first = ends(0).unwrap_or(0..0);
    match ends(1) {
        Some(second) => {
            [0..first.start, first.clone(), first.end..second.start, second.clone(), second.end..n]
        }
        None => [0..first.start, first.clone(), n..n, n..n, first.end..n],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: Option<u32>, bytes: &[[usize; 2]]) -> Vec<TokenPlace> {
        bytes.iter().map(|[start, end]| TokenPlace { text, bytes: *start..*end }).collect()
    }

    /// "unhappy bird": un ##happy bird, and unhap ##py bi ##rd.
    #[test]
    fn parts_end_where_tokens_of_both_end() {
        let special = || places(None, &[[0, 0]]);
        let student = [special(), places(Some(0), &[[0, 2], [2, 7], [8, 12]]), special()].concat();
        let teacher = [special(), places(Some(0), &[[0, 5], [5, 7], [8, 10], [10, 12]]), special()].concat();
        let parts = CommonParts::of(&student, &teacher);
        assert_eq!(parts.student, [0, 1, 1, 2, 3].map(Some));
        assert_eq!(parts.teacher, [0, 1, 1, 2, 2, 3].map(Some));
        assert_eq!(parts.n, 4);
        // The same tokens are a part each.
        let same = CommonParts::of(&teacher, &teacher);
        assert_eq!(same.student, [0, 1, 2, 3, 4, 5].map(Some));
        assert_eq!(same.student, same.teacher);
    }

    /// One cuts the text, one has no special tokens, and one has a character in several tokens.
    #[test]
    fn what_only_one_has_is_in_no_part() {
        let student = [places(None, &[[0, 0]]), places(Some(0), &[[0, 2], [2, 4]])].concat();
        let teacher = places(Some(0), &[[0, 2], [0, 2], [2, 7]]);
        let parts = CommonParts::of(&student, &teacher);
        assert_eq!(parts.student, [None, Some(0), None]);
        assert_eq!(parts.teacher, [Some(0), Some(0), None]);
        assert_eq!(parts.n, 1);
        assert_eq!(CommonParts::of(&[], &teacher).n, 0);
    }

    #[test]
    fn texts_of_a_pair_are_apart() {
        let pair = |second: &[[usize; 2]]| {
            let special = || places(None, &[[0, 0]]);
            [special(), places(Some(0), &[[0, 3]]), special(), special(), places(Some(1), second), special()]
                .concat()
        };
        let parts = CommonParts::of(&pair(&[[0, 1], [1, 4]]), &pair(&[[0, 4]]));
        assert_eq!(parts.student, [0, 1, 2, 2, 3, 3, 4].map(Some));
        assert_eq!(parts.teacher, [0, 1, 2, 2, 3, 4].map(Some));
    }
}

//! The edit distance to one reference of hypotheses that differ in word order.

use hashbrown::HashMap;

/// How far from the diagonal the search looks, in words of the reference.
const BEAM: usize = 25;

/// Maximum cells of cached rows.
const MAX_CELLS: usize = 1 << 21;

/// An edit that turns a hypothesis into the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// A word is kept.
    Keep,
    /// A word is replaced.
    Replace,
    /// A word of the reference is inserted.
    PutIn,
    /// A word of the hypothesis is deleted.
    LeaveOut,
}

/// The fewest edits that end in a cell, and the last of them, in one number: a long line has millions of cells.
#[derive(Clone, Copy, Debug)]
struct Cell(u32);

/// Unreachable so far.
const NOWHERE: Cell = Cell::new(u32::MAX / 8, Edit::Keep);

impl Cell {
    const fn new(cost: u32, edit: Edit) -> Self {
        Self(cost << 2 | edit as u32)
    }

    fn cost(self) -> u32 {
        self.0 >> 2
    }

    fn edit(self) -> Edit {
        [Edit::Keep, Edit::Replace, Edit::PutIn, Edit::LeaveOut][(self.0 & 3) as usize]
    }
}

/// Cells for one prefix of hypotheses, over the part of the reference that is searched.
#[derive(Clone, Debug, Default)]
struct Row {
    /// The length of the reference prefix of the first cell.
    start: usize,
    cells: Vec<Cell>,
}

impl Row {
    fn cell(&self, place: usize) -> Cell {
        place.checked_sub(self.start).and_then(|place| self.cells.get(place)).copied().unwrap_or(NOWHERE)
    }
}

/// Levenshtein distances to one reference along the diagonal. Rows of known prefixes are cached: hypotheses
/// with a few words moved have much in common.
///
/// All hypotheses have the same length. The searched region depends only on the position in a hypothesis and
/// its length, so caching never changes a result.
pub(super) struct EditDistance<'a> {
    reference: &'a [u32],
    /// Number of words in a hypothesis.
    len: usize,
    /// The first is for the empty prefix.
    rows: Vec<Row>,
    /// The row of a prefix, by the row of the prefix without its last word, and that word.
    longer: HashMap<(usize, u32), usize>,
    /// Total cells of these rows.
    n_cells: usize,
    /// Uncached rows of the current hypothesis.
    unkept: Vec<Row>,
}

impl<'a> EditDistance<'a> {
    /// For hypotheses of `len` words.
    pub(super) fn new(reference: &'a [u32], len: usize) -> Self {
        let cells = (0..=reference.len() as u32).map(|cost| Cell::new(cost, Edit::PutIn)).collect();
        let rows = vec![Row { start: 0, cells }];
        Self { reference, len, rows, longer: HashMap::new(), n_cells: 0, unkept: Vec::new() }
    }

    /// Number of edits that turn a hypothesis into the reference.
    pub(super) fn of(&mut self, hypothesis: &[u32]) -> usize {
        let whole = self.reference.len();
        let row = self.rows_of(hypothesis).last().map(|row| row.cell(whole));
        row.map_or(0, |cell| cell.cost() as usize)
    }

    /// The individual edits, from the first word on.
    pub(super) fn trace(&mut self, hypothesis: &[u32]) -> Vec<Edit> {
        let (mut i, mut j) = (hypothesis.len(), self.reference.len());
        let rows = self.rows_of(hypothesis);
        let mut trace = Vec::with_capacity(i.max(j));
        while i > 0 || j > 0 {
            let edit = rows[i].cell(j).edit();
            trace.push(edit);
            let (down, right) = match edit {
                Edit::Keep | Edit::Replace => (1, 1),
                Edit::PutIn => (0, 1),
                Edit::LeaveOut => (1, 0),
            };
            // Both hold on a way that begins in the first cell, and a way that did not would end here.
            (i, j) = match (i.checked_sub(down), j.checked_sub(right)) {
                (Some(i), Some(j)) => (i, j),
                _ => break,
            };
        }
        trace.reverse();
        trace
    }

    /// The rows of all prefixes of a hypothesis, the empty one first.
    fn rows_of(&mut self, hypothesis: &[u32]) -> Vec<&Row> {
        debug_assert_eq!(hypothesis.len(), self.len);
        self.unkept.clear();
        let mut kept = vec![0];
        for (place, &word) in hypothesis.iter().enumerate() {
            let before = kept[kept.len() - 1];
            if self.unkept.is_empty() {
                if let Some(&row) = self.longer.get(&(before, word)) {
                    kept.push(row);
                    continue;
                }
                if self.n_cells < MAX_CELLS {
                    let row = self.next_row(&self.rows[before], place + 1, word);
                    self.longer.insert((before, word), self.rows.len());
                    self.n_cells += row.cells.len();
                    kept.push(self.rows.len());
                    self.rows.push(row);
                    continue;
                }
            }
            let row = self.next_row(self.unkept.last().unwrap_or(&self.rows[before]), place + 1, word);
            self.unkept.push(row);
        }
        kept.into_iter().map(|row| &self.rows[row]).chain(&self.unkept).collect()
    }

    /// The row of the first `place` words, of which `word` is the last, from the row before.
    fn next_row(&self, before: &Row, place: usize, word: u32) -> Row {
        let ratio = self.reference.len() as f64 / self.len as f64;
        let beam = match (BEAM as f64) < ratio / 2.0 {
            true => (ratio / 2.0 + BEAM as f64).ceil() as usize,
            false => BEAM,
        };
        let diagonal = (place as f64 * ratio).floor() as usize;
        let start = diagonal.saturating_sub(beam);
        let end = match place == self.len {
            true => self.reference.len() + 1,
            false => (diagonal + beam).min(self.reference.len() + 1),
        };
        let mut cells: Vec<Cell> = Vec::with_capacity(end.saturating_sub(start));
        for j in start..end {
            let above = before.cell(j).cost() + 1;
            let Some(last) = j.checked_sub(1) else {
                cells.push(Cell::new(above, Edit::LeaveOut));
                continue;
            };
            let same = self.reference[last] == word;
            let (kept, edit) = if same { (0, Edit::Keep) } else { (1, Edit::Replace) };
            let ways = [
                Cell::new(before.cell(last).cost() + kept, edit),
                Cell::new(above, Edit::LeaveOut),
                Cell::new(cells.last().map_or(NOWHERE.cost(), |left| left.cost()) + 1, Edit::PutIn),
            ];
            // Of equals the first, as Tercom has it.
            let best =
                ways.into_iter().fold(NOWHERE, |best, way| if best.cost() > way.cost() { way } else { best });
            cells.push(best);
        }
        Row { start, cells }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn levenshtein(a: &[u32], b: &[u32]) -> usize {
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, y) in b.iter().enumerate() {
                let best = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
                diagonal = std::mem::replace(&mut row[j + 1], best);
            }
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn short_lines_have_levenshteins_distance(
            pool in proptest::collection::vec(0..4u32, 30),
            reference in proptest::collection::vec(0..4u32, 0..20),
            len in 0..10usize,
        ) {
            let mut distance = EditDistance::new(&reference, len);
            for hypothesis in pool.chunks_exact(len.max(1)).map(|chunk| &chunk[..len]) {
                prop_assert_eq!(distance.of(hypothesis), levenshtein(hypothesis, &reference));
                let trace = distance.trace(hypothesis);
                let edits = trace.iter().filter(|edit| **edit != Edit::Keep).count();
                prop_assert_eq!(edits, levenshtein(hypothesis, &reference));
                let [lens_h, lens_r] = [Edit::PutIn, Edit::LeaveOut].map(|not| trace.iter().filter(|edit| **edit != not).count());
                prop_assert_eq!((lens_h, lens_r), (len, reference.len()));
            }
        }
    }

    #[test]
    fn lines_of_very_different_lengths_have_a_distance() {
        let long: Vec<u32> = (0..3_000).collect();
        // Along the diagonal.
        assert_eq!(EditDistance::new(&long, 2).of(&[1_500, 2_250]), 2_998);
        assert_eq!(EditDistance::new(&[5, 2_999], long.len()).of(&long), 2_998);
        assert_eq!(EditDistance::new(&long, 0).of(&[]), 3_000);
    }
}

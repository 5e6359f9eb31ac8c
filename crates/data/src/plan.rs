//! An epoch's examples: a list on disk, visited in a computed shuffled order.

use crate::permutation::Permutation;
use crate::sampler::{Example, ExampleSampler, Room};
use crate::seed::derive_seed;
use crate::split::Documents;
use crate::{DataError, Result};
use memmap2::Mmap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const EXAMPLES: u64 = 0xE8A1;
const ORDER: u64 = 0x08DE;
/// Two ranges as start and end, and flags.
const RECORD: usize = 4 * 8 + 4;

/// All examples of one epoch, in a shuffled order. Made by
/// [`CorpusExamples::plan`](crate::CorpusExamples::plan).
#[derive(Debug)]
pub struct Plan {
    records: Mmap,
    order: Permutation,
}

impl Plan {
    /// Samples the examples of `epoch` into an unnamed file in `folder`, deleted when the plan is
    /// dropped.
    ///
    /// # Errors
    /// [`DataError::NoExamples`] if there are none; files that cannot be written; [`DataError::Stopped`]
    /// soon after `stop` is set.
    pub(crate) fn new(
        documents: &Documents,
        sampler: &dyn ExampleSampler,
        room: Room,
        seed: u64,
        epoch: u64,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(DataError::io("make", folder))?;
        let file = tempfile::tempfile_in(folder).map_err(DataError::io("write in", folder))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let mut count = 0u64;
        sampler.examples(documents, room, derive_seed(seed, &[EXAMPLES, epoch]), &mut |example| {
            count += 1;
            if stop.load(Ordering::Relaxed) {
                return Err(DataError::Stopped);
            }
            file.write_all(&record(&example)).map_err(DataError::io("write in", folder))
        })?;
        if count == 0 {
            return Err(DataError::NoExamples);
        }
        let file =
            file.into_inner().map_err(|error| DataError::io("write in", folder)(error.into_error()))?;
        // SAFETY: the file has no name, so that nothing else can change it.
        let records = unsafe { Mmap::map(&file) }.map_err(DataError::io("map a file in", folder))?;
        Ok(Self { records, order: Permutation::new(count, derive_seed(seed, &[ORDER, epoch])) })
    }

    /// Examples in the epoch.
    pub fn len(&self) -> u64 {
        (self.records.len() / RECORD) as u64
    }

    /// Whether the epoch has no example, which is an error when the plan is made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The example at a place of the shuffled order.
    ///
    /// # Panics
    /// If `place` is not below [`len`](Self::len).
    pub fn example(&self, place: u64) -> Example {
        let at = self.order.get(place) as usize * RECORD;
        let record: &[u8] = &self.records[at..at + RECORD];
        let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        Example {
            first: number(0)..number(8),
            second: number(16)..number(24),
            label: record[32],
            short: record[33] != 0,
            truncated: record[34] != 0,
        }
    }
}

fn record(example: &Example) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    let ends = [&example.first, &example.second].into_iter().flat_map(|range| [range.start, range.end]);
    for (i, end) in ends.enumerate() {
        put(8 * i, &end.to_le_bytes());
    }
    put(32, &[example.label, u8::from(example.short), u8::from(example.truncated)]);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_any_example() {
        // A range may be long where documents that are not in the part lie within it.
        let far = u64::MAX / 3;
        let examples = [
            Example { first: 7..far, second: far..far + 1, label: 1, short: false, truncated: false },
            Example { first: 0..1, second: 0..0, label: 0, short: true, truncated: false },
            Example { first: 3..5, second: 9..12, label: 0, short: false, truncated: true },
        ];
        let mut file = tempfile::tempfile().unwrap();
        for example in &examples {
            file.write_all(&record(example)).unwrap();
        }
        // SAFETY: the file has no name, so that nothing else can change it.
        let records = unsafe { Mmap::map(&file) }.unwrap();
        let plan = Plan { records, order: Permutation::new(examples.len() as u64, 5) };
        let mut found: Vec<Example> = (0..plan.len()).map(|place| plan.example(place)).collect();
        found.sort_by_key(|example| examples.iter().position(|other| other == example));
        assert_eq!(found, examples);
    }
}

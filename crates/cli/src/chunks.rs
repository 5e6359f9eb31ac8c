//! Parallel processing of lines on all cores, with results in input order.

use anyhow::Result;
use rayon::prelude::*;

use crate::lines::{Batch, Line};

/// Bytes of text per task, or bytes of results if larger: enough to be worth a task, and few enough to spread
/// over the cores when a pipe delivers 64 KiB at a time.
const CHUNK: usize = 1 << 14;

/// Maximum number of chunks in memory at once.
const TOGETHER: usize = 64;

/// The capacity that a chunk's result buffer keeps for the next batch.
const KEPT: usize = 8 * CHUNK;

/// Processes batches of lines in chunks and reuses the result buffers for the next batch.
#[derive(Default)]
pub struct Chunks(Vec<Vec<u8>>);

impl Chunks {
    /// Appends the result of `work` for each line to a buffer and passes the buffers to `write` in line order.
    /// `scratch` makes a scratch value for `work`; `least` is a lower bound on the bytes of a line's result, if
    /// known.
    ///
    /// Stops at the first line that `work` fails on: returns its index in the batch and the error, after
    /// writing the results of the lines before it.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn run<S, E: Send>(
        &mut self,
        batch: &Batch,
        least: usize,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, Line, &mut Vec<u8>) -> Result<(), E> + Sync,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<(usize, E)>> {
        let places: Vec<usize> = (0..batch.len()).collect();
        let mut size = 0;
        let together = |place: &usize, _: &usize| {
            size += batch.line(*place).text.len().max(least) + 1;
            let fits = size < CHUNK;
            if !fits {
                size = 0;
            }
            fits
        };
        let chunks: Vec<&[usize]> = places.chunk_by(together).collect();
        // Fewer together where a single line's result is large.
        let most = (TOGETHER * CHUNK / least.max(CHUNK)).max(rayon::current_num_threads());
        for group in chunks.chunks(most) {
            self.0.resize_with(self.0.len().max(group.len()), Vec::new);
            let chunk = |(places, bytes): (&&[usize], &mut Vec<u8>)| {
                bytes.clear();
                let mut scratch = scratch();
                let failed = places.iter().find_map(|place| {
                    let start = bytes.len();
                    let failed = work(&mut scratch, batch.line(*place), bytes).err();
                    failed.map(|error| (start, *place, error))
                });
                failed.map(|(start, place, error)| {
                    // What a failed line left behind is no result.
                    bytes.truncate(start);
                    (place, error)
                })
            };
            let failed: Vec<_> = group.par_iter().zip(&mut self.0[..]).map(chunk).collect();
            for (bytes, failed) in self.0.iter_mut().zip(failed) {
                write(bytes)?;
                bytes.clear();
                bytes.shrink_to(KEPT);
                if failed.is_some() {
                    return Ok(failed);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Lines, Longer, MAX_LINE_BYTES};

    fn batch(text: &str) -> Batch {
        let mut batch = Batch::default();
        let text = format!("{text}\n");
        let mut lines = Lines::new(text.as_bytes(), "text", MAX_LINE_BYTES, Longer::Refused);
        assert!(lines.read(usize::MAX, &mut batch).unwrap());
        batch
    }

    /// Writes each line twice, and fails on an exclamation mark.
    fn doubled(chunks: &mut Chunks, batch: &Batch, least: usize) -> (String, Option<(usize, String)>) {
        let mut written = Vec::new();
        let work = |_: &mut (), line: Line, bytes: &mut Vec<u8>| {
            bytes.extend(line.text.as_bytes());
            if line.text.contains('!') {
                return Err(line.text.to_owned());
            }
            bytes.extend(line.text.as_bytes());
            Ok(())
        };
        let write = |bytes: &[u8]| {
            written.extend(bytes);
            Ok(())
        };
        let failed = chunks.run(batch, least, || (), work, write).unwrap();
        (String::from_utf8(written).unwrap(), failed)
    }

    #[test]
    fn results_are_in_the_order_of_the_lines() {
        let mut chunks = Chunks::default();
        for n in [1, 7, 40_000] {
            let lines: Vec<String> = (0..n).map(|i| i.to_string()).collect();
            let expected: String = lines.iter().map(|line| line.repeat(2)).collect();
            for least in [0, 100, CHUNK, usize::MAX / 2] {
                if n < 1_000 || least < CHUNK {
                    assert_eq!(
                        doubled(&mut chunks, &batch(&lines.join("\n")), least),
                        (expected.clone(), None)
                    );
                }
            }
        }
    }

    #[test]
    fn the_first_failure_ends_the_results() {
        let mut chunks = Chunks::default();
        for place in [0, 5, 20_000] {
            let mut lines: Vec<String> = (0..30_000).map(|i| i.to_string()).collect();
            let expected: String = lines[..place].iter().map(|line| line.repeat(2)).collect();
            lines[place] = "no!".into();
            lines[29_999] = "nor this!".into();
            let found = doubled(&mut chunks, &batch(&lines.join("\n")), 0);
            assert_eq!(found, (expected, Some((place, "no!".into()))));
        }
    }
}

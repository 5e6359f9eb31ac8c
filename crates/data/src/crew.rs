//! Processes that prepare the same data together.

use crate::{DataError, Result};
use std::ops::Range;
use std::path::Path;

/// Processes that prepare the same data at the same time: each computes a part, and tells the others. All make the same
/// calls in the same order, and end with the same data as a process that is alone.
pub trait Crew: Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes, at least 1.
    fn size(&self) -> usize;

    /// Sends `own` to all processes. Returns what each has sent, in order of their numbers.
    ///
    /// # Errors
    /// [`DataError::Crew`] if another process cannot be reached.
    fn gather(&self, own: Vec<u32>) -> Result<Vec<Vec<u32>>>;
}

/// A process that prepares data alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Crew for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn gather(&self, own: Vec<u32>) -> Result<Vec<Vec<u32>>> {
        Ok(vec![own])
    }
}

/// The places of consecutive things that process `rank` of `size` computes, by their `costs`: a thing belongs to the process in whose
/// equal share of the whole cost it begins.
pub(crate) fn part(costs: &[usize], rank: usize, size: usize) -> Range<usize> {
    let total: usize = costs.iter().sum();
    let mut before = 0;
    // Things that begin before the share of a process.
    let mut until = [0; 2];
    for cost in costs {
        for (until, share) in until.iter_mut().zip([rank, rank + 1]) {
            *until += usize::from(share == size || before * size < total * share);
        }
        before += cost;
    }
    until[0]..until[1]
}

/// Whether this process writes to `folder`: of those that have the same folder, the first one does.
///
/// # Errors
/// A folder that cannot be written to; those of the crew.
pub(crate) fn writes(folder: &Path, crew: &dyn Crew) -> Result<bool> {
    if crew.size() == 1 {
        return Ok(true);
    }
    // Each process leaves a file, and looks for the others'.
    let sign = tempfile::Builder::new()
        .prefix(".process-")
        .rand_bytes(16)
        .tempfile_in(folder)
        .map_err(DataError::io("write in", folder))?;
    let name = sign.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = crew.gather(name.bytes().map(u32::from).collect())?;
    let first = names.iter().position(|name| {
        let name: String = name.iter().filter_map(|letter| char::from_u32(*letter)).collect();
        folder.join(name).exists()
    });
    // Until all have looked.
    crew.gather(Vec::new())?;
    Ok(first == Some(crew.rank()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};

    /// Processes that are threads.
    pub(crate) struct Threads {
        barrier: Barrier,
        messages: Mutex<Vec<Vec<u32>>>,
    }

    impl Threads {
        pub(crate) fn new(size: usize) -> Self {
            Self { barrier: Barrier::new(size), messages: Mutex::new(vec![Vec::new(); size]) }
        }

        pub(crate) fn of_rank(&self, rank: usize) -> Thread<'_> {
            Thread { all: self, rank }
        }
    }

    pub(crate) struct Thread<'a> {
        all: &'a Threads,
        rank: usize,
    }

    impl Crew for Thread<'_> {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.all.messages.lock().unwrap().len()
        }

        fn gather(&self, own: Vec<u32>) -> Result<Vec<Vec<u32>>> {
            self.all.messages.lock().unwrap()[self.rank] = own;
            self.all.barrier.wait();
            let all = self.all.messages.lock().unwrap().clone();
            self.all.barrier.wait();
            Ok(all)
        }
    }

    #[test]
    fn parts_are_consecutive_and_about_equal() {
        for (costs, size, expected) in [
            (vec![1; 6], 3, vec![0..2, 2..4, 4..6]),
            (vec![5, 1, 1, 1], 2, vec![0..1, 1..4]),
            (vec![1, 1, 9], 3, vec![0..3, 3..3, 3..3]),
            (vec![], 2, vec![0..0, 0..0]),
            (vec![0, 0], 2, vec![0..0, 0..2]),
            (vec![4], 2, vec![0..1, 1..1]),
        ] {
            let parts: Vec<_> = (0..size).map(|rank| part(&costs, rank, size)).collect();
            assert_eq!(parts, expected, "{costs:?}");
        }
    }

    #[test]
    fn of_those_with_one_folder_one_writes() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let threads = Threads::new(3);
        let found: Vec<bool> = std::thread::scope(|scope| {
            let run = |rank: usize| {
                let (threads, folder) = (&threads, folders[usize::from(rank == 1)].path());
                scope.spawn(move || writes(folder, &threads.of_rank(rank)).unwrap())
            };
            let running: Vec<_> = (0..3).map(run).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(found, [true, true, false]);
        assert!(folders.iter().all(|folder| folder.path().read_dir().unwrap().next().is_none()));
        assert!(writes(folders[0].path(), &Alone).unwrap());
    }
}

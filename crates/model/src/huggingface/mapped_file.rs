//! Weight files mapped into memory. What was copied out of one is let go: its pages count as memory of the process, and are read
//! again from the file if they are needed.

use crate::{ModelError, Result};
use memmap2::Mmap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The maps whose tensors are in use, so that nothing but them is ever let go: numbers may as well lie in other memory, which would lose
/// them.
static MAPS: LazyLock<Mutex<Vec<Weak<Mmap>>>> = LazyLock::new(Mutex::default);

struct Shared(Arc<Mmap>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A file's bytes, for tensors that lie in them.
pub(super) fn shared_map(path: &Path) -> Result<bytes::Bytes> {
    let map = Arc::new(map(path)?);
    let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
    maps.retain(|map| map.strong_count() > 0);
    maps.push(Arc::downgrade(&map));
    Ok(bytes::Bytes::from_owner(Shared(map)))
}

/// A file's bytes, mapped into memory.
pub(super) fn map(path: &Path) -> Result<Mmap> {
    let file = cloze_files::open(path).map_err(ModelError::io("open", path))?;
    // SAFETY: weight files are replaced and not changed, by this crate and by the ecosystem's other writers;
    // `map_tensors` asks the same of its callers.
    unsafe { Mmap::map(&file) }.map_err(ModelError::io("map into memory", path))
}

/// The addresses of bytes.
pub(super) fn addresses(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr().addr();
    start..start + bytes.len()
}

/// Lets go of the pages at these addresses if they are of a [shared map](shared_map).
pub(super) fn let_go(range: Range<usize>) {
    let holds = |map: &Arc<Mmap>| {
        let whole = addresses(map);
        whole.start <= range.start && range.end <= whole.end
    };
    let maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
    let map = maps.iter().filter_map(Weak::upgrade).find(holds);
    drop(maps);
    #[cfg(unix)]
    if let Some(map) = map.filter(|_| !range.is_empty()) {
        let offset = range.start - addresses(&map).start;
        // SAFETY: a shared map that is only read has the file's bytes afterwards too. That it could not be done costs memory alone.
        let _ =
            unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, range.len()) };
    }
    #[cfg(not(unix))]
    drop(map);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_map_has_its_bytes_after_they_were_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let map = shared_map(&path).unwrap();
        assert_eq!(map, bytes);
        for range in [0..100_000, 1..99_999, 4096..8192, 5..6, 50_000..100_000] {
            let_go(addresses(&map[range]));
            assert_eq!(map, bytes);
        }
        // Neither other memory nor a map that is no more.
        let_go(addresses(&bytes));
        assert_eq!(map, bytes);
        let range = addresses(&map);
        drop(map);
        let_go(range);
    }

    /// Whether the pages of a map are in the process's memory.
    #[cfg(target_os = "linux")]
    #[test]
    fn pages_that_are_let_go_are_no_memory_of_the_process() {
        let resident = |map: &[u8]| {
            let start = format!("{:x}-", addresses(map).start);
            let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
            let mut of_map = smaps.lines().skip_while(|line| !line.starts_with(&start));
            let rss = of_map.find(|line| line.starts_with("Rss:")).unwrap();
            rss.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let map = shared_map(&path).unwrap();
        assert_eq!(map.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 1 << 20);
        assert_eq!(resident(&map), 1024);
        let_go(addresses(&map[..1 << 19]));
        assert!(resident(&map) <= 512);
    }
}

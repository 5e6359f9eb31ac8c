//! The entries of a zip archive, as PyTorch writes them: stored, never compressed.

use super::refused::Refused;
use std::collections::HashMap;
use std::ops::Range;

/// The place of each entry's bytes in the file.
pub(super) struct Archive<'a> {
    entries: HashMap<&'a str, Range<usize>>,
}

const END: &[u8] = b"PK\x05\x06";
const END_LEN: usize = 22;
const END64: &[u8] = b"PK\x06\x06";
const END64_LOCATOR: &[u8] = b"PK\x06\x07";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

impl<'a> Archive<'a> {
    /// Whether the file is a zip archive.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(LOCAL)
    }

    /// Reads the directory at the file's end.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Refused> {
        let (count, mut at) = directory(bytes)?;
        let mut entries = HashMap::new();
        for _ in 0..count {
            let (name, data, next) = entry(bytes, at)?;
            entries.insert(name, data);
            at = next;
        }
        Ok(Self { entries })
    }

    /// The place of the bytes of the entry `name`.
    pub(super) fn get(&self, name: &str) -> Option<Range<usize>> {
        self.entries.get(name).cloned()
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, Range<usize>)> {
        self.entries.iter().map(|(name, place)| (*name, place.clone()))
    }

    /// The archive's top folder, which all entries share; torch.save names it after the file.
    pub(super) fn folder(&self) -> Option<&'a str> {
        let pickles = self.entries.keys().filter_map(|name| name.strip_suffix("data.pkl"));
        pickles.filter(|folder| folder.is_empty() || folder.ends_with('/')).min()
    }
}

fn refused<T>(offset: usize, reason: &str) -> Result<T, Refused> {
    Err(Refused { offset, reason: reason.into() })
}

/// The number of entries and the place of the first one in the directory.
fn directory(bytes: &[u8]) -> Result<(u64, usize), Refused> {
    // A comment of up to 65,535 bytes may follow.
    let first = bytes.len().saturating_sub(END_LEN + usize::from(u16::MAX));
    let Some(end) = bytes[first..].windows(END_LEN).rposition(|window| window.starts_with(END)) else {
        return refused(bytes.len(), "the archive's directory is missing: is the file cut short?");
    };
    let end = first + end;
    let short = (u64::from(u16_at(bytes, end + 10)?), u64::from(u32_at(bytes, end + 16)?));
    // Large files have the real numbers in a separate record, which a locator before the end points to.
    let locator = end.checked_sub(20).filter(|at| bytes[*at..].starts_with(END64_LOCATOR));
    let (count, at) = match locator {
        None => short,
        Some(locator) => {
            let end64 = place(u64_at(bytes, locator + 8)?);
            if !bytes.get(end64..).is_some_and(|rest| rest.starts_with(END64)) {
                return refused(locator, "the archive's directory is not where it should be");
            }
            (u64_at(bytes, end64 + 32)?, u64_at(bytes, end64 + 48)?)
        }
    };
    Ok((count, place(at)))
}

/// A directory entry: its name, the place of its bytes, and the place of the next entry.
fn entry(bytes: &[u8], at: usize) -> Result<(&str, Range<usize>, usize), Refused> {
    if !bytes.get(at..).is_some_and(|rest| rest.starts_with(ENTRY)) {
        return refused(at, "the archive's directory is damaged");
    }
    let (name_len, extra_len) = (usize::from(u16_at(bytes, at + 28)?), usize::from(u16_at(bytes, at + 30)?));
    let comment_len = usize::from(u16_at(bytes, at + 32)?);
    let name = slice(bytes, at + 46, name_len)?;
    let Ok(name) = str::from_utf8(name) else {
        return refused(at, "the name of an entry is not UTF-8");
    };
    if u16_at(bytes, at + 8)? & 1 != 0 || u16_at(bytes, at + 10)? != 0 {
        return refused(at, "an entry is compressed or encrypted, which torch.save never does");
    }
    // Values that exceed 32 bits are all ones; the real ones follow in the extra field, in order.
    let extra = slice(bytes, at + 46 + name_len, extra_len)?;
    let mut wide = extra_field(extra, 1).unwrap_or_default().as_chunks::<8>().0.iter();
    let mut figure = |short: u32| match short {
        u32::MAX => wide.next().map(|bytes| u64::from_le_bytes(*bytes)),
        short => Some(short.into()),
    };
    let len = figure(u32_at(bytes, at + 24)?);
    let stored = figure(u32_at(bytes, at + 20)?);
    let local = figure(u32_at(bytes, at + 42)?);
    let (Some(len), Some(stored), Some(local)) = (len, stored, local) else {
        return refused(at, "the archive's directory is damaged");
    };
    if stored != len {
        return refused(at, "a stored entry has two lengths");
    }
    let (local, len) = (place(local), place(len));
    if !bytes.get(local..).is_some_and(|rest| rest.starts_with(LOCAL)) {
        return refused(at, "an entry is not where the archive's directory says");
    }
    let from = local + 30 + usize::from(u16_at(bytes, local + 26)?) + usize::from(u16_at(bytes, local + 28)?);
    slice(bytes, from, len)?;
    Ok((name, from..from + len, at + 46 + name_len + extra_len + comment_len))
}

/// The content of the extra field of this kind.
fn extra_field(mut extra: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (header, rest) = extra.split_first_chunk::<4>()?;
        let content = rest.get(..usize::from(u16::from_le_bytes([header[2], header[3]])))?;
        if u16::from_le_bytes([header[0], header[1]]) == kind {
            return Some(content);
        }
        extra = &rest[content.len()..];
    }
}

/// A place in the file; one too large for memory becomes one beyond the file.
fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX).min(isize::MAX as usize)
}

fn slice(bytes: &[u8], at: usize, len: usize) -> Result<&[u8], Refused> {
    match bytes.get(at..).and_then(|rest| rest.get(..len)) {
        Some(slice) => Ok(slice),
        None => refused(at, "the archive ends too early"),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Refused> {
    slice(bytes, at, N).map(|slice| *slice.as_array().expect("as many bytes as asked for"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Refused> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Refused> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Refused> {
    array(bytes, at).map(u64::from_le_bytes)
}

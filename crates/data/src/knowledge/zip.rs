//! The files in a zip archive, each read as a stream.
//!
//! Stored and deflated entries are read, as test suites are distributed. Sizes and checksums are compared with the archive's.

use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Take};
use std::path::Path;

/// The signatures of a local header, an entry of the directory, and the directory's end.
const LOCAL: u32 = 0x0403_4B50;
const ENTRY: u32 = 0x0201_4B50;
const END: u32 = 0x0605_4B50;

/// The length of the directory's end without its comment, and the longest comment.
const END_LEN: u64 = 22;
const COMMENT: u64 = 0xFFFF;

/// The largest directory that is read.
const MAX_DIRECTORY: u64 = 64 << 20;

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZipEntry {
    /// Its path in the archive.
    pub name: String,
    method: u16,
    is_encrypted: bool,
    checksum: u32,
    compressed: u64,
    size: u64,
    /// Where its local header begins.
    start: u64,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not a readable zip archive: {what}"))
}

/// Little-endian numbers in a buffer.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u16(&self, at: usize) -> io::Result<u16> {
        let bytes = self.0.get(at..at + 2).ok_or_else(|| damaged("its directory is cut off"))?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&self, at: usize) -> io::Result<u32> {
        Ok(u32::from(self.u16(at)?) | u32::from(self.u16(at + 2)?) << 16)
    }
}

/// The entries of an archive, in the directory's order, without folders.
///
/// # Errors
/// A file that cannot be read or is no archive.
pub(super) fn entries(path: &Path) -> io::Result<Vec<ZipEntry>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let tail_len = len.min(END_LEN + COMMENT);
    file.seek(SeekFrom::Start(len - tail_len))?;
    let mut tail = Vec::new();
    file.by_ref().take(tail_len).read_to_end(&mut tail)?;
    let end = (0..=tail.len().saturating_sub(END_LEN as usize))
        .rev()
        .find(|at| Numbers(&tail).u32(*at).is_ok_and(|found| found == END))
        .ok_or_else(|| damaged("it has no directory"))?;
    let end = Numbers(&tail[end..]);
    let (n, size, start) = (end.u16(10)?, u64::from(end.u32(12)?), u64::from(end.u32(16)?));
    if n == u16::MAX || start == u64::from(u32::MAX) {
        return Err(damaged("it is in the zip64 format; unpack it and name the folder"));
    }
    if size > MAX_DIRECTORY || start + size > len {
        return Err(damaged("its directory lies outside the file"));
    }
    file.seek(SeekFrom::Start(start))?;
    let mut directory = Vec::new();
    file.take(size).read_to_end(&mut directory)?;
    let (mut entries, mut at) = (Vec::new(), 0);
    for _ in 0..n {
        let entry = Numbers(directory.get(at..).unwrap_or_default());
        if entry.u32(0)? != ENTRY {
            return Err(damaged("its directory has other parts than entries"));
        }
        let [name_len, extra, comment] = [28, 30, 32].map(|at| entry.u16(at).map(usize::from));
        let (name_len, next) = (name_len?, extra? + comment?);
        let name =
            directory.get(at + 46..at + 46 + name_len).ok_or_else(|| damaged("its directory is cut off"))?;
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.ends_with('/') {
            entries.push(ZipEntry {
                name,
                method: entry.u16(10)?,
                is_encrypted: entry.u16(8)? & 1 == 1,
                checksum: entry.u32(16)?,
                compressed: entry.u32(20)?.into(),
                size: entry.u32(24)?.into(),
                start: entry.u32(42)?.into(),
            });
        }
        at += 46 + name_len + next;
    }
    Ok(entries)
}

/// The bytes of a file in the archive.
///
/// # Errors
/// A damaged or encrypted entry, or an unknown compression. Reading fails if the size or the checksum differ.
pub(super) fn open(path: &Path, entry: &ZipEntry) -> io::Result<Box<dyn Read>> {
    if entry.is_encrypted {
        return Err(damaged("the file in it is encrypted"));
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(entry.start))?;
    let mut header = [0; 30];
    file.read_exact(&mut header)?;
    let header = Numbers(&header);
    if header.u32(0)? != LOCAL {
        return Err(damaged("a file is not where its directory says"));
    }
    file.seek(SeekFrom::Current(i64::from(header.u16(26)?) + i64::from(header.u16(28)?)))?;
    let packed = BufReader::new(file).take(entry.compressed);
    let unpacked = match entry.method {
        0 => Unpacked::Stored(packed),
        8 => Unpacked::Deflated(Box::new(DeflateDecoder::new(packed))),
        other => {
            return Err(damaged(&format!(
                "the compression {other} is not supported; unpack it and name the folder"
            )));
        }
    };
    Ok(Box::new(Checked { unpacked, crc: Crc::new(), left: entry.size, checksum: entry.checksum }))
}

enum Unpacked {
    Stored(Take<BufReader<File>>),
    Deflated(Box<DeflateDecoder<Take<BufReader<File>>>>),
}

/// Bytes that are compared with the directory's size and checksum once they end.
struct Checked {
    unpacked: Unpacked,
    crc: Crc,
    left: u64,
    checksum: u32,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = match &mut self.unpacked {
            Unpacked::Stored(source) => source.read(buffer)?,
            Unpacked::Deflated(source) => source.read(buffer)?,
        };
        if n as u64 > self.left {
            return Err(damaged("a file is longer than its directory says"));
        }
        self.left -= n as u64;
        self.crc.update(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && (self.left > 0 || self.crc.sum() != self.checksum) {
            return Err(damaged("a file differs from its checksum"));
        }
        Ok(n)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use std::io::Write;

    /// An archive of files, the odd ones stored.
    pub fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (number, (name, text)) in files.iter().enumerate() {
            let packed = match number % 2 {
                1 => text.as_bytes().to_vec(),
                _ => {
                    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                    encoder.write_all(text.as_bytes()).unwrap();
                    encoder.finish().unwrap()
                }
            };
            let mut crc = Crc::new();
            crc.update(text.as_bytes());
            let start = bytes.len() as u32;
            let mut common = Vec::new();
            for number in [20u16, 0, if number % 2 == 1 { 0 } else { 8 }, 0, 0] {
                common.extend(number.to_le_bytes());
            }
            for number in [crc.sum(), packed.len() as u32, text.len() as u32] {
                common.extend(number.to_le_bytes());
            }
            common.extend((name.len() as u16).to_le_bytes());
            bytes.extend(LOCAL.to_le_bytes());
            bytes.extend(&common);
            bytes.extend(3u16.to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend([7; 3]);
            bytes.extend(packed);
            directory.extend(ENTRY.to_le_bytes());
            directory.extend(20u16.to_le_bytes());
            directory.extend(common);
            directory.extend([0; 12]);
            directory.extend(start.to_le_bytes());
            directory.extend(name.as_bytes());
        }
        let (start, n) = (bytes.len() as u32, files.len() as u16);
        bytes.extend(&directory);
        bytes.extend(END.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend([n.to_le_bytes(), n.to_le_bytes()].concat());
        bytes.extend((directory.len() as u32).to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend([0; 2]);
        bytes
    }

    #[test]
    fn files_are_unpacked_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let long = "one line of text\n".repeat(9_000);
        let bytes = archive(&[("data/a.txt", &long), ("b.txt", "stored"), ("empty/", "")]);
        std::fs::write(&path, &bytes).unwrap();
        let found = entries(&path).unwrap();
        let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["data/a.txt", "b.txt"]);
        let read = |entry: &ZipEntry| {
            let mut text = String::new();
            open(&path, entry).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        assert_eq!(read(&found[0]).unwrap(), long);
        assert_eq!(read(&found[1]).unwrap(), "stored");
        let stored = bytes.windows(6).position(|window| window == b"stored").unwrap();
        let mut changed = bytes.clone();
        changed[stored] = b'S';
        std::fs::write(&path, &changed).unwrap();
        assert!(read(&found[1]).unwrap_err().to_string().contains("differs from its checksum"));
        // Whatever is cut off or changed is an error or the same text, and no panic.
        for len in (0..bytes.len()).step_by(11) {
            std::fs::write(&path, &bytes[..len]).unwrap();
            assert!(entries(&path).is_err());
        }
        for at in (0..bytes.len()).rev().take(200) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            std::fs::write(&path, &changed).unwrap();
            for entry in entries(&path).unwrap_or_default() {
                _ = read(&entry);
            }
        }
    }
}

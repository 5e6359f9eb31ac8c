//! A ZIP archive of small files (PKWARE's APPNOTE 6.3, §4.3): deflated, in the order given, without dates, so that the same
//! files make the same bytes.

use crate::{Result, TrainerError};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io::Write;
use std::path::Path;

/// 1 January 1980, the first date that the format has.
const DATE: u16 = (1 << 5) | 1;

/// The version needed to read: 2.0, for deflated files.
const VERSION: u16 = 20;

/// Deflated.
const METHOD: u16 = 8;

/// The bytes of an archive of these files, each with its name and contents.
///
/// # Errors
/// [`TrainerError::Io`] naming `path` if files are too large for the format, 4 GiB in all.
pub(super) fn archive(path: &Path, files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let failed = |error| TrainerError::io("write", path)(error);
    let too_large = || failed(std::io::Error::other("the archive would have 4 GiB or more"));
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for (name, contents) in files {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(contents).map_err(failed)?;
        let deflated = encoder.finish().map_err(failed)?;
        let mut crc = Crc::new();
        crc.update(contents);
        let size = |bytes: usize| u32::try_from(bytes).map_err(|_| too_large());
        let (offset, packed, unpacked) = (size(bytes.len())?, size(deflated.len())?, size(contents.len())?);
        // What both headers have: version, flags, method, time, date, checksum, sizes, lengths of name and extra.
        let mut common = Vec::new();
        for field in [VERSION, 0, METHOD, 0, DATE] {
            common.extend(field.to_le_bytes());
        }
        for field in [crc.sum(), packed, unpacked] {
            common.extend(field.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());

        bytes.extend(b"PK\x03\x04");
        bytes.extend(&common);
        bytes.extend(name.as_bytes());
        bytes.extend(&deflated);

        directory.extend(b"PK\x01\x02");
        directory.extend(VERSION.to_le_bytes());
        directory.extend(&common);
        // No comment, one disk, attributes of no system.
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let n = (files.len() as u16).to_le_bytes();
    let start = u32::try_from(bytes.len()).map_err(|_| too_large())?;
    let length = u32::try_from(directory.len()).map_err(|_| too_large())?;
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06");
    bytes.extend([0; 4]);
    bytes.extend(n);
    bytes.extend(n);
    bytes.extend(length.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_through_the_directory() {
        let files =
            [("a.tsv".to_owned(), b"index\tprediction\n0\t1\n".to_vec()), ("b.tsv".into(), Vec::new())];
        let bytes = archive(Path::new("x.zip"), &files).unwrap();
        assert_eq!(bytes, archive(Path::new("x.zip"), &files).unwrap());
        // The end of the directory, and where it says that the directory and the files begin.
        let end = bytes.len() - 22;
        assert_eq!(&bytes[end..end + 4], b"PK\x05\x06");
        let at = |place: usize| u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap()) as usize;
        let (length, start) = (at(end + 12), at(end + 16));
        assert_eq!(start + length, end);
        assert_eq!(&bytes[start..start + 4], b"PK\x01\x02");
        let second = start + 46 + 5;
        assert_eq!(&bytes[second..second + 4], b"PK\x01\x02");
        for (entry, (name, contents)) in [start, second].into_iter().zip(&files) {
            assert_eq!(&bytes[entry + 46..entry + 51], name.as_bytes());
            let offset = at(entry + 42);
            assert_eq!(&bytes[offset..offset + 4], b"PK\x03\x04");
            assert_eq!(&bytes[offset + 30..offset + 35], name.as_bytes());
            assert_eq!(at(entry + 24), contents.len());
            let data = &bytes[offset + 35..offset + 35 + at(entry + 20)];
            let mut read = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::DeflateDecoder::new(data), &mut read).unwrap();
            assert_eq!(&read, contents);
        }
    }
}

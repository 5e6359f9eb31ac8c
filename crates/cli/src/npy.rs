//! Arrays in NumPy's format.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::output::Output;

/// Bytes of the header: large enough for any shape, and a multiple of 64 as the format requires.
const HEADER: usize = 128;

/// An array whose rows are written one after another.
///
/// The header holds the number of rows, which is known only at the end. For a new file it is written then; for
/// any other output, rows are buffered in a temporary file.
pub struct Npy {
    element: Element,
    output: Output,
    waiting: Option<BufWriter<File>>,
    /// What the rows are called in error messages.
    rows: &'static str,
    /// Bytes of rows so far.
    bytes: u64,
}

/// The element type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floats, little-endian.
    F32,
    /// Unsigned 32-bit integers, little-endian.
    U32,
    /// Bytes with a sign.
    I8,
    /// Bytes.
    U8,
}

impl Element {
    /// NumPy's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "<f4",
            Self::U32 => "<u4",
            Self::I8 => "|i1",
            Self::U8 => "|u1",
        }
    }

    /// Its bytes.
    fn size(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::I8 | Self::U8 => 1,
        }
    }
}

impl Npy {
    /// An array to write to `output`, which must be empty; error messages call its rows `rows`.
    pub fn new(element: Element, rows: &'static str, mut output: Output) -> Result<Self> {
        let waiting = match output.is_new_file() {
            true => {
                output.bytes(&[0; HEADER])?;
                None
            }
            false => {
                let file = tempfile::tempfile().with_context(|| waiting_for(rows))?;
                Some(BufWriter::with_capacity(1 << 16, file))
            }
        };
        Ok(Self { element, output, waiting, rows, bytes: 0 })
    }

    /// Appends rows or parts of rows.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        match &mut self.waiting {
            Some(file) => file.write_all(bytes).with_context(|| waiting_for(self.rows)),
            None => self.output.bytes(bytes),
        }
    }

    /// Finishes an array of rows of `width` elements each, or of scalars without a width.
    pub fn finish(mut self, width: Option<usize>) -> Result<()> {
        let elements = self.bytes / self.element.size();
        let shape = match width {
            Some(width) => format!("({}, {width})", elements / width.max(1) as u64),
            None => format!("({elements},)"),
        };
        let header = header(self.element, &shape);
        let rows = self.rows;
        let cannot = || waiting_for(rows);
        let Some(waiting) = self.waiting.take() else {
            self.output.rewrite_start(&header)?;
            return self.output.finish();
        };
        let mut file = waiting.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot)?;
        self.output.bytes(&header)?;
        file.rewind().with_context(cannot)?;
        let mut part = vec![0; 1 << 16];
        loop {
            match file.read(&mut part).with_context(cannot)? {
                0 => return self.output.finish(),
                n => self.output.bytes(&part[..n])?,
            }
        }
    }
}

/// The context of a temporary-file error.
fn waiting_for(rows: &str) -> String {
    format!("cannot keep {rows} in a temporary file")
}

/// The header of version 1.0 of NumPy's format: magic, length, a Python literal, padding.
fn header(element: Element, shape: &str) -> Vec<u8> {
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((HEADER as u16 - 10).to_le_bytes());
    let literal = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", element.name());
    header.extend(literal.as_bytes());
    header.resize(HEADER - 1, b' ');
    header.push(b'\n');
    header
}

/// The vectors of a file, `[rows · width]`, and their width.
///
/// # Errors
/// A file that cannot be read or is truncated; anything other than a row-major array of `[rows, width]`
/// little-endian floats of 32 or 64 bits.
pub fn read(path: &Path) -> Result<(Vec<f32>, usize)> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    read_bytes(&bytes).map_err(|problem| anyhow!("{}: {problem}", path.display()))
}

fn read_bytes(bytes: &[u8]) -> Result<(Vec<f32>, usize), String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("it is not an array in NumPy's format")?;
    let cut = || "it ends within its header".to_owned();
    // Two bytes of the version, then the header's length, in two bytes in version 1 and in four in later ones.
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [1..=3, ..] | [] => return Err(cut()),
        [version, ..] => return Err(format!("its format's version is {version}; expected 1, 2 or 3")),
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = String::from_utf8_lossy(header);
    let value = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}':")).ok_or("its header is malformed")?;
        Ok::<_, String>(rest.trim_start())
    };
    let size = match value("descr")? {
        descr if descr.starts_with("'<f4'") => 4,
        descr if descr.starts_with("'<f8'") => 8,
        descr => {
            let found = descr.split(',').next().unwrap_or_default();
            return Err(format!("its numbers are {found}; expected '<f4' or '<f8'"));
        }
    };
    if !value("fortran_order")?.starts_with("False") {
        return Err("it is stored column by column; expected row by row (numpy.ascontiguousarray)".into());
    }
    let shape =
        value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')')).map(|(shape, _)| shape);
    let shape = shape.ok_or("its header is malformed")?;
    let sides: Option<Vec<usize>> = shape
        .split(',')
        .map(str::trim)
        .filter(|side| !side.is_empty())
        .map(|side| side.parse().ok())
        .collect();
    let (rows, width) = match sides.as_deref() {
        Some([rows, width]) if *width > 0 => (*rows, *width),
        _ => return Err(format!("its shape is ({shape}); expected (vectors, features)")),
    };
    let expected = rows.checked_mul(width).and_then(|numbers| numbers.checked_mul(size));
    if expected != Some(data.len()) {
        return Err(format!("it has {} bytes of numbers; expected {rows} · {width} · {size}", data.len()));
    }
    // The sizes are those of the arrays.
    let double = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes) as f32;
    let single = |bytes: &[u8]| bytes.try_into().map_or(f32::NAN, f32::from_le_bytes);
    let numbers = data.chunks_exact(size);
    let values = if size == 4 { numbers.map(single).collect() } else { numbers.map(double).collect() };
    Ok((values, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_numpy_writes() {
        let floats = header(Element::F32, "(3, 384)");
        assert_eq!(&floats[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let literal = std::str::from_utf8(&floats[10..]).unwrap();
        assert!(literal.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 384), }  "));
        assert!(literal.ends_with(" \n"));
        let (most, width) = (u64::MAX, usize::MAX);
        for shape in [format!("({most},)"), format!("({most}, {width})")] {
            let widest = header(Element::U32, &shape);
            assert_eq!(widest.len(), HEADER);
            assert!(widest.ends_with(b"\n") && std::str::from_utf8(&widest[10..]).unwrap().contains(&shape));
        }
    }

    /// A file of this header and data.
    fn file(version: u8, literal: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((literal.len() as u16).to_le_bytes()),
            _ => bytes.extend((literal.len() as u32).to_le_bytes()),
        }
        [&bytes, literal.as_bytes(), data].concat()
    }

    fn literal(descr: &str, order: &str, shape: &str) -> String {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}   \n")
    }

    #[test]
    fn vectors_are_read_as_numpy_wrote_them() {
        let values = [1.5_f32, -2.0, 0.0, 1e-9, 3.0, 7.0];
        let single: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let double: Vec<u8> = values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
        let ours = [&header(Element::F32, "(3, 2)")[..], &single].concat();
        assert_eq!(read_bytes(&ours).unwrap(), (values.to_vec(), 2));
        assert_eq!(
            read_bytes(&file(2, &literal("'<f8'", "False", "(2, 3)"), &double)).unwrap(),
            (values.to_vec(), 3)
        );
        assert_eq!(read_bytes(&file(1, &literal("'<f4'", "False", "(0, 3)"), &[])).unwrap(), (vec![], 3));
    }

    #[test]
    fn other_files_are_refused() {
        let of = |descr, order, shape, data: &[u8]| {
            read_bytes(&file(1, &literal(descr, order, shape), data)).unwrap_err()
        };
        let most = format!("({0}, {0})", usize::MAX);
        let cases = [
            (read_bytes(b"{}").unwrap_err(), "it is not an array in NumPy's format"),
            (read_bytes(b"\x93NUMPY\x01\x00\xff").unwrap_err(), "it ends within its header"),
            (read_bytes(b"\x93NUMPY\x01\x00\xff\x00{").unwrap_err(), "it ends within its header"),
            (
                read_bytes(b"\x93NUMPY\x09\x00\x00\x00").unwrap_err(),
                "its format's version is 9; expected 1, 2 or 3",
            ),
            (of("'<i8'", "False", "(1, 1)", &[0; 8]), "its numbers are '<i8'; expected '<f4' or '<f8'"),
            (
                of("'<f4'", "True", "(1, 1)", &[0; 4]),
                "it is stored column by column; expected row by row (numpy.ascontiguousarray)",
            ),
            (of("'<f4'", "False", "(1,)", &[0; 4]), "its shape is (1,); expected (vectors, features)"),
            (of("'<f4'", "False", "(1, 0)", &[]), "its shape is (1, 0); expected (vectors, features)"),
            (of("'<f4'", "False", "(2, 1)", &[0; 4]), "it has 4 bytes of numbers; expected 2 · 1 · 4"),
            (read_bytes(&file(1, "{}", &[])).unwrap_err(), "its header is malformed"),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
        assert!(of("'<f4'", "False", &most, &[0; 4]).starts_with("it has 4 bytes of numbers"));
    }

    #[test]
    fn a_file_is_the_same_whether_its_rows_waited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut array = Npy::new(Element::U32, "ids", Output::of(Some(&path)).unwrap()).unwrap();
        assert!(array.waiting.is_none());
        for id in 0..100_000_u32 {
            array.append(&id.to_le_bytes()).unwrap();
        }
        array.finish(None).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), HEADER + 400_000);
        assert_eq!(bytes[..HEADER], header(Element::U32, "(100000,)"));
        assert_eq!(bytes[bytes.len() - 4..], 99_999_u32.to_le_bytes());
    }
}

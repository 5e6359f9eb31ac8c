//! Arrays in NumPy's format.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};

use anyhow::{Context, Result};

use crate::output::Output;

/// A header's bytes: what a shape of any numbers takes, and a multiple of 64 as the format wants.
const HEADER: usize = 128;

/// An array whose rows are written one after another.
///
/// The header says how many rows there are, which is known at the end. A new file's header is written then; for any
/// other output the rows wait in a temporary file.
pub struct Npy {
    element: Element,
    output: Output,
    waiting: Option<BufWriter<File>>,
    /// What the rows are, as errors say it.
    rows: &'static str,
    /// Bytes of rows so far.
    bytes: u64,
}

/// What an array is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floats, little-endian.
    F32,
    /// Unsigned 32-bit integers, little-endian.
    U32,
}

impl Element {
    /// NumPy's name of it.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "<f4",
            Self::U32 => "<u4",
        }
    }
}

impl Npy {
    /// An array to write to `output`, to which nothing has been written yet; errors call its rows `rows`.
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

    /// Appends rows, or parts of them.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        match &mut self.waiting {
            Some(file) => file.write_all(bytes).with_context(|| waiting_for(self.rows)),
            None => self.output.bytes(bytes),
        }
    }

    /// Ends an array of rows of `width` elements each, or of single elements where there is no width.
    pub fn finish(mut self, width: Option<usize>) -> Result<()> {
        // Elements of either kind have four bytes.
        let elements = self.bytes / 4;
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

/// What went wrong with the temporary file.
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

//! UTF-16 read as UTF-8.

use std::io::{self, BufRead, Read};

/// Text as UTF-8. Text with a UTF-16 byte-order mark, as spreadsheets write it, is decoded; any other passes
/// unchanged.
pub(super) struct Decoded {
    source: Box<dyn BufRead>,
    form: Option<Form>,
    /// Bytes of an incomplete character.
    rest: Vec<u8>,
    text: Vec<u8>,
    /// Number of bytes of `text` already read.
    done: usize,
}

#[derive(Clone, Copy)]
enum Form {
    Utf8,
    /// Makes a code unit from two bytes.
    Utf16(fn([u8; 2]) -> u16),
}

impl Decoded {
    pub fn new(source: Box<dyn BufRead>) -> Self {
        Self { source, form: None, rest: Vec::new(), text: Vec::new(), done: 0 }
    }

    fn form(&mut self) -> io::Result<Form> {
        if let Some(form) = self.form {
            return Ok(form);
        }
        let form = match self.source.fill_buf()? {
            [0xFF, 0xFE, ..] => Form::Utf16(u16::from_le_bytes),
            [0xFE, 0xFF, ..] => Form::Utf16(u16::from_be_bytes),
            _ => Form::Utf8,
        };
        Ok(*self.form.insert(form))
    }

    /// Decodes the source's next bytes; nothing at its end.
    fn decode(&mut self, unit: fn([u8; 2]) -> u16) -> io::Result<()> {
        let bad = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
        (self.text, self.done) = (Vec::new(), 0);
        while self.text.is_empty() {
            let bytes = self.source.fill_buf()?;
            let n = bytes.len();
            self.rest.extend_from_slice(bytes);
            self.source.consume(n);
            if n == 0 && self.rest.is_empty() {
                return Ok(());
            }
            let (pairs, odd) = self.rest.as_chunks::<2>();
            let mut units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
            let is_half = units.last().is_some_and(|last| (0xD800..0xDC00).contains(last));
            if n == 0 && (is_half || !odd.is_empty()) {
                return Err(bad("UTF-16 that ends within a character"));
            }
            if is_half {
                units.pop();
            }
            self.text =
                String::from_utf16(&units).map_err(|_| bad("UTF-16 with half of a character"))?.into_bytes();
            self.rest.drain(..units.len() * 2);
        }
        Ok(())
    }
}

impl BufRead for Decoded {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.form()? {
            Form::Utf8 => self.source.fill_buf(),
            Form::Utf16(unit) => {
                if self.done == self.text.len() {
                    self.decode(unit)?;
                }
                Ok(&self.text[self.done..])
            }
        }
    }

    fn consume(&mut self, n: usize) {
        match self.form {
            Some(Form::Utf16(_)) => self.done += n,
            _ => self.source.consume(n),
        }
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn decoded(bytes: &[u8], capacity: usize) -> io::Result<String> {
        let source = BufReader::with_capacity(capacity, io::Cursor::new(bytes.to_vec()));
        let mut text = String::new();
        Decoded::new(Box::new(source)).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn utf16_is_decoded_wherever_it_is_cut() {
        let text = "\u{FEFF}a,é\n日,😀😀\n";
        let units: Vec<u16> = text.encode_utf16().collect();
        let [little, big]: [Vec<u8>; 2] = [u16::to_le_bytes, u16::to_be_bytes]
            .map(|bytes| units.iter().flat_map(|unit| bytes(*unit)).collect());
        for capacity in 2..9 {
            assert_eq!(decoded(&little, capacity).unwrap(), text);
            assert_eq!(decoded(&big, capacity).unwrap(), text);
            assert_eq!(decoded(text.as_bytes(), capacity).unwrap(), text);
        }
        assert_eq!(decoded(b"", 2).unwrap(), "");
        let message = |bytes: &[u8]| decoded(bytes, 8).unwrap_err().to_string();
        assert_eq!(message(&little[..3]), "UTF-16 that ends within a character");
        assert_eq!(message(b"\xFF\xFE\x00\xDC\x00\x00"), "UTF-16 with half of a character");
    }
}

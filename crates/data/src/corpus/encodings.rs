//! Text as editors and spreadsheets save it, made into UTF-8 with lines that end in `\n`.

use std::io::{self, BufRead, BufReader, Read};

/// The text of `source`, whose first bytes tell what it is: UTF-16 begins with a byte-order mark; a file with `\r` and without
/// `\n` has lines that end in `\r`, as on the old Macintosh. Everything else passes unchanged.
pub(super) fn as_utf8(mut source: Box<dyn BufRead>) -> Box<dyn BufRead> {
    let start = match source.fill_buf() {
        Ok(start) => start,
        Err(error) => return Box::new(BufReader::new(Failed(Some(error)))),
    };
    let big_endian = match start {
        // UTF-32, which nobody writes; its NULs are told as bad UTF-8.
        [0xFF, 0xFE, 0, 0, ..] => None,
        [0xFF, 0xFE, ..] => Some(false),
        [0xFE, 0xFF, ..] => Some(true),
        _ => None,
    };
    if let Some(big_endian) = big_endian {
        source.consume(2);
        return as_utf8(Box::new(Converted::new(source, Utf16 { big_endian, place: 2 })));
    }
    // A `\r` that ends what was read may have its `\n` behind it.
    let inner = &start[..start.len().saturating_sub(1)];
    match inner.contains(&b'\r') && !start.contains(&b'\n') {
        true => Box::new(Converted::new(source, CarriageReturns)),
        false => source,
    }
}

/// An error that whoever reads on is told, as a decoder tells its own but once.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// How bytes become others.
trait Convert {
    /// Appends what `input` becomes to `output`, and returns how many bytes of the input that took: all but at most three.
    fn convert(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<usize>;
}

/// A stream that is converted as it is read.
struct Converted<C> {
    source: Box<dyn BufRead>,
    convert: C,
    /// The beginning of a unit that the next bytes end.
    rest: Vec<u8>,
    output: Vec<u8>,
    /// How many bytes of `output` were consumed.
    consumed: usize,
}

impl<C: Convert> Converted<C> {
    fn new(source: Box<dyn BufRead>, convert: C) -> Self {
        Self { source, convert, rest: Vec::new(), output: Vec::new(), consumed: 0 }
    }
}

impl<C: Convert> BufRead for Converted<C> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.consumed == self.output.len() {
            self.output.clear();
            self.consumed = 0;
            let input = self.source.fill_buf()?;
            if input.is_empty() {
                if self.rest.is_empty() {
                    break;
                }
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the text ends in the middle of a character",
                ));
            }
            let n = input.len();
            if self.rest.is_empty() {
                let taken = self.convert.convert(input, &mut self.output)?;
                self.rest.extend_from_slice(&input[taken..]);
            } else {
                self.rest.extend_from_slice(input);
                let taken = self.convert.convert(&self.rest, &mut self.output)?;
                self.rest.drain(..taken);
            }
            self.source.consume(n);
        }
        Ok(&self.output[self.consumed..])
    }

    fn consume(&mut self, n: usize) {
        self.consumed += n;
    }
}

impl<C: Convert> Read for Converted<C> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let found = self.fill_buf()?;
        let n = found.len().min(buffer.len());
        buffer[..n].copy_from_slice(&found[..n]);
        self.consume(n);
        Ok(n)
    }
}

struct Utf16 {
    big_endian: bool,
    /// Bytes of the file before the next unit.
    place: u64,
}

impl Convert for Utf16 {
    fn convert(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<usize> {
        let mut units = input.as_chunks::<2>().0;
        let unit = |bytes: &[u8; 2]| match self.big_endian {
            true => u16::from_be_bytes(*bytes),
            false => u16::from_le_bytes(*bytes),
        };
        let mut taken = 0;
        while let Some(first) = units.first() {
            // A character of two units waits for the second one.
            let n = if (0xD800..0xDC00).contains(&unit(first)) { 2 } else { 1 };
            let Some((character, others)) = units.split_at_checked(n) else { break };
            let Some(Ok(character)) = char::decode_utf16(character.iter().map(unit)).next() else {
                let problem = format!("not UTF-16: half a surrogate pair at byte {}", self.place + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            };
            output.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            units = others;
            taken += 2 * n;
            self.place += 2 * n as u64;
        }
        Ok(taken)
    }
}

struct CarriageReturns;

impl Convert for CarriageReturns {
    fn convert(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<usize> {
        output.extend(input.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }));
        Ok(input.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of these bytes when they arrive a few at a time, after a first part that tells what they are.
    fn read(bytes: &[u8]) -> io::Result<String> {
        struct Slow(std::vec::IntoIter<u8>, usize);
        impl Read for Slow {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let n = std::mem::replace(&mut self.1, 3).min(buffer.len());
                let part: Vec<u8> = self.0.by_ref().take(n).collect();
                buffer[..part.len()].copy_from_slice(&part);
                Ok(part.len())
            }
        }
        let slow = Slow(bytes.to_vec().into_iter(), 9);
        let mut text = String::new();
        as_utf8(Box::new(BufReader::new(slow))).read_to_string(&mut text)?;
        Ok(text)
    }

    fn utf16(text: &str, big_endian: bool) -> Vec<u8> {
        let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
        units.flat_map(|unit| if big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    }

    #[test]
    fn utf16_of_either_order_is_read() {
        let text = "id;text\r\n1;naïve 😀\u{1F469}\u{200D}\n";
        for big_endian in [false, true] {
            assert_eq!(read(&utf16(text, big_endian)).unwrap(), text);
            assert_eq!(read(&utf16("a\rb 😀\rc", big_endian)).unwrap(), "a\nb 😀\nc");
        }
    }

    #[test]
    fn damaged_utf16_is_told() {
        let mut odd = utf16("abcdef", false);
        odd.pop();
        assert!(read(&odd).unwrap_err().to_string().contains("middle of a character"));
        let half = &utf16("abc😀", false)[..10];
        assert!(read(half).unwrap_err().to_string().contains("middle of a character"));
        for units in [[0xDC00, 0x61], [0xD800, 0x61], [0xD800, 0xD800]] {
            let mut bytes = utf16("ab", false);
            bytes.extend(units.iter().flat_map(|unit: &u16| unit.to_le_bytes()));
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.contains("half a surrogate pair at byte"), "{error}");
        }
    }

    #[test]
    fn carriage_returns_alone_end_lines() {
        assert_eq!(read(b"a,b\r1,2\r3,4\r").unwrap(), "a,b\n1,2\n3,4\n");
        for unchanged in ["a,b\r\n1,2\r\n", "a\rb\nc\n", "one line\r", "a\r", ""] {
            assert_eq!(read(unchanged.as_bytes()).unwrap(), unchanged);
        }
        assert_eq!(read("\u{FEFF}a\rb".as_bytes()).unwrap(), "\u{FEFF}a\nb");
    }
}

//! Reads numbers, texts and values from the head of a file; every length is checked against what is left of it.

use crate::{Array, Value};

/// What is wrong, and where.
#[derive(Debug)]
pub(crate) struct Refused {
    pub offset: usize,
    pub reason: String,
}

/// How deep lists may be nested.
const DEPTH: usize = 4;

pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

type Read<T> = Result<T, Refused>;

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn refused<T>(&self, reason: impl Into<String>) -> Read<T> {
        Err(Refused { offset: self.at, reason: reason.into() })
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, len: usize, what: &str) -> Read<&'a [u8]> {
        match self.bytes[self.at..].get(..len) {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => {
                self.refused(format!("{what} takes {len} bytes, and the file ends after {}", self.left()))
            }
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Read<[u8; N]> {
        let taken = self.take(N, what)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    pub fn u32(&mut self, what: &str) -> Read<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &str) -> Read<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things that each take at least `least` bytes.
    pub fn count(&mut self, least: usize, what: &str) -> Read<usize> {
        let start = self.at;
        let count = self.u64(what)?;
        match usize::try_from(count).ok().filter(|count| *count <= self.left() / least) {
            Some(count) => Ok(count),
            None => {
                self.at = start;
                self.refused(format!("{what} is {count}, more than the file has room for"))
            }
        }
    }

    pub fn text(&mut self, what: &str) -> Read<&'a str> {
        let len = self.count(1, &format!("the length of {what}"))?;
        let start = self.at;
        let bytes = self.take(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(error) => {
                self.at = start + error.valid_up_to();
                self.refused(format!("{what} is not in UTF-8"))
            }
        }
    }

    /// A value of the type with this number.
    pub fn value(&mut self, kind: u32, key: &str) -> Read<Value> {
        let what = &*format!("the value of `{}`", key.escape_debug());
        Ok(match kind {
            0 => Value::U8(self.array::<1>(what)?[0]),
            1 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            4 => Value::U32(self.u32(what)?),
            5 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(what)?)),
            7 => Value::Bool(self.bool(what)?),
            8 => Value::Text(self.text(what)?.to_owned()),
            9 => Value::Array(self.list(what, DEPTH)?),
            10 => Value::U64(self.u64(what)?),
            11 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(what)?)),
            _ => return self.refused(format!("{what} has type {kind}, expected 0 to 12")),
        })
    }

    fn bool(&mut self, what: &str) -> Read<bool> {
        match self.array::<1>(what)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => {
                self.at -= 1;
                self.refused(format!("{what} is {other}, expected 0 or 1 for false or true"))
            }
        }
    }

    fn list(&mut self, what: &str, depth: usize) -> Read<Array> {
        if depth == 0 {
            return self.refused(format!("{what} nests more than {DEPTH} lists"));
        }
        let kind_at = self.at;
        let kind = self.u32(what)?;
        let least = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => 12,
            _ => {
                self.at = kind_at;
                return self.refused(format!("{what} is a list of type {kind}, expected 0 to 12"));
            }
        };
        let n = self.count(least, &format!("the length of {what}"))?;
        Ok(match kind {
            0 => Array::U8(self.take(n, what)?.to_vec()),
            1 => Array::I8(self.numbers(n, what, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(n, what, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(n, what, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(n, what, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(n, what, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(n, what, f32::from_le_bytes)?),
            7 => Array::Bool((0..n).map(|_| self.bool(what)).collect::<Read<_>>()?),
            8 => Array::Text((0..n).map(|_| self.text(what).map(str::to_owned)).collect::<Read<_>>()?),
            9 => Array::Array((0..n).map(|_| self.list(what, depth - 1)).collect::<Read<_>>()?),
            10 => Array::U64(self.numbers(n, what, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(n, what, i64::from_le_bytes)?),
            _ => Array::F64(self.numbers(n, what, f64::from_le_bytes)?),
        })
    }

    fn numbers<const N: usize, T>(&mut self, n: usize, what: &str, of: fn([u8; N]) -> T) -> Read<Vec<T>> {
        let (words, _) = self.take(n * N, what)?.as_chunks();
        Ok(words.iter().copied().map(of).collect())
    }
}

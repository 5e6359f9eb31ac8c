//! Reads protocol buffers: the raw fields of a message, with checks.
//!
//! <https://protobuf.dev/programming-guides/encoding/>

use crate::{Error, Result};

/// A message, and its start in the file.
#[derive(Debug, Clone)]
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    start: usize,
    at: usize,
}

/// A field's number and value.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    pub number: u64,
    value: Value<'a>,
    at: usize,
}

#[derive(Debug, Clone)]
enum Value<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

impl<'a> Message<'a> {
    /// A whole file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, start: 0, at: 0 }
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::invalid(format!("byte {}", self.start + self.at), message)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let left = &self.bytes[self.at..];
        let Some(taken) = left.get(..len) else {
            return Err(self.error(format!("a field of {len} bytes, and {} are left", left.len())));
        };
        self.at += len;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error("a number of more than 64 bits"))
    }

    /// The next field.
    pub fn next(&mut self) -> Result<Option<Field<'a>>> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let at = self.start + self.at;
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(usize::try_from(len).unwrap_or(usize::MAX))?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            kind => return Err(self.error(format!("wire type {kind} is not known"))),
        };
        Ok(Some(Field { number: tag >> 3, value, at }))
    }
}

impl<'a> Field<'a> {
    fn expected(&self, what: &str) -> Error {
        Error::invalid(format!("byte {}", self.at), format!("field {} is not {what}", self.number))
    }

    /// A number, as a signed integer.
    pub fn int(&self) -> Result<i64> {
        match self.value {
            Value::Varint(value) => Ok(value as i64),
            _ => Err(self.expected("a number")),
        }
    }

    pub fn bool(&self) -> Result<bool> {
        Ok(self.int()? != 0)
    }

    pub fn float(&self) -> Result<f32> {
        match self.value {
            Value::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.expected("a 32-bit number")),
        }
    }

    pub fn bytes(&self) -> Result<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(self.expected("a string or message")),
        }
    }

    pub fn string(&self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.expected("UTF-8"))
    }

    pub fn message(&self) -> Result<Message<'a>> {
        // Tag and length take up two bytes or more; the place is for people to look at.
        Ok(Message { bytes: self.bytes()?, start: self.at + 2, at: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind() {
        let mut bytes = vec![0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1D];
        bytes.extend(1.5f32.to_le_bytes());
        bytes.extend([0x21, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([0x28, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]);
        let mut message = Message::new(&bytes);
        let mut next = || message.next().unwrap().unwrap();
        assert_eq!(next().int().unwrap(), 150);
        let text = next();
        assert_eq!((text.number, text.string().unwrap()), (2, "hi"));
        assert!(text.int().unwrap_err().to_string().starts_with("byte 3: field 2 is not a number"));
        assert_eq!(next().float().unwrap(), 1.5);
        assert_eq!(next().number, 4);
        assert_eq!(next().int().unwrap(), -1);
        assert!(message.next().unwrap().is_none());
    }

    #[test]
    fn damage_is_found() {
        let error = |bytes: &[u8]| Message::new(bytes).next().unwrap_err().to_string();
        assert_eq!(error(&[0x12, 5, b'h']), "byte 2: a field of 5 bytes, and 1 are left");
        assert_eq!(error(&[0x0B]), "byte 1: wire type 3 is not known");
        assert!(error(&[0xFF; 11]).contains("more than 64 bits"));
        assert!(error(&[0x08]).contains("0 are left"));
    }
}

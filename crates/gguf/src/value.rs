//! The values of metadata.

/// A value of a file's metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// 8 bits, unsigned.
    U8(u8),
    /// 8 bits, signed.
    I8(i8),
    /// 16 bits, unsigned.
    U16(u16),
    /// 16 bits, signed.
    I16(i16),
    /// 32 bits, unsigned.
    U32(u32),
    /// 32 bits, signed.
    I32(i32),
    /// A 32-bit float.
    F32(f32),
    /// `true` or `false`.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list of values of one type.
    Array(Array),
    /// 64 bits, unsigned.
    U64(u64),
    /// 64 bits, signed.
    I64(i64),
    /// A 64-bit float.
    F64(f64),
}

/// A list of values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// 8 bits, unsigned.
    U8(Vec<u8>),
    /// 8 bits, signed.
    I8(Vec<i8>),
    /// 16 bits, unsigned.
    U16(Vec<u16>),
    /// 16 bits, signed.
    I16(Vec<i16>),
    /// 32 bits, unsigned.
    U32(Vec<u32>),
    /// 32 bits, signed.
    I32(Vec<i32>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// `true` and `false`.
    Bool(Vec<bool>),
    /// Texts.
    Text(Vec<String>),
    /// Lists.
    Array(Vec<Array>),
    /// 64 bits, unsigned.
    U64(Vec<u64>),
    /// 64 bits, signed.
    I64(Vec<i64>),
    /// 64-bit floats.
    F64(Vec<f64>),
}

impl Array {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(all) => all.len(),
            Self::I8(all) => all.len(),
            Self::U16(all) => all.len(),
            Self::I16(all) => all.len(),
            Self::U32(all) => all.len(),
            Self::I32(all) => all.len(),
            Self::F32(all) => all.len(),
            Self::Bool(all) => all.len(),
            Self::Text(all) => all.len(),
            Self::Array(all) => all.len(),
            Self::U64(all) => all.len(),
            Self::I64(all) => all.len(),
            Self::F64(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number that stands for the type of the values in a file.
    pub(crate) fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

impl Value {
    /// A whole number of any type, if it is not negative.
    pub fn size(&self) -> Option<u64> {
        match *self {
            Self::U8(x) => Some(x.into()),
            Self::U16(x) => Some(x.into()),
            Self::U32(x) => Some(x.into()),
            Self::U64(x) => Some(x),
            Self::I8(x) => x.try_into().ok(),
            Self::I16(x) => x.try_into().ok(),
            Self::I32(x) => x.try_into().ok(),
            Self::I64(x) => x.try_into().ok(),
            _ => None,
        }
    }

    /// A number of any type.
    pub fn number(&self) -> Option<f64> {
        match *self {
            // The shortest decimal that is this float, as 1e-12 rather than 9.999999960041972e-13.
            Self::F32(x) => x.to_string().parse().ok(),
            Self::F64(x) => Some(x),
            Self::I8(x) => Some(x.into()),
            Self::I16(x) => Some(x.into()),
            Self::I32(x) => Some(x.into()),
            Self::I64(x) => Some(x as f64),
            _ => self.size().map(|x| x as f64),
        }
    }

    /// The value as it is named in errors, cut if it is long.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Text(text) if text.chars().count() > 40 => {
                format!("\"{}…\"", text.chars().take(40).collect::<String>().escape_debug())
            }
            Self::Text(text) => format!("\"{}\"", text.escape_debug()),
            Self::Array(array) => format!("a list of {}", array.len()),
            Self::Bool(x) => x.to_string(),
            Self::F32(x) => x.to_string(),
            Self::F64(x) => x.to_string(),
            Self::I64(x) => x.to_string(),
            Self::I32(x) => x.to_string(),
            Self::I16(x) => x.to_string(),
            Self::I8(x) => x.to_string(),
            Self::U8(_) | Self::U16(_) | Self::U32(_) | Self::U64(_) => {
                self.size().unwrap_or_default().to_string()
            }
        }
    }
}

//! safetensors: eight bytes of length, a JSON header, the tensors' bytes.

use serde_json::Value;

/// The header and the data.
pub fn parts(file: &[u8]) -> Option<(Value, &[u8])> {
    let length = u64::from_le_bytes(*file.first_chunk::<8>()?) as usize;
    Some((serde_json::from_slice(file.get(8..8 + length)?).ok()?, file.get(8 + length..)?))
}

/// A file of a header, whatever it says, and data.
pub fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The names of the tensors and where their bytes lie in the data.
pub fn tensors(header: &Value) -> Vec<(String, std::ops::Range<usize>)> {
    let entries = header.as_object().into_iter().flatten();
    let range = |value: &Value| {
        let offset = |i: usize| Some(value.get("data_offsets")?.get(i)?.as_u64()? as usize);
        Some(offset(0)?..offset(1)?)
    };
    entries.filter_map(|(name, value)| Some((name.clone(), range(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_its_parts() {
        let header = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let file = file(header, &[0, 0, 128, 63]);
        let (read, data) = parts(&file).unwrap();
        assert_eq!((read.to_string().as_str(), data), (header, &[0, 0, 128, 63][..]));
        assert_eq!(tensors(&read), [("w".to_owned(), 0..4)]);
        assert!(parts(b"short").is_none());
    }
}

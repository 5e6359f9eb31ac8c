//! Parquet files of required text columns: one row group, one plain, uncompressed page a column.

/// Thrift's compact protocol, as far as Parquet's headers need it.
#[derive(Default)]
struct Thrift {
    bytes: Vec<u8>,
    /// The last field's number in each structure that is open.
    last: Vec<i16>,
}

impl Thrift {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn field(&mut self, number: i16, kind: u8) {
        let last = self.last.last_mut().map_or(0, |last| std::mem::replace(last, number));
        self.bytes.push(((number - last) as u8) << 4 | kind);
    }

    fn open(&mut self) {
        self.last.push(0);
    }

    fn close(&mut self) {
        self.last.pop();
        self.bytes.push(0);
    }

    /// A field of 32 or 64 bits, which are written alike but for their kind.
    fn i32(&mut self, number: i16, value: i64) {
        self.field(number, 5);
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    fn i64(&mut self, number: i16, value: i64) {
        self.field(number, 6);
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    fn text(&mut self, number: i16, text: &str) {
        self.field(number, 8);
        self.item(text);
    }

    fn item(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    fn list(&mut self, number: i16, kind: u8, len: usize) {
        self.field(number, 9);
        if len < 15 {
            self.bytes.push((len as u8) << 4 | kind);
        } else {
            self.bytes.push(0xF0 | kind);
            self.varint(len as u64);
        }
    }
}

const STRUCT: u8 = 12;
const BYTE_ARRAY: i64 = 6;

/// A file of `rows`, each of which has a text for each of `names`.
pub fn file(names: &[&str], rows: &[Vec<String>]) -> Vec<u8> {
    let mut file = b"PAR1".to_vec();
    let mut chunks = Vec::new();
    for column in 0..names.len() {
        let mut page = Vec::new();
        for row in rows {
            let text = row.get(column).map_or("", String::as_str);
            page.extend((text.len() as u32).to_le_bytes());
            page.extend(text.as_bytes());
        }
        let mut header = Thrift::default();
        header.open();
        for (number, value) in [(1, 0), (2, page.len() as i64), (3, page.len() as i64)] {
            header.i32(number, value);
        }
        header.field(5, STRUCT);
        header.open();
        for (number, value) in [(1, rows.len() as i64), (2, 0), (3, 3), (4, 3)] {
            header.i32(number, value);
        }
        header.close();
        header.close();
        chunks.push((file.len() as i64, (header.bytes.len() + page.len()) as i64));
        file.extend(header.bytes);
        file.extend(page);
    }
    let footer = footer(names, rows.len() as i64, &chunks);
    file.extend(&footer);
    file.extend((footer.len() as u32).to_le_bytes());
    file.extend(b"PAR1");
    file
}

fn footer(names: &[&str], rows: i64, chunks: &[(i64, i64)]) -> Vec<u8> {
    let mut meta = Thrift::default();
    meta.open();
    meta.i32(1, 1);
    meta.list(2, STRUCT, names.len() + 1);
    meta.open();
    meta.text(4, "schema");
    meta.i32(5, names.len() as i64);
    meta.close();
    for name in names {
        meta.open();
        meta.i32(1, BYTE_ARRAY);
        meta.i32(3, 0);
        meta.text(4, name);
        // Text in UTF-8.
        meta.i32(6, 0);
        meta.close();
    }
    meta.i64(3, rows);
    meta.list(4, STRUCT, 1);
    meta.open();
    meta.list(1, STRUCT, names.len());
    for (name, (offset, size)) in names.iter().zip(chunks) {
        meta.open();
        meta.i64(2, *offset);
        meta.field(3, STRUCT);
        meta.open();
        meta.i32(1, BYTE_ARRAY);
        meta.list(2, 5, 1);
        meta.varint(0);
        meta.list(3, 8, 1);
        meta.item(name);
        meta.i32(4, 0);
        for (number, value) in [(5, rows), (6, *size), (7, *size), (9, *offset)] {
            meta.i64(number, value);
        }
        meta.close();
        meta.close();
    }
    meta.i64(2, chunks.iter().map(|(_, size)| size).sum());
    meta.i64(3, rows);
    meta.close();
    meta.close();
    meta.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_frame_and_its_texts() {
        let rows = [vec!["some words".to_owned(), "1".to_owned()], vec!["é".to_owned(), "0".to_owned()]];
        let file = file(&["text", "label"], &rows);
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
        let footer = u32::from_le_bytes(*file[file.len() - 8..].first_chunk().unwrap()) as usize;
        assert!(footer < file.len() - 12);
        assert!(file.windows(10).any(|window| window == b"some words"));
    }
}

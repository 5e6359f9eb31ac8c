//! ZIP archives of stored members, as `torch.save` writes them.

use flate2::Crc;

/// A member: its name and its bytes.
pub type Member = (String, Vec<u8>);

/// The members of an archive that compresses none of them.
pub fn members(archive: &[u8]) -> Vec<Member> {
    let number = |at: usize, len: usize| -> Option<usize> {
        let bytes = archive.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    let mut members = Vec::new();
    let mut at = 0;
    // The directory's entries, wherever it begins.
    while let Some(found) =
        archive.get(at..).and_then(|rest| rest.windows(4).position(|w| w == b"PK\x01\x02"))
    {
        at += found;
        let read = || {
            let (size, name_len) = (number(at + 20, 4)?, number(at + 28, 2)?);
            let name = String::from_utf8(archive.get(at + 46..at + 46 + name_len)?.to_vec()).ok()?;
            let local = number(at + 42, 4)?;
            let start = local + 30 + number(local + 26, 2)? + number(local + 28, 2)?;
            Some((name, archive.get(start..start + size)?.to_vec()))
        };
        members.extend(read());
        at += 4;
    }
    members
}

/// An archive of the members, its checksums right.
pub fn archive(members: &[Member]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut common = Vec::new();
        for field in [20u16, 0, 0, 0, 0x21] {
            common.extend(field.to_le_bytes());
        }
        for field in [crc.sum(), bytes.len() as u32, bytes.len() as u32] {
            common.extend(field.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(name.as_bytes());
        file.extend(bytes);
    }
    let (start, count) = (file.len() as u32, members.len() as u16);
    file.extend(&directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend(count.to_le_bytes());
    file.extend(count.to_le_bytes());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend(0u16.to_le_bytes());
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back() {
        let two = [("a/data.pkl".to_owned(), b"\x80\x02}.".to_vec()), ("a/data/0".to_owned(), vec![1; 40])];
        assert_eq!(members(&archive(&two)), two);
        let saved =
            std::fs::read(crate::step::root().join("crates/model/tests/data/torch/zip/pytorch_model.bin"));
        let names: Vec<String> = members(&saved.unwrap()).into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().any(|name| name.ends_with("/data.pkl")), "{names:?}");
    }
}

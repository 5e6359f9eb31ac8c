//! Evil weights take no memory beyond their share. Alone in its file: it measures the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs;

use cloze_model::huggingface::tensors_of;

/// The most memory this process ever had, in kB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// An old file whose tensors are described by `pickle`, over one storage `0` of 64 half-precision numbers.
fn file(pickle: &[u8]) -> Vec<u8> {
    [
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}X\x0d\x00\x00\x00little_endian\x88s.",
        pickle,
        b"\x80\x02]X\x01\x00\x00\x000a.",
        &64u64.to_le_bytes(),
        &[0x3c; 128],
    ]
    .concat()
}

/// A dictionary of `n` tensors of `len` elements each, all the same one.
fn tensors(n: usize, len: i32) -> Vec<u8> {
    let storage =
        b"(X\x07\x00\x00\x00storagectorch\nHalfStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x40tQq\x01";
    let mut pickle = [&b"\x80\x02}ctorch._utils\n_rebuild_tensor_v2\nq\x00"[..], storage, b"00"].concat();
    for i in 0..n {
        pickle.extend(b"X\x08\x00\x00\x00");
        pickle.extend(format!("{i:08}").bytes());
        pickle.extend(b"h\x00(h\x01K\x00J");
        pickle.extend(len.to_le_bytes());
        pickle.extend(b"\x85K\x00\x85tRs");
    }
    pickle.push(b'.');
    pickle
}

#[test]
fn memory_is_bounded_by_the_files_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pytorch_model.bin");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        tensors_of(folder.path()).map(|tensors| tensors.floats.len()).map_err(|error| error.to_string())
    };
    assert_eq!(read(&file(&tensors(3, 1000))), Ok(3));
    let evil = [
        // Eight gigabytes of one element; a hundred thousand times half a megabyte.
        file(&tensors(1, i32::MAX)),
        file(&tensors(100_000, 1 << 17)),
        // A stack and a dictionary of a million values each, a million marks, a million nested tuples.
        file(&[&b"\x80\x02"[..], &b"N".repeat(1 << 20), b"."].concat()),
        file(&[&b"\x80\x02}("[..], &b"NN".repeat(1 << 19), b"u."].concat()),
        file(&[&b"\x80\x02"[..], &b"(".repeat(1 << 20), b"."].concat()),
        file(&[&b"\x80\x02)"[..], &b"\x85".repeat(1 << 20), b"."].concat()),
        // A list that is doubled, and would be without end.
        file(&[&b"\x80\x02]q\x00"[..], &b"(h\x00h\x00e".repeat(1 << 18), b"."].concat()),
    ];
    let largest = evil.iter().map(Vec::len).max().unwrap() as u64;
    let before = peak();
    for bytes in &evil {
        assert!(read(bytes).is_err());
    }
    let grown = peak() - before;
    println!("{grown} kB for files of up to {} kB", largest / 1024);
    assert!(grown * 1024 < 100 * largest, "{grown} kB for {largest} bytes");
}

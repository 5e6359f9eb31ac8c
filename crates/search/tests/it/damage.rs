//! Files that are not as they were written.

use crate::places::{Random, config, rows, told};
use cloze_search::{
    GraphConfig, Index, IndexConfig, IndexWriter, Metric, OnId, Precision, SearchConfig, SearchError,
};
use std::fs;
use std::path::{Path, PathBuf};

/// A small index with every kind of file.
fn small(folder: &Path, precision: Precision) {
    let graph = Some(GraphConfig { neighbours: 2, breadth: 8, from_rows: 6, seed: 0 });
    let config = IndexConfig { metric: Metric::Euclidean, precision, graph, ..config(3) };
    let mut writer = IndexWriter::create(folder, config).unwrap();
    writer.add(&rows(0..9), &Random(2).vectors(9, 3), OnId::Error).unwrap();
    writer.maintain(&mut |_, _| {}).unwrap();
    writer.delete(&["id-4"], OnId::Error).unwrap();
    writer.add(&rows(20..22), &Random(3).vectors(2, 3), OnId::Error).unwrap();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn answers(index: &Index) -> Vec<(String, f64)> {
    let queries = Random(9).vectors(2, 3);
    let found = index.find(&queries, &SearchConfig { k: 4, ..SearchConfig::default() }).unwrap();
    found.iter().flat_map(|found| told(index, found)).collect()
}

#[test]
fn every_flipped_byte_is_told_or_changes_nothing() {
    // 0x20 makes small letters of capital ones.
    let all_masks = &[0x01, 0x20, 0xFF][..];
    for (precision, masks) in
        [(Precision::Int8, all_masks), (Precision::Binary, &[0xFF][..]), (Precision::Bf16, &[0xFF][..])]
    {
        let folder = tempfile::tempdir().unwrap();
        small(folder.path(), precision);
        let expected = answers(&Index::open(folder.path()).unwrap());
        let (mut told_of, mut without_effect) = (0, Vec::new());
        let all = files(folder.path());
        let endings: Vec<&str> = all.iter().filter_map(|path| path.extension()?.to_str()).collect();
        for kind in ["vectors", "halves", "texts", "ends", "ids", "fields", "graph", "deleted"] {
            assert!(endings.contains(&kind), "{kind}: {all:?}");
        }
        for path in all {
            let bytes = fs::read(&path).unwrap();
            for place in 0..bytes.len() {
                for mask in masks {
                    let mut flipped = bytes.clone();
                    flipped[place] ^= mask;
                    fs::write(&path, &flipped).unwrap();
                    match Index::open(folder.path()) {
                        Ok(index) => {
                            assert_eq!(answers(&index), expected);
                            without_effect.push(path.clone());
                        }
                        Err(error @ SearchError::Damaged { .. }) => {
                            let message = error.to_string();
                            let name = path.file_name().unwrap().to_str().unwrap();
                            assert!(message.contains(name) && message.lines().count() == 1, "{message}");
                            told_of += 1;
                        }
                        Err(error) => panic!("{path:?}, byte {place}: {error}"),
                    }
                    // Nothing is lost: a writer refuses too, and changes no file.
                    if *mask == 0xFF && place % 16 == 0 {
                        assert!(IndexWriter::open(folder.path()).is_err());
                        assert_eq!(fs::read(&path).unwrap(), flipped);
                    }
                }
            }
            fs::write(&path, &bytes).unwrap();
        }
        assert!(told_of > 3000 * masks.len() && without_effect.is_empty(), "{told_of} {without_effect:?}");
        assert_eq!(answers(&Index::open(folder.path()).unwrap()), expected);
    }
}

#[test]
fn files_that_are_cut_short_or_missing_are_told() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path(), Precision::Int8);
    for path in files(folder.path()) {
        if path.ends_with("lock") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let mut cuts: Vec<Vec<u8>> =
            [0, 1, bytes.len() / 2, bytes.len() - 1].map(|n| bytes[..n].to_vec()).into();
        cuts.push([&bytes[..], b"x"].concat());
        for cut in cuts {
            fs::write(&path, &cut).unwrap();
            let error = Index::open(folder.path()).unwrap_err();
            assert!(matches!(error, SearchError::Damaged { .. }), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let error = Index::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("the file is missing") || error.contains("is no index"), "{error}");
        fs::write(&path, &bytes).unwrap();
    }
    Index::open(folder.path()).unwrap();
}

//! Writers that are killed.

use crate::places::{Random, config, rows};
use cloze_search::{GraphConfig, Index, IndexConfig, IndexWriter, OnId, SearchConfig};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const WIDTH: usize = 4;

fn graph_config() -> IndexConfig {
    let graph = Some(GraphConfig { neighbours: 4, breadth: 16, from_rows: 40, seed: 0 });
    IndexConfig { graph, ..config(WIDTH) }
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let file =
        |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    fs::read_dir(folder).unwrap().map(|entry| file(entry.unwrap())).collect()
}

fn ids(index: &Index) -> Vec<String> {
    let found = index.find(&[1.0; WIDTH], &SearchConfig { k: 1000, ..SearchConfig::default() }).unwrap();
    let mut ids: Vec<String> = found[0].iter().map(|found| index.row(found.place).unwrap().id).collect();
    ids.sort();
    ids
}

/// Whatever has been written of a change, in any order and as far as it got, the index is the one before it or, with the
/// new manifest, the one after it.
#[test]
fn a_change_that_stops_at_any_moment_is_made_or_not() {
    type Change = fn(&mut IndexWriter) -> cloze_search::Result<usize>;
    let changes: [Change; 6] = [
        |writer| writer.add(&rows(0..60), &Random(1).vectors(60, WIDTH), OnId::Error),
        |writer| writer.maintain(&mut |_, _| {}).map(|()| 0),
        |writer| writer.delete(&["id-3", "id-59"], OnId::Error),
        |writer| writer.add(&rows(50..70), &Random(2).vectors(20, WIDTH), OnId::Accept),
        |writer| writer.maintain(&mut |_, _| {}).map(|()| 0),
        |writer| writer.compact(&mut |_, _| {}).map(|()| 0),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(folder.path(), graph_config()).unwrap();
    for (number, change) in changes.into_iter().enumerate() {
        let (before, ids_before) = (contents(folder.path()), ids(writer.index()));
        change(&mut writer).unwrap();
        let (after, ids_after) = (contents(folder.path()), ids(writer.index()));
        let new: Vec<(&String, &Vec<u8>)> =
            after.iter().filter(|(name, _)| !before.contains_key(*name)).collect();
        for n_whole in 0..=new.len() {
            for share in [0, 1, 3] {
                for manifest in ["old", "partial", "new"] {
                    // The manifest is replaced after all files are whole.
                    if manifest == "new" && n_whole < new.len() {
                        continue;
                    }
                    let copy = tempfile::tempdir().unwrap();
                    // Files of the old manifest are removed after it is replaced: some of them may be left.
                    for (name, bytes) in &before {
                        if manifest != "new" || share > 0 || after.contains_key(name) {
                            fs::write(copy.path().join(name), bytes).unwrap();
                        }
                    }
                    for (place, (name, bytes)) in new.iter().enumerate() {
                        let len = if place < n_whole { bytes.len() } else { bytes.len() * share / 4 };
                        fs::write(copy.path().join(name), &bytes[..len]).unwrap();
                    }
                    match manifest {
                        "partial" => {
                            let cut = after["manifest"].len() * (share + 1) / 4;
                            fs::write(copy.path().join("manifest.partial"), &after["manifest"][..cut])
                                .unwrap();
                        }
                        "new" => fs::write(copy.path().join("manifest"), &after["manifest"]).unwrap(),
                        _ => {}
                    }
                    let expected = if manifest == "new" { &ids_after } else { &ids_before };
                    let at = format!("change {number}, {n_whole} files, share {share}, {manifest} manifest");
                    assert_eq!(&ids(&Index::open(copy.path()).unwrap()), expected, "{at}");
                    // The next writer goes on from there, and removes what is left.
                    let mut next = IndexWriter::open(copy.path()).unwrap();
                    next.add(&rows([500]), &[1.0; WIDTH], OnId::Error).unwrap();
                    next.compact(&mut |_, _| {}).unwrap();
                    drop(next);
                    let index = Index::open(copy.path()).unwrap();
                    assert_eq!(index.len(), expected.len() + 1, "{at}");
                    let names = contents(copy.path());
                    let numbers: std::collections::BTreeSet<&str> =
                        names.keys().filter_map(|name| Some(name.split_once('.')?.0)).collect();
                    assert!(numbers.len() <= 3, "{at}: {:?}", names.keys());
                }
            }
        }
    }
}

/// As on a full disk: what was written before is removed, and the index is as it was.
#[test]
fn a_change_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(folder.path(), graph_config()).unwrap();
    let vectors = Random(1).vectors(60, WIDTH);
    writer.add(&rows(0..60), &vectors, OnId::Error).unwrap();
    let before = contents(folder.path());
    // No file can be made where a folder is.
    for blocked in ["000001.fields", "000001.ids", "000001.texts"] {
        let blocked = folder.path().join(blocked);
        fs::create_dir(&blocked).unwrap();
        writer.add(&rows(60..80), &vectors[..20 * WIDTH], OnId::Error).unwrap_err();
        fs::remove_dir(&blocked).unwrap();
        assert_eq!(contents(folder.path()), before);
    }
    type Change = fn(&mut IndexWriter) -> cloze_search::Result<usize>;
    let delete: Change = |writer| writer.delete(&["id-1"], OnId::Error);
    let maintain: Change = |writer| writer.maintain(&mut |_, _| {}).map(|()| 0);
    let blocked = [("000001.graph", maintain), ("000001.deleted", delete), ("manifest.partial", delete)];
    for (blocked, change) in blocked {
        let blocked = folder.path().join(blocked);
        fs::create_dir(&blocked).unwrap();
        change(&mut writer).unwrap_err();
        fs::remove_dir(&blocked).unwrap();
        assert_eq!(contents(folder.path()), before);
    }
    writer.delete(&["id-1"], OnId::Error).unwrap();
    writer.compact(&mut |_, _| {}).unwrap();
    assert_eq!(Index::open(folder.path()).unwrap().len(), 59);
}

#[test]
fn a_folder_of_a_killed_maker_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lock"), "").unwrap();
    fs::write(folder.path().join("manifest.partial"), "cloze-se").unwrap();
    assert!(IndexWriter::create(folder.path(), config(WIDTH)).is_ok());
}

/// The process that is killed: this test, in a process of its own, with a folder in this variable.
const VICTIM: &str = "CLOZE_SEARCH_VICTIM";

#[test]
fn what_was_acknowledged_survives_a_killed_process() {
    if let Some(folder) = std::env::var_os(VICTIM) {
        write_for_ever(folder.as_ref());
    }
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    drop(IndexWriter::create(&index, graph_config()).unwrap());
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crashes::what_was_acknowledged_survives_a_killed_process", "--exact", "--nocapture"])
            .env(VICTIM, &index)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(40 + 37 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut there = BTreeMap::new();
        for line in reader.join().unwrap() {
            match line.split_once(' ') {
                Some(("added", id)) => drop(there.insert(id.to_owned(), true)),
                // It may be deleted without having been told so.
                Some(("deleting", id)) => drop(there.remove(id)),
                Some(("deleted", id)) => drop(there.insert(id.to_owned(), false)),
                _ => {}
            }
        }
        let opened = Index::open(&index).unwrap();
        for (id, is_there) in &there {
            assert!(opened.contains(id) || !is_there, "round {round}: {id} is lost");
            // A row may have been added again, unseen, after it was deleted; here none is.
            assert!(!opened.contains(id) || *is_there, "round {round}: {id} is back");
        }
        assert_eq!(ids(&opened).len(), opened.len().min(1000));
        // Nobody's lock is left.
        drop(IndexWriter::open(&index).unwrap());
    }
    assert!(!Index::open(&index).unwrap().is_empty());
}

/// Adds and deletes rows, and tells each once it is done.
fn write_for_ever(index: &Path) -> ! {
    let mut writer = IndexWriter::open(index).unwrap();
    let start = writer.index().info().rows + writer.index().info().deleted;
    // Ids that no process before has used.
    let name = std::process::id() as usize * 1_000_000 + start;
    for step in (0..).step_by(8) {
        let ids: Vec<usize> = (name + step..name + step + 8).collect();
        writer.add(&rows(ids.iter().copied()), &Random(step as u64).vectors(8, WIDTH), OnId::Error).unwrap();
        ids.iter().for_each(|id| println!("added id-{id}"));
        let gone = format!("id-{}", ids[3]);
        println!("deleting {gone}");
        writer.delete(&[&gone], OnId::Error).unwrap();
        println!("deleted {gone}");
        if step % 40 == 32 {
            writer.maintain(&mut |_, _| {}).unwrap();
        }
    }
    unreachable!("it is killed")
}

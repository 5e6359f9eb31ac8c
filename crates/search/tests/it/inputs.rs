//! What cannot be used: one clear error, and nothing changed.

use crate::places::{Random, config, rows};
use cloze_search::{
    Index, IndexConfig, IndexWriter, Metric, ModelIdentity, NewRow, OnId, Precision, SearchConfig,
    SearchError,
};
use std::fs;

fn message<T: std::fmt::Debug>(result: Result<T, SearchError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_new_index_is_discarded_and_one_with_rows_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let [new, shared, full] = ["new", "shared", "full"].map(|name| folder.path().join(name));
    let writer = IndexWriter::create(&new, config(3)).unwrap();
    // As a change that failed may leave it.
    fs::write(new.join("000000.texts"), "").unwrap();
    assert!(writer.discard_new().unwrap());
    assert!(!new.exists());
    // What is not of the index stays.
    let writer = IndexWriter::create(&shared, config(3)).unwrap();
    fs::write(shared.join("notes.txt"), "").unwrap();
    assert!(writer.discard_new().unwrap());
    let left: Vec<_> = fs::read_dir(&shared).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
    let mut writer = IndexWriter::create(&full, config(3)).unwrap();
    writer.add(&rows(0..2), &Random(1).vectors(2, 3), OnId::Error).unwrap();
    assert!(!writer.discard_new().unwrap());
    assert_eq!(Index::open(&full).unwrap().len(), 2);
}

#[test]
fn vectors_and_ids_that_cannot_be_used_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(folder.path(), config(3)).unwrap();
    writer.add(&rows(0..2), &Random(1).vectors(2, 3), OnId::Error).unwrap();
    let before = fs::read(folder.path().join("manifest")).unwrap();
    let good = [0.5, 0.5, 0.5];
    for (new, vectors, expected) in [
        (rows([7]), vec![1.0, 2.0], "row 0: 2 features for 1 rows of 3"),
        (
            rows([7, 8]),
            [&good[..], &[1.0, f32::NAN, 0.0]].concat(),
            "row 1: feature 1 of the vector is NaN; expected a finite number",
        ),
        (
            rows([7]),
            vec![f32::INFINITY; 3],
            "row 0: feature 0 of the vector is inf; expected a finite number",
        ),
        (
            rows([7]),
            vec![1e30, 0.0, 0.0],
            "row 0: feature 0 of the vector is 1000000000000000000000000000000; expected at most 1e16",
        ),
        (rows([7]), vec![0.0; 3], "row 0: the vector is zero, which has no direction to compare"),
        (rows([7, 1]), good.repeat(2), "row 1: the id \"id-1\" is in the index already; ids are unique"),
        (rows([7, 7]), good.repeat(2), "row 1: the id \"id-7\" is that of another new row; ids are unique"),
    ] {
        assert_eq!(message(writer.add(&new, &vectors, OnId::Error)), expected);
    }
    assert_eq!(
        message(writer.add(&rows([7, 7]), &good.repeat(2), OnId::Accept)),
        "row 1: the id \"id-7\" is that of another new row; ids are unique"
    );
    assert_eq!(
        message(writer.delete(&["id-0", "id-9"], OnId::Error)),
        "the index has no row with the id \"id-9\""
    );
    assert_eq!(fs::read(folder.path().join("manifest")).unwrap(), before);
    assert_eq!(Index::open(folder.path()).unwrap().len(), 2);
    assert_eq!(writer.add(&[], &[], OnId::Error).unwrap(), 0);
    // A number that is a row's id already is passed over, and never replaces that row.
    let named = |id: &str| NewRow { id: Some(id.into()), ..NewRow::default() };
    writer.add(&[named("3")], &good, OnId::Error).unwrap();
    let new = [NewRow::default(), NewRow::default(), named("5"), NewRow::default()];
    assert_eq!(writer.add(&new, &good.repeat(4), OnId::Accept).unwrap(), 0);
    assert_eq!(writer.add(&[NewRow::default()], &good, OnId::Accept).unwrap(), 0);
    let mut ids: Vec<String> = writer.index().rows().map(|row| row.unwrap().0.id).collect();
    ids.sort();
    assert_eq!(ids, ["3", "4", "5", "6", "7", "8", "id-0", "id-1"]);
}

#[test]
fn queries_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(folder.path(), config(3)).unwrap();
    let index = writer.index().clone();
    assert_eq!(index.find(&[1.0; 6], &SearchConfig::default()).unwrap(), [[], []]);
    assert_eq!(index.find(&[], &SearchConfig::default()).unwrap().len(), 0);
    writer.add(&rows(0..2), &Random(1).vectors(2, 3), OnId::Error).unwrap();
    let index = writer.index();
    let find = |query: &[f32]| message(index.find(query, &SearchConfig::default()));
    assert_eq!(find(&[1.0; 4]), "query 1: 4 features for vectors of 3; the index has 3 per vector");
    assert_eq!(
        find(&[1.0, 1.0, f32::NAN]),
        "query 0: feature 2 of the vector is NaN; expected a finite number"
    );
    assert_eq!(find(&[0.0; 3]), "query 0: the vector is zero, which has no direction to compare");
    let none = SearchConfig { k: 0, ..SearchConfig::default() };
    assert_eq!(message(index.find(&[1.0; 3], &none)), "k is 0; expected a number from 1 to 1000000");
    let many =
        SearchConfig { k: 1_000_000, rescored: 1_000_000, breadth: 1_000_000, ..SearchConfig::default() };
    assert_eq!(index.find(&[1.0; 3], &many).unwrap()[0].len(), 2);
}

#[test]
fn a_zero_vector_has_a_product_and_a_distance() {
    for metric in [Metric::Dot, Metric::Euclidean] {
        for precision in [Precision::F32, Precision::Int8, Precision::Binary] {
            let folder = tempfile::tempdir().unwrap();
            let mut writer =
                IndexWriter::create(folder.path(), IndexConfig { metric, precision, ..config(3) }).unwrap();
            writer.add(&rows(0..2), &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0], OnId::Error).unwrap();
            let found = writer.index().find(&[0.0; 3], &SearchConfig::default()).unwrap();
            assert_eq!(found[0].len(), 2);
            assert_eq!(found[0][0].score, 0.0);
        }
    }
}

#[test]
fn conditions_on_fields_that_no_row_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(folder.path(), config(3)).unwrap();
    let asked = |key: &str| SearchConfig {
        conditions: vec![format!("{key}!=1").parse().unwrap()],
        ..SearchConfig::default()
    };
    let query = [1.0, 0.0, 0.0];
    assert_eq!(writer.index().find(&query, &asked("group")).unwrap(), [vec![]]);
    writer.add(&[NewRow::default()], &query, OnId::Error).unwrap();
    let expected = "no row of the index has a field \"group\": its rows were added without fields: name them with --field where rows are added";
    assert_eq!(message(writer.index().find(&query, &asked("group"))), expected);
    writer.add(&rows([7]), &query, OnId::Error).unwrap();
    writer.compact(&mut |_, _| {}).unwrap();
    let index = Index::open(folder.path()).unwrap();
    assert_eq!(index.find(&query, &asked("group")).unwrap()[0].len(), 2);
    let expected = "no row of the index has a field \"grope\": there are \"group\", \"parity\"";
    assert_eq!(message(index.find(&query, &asked("grope"))), expected);
}

#[test]
fn folders_that_are_no_place_for_an_index_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let none = message(Index::open(path("none")));
    assert!(
        none.ends_with("is no index: it has no file `manifest`; make one with `cloze search index`"),
        "{none}"
    );
    assert!(!path("none").exists());
    assert!(message(IndexWriter::open(path("none"))).contains("is no index"));
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other").join("notes.txt"), "mine").unwrap();
    assert!(message(IndexWriter::create(path("other"), config(2))).contains("has other files"));
    assert!(message(IndexWriter::open(path("other"))).contains("is no index"));
    assert_eq!(fs::read_dir(path("other")).unwrap().count(), 1);
    fs::write(path("file"), "").unwrap();
    assert!(message(Index::open(path("file"))).contains("is no index"));
    assert!(message(IndexWriter::create(path("file"), config(2))).contains("cannot make"));

    let writer = IndexWriter::create(path("index"), config(2)).unwrap();
    assert!(message(IndexWriter::open(path("index"))).contains("another process is writing"));
    assert!(message(IndexWriter::create(path("index"), config(2))).contains("another process is writing"));
    drop(writer);
    assert!(IndexWriter::open(path("index")).is_ok());
    // Without rows nothing is lost by making it anew; with rows it stays.
    let mut writer = IndexWriter::create(path("index"), config(3)).unwrap();
    writer.add(&rows([0]), &[1.0, 0.0, 0.0], OnId::Error).unwrap();
    writer.delete(&["id-0"], OnId::Error).unwrap();
    drop(writer);
    assert!(message(IndexWriter::create(path("index"), config(2))).contains("has an index already"));
    // An index that lost its manifest is not taken for an empty folder.
    fs::remove_file(path("index").join("manifest")).unwrap();
    let files = fs::read_dir(path("index")).unwrap().count();
    assert!(message(IndexWriter::create(path("index"), config(2))).contains("has other files"));
    assert_eq!(fs::read_dir(path("index")).unwrap().count(), files);
    for (width, neighbours) in [(0, 16), (1 << 20, 16), (4, 1), (4, 1000)] {
        let mut config = IndexConfig::new(width);
        config.graph.as_mut().unwrap().neighbours = neighbours;
        assert!(message(IndexWriter::create(path("new"), config)).contains("expected a number from"));
    }
    assert!(!path("new").exists());
}

#[test]
fn another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = ModelIdentity {
        name: "here".into(),
        hash: "0123456789abcdef".into(),
        pooling: "mean".into(),
        normalize: true,
    };
    let made = IndexConfig { model: Some(model.clone()), ..config(4) };
    let writer = IndexWriter::create(folder.path(), made).unwrap();
    let index = writer.index();
    index.check_model(&ModelIdentity { name: "there".into(), ..model.clone() }, 4).unwrap();
    let refused = |model: ModelIdentity, width| message(index.check_model(&model, width));
    let was = "the index was made with another model: its ";
    assert_eq!(refused(model.clone(), 5), format!("{was}width is 4, that of this model is 5"));
    let other = ModelIdentity { hash: "ff".into(), ..model.clone() };
    assert_eq!(
        refused(other, 4),
        format!("{was}hash is 0123456789ab (here), that of this model is ff (here)")
    );
    let other = ModelIdentity { pooling: "cls".into(), ..model.clone() };
    assert_eq!(refused(other, 4), format!("{was}pooling is mean, that of this model is cls"));
    let other = ModelIdentity { normalize: false, ..model };
    assert_eq!(refused(other, 4), format!("{was}`normalize` is true, that of this model is false"));
}

#[test]
fn a_models_hash_is_that_of_what_decides_its_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let hash = || ModelIdentity::hash_of(folder.path()).unwrap();
    fs::write(folder.path().join("model.safetensors"), [1, 2]).unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    let first = hash();
    // What Python's programs write beside a model, and weights of another format that are not read.
    let others = [
        "README.md",
        "data_config.json",
        "training_args.bin",
        "notes.txt",
        "pytorch_model.bin",
        "extra.safetensors",
    ];
    for other in others {
        fs::write(folder.path().join(other), "about it").unwrap();
        assert_eq!(hash(), first, "{other}");
    }
    assert_ne!(ModelIdentity::earlier_hash_of(folder.path()).unwrap(), first);
    for read in ["tokenizer_config.json", "vocab.txt", "config_sentence_transformers.json"] {
        let before = hash();
        fs::write(folder.path().join(read), "{}").unwrap();
        assert_ne!(hash(), before, "{read}");
    }
    let first = hash();
    // A map of embeddings is known by its type, whatever its folder is called.
    fs::create_dir(folder.path().join("map")).unwrap();
    fs::write(folder.path().join("map/model.safetensors"), [5]).unwrap();
    assert_eq!(hash(), first);
    fs::write(
        folder.path().join("modules.json"),
        r#"[{"path": "map", "type": "sentence_transformers.models.Dense"}]"#,
    )
    .unwrap();
    let mapped = hash();
    fs::write(folder.path().join("map/model.safetensors"), [6]).unwrap();
    assert_ne!(hash(), mapped);
    fs::remove_file(folder.path().join("modules.json")).unwrap();
    fs::write(folder.path().join("model.safetensors"), [1, 3]).unwrap();
    assert_ne!(hash(), first);
}

#[test]
fn an_earlier_versions_hash_is_that_of_all_files_at_the_top() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("config.json", "{}");
    write("model.safetensors", "weights");
    write("vocab.txt", "a");
    // Of these names alone the two make the same.
    let (earlier, now) =
        (ModelIdentity::earlier_hash_of(folder.path()), ModelIdentity::hash_of(folder.path()));
    assert_eq!(earlier.unwrap(), now.unwrap());
    write("data_config.json", "{}");
    let (earlier, now) =
        (ModelIdentity::earlier_hash_of(folder.path()), ModelIdentity::hash_of(folder.path()));
    assert_ne!(earlier.unwrap(), now.unwrap());
    // Shards are read as their index names them.
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    write("model.safetensors.index.json", r#"{"weight_map": {"a": "1.safetensors"}}"#);
    write("1.safetensors", "first");
    write("2.safetensors", "not read");
    let first = ModelIdentity::hash_of(folder.path()).unwrap();
    write("2.safetensors", "nor this");
    assert_eq!(ModelIdentity::hash_of(folder.path()).unwrap(), first);
    write("1.safetensors", "another");
    assert_ne!(ModelIdentity::hash_of(folder.path()).unwrap(), first);
}

#[test]
fn fields_that_could_not_be_read_again_are_refused() {
    let nested = |levels: usize, object: bool| {
        let [open, close] = if object { [r#"{"a":"#, "}"] } else { ["[", "]"] };
        serde_json::from_str(&(open.repeat(levels) + "1" + &close.repeat(levels))).unwrap()
    };
    for object in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = IndexWriter::create(folder.path(), config(3)).unwrap();
        let mut new = rows(0..2);
        new[1].fields.insert("deep".into(), nested(126, object));
        assert_eq!(
            message(writer.add(&new, &Random(1).vectors(2, 3), OnId::Error)),
            "row 1: the field \"deep\" has lists or objects more than 125 deep within one another; expected 125 at most"
        );
        new[1].fields.insert("deep".into(), nested(125, object));
        writer.add(&new, &Random(1).vectors(2, 3), OnId::Error).unwrap();
        writer.compact(&mut |_, _| {}).unwrap();
        let index = Index::open(folder.path()).unwrap();
        let found = index.find(&[1.0; 3], &SearchConfig::default()).unwrap();
        assert!(found[0].iter().all(|found| index.row(found.place).is_ok()));
        writer.delete(&["id-0"], OnId::Error).unwrap();
        writer.compact(&mut |_, _| {}).unwrap();
    }
}

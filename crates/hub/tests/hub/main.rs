//! Models by name, from a server on the loopback and from caches as Python's `huggingface_hub` fills them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

mod server;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloze_hub::{Hub, HubConfig, HubError, Model, Progress};
use server::{COMMIT, Server, etag};
use tempfile::TempDir;

const NAME: &str = "sentence-transformers/mini";
const CONFIG: &[u8] = br#"{"model_type": "bert"}"#;
const MODULES: &[u8] =
    br#"[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]"#;

/// Bytes without a pattern that a wrong order of blocks would keep.
fn weights() -> Vec<u8> {
    (0..300_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn server() -> Server {
    Server::new(&[
        (
            NAME,
            &[
                ("README.md", b"# A model"),
                ("config.json", CONFIG),
                ("modules.json", MODULES),
                ("1_Pooling/config.json", b"{}"),
                ("onnx/config.json", b"{}"),
                ("tokenizer.json", b"{\"a\": 1}"),
                ("vocab.txt", b"a\nb\n"),
                ("model.safetensors", &weights()),
                ("pytorch_model.bin", b"old"),
                ("tf_model.h5", b"other"),
            ],
        ),
        ("flax-only", &[("config.json", CONFIG), ("flax_model.msgpack", b"x")]),
        ("weights-only", &[("model.safetensors", b"x")]),
        (
            "old/sharded",
            &[
                ("config.json", CONFIG),
                ("pytorch_model.bin.index.json", br#"{"weight_map": {"a": "1.bin", "b": "2.bin"}}"#),
                ("1.bin", b"first"),
                ("2.bin", b"second"),
                ("3.bin", b"of no use"),
            ],
        ),
        (
            "evil/shards",
            &[
                ("config.json", CONFIG),
                ("model.safetensors.index.json", br#"{"weight_map": {"a": "../../x.safetensors"}}"#),
            ],
        ),
    ])
}

fn config(server: &Server, cache: &Path) -> HubConfig {
    HubConfig {
        endpoint: server.url.clone(),
        retry_delay: Duration::from_millis(1),
        retries: 3,
        timeout: Duration::from_secs(5),
        ..HubConfig::new(cache)
    }
}

fn offline(cache: &Path) -> HubConfig {
    // Nothing listens there: whoever asks all the same fails otherwise.
    HubConfig { endpoint: "http://127.0.0.1:9".into(), offline: true, ..HubConfig::new(cache) }
}

fn fetch(config: &HubConfig, name: &str) -> Result<Model, HubError> {
    Hub::new(config.clone())?.fetch(&name.parse()?, &mut ())
}

#[track_caller]
fn fails(config: &HubConfig, name: &str) -> String {
    fetch(config, name).unwrap_err().to_string()
}

fn model_folder(cache: &TempDir, name: &str) -> PathBuf {
    cache.path().join(format!("models--{}", name.replace('/', "--")))
}

/// All files below, but for locks.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.retain(|file| file.extension().is_none_or(|extension| extension != "lock"));
    files
}

#[test]
fn just_what_is_needed_is_downloaded_once() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let config = config(&server, cache.path());
    let model = fetch(&config, NAME).unwrap();
    let expected = [
        "config.json",
        "modules.json",
        "tokenizer.json",
        "vocab.txt",
        "1_Pooling/config.json",
        "model.safetensors",
    ];
    assert_eq!(model.files, expected);
    assert_eq!(model.commit, COMMIT);
    assert_eq!(model.folder, model_folder(&cache, NAME).join("snapshots").join(COMMIT));
    assert_eq!(fs::read(model.folder.join("model.safetensors")).unwrap(), weights());
    assert_eq!(fs::read(model.folder.join("1_Pooling/config.json")).unwrap(), b"{}");
    // The layout is Python's.
    let folder = model_folder(&cache, NAME);
    assert_eq!(fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    #[cfg(unix)]
    {
        let link = fs::read_link(model.folder.join("1_Pooling/config.json")).unwrap();
        assert_eq!(link, Path::new("../../../blobs").join(etag("config.json", b"{}")));
        let link = fs::read_link(model.folder.join("model.safetensors")).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(etag("model.safetensors", &weights())));
    }
    // Weights come last, each file is asked for and fetched once.
    let log = server.log();
    assert_eq!(log.len(), 1 + 2 * expected.len() + 1, "{log:?}");
    assert_eq!(log[0], format!("GET /api/models/{NAME}/revision/main"));
    assert!(log.last().unwrap().starts_with("GET /cdn/"), "{log:?}");

    // The second time it takes one question, and offline none.
    assert_eq!(fetch(&config, NAME).unwrap(), model);
    assert_eq!(server.log().len(), 1);
    let cached = fetch(&offline(cache.path()), NAME).unwrap();
    assert_eq!(cached, model);
    assert_eq!(fetch(&offline(cache.path()), &format!("{NAME}@{COMMIT}")).unwrap(), model);

    // A new commit that changes one file fetches that one.
    server.state().commit = "2".repeat(40);
    server.state().models.get_mut(NAME).unwrap().insert("vocab.txt".into(), b"a\nc\n".to_vec());
    let newer = fetch(&config, NAME).unwrap();
    assert_eq!(fs::read(newer.folder.join("vocab.txt")).unwrap(), b"a\nc\n");
    assert_eq!(fs::read(model.folder.join("vocab.txt")).unwrap(), b"a\nb\n");
    let fetched: Vec<String> = server.log().into_iter().filter(|line| line.contains("resolve")).collect();
    let gets: Vec<_> = fetched.iter().filter(|line| line.starts_with("GET")).collect();
    assert_eq!(gets.len(), 1, "{fetched:?}");
    assert_eq!(fetch(&offline(cache.path()), NAME).unwrap(), newer);
}

#[test]
fn revisions_shards_and_new_names() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let config = config(&server, cache.path());
    let model = fetch(&config, "old/sharded@v1").unwrap();
    assert_eq!(model.files, ["config.json", "1.bin", "2.bin", "pytorch_model.bin.index.json"]);
    assert_eq!(fs::read(model.folder.join("2.bin")).unwrap(), b"second");
    assert_eq!(fs::read_to_string(model_folder(&cache, "old/sharded").join("refs/v1")).unwrap(), COMMIT);
    assert_eq!(fetch(&offline(cache.path()), "old/sharded@v1").unwrap(), model);
    assert!(fails(&offline(cache.path()), "old/sharded").contains("offline mode asks no server"));

    server.state().renamed.insert("before/mini".into(), NAME.into());
    let renamed = fetch(&config, "before/mini").unwrap();
    assert_eq!(fs::read(renamed.folder.join("model.safetensors")).unwrap(), weights());
}

#[test]
fn refusals_say_what_to_do() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let anonymous = config(&server, cache.path());
    let with = |token: &str| HubConfig { token: Some(token.into()), ..anonymous.clone() };
    server.state().gated.push(NAME.into());

    let url = &server.url;
    assert_eq!(
        fails(&anonymous, "no/such"),
        format!("{url} has no model `no/such`, or shows it only with a token")
    );
    assert_eq!(
        fails(&with("hf_other"), "no/such"),
        format!("{url} has no model `no/such`, or this token may not see it")
    );
    assert_eq!(fails(&anonymous, "old/sharded@v9"), "model `old/sharded` has no revision `v9`");
    assert!(
        fails(&anonymous, NAME)
            .ends_with("gated or private: ask for access on its page, and give a token (HF_TOKEN)")
    );
    assert!(fails(&with("hf_other"), NAME).contains("this token is not allowed to read it"));
    assert_eq!(fails(&with("hf_bad"), NAME), format!("{url} does not accept the token"));
    // The right token opens it, and is not shown to the server that has the large files (which would refuse).
    assert!(fetch(&with("hf_good"), NAME).is_ok());

    assert!(
        fails(&anonymous, "flax-only").starts_with("model `flax-only` has no weights in model.safetensors")
    );
    assert_eq!(fails(&anonymous, "weights-only"), "model `weights-only` has no config.json");
    let evil = fails(&anonymous, "evil/shards");
    assert!(evil.ends_with(r#"shard "../../x.safetensors" is not a file of the model's folder"#), "{evil}");
    assert!(matches!(fetch(&anonymous, "../x"), Err(HubError::Name { .. })));
    let not_http = HubConfig { endpoint: "ftp://x".into(), ..anonymous.clone() };
    assert!(fails(&not_http, NAME).contains("begins with https://"));
}

#[test]
fn without_a_network_the_cache_does_or_it_is_said() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    assert!(fails(&offline(cache.path()), NAME).contains("has no `config.json` of model"));
    // A port that nothing listens to any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = HubConfig { endpoint: format!("http://127.0.0.1:{port}"), ..config(&server, cache.path()) };
    let message = fails(&dead, NAME);
    assert!(message.starts_with(&format!("cannot reach http://127.0.0.1:{port}/api/models")), "{message}");

    let model = fetch(&config(&server, cache.path()), NAME).unwrap();
    struct Notes(Vec<String>);
    impl Progress for Notes {
        fn note(&mut self, line: &str) {
            self.0.push(line.into());
        }
    }
    let mut notes = Notes(Vec::new());
    let hub = Hub::new(dead).unwrap();
    assert_eq!(hub.fetch(&NAME.parse().unwrap(), &mut notes).unwrap(), model);
    assert!(notes.0[0].contains(&format!("using the cache's {NAME}, as of {COMMIT}")), "{:?}", notes.0);

    // Half a model is none: the weights' bytes are gone, their link is left.
    fs::remove_file(model_folder(&cache, NAME).join("blobs").join(etag("model.safetensors", &weights())))
        .unwrap();
    assert!(fails(&offline(cache.path()), NAME).contains("has no `model.safetensors` of model"));
    assert!(hub.fetch(&NAME.parse().unwrap(), &mut ()).is_err());
    assert_eq!(fetch(&config(&server, cache.path()), NAME).unwrap(), model);
    assert_eq!(fs::read(model.folder.join("model.safetensors")).unwrap(), weights());
}

#[cfg(unix)]
#[test]
fn a_cache_that_python_filled_is_used() {
    let cache = tempfile::tempdir().unwrap();
    let folder = model_folder(&cache, NAME);
    let snapshot = folder.join("snapshots").join(COMMIT);
    for folder in [folder.join("blobs"), folder.join("refs"), snapshot.join("1_Pooling")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(folder.join("refs/main"), COMMIT).unwrap();
    let put = |file: &str, bytes: &[u8], up: &str| {
        let blob = etag(file, bytes);
        fs::write(folder.join("blobs").join(&blob), bytes).unwrap();
        std::os::unix::fs::symlink(format!("{up}blobs/{blob}"), snapshot.join(file)).unwrap();
    };
    put("config.json", CONFIG, "../../");
    put("modules.json", MODULES, "../../");
    put("1_Pooling/config.json", b"{}", "../../../");
    put("README.md", b"# A model", "../../");
    assert!(fails(&offline(cache.path()), NAME).contains("has no `weights in model.safetensors"));
    put("model.safetensors", &weights(), "../../");
    let model = fetch(&offline(cache.path()), NAME).unwrap();
    assert_eq!(model.folder, snapshot);
    assert_eq!(model.files, ["config.json", "modules.json", "1_Pooling/config.json", "model.safetensors"]);

    // Online it lacks the tokenizer only.
    let server = server();
    fetch(&config(&server, cache.path()), NAME).unwrap();
    let gets = server.log().into_iter().filter(|line| line.starts_with("GET") && line.contains("resolve"));
    assert_eq!(gets.count(), 2);

    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("deep/model");
    model.copy_to(&to).unwrap();
    let mut copied = files_below(&to);
    copied.sort();
    assert_eq!(copied.len(), model.files.len());
    assert!(copied.iter().all(|file| fs::symlink_metadata(file).unwrap().is_file()));
    assert_eq!(fs::read(to.join("model.safetensors")).unwrap(), weights());
    assert!(model.copy_to(&to).unwrap_err().to_string().contains("cannot write to"));
    assert_eq!(files_below(out.path()).len(), model.files.len());
}

/// Interrupted downloads are resumed; files in the cache are complete.
#[test]
fn an_interrupted_download_goes_on() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let config = config(&server, cache.path());
    let file = |model: &Model| fs::read(model.folder.join("model.safetensors")).unwrap();

    // More often than it is tried: it ends, with nothing under the weights' name.
    let patient = HubConfig { retries: 0, ..config.clone() };
    server.state().breaks = (1, 1_000_000);
    let message = fails(&patient, NAME);
    assert!(message.contains("cannot reach") && message.contains("1000000"), "{message}");
    let below = files_below(&model_folder(&cache, NAME));
    assert!(
        !below.iter().any(|path| path.ends_with("model.safetensors") || path.ends_with("refs/main")),
        "{below:?}"
    );
    assert_eq!(below.iter().filter(|path| path.to_str().unwrap().ends_with(".incomplete")).count(), 1);
    assert!(fails(&offline(cache.path()), NAME).contains("offline mode asks no server"));

    // Another time it goes on from there, and breaks off again on the way.
    server.state().breaks = (9, 30_000);
    server.log();
    let model = fetch(&config, NAME).unwrap();
    assert_eq!(file(&model), weights());
    let ranges: Vec<String> = server.log().into_iter().filter(|line| line.starts_with("GET /cdn")).collect();
    assert!(ranges[0].ends_with("+1000000") && ranges[1].ends_with("+1030000"), "{ranges:?}");
    let below = files_below(&model_folder(&cache, NAME));
    assert!(!below.iter().any(|path| path.to_str().unwrap().ends_with(".incomplete")), "{below:?}");
}

#[test]
fn a_server_without_ranges_starts_anew() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    server.state().no_ranges = true;
    server.state().breaks = (2, 500_000);
    let model = fetch(&config(&server, cache.path()), NAME).unwrap();
    assert_eq!(fs::read(model.folder.join("model.safetensors")).unwrap(), weights());
}

#[test]
fn a_server_that_falls_silent_is_asked_again() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    server.state().breaks = (1, 500_000);
    server.state().stalls = true;
    server.state().busy = 2;
    let config = HubConfig { timeout: Duration::from_millis(300), ..config(&server, cache.path()) };
    let model = fetch(&config, NAME).unwrap();
    assert_eq!(fs::read(model.folder.join("model.safetensors")).unwrap(), weights());
    server.state().busy = 100;
    assert!(fails(&config, "old/sharded").ends_with("the server answers with status 503"));
}

/// What is not what was announced never gets a name.
#[test]
fn wrong_bytes_lengths_and_versions_are_thrown_away() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let config = config(&server, cache.path());
    let nothing_is_kept = || {
        let below = files_below(&model_folder(&cache, NAME));
        assert!(below.iter().all(|path| path.to_str().unwrap().ends_with(".incomplete")), "{below:?}");
    };
    server.state().garbles = true;
    let message = fails(&config, NAME);
    assert!(message.contains("the server announced git's hash"), "{message}");
    nothing_is_kept();
    server.state().garbles = false;
    server.state().longer = 3;
    let message = fails(&config, NAME);
    assert!(message.contains("cannot reach"), "{message}");
    nothing_is_kept();
    server.state().longer = 0;
    for evil in ["../../../evil", "a/b", "", ".hidden", "x y"] {
        server.state().etag = Some(evil.into());
        let message = fails(&config, NAME);
        assert!(message.contains("not the answer of a model hub"), "{evil}: {message}");
        nothing_is_kept();
    }
    server.state().etag = None;
    server.state().commit = "../..".into();
    assert!(fails(&config, NAME).contains("not the answer of a model hub"));
    server.state().commit = COMMIT.into();

    // What an earlier time left is not the file's beginning: it starts anew.
    fs::write(
        model_folder(&cache, NAME).join("blobs").join(etag("model.safetensors", &weights()) + ".incomplete"),
        [7; 5000],
    )
    .unwrap();
    let model = fetch(&config, NAME).unwrap();
    assert_eq!(fs::read(model.folder.join("model.safetensors")).unwrap(), weights());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let blobs = model_folder(&cache, NAME).join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let incomplete = blobs.join(etag("config.json", CONFIG) + ".incomplete");
    std::os::unix::fs::symlink("/dev/full", incomplete).unwrap();
    let error = fetch(&config(&server, cache.path()), NAME).unwrap_err();
    let HubError::Io { action: "write", source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
}

/// Two programs that want the same model at once.
#[test]
fn at_once_it_is_downloaded_once() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let config = config(&server, cache.path());
    let models: Vec<Model> = std::thread::scope(|scope| {
        let fetch = || fetch(&config, NAME).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(fetch)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(models.iter().all(|model| *model == models[0]));
    let weights = server.log().into_iter().filter(|line| line.starts_with("GET /cdn")).count();
    assert_eq!(weights, 1);
}

/// A server whose files all have one version, such as a constant or that of the folder.
#[test]
fn files_of_one_version_are_files_of_their_own() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    server.state().etag = Some("v1-mirror".into());
    let config = config(&server, cache.path());
    let model = fetch(&config, NAME).unwrap();
    let read = |model: &Model, file: &str| fs::read(model.folder.join(file)).unwrap();
    let check = |model: &Model| {
        assert_eq!(read(model, "config.json"), CONFIG);
        assert_eq!(read(model, "modules.json"), MODULES);
        assert_eq!(read(model, "vocab.txt"), b"a\nb\n");
        assert_eq!(read(model, "model.safetensors"), weights());
    };
    check(&model);
    server.log();
    check(&fetch(&config, NAME).unwrap());
    assert_eq!(server.log().len(), 1, "nothing is downloaded again");
    // Another commit may have other bytes under the same version.
    let mut state = server.state();
    state.commit = "2220a243fdf4706b3f48f1d95db1a4f5529b4d42".into();
    state.models.get_mut(NAME).unwrap().insert("vocab.txt".into(), b"c\nd\n".to_vec());
    drop(state);
    assert_eq!(read(&fetch(&config, NAME).unwrap(), "vocab.txt"), b"c\nd\n");
}

#[test]
fn redirections_without_a_scheme_are_followed() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let mut state = server.state();
    state.bare = true;
    state.renamed.insert("old/name".into(), NAME.into());
    drop(state);
    let model = fetch(&config(&server, cache.path()), "old/name").unwrap();
    assert_eq!(fs::read(model.folder.join("model.safetensors")).unwrap(), weights());
}

#[test]
fn a_listing_is_a_list_of_files() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let config = config(&server, cache.path());
    for listing in [
        format!(r#"[[["config.json"]], "{COMMIT}"]"#),
        format!(r#"{{"sha": "{COMMIT}", "siblings": [["config.json"]]}}"#),
        format!(r#"{{"sha": "{COMMIT}", "siblings": {{"rfilename": "config.json"}}}}"#),
        format!(r#"{{"sha": "{COMMIT}", "siblings": ["config.json"]}}"#),
        format!(r#"{{"sha": "{COMMIT}"}}"#),
        "[]".into(),
    ] {
        server.state().listing = Some(listing.clone());
        let error = fails(&config, NAME);
        assert!(error.contains("expected an object with a list of files, `siblings`"), "{listing}: {error}");
    }
}

#[test]
fn a_server_that_trickles_is_given_up() {
    let (server, cache) = (server(), tempfile::tempdir().unwrap());
    let slow = HubConfig { slow_for: Duration::from_millis(300), ..config(&server, cache.path()) };
    server.state().trickles = Some(Duration::from_millis(20));
    let start = std::time::Instant::now();
    let error = fails(&slow, NAME);
    assert!(error.contains("bytes came in 0 seconds, expected 1000 a second at least"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    server.state().trickles = None;
    assert_eq!(fetch(&slow, NAME).unwrap().commit, COMMIT);
}

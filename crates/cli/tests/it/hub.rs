//! Models by name on the command line, from a hub on the loopback.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::server::{COMMIT, Server};
use tempfile::TempDir;

const NAME: &str = "someone/mini";

/// A small encoder with a vocabulary of letters, on a server.
fn server() -> Server {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/bert_pretraining");
    let read = |name: &str| fs::read(fixture.join(name)).unwrap();
    let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"].join("\n");
    Server::new(&[(
        NAME,
        &[
            ("config.json", &read("config.json")),
            ("model.safetensors", &read("model.safetensors")),
            ("vocab.txt", vocab.as_bytes()),
        ],
    )])
}

/// Runs the program in `home` with this environment; its status, standard output and standard error.
fn run(home: &TempDir, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    for (key, _) in std::env::vars() {
        let key_up = key.to_uppercase();
        if key_up.starts_with("HF_") || key_up.starts_with("HUGGING") || key_up.ends_with("_PROXY") {
            command.env_remove(key);
        }
    }
    let mut child = command
        .args(args)
        .current_dir(home.path())
        .env("HF_HOME", home.path().join("hf"))
        .env_remove("TRANSFORMERS_OFFLINE")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early reads no input.
    let _ = child.stdin.take().unwrap().write_all(b"a b\n");
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_model_is_pulled_and_used_by_name() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let online = [("HF_ENDPOINT", &*server.url)];
    let (status, out, err) = run(&home, &["pull", NAME], &online);
    assert_eq!(status, 0, "{err}");
    let snapshot = home.path().join("hf/hub/models--someone--mini/snapshots").join(COMMIT);
    assert_eq!(out, format!("{}\n", snapshot.display()));
    assert!(err.contains("downloading model.safetensors"), "{err}");

    let offline = [("HF_ENDPOINT", "http://127.0.0.1:9"), ("HF_HUB_OFFLINE", "1")];
    let (status, out, err) = run(&home, &["embed", "--model", NAME], &offline);
    assert_eq!((status, out.lines().count()), (0, 1), "{err}");
    assert!(out.starts_with(r#"{"embedding":["#), "{out}");
    let folder = snapshot.to_str().unwrap();
    assert_eq!(run(&home, &["embed", "--model", folder], &offline).1, out);
    let (status, filled, err) = run(&home, &["fill-mask", "--model", NAME, "--json", "a [MASK]"], &online);
    assert_eq!((status, filled.lines().count()), (0, 1), "{err}");

    // Real files, in a folder that may be taken anywhere.
    let (status, out, err) = run(&home, &["pull", NAME, "--out", "copies/mini"], &offline);
    assert_eq!((status, &*out), (0, "copies/mini\n"), "{err}");
    for file in ["config.json", "model.safetensors", "vocab.txt"] {
        assert!(fs::symlink_metadata(home.path().join("copies/mini").join(file)).unwrap().is_file());
    }
    let (status, _, err) = run(&home, &["pull", NAME, "--out", "copies/mini"], &offline);
    assert!(status == 1 && err.contains("not empty"), "{err}");
}

#[test]
fn a_folder_is_never_asked_for() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let online = [("HF_ENDPOINT", &*server.url)];
    fs::create_dir_all(home.path().join(NAME)).unwrap();
    for path in [NAME, "./other", "/no/such", "../other", "runs/x/model"] {
        let (status, _, err) = run(&home, &["embed", "--model", path], &online);
        assert_eq!(status, 1, "{err}");
        assert_eq!(err.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{err}");
    }
    assert_eq!(server.log(), Vec::<String>::new());
}

#[test]
fn what_is_not_to_be_had_is_one_line() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let online = [("HF_ENDPOINT", &*server.url)];
    let (status, _, err) = run(&home, &["embed", "--model", "no/such"], &online);
    let expected = format!(
        "error: there is no folder \"no/such\", and no model of this name was found: {} has no model `no/such`, \
         or shows it only with a token\n",
        server.url
    );
    assert_eq!((status, err), (1, expected));
    let (status, _, err) = run(&home, &["pull", "a/b/c"], &online);
    assert!(status == 2 && err.contains("is not a model's name"), "{err}");
    let (status, _, err) = run(&home, &["embed", "--model", "no such"], &online);
    assert!(status == 2 && err.contains("there is no folder \"no such\""), "{err}");
    let (status, _, err) = run(&home, &["pull", NAME], &[("HF_HUB_OFFLINE", "1")]);
    assert!(status == 1 && err.contains("offline mode asks no server"), "{err}");
    server.state().gated.push(NAME.into());
    let (status, _, err) = run(&home, &["pull", NAME], &online);
    assert!(status == 1 && err.contains("gated or private"), "{err}");
    assert_eq!(run(&home, &["pull", NAME], &[online[0], ("HF_TOKEN", "hf_good")]).0, 0);
}

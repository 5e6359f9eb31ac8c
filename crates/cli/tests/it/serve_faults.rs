//! `cloze serve` with clients, files and machines that fail.

use crate::library::{at, models};
use crate::ran::{run, spawn};
use crate::served::{Served, head};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LONG: &str = "some text that takes its time to be read by the model";

fn many(n: usize) -> String {
    json!({ "inputs": vec![LONG; n] }).to_string()
}

/// Waits until it is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_back() {
    let served = Served::start(&[models::ENCODER], &["--max-queue-tokens", "500"]);
    let body = many(100_000);
    let long = served.begin(&body);
    until("its texts wait", || served.count("cloze_queue_tokens") > 500);
    let got = served.post("/embed", &json!({ "inputs": "a" }));
    assert_eq!(got.headers["retry-after"], "1");
    let (status, kind, message) = got.refused();
    assert_eq!((status, kind.as_str()), (429, "Overloaded"));
    assert!(message.contains("--max-queue-tokens"), "{message}");
    drop(long);
    until("there is room again", || served.post("/embed", &json!({ "inputs": "a" })).status == 200);
}

#[test]
fn an_answer_that_is_not_read_holds_its_bytes_and_nothing_else() {
    let served = Served::start(&[models::ENCODER], &["--max-held-bytes", "300000"]);
    // Some megabytes, which no socket takes unread.
    let body = many(20_000);
    let slow = served.begin(&body);
    until("it is answered", || served.count("cloze_units_total") >= 20_000);
    let one = || served.post("/embed", &json!({ "inputs": "a" }));
    // In one answer: between its body and its answer there may be room for a moment.
    until("its answer is held", || {
        let got = one();
        got.status == 429 && got.text.contains("--max-held-bytes")
    });
    assert_eq!(served.get("/health").status, 200);
    drop(slow);
    until("its bytes are free again", || one().status == 200);
}

#[test]
fn bodies_that_end_early_or_never_are_their_clients_alone() {
    let served = Served::start(&[models::ENCODER], &["--timeout", "1"]);
    let mut half = served.connect();
    half.write_all(head(1_000).as_bytes()).unwrap();
    half.write_all(br#"{"inputs": "#).unwrap();
    // Nothing more comes.
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["error_type"], "Validation");

    let mut left = served.connect();
    left.write_all(head(1_000).as_bytes()).unwrap();
    left.write_all(b"{").unwrap();
    left.shutdown(Shutdown::Both).unwrap();
    // Only its head, half of it, or no request at all.
    let idle: Vec<_> = ["", "POST /emb", "GARBAGE\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"]
        .into_iter()
        .map(|bytes| {
            let mut stream = served.connect();
            stream.write_all(bytes.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(served.post("/embed", &json!({ "inputs": "a" })).status, 200);
    drop(idle);
    assert_eq!(served.stop(), 0);
}

#[test]
fn refusals_are_json_whatever_is_too_long() {
    let served = Served::start(&[models::ENCODER], &[]);
    let headers = "x-a: b\r\n".repeat(200);
    let long = format!("x-a: {}\r\n", "b".repeat(40_000));
    let path = "x".repeat(10_000);
    for (request, status, part) in [
        (
            format!("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"),
            431,
            "202 headers",
        ),
        (
            format!("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{long}\r\n"),
            431,
            "3 headers of 40",
        ),
        (
            format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"),
            414,
            "a path of 10001 bytes",
        ),
    ] {
        let answer = served.raw(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert!(body["error"].as_str().unwrap().contains(part), "{body}");
    }
    let got = served.post_text("/embed", "{\"inputs\": \"\u{0}\"}", &[]);
    assert_eq!(got.refused().0, 400);
    let body = [head(15).as_bytes(), b"{\"inputs\": \"\xff\"}"].concat();
    let mut stream = served.connect();
    stream.write_all(&body).unwrap();
    let mut answer = [0; 64];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    let got = served.get("/embed");
    assert_eq!((got.status, got.headers["allow"].to_str().unwrap()), (405, "POST"));
}

/// A copy of a small model.
fn copied(name: &str, to: &Path) -> String {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(at(name)).unwrap() {
        let file = file.unwrap();
        // Folders are for the pooling, which is the mean without them.
        if file.file_type().unwrap().is_file() && file.file_name() != "modules.json" {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    to.to_str().unwrap().to_owned()
}

#[test]
fn weights_that_are_not_numbers_are_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let model = copied(models::CLASSIFIER, &folder.path().join("nan"));
    let weights = Path::new(&model).join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + length..].chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&f32::NAN.to_le_bytes()));
    fs::write(&weights, bytes).unwrap();
    let ran = run(&["serve", "--port", "0", "--model", &model], b"");
    assert!(ran.error_line(1).contains("is NaN at [0, 0], expected finite numbers"), "{}", ran.err);
}

#[test]
fn a_model_that_is_replaced_is_served_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let model = copied(models::CLASSIFIER, &folder.path().join("model"));
    let served = Served::of(spawn(["serve", "--port", "0", "--model", &model]));
    let body = json!({ "inputs": "the old man sat by the sea" });
    let before = served.post("/predict", &body).ok();
    for file in fs::read_dir(&model).unwrap() {
        // In its place: whoever maps the file would see it.
        fs::write(file.unwrap().path(), "nothing").unwrap();
    }
    assert_eq!(served.post("/predict", &body).ok(), before);
    fs::remove_dir_all(&model).unwrap();
    assert_eq!(served.post("/predict", &body).ok(), before);
}

#[test]
fn too_few_files_make_clients_wait() {
    let model = at(models::ENCODER);
    let script = format!(
        "ulimit -n 300; exec {} serve --port 0 --model {}",
        env!("CARGO_BIN_EXE_cloze"),
        model.display()
    );
    let child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let served = Served::listening(child);
    served.line("at most 44 connections at a time: the system lets 300 files be open");
    served.line("ready: ");
    let idle: Vec<_> = (0..80).map(|_| served.connect()).collect();
    // Waits in the system's line.
    let mut last = served.connect();
    last.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    last.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(last.read(&mut [0]).is_err());
    drop(idle);
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn what_was_taken_is_answered_before_the_end() {
    let served = Served::start(&[models::ENCODER], &[]);
    let body = many(6_000);
    let mut long = served.begin(&body);
    until("it is being answered", || served.count("cloze_units_total") > 10);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        // Whoever asks meanwhile is answered, refused, or finds nobody.
        for _ in 0..4 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let mut stream = served.connect_if_there();
                    let Some(stream) = &mut stream else { return };
                    let body = r#"{"inputs": "a"}"#;
                    let mut answer = String::new();
                    if stream.write_all((head(body.len()) + body).as_bytes()).is_ok() {
                        stream.shutdown(Shutdown::Write).unwrap_or(());
                        let _ = stream.read_to_string(&mut answer);
                    }
                    let status = answer.get(9..12).unwrap_or("none").to_owned();
                    assert!(["200", "503", "none"].contains(&status.as_str()), "{answer}");
                }
            });
        }
        thread::sleep(Duration::from_millis(50));
        served.terminate();
        until("it says that it stops", || served.get("/ready").status == 503);
        assert_eq!(served.get("/health").status, 200);
        let refused = served.post("/embed", &json!({ "inputs": "a" })).refused();
        assert_eq!((refused.0, refused.1.as_str()), (503, "Unhealthy"));
        ends.store(true, Ordering::Relaxed);
    });
    let mut answer = Vec::new();
    long.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{}", &answer[..200.min(answer.len())]);
    let vectors: Vec<Vec<f32>> = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(vectors.len(), 6_000);
    assert_eq!(served.wait(), 0);
}

//! `cloze serve` with requests that nobody would write.

use crate::library::models;
use crate::served::Served;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A request that is good, of each kind.
const GOOD: [(&str, &str); 14] = [
    ("/embed", r#"{"inputs": ["a sea", [2, 5, 3]], "normalize": true, "truncate": false, "dimensions": 4}"#),
    ("/embed_all", r#"{"inputs": "a", "truncation_direction": "left", "prompt_name": null}"#),
    ("/embed_sparse", r#"{"inputs": ["a", "b"]}"#),
    ("/similarity", r#"{"inputs": {"source_sentence": "a", "sentences": ["b", "é"]}, "parameters": {}}"#),
    ("/predict", r#"{"inputs": [["a"], ["a", "b"]], "raw_scores": false}"#),
    ("/rerank", r#"{"query": "a", "texts": ["b", "c"], "return_text": true}"#),
    ("/tokenize", r#"{"inputs": ["a b", ""], "add_special_tokens": false}"#),
    ("/decode", r#"{"ids": [[2, 5], [3]], "skip_special_tokens": true}"#),
    ("/v1/embeddings", r#"{"input": ["a"], "encoding_format": "base64", "dimensions": 3, "user": "u"}"#),
    ("/v1/rerank", r#"{"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}"#),
    (
        "/v1/completions",
        r#"{"prompt": "a", "max_tokens": 2, "temperature": 0.5, "seed": 1, "stop": ["x"], "logprobs": 1}"#,
    ),
    ("/generate", r#"{"inputs": "a", "parameters": {"max_new_tokens": 2, "top_k": 3, "do_sample": true}}"#),
    ("/fill-mask", r#"{"inputs": "a [MASK]", "parameters": {"top_k": 2}}"#),
    ("/", r#"{"inputs": "a"}"#),
];

/// What takes the place of a value or of some bytes.
const ODD: [&str; 22] = [
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "18446744073709551616",
    "0.1",
    "\"\"",
    "\"[MASK]\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\u{202e}\u{1f600}\"",
    "[]",
    "[[]]",
    "[[[1]]]",
    "{}",
    "{\"a\": 1}",
    "\"model\"",
    ":",
    ",",
    "\\",
    "\u{0}",
];

/// A stream of numbers that looks random (Vigna's splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Changes values of a JSON document.
fn change(value: &mut Value, numbers: &mut Numbers) {
    if numbers.below(4) == 0 {
        let odd = *numbers.one_of(&ODD);
        *value = serde_json::from_str(odd).unwrap_or_else(|_| json!("x".repeat(numbers.below(3_000))));
        return;
    }
    match value {
        Value::Array(all) if !all.is_empty() => {
            let place = numbers.below(all.len());
            change(&mut all[place], numbers);
            if numbers.below(3) == 0 {
                let again = all[place].clone();
                all.extend(vec![again; numbers.below(20)]);
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(numbers.below(fields.len())).unwrap().clone();
            match numbers.below(5) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(name + "x", json!(1))),
                _ => change(&mut fields[&name], numbers),
            }
        }
        other => {
            let odd = *numbers.one_of(&ODD);
            *other = serde_json::from_str(odd).unwrap_or(json!(7));
        }
    }
}

/// A body that is nearly one of the good ones.
fn body(good: &str, numbers: &mut Numbers) -> Vec<u8> {
    if numbers.below(2) == 0 {
        let mut value: Value = serde_json::from_str(good).unwrap();
        (0..1 + numbers.below(3)).for_each(|_| change(&mut value, numbers));
        return value.to_string().into_bytes();
    }
    let mut bytes = good.as_bytes().to_vec();
    for _ in 0..1 + numbers.below(4) {
        let place = numbers.below(bytes.len() + 1);
        match numbers.below(5) {
            0 => bytes.truncate(place),
            1 if place < bytes.len() => bytes[place] = numbers.below(256) as u8,
            2 => drop(bytes.splice(place..place, numbers.one_of(&ODD).bytes())),
            3 => {
                let end = (place + numbers.below(9)).min(bytes.len());
                drop(bytes.drain(place..end));
            }
            _ => {
                let deep = "[".repeat(numbers.below(300));
                drop(bytes.splice(place..place, deep.bytes()));
            }
        }
    }
    bytes
}

/// Reads an answer, which has to have JSON of its route's shape.
fn read(stream: &mut impl BufRead, path: &str) -> std::io::Result<u16> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status: u16 = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (mut length, mut is_stream) = (0, false);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "content-length" => length = value.parse().unwrap(),
            "transfer-encoding" => is_stream = true,
            _ => {}
        }
    }
    if is_stream {
        // Its parts, each with its length; the last is empty.
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let n = usize::from_str_radix(line.trim(), 16).unwrap();
            stream.read_exact(&mut vec![0; n + 2])?;
            if n == 0 {
                return Ok(status);
            }
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body)
        .unwrap_or_else(|error| panic!("{path}: {status}: {error}: {}", String::from_utf8_lossy(&body)));
    assert!([200, 400, 404, 422, 424, 429].contains(&status), "{path}: {status}: {body}");
    if status != 200 {
        let message = if path.starts_with("/v1/") { &body["error"]["message"] } else { &body["error"] };
        let message = message.as_str().unwrap_or_else(|| panic!("{path}: {body}"));
        assert!(!message.is_empty() && !message.contains("panicked"), "{path}: {message}");
    } else {
        assert!(!body.is_null());
    }
    Ok(status)
}

/// Sends so many requests from a few connections.
fn fuzz(n: usize, seed: u64) {
    let models = [models::ENCODER, models::MASKED, models::CLASSIFIER, models::RERANKER, models::GENERATOR];
    let served = Served::start(&models, &[]);
    let expected = served.post("/embed", &json!({ "inputs": "the sea" })).ok();
    let statuses = [200, 400, 422].map(|status| (status, AtomicUsize::new(0)));
    thread::scope(|scope| {
        for client in 0..4_u64 {
            let (served, statuses) = (&served, &statuses);
            scope.spawn(move || {
                let mut numbers = Numbers(seed.wrapping_mul(4).wrapping_add(client));
                let mut stream = BufReader::new(served.connect());
                for _ in 0..n / 4 {
                    let (path, good) = *numbers.one_of(&GOOD);
                    let body = body(good, &mut numbers);
                    if numbers.below(200) == 0 {
                        bad_request(served, path, &body, &mut numbers);
                    }
                    let head = format!(
                        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.get_mut().write_all(&[head.as_bytes(), &body].concat()).unwrap();
                    let status = read(&mut stream, path)
                        .unwrap_or_else(|error| panic!("{path}: {error}: {}", String::from_utf8_lossy(&body)));
                    if let Some((_, n)) = statuses.iter().find(|(other, _)| *other == status) {
                        n.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    // Some were still good, and some were refused for each reason.
    for (status, found) in &statuses {
        assert!(found.load(Ordering::Relaxed) > n / 50, "{status}: {found:?} of {n}");
    }
    assert_eq!(served.post("/embed", &json!({ "inputs": "the sea" })).ok(), expected);
    assert_eq!(served.stop(), 0);
}

/// A request whose head is wrong: it is answered, or its connection closed.
fn bad_request(served: &Served, path: &str, body: &[u8], numbers: &mut Numbers) {
    let heads = [
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len() + 9
        ),
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: -1\r\n\r\n"
        ),
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        ),
        format!(
            "POST {path} HTTP/1.1\r\nhost: other\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        ),
        format!("POST {path} HTTP/1.0\r\n\r\n"),
        format!("PUT /%ff{path}?{path} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        String::new(),
    ];
    let mut stream: TcpStream = served.connect();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // It may be closed before all is sent.
    let _ = stream.write_all(&[numbers.one_of(&heads).as_bytes(), body].concat());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    assert!(ended.is_ok() || answer.is_empty(), "{ended:?}");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn every_request_has_an_answer() {
    fuzz(8_000, 1);
}

#[test]
#[ignore = "ten million requests take some minutes"]
fn ten_million_requests_have_answers() {
    (0..10).for_each(|seed| fuzz(1_000_000, 100 + seed));
}

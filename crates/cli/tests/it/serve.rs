//! `cloze serve`, asked over HTTP as its clients ask it.

use crate::library::{at, models};
use crate::ran::run;
use crate::served::Served;
use burn::tensor::Device;
use cloze::{Answerer, Classifier, Embedder, Generator, MaskFiller, Reranker, Tagger, Translator};
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

fn device() -> Device {
    cloze::device::open(None).unwrap()
}

fn vectors(value: &Value) -> Vec<Vec<f32>> {
    serde_json::from_value(value.clone()).unwrap()
}

const TEXTS: [&str; 3] = ["the old man sat by the sea", "a sailor", "in paris, and then home again"];

/// The vectors of texts from the library, scaled to length 1.
fn embedded(texts: &[&str]) -> Vec<Vec<f32>> {
    use cloze::trainer::embed::{EmbedConfig, Embedder};
    let config = EmbedConfig { normalize: Some(true), ..EmbedConfig::default() };
    let embedder = Embedder::load(&at(models::ENCODER), config, &device()).unwrap();
    let width = embedder.width();
    embedder.embed(texts).unwrap().values.chunks(width).map(<[f32]>::to_vec).collect()
}

#[test]
fn vectors_are_the_librarys() {
    let served = Served::start(&[models::ENCODER], &[]);
    let expected = embedded(&TEXTS);
    let got = served.post("/embed", &json!({ "inputs": TEXTS }));
    assert_eq!(vectors(&got.ok()), expected);
    assert!(got.headers.get("x-cloze-truncated").is_none());
    for path in ["/", "/embed"] {
        assert_eq!(vectors(&served.post(path, &json!({ "inputs": TEXTS[1] })).ok()), expected[1..2]);
    }
    let plain = Embedder::load(at(models::ENCODER), &device()).unwrap().embed(&TEXTS).unwrap();
    let body = json!({ "inputs": TEXTS, "normalize": false });
    assert_eq!(vectors(&served.post("/embed", &body).ok()).concat(), plain.values());
    // The first numbers, scaled anew.
    let cut = vectors(&served.post("/embed", &json!({ "inputs": TEXTS[0], "dimensions": 5 })).ok());
    let norm = plain[0][..5].iter().map(|x| x * x).sum::<f32>().sqrt();
    assert_eq!(cut[0], plain[0][..5].iter().map(|x| x / norm).collect::<Vec<_>>());

    // A text as its own ids.
    let tokens = served.post("/tokenize", &json!({ "inputs": TEXTS[0] })).ok();
    let ids: Vec<u64> =
        tokens[0].as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).collect();
    assert_eq!(vectors(&served.post("/embed", &json!({ "inputs": ids })).ok()), expected[..1]);
    assert_eq!(
        tokens[0][0],
        json!({ "id": 2, "text": "[CLS]", "special": true, "start": null, "stop": null })
    );
    assert_eq!(
        tokens[0][1],
        json!({ "id": tokens[0][1]["id"], "text": "t", "special": false, "start": 0, "stop": 1 })
    );
    let text = served.post("/decode", &json!({ "ids": ids })).ok();
    assert_eq!(text, json!([TEXTS[0]]));

    let all = served.post("/embed_all", &json!({ "inputs": TEXTS[0] })).ok();
    let all: Vec<Vec<Vec<f32>>> = serde_json::from_value(all).unwrap();
    assert_eq!(all[0].len(), ids.len());
    // The pooling is the mean of these.
    let mean = |i: usize| all[0].iter().map(|row| f64::from(row[i])).sum::<f64>() / ids.len() as f64;
    assert!((0..32).all(|i| (mean(i) - f64::from(plain[0][i])).abs() < 1e-5));

    let body = json!({ "inputs": { "source_sentence": TEXTS[0], "sentences": TEXTS } });
    let scores: Vec<f32> = serde_json::from_value(served.post("/similarity", &body).ok()).unwrap();
    assert_eq!(scores.len(), 3);
    assert!((scores[0] - 1.0).abs() < 1e-6 && (scores[1] - plain.cosine(0, 1)).abs() < 1e-6);

    let long = "word ".repeat(2_000);
    let got = served.post("/embed", &json!({ "inputs": [long, "a"] }));
    assert_eq!((got.status, got.headers["x-cloze-truncated"].to_str().unwrap()), (200, "1"));
    assert_eq!(vectors(&got.ok())[0], embedded(&[&long])[0]);
    let left =
        served.post("/embed", &json!({ "inputs": long.clone() + "x", "truncation_direction": "Left" })).ok();
    assert_ne!(vectors(&left)[0], vectors(&got.ok())[0]);
    let refused = served.post("/embed", &json!({ "inputs": ["a", long], "truncate": false })).refused();
    assert_eq!((refused.0, refused.1.as_str()), (422, "Validation"));
    assert!(refused.2.starts_with("inputs[1]: longer than 512 tokens"), "{}", refused.2);
}

#[test]
fn models_of_every_kind_answer_as_the_library_does() {
    let names = [
        models::CLASSIFIER,
        models::RERANKER,
        models::MASKED,
        models::TAGGER,
        models::ANSWERER,
        models::TRANSLATOR,
    ];
    let served = Served::start(&names, &[]);
    let short = |name: &str| Path::new(name).file_name().unwrap().to_str().unwrap().to_owned();
    let device = device();

    let classes = Classifier::load(at(models::CLASSIFIER), &device).unwrap().classify(&TEXTS).unwrap();
    let inputs: Vec<[&str; 1]> = TEXTS.iter().map(|text| [*text]).collect();
    let found = served.post("/predict", &json!({ "inputs": inputs })).ok();
    for (found, class) in found.as_array().unwrap().iter().zip(&classes) {
        assert_eq!(found[0], json!({ "score": class.score, "label": class.label }));
        assert_eq!(found.as_array().unwrap().len(), 2);
    }
    let one = served.post("/", &json!({ "inputs": TEXTS[0] })).ok();
    assert_eq!(one, found[0]);
    let pair = served.post("/predict", &json!({ "inputs": [TEXTS[0], TEXTS[1]] })).ok();
    let pairs = Classifier::load(at(models::CLASSIFIER), &device).unwrap();
    assert_eq!(pair[0]["score"], pairs.classify_pairs(&[(TEXTS[0], TEXTS[1])]).unwrap()[0].score);

    let ranked = Reranker::load(at(models::RERANKER), &device).unwrap().rank("sea", &TEXTS).unwrap();
    let model = short(models::RERANKER);
    let body = json!({ "model": model, "query": "sea", "texts": TEXTS, "return_text": true });
    let found = served.post("/rerank", &body).ok();
    let expected: Vec<Value> = ranked
        .iter()
        .map(|one| json!({ "index": one.place, "text": TEXTS[one.place], "score": one.score }))
        .collect();
    assert_eq!(found, Value::Array(expected));
    // Its score is the sigmoid of its output, from which the output cannot be told exactly.
    let raw = json!({ "model": model, "query": "sea", "texts": TEXTS, "raw_scores": true });
    assert_eq!(served.post("/rerank", &raw).refused().0, 422);
    for path in ["/v1/rerank", "/v2/rerank"] {
        let body = json!({ "model": model, "query": "sea", "documents": TEXTS, "top_n": 2, "return_documents": true });
        let found = served.post(path, &body).ok();
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for (result, ranked) in results.iter().zip(&ranked) {
            assert_eq!(result["index"], ranked.place);
            assert_eq!(result["document"]["text"], TEXTS[ranked.place]);
            assert_eq!(result["relevance_score"], ranked.score);
        }
        assert_eq!(found["meta"]["api_version"]["version"], path[2..3]);
    }

    let filler = MaskFiller::load(at(models::MASKED), &device).unwrap();
    let candidates = filler.fill(&["the [MASK] man"], 3).unwrap().remove(0).remove(0);
    let body = json!({ "inputs": "the [MASK] man", "parameters": { "top_k": 3 } });
    let found = served.post("/fill-mask", &body).ok();
    for (found, candidate) in found.as_array().unwrap().iter().zip(&candidates) {
        assert_eq!(found["sequence"], candidate.filled);
        assert_eq!(found["score"].as_f64().unwrap() as f32, candidate.probability);
        assert_eq!((&found["token"], found["token_str"].is_string()), (&json!(candidate.id), true));
    }
    assert_eq!(found.as_array().unwrap().len(), 3);
    let refused = served.post("/fill-mask", &json!({ "inputs": ["[MASK]", "none"] })).refused();
    assert_eq!(
        refused,
        (422, "Validation".into(), "inputs[1]: nothing to fill, expected a [MASK] in the text".into())
    );

    let sparse = served.post("/embed_sparse", &json!({ "inputs": TEXTS })).ok();
    assert_eq!(sparse.as_array().unwrap().len(), 3);
    let long = "word ".repeat(2_000);
    let got = served.post("/embed_sparse", &json!({ "inputs": [long, "a"] }));
    assert_eq!((got.status, got.headers["x-cloze-truncated"].to_str().unwrap()), (200, "1"));
    let refused = served.post("/embed_sparse", &json!({ "inputs": long, "truncate": false })).refused();
    assert!(refused.0 == 422 && refused.2.contains("longer than"), "{refused:?}");
    for weights in sparse.as_array().unwrap() {
        let weights = weights.as_array().unwrap();
        assert!(!weights.is_empty() && weights.iter().all(|one| one["value"].as_f64().unwrap() > 0.0));
        assert!(weights.iter().all(|one| one["index"].as_u64().unwrap() < 57), "{weights:?}");
    }

    let tagged = Tagger::load(at(models::TAGGER), &device).unwrap().tag(&TEXTS).unwrap();
    let found = served.post("/tag", &json!({ "inputs": TEXTS })).ok();
    let mut n_entities = 0;
    for (found, tagged) in found.as_array().unwrap().iter().zip(&tagged) {
        let found = found.as_array().unwrap();
        assert_eq!(found.len(), tagged.entities.len());
        for (found, entity) in found.iter().zip(&tagged.entities) {
            assert_eq!((&found["word"], &found["entity_group"]), (&json!(entity.text), &json!(entity.label)));
            n_entities += 1;
        }
    }
    assert!(n_entities > 0);

    let answerer = Answerer::load(at(models::ANSWERER), &device).unwrap();
    let answer = answerer.answer(&[("who sat", TEXTS[0])]).unwrap().remove(0).unwrap();
    let body = json!({ "inputs": { "question": "who sat", "context": TEXTS[0] } });
    let found = served.post("/answer", &body).ok();
    assert_eq!((&found["answer"], &found["score"]), (&json!(answer.text), &json!(answer.score)));

    let translated = Translator::load(at(models::TRANSLATOR), &device).unwrap().translate(&TEXTS).unwrap();
    let found = served.post("/translate", &json!({ "inputs": TEXTS })).ok();
    let expected: Vec<Value> = translated.iter().map(|one| json!({ "translation_text": one.text })).collect();
    assert_eq!(found, Value::Array(expected));

    let refused = served.post("/embed", &json!({ "inputs": "a" })).refused();
    assert_eq!((refused.0, refused.1.as_str()), (424, "Backend"));
    let info = served.get("/info").ok();
    assert_eq!(info["models"].as_array().unwrap().len(), names.len());
}

/// The data of a stream of events.
fn events(text: &str) -> Vec<String> {
    let events = text.split_terminator("\n\n");
    events.map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
}

#[test]
fn texts_are_continued_at_once_or_as_they_are_written() {
    let served = Served::start(&[models::GENERATOR], &[]);
    let expected = Generator::load(at(models::GENERATOR), &device()).unwrap();
    let expected = expected.generate(&["the old man"]).unwrap().remove(0);
    let body = |more: Value| {
        let mut body = json!({ "prompt": "the old man", "max_tokens": 64, "temperature": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let whole = served.post("/v1/completions", &body(json!({}))).ok();
    let choice = &whole["choices"][0];
    assert_eq!(choice["text"], expected.text);
    assert_eq!(choice["finish_reason"], if expected.ended { "stop" } else { "length" });
    assert_eq!(whole["usage"]["completion_tokens"], expected.n_tokens);
    // Nine letters and two special tokens.
    assert_eq!(whole["usage"]["prompt_tokens"], 11);

    let streamed = served.post("/v1/completions", &body(json!({ "stream": true })));
    assert_eq!(streamed.headers["content-type"], "text/event-stream");
    let mut events = events(&streamed.text);
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let parts: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let text: String = parts.iter().map(|part| part["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, expected.text);
    assert_eq!(parts.last().unwrap()["choices"][0]["finish_reason"], choice["finish_reason"]);
    assert!(parts.len() > 3, "{parts:?}");

    // A word of the text ends it.
    let stop: String = expected.text.chars().skip(4).take(3).collect();
    let end = expected.text.find(&stop).unwrap();
    for streams in [false, true] {
        let got = served.post("/v1/completions", &body(json!({ "stop": [stop], "stream": streams })));
        let text: String = match streams {
            false => got.ok()["choices"][0]["text"].as_str().unwrap().to_owned(),
            true => self::events(&got.text)
                .iter()
                .filter_map(|event| serde_json::from_str::<Value>(event).ok())
                .map(|part| part["choices"][0]["text"].as_str().unwrap().to_owned())
                .collect(),
        };
        assert_eq!(text, expected.text[..end], "streams: {streams}");
    }
    // Little is computed beyond it.
    let usage = served.post("/v1/completions", &body(json!({ "stop": stop }))).ok()["usage"].clone();
    assert!((usage["completion_tokens"].as_u64().unwrap() as usize) < expected.n_tokens, "{usage}");

    let scored = served.post("/v1/completions", &body(json!({ "logprobs": 2 }))).ok();
    let scores = &scored["choices"][0]["logprobs"];
    let tokens: Vec<String> = serde_json::from_value(scores["tokens"].clone()).unwrap();
    assert_eq!(tokens.concat(), expected.text);
    let log_probs: Vec<f64> = serde_json::from_value(scores["token_logprobs"].clone()).unwrap();
    for (i, token) in tokens.iter().enumerate() {
        let best = scores["top_logprobs"][i].as_object().unwrap();
        assert_eq!(best.len(), 2);
        // Greedy: the most likely one. A special token has a name, and no text.
        let most = best.values().map(|other| other.as_f64().unwrap()).fold(f64::MIN, f64::max);
        assert!(
            most == log_probs[i] && most < 0.0 && (token.is_empty() || best.contains_key(token)),
            "{best:?}"
        );
        let before: String = tokens[..i].concat();
        assert_eq!(scores["text_offset"][i], before.chars().count());
    }
    assert!(scored["choices"][0]["logprobs"].is_object() && choice["logprobs"].is_null());
    let drawn = body(json!({ "temperature": 1.0, "n": 3, "seed": 7, "echo": true }));
    let found = served.post("/v1/completions", &drawn).ok();
    assert_eq!(found["choices"], served.post("/v1/completions", &drawn).ok()["choices"]);
    assert_eq!(found["choices"].as_array().unwrap().len(), 3);
    assert!(found["choices"][2]["text"].as_str().unwrap().starts_with("the old man"));
    for (more, field) in [
        (json!({ "logprobs": 21 }), "logprobs"),
        (json!({ "logprobs": 1, "stream": true }), "logprobs"),
        (json!({ "logprobs": 1, "echo": true }), "logprobs"),
        (json!({ "best_of": 2 }), "best_of"),
        (json!({ "temperature": -1 }), "temperature"),
        (json!({ "prompt": [1, 2] }), "prompt[0]"),
        (json!({ "tools": [] }), "tools"),
    ] {
        let got = served.post("/v1/completions", &body(more));
        let error: Value = serde_json::from_str(&got.text).unwrap();
        assert_eq!((got.status, &error["error"]["param"]), (400, &json!(field)), "{error}");
    }
    let parameters = json!({ "do_sample": false, "max_new_tokens": 64 });
    let found = served.post("/generate", &json!({ "inputs": "the old man", "parameters": parameters })).ok();
    assert_eq!(found["generated_text"], expected.text);
    let body = json!({ "inputs": "the old man", "parameters": parameters, "stream": true });
    let events = self::events(&served.post("/generate", &body).text);
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["generated_text"], expected.text);
}

#[test]
fn an_index_is_searched_as_the_program_searches_it() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    let index = index.to_str().unwrap();
    let model = at(models::ENCODER);
    let lines = TEXTS.join("\n");
    run(&["search", "index", "--index", index, "--model", model.to_str().unwrap()], lines.as_bytes()).done();
    let served = Served::start(&[], &["--index", index]);
    let printed = |query: &str| -> Value {
        serde_json::from_str(&run(&["search", "query", "--index", index, query], b"").done()).unwrap()
    };
    assert_eq!(served.post("/search", &json!({ "query": "a sailor" })).ok(), printed("a sailor"));
    let found =
        served.post("/search", &json!({ "query": ["sea", "paris"], "top_k": 1, "index": "index" })).ok();
    assert_eq!(found[1]["found"][0], printed("paris")["found"][0]);
    assert_eq!(found[0]["found"].as_array().unwrap().len(), 1);
    // Its model embeds too.
    assert_eq!(served.post("/embed", &json!({ "inputs": "a" })).status, 200);
    run(&["search", "add", "--index", index], b"the sea, again\n").done();
    let found = served.post("/search", &json!({ "query": "the sea again" })).ok();
    assert_eq!(found, printed("the sea again"));
    assert_eq!(found["found"].as_array().unwrap().len(), 4);
    assert_eq!(served.post("/search", &json!({ "query": " " })).refused().1, "Empty");
    assert_eq!(served.post("/search", &json!({ "query": "a", "where": "x=y" })).status, 422);
    assert_eq!(served.post("/search", &json!({ "query": "a", "index": "other" })).status, 404);
    let paths = served.get("/openapi.json").ok();
    assert!(paths["paths"]["/search"]["post"].is_object(), "{paths}");
}

#[test]
fn open_ai_gets_its_shapes() {
    let served = Served::start(&[models::ENCODER], &[]);
    let expected = embedded(&TEXTS);
    let found = served.post("/v1/embeddings", &json!({ "input": TEXTS, "model": "all-MiniLM-L6-v2" })).ok();
    assert_eq!((&found["object"], &found["model"]), (&json!("list"), &json!("all-MiniLM-L6-v2")));
    for (i, (found, expected)) in found["data"].as_array().unwrap().iter().zip(&expected).enumerate() {
        assert_eq!((&found["object"], &found["index"]), (&json!("embedding"), &json!(i)));
        let found: Vec<f32> = serde_json::from_value(found["embedding"].clone()).unwrap();
        assert_eq!(found, *expected);
    }
    // Letters, and two special tokens for each text.
    let tokens: usize =
        TEXTS.iter().map(|text| text.chars().filter(|c| !c.is_whitespace()).count() + 2).sum();
    assert_eq!(found["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }));

    let body = json!({ "input": TEXTS[0], "encoding_format": "base64" });
    let found = served.post("/v1/embeddings", &body).ok();
    let text = found["data"][0]["embedding"].as_str().unwrap().to_owned();
    // 32 numbers of four bytes each.
    assert_eq!(text.len(), 4 * (32_usize * 4).div_ceil(3));
    let first = u32::from_le_bytes(decoded(&text[..8])[..4].try_into().unwrap());
    assert_eq!(f32::from_bits(first), expected[0][0]);

    let list = served.get("/v1/models").ok();
    assert_eq!(list["data"][0]["id"], "all-MiniLM-L6-v2");
    assert_eq!(served.get("/v1/models/all-MiniLM-L6-v2").ok(), list["data"][0]);

    assert_eq!(served.get("/v1/models/all%2DMiniLM-L6-v2").ok(), list["data"][0]);
    assert_eq!(served.get("/v1/models/%ff").status, 404);

    for (body, status, field, part) in [
        (json!({ "input": [1, 2] }), 400, json!("input"), "start the service with --ids"),
        (json!({ "input": [] }), 400, json!("input"), "an empty list"),
        (json!({ "input": ["a", ""] }), 400, json!("input[1]"), "an empty text"),
        (json!({}), 400, json!("input"), "missing"),
        (json!({ "input": "a", "model": "other" }), 404, json!("model"), "there is no model"),
        (json!({ "input": "a", "stop": "b" }), 400, json!("stop"), "not supported"),
        (json!({ "input": "a", "dimensions": 33 }), 400, json!("dimensions"), "at most 32"),
    ] {
        let got = served.post("/v1/embeddings", &body);
        let error: Value = serde_json::from_str(&got.text).unwrap();
        let error = &error["error"];
        assert_eq!((got.status, &error["param"]), (status, &field), "{error}");
        assert!(error["message"].as_str().unwrap().contains(part) && error["type"].is_string(), "{error}");
    }
    let with_ids = Served::start(&[models::ENCODER], &["--ids"]);
    assert_eq!(with_ids.post("/v1/embeddings", &json!({ "input": [[2, 5, 3], [2, 3]] })).status, 200);
    let wrong = with_ids.post("/v1/embeddings", &json!({ "input": [2, 99_999] }));
    assert!(wrong.status == 400 && wrong.text.contains("the id 99999"), "{}", wrong.text);
}

/// Base64 of whole groups.
fn decoded(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, c| bits << 6 | u32::from(value(*c)));
        bits.to_be_bytes()[1..].to_vec()
    };
    text.as_bytes().chunks(4).flat_map(group).collect()
}

#[test]
fn what_is_wrong_is_said_in_json() {
    let served = Served::start(&[models::ENCODER], &["--max-body-bytes", "100000"]);
    let deep = "[".repeat(50_000);
    for (path, body, expected, part) in [
        ("/embed", "{", (400, "Validation"), "the body is not JSON"),
        ("/embed", "[1]", (422, "Validation"), "the body is a list, expected an object"),
        ("/embed", "{}", (422, "Validation"), "inputs: missing"),
        ("/embed", r#"{"inputs": []}"#, (400, "Empty"), "inputs: an empty list"),
        ("/embed", r#"{"inputs": ["a", 7]}"#, (422, "Validation"), "inputs[1]: 7, expected a text"),
        ("/embed", r#"{"inputs": "a", "speed": 1}"#, (422, "Validation"), "speed: not supported"),
        ("/embed", r#"{"inputs": "a", "prompt_name": "q"}"#, (422, "Validation"), "prompt \"q\" is unknown"),
        ("/embed", r#"{"inputs": [[1, 77777]]}"#, (422, "Validation"), "the id 77777"),
        ("/embed", &deep, (400, "Validation"), "recursion limit"),
        ("/decode", r#"{"ids": [77777]}"#, (422, "Validation"), "ids[0]: 77777"),
        ("/rerank", r#"{"query": "a", "texts": ["b"]}"#, (424, "Backend"), "/rerank needs one for reranking"),
        ("/nowhere", "{}", (404, "Validation"), "there is no such route"),
        ("/embed", &"x".repeat(200_000), (413, "Validation"), "larger than 100000 bytes"),
    ] {
        let (status, kind, message) = served.post_text(path, body, &[]).refused();
        assert_eq!((status, kind.as_str()), expected, "{path} {message}");
        assert!(message.contains(part), "{message}");
    }
    let form = [("content-type", "text/plain")];
    assert_eq!(served.post_text("/embed", r#"{"inputs": "a"}"#, &form).refused().0, 415);
    assert_eq!(served.get("/embed").refused().0, 405);
    let page = [("origin", "https://evil.example")];
    assert_eq!(served.post_text("/embed", r#"{"inputs": "a"}"#, &page).refused().0, 403);
    // Another name for this machine.
    let answer = served.raw(b"GET /info HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // After all this.
    assert_eq!(served.post("/embed", &json!({ "inputs": "a" })).status, 200);
    let metrics = served.get("/metrics").text;
    assert!(
        metrics.contains("cloze_requests_total{route=\"/embed\",model=\"\",status=\"413\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("cloze_requests_total{route=\"other\",model=\"\",status=\"404\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn the_page_is_the_same_for_everyone_and_told_of_the_models() {
    let names = [models::MASKED, models::CLASSIFIER, models::RERANKER, models::TAGGER, models::TRANSLATOR];
    let served = Served::start(&names, &[]);
    let got = served.get("/");
    let page = cloze::evaluation::report::ServicePage::new();
    assert_eq!((got.status, &got.text), (200, &page.html));
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", page.policy.as_str()),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(got.headers[name], value);
    }
    let info = served.get("/info").ok();
    let routes: Vec<Vec<&str>> = info["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| {
            model["routes"].as_array().unwrap().iter().map(|route| route.as_str().unwrap()).collect()
        })
        .collect();
    assert_eq!(routes[0], ["/fill-mask", "/embed_sparse", "/tokenize", "/decode"]);
    assert_eq!(
        (&info["models"][0]["mask_token"], &info["models"][1]["mask_token"]),
        (&json!("[MASK]"), &Value::Null)
    );
    assert!(routes[1].contains(&"/predict") && !routes[1].contains(&"/tag"), "{routes:?}");
    assert!(routes[2].contains(&"/rerank"), "{routes:?}");
    assert_eq!((routes[3][0], routes[4][0]), ("/tag", "/translate"));
    assert_eq!(info["indexes"], json!([]));
    // Every route of a model takes it.
    for (model, routes) in info["models"].as_array().unwrap().iter().zip(&routes) {
        for route in routes {
            let got = served.post(route, &json!({ "model": model["name"] }));
            // What is missing is the text.
            assert!(
                [400, 422].contains(&got.status) && got.text.contains("missing"),
                "{route}: {}",
                got.text
            );
        }
    }

    let body = json!({ "inputs": [TEXTS[0]], "parameters": { "alignment": true } });
    let aligned = served.post("/translate", &body).ok();
    let plain = served.post("/translate", &json!({ "inputs": [TEXTS[0]] })).ok();
    assert_eq!(aligned[0]["translation_text"], plain[0]["translation_text"]);
    assert!(plain[0]["alignment"].is_null());
    let pairs: Vec<(usize, usize)> = serde_json::from_value(aligned[0]["alignment"].clone()).unwrap();
    let n_words = |text: &str| text.split_whitespace().count();
    let n_target = n_words(aligned[0]["translation_text"].as_str().unwrap());
    assert!(
        !pairs.is_empty() && pairs.iter().all(|(from, to)| *from < n_words(TEXTS[0]) && *to < n_target),
        "{pairs:?}"
    );
}

#[test]
fn clients_get_their_own_answers_while_another_floods() {
    let served = Served::start(&[models::ENCODER], &[]);
    let texts: Vec<String> =
        (0..40).map(|i| format!("text {} of many", "abcdefghij".repeat(i % 7 + 1))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected = embedded(&texts);
    let flood: Vec<&str> = texts.iter().copied().cycle().take(2_000).collect();
    thread::scope(|scope| {
        let served = &served;
        let all = scope.spawn(move || vectors(&served.post("/embed", &json!({ "inputs": flood })).ok()));
        let clients: Vec<_> = (0..16)
            .map(|client: usize| {
                let (texts, expected) = (&texts, &expected);
                scope.spawn(move || {
                    for i in 0..20 {
                        let i = (client * 20 + i) % texts.len();
                        let found = served.post("/embed", &json!({ "inputs": texts[i] }));
                        assert_eq!(vectors(&found.ok())[0], expected[i]);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let found = all.join().unwrap();
        assert_eq!(found.len(), 2_000);
        assert!(found.iter().zip(expected.iter().cycle()).all(|(found, expected)| found == expected));
    });
}

#[test]
fn a_client_that_leaves_takes_its_texts_along() {
    let served = Served::start(&[models::ENCODER], &[]);
    let texts = vec!["some text that takes its time to be read by the model"; 20_000];
    let body = json!({ "inputs": texts }).to_string();
    let stream = served.begin(&body);
    let start = Instant::now();
    while served.count("cloze_units_total") < 10 {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    drop(stream);
    // What was being computed is finished.
    let mut units = served.count("cloze_units_total");
    loop {
        thread::sleep(Duration::from_millis(500));
        let now = served.count("cloze_units_total");
        if now == units && served.count("cloze_queue_units") == 0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{}", served.get("/metrics").text);
        units = now;
    }
    assert!(units < 20_000, "{units} of 20000 texts were computed, for a client that has left");
}

#[test]
fn keys_are_needed_and_a_signal_ends_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "first\nsecond\n").unwrap();
    let keys = keys.to_str().unwrap();
    let served =
        Served::start(&[models::ENCODER], &["--api-key-file", keys, "--origin", "https://mine.example"]);
    let body = r#"{"inputs": "a"}"#;
    assert_eq!(served.post_text("/embed", body, &[]).refused().0, 401);
    // The page asks for a key itself; the main route, at the same path, needs one.
    assert_eq!(served.get("/").status, 200);
    assert_eq!(served.post_text("/", body, &[]).refused().0, 401);
    assert_eq!(served.get("/info").refused().0, 401);
    assert_eq!(served.post_text("/embed", body, &[("authorization", "Bearer other")]).refused().0, 401);
    let good = [("authorization", "Bearer second"), ("origin", "https://mine.example")];
    let got = served.post_text("/embed", body, &good);
    assert_eq!(got.status, 200);
    assert_eq!(got.headers["access-control-allow-origin"], "https://mine.example");
    assert_eq!((served.get("/health").status, served.get("/ready").status), (200, 200));
    assert_eq!(served.stop(), 0);

    let model = at(models::ENCODER);
    let model = model.to_str().unwrap();
    let ran = run(&["serve", "--model", model, "--host", "0.0.0.0", "--port", "0"], b"");
    assert!(ran.error_line(2).contains("add --api-key-file FILE, or --insecure"), "{}", ran.err);
    let ran = run(&["serve", "--model", model, "--model", model, "--port", "0"], b"");
    assert!(ran.error_line(2).contains("two models are named `all-MiniLM-L6-v2`"), "{}", ran.err);
}

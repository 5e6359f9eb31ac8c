//! `cloze inspect`.

use std::fs;

use serde_json::Value;

use crate::lines::{classifier, masked};
use crate::ran::run;

#[test]
fn a_page_and_json_are_written_and_contributions_printed() {
    let (folder, place) = (classifier(), tempfile::tempdir().unwrap());
    let (page, json) = (place.path().join("page.html"), place.path().join("seen.json"));
    let [page, json] = [&page, &json].map(|path| path.to_str().unwrap());
    let model = folder.path().to_str().unwrap();
    let ran = run(&["inspect", "--model", model, "a b c", "--output", page, "--json", json], b"");
    let out = ran.done();
    assert!(out.starts_with("class: "), "{out}");
    let header = out.lines().nth(1).unwrap();
    for method in [
        "rollout",
        "gradient times input",
        "integrated gradients",
        "gradient weighted attention",
        "occlusion",
    ] {
        assert!(header.contains(method), "{header}");
    }
    // [CLS], three letters, [SEP], and the two lines of the header.
    assert_eq!(out.lines().skip(1).count(), 7, "{out}");
    let seen: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(seen["source"].as_array().unwrap().len(), 5);
    assert_eq!(seen["attention"][0]["layers"].as_array().unwrap().len(), 2);
    assert!(seen["attention"][0]["layers"][0]["heads"][0]["neurons"].is_object());
    assert_eq!(seen["model"], model);
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("Content-Security-Policy") && html.contains("a b c"));
    // The same text from standard input gives the same page.
    let before = html;
    run(&["inspect", "--model", model, "--output", page], b"a b c\n").done();
    assert_eq!(fs::read_to_string(page).unwrap(), before);
}

#[test]
fn layers_methods_and_answers_are_chosen() {
    let (folder, place) = (classifier(), tempfile::tempdir().unwrap());
    let json = place.path().join("seen.json");
    let json = json.to_str().unwrap();
    let model = folder.path().to_str().unwrap();
    let chosen =
        ["--layers", "1", "--method", "occlusion", "--label", "no", "--against", "yes", "--neurons=false"];
    let out = run(&[&["inspect", "--model", model, "a b", "--json", json], &chosen[..]].concat(), b"").done();
    assert!(out.contains("explained: no against yes"), "{out}");
    let seen: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(seen["attention"][0]["layers"][0]["layer"], 1);
    assert!(seen["attention"][0]["layers"][0]["heads"][0]["neurons"].is_null());
    assert_eq!(seen["explanations"][0]["method"], "occlusion");
    let filler = masked();
    let out =
        run(&["inspect", "--model", filler.path().to_str().unwrap(), "a [MASK] c", "--json", json], b"")
            .done();
    assert!(out.starts_with("masked token: "), "{out}");
    let seen: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(seen["lens"]["layers"].as_array().unwrap().len(), 3);
}

#[test]
fn what_is_not_there_is_one_line_and_nothing_is_written() {
    let (folder, place) = (classifier(), tempfile::tempdir().unwrap());
    let page = place.path().join("page.html");
    let model = folder.path().to_str().unwrap();
    let message = |args: &[&str], input: &[u8], status| {
        let args = [&["inspect", "--model", model, "--output", page.to_str().unwrap()], args].concat();
        let ran = run(&args, input);
        assert!(!page.exists());
        ran.error_line(status).to_owned()
    };
    assert!(message(&[], b"\n", 2).contains("no text"));
    assert!(message(&[" "], b"", 1).contains("the text is empty"));
    assert!(message(&["a", "--label", "maybe"], b"", 1).contains("maybe"));
    assert!(
        message(&["a", "--layers", "1..4"], b"", 1)
            .contains("there are no layers 1 to 3; expected some of 0 to 1")
    );
    assert!(message(&["a", "--target", "b"], b"", 1).contains("writes no translation"));
    assert!(message(&[], b"\xff\xfe", 1).contains("standard input"));
}

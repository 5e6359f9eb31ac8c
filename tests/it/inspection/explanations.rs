//! Explanations, layers and alignments against Captum, transformers and the papers' rules.

use crate::golden::fixture;
use burn::tensor::Device;
use cloze_evaluation::inspection::{Explanation, Inspection, Lens, Side};
use cloze_trainer::inspect::{Baseline, InspectRequest, Inspector, Method};
use cloze_trainer::quantization::{QuantizeConfig, WeightFormat, quantize};
use serde_json::Value;
use std::path::PathBuf;

fn expected() -> Value {
    let text = std::fs::read_to_string(fixture("inspection").join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn open(folder: PathBuf) -> Inspector {
    Inspector::load(&folder, &Device::flex()).unwrap()
}

fn classifier() -> Inspector {
    open(fixture("inspection").join("classifier"))
}

fn translator() -> Inspector {
    open(fixture("t5_translation"))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[track_caller]
fn close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-3_f64, |scale, value| scale.max(value.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-3 * scale, "{what}: {found:?}, expected {expected:?}");
    }
}

fn of(seen: &Inspection, method: Method) -> &Explanation {
    seen.explanations.iter().find(|explanation| explanation.method == method).unwrap()
}

/// Both sides of a method's numbers against those of Captum.
#[track_caller]
fn check_gradients(seen: &Inspection, case: &Value) {
    let product = of(seen, Method::GradientTimesInput);
    let integrated = of(seen, Method::IntegratedGradients);
    let golden = &case["integrated-gradients"];
    let sides = |explanation: &Explanation| [explanation.source.clone(), explanation.target.clone()];
    for (name, explanation, values) in [
        ("gradient times input", product, &case["gradient-times-input"]),
        ("integrated gradients", integrated, &golden["values"]),
    ] {
        for (found, expected) in sides(explanation).iter().zip(values.as_array().unwrap()) {
            close(name, found, &numbers(expected));
        }
    }
    let found = integrated.completeness.unwrap();
    let golden_number = |key: &str| golden[key].as_f64().unwrap();
    assert_eq!(found.points as u64, golden["points"].as_u64().unwrap());
    assert_eq!(found.converged, golden["converged"].as_bool().unwrap());
    close("F(x)", &[found.score], &[golden_number("score")]);
    close("F(x')", &[found.baseline], &[golden_number("baseline")]);
    close("the sum", &[found.sum], &[golden_number("sum")]);
    let all: f64 = integrated.source.iter().chain(&integrated.target).sum();
    assert!((all - found.sum).abs() < 1e-9);
    if found.converged {
        let whole = found.score - found.baseline;
        assert!((found.sum - whole).abs() <= 0.01 * whole.abs());
    }
}

#[test]
fn explanations_of_a_classifier_equal_captums_and_the_papers() {
    let inspector = classifier();
    let methods = inspector.methods();
    assert_eq!(methods.len(), 5);
    for case in expected()["classifier"].as_array().unwrap() {
        let request = InspectRequest {
            pair: text(&case["pair"]),
            label: text(&case["label"]),
            against: text(&case["against"]),
            methods: methods.clone(),
            ..InspectRequest::new(case["text"].as_str().unwrap())
        };
        let seen = inspector.inspect(&request).unwrap();
        let tokens: Vec<&str> = seen.source.iter().map(|token| token.text.as_str()).collect();
        let golden: Vec<&str> =
            case["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
        assert_eq!(tokens, golden);
        assert_eq!(seen.notes, Vec::<String>::new());
        check_gradients(&seen, case);
        let rollout = of(&seen, Method::Rollout);
        close("rollout", &rollout.source, &numbers(&case["rollout"]));
        assert!((rollout.source.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        let weighted = of(&seen, Method::GradientWeightedAttention);
        close("weighted attention", &weighted.source, &numbers(&case["gradient-weighted-attention"]));
        assert!(!rollout.signed && !weighted.signed && weighted.source.iter().all(|value| *value >= 0.0));
        // The answer and the maps.
        let answer = seen.answer.as_ref().unwrap();
        let logits = numbers(&case["logits"]);
        let names = ["bad", "good", "other"];
        for choice in &answer.choices {
            let id = names.iter().position(|name| *name == choice.name).unwrap();
            close("a logit", &[choice.score], &[logits[id]]);
        }
        let total: f64 = answer.choices.iter().filter_map(|choice| choice.probability).sum();
        assert!((total - 1.0).abs() < 1e-9 && answer.choices.is_sorted_by(|a, b| a.score >= b.score));
        assert_eq!(
            (Some(answer.explained.clone()), answer.against.clone()),
            (request.label, request.against)
        );
        for (layer, golden) in seen.attention[0].layers.iter().zip(case["attention"].as_array().unwrap()) {
            for (head, golden) in layer.heads.iter().zip(golden.as_array().unwrap()) {
                let golden: Vec<f64> = golden.as_array().unwrap().iter().flat_map(numbers).collect();
                let apart = head.shares.iter().zip(&golden).map(|(a, b)| (f64::from(*a) - b).abs());
                assert!(apart.fold(0.0, f64::max) <= 1e-5);
            }
        }
        assert_eq!(seen.attention[0].layers.len(), 3);
    }
}

#[test]
fn explanations_of_a_translator_equal_captums_and_the_papers() {
    let inspector = translator();
    let methods = inspector.methods();
    assert_eq!(methods.len(), 4);
    for case in expected()["translator"].as_array().unwrap() {
        let place = case["place"].as_u64().unwrap() as usize;
        let request = InspectRequest {
            target: text(&case["target"]),
            place: Some(place),
            methods: methods.clone(),
            lens: true,
            ..InspectRequest::new(case["text"].as_str().unwrap())
        };
        let seen = inspector.inspect(&request).unwrap();
        let sides = [&seen.source, seen.target.as_ref().unwrap()];
        for (tokens, golden) in sides.into_iter().zip(case["tokens"].as_array().unwrap()) {
            let golden: Vec<&str> =
                golden.as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
            let tokens: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
            assert_eq!(tokens, golden);
        }
        check_gradients(&seen, case);
        let weighted = of(&seen, Method::GradientWeightedAttention);
        let [source, target] = [0, 1].map(|side| numbers(&case["gradient-weighted-attention"][side]));
        close("weighted attention to the source", &weighted.source, &source);
        close("weighted attention to the target", &weighted.target, &target);
        assert_eq!(weighted.target.len(), place);
        assert_eq!(seen.answer.as_ref().unwrap().place, Some((Side::Target, place)));
        check_lens(seen.lens.as_ref().unwrap(), &case["lens"]);
        let alignment = seen.alignment.as_ref().unwrap();
        let n_words = request.target.as_ref().unwrap().split_whitespace().count();
        assert_eq!(alignment.entropies.len(), n_words);
        assert!(alignment.pairs.iter().all(|(source, target)| *source < 6 && *target < n_words));
        assert_eq!(seen.attention.len(), 3);
    }
}

#[track_caller]
fn check_lens(lens: &Lens, golden: &Value) {
    let layers = golden.as_array().unwrap();
    assert_eq!(lens.layers.len(), layers.len());
    for (layer, golden) in lens.layers.iter().zip(layers) {
        for (position, golden) in layer.positions.iter().zip(golden.as_array().unwrap()) {
            let (piece, share) = &position.best[0];
            // The model has more rows than there are pieces.
            assert_eq!(piece, golden[0].as_str().unwrap_or_default());
            close("the best piece's share", &[*share], &[golden[1].as_f64().unwrap()]);
            assert_eq!(position.rank as u64, golden[2].as_u64().unwrap());
        }
    }
    assert!(lens.layers.last().unwrap().positions.iter().all(|position| position.rank == 1));
}

#[test]
fn layers_of_masked_and_left_to_right_models_equal_transformers() {
    let expected = expected();
    for (name, folder) in
        [("masked", fixture("inspection").join("masked")), ("writer", fixture("gguf").join("gpt2"))]
    {
        let case = &expected[name];
        let request = InspectRequest { lens: true, ..InspectRequest::new(case["text"].as_str().unwrap()) };
        let seen = open(folder).inspect(&request).unwrap();
        let lens = seen.lens.as_ref().unwrap();
        check_lens(lens, &case["lens"]);
        // The last layer is the model's answer.
        let answer = seen.answer.unwrap();
        let place = answer.place.map_or(seen.source.len() - 1, |(_, place)| place);
        let best = &lens.layers.last().unwrap().positions[place].best;
        for (choice, (piece, share)) in answer.choices.iter().zip(best) {
            assert_eq!(choice.name, *piece);
            assert!((choice.probability.unwrap() - share).abs() < 1e-5);
        }
    }
}

#[test]
fn occlusion_is_what_the_masked_text_loses() {
    let inspector = classifier();
    let score = |text: &str| {
        let seen = inspector.inspect(&InspectRequest::new(text)).unwrap();
        seen.answer.unwrap().choices.into_iter().find(|choice| choice.name == "good").unwrap().score
    };
    let request = InspectRequest {
        label: Some("good".into()),
        methods: vec![Method::Occlusion],
        without_attention: true,
        ..InspectRequest::new("a b c")
    };
    let seen = inspector.inspect(&request).unwrap();
    assert!(seen.attention.is_empty());
    let whole = score("a b c");
    let expected = ["[MASK] b c", "a [MASK] c", "a b [MASK]"].map(|text| whole - score(text));
    close("occlusion", &seen.explanations[0].source, &[0.0, expected[0], expected[1], expected[2], 0.0]);
}

#[test]
fn a_text_of_zeros_is_another_baseline() {
    let inspector = classifier();
    let methods = vec![Method::IntegratedGradients, Method::Occlusion];
    let request = InspectRequest { methods, baseline: Baseline::Zeros, ..InspectRequest::new("a b c") };
    let seen = inspector.inspect(&request).unwrap();
    for explanation in &seen.explanations {
        // Special tokens are replaced too.
        assert!(explanation.source.iter().all(|value| *value != 0.0), "{explanation:?}");
    }
    let found = of(&seen, Method::IntegratedGradients).completeness.unwrap();
    assert!(
        !found.converged
            || (found.sum - (found.score - found.baseline)).abs()
                <= 0.01 * (found.score - found.baseline).abs()
    );
}

#[test]
fn heads_have_figures_and_neurons() {
    let request = InspectRequest { layers: Some(1..2), neurons_up_to: 5, ..InspectRequest::new("a b c") };
    let seen = classifier().inspect(&request).unwrap();
    let [layer] = &seen.attention[0].layers[..] else { panic!("one layer is asked for") };
    assert_eq!((layer.layer, layer.heads.len()), (1, 3));
    for head in &layer.heads {
        let rows: Vec<&[f32]> = head.shares.chunks(5).collect();
        let mean = |of: &dyn Fn(usize, usize) -> f64| {
            (0..5).flat_map(|i| (0..5).map(move |j| (i, j))).map(|(i, j)| of(i, j)).sum::<f64>() / 5.0
        };
        let share = |i: usize, j: usize| f64::from(rows[i][j]);
        assert!((head.entropy + mean(&|i, j| share(i, j) * share(i, j).log2())).abs() < 1e-9);
        assert!((head.distance.unwrap() - mean(&|i, j| share(i, j) * i.abs_diff(j) as f64)).abs() < 1e-9);
        assert!((head.special - mean(&|i, j| if j == 0 || j == 4 { share(i, j) } else { 0.0 })).abs() < 1e-9);
        let neurons = head.neurons.as_ref().unwrap();
        assert_eq!((neurons.width, neurons.queries.len(), neurons.keys.len()), (8, 40, 40));
        let product = |i: usize, j: usize| -> f64 {
            let pairs = neurons.queries[i * 8..(i + 1) * 8].iter().zip(&neurons.keys[j * 8..(j + 1) * 8]);
            pairs.map(|(q, k)| f64::from(q * k)).sum::<f64>() / neurons.scale
        };
        let sum: f64 = (0..5).map(|j| product(2, j).exp()).sum();
        assert!((0..5).all(|j| (product(2, j).exp() / sum - share(2, j)).abs() < 1e-5));
    }
}

#[test]
fn what_a_translator_writes_is_looked_at() {
    let inspector = translator();
    let request = InspectRequest { methods: vec![Method::Occlusion], ..InspectRequest::new("road to sea") };
    let seen = inspector.inspect(&request).unwrap();
    let target = seen.target.as_ref().unwrap();
    assert!(target.len() > 1 && target[0].special && target[0].text == "<pad>");
    for maps in &seen.attention {
        for head in maps.layers.iter().flat_map(|layer| &layer.heads) {
            let n_rows = head.shares.len()
                / if maps.kind == cloze_evaluation::inspection::MapKind::Own(Side::Target) {
                    target.len()
                } else {
                    seen.source.len()
                };
            assert!(n_rows == target.len() || n_rows == seen.source.len());
        }
    }
    let explanation = &seen.explanations[0];
    assert_eq!((explanation.source.len(), explanation.target.len()), (seen.source.len(), 1));
}

#[test]
fn what_cannot_be_seen_is_told_in_a_line() {
    let refused = |inspector: &Inspector, request: InspectRequest| {
        let message = inspector.inspect(&request).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    let (classifier, translator) = (classifier(), translator());
    let masked = open(fixture("inspection").join("masked"));
    let encoder = open(fixture("poolings"));
    let writer = open(fixture("gguf").join("gpt2"));
    let new = || InspectRequest::new("a b c");
    let with = |label: &str| InspectRequest { label: Some(label.into()), ..new() };
    let explaining = |method| InspectRequest { methods: vec![method], ..new() };
    let pair = || InspectRequest { pair: Some("d".into()), ..new() };
    let placed = |place| InspectRequest { place: Some(place), ..new() };
    for (inspector, request, expected) in [
        (&classifier, InspectRequest::new("  "), "the text is empty"),
        (&classifier, with("goood"), "`goood` is no class of the model; expected one of bad, good, other"),
        (
            &classifier,
            InspectRequest { against: Some("good".into()), ..with("good") },
            "`good` is explained against itself",
        ),
        (
            &classifier,
            InspectRequest { layers: Some(2..4), ..new() },
            "there are no layers 2 to 3; expected some of 0 to 2",
        ),
        (&classifier, InspectRequest { layers: Some(2..2), ..new() }, "there are no layers"),
        (&classifier, placed(1), "the place 1 is given, but the model answers for the whole text"),
        (
            &classifier,
            InspectRequest { target: Some("d".into()), ..new() },
            "the model writes no translation",
        ),
        (&masked, explaining(Method::Occlusion), "the text has no [MASK] whose piece could be explained"),
        (&masked, InspectRequest { label: Some("qqqq".into()), ..placed(1) }, "`qqqq` is no piece"),
        (&masked, placed(9), "there is no token 9; expected 0 to 4"),
        (&encoder, explaining(Method::Rollout), "the model has no head"),
        (&writer, pair(), "the model reads single texts"),
        (&writer, placed(0), "the first token is predicted from nothing"),
        (&translator, pair(), "the model reads single texts"),
        (&translator, InspectRequest { target: Some(" ".into()), ..new() }, "the target is empty"),
        (
            &translator,
            InspectRequest { target: Some("a".into()), ..placed(7) },
            "there is no token 7 in the target",
        ),
        (&translator, explaining(Method::Rollout), "attention rollout is for models of one side"),
    ] {
        let message = refused(inspector, request);
        assert!(message.contains(expected), "{message}\nexpected {expected}");
    }
    // Longer than the model: cut, and told.
    let long = "a ".repeat(30);
    let seen = classifier.inspect(&InspectRequest::new(long)).unwrap();
    assert_eq!(seen.source.len(), 20);
    assert_eq!(seen.notes, ["The text has 32 tokens and was cut: the model reads 20 at most."]);
    // Without a head and without a question there is still attention.
    let seen = encoder.inspect(&new()).unwrap();
    assert!(seen.answer.is_none() && encoder.methods().is_empty() && !seen.attention.is_empty());
}

#[test]
fn a_model_of_integers_has_attention_and_no_gradients() {
    let to = tempfile::tempdir().unwrap();
    let from = fixture("inspection").join("classifier");
    let config = QuantizeConfig::new(WeightFormat::Int8);
    quantize(&from, to.path(), &config, Vec::new(), &Device::flex(), |_| ()).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    let inspector = open(to.path().to_owned());
    assert_eq!(inspector.methods(), [Method::Rollout, Method::Occlusion]);
    let request = |methods| InspectRequest { methods, ..InspectRequest::new("so good a dog") };
    let seen = inspector.inspect(&request(inspector.methods())).unwrap();
    let exact = classifier().inspect(&request(inspector.methods())).unwrap();
    for (rounded, exact) in seen.explanations.iter().zip(&exact.explanations) {
        let scale = exact.source.iter().fold(0.0_f64, |scale, value| scale.max(value.abs()));
        let apart = rounded.source.iter().zip(&exact.source).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart > 0.0 && apart < 0.1 * scale, "{apart} of {scale}");
    }
    let message = inspector.inspect(&request(vec![Method::IntegratedGradients])).unwrap_err().to_string();
    assert!(message.starts_with("the model's weights are integers, which have no gradient"), "{message}");
}

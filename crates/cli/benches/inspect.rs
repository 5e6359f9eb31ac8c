//! How faithful explanations of a classifier are, and how long they take.
//!
//!     cargo bench -p cloze --bench inspect -- faithful MODEL FILE
//!     cargo bench -p cloze --bench inspect -- time MODEL FILE METHOD ROUNDS
//!
//! FILE has a text on each line. `faithful` prints a JSON line for each method, and one for random ranks: comprehensiveness and
//! sufficiency (DeYoung et al. 2020, "ERASER", §4), the area under the perturbation curve over 1, 5, 10, 20 and 50 % of the words,
//! with deviations over texts. `time` prints one JSON line. `cargo xtask bench inspect` runs it beside Captum.
#![allow(missing_docs)]

#[path = "../../trainer/benches/common/mod.rs"]
mod common;

use cloze::data::Random;
use cloze::evaluation::inspection::{Explanation, Token};
use cloze::{Classifier, Device, InspectRequest, Inspector, Method};
use std::time::Instant;

/// The shares of words that are taken away.
const SHARES: [f64; 5] = [0.01, 0.05, 0.1, 0.2, 0.5];

const NAMES: [(&str, Method); 5] = [
    ("attention rollout", Method::Rollout),
    ("gradient × input", Method::GradientTimesInput),
    ("integrated gradients", Method::IntegratedGradients),
    ("gradient-weighted attention", Method::GradientWeightedAttention),
    ("occlusion", Method::Occlusion),
];

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let texts = |file: &str| -> Vec<String> {
        std::fs::read_to_string(file).expect("a file of lines").lines().map(str::to_owned).collect()
    };
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["faithful", model, file] => faithful(model, &texts(file)),
        ["time", model, file, method, rounds] => {
            time(model, &texts(file), method, rounds.parse().expect("a number of rounds"));
        }
        // A bare `cargo bench` runs every benchmark.
        _ => println!("inspect: faithful MODEL FILE | time MODEL FILE METHOD ROUNDS"),
    }
}

fn request(text: &str, methods: Vec<Method>) -> InspectRequest {
    InspectRequest { methods, without_attention: true, ..InspectRequest::new(text) }
}

fn time(model: &str, texts: &[String], name: &str, rounds: usize) {
    let (_, method) = NAMES.iter().find(|(known, _)| *known == name).expect("a method");
    let inspector = Inspector::load(model, &Device::flex()).expect("a model");
    let explain = || {
        for text in texts {
            inspector.inspect(&request(text, vec![*method])).expect("an explanation");
        }
    };
    explain();
    let round = |_| {
        let start = Instant::now();
        explain();
        start.elapsed().as_secs_f64()
    };
    let median = common::median((0..rounds).map(round).collect());
    println!(
        "{{\"ms\":{:.3},\"per_s\":{:.3},\"peak_mb\":{:.1}}}",
        1e3 * median / texts.len() as f64,
        texts.len() as f64 / median,
        common::peak_megabytes()
    );
}

/// Comprehensiveness and sufficiency of a text for one ranking.
type Figures = [f64; 2];

fn faithful(model: &str, texts: &[String]) {
    let device = Device::flex();
    let inspector = Inspector::load(model, &device).expect("a model");
    let classifier = Classifier::load(model, &device).expect("a classifier");
    let methods = inspector.methods();
    let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); methods.len() + 1];
    let mut random = Random::new(42);
    for text in texts {
        let seen = inspector.inspect(&request(text, methods.clone())).expect("an explanation");
        let words = words(&seen.source);
        if words.len() < 2 {
            continue;
        }
        let label = &seen.answer.as_ref().expect("an answer").explained;
        let rankings =
            seen.explanations.iter().map(|explanation| ranking(explanation, &seen.source, words.len()));
        let mut shuffled: Vec<usize> = (0..words.len()).collect();
        for last in (1..shuffled.len()).rev() {
            shuffled.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (ranking, figures) in rankings.chain([shuffled]).zip(&mut figures) {
            figures.push(of_ranking(&classifier, text, &words, &ranking, label));
        }
    }
    let name = |method: &Method| NAMES.iter().find(|(_, known)| known == method).map_or("", |(name, _)| name);
    let names = methods.iter().map(name).chain(["random ranks"]);
    for (name, figures) in names.zip(&figures) {
        let column = |of: usize| {
            let values: Vec<f64> = figures.iter().map(|figures| figures[of]).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            (mean, (squares / (values.len() as f64 - 1.0)).sqrt())
        };
        let ((comprehensiveness, a), (sufficiency, b)) = (column(0), column(1));
        println!(
            "{{\"method\":\"{name}\",\"comprehensiveness\":[{comprehensiveness:.4},{a:.4}],\"sufficiency\":[{sufficiency:.4},{b:.4}]}}"
        );
    }
}

/// The bytes of each word.
fn words(tokens: &[Token]) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, (usize, usize))> = Vec::new();
    for token in tokens {
        let Some(word) = token.word else { continue };
        match words.last_mut() {
            Some((last, span)) if *last == word => span.1 = token.end,
            _ => words.push((word, (token.start, token.end))),
        }
    }
    words.into_iter().map(|(_, span)| span).collect()
}

/// The words by what their pieces contribute together, the most first.
fn ranking(explanation: &Explanation, tokens: &[Token], n_words: usize) -> Vec<usize> {
    let mut sums = vec![0.0; n_words];
    let (mut at, mut before) = (0, None);
    for (token, value) in tokens.iter().zip(&explanation.source) {
        let Some(word) = token.word else { continue };
        if before.is_some_and(|before| before != word) {
            at += 1;
        }
        before = Some(word);
        sums[at] += value;
    }
    let mut order: Vec<usize> = (0..n_words).collect();
    order.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]));
    order
}

fn of_ranking(
    classifier: &Classifier,
    text: &str,
    words: &[(usize, usize)],
    ranking: &[usize],
    label: &str,
) -> Figures {
    let cut = |kept: &dyn Fn(usize) -> bool| {
        let kept = words.iter().enumerate().filter(|(word, _)| kept(*word));
        kept.map(|(_, (start, end))| &text[*start..*end]).collect::<Vec<_>>().join(" ")
    };
    let mut variants = vec![cut(&|_| true)];
    for share in SHARES {
        let n = ((share * words.len() as f64).ceil() as usize).min(words.len());
        let chosen = &ranking[..n];
        variants.push(cut(&|word| !chosen.contains(&word)));
        variants.push(cut(&|word| chosen.contains(&word)));
    }
    // A text without words is as good as a space.
    let variants: Vec<&str> = variants.iter().map(|text| if text.is_empty() { " " } else { text }).collect();
    let classes = classifier.classify(&variants).expect("classes");
    let probability = |place: usize| {
        classes[place].scores.iter().find(|(name, _)| name == label).map_or(0.0, |(_, score)| *score)
    };
    let whole = probability(0);
    let mean = |first: usize| {
        let all = (0..SHARES.len()).map(|share| whole - probability(first + 2 * share));
        all.sum::<f64>() / SHARES.len() as f64
    };
    [mean(1), mean(2)]
}

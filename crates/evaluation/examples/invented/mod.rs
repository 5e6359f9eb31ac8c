//! Invented inspections: attention as models have it, with heads that look at neighbours, at special tokens, at the like, and everywhere.

use cloze_evaluation::inspection::{
    Alignment, Answer, AttentionMaps, Choice, Completeness, Explanation, Head, Inspection, Layer, Lens,
    LensLayer, LensPosition, MapKind, Method, Neurons, Side, Token,
};

/// Numbers from −1 to 1 that are the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    /// A number between 0 and 1 that depends on two things.
    fn of(a: usize, b: usize) -> f32 {
        let mut noise = Self((a as u64) << 32 | b as u64);
        noise.next();
        noise.next();
        (noise.next() + 1.0) / 2.0
    }
}

/// A short classification, an odd pair of texts, a translation, and a long text.
pub fn inspections() -> Vec<(&'static str, Inspection)> {
    vec![
        ("class", class()),
        ("odd", odd()),
        ("translation", translation()),
        ("alignment", alignment()),
        ("long", long(512, 6, 12)),
    ]
}

/// Pieces of words: `un|likely` are two pieces of one.
fn tokens(texts: &[&str]) -> Vec<Token> {
    let special =
        |text: &str, part| Token { text: text.into(), word: None, special: true, part, start: 0, end: 0 };
    let mut all = vec![special("[CLS]", 0)];
    for (part, text) in texts.iter().enumerate() {
        let mut at = 0;
        for (word, letters) in text.split(' ').enumerate() {
            for (place, piece) in letters.split('|').enumerate() {
                let text = if place > 0 { format!("##{piece}") } else { piece.to_owned() };
                let end = at + piece.len();
                all.push(Token { text, word: Some(word), special: false, part: part as u8, start: at, end });
                at = end;
            }
            at += 1;
        }
        all.push(special("[SEP]", part as u8));
    }
    all
}

/// A head's shares: the softmax of scores that depend on what the head is for. `is_causal`: nothing later.
fn head(kind: usize, rows: &[Token], columns: &[Token], is_causal: bool, width: Option<usize>) -> Head {
    let (queries, keys) = (rows.len(), columns.len());
    let scale = keys as f32 / queries as f32;
    let mut noise = Noise(kind as u64 + 7);
    let mut shares = Vec::with_capacity(queries * keys);
    for (query, row) in rows.iter().enumerate() {
        let here = query as f32 * scale;
        let scores: Vec<f32> = columns
            .iter()
            .enumerate()
            .map(|(key, column)| {
                let distance = key as f32 - here;
                let of_piece = Noise::of(
                    kind,
                    column.text.len() * 31 + column.text.bytes().next().unwrap_or(0) as usize,
                );
                let alike = Noise::of(kind + row.text.len() % 5, column.text.len());
                let score = match kind % 6 {
                    0 => -2.0 * (distance + 1.0).abs(),
                    1 => -1.6 * (distance - 1.0).abs(),
                    2 if column.special => 3.7 + (keys as f32).ln() * 0.55,
                    2 => 3.0 * of_piece,
                    3 => 5.0 * alike - 0.04 * distance.abs(),
                    4 => 2.5 * of_piece,
                    _ => -0.08 * distance.abs() + 4.0 * of_piece,
                };
                if is_causal && key > query { f32::NEG_INFINITY } else { score + 0.9 * noise.next() }
            })
            .collect();
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
        shares.extend(scores.iter().map(|score| (score - largest).exp() / sum));
    }
    let mean = |of: &dyn Fn(usize, usize) -> f32| {
        let all = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
        all.map(|(query, key)| f64::from(of(query, key))).sum::<f64>() / queries as f64
    };
    let share = |query: usize, key: usize| shares[query * keys + key];
    let entropy = mean(&|query, key| match share(query, key) {
        0.0 => 0.0,
        share => -share * share.log2(),
    });
    let distance =
        (rows == columns).then(|| mean(&|query, key| share(query, key) * query.abs_diff(key) as f32));
    let special = mean(&|query, key| if columns[key].special { share(query, key) } else { 0.0 });
    let neurons = width.map(|width| {
        let mut vector = |n: usize| (0..n * width).map(|_| 2.0 * noise.next()).collect();
        let (queries_of, keys_of) = (vector(queries), vector(keys));
        let positions = kind
            .is_multiple_of(2)
            .then(|| (0..queries * keys).map(|at| -0.1 * (at / keys).abs_diff(at % keys) as f32).collect());
        Neurons { width, scale: (width as f64).sqrt(), queries: queries_of, keys: keys_of, positions }
    });
    Head { shares, entropy, distance, special, neurons }
}

fn maps(
    kind: MapKind,
    rows: &[Token],
    columns: &[Token],
    layers: usize,
    heads: usize,
    width: Option<usize>,
) -> AttentionMaps {
    let is_causal = kind == MapKind::Own(Side::Target);
    let layer = |layer: usize| Layer {
        layer,
        heads: (0..heads)
            .map(|at| head(layer * 7 + at * 5 + at / 3, rows, columns, is_causal, width))
            .collect(),
    };
    AttentionMaps { kind, layers: (0..layers).map(layer).collect() }
}

fn empty(model: &str, kind: &str, source: Vec<Token>) -> Inspection {
    Inspection {
        model: model.into(),
        kind: kind.into(),
        source,
        target: None,
        notes: Vec::new(),
        attention: Vec::new(),
        answer: None,
        explanations: Vec::new(),
        lens: None,
        alignment: None,
    }
}

fn explanations(tokens: &[Token], weight: impl Fn(&Token) -> f64) -> Vec<Explanation> {
    let methods = [
        (Method::Rollout, false),
        (Method::GradientTimesInput, true),
        (Method::IntegratedGradients, true),
        (Method::GradientWeightedAttention, false),
        (Method::Occlusion, true),
    ];
    let explain = |(at, (method, signed)): (usize, (Method, bool))| {
        let mut noise = Noise(at as u64);
        let source: Vec<f64> = tokens
            .iter()
            .map(|token| {
                let value =
                    (if token.special { 0.05 } else { weight(token) }) + 0.12 * f64::from(noise.next());
                if signed { value } else { value.abs() }
            })
            .collect();
        let sum: f64 = source.iter().sum();
        let completeness = (method == Method::IntegratedGradients).then_some(Completeness {
            score: sum + 0.31,
            baseline: 0.3,
            sum,
            points: 50,
            converged: true,
        });
        Explanation { method, source, target: Vec::new(), signed, completeness }
    };
    methods.into_iter().enumerate().map(explain).collect()
}

fn choice(name: &str, score: f64, probability: Option<f64>) -> Choice {
    Choice { name: name.into(), score, probability }
}

fn class() -> Inspection {
    let source = tokens(&[
        "the plot is thin and the jokes are old but what a gor|geous , wit|ty and seduc|tive movie this un|like|ly pair has made .",
    ]);
    let weight = |token: &Token| match token.text.as_str() {
        "gor" | "##geous" => 0.7,
        "wit" | "##ty" | "seduc" | "##tive" => 0.55,
        "thin" | "old" => -0.6,
        "but" => 0.3,
        _ => 0.02,
    };
    let mut seen = empty("textattack/bert-base-uncased-SST-2", "BERT, classification", source);
    seen.attention = vec![maps(MapKind::Own(Side::Source), &seen.source, &seen.source, 12, 12, Some(32))];
    seen.answer = Some(Answer {
        kind: "class".into(),
        place: None,
        choices: vec![choice("positive", 2.91, Some(0.957)), choice("negative", -0.19, Some(0.043))],
        explained: "positive".into(),
        against: Some("negative".into()),
    });
    seen.explanations = explanations(&seen.source, weight);
    seen
}

/// Texts that a page must not fall over.
fn odd() -> Inspection {
    let long = "x".repeat(10_000);
    let mut source = tokens(&[
        "</script><script>alert(1)</script> & \"q\" מה נשתנה 👩‍👩‍👧 e\u{301} \u{202e}turned <!-- \u{fffd} a\nb",
        "日本 の 語 LONG <b>bold</b>",
    ]);
    source.iter_mut().filter(|token| token.text == "LONG").for_each(|token| token.text.clone_from(&long));
    source[9].text = String::new();
    let mut seen = empty("runs/<img src=x>/model", "BERT, masked language model", source);
    seen.notes = vec!["The text was cut to 20 tokens: <b>the model</b> reads no more.".into()];
    seen.attention = vec![maps(MapKind::Own(Side::Source), &seen.source, &seen.source, 2, 4, Some(16))];
    seen.answer = Some(Answer {
        kind: "masked token".into(),
        place: Some((Side::Source, 4)),
        choices: vec![choice("</script>", 5.25, Some(0.5)), choice("שלום", 4.0, Some(0.25))],
        explained: "</script>".into(),
        against: None,
    });
    seen.explanations =
        explanations(&seen.source, |token| if token.text.starts_with('<') { 0.5 } else { -0.1 });
    seen.lens = Some(lens(Side::Source, &seen.source, 2));
    seen
}

fn lens(side: Side, tokens: &[Token], layers: usize) -> Lens {
    let position = |layer: usize, at: usize| {
        let sure = (layer as f64 + 0.5) / (layers as f64 + 1.0);
        let piece = |shift: usize| tokens[(at + shift) % tokens.len()].text.clone();
        let is_right = f64::from(Noise::of(layer, at)) < sure;
        let first = if is_right { 0 } else { 1 + (layer + at) % 3 };
        let best =
            (0..5).map(|place| (piece(first + place), sure * 0.9 / f64::from(1 << (2 * place)))).collect();
        LensPosition {
            best,
            rank: if is_right || layer == layers { 1 } else { 2 + 7 * (layers - layer) * (at % 9) },
        }
    };
    let layer =
        |layer| LensLayer { layer, positions: (0..tokens.len()).map(|at| position(layer, at)).collect() };
    Lens { side, layers: (0..=layers).map(layer).collect() }
}

fn translation() -> Inspection {
    let source = tokens(&["Zwei Hunde ren|nen über die Wie|se und spie|len mit einem Ball ."]);
    let target = tokens(&["Two dogs run across the mea|dow and play with a ball ."]);
    let mut seen = empty("Helsinki-NLP/opus-mt-de-en", "Marian, translation", source.clone());
    seen.attention = vec![
        maps(MapKind::Own(Side::Source), &source, &source, 6, 8, None),
        maps(MapKind::Own(Side::Target), &target, &target, 6, 8, None),
        maps(MapKind::Cross, &target, &source, 6, 8, None),
    ];
    seen.alignment = Some(Alignment {
        pairs: (0..12).map(|word| (word, word)).collect(),
        entropies: (0..12).map(|word| 0.4 + 0.17 * ((word * 7) % 9) as f64).collect(),
    });
    seen.lens = Some(lens(Side::Target, &target, 6));
    seen.answer = Some(Answer {
        kind: "token of the translation".into(),
        place: Some((Side::Target, 7)),
        choices: vec![choice("mea", 9.5, Some(0.82)), choice("field", 7.75, Some(0.14))],
        explained: "mea".into(),
        against: None,
    });
    seen.explanations = explanations(&source, |token| if token.text == "Wie" { 0.8 } else { 0.05 });
    for explanation in &mut seen.explanations {
        explanation.target =
            (0..7).map(|at| 0.1 * at as f64 - if explanation.signed { 0.2 } else { 0.0 }).collect();
    }
    seen.target = Some(target);
    seen
}

/// A recurrent model has one alignment and no heads.
fn alignment() -> Inspection {
    let (source, target) = (tokens(&["Eine Frau liest ."]), tokens(&["A woman is read|ing ."]));
    let mut seen = empty("runs/lstm/model", "LSTM, translation", source.clone());
    seen.attention = vec![maps(MapKind::Align, &target, &source, 1, 1, None)];
    seen.target = Some(target);
    seen
}

/// A text of so many tokens.
pub fn long(n: usize, layers: usize, heads: usize) -> Inspection {
    let words = "the seine is a river in north|ern france it flows through paris and into the english chan|nel at le havre ,";
    // In an order that does not repeat, which would deflate too well.
    let words: Vec<&str> = words.split(' ').collect();
    let text: Vec<&str> =
        (0..n).map(|at| words[(Noise::of(at, n) * words.len() as f32) as usize % words.len()]).collect();
    let mut source = tokens(&[&text.join(" ")]);
    let end = source.len() - 1;
    source.drain(n - 1..end);
    let mut seen = empty("sentence-transformers/all-MiniLM-L6-v2", "BERT, embeddings", source);
    seen.notes = vec![format!("The text was cut to {n} tokens, which is all that the model reads.")];
    seen.attention = vec![maps(MapKind::Own(Side::Source), &seen.source, &seen.source, layers, heads, None)];
    seen.lens = Some(lens(Side::Source, &seen.source, layers));
    seen.explanations = explanations(&seen.source, |token| if token.text == "paris" { 0.8 } else { 0.0 });
    seen
}

//! The ways to a smaller model, each as commands of the program.

/// A way to a smaller model.
pub struct Method {
    /// Its name in the table, which others begin from.
    pub name: &'static str,
    /// The model that it begins from; none for the pretrained one.
    pub from: Option<&'static str>,
    /// What is done to it.
    pub make: Make,
}

/// What a method runs. In arguments and settings, `{from}` is the folder that it begins from, `{teacher}` that of the
/// fine-tuned model, `{config}` the task's config and `{texts}` a file with texts of its training data.
pub enum Make {
    /// `cloze train`, with the task's config and these settings.
    Train(&'static [&'static str]),
    /// Another command, with these arguments and `--out`.
    Run(&'static [&'static str]),
    /// `peers/finetune.py` with these arguments: figures alone, and nothing that another method begins from.
    Peer(&'static [&'static str]),
}

/// The whole model, from which all others are made.
pub const TEACHER: &str = "fine-tuned";

const HALF_OF_THE_LAYERS: &str = "model.layers=[1,3,5]";
const FROM: &str = "model.path=\"{from}\"";
const ONE_EPOCH: &str = "train.epochs=1";

/// Blocks of 4 bits that make up for one another's errors, tables too.
const GPTQ: &[&str] =
    &["quantize", "--model", "{from}", "--weights", "q4_0", "--tables", "--gptq", "--calibrate", "{texts}"];

const fn train(name: &'static str, from: Option<&'static str>, settings: &'static [&'static str]) -> Method {
    Method { name, from, make: Make::Train(settings) }
}

const fn run(name: &'static str, from: Option<&'static str>, arguments: &'static [&'static str]) -> Method {
    Method { name, from, make: Make::Run(arguments) }
}

const fn quantize(name: &'static str, arguments: &'static [&'static str]) -> Method {
    run(name, Some(TEACHER), arguments)
}

/// All of them, each after what it begins from.
pub const METHODS: &[Method] = &[
    train(TEACHER, None, &[]),
    // Distillation.
    train("3 of 6 layers, no teacher", None, &[HALF_OF_THE_LAYERS]),
    train(
        "3 of 6 layers, taught",
        Some(TEACHER),
        &[
            FROM,
            HALF_OF_THE_LAYERS,
            "distillation={ teacher = \"{teacher}\", soft = 0.9, temperature = 2.0 }",
        ],
    ),
    train(
        "3 of 6 layers, imitating",
        Some(TEACHER),
        &[
            FROM,
            HALF_OF_THE_LAYERS,
            "distillation={ teacher = \"{teacher}\", soft = 0.0, hard = 0.0, inner = { embeddings = 1.0, states = 1.0, scores = 1.0 } }",
        ],
    ),
    train(
        "3 of 6 layers, TinyBERT",
        Some("3 of 6 layers, imitating"),
        &[FROM, "distillation={ teacher = \"{teacher}\", soft = 1.0, temperature = 1.0 }"],
    ),
    // Structured pruning.
    run(
        "half of the heads, pruned",
        Some(TEACHER),
        &["prune", "--model", "{from}", "--data", "{config}", "--heads", "0.5"],
    ),
    train("half of the heads, one epoch", Some("half of the heads, pruned"), &[FROM, ONE_EPOCH]),
    run(
        "half of heads and neurons, pruned",
        Some(TEACHER),
        &["prune", "--model", "{from}", "--data", "{config}", "--heads", "0.5", "--neurons", "0.5"],
    ),
    train(
        "half of heads and neurons, one epoch",
        Some("half of heads and neurons, pruned"),
        &[FROM, ONE_EPOCH],
    ),
    Method {
        name: "TextPruner: half of the heads, one epoch",
        from: Some(TEACHER),
        make: Make::Peer(&["--prune", "6,1536", "--set", FROM, "--set", ONE_EPOCH]),
    },
    Method {
        name: "TextPruner: half of heads and neurons, one epoch",
        from: Some(TEACHER),
        make: Make::Peer(&["--prune", "6,768", "--set", FROM, "--set", ONE_EPOCH]),
    },
    // Masks.
    train(
        "60 % of weights 0, ticket",
        None,
        &["pruning={ kind = \"magnitude\", sparsity = 0.6, per_round = 0.1 }"],
    ),
    train(
        "60 % of weights 0, random",
        None,
        &["pruning={ kind = \"random\", sparsity = 0.6, per_round = 0.6 }"],
    ),
    train(
        "85 % of weights 0, movement",
        None,
        &["pruning={ kind = \"movement\", left = 0.15 }", "train.epochs=6"],
    ),
    train(
        "85 % of weights 0, magnitude",
        None,
        &["pruning={ kind = \"magnitude\", sparsity = 0.85, per_round = 0.85 }"],
    ),
    // Integers.
    quantize("int8", &["quantize", "--model", "{from}", "--weights", "int8"]),
    quantize(
        "int8, static",
        &[
            "quantize",
            "--model",
            "{from}",
            "--weights",
            "int8",
            "--tables",
            "--ranges",
            "mse",
            "--calibrate",
            "{texts}",
        ],
    ),
    quantize("Q8_0, tables", &["quantize", "--model", "{from}", "--weights", "q8_0", "--tables"]),
    quantize("Q4_0, tables", &["quantize", "--model", "{from}", "--weights", "q4_0", "--tables"]),
    quantize("Q4_0, GPTQ, tables", GPTQ),
    quantize(
        "integers alone",
        &["quantize", "--model", "{from}", "--weights", "int8", "--integers-only", "--calibrate", "{texts}"],
    ),
    // Both.
    run("3 layers, taught, Q4_0, GPTQ, tables", Some("3 of 6 layers, taught"), GPTQ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_begins_from_an_earlier_one() {
        for (place, method) in METHODS.iter().enumerate() {
            let earlier = &METHODS[..place];
            assert!(earlier.iter().all(|other| other.name != method.name), "{} twice", method.name);
            if let Some(from) = method.from {
                assert!(earlier.iter().any(|other| other.name == from), "{} begins from {from}", method.name);
            }
        }
    }
}

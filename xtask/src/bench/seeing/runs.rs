//! The models that are trained, and what is wanted of them.

/// A model that is trained.
pub struct Run {
    /// Its name, which others begin from.
    pub name: &'static str,
    /// The model that it begins from.
    pub from: Option<&'static str>,
    pub by: By,
    /// Its config, in `configs/`.
    pub config: &'static str,
    /// What is set besides. `{from}` is the folder of the model that it begins from, `{mnist}` and `{nlvr}` those of the data.
    pub settings: &'static [&'static str],
}

/// Who trains a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// `cloze train`
    Ours,
    /// `peers/seeing.py`
    Peer,
}

/// A row of the table.
pub struct Row {
    pub work: &'static str,
    /// The name of the run of ours.
    pub run: &'static str,
    pub wanted: Wanted,
    /// The library beside it, and the name of its run.
    pub peer: Option<(&'static str, &'static str)>,
}

/// What is wanted of a figure, which is a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted {
    AtLeast(f64),
    /// So much more than another run, and more by a standard deviation.
    Above(f64, &'static str),
    /// To be seen.
    Shown,
}

const fn ours(name: &'static str, config: &'static str, settings: &'static [&'static str]) -> Run {
    Run { name, from: None, by: By::Ours, config, settings }
}

const fn after(
    name: &'static str,
    from: &'static str,
    config: &'static str,
    settings: &'static [&'static str],
) -> Run {
    Run { name, from: Some(from), by: By::Ours, config, settings }
}

const fn peer(name: &'static str, config: &'static str) -> Run {
    Run { name, from: None, by: By::Peer, config, settings: &[] }
}

/// A linear probe: a classifier on an encoder that stays as it is, trained on a fifth of the images as they are.
const PROBE: &[&str] = &[
    "model={ kind = \"pretrained\", path = \"{from}\", freeze = [\"encoder.*\"] }",
    "task.label_smoothing=0",
    "augment={}",
    "data.fraction=0.2",
    "train.epochs=20",
    "optimizer.lr=1e-2",
    "optimizer.weight_decay=0",
];

/// All of them, each after what it begins from.
pub const RUNS: &[Run] = &[
    ours("digits", "digits-vit", &[]),
    ours(
        "mnist",
        "mnist-vit",
        &[
            "data.train={ files = [\"{mnist}/train-images-idx3-ubyte.gz\"] }",
            "data.test=[\"{mnist}/t10k-images-idx3-ubyte.gz\"]",
        ],
    ),
    ours("vit", "cifar10-vit", &[]),
    peer("vit-timm", "cifar10-vit"),
    ours("cnn", "cifar10-cnn", &[]),
    peer("cnn-torch", "cifar10-cnn"),
    ours("mae", "cifar10-mae", &[]),
    after("mae-tuned", "mae", "cifar10-mae-tuned", &["model.path=\"{from}\""]),
    // The same network and the same settings, as far as a network from scratch has them.
    ours(
        "mae-scratch",
        "cifar10-mae-tuned",
        &[
            "model={ kind = \"vit\", patch_size = 4, n_layers = 6, d_model = 192, n_heads = 3, d_ff = 384, stochastic_depth = 0.1 }",
            "data.size=[32, 32]",
            "data.mean=[0.4914, 0.4822, 0.4465]",
            "data.std=[0.247, 0.2435, 0.2616]",
        ],
    ),
    ours("simclr", "cifar10-simclr", &[]),
    after("simclr-probe", "simclr", "cifar10-vit", PROBE),
    peer("simclr-lightly", "cifar10-simclr"),
    after("simclr-lightly-probe", "simclr-lightly", "cifar10-vit", PROBE),
    // Some steps of a rate that changes nothing.
    ours(
        "untrained",
        "cifar10-simclr",
        &["train.epochs=1", "data.fraction=0.02", "optimizer.lr=1e-30", "schedule.warmup_steps=0"],
    ),
    after("untrained-probe", "untrained", "cifar10-vit", PROBE),
    ours("soft", "scenes-soft", &[]),
    ours("hard", "scenes-hard", &[]),
    ours("transformer", "scenes-transformer", &[]),
    ours("no-attention", "scenes-no-attention", &[]),
    // So few sentences teach no network what a shape is; the one of the scenes knows it.
    after(
        "nlvr",
        "soft",
        "scenes-soft",
        &[
            "model.encoder={ kind = \"pretrained\", path = \"{from}\" }",
            "data.source={ kind = \"tables\", train = { files = [\"{nlvr}/train.jsonl\"] }, dev_fraction = 0.1, test = [\"{nlvr}/test.jsonl\"] }",
            "data.size=[64, 256]",
            "data.captions_per_image=1",
            "tokenizer.vocab_size=400",
            "train.epochs=30",
        ],
    ),
];

/// What is wanted of classes.
pub const CLASSES: &[Row] = &[
    row("digits, 8 × 8: ViT", "digits", Wanted::AtLeast(0.97), None),
    row("MNIST, 9,000 images: ViT", "mnist", Wanted::AtLeast(0.975), None),
    row("CIFAR-10: ViT", "vit", Wanted::AtLeast(0.62), Some(("timm", "vit-timm"))),
    row("CIFAR-10: ResNet-20", "cnn", Wanted::AtLeast(0.78), Some(("torch", "cnn-torch"))),
    row("CIFAR-10, a tenth of the labels: ViT", "mae-scratch", Wanted::Shown, None),
    row("… after MAE without labels", "mae-tuned", Wanted::Above(0.0, "mae-scratch"), None),
    row("CIFAR-10, linear probe: random ViT", "untrained-probe", Wanted::Shown, None),
    row(
        "… after SimCLR without labels",
        "simclr-probe",
        Wanted::Above(0.12, "untrained-probe"),
        Some(("lightly", "simclr-lightly-probe")),
    ),
];

/// What is wanted of captions of scenes.
pub const CAPTIONS: &[Row] = &[
    row("soft attention", "soft", Wanted::AtLeast(0.95), None),
    row("hard attention", "hard", Wanted::AtLeast(0.9), None),
    row("Transformer", "transformer", Wanted::AtLeast(0.95), None),
    row("no attention", "no-attention", Wanted::Shown, None),
];

const fn row(
    work: &'static str,
    run: &'static str,
    wanted: Wanted,
    peer: Option<(&'static str, &'static str)>,
) -> Row {
    Row { work, run, wanted, peer }
}

/// The run of this name.
pub fn named(name: &str) -> Option<&'static Run> {
    RUNS.iter().find(|run| run.name == name)
}

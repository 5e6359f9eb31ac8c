//! A custom head with two losses, fine-tuned from rows in memory: what a review says and how much.
//!
//! ```text
//! loss = cross-entropy(W_c · h, sentiment) + λ · (w_s · h − stars)²,    h = mean of the encoder's states
//! ```
//!
//! `λ` grows from 0 to 1 over the first steps. The rows are a `Vec` of a custom struct; there is no file and no configuration.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::{BatchSize, Buckets};
use cloze_data::{Random, TokenBatch};
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::bert::{Bert, BertConfig, Pooling, SentencePooling};
use cloze_model::blocks::Linear;
use cloze_model::ops;
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::WordPieceTrainer;
use cloze_trainer::engine::checkpoint::CursorState;
use cloze_trainer::engine::{
    Advance, Cadence, Epochs, Export, Objective, Outcome, Position, Recipe, RunOptions, RunSettings,
    StepBatches, Term, train,
};
use cloze_trainer::metrics::progress::RunProgress;
use cloze_trainer::{Result, input};

/// A review.
#[derive(Debug, Clone)]
pub struct Review {
    /// What it says.
    pub text: String,
    /// Whether it is a good one.
    pub good: bool,
    /// How many stars it gives, 1 to 5.
    pub stars: f32,
}

/// Reviews that say it by one word of theirs.
pub fn reviews(n: usize, seed: u64) -> Vec<Review> {
    let plain = ["the", "film", "was", "a", "story", "of", "ships", "and", "sea"];
    let told = [("awful", false, 1.0), ("weak", false, 2.0), ("fine", true, 4.0), ("great", true, 5.0)];
    let mut random = Random::new(seed);
    let mut review = || {
        let (word, good, stars) = told[random.below(4) as usize];
        let mut words: Vec<&str> =
            (0..3 + random.below(9)).map(|_| plain[random.below(9) as usize]).collect();
        words.insert(random.below(words.len() as u64 + 1) as usize, word);
        Review { text: words.join(" "), good, stars }
    };
    (0..n).map(|_| review()).collect()
}

/// An encoder with two heads.
#[derive(Module, Debug)]
pub struct Reviewer {
    bert: Bert,
    sentiment: Linear,
    stars: Linear,
}

/// The step from which on both terms count the same.
const WARMUP: f64 = 16.0;

/// Rows and what they became.
struct Rows {
    reviews: Vec<Review>,
    ids: Vec<Vec<i32>>,
}

impl Rows {
    fn new(reviews: Vec<Review>, tokenizer: &Tokenizer) -> Result<Self> {
        let texts: Vec<&str> = reviews.iter().map(|review| review.text.as_str()).collect();
        let ids = tokenizer.encode_ids_batch(&texts, true)?;
        let ids = ids.into_iter().map(|ids| ids.into_iter().map(|id| id as i32).collect()).collect();
        Ok(Self { reviews, ids })
    }

    fn all(&self) -> Vec<usize> {
        (0..self.reviews.len()).collect()
    }
}

/// The training of it.
pub struct Reviewing {
    train: Rows,
    dev: Rows,
    buckets: Buckets,
    epoch: u64,
}

impl Reviewing {
    /// Logits `[n, 2]` and stars `[n]` of some rows.
    fn forward(model: &Reviewer, rows: &Rows, places: &[usize], device: &Device) -> (Tensor<2>, Tensor<1>) {
        let mut tokens = TokenBatch::new();
        places.iter().for_each(|place| tokens.push(&rows.ids[*place], &vec![0; rows.ids[*place].len()]));
        let input = input::input(&model.bert, &tokens, device);
        let pooled = SentencePooling::from(Pooling::Mean).forward(&model.bert, input);
        let stars = model.stars.forward(pooled.clone()).squeeze_dim::<1>(1);
        (model.sentiment.forward(pooled), stars)
    }

    /// Both losses of each row.
    fn losses(model: &Reviewer, rows: &Rows, places: &[usize], device: &Device) -> [Tensor<1>; 2] {
        let of = |value: &dyn Fn(&Review) -> f32| -> Vec<f32> {
            places.iter().map(|place| value(&rows.reviews[*place])).collect()
        };
        let (logits, stars) = Self::forward(model, rows, places, device);
        let good: Vec<i32> = places.iter().map(|place| i32::from(rows.reviews[*place].good)).collect();
        let right = Tensor::from_data(of(&|review| review.stars).as_slice(), device);
        let sentiment = ops::cross_entropy(logits, Tensor::from_data(good.as_slice(), device));
        [sentiment, (stars - right).powf_scalar(2.0)]
    }
}

impl Objective for Reviewing {
    type Model = Reviewer;
    type Batch = Vec<usize>;

    /// The number counts more with each of the first `WARMUP` steps.
    fn terms(&self, step: u64) -> Vec<Term> {
        let stars = (step as f64 / WARMUP).min(1.0);
        vec![Term::new("sentiment"), Term::new("stars").with_weight(stars)]
    }

    fn counts(&self, batch: &Vec<usize>) -> Vec<f64> {
        vec![batch.len() as f64; 2]
    }

    fn sums(&self, model: &Reviewer, batch: &Vec<usize>, device: &Device) -> Vec<Tensor<1>> {
        Self::losses(model, &self.train, batch, device).map(Tensor::sum).to_vec()
    }
}

impl Recipe for Reviewing {
    fn data(&self) -> String {
        format!("{} reviews", self.train.reviews.len())
    }

    /// Rows of similar length together; an epoch's order is a function of the seed and the epoch.
    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<Vec<usize>>>> + '_> {
        Box::new(self.buckets.steps(from.step).map(|step| {
            let tokens = step.examples.iter().map(|place| self.train.ids[*place].len() as u64).sum();
            let at = |epoch| CursorState { epoch, example: 0 };
            Ok(StepBatches {
                batches: vec![step.examples],
                before: None,
                tokens,
                first: at(step.epoch),
                next: at(step.epoch + u64::from(step.ends_epoch)),
                ends_epoch: step.ends_epoch,
            })
        }))
    }

    fn split(&self) -> Option<&str> {
        Some("dev")
    }

    fn evaluate(
        &self,
        model: &Reviewer,
        device: &Device,
        _advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let places = self.dev.all();
        let n = places.len() as f64;
        let (logits, _) = Self::forward(model, &self.dev, &places, device);
        let predicted = logits.argmax(1).into_data();
        let right = predicted.iter::<i32>().zip(&self.dev.reviews);
        let right = right.filter(|(class, review)| (*class == 1) == review.good).count();
        let [sentiment, stars] = Self::losses(model, &self.dev, &places, device)
            .map(|losses| losses.into_data().iter::<f64>().sum::<f64>() / n);
        let figures = [("accuracy", right as f64 / n), ("stars_mse", stars), ("loss", sentiment + stars)];
        Ok(Figures::new(places.len(), figures))
    }
}

/// Fine-tunes it: the best model on the development rows is the result.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let (train_rows, dev_rows) = (reviews(320, 1), reviews(80, 2));
    let trainer = WordPieceTrainer { vocab_size: 120, ..Default::default() };
    let tokenizer = trainer.train(train_rows.iter().map(|review| review.text.as_str()))?;
    let train_rows = Rows::new(train_rows, &tokenizer)?;
    let lengths = train_rows.ids.iter().map(Vec::len).collect();
    let buckets = Buckets::new(lengths, BatchSize::Examples(16), 42);
    let epoch = buckets.epoch(0).len() as u64;
    let recipe = Reviewing { train: train_rows, dev: Rows::new(dev_rows, &tokenizer)?, buckets, epoch };

    let mut settings = RunSettings::new("two-losses", steps, 2e-3);
    settings.evaluate = Cadence::OfEpoch { epochs: Epochs::Even(recipe.epoch), parts: 1 };
    settings.export = Export::Best;
    settings.log.every = 5;
    // A checkpoint's encoder goes in its place: `PretrainedFolder::open(folder)?.load_into(…)`.
    let config = BertConfig::tiny(tokenizer.vocab_size()).with_max_positions(32);
    let init = &mut ParamInit::new(&options.device.clone().autodiff(), settings.seed).with_std(0.05);
    let bert = config.init_encoder(init);
    let (sentiment, stars) = (Linear::new(config.d_model, 2, init), Linear::new(config.d_model, 1, init));
    train(&recipe, Reviewer { bert, sentiment, stars }, &settings, options, progress)
}

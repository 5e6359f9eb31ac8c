//! What is seen inside a model while it reads one text: attention, explanations of an answer, and what each layer would answer.
//!
//! The types have no tensors: a model fills them, and the page, the JSON file and the service read them.

use serde::Serialize;

/// A text as a model read it, and what was seen meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// The model's name or folder.
    pub model: String,
    /// The family and kind, such as `BERT, classification`.
    pub kind: String,
    /// What was read: the text, or both texts of a pair with the special tokens.
    pub source: Vec<Token>,
    /// What was written, by an encoder–decoder.
    pub target: Option<Vec<Token>>,
    /// What was left out or cut, and why; one sentence each.
    pub notes: Vec<String>,
    /// Attention maps by kind: at most one of each [`MapKind`].
    pub attention: Vec<AttentionMaps>,
    /// The answer that is explained.
    pub answer: Option<Answer>,
    /// Explanations of the answer, one for each method.
    pub explanations: Vec<Explanation>,
    /// What each layer would answer.
    pub lens: Option<Lens>,
    /// Word pairs of source and target.
    pub alignment: Option<Alignment>,
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    /// The piece as the tokenizer shows it; never markup.
    pub text: String,
    /// The number of the word that it is part of, within its text; none for special tokens.
    pub word: Option<usize>,
    /// Whether it is a special token.
    pub special: bool,
    /// 0 for the first text, 1 for the second text of a pair.
    pub part: u8,
    /// Its place in its text, in bytes; empty for a special token.
    pub start: usize,
    /// See `start`.
    pub end: usize,
}

/// Which side of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// What it reads.
    Source,
    /// What it writes.
    Target,
}

/// What attends to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MapKind {
    /// Each token to the tokens of the same side.
    Own(Side),
    /// Each token that is written to the tokens that are read.
    Cross,
    /// The alignment of a recurrent or convolutional model, which has no heads: each token that is written to those that are
    /// read.
    Align,
}

/// The attention maps of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttentionMaps {
    /// What attends to what.
    pub kind: MapKind,
    /// The layers that were asked for, in order.
    pub layers: Vec<Layer>,
}

/// A layer's attention.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layer {
    /// Its number, from 0 at the input.
    pub layer: usize,
    /// Its heads; one for a recurrent model.
    pub heads: Vec<Head>,
}

/// A head's attention to one text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Head {
    /// `[queries · keys]`, row by row: the share of its attention that each query gives to each key. Rows sum to 1.
    pub shares: Vec<f32>,
    /// Mean entropy of the rows, in bits.
    pub entropy: f64,
    /// Mean distance between a query and what it attends to, in tokens; none across sides.
    pub distance: Option<f64>,
    /// The mean share that special tokens get.
    pub special: f64,
    /// What its scores are made of, if it has queries and keys.
    pub neurons: Option<Neurons>,
}

/// What a head's scores before the softmax are made of: `score = q · k / scale + positions`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Neurons {
    /// The width of a head.
    pub width: usize,
    /// What products are divided by, such as `√width`.
    pub scale: f64,
    /// `[queries · width]`
    pub queries: Vec<f32>,
    /// `[keys · width]`
    pub keys: Vec<f32>,
    /// `[queries · keys]`: what positions add to the scores, if they add anything; rotating positions are in queries and keys.
    pub positions: Option<Vec<f32>>,
}

/// What a model answers, and which part of it is explained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// What it is, such as `class` or `masked token`.
    pub kind: String,
    /// The place of the token that is answered for, if it is one: of the source or the target.
    pub place: Option<(Side, usize)>,
    /// The best answers with their probabilities, the best one first; a number has one, without a probability.
    pub choices: Vec<Choice>,
    /// Which of the choices is explained.
    pub explained: String,
    /// The choice that it is explained against, if it is.
    pub against: Option<String>,
}

/// A possible answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Its name: a label or a piece.
    pub name: String,
    /// The model's score before normalising.
    pub score: f64,
    /// Its probability.
    pub probability: Option<f64>,
}

/// How an answer is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Attention rollout (Abnar & Zuidema 2020).
    Rollout,
    /// The gradient times the word embedding, summed over features.
    GradientTimesInput,
    /// Integrated gradients (Sundararajan et al. 2017).
    IntegratedGradients,
    /// Attention weighted by its gradient (Chefer et al. 2021, the generic method).
    GradientWeightedAttention,
    /// What the score loses without a token, which the masked piece replaces.
    Occlusion,
}

/// How much each token contributes to an answer, by one method.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The method.
    pub method: Method,
    /// A number for each token of the source; signed unless the method knows no sign.
    pub source: Vec<f64>,
    /// A number for each token of the target before the one that is answered, of an encoder–decoder.
    pub target: Vec<f64>,
    /// Whether the numbers have a sign.
    pub signed: bool,
    /// How completely they add up, for [`Method::IntegratedGradients`].
    pub completeness: Option<Completeness>,
}

/// Whether integrated gradients add up to what they explain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Completeness {
    /// The score of the text, F(x).
    pub score: f64,
    /// The score of the baseline, F(x′).
    pub baseline: f64,
    /// The sum of the attributions.
    pub sum: f64,
    /// The points of the integral.
    pub points: usize,
    /// Whether the gap is below 1 % of F(x) − F(x′).
    pub converged: bool,
}

/// What each layer would answer, if it were the last one (the logit lens, nostalgebraist 2020).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lens {
    /// Which side's positions.
    pub side: Side,
    /// The layers: 0 for the embeddings, then after each layer; the last one is the model's answer.
    pub layers: Vec<LensLayer>,
}

/// A layer of a [`Lens`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LensLayer {
    /// 0 for the embeddings, n after the n-th layer.
    pub layer: usize,
    /// What it would answer at each position.
    pub positions: Vec<LensPosition>,
}

/// What a layer would answer at a position.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LensPosition {
    /// The best pieces with their probabilities, the best one first.
    pub best: Vec<(String, f64)>,
    /// The rank, from 1, of the piece that the last layer answers.
    pub rank: usize,
}

/// Word alignments by cross-attention.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alignment {
    /// Words of the source and of the target that belong together, from 0, in Pharaoh's order.
    pub pairs: Vec<(usize, usize)>,
    /// The entropy of each target word's attention over source words, in bits.
    pub entropies: Vec<f64>,
}

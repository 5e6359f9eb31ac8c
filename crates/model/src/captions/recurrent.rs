use super::{CaptionDecoder, DrawnPlaces, Draws, Looking, RecurrentCaptionConfig, Taught};
use crate::blocks::{Embedding, Linear};
use crate::generate::{NextToken, StepOutput};
use crate::ops;
use crate::recurrent::{Cell, RecurrentLayer, RecurrentState};
use crate::scores::{AdditiveScore, Score};
use crate::seq2seq::{DecodeOptions, TimeMajor};
use crate::vision::ImageStates;
use crate::{ParamInit, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::activation::{log_softmax, sigmoid};
use burn::tensor::{Int, Tensor, TensorData};

/// The decoder of "Show, Attend and Tell" (Xu et al. 2015, §3.1.2): an LSTM that looks at the image before each word.
///
/// ```text
/// h_0 = tanh(W_h·ā),  c_0 = tanh(W_c·ā)                 ā: the mean of the places a
/// e_ti = v·tanh(W·h_(t−1) + U·a_i),  α_t = softmax(e_t)
/// z_t = β_t·Σ_i α_ti·a_i,  β_t = σ(w·h_(t−1) + b)       hard: z_t = β_t·a_s, s drawn by α_t
/// h_t = LSTM([E·y_(t−1); z_t], h_(t−1))
/// P(y_t) = softmax(L_o·(E·y_(t−1) + L_h·h_t + L_z·z_t))
/// ```
///
/// With positions, `a_i` is the encoder's state and the sinusoids of its place. On request, the output's sum passes a `tanh`, as in
/// the authors' code. Without attention there is neither `z` nor `L_z`.
#[derive(Module, Debug)]
pub struct RecurrentCaptionDecoder {
    /// `E`, `[vocab_size, d_embedding]`
    pub tokens: Embedding,
    /// `W_h`, `[d_image, d_model]`
    pub initial_hidden: Linear,
    /// `W_c`, `[d_image, d_model]`
    pub initial_cell: Linear,
    /// `v`, `W` and `U`; none without attention.
    pub attention: Option<AdditiveScore>,
    /// `w` and `b`, `[d_model, 1]`, if there is a gate.
    pub gate: Option<Linear>,
    /// The LSTM.
    pub recurrent: RecurrentLayer,
    /// `L_h`, `[d_model, d_embedding]`
    pub from_hidden: Linear,
    /// `L_z`, `[d_image, d_embedding]`; none without attention.
    pub from_image: Option<Linear>,
    /// `L_o`, `[d_embedding, vocab_size]`
    pub output: Linear,
    dropout: f64,
    #[module(skip)]
    looking: Looking,
    #[module(skip)]
    positions: bool,
    #[module(skip)]
    output_tanh: bool,
}

linear_maps!(RecurrentCaptionDecoder {
    output; initial_hidden, initial_cell, attention, gate, recurrent, from_hidden, from_image
});

/// What the decoder looks at, one image per row.
#[derive(Debug, Clone)]
struct Places {
    /// `a`, `[rows, places, d_image]`
    states: Tensor<3>,
    /// `U·a`, `[rows, places, d_attention]`
    keys: Tensor<3>,
}

impl Places {
    fn map(self, change: impl Fn(Tensor<3>) -> Tensor<3>) -> Self {
        Self { states: change(self.states), keys: change(self.keys) }
    }
}

/// A look at the image.
struct Look {
    /// `z_t`, `[rows, d_image]`
    context: Tensor<2>,
    /// `α_t`, `[rows, places]`
    attention: Tensor<2>,
    /// What was drawn: `[rows]` each.
    drawn: Option<(Tensor<1>, Tensor<1>)>,
}

/// The random numbers of a step's rows, and which of them see the expectation: `[rows, 1]` each.
struct StepDraws {
    places: Tensor<2>,
    expected: Tensor<2>,
}

impl RecurrentCaptionDecoder {
    pub(super) fn new(config: &RecurrentCaptionConfig, init: &mut ParamInit) -> Self {
        let RecurrentCaptionConfig { vocab_size, d_image, d_embedding, d_model, d_attention, .. } = *config;
        let looks = config.looking != Looking::None;
        let tokens = Embedding::from_weight(init.uniform([vocab_size, d_embedding], 0.1));
        Self {
            tokens,
            initial_hidden: Linear::uniform(d_image, d_model, init),
            initial_cell: Linear::uniform(d_image, d_model, init),
            attention: looks.then(|| AdditiveScore::new(d_model, d_image, d_attention, init)),
            gate: (looks && config.gate).then(|| Linear::uniform(d_model, 1, init)),
            recurrent: RecurrentLayer::new(
                Cell::Lstm,
                d_embedding + if looks { d_image } else { 0 },
                d_model,
                init,
            ),
            from_hidden: Linear::uniform(d_model, d_embedding, init),
            from_image: looks.then(|| Linear::uniform(d_image, d_embedding, init)),
            output: Linear::uniform(d_embedding, vocab_size, init),
            dropout: config.dropout,
            looking: config.looking,
            positions: config.positions,
            output_tanh: config.output_tanh,
        }
    }

    /// How it looks at images.
    pub fn looking(&self) -> Looking {
        self.looking
    }

    /// The state before the first word, and what is looked at.
    fn start(&self, images: &ImageStates) -> (RecurrentState, Option<Places>) {
        let states = match self.positions {
            true => images.clone().with_positions().places(),
            false => images.places(),
        };
        let mean: Tensor<2> = states.clone().mean_dim(1).squeeze_dim(1);
        let hidden = self.initial_hidden.forward(mean.clone()).tanh();
        let cell = Some(self.initial_cell.forward(mean).tanh());
        let places = self.attention.as_ref().map(|score| Places { keys: score.keys(states.clone()), states });
        (RecurrentState { hidden, cell }, places)
    }

    /// Looks at the image in a state `[rows, d_model]`.
    fn look(&self, hidden: &Tensor<2>, places: &Places, draws: Option<&StepDraws>) -> Look {
        let score = self.attention.as_ref().expect("there are places only with attention");
        let scores: Tensor<2> =
            score.scores(hidden.clone().unsqueeze_dim::<3>(1), places.keys.clone()).squeeze_dim(1);
        let log_attention = log_softmax(scores, 1);
        let attention = log_attention.clone().exp();
        let (weights, drawn) = match (self.looking, draws) {
            (Looking::Hard, None) => (one_hot_of_greatest(&attention), None),
            (Looking::Hard, Some(draws)) => {
                let place = drawn_place(&attention, &draws.places);
                let is_drawn = draws.expected.clone().neg() + 1.0;
                let log_probs = (log_attention.clone() * place.clone()).sum_dim(1) * is_drawn.clone();
                let entropy = (attention.clone() * log_attention).sum_dim(1).neg();
                let weights = attention.clone() * draws.expected.clone() + place * is_drawn;
                (weights, Some((log_probs.squeeze_dim(1), entropy.squeeze_dim(1))))
            }
            _ => (attention.clone(), None),
        };
        let context: Tensor<2> = weights.unsqueeze_dim::<3>(1).matmul(places.states.clone()).squeeze_dim(1);
        let context = match &self.gate {
            Some(gate) => context * sigmoid(gate.forward(hidden.clone())),
            None => context,
        };
        Look { context, attention, drawn }
    }

    /// `E·y`, `[n, d_embedding]`.
    fn embed(&self, ids: &[i32]) -> Tensor<2> {
        let ids = TensorData::new(ids.to_vec(), [1, ids.len()]);
        let ids = Tensor::<2, Int>::from_data(ids, &self.tokens.weight.lazy_device());
        ops::dropout(self.tokens.forward(ids).squeeze_dim(0), self.dropout)
    }

    /// The logits of words, from `[n, d_embedding]`, `[n, d_model]` and `[n, d_image]`.
    fn words(&self, embedded: Tensor<2>, hidden: Tensor<2>, context: Option<Tensor<2>>) -> Tensor<2> {
        let hidden = ops::dropout(hidden, self.dropout);
        let mut sum = embedded + self.from_hidden.forward(hidden);
        if let Some((map, context)) = self.from_image.as_ref().zip(context) {
            sum = sum + map.forward(context);
        }
        let sum = if self.output_tanh { sum.tanh() } else { sum };
        self.output.forward(ops::dropout(sum, self.dropout))
    }

    /// The next state, from the embedded token and what was seen.
    fn advance(
        &self,
        embedded: Tensor<2>,
        context: Option<Tensor<2>>,
        state: RecurrentState,
    ) -> RecurrentState {
        let input = match context {
            Some(context) => Tensor::cat(vec![embedded, context], 1),
            None => embedded,
        };
        self.recurrent.step(input, Some(state))
    }
}

impl CaptionDecoder for RecurrentCaptionDecoder {
    fn teach(&self, images: &ImageStates, captions: &Sequences, draws: Option<&Draws>) -> Taught {
        assert_eq!(images.states.dims()[0], captions.len(), "as many images as captions");
        let device = images.states.device();
        // The longest first, so that the rows of a step are the first ones.
        let steps = TimeMajor::new(captions, !ops::is_fused(&device));
        let (mut state, mut places) = self.start(&images.clone().select(&steps.order));
        let embedded = self.embed(&steps.ids);
        let draws = draws.filter(|_| self.draws()).map(|draws| {
            let column = |values: Vec<f32>| {
                let n = values.len();
                Tensor::<2>::from_data(TensorData::new(values, [n, 1]), &device)
            };
            let expected = steps.order.iter().map(|row| f32::from(u8::from(draws.expected[*row])));
            let expected = column(expected.collect());
            StepDraws { places: column(steps.in_step_order(&draws.places)), expected }
        });
        let (mut start, mut hidden, mut looks) = (0, Vec::new(), Vec::new());
        for count in &steps.counts {
            let rows = |x: Tensor<2>| x.narrow(0, 0, *count);
            if state.hidden.dims()[0] > *count {
                state = state.map(rows);
                places = places.map(|places| places.map(|x| x.narrow(0, 0, *count)));
            }
            let step_draws = draws.as_ref().map(|draws| StepDraws {
                places: draws.places.clone().narrow(0, start, *count),
                expected: rows(draws.expected.clone()),
            });
            let look = places.as_ref().map(|places| self.look(&state.hidden, places, step_draws.as_ref()));
            let context = look.as_ref().map(|look| look.context.clone());
            state = self.advance(embedded.clone().narrow(0, start, *count), context, state);
            hidden.push(state.hidden.clone());
            looks.extend(look);
            start += count;
        }
        let all = |parts: Vec<Tensor<2>>| Tensor::cat(parts, 0);
        let (mut contexts, mut attention, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        for look in looks {
            contexts.push(look.context);
            attention.push(look.attention);
            drawn.extend(
                look.drawn.map(|(log_probs, entropy)| Tensor::stack::<2>(vec![log_probs, entropy], 1)),
            );
        }
        let context = (!contexts.is_empty()).then(|| all(contexts));
        let logits = self.words(embedded, all(hidden), context);
        let drawn = (!drawn.is_empty()).then(|| {
            let both = steps.in_token_order(all(drawn));
            let column = |n| both.clone().narrow(1, n, 1).squeeze_dim(1);
            DrawnPlaces { log_probs: column(0), entropy: column(1) }
        });
        let attention = (!attention.is_empty()).then(|| steps.in_token_order(all(attention)));
        Taught { logits: steps.in_token_order(logits), attention, drawn }
    }

    fn begin(&self, images: &ImageStates, options: DecodeOptions) -> RecurrentCaptioning {
        assert!(images.states.dims()[0] > 0, "an image at least");
        let (state, places) = self.start(images);
        RecurrentCaptioning { state, places, alignment: options.alignment }
    }

    fn draws(&self) -> bool {
        self.looking == Looking::Hard
    }
}

/// The state of a [`RecurrentCaptionDecoder`] between decoding steps.
#[derive(Debug, Clone)]
pub struct RecurrentCaptioning {
    state: RecurrentState,
    places: Option<Places>,
    alignment: bool,
}

impl NextToken for RecurrentCaptionDecoder {
    type State = RecurrentCaptioning;

    fn step(&self, tokens: &[i32], state: &mut RecurrentCaptioning) -> StepOutput {
        let embedded = self.embed(tokens);
        let look = state.places.as_ref().map(|places| self.look(&state.state.hidden, places, None));
        let context = look.as_ref().map(|look| look.context.clone());
        state.state = self.advance(embedded.clone(), context.clone(), state.state.clone());
        let logits = self.words(embedded, state.state.hidden.clone(), context);
        let wanted = look.filter(|_| state.alignment);
        StepOutput::new(logits).with_alignment(wanted.map(|look| look.attention))
    }

    fn select(&self, state: &mut RecurrentCaptioning, rows: &[usize]) {
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &state.state.hidden.device());
        state.state = state.state.clone().select(rows.clone());
        state.places = state.places.take().map(|places| places.map(|x| x.select(0, rows.clone())));
    }

    fn join(&self, state: &mut RecurrentCaptioning, other: RecurrentCaptioning) {
        state.state = state.state.clone().cat(other.state, 0);
        let cat = |a, b| Tensor::cat(vec![a, b], 0);
        let both = state.places.take().zip(other.places);
        state.places =
            both.map(|(a, b)| Places { states: cat(a.states, b.states), keys: cat(a.keys, b.keys) });
    }
}

/// 1 for the likeliest place of each row, 0 for all others. `[rows, places]`; returns the same.
fn one_hot_of_greatest(attention: &Tensor<2>) -> Tensor<2> {
    let [rows, n] = attention.dims();
    let greatest = attention.clone().argmax(1);
    let places = Tensor::<1, Int>::arange(0..n as i64, &attention.device()).unsqueeze_dim::<2>(0);
    places.expand([rows, n]).equal(greatest.expand([rows, n])).float()
}

/// 1 for the place of each row that its number draws, 0 for all others: the first one with which the sum of the weights
/// reaches the number. No gradient passes.
///
/// # Shapes
/// - `attention`: `[rows, places]`; `numbers`: `[rows, 1]`, from 0 to 1
fn drawn_place(attention: &Tensor<2>, numbers: &Tensor<2>) -> Tensor<2> {
    let [rows, n] = attention.dims();
    let sums = attention.clone().detach().cumsum(1);
    // The whole sum may be a little less than 1.
    let reached = sums.clone().greater_equal(numbers.clone().mul(sums.narrow(1, n - 1, 1)).expand([rows, n]));
    let reached = reached.float();
    let before = Tensor::cat(
        vec![Tensor::zeros([rows, 1], &attention.device()), reached.clone().narrow(1, 0, n - 1)],
        1,
    );
    reached - before
}

use super::spelling::{self, N_CHARACTERS};
use crate::blocks::{Activation, Embedding, Linear};
use crate::ops::{self, Packing};
use crate::sizes::check_recurrent_sizes;
use crate::{ModelError, ParamInit, Result, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};

/// Filters of one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[usize; 2]", into = "[usize; 2]")]
pub struct Filters {
    /// Number of characters a filter covers.
    pub width: usize,
    /// Number of filters.
    pub n: usize,
}

impl From<[usize; 2]> for Filters {
    fn from([width, n]: [usize; 2]) -> Self {
        Self { width, n }
    }
}

impl From<Filters> for [usize; 2] {
    fn from(Filters { width, n }: Filters) -> Self {
        [width, n]
    }
}

/// The configuration of a [`CharacterEncoder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CharacterEncoderConfig {
    /// Maximum characters read per word, including its begin and end markers.
    pub max_characters: usize,
    /// Features of a character.
    pub d_character: usize,
    /// The filters, `[width, number]` each in files.
    pub filters: Vec<Filters>,
    /// The non-linearity after max pooling.
    pub activation: Activation,
    /// Highway layers.
    pub n_highway: usize,
    /// Features of a word.
    pub d_out: usize,
}

impl Default for CharacterEncoderConfig {
    /// ELMo's (Peters et al. 2018, §3.4, with its code's sizes): 50 characters of 16 features; 2,048 filters
    /// of widths 1 to 7; two highway layers; words of 512 features.
    fn default() -> Self {
        let filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]];
        Self {
            max_characters: 50,
            d_character: 16,
            filters: filters.map(Filters::from).to_vec(),
            activation: Activation::Relu,
            n_highway: 2,
            d_out: 512,
        }
    }
}

impl CharacterEncoderConfig {
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        if self.filters.is_empty() {
            return Err(ModelError::setting("filters", "[]", "filters of a width at least"));
        }
        let sizes =
            self.filters.iter().flat_map(|Filters { width, n }| [("filters", *width), ("filters", *n)]);
        let sizes = sizes.chain([
            ("max_characters", self.max_characters),
            ("d_character", self.d_character),
            ("d_out", self.d_out),
        ]);
        check_recurrent_sizes(sizes)?;
        // Far more than any model has, and few enough to be multiplied.
        let most = 1 << 20;
        let (found, expected) = (self.n_filters(), format!("at most {most} filters"));
        if found > most {
            return Err(ModelError::setting("filters", found, expected));
        }
        if self.n_highway > 1_000 {
            return Err(ModelError::setting("n_highway", self.n_highway, "at most 1000"));
        }
        if self.max_characters < 3 || self.max_characters < self.widest() {
            let least = self.widest().max(3);
            let expected =
                format!("{least} or more: what the widest filter sees, and a byte with a word's ends");
            return Err(ModelError::setting("max_characters", self.max_characters, expected));
        }
        Ok(())
    }

    fn widest(&self) -> usize {
        self.filters.iter().map(|filters| filters.width).max().unwrap_or(0)
    }

    /// Total number of filters.
    pub fn n_filters(&self) -> usize {
        self.filters.iter().fold(0, |sum, filters| sum.saturating_add(filters.n))
    }

    /// A new encoder. Characters and filters are initially uniform, in ±1 and as in PyTorch's convolutions; a
    /// highway layer's gates initially pass most of its input, with a bias of 1 (Srivastava et al. 2015,
    /// §2.2).
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> CharacterEncoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let d = self.n_filters();
        let embedding = Embedding::from_weight(init.uniform([N_CHARACTERS, self.d_character], 1.0));
        let filters = self.filters.iter();
        CharacterEncoder {
            embedding,
            filters: filters
                .map(|filters| Linear::uniform(filters.width * self.d_character, filters.n, init))
                .collect(),
            highway: (0..self.n_highway).map(|_| Highway::new(d, init)).collect(),
            projection: Linear::uniform(d, self.d_out, init),
            max_characters: self.max_characters,
            activation: self.activation,
        }
    }
}

/// Encodes words from their characters: convolutions, max pooling, highway layers, and a projection (Kim et
/// al. 2016; Peters et al. 2018, §3.4).
///
/// `y_w = f(max_t (W_w · [c_t; …; c_(t+w−1)] + b_w))` for each width `w`, over all window positions `t` in
/// the word's [characters](super::spelled), including padding. The encoder has no vocabulary: every word has
/// a vector.
///
/// ```
/// use burn::tensor::Device;
/// use cloze_model::ParamInit;
/// use cloze_model::elmo::CharacterEncoderConfig;
///
/// let device = Device::flex();
/// let config = CharacterEncoderConfig {
///     filters: vec![[1, 4].into(), [3, 8].into()],
///     d_out: 6,
///     ..CharacterEncoderConfig::default()
/// };
/// let encoder = config.init(&mut ParamInit::new(&device, 42));
/// assert_eq!(encoder.encode(&[b"known", b"unheard-of"], &device).dims(), [2, 6]);
/// ```
#[derive(Module, Debug)]
pub struct CharacterEncoder {
    /// `[262, d_character]`
    pub embedding: Embedding,
    /// For each width `w`, `[w · d_character, n]`: the concatenated features of a window's characters.
    pub filters: Vec<Linear>,
    /// The highway layers.
    pub highway: Vec<Highway>,
    /// `[n_filters, d_out]`
    pub projection: Linear,
    max_characters: usize,
    #[module(skip)]
    activation: Activation,
}

linear_maps!(CharacterEncoder { filters, highway, projection });

impl CharacterEncoder {
    /// Features of a word.
    pub fn d_out(&self) -> usize {
        self.projection.weight.lazy_shape().dims::<2>()[1]
    }

    /// The vectors of words given as bytes, `[words, d_out]`.
    ///
    /// # Panics
    /// If there is no word.
    pub fn encode(&self, words: &[&[u8]], device: &Device) -> Tensor<2> {
        let longest = words.iter().map(|word| word.len().saturating_add(2)).max().expect("a word at least");
        // All windows behind a word's end see padding alone: one of each width stands for the others.
        let len = longest.saturating_add(self.widest()).min(self.max_characters);
        self.forward(spelling::table(words.iter().copied(), len, device))
    }

    /// Number of characters covered by the widest filters.
    fn widest(&self) -> usize {
        let d = self.embedding.weight.lazy_shape().dims::<2>()[1];
        self.filters.iter().map(|filters| filters.weight.lazy_shape().dims::<2>()[0] / d).max().unwrap_or(1)
    }

    /// # Shapes
    /// - `characters`: `[words, len]`, see [`spelled`](super::spelled); returns `[words, d_out]`
    ///
    /// # Panics
    /// If `len` is below the widest filter's width.
    pub fn forward(&self, characters: Tensor<2, Int>) -> Tensor<2> {
        let [words, len] = characters.dims();
        assert!(len >= self.widest(), "as many characters as the widest filter sees");
        let d = self.embedding.weight.lazy_shape().dims::<2>()[1];
        let x = self.embedding.forward(characters).reshape([words * len, d]);
        let packing = Packing::new(vec![len; words]);
        let pooled = self.filters.iter().map(|filters| {
            let width = filters.weight.lazy_shape().dims::<2>()[0] / d;
            let y = filters.forward(ops::windows(x.clone(), &packing, width, 0));
            let n = y.dims()[1];
            // Windows that would go beyond the last character are none.
            let y = y.reshape([words, len, n]).narrow(1, 0, len - width + 1);
            self.activation.forward(y.max_dim(1).squeeze_dim::<2>(1))
        });
        let mut x = Tensor::cat(pooled.collect(), 1);
        for layer in &self.highway {
            x = layer.forward(x);
        }
        self.projection.forward(x)
    }
}

/// A highway layer, `g ⊙ x + (1 − g) ⊙ relu(W x + b)` with `g = σ(W_g x + b_g)` (Srivastava et al. 2015, eq. 3): the gate
/// carries the input, as in AllenNLP's `Highway`.
#[derive(Module, Debug)]
pub struct Highway {
    /// `[d, 2·d]`: `W`, then `W_g`.
    pub map: Linear,
}

linear_maps!(Highway { map });

impl Highway {
    /// A new layer of `d` features.
    pub fn new(d: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (d.max(1) as f64).sqrt();
        let weight = init.uniform([d, 2 * d], bound);
        let mut place = 0;
        let bias: Param<Tensor<1>> = init.param([2 * d], move |_| {
            place += 1;
            if place > d { 1.0 } else { 0.0 }
        });
        Self { map: Linear::from_parts(weight, Some(bias)) }
    }

    /// # Shapes
    /// - `x`: `[n, d]`; returns the same
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [_, d] = x.dims();
        let mapped = self.map.forward(x.clone());
        let new = relu(mapped.clone().narrow(1, 0, d));
        let gate = sigmoid(mapped.narrow(1, d, d));
        new.clone() + gate * (x - new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    fn config() -> CharacterEncoderConfig {
        CharacterEncoderConfig {
            max_characters: 12,
            d_character: 3,
            filters: [[1, 4], [2, 5], [4, 6]].map(Filters::from).to_vec(),
            d_out: 7,
            ..CharacterEncoderConfig::default()
        }
    }

    #[test]
    fn padding_that_is_left_out_changes_nothing() {
        for device in [Device::flex(), Device::flex().autodiff().gradient_checkpointing()] {
            let encoder = config().init(&mut ParamInit::new(&device, 3));
            let words: [&[u8]; 5] = [b"a", b"abc", b"longer", b"exactly-10", b"more-than-twelve"];
            let whole = encoder.forward(spelling::table(words, 12, &device)).into_data();
            let [n, d] = [words.len(), 7];
            assert_eq!(whole.shape().to_vec(), [n, d]);
            for (row, word) in words.into_iter().enumerate() {
                let alone = encoder.encode(&[word], &device).into_data();
                let expected = Tensor::<2>::from_data(whole.clone(), &device).narrow(0, row, 1).into_data();
                alone.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
            // Of a longer word the first ten bytes are read.
            let cut = encoder.encode(&[b"more-than-"], &device).into_data();
            let longer = encoder.encode(&[b"more-than-ten"], &device).into_data();
            longer.assert_approx_eq::<f32>(&cut, Tolerance::absolute(1e-6));
        }
    }

    #[test]
    fn a_highway_carries_its_input_or_replaces_it() {
        let device = Device::flex();
        let x = Tensor::<2>::from_data([[1.0, -2.0]], &device);
        let with_bias = |bias: [f32; 4]| {
            let mut highway = Highway::new(2, &mut ParamInit::new(&device, 3));
            highway.map.weight = highway.map.weight.map(|weight| weight.zeros_like());
            highway.map.bias = highway.map.bias.map(|of| of.map(|_| Tensor::from_data(bias, &device)));
            highway.forward(x.clone()).into_data()
        };
        let carried = with_bias([5.0, 6.0, 100.0, 100.0]);
        carried.assert_approx_eq::<f32>(&x.to_data(), Tolerance::absolute(1e-6));
        let replaced = with_bias([5.0, -6.0, -100.0, -100.0]);
        let expected = Tensor::<2>::from_data([[5.0, 0.0]], &device).into_data();
        replaced.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        config().validate().unwrap();
        CharacterEncoderConfig::default().validate().unwrap();
        let refused = |config: CharacterEncoderConfig| config.validate().unwrap_err().to_string();
        let message = refused(CharacterEncoderConfig { max_characters: 3, ..config() });
        assert!(message.contains("`max_characters` is 3, expected 4 or more"), "{message}");
        let message = refused(CharacterEncoderConfig { filters: Vec::new(), ..config() });
        assert!(message.contains("`filters` is []"), "{message}");
        let none = vec![Filters { width: 2, n: 0 }];
        let message = refused(CharacterEncoderConfig { filters: none, ..config() });
        assert!(message.contains("`filters` is 0, expected at least 1"), "{message}");
        let message = refused(CharacterEncoderConfig { d_out: 0, ..config() });
        assert!(message.contains("`d_out` is 0, expected at least 1"), "{message}");
    }
}

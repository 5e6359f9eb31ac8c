use super::Embedding;
use crate::ParamInit;
use crate::ops::Packing;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Gives each position of a sequence a vector, which is added to the token's embedding.
///
/// Implement it for a custom position encoding. An encoding inside the attention, such as rotary positions or ALiBi,
/// belongs in an [`Attention`](super::Attention), and its model has [`NoPositions`] here.
pub trait Positions: Module + ModuleDisplay + Sync + 'static {
    /// The vectors of positions `0..len`.
    ///
    /// # Shapes
    /// - returns `[1, len, d_model]`
    ///
    /// # Panics
    /// If `len` exceeds what the encoding covers.
    fn forward(&self, len: usize, device: &Device) -> Tensor<3>;

    /// The vectors of these positions, for tokens that continue a sequence.
    ///
    /// # Shapes
    /// - returns `[1, positions.len(), d_model]`
    ///
    /// # Panics
    /// If a position exceeds what the encoding covers.
    fn range(&self, positions: Range<usize>, device: &Device) -> Tensor<3> {
        self.forward(positions.end, device).narrow(1, positions.start, positions.len())
    }

    /// The vectors of the tokens of packed sequences, each of which begins at position 0.
    ///
    /// # Shapes
    /// - returns `[1, n_tokens, d_model]`
    ///
    /// # Panics
    /// If a sequence is longer than the encoding covers.
    fn packed(&self, packing: &Packing, device: &Device) -> Tensor<3> {
        let table = self.forward(packing.longest(), device).squeeze_dim::<2>(0);
        table.select(0, position_ids(packing, device)).unsqueeze_dim::<3>(0)
    }

    /// The vectors of arbitrary positions, for example of concatenated sentences that each begin at
    /// position 0.
    ///
    /// # Shapes
    /// - `positions`: `[batch, len]`; returns `[batch, len, d_model]`
    ///
    /// # Panics
    /// If a position exceeds what the encoding covers.
    fn at(&self, positions: Tensor<2, Int>) -> Tensor<3> {
        let ([batch, len], device) = (positions.dims(), positions.device());
        let last = positions.clone().max().into_data().iter::<i64>().next().unwrap_or(0);
        let table = self.forward(last as usize + 1, &device).squeeze_dim::<2>(0);
        let [_, d_model] = table.dims();
        table.select(0, positions.flatten::<1>(0, 1)).reshape([batch, len, d_model])
    }

    /// Adds the vectors of their positions to embeddings.
    ///
    /// # Shapes
    /// - `embeddings`: `[batch, len, d_model]`, or `[1, n_tokens, d_model]` if `packing` is given; returns the same
    ///   shape
    ///
    /// # Panics
    /// If a sequence is longer than the encoding covers.
    fn add_to(&self, embeddings: Tensor<3>, packing: Option<&Packing>) -> Tensor<3> {
        let ([_, len, _], device) = (embeddings.dims(), embeddings.device());
        let positions = match packing {
            Some(packing) => self.packed(packing, &device),
            None => self.forward(len, &device),
        };
        embeddings + positions
    }
}

fn position_ids(packing: &Packing, device: &Device) -> Tensor<1, Int> {
    let ids: Vec<i32> = packing.positions().map(|position| position as i32).collect();
    Tensor::from_data(ids.as_slice(), device)
}

/// One learned vector for each absolute position (Gehring et al. 2017; BERT).
#[derive(Module, Debug)]
pub struct LearnedPositions {
    /// `[offset + max_positions, d_model]`
    pub table: Embedding,
    offset: usize,
}

impl LearnedPositions {
    /// A table for sequences of up to `max_positions` tokens.
    pub fn new(max_positions: usize, d_model: usize, init: &mut ParamInit) -> Self {
        Self::with_offset(max_positions, 0, d_model, init)
    }

    /// A table whose first `offset` rows are unused: RoBERTa counts positions from the padding piece's id plus 1.
    pub fn with_offset(max_positions: usize, offset: usize, d_model: usize, init: &mut ParamInit) -> Self {
        Self { table: Embedding::new(offset + max_positions, d_model, init), offset }
    }

    fn check(&self, len: usize) {
        let max_positions = self.table.weight.dims()[0] - self.offset;
        assert!(len <= max_positions, "{len} tokens, but the model has {max_positions} positions");
    }
}

impl Positions for LearnedPositions {
    fn forward(&self, len: usize, device: &Device) -> Tensor<3> {
        self.range(0..len, device)
    }

    fn range(&self, positions: Range<usize>, device: &Device) -> Tensor<3> {
        self.check(positions.end);
        let ids = (self.offset + positions.start) as i64..(self.offset + positions.end) as i64;
        let ids = Tensor::<1, Int>::arange(ids, device).reshape([1, positions.len()]);
        self.table.forward(ids)
    }

    fn at(&self, positions: Tensor<2, Int>) -> Tensor<3> {
        let last = positions.clone().max().into_data().iter::<i64>().next().unwrap_or(0);
        self.check(last as usize + 1);
        self.table.forward(positions.add_scalar(self.offset as i64))
    }

    fn packed(&self, packing: &Packing, device: &Device) -> Tensor<3> {
        self.check(packing.longest());
        let ids = position_ids(packing, device).add_scalar(self.offset as i64);
        self.table.forward(ids.unsqueeze_dim::<2>(0))
    }
}

/// Fixed sines and cosines of geometrically spaced wavelengths (Vaswani et al. 2017, §3.5):
/// `PE(pos, 2i) = sin(pos / 10000^(2i/d))`, `PE(pos, 2i+1) = cos(pos / 10000^(2i/d))`.
///
/// It has no parameters and no maximum length.
#[derive(Module, Debug)]
pub struct SinusoidalPositions {
    d_model: usize,
    scale: f64,
    #[module(skip)]
    order: SinusoidOrder,
}

/// The order of a position's sines and cosines. Models that differ only in this are equivalent up to the
/// order of their features, so each needs its own weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SinusoidOrder {
    /// Each sine next to its cosine, as in the paper's equation.
    #[default]
    Interleaved,
    /// All sines, then all cosines: the order of Marian, fairseq and tensor2tensor, with the paper's wavelengths, as in
    /// transformers' Marian.
    SinesFirst,
}

impl SinusoidalPositions {
    /// An encoding of `d_model` features.
    pub fn new(d_model: usize) -> Self {
        Self { d_model, scale: 1.0, order: SinusoidOrder::Interleaved }
    }

    /// Multiplies the vectors by `scale`.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the order of the features.
    pub fn with_order(mut self, order: SinusoidOrder) -> Self {
        self.order = order;
        self
    }

    /// The vectors of these positions, concatenated.
    pub(crate) fn values(&self, positions: Range<usize>) -> Vec<f32> {
        let d = self.d_model;
        let n_sines = d.div_ceil(2);
        // For each feature the wavelength, divided by 2π, and whether it is a sine.
        let features: Vec<(f64, bool)> = (0..d)
            .map(|feature| match self.order {
                SinusoidOrder::Interleaved => (feature / 2, feature % 2 == 0),
                SinusoidOrder::SinesFirst => (feature % n_sines, feature < n_sines),
            })
            .map(|(pair, is_sine)| (10_000f64.powf((2 * pair) as f64 / d as f64), is_sine))
            .collect();
        let mut values = Vec::with_capacity(positions.len() * d);
        for pos in positions {
            values.extend(features.iter().map(|(wavelength, is_sine)| {
                let angle = pos as f64 / wavelength;
                (self.scale * if *is_sine { angle.sin() } else { angle.cos() }) as f32
            }));
        }
        values
    }
}

impl Positions for SinusoidalPositions {
    fn forward(&self, len: usize, device: &Device) -> Tensor<3> {
        self.range(0..len, device)
    }

    fn range(&self, positions: Range<usize>, device: &Device) -> Tensor<3> {
        let shape = [1, positions.len(), self.d_model];
        Tensor::from_data(TensorData::new(self.values(positions), shape), device)
    }
}

/// No position vectors: for a model whose attention handles positions itself.
#[derive(Module, Debug, Default)]
pub struct NoPositions {}

impl Positions for NoPositions {
    /// A zero for each position, `[1, len, 1]`.
    fn forward(&self, len: usize, device: &Device) -> Tensor<3> {
        Tensor::zeros([1, len, 1], device)
    }

    fn add_to(&self, embeddings: Tensor<3>, _: Option<&Packing>) -> Tensor<3> {
        embeddings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinusoids_by_hand() {
        let table = SinusoidalPositions::new(4).forward(2, &Device::flex());
        assert_eq!(table.dims(), [1, 2, 4]);
        let values: Vec<f32> = table.into_data().iter::<f32>().collect();
        let expected = [0.0, 1.0, 0.0, 1.0, 0.841_471, 0.540_302, 0.01, 0.999_95];
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-5, "{value} is not {expected}");
        }
    }

    #[test]
    fn sines_may_stand_first() {
        let device = Device::flex();
        let values = |order, d: usize| -> Vec<f32> {
            SinusoidalPositions::new(d).with_order(order).range(3..5, &device).into_data().iter().collect()
        };
        for d in [6, 7] {
            let interleaved = values(SinusoidOrder::Interleaved, d);
            let sines_first = values(SinusoidOrder::SinesFirst, d);
            for (found, expected) in sines_first.chunks(d).zip(interleaved.chunks(d)) {
                let in_order = (0..d).step_by(2).chain((1..d).step_by(2)).map(|feature| expected[feature]);
                assert_eq!(found, in_order.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_range_is_a_part_of_all() {
        let device = Device::flex();
        let learned = LearnedPositions::with_offset(9, 2, 4, &mut ParamInit::new(&device, 0));
        let cut = |all: Tensor<3>| all.narrow(1, 3, 4).into_data();
        assert_eq!(learned.range(3..7, &device).into_data(), cut(learned.forward(9, &device)));
        let fixed = SinusoidalPositions::new(4);
        assert_eq!(fixed.range(3..7, &device).into_data(), cut(fixed.forward(9, &device)));
    }

    #[test]
    fn positions_may_be_given() {
        let device = Device::flex();
        let positions = Tensor::<2, Int>::from_data([[0, 1, 0], [2, 0, 1]], &device);
        let learned = LearnedPositions::with_offset(4, 2, 4, &mut ParamInit::new(&device, 0));
        let check = |found: Tensor<3>, whole: Tensor<3>| {
            for (row, column, position) in [(0, 1, 1), (0, 2, 0), (1, 0, 2), (1, 2, 1)] {
                let found = found.clone().narrow(0, row, 1).narrow(1, column, 1).into_data();
                assert_eq!(found, whole.clone().narrow(1, position, 1).into_data());
            }
        };
        check(learned.at(positions.clone()), learned.forward(4, &device));
        let fixed = SinusoidalPositions::new(4);
        check(fixed.at(positions), fixed.forward(3, &device));
    }

    #[test]
    fn packed_sequences_begin_anew() {
        let device = Device::flex();
        let table = SinusoidalPositions::new(4);
        let packed = table.packed(&Packing::new([2, 1]), &device);
        assert_eq!(packed.dims(), [1, 3, 4]);
        let row = |x: Tensor<3>, i: usize| x.narrow(1, i, 1).into_data();
        let whole = table.forward(2, &device);
        for (token, position) in [(0, 0), (1, 1), (2, 0)] {
            assert_eq!(row(packed.clone(), token), row(whole.clone(), position));
        }
    }

    #[test]
    fn learned_positions_may_begin_later() {
        let device = Device::flex();
        let positions = LearnedPositions::with_offset(3, 2, 2, &mut ParamInit::new(&device, 0));
        let table = positions.table.weight.val();
        assert_eq!(table.dims(), [5, 2]);
        let expected = table.clone().narrow(0, 2, 3).into_data();
        assert_eq!(positions.forward(3, &device).squeeze_dim::<2>(0).into_data(), expected);
        let packed = positions.packed(&Packing::new([2, 1]), &device).squeeze_dim::<2>(0);
        assert_eq!(packed.clone().narrow(0, 0, 2).into_data(), table.clone().narrow(0, 2, 2).into_data());
        assert_eq!(packed.narrow(0, 2, 1).into_data(), table.narrow(0, 2, 1).into_data());
    }

    #[test]
    fn no_positions_add_nothing() {
        let embeddings = Tensor::<3>::ones([2, 3, 4], &Device::flex());
        assert_eq!(
            NoPositions {}.add_to(embeddings.clone(), None).into_data(),
            embeddings.clone().into_data()
        );
        let sum = embeddings.clone() + NoPositions {}.forward(3, &Device::flex());
        assert_eq!(sum.into_data(), embeddings.into_data());
    }

    #[test]
    #[should_panic(expected = "5 tokens, but the model has 4 positions")]
    fn learned_positions_end() {
        let device = Device::flex();
        let positions = LearnedPositions::new(4, 2, &mut ParamInit::new(&device, 0));
        positions.forward(5, &device);
    }
}

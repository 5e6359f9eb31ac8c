use super::NormedLinear;
use crate::ops::{self, Packing};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// A convolution over a sequence's tokens followed by a [gated linear unit](ops::glu) (Dauphin et al. 2017;
/// Gehring et al. 2017, §3.2): for the window `X` of `kernel` tokens around each token, `v([A; B]) = A ⊗
/// σ(B)` with `[A; B] = W X + b`. The weight is [normalised](NormedLinear).
///
/// Sequences are padded with zeros, so their length is unchanged, and packed sequences do not see each other.
#[derive(Module, Debug)]
pub struct GatedConvolution {
    /// `[kernel · d_in, 2 · d_out]`: a window's tokens in order.
    pub map: NormedLinear,
    kernel: usize,
    causal: bool,
}

linear_maps!(GatedConvolution { map });

impl GatedConvolution {
    /// A new convolution over windows of `kernel` tokens, centred on their token or, if `causal`, ending at
    /// it. An even window has one more token after than before, as in fairseq.
    ///
    /// `keep` is the share of inputs kept by dropout. Weights start from `N(0, √(4 · keep / (kernel ·
    /// d_in)))`: a gate with inputs near zero passes a quarter of the variance (Gehring et al. 2017, §3.5).
    ///
    /// # Panics
    /// If `kernel` is 0.
    pub fn new(
        d_in: usize,
        d_out: usize,
        kernel: usize,
        causal: bool,
        keep: f64,
        init: &mut ParamInit,
    ) -> Self {
        assert!(kernel > 0, "a window has a token at least");
        Self { map: NormedLinear::new(kernel * d_in, 2 * d_out, 4.0 * keep, init), kernel, causal }
    }

    /// Number of tokens in a window.
    pub fn kernel(&self) -> usize {
        self.kernel
    }

    /// Applies it to all tokens of packed sequences.
    ///
    /// # Shapes
    /// - `x`: `[n_tokens, d_in]`; returns `[n_tokens, d_out]`
    pub fn forward(&self, x: Tensor<2>, packing: &Packing) -> Tensor<2> {
        let before = if self.causal { self.kernel - 1 } else { (self.kernel - 1) / 2 };
        ops::glu(self.map.forward(ops::windows(x, packing, self.kernel, before)))
    }

    /// The initial state of a causal convolution, see [`step`](Self::step); `None` for windows of one token.
    pub fn begin(&self, rows: usize, d_in: usize, like: &Tensor<2>) -> Option<Tensor<2>> {
        let width = (self.kernel - 1) * d_in;
        (width > 0).then(|| Tensor::zeros([rows, width], (&like.device(), like.dtype())))
    }

    /// Processes one more token of each sequence.
    ///
    /// # Shapes
    /// - `x`: `[rows, d_in]`; returns `[rows, d_out]`
    /// - `before`: the last `kernel − 1` inputs of each row, `[rows, (kernel − 1) · d_in]`, in order,
    ///   initially zeros; updated with this input
    ///
    /// # Panics
    /// If the convolution is not causal.
    pub fn step(&self, x: Tensor<2>, before: &mut Option<Tensor<2>>) -> Tensor<2> {
        assert!(self.causal, "a convolution that sees later tokens cannot go token by token");
        let [_, d_in] = x.dims();
        let window = match before.take() {
            Some(seen) => {
                let window = Tensor::cat(vec![seen, x], 1);
                let [_, width] = window.dims();
                *before = Some(window.clone().narrow(1, d_in, width - d_in));
                window
            }
            None => x,
        };
        ops::glu(self.map.forward(window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn a_step_is_a_token_of_all() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let x = init.normal([7, 5], 1.0).val();
        for kernel in 1..5 {
            let convolution = GatedConvolution::new(5, 4, kernel, true, 0.9, init);
            let all = convolution.forward(x.clone(), &Packing::new([4, 3]));
            let mut before = convolution.begin(2, 5, &x);
            for step in 0..3 {
                let tokens =
                    Tensor::cat(vec![x.clone().narrow(0, step, 1), x.clone().narrow(0, 4 + step, 1)], 0);
                let y = convolution.step(tokens, &mut before);
                let expected =
                    Tensor::cat(vec![all.clone().narrow(0, step, 1), all.clone().narrow(0, 4 + step, 1)], 0);
                let tolerance = Tolerance::<f32>::absolute(1e-5);
                y.into_data().assert_approx_eq(&expected.into_data(), tolerance);
            }
        }
    }

    #[test]
    fn the_variance_stays() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let convolution = GatedConvolution::new(64, 64, 3, false, 1.0, init);
        let y = convolution.forward(init.normal([300, 64], 1.0).val(), &Packing::new([200, 100])).into_data();
        let variance = y.iter::<f64>().map(|y| y * y).sum::<f64>() / y.num_elements() as f64;
        // E σ(x)² of x ~ N(0, 4) is some 0.33, of x near 0 it is 0.25.
        assert!((0.8..1.5).contains(&variance), "{variance}");
    }
}

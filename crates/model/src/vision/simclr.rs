use super::ImageEncoder;
use crate::blocks::Linear;
use crate::{HasBackbone, ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::activation::{log_softmax, relu};
use burn::tensor::{Bool, Int, Tensor, TensorData};

/// A network that learns from pairs of views, with the projection that is thrown away afterwards: `z = W₂·ReLU(W₁·h)` (Chen et
/// al. 2020, §2.1, "SimCLR").
#[derive(Module, Debug)]
pub struct SimClr<E: ImageEncoder> {
    /// The network, which is what training is for.
    pub encoder: E,
    /// `[d_model, d_model]`
    pub hidden: Linear,
    /// `[d_model, d_projection]`
    pub output: Linear,
}

linear_maps!(SimClr<E: ImageEncoder> { encoder; hidden, output });

impl<E: ImageEncoder> SimClr<E> {
    /// A new projection of an encoder's summaries to so many features.
    pub fn new(encoder: E, d_projection: usize, init: &mut ParamInit) -> Self {
        let d_model = encoder.shape().d_model;
        let hidden = Linear::uniform(d_model, d_model, init);
        let output = Linear::uniform(d_model, d_projection, init);
        Self { encoder, hidden, output }
    }

    /// The projections of images.
    ///
    /// # Shapes
    /// - `pixels`: `[images, channels, height, width]`; returns `[images, d_projection]`
    pub fn forward(&self, pixels: Tensor<4>) -> Tensor<2> {
        let summaries = self.encoder.summaries(pixels).class;
        self.output.forward(relu(self.hidden.forward(summaries)))
    }
}

impl<E: ImageEncoder> HasBackbone for SimClr<E> {
    type Backbone = E;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &E {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut E {
        &mut self.encoder
    }
}

/// NT-Xent, `−log (exp(cos(zᵢ, zⱼ)/τ) / Σ_(k≠i) exp(cos(zᵢ, z_k)/τ))` for each view `i`, where `j` is the other view of the same
/// image: the others of the batch are `2N − 2` negatives (Chen et al. 2020, eq. 1).
///
/// # Shapes
/// - `projections`: `[2N, d]`, both views of an image one after the other; returns `[2N]`, in nats
///
/// # Panics
/// If the number of views is odd, or there is no other image.
pub fn nt_xent(projections: Tensor<2>, temperature: f64) -> Tensor<1> {
    let ([n, _], device) = (projections.dims(), projections.device());
    assert!(n >= 4 && n.is_multiple_of(2), "two views each of at least two images, found {n} views");
    // A root's slope at 0 is infinite: a row of zeros is to have none.
    let norms = projections.clone().powi_scalar(2).sum_dim(1).clamp_min(1e-24).sqrt();
    let unit = projections / norms;
    let cosines = unit.clone().matmul(unit.transpose()).div_scalar(temperature);
    let own: Vec<bool> = (0..n * n).map(|place| place / n == place % n).collect();
    let own = Tensor::<2, Bool>::from_data(TensorData::new(own, [n, n]), &device);
    let others: Vec<i32> = (0..n as i32).map(|view| view ^ 1).collect();
    let others = Tensor::<1, Int>::from_data(others.as_slice(), &device).unsqueeze_dim::<2>(1);
    log_softmax(cosines.mask_fill(own, f32::MIN), 1).gather(1, others).squeeze_dim::<1>(1).neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn it_is_the_cross_entropy_of_the_other_view() {
        let device = Device::flex().autodiff();
        let rows = [[1.0f32, 0.5], [0.8, 0.9], [-1.0, 0.2], [-0.3, 1.5], [0.0, 0.0], [0.7, -2.0]];
        let views = Tensor::<2>::from_data(rows, &device).require_grad();
        let losses = nt_xent(views.clone(), 0.5);
        let cosine = |a: [f32; 2], b: [f32; 2]| {
            let dot = |a: [f32; 2], b: [f32; 2]| f64::from(a[0] * b[0] + a[1] * b[1]);
            dot(a, b) / (dot(a, a).max(1e-24) * dot(b, b).max(1e-24)).sqrt()
        };
        let expected: Vec<f32> = (0..6)
            .map(|i| {
                let score = |k: usize| (cosine(rows[i], rows[k]) / 0.5).exp();
                let all: f64 = (0..6).filter(|k| *k != i).map(score).sum();
                -(score(i ^ 1) / all).ln() as f32
            })
            .collect();
        let expected = TensorData::new(expected, [6]);
        losses.clone().into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        let gradient = views.grad(&losses.sum().backward()).unwrap();
        assert!(gradient.into_data().iter::<f32>().all(f32::is_finite));
    }
}

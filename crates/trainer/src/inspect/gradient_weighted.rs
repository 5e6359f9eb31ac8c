//! Attention weighted by its gradient: the generic method of Chefer, Gur & Wolf 2021.

use super::explained::Explained;
use super::matrix::Matrix;
use crate::Result;
use burn::tensor::Tensor;
use cloze_model::blocks::{SeenAttention, observe_attention};
use std::cell::RefCell;
use std::rc::Rc;

/// The relevance of each token for the answer: `R ← R + Ā·R` from `R = I` on, layer by layer, where `Ā` is the mean over heads
/// of `(∇A ⊙ A)⁺` ("Generic Attention-model Explainability", eqs. 5 and 6). For an encoder–decoder, with `s` the target and
/// `q` the source, `R_sq ← R_sq + Ā_ss·R_sq` by the target's own attention (eq. 7) and
/// `R_sq ← R_sq + R̄_ssᵀ·Ā_sq·R̄_qq` by that to the source (eqs. 8 to 10), as the authors' code for DETR has it; a row of
/// `R̄` without any relevance is that of the identity, where the code divides 0 by 0.
///
/// # Errors
/// A model whose weights have no gradient.
pub(super) fn gradient_weighted(explained: &Explained<'_>) -> Result<[Vec<f64>; 2]> {
    struct Seen {
        is_cross: bool,
        probabilities: Tensor<4>,
        leaf: Tensor<4>,
    }

    let seen = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let seen = seen.clone();
        move |attention: SeenAttention| {
            let probabilities = attention.probabilities?;
            // The gradient at zeros that are added is that at the sum.
            let leaf = probabilities.zeros_like().detach().require_grad();
            let sum = probabilities.clone() + leaf.clone();
            let probabilities = probabilities.detach();
            seen.borrow_mut().push(Seen { is_cross: attention.is_cross, probabilities, leaf });
            Some(sum)
        }
    };
    let grads = observe_attention(observer, || explained.in_graph())?.sum().backward();
    let weighted = |seen: Seen| {
        let gradient = seen.leaf.grad(&grads);
        let product =
            gradient.map(|gradient| (gradient * seen.probabilities.inner()).clamp_min(0.0).mean_dim(1));
        let [.., k_len] = seen.leaf.dims();
        let values = product.map(|product| product.into_data().iter::<f64>().collect());
        let values =
            values.unwrap_or_else(|| vec![0.0; seen.leaf.shape().num_elements() / seen.leaf.dims()[1]]);
        (seen.is_cross, Matrix::new(values, k_len))
    };
    let layers: Vec<(bool, Matrix)> = seen.take().into_iter().map(weighted).collect();
    let ([n_source, n_target], rows) = (explained.lengths(), &explained.score.read_from);
    let n_encoder = if n_target == 0 { layers.len() } else { explained.model.n_layers()[0] };
    let (encoder, decoder) = layers.split_at(n_encoder);
    let through = |below: Matrix, own: &Matrix| below.plus(&own.times(&below));
    let source = encoder.iter().fold(Matrix::identity(n_source), |below, (_, own)| through(below, own));
    if n_target == 0 {
        return Ok([source.mean_of_rows(rows), Vec::new()]);
    }
    let source = source.normalised_beyond_identity();
    let (mut target, mut both) = (Matrix::identity(n_target), Matrix::zeros(n_target, n_source));
    for (is_cross, attention) in decoder {
        match is_cross {
            false => {
                both = through(both, attention);
                target = through(target, attention);
            }
            true => {
                let own = target.normalised_beyond_identity().transposed();
                both = both.plus(&own.times(&attention.times(&source)));
            }
        }
    }
    Ok([both.mean_of_rows(rows), target.mean_of_rows(rows)])
}

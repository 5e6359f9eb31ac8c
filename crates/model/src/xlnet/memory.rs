use burn::tensor::Tensor;

/// The inputs to each layer from earlier segments of the same texts, visible to the next segment as preceding
/// tokens (Dai et al. 2019, §3.2). No gradient flows into them.
#[derive(Debug, Clone)]
pub struct XlnetMemory {
    layers: Vec<Tensor<3>>,
}

impl XlnetMemory {
    /// A memory of these states, without their gradients.
    ///
    /// # Shapes
    /// - `layers`: `[batch, len, d_model]` for each layer, from the embeddings on
    ///
    /// # Panics
    /// If there is no layer, or their shapes differ.
    pub fn new(layers: Vec<Tensor<3>>) -> Self {
        let shape = layers.first().expect("a model has layers").dims();
        assert!(layers.iter().all(|layer| layer.dims() == shape), "all layers remember the same tokens");
        Self { layers: layers.into_iter().map(Tensor::detach).collect() }
    }

    /// `[batch, len, d_model]` for each layer: its input states, from the embeddings on.
    pub fn layers(&self) -> &[Tensor<3>] {
        &self.layers
    }

    /// Number of tokens remembered per text.
    pub fn len(&self) -> usize {
        self.layers[0].dims()[1]
    }

    /// Whether the memory is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of texts.
    pub fn batch(&self) -> usize {
        self.layers[0].dims()[0]
    }

    /// The memory after another segment: the last `most` tokens of the memory and of the segment's first `reuse`.
    pub(super) fn after(
        before: Option<&Self>,
        states: Vec<Tensor<3>>,
        most: Option<usize>,
        reuse: Option<usize>,
    ) -> Self {
        let of_layer = |(layer, states): (usize, Tensor<3>)| {
            let mut all = states.detach();
            if let Some(reuse) = reuse.filter(|reuse| *reuse < all.dims()[1]) {
                all = all.narrow(1, 0, reuse);
            }
            if let Some(before) = before {
                all = Tensor::cat(vec![before.layers[layer].clone(), all], 1);
            }
            let len = all.dims()[1];
            match most {
                Some(most) if most < len => all.narrow(1, len - most, most),
                _ => all,
            }
        };
        Self::new(states.into_iter().enumerate().map(of_layer).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn tokens(first: i64, n: i64) -> Vec<Tensor<3>> {
        let device = Device::flex();
        vec![Tensor::<1, burn::tensor::Int>::arange(first..first + n, &device).float().reshape([1, -1, 1])]
    }

    fn values(memory: &XlnetMemory) -> Vec<i32> {
        memory.layers[0].clone().into_data().iter::<i32>().collect()
    }

    #[test]
    fn the_last_tokens_are_kept() {
        let all = XlnetMemory::after(None, tokens(0, 3), None, None);
        assert_eq!((values(&all), all.len(), all.batch()), (vec![0, 1, 2], 3, 1));
        let all = XlnetMemory::after(Some(&all), tokens(3, 3), None, None);
        assert_eq!(values(&all), [0, 1, 2, 3, 4, 5]);
        let last = XlnetMemory::after(Some(&all), tokens(6, 3), Some(4), None);
        assert_eq!(values(&last), [5, 6, 7, 8]);
        let reused = XlnetMemory::after(Some(&last), tokens(9, 3), Some(4), Some(2));
        assert_eq!(values(&reused), [7, 8, 9, 10]);
    }
}

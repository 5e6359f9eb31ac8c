use super::XlnetInput;
use super::distances::columns;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The queries of one of the two streams: where they stand, and what they see. All layers share it, and all heads.
#[derive(Debug)]
pub(super) struct Stream {
    /// Queries of each segment.
    pub n: usize,
    /// `[1, batch, n, k_len]`: 0, or the most negative number where a key is hidden. None if nothing is.
    pub hidden: Option<Tensor<4>>,
    /// `[1, batch, n, k_len]`: 1 where a key belongs to another segment than the query. None if none does.
    pub of_others: Option<Tensor<4>>,
    /// `[1, batch, n, 1]`: 0 for queries that see no key, else 1. None if each sees some.
    pub seeing: Option<Tensor<4>>,
    /// The [columns] of queries that do not stand at all positions, one after another.
    pub columns: Option<Tensor<4, Int>>,
}

/// How a model limits what is seen in a text, whatever the order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub causal: bool,
    pub same_length: bool,
}

impl Stream {
    /// The content stream: a query at each position, which always sees itself.
    pub fn content(input: &XlnetInput, memory_len: usize, limits: Limits, device: &Device) -> Self {
        let places: Vec<i32> = (0..input.batch).flat_map(|_| 0..input.len as i32).collect();
        Self::of(input, &places, true, memory_len, limits, device)
    }

    /// The query stream: a query at each position that is predicted.
    pub fn queries(input: &XlnetInput, memory_len: usize, limits: Limits, device: &Device) -> Self {
        let stream = Self::of(input, &input.targets, false, memory_len, limits, device);
        let columns = columns(&input.targets, input.batch, input.len, memory_len + input.len, device);
        Self { columns: Some(columns), ..stream }
    }

    fn of(
        input: &XlnetInput,
        places: &[i32],
        sees_itself: bool,
        memory_len: usize,
        limits: Limits,
        device: &Device,
    ) -> Self {
        let (batch, len, k_len) = (input.batch, input.len, memory_len + input.len);
        let n = places.len() / batch;
        // A query at each of the places, and the key's index; the memory's keys come first.
        let pairs = || {
            let of_query = move |(query, place): (usize, &i32)| {
                let (row, place) = (query / n, *place as usize);
                (0..k_len).map(move |key| (row, place, key))
            };
            places.iter().enumerate().flat_map(of_query)
        };
        let is_hidden = |(row, place, key): (usize, usize, usize)| {
            let at = memory_len + place;
            if key == at && sees_itself {
                return false;
            }
            let limited = limits.causal && (key > at || limits.same_length && key < place);
            limited || key >= memory_len && input.hides(row, place, key - memory_len)
        };
        let hidden: Vec<bool> = pairs().map(is_hidden).collect();
        let seeing: Vec<f32> =
            hidden.chunks(k_len).map(|keys| f32::from(u8::from(keys.contains(&false)))).collect();
        let matrix =
            |values: Vec<f32>| Tensor::from_data(TensorData::new(values, [1, batch, n, k_len]), device);
        let of_others = input.segments.as_ref().and_then(|segments| {
            let differs = |(row, place, key): (usize, usize, usize)| {
                let other = if key < memory_len { 0 } else { segments[row * len + key - memory_len] };
                f32::from(u8::from(segments[row * len + place] != other))
            };
            let values: Vec<f32> = pairs().map(differs).collect();
            values.contains(&1.0).then(|| matrix(values))
        });
        let hides = hidden.contains(&true);
        let hidden = hidden.into_iter().map(|hidden| if hidden { f32::MIN } else { 0.0 });
        Self {
            n,
            hidden: hides.then(|| matrix(hidden.collect())),
            of_others,
            seeing: seeing
                .contains(&0.0)
                .then(|| Tensor::from_data(TensorData::new(seeing, [1, batch, n, 1]), device)),
            columns: None,
        }
    }
}

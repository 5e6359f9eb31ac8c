//! A slow interpreter of the operators that exports have, so that a test needs neither Python nor ONNX Runtime.
//!
//! Every number is held in 64 bits. Results of 32-bit floats are rounded to them.

use cloze_onnx::proto::{
    AttributeProto, BOOL, DOUBLE, EXTERNAL, FLOAT, INT8, INT64, ModelProto, NodeProto, TensorProto, UINT8,
};
use std::collections::HashMap;
use std::path::Path;

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub kind: i32,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    pub fn new(kind: i32, shape: Vec<usize>, mut values: Vec<f64>) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{shape:?}");
        if kind == FLOAT {
            values.iter_mut().for_each(|value| *value = f64::from(*value as f32));
        }
        Self { kind, shape, values }
    }

    pub fn floats(shape: &[usize], values: impl IntoIterator<Item = f32>) -> Self {
        Self::new(FLOAT, shape.into(), values.into_iter().map(f64::from).collect())
    }

    pub fn ints(shape: &[usize], values: impl IntoIterator<Item = i64>) -> Self {
        Self::new(INT64, shape.into(), values.into_iter().map(|value| value as f64).collect())
    }

    fn list(&self) -> Vec<i64> {
        self.values.iter().map(|value| *value as i64).collect()
    }

    fn axis(&self, axis: i64) -> usize {
        axis_of(self.shape.len(), axis)
    }

    fn map(&self, kind: i32, f: impl Fn(f64) -> f64) -> Self {
        Self::new(kind, self.shape.clone(), self.values.iter().map(|value| f(*value)).collect())
    }

    /// The sizes before, at and after an axis, as products.
    fn around(&self, axis: usize) -> [usize; 3] {
        let product = |sizes: &[usize]| sizes.iter().product();
        [product(&self.shape[..axis]), self.shape[axis], product(&self.shape[axis + 1..])]
    }

    /// The lines along an axis, each turned into another by `f`, which may have another length.
    fn along(&self, axis: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        let [outer, n, inner] = self.around(axis);
        let mut lines = Vec::new();
        for o in 0..outer {
            for i in 0..inner {
                let line: Vec<f64> = (0..n).map(|k| self.values[(o * n + k) * inner + i]).collect();
                lines.push(f(&line));
            }
        }
        let m = lines.first().map_or(0, Vec::len);
        let mut values = vec![0.0; outer * m * inner];
        for (line, place) in lines.iter().zip(0..) {
            let (o, i) = (place / inner, place % inner);
            line.iter().enumerate().for_each(|(k, value)| values[(o * m + k) * inner + i] = *value);
        }
        let mut shape = self.shape.clone();
        shape[axis] = m;
        Self::new(self.kind, shape, values)
    }

    /// Repeated along axes of size 1 and along new ones at the front.
    fn expand(&self, shape: &[usize]) -> Self {
        let lead = shape.len() - self.shape.len();
        let mut strides = vec![0; shape.len()];
        let mut stride = 1;
        for axis in (0..self.shape.len()).rev() {
            let size = self.shape[axis];
            assert!(size == 1 || size == shape[lead + axis], "{:?} to {shape:?}", self.shape);
            strides[lead + axis] = if size == 1 { 0 } else { stride };
            stride *= size;
        }
        let values = places(shape).map(|place| {
            self.values[place.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<usize>()]
        });
        Self::new(self.kind, shape.into(), values.collect())
    }

    fn transpose(&self, order: &[i64]) -> Self {
        let mut strides = vec![1; self.shape.len()];
        for axis in (1..self.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        let shape: Vec<usize> = order.iter().map(|axis| self.shape[*axis as usize]).collect();
        let at = |place: Vec<usize>| -> usize {
            place.iter().zip(order).map(|(i, axis)| i * strides[*axis as usize]).sum()
        };
        let values = places(&shape).map(|place| self.values[at(place)]).collect();
        Self::new(self.kind, shape, values)
    }

    fn reshaped(&self, shape: Vec<usize>) -> Self {
        Self::new(self.kind, shape, self.values.clone())
    }
}

fn axis_of(rank: usize, axis: i64) -> usize {
    if axis < 0 { (rank as i64 + axis) as usize } else { axis as usize }
}

/// All places of a shape, in order.
fn places(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..shape.iter().product::<usize>()).map(move |mut index| {
        let mut place = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            place[axis] = index % shape[axis];
            index /= shape[axis];
        }
        place
    })
}

fn common_shape(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let size =
        |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank).map(|axis| size(a, axis).max(size(b, axis))).collect()
}

fn zip(a: &Array, b: &Array, kind: i32, f: impl Fn(f64, f64) -> f64) -> Array {
    let shape = common_shape(&a.shape, &b.shape);
    let (a, b) = (a.expand(&shape), b.expand(&shape));
    let values = a.values.iter().zip(&b.values).map(|(a, b)| f(*a, *b)).collect();
    Array::new(kind, shape, values)
}

/// The numbers of an initialiser, which may lie in a file in `folder`.
fn numbers(tensor: &TensorProto, folder: &Path) -> Array {
    let shape: Vec<usize> = tensor.dims.iter().map(|dim| *dim as usize).collect();
    let bytes = if tensor.data_location == EXTERNAL {
        let entry = |key: &str| &tensor.external_data.iter().find(|entry| entry.key == key).unwrap().value;
        let (from, len): (usize, usize) =
            (entry("offset").parse().unwrap(), entry("length").parse().unwrap());
        std::fs::read(folder.join(entry("location"))).unwrap()[from..from + len].to_vec()
    } else {
        tensor.raw_data.clone()
    };
    let values: Vec<f64> = match tensor.data_type {
        FLOAT => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect(),
        INT64 => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as f64).collect(),
        INT8 => bytes.iter().map(|byte| byte.cast_signed().into()).collect(),
        UINT8 => bytes.iter().map(|byte| f64::from(*byte)).collect(),
        DOUBLE => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect(),
        other => panic!("initialisers of type {other}"),
    };
    Array::new(tensor.data_type, shape, values)
}

/// The graph's outputs, by their names.
pub fn run(model: &ModelProto, folder: &Path, inputs: &[(&str, Array)]) -> HashMap<String, Array> {
    let graph = model.graph.as_ref().unwrap();
    let mut known: HashMap<String, Array> =
        graph.initializer.iter().map(|tensor| (tensor.name.clone(), numbers(tensor, folder))).collect();
    known.extend(inputs.iter().map(|(name, array)| (name.to_string(), array.clone())));
    for node in &graph.node {
        let inputs: Vec<&Array> = node.input.iter().map(|name| &known[name]).collect();
        let outputs = compute(node, &inputs);
        assert_eq!(outputs.len(), node.output.len(), "{}", node.name);
        known.extend(node.output.iter().cloned().zip(outputs));
    }
    graph.output.iter().map(|output| (output.name.clone(), known.remove(&output.name).unwrap())).collect()
}

fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

fn int(node: &NodeProto, name: &str) -> Option<i64> {
    attribute(node, name).map(|attribute| attribute.i.unwrap())
}

fn compute(node: &NodeProto, inputs: &[&Array]) -> Vec<Array> {
    let x = inputs[0];
    let axis = || x.axis(int(node, "axis").unwrap_or(0));
    let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
    let both = |f: fn(f64, f64) -> f64| zip(x, inputs[1], x.kind, f);
    let compare = |f: fn(f64, f64) -> bool| zip(x, inputs[1], BOOL, |a, b| truth(f(a, b)));
    let each = |f: fn(f64) -> f64| x.map(x.kind, f);
    let one = match node.op_type.as_str() {
        "Add" => both(|a, b| a + b),
        "Sub" => both(|a, b| a - b),
        "Mul" => both(|a, b| a * b),
        "Div" => both(|a, b| a / b),
        "Pow" => both(f64::powf),
        "Max" => both(f64::max),
        "And" => both(|a, b| a * b),
        "Equal" => compare(|a, b| a == b),
        "Greater" => compare(|a, b| a > b),
        "LessOrEqual" => compare(|a, b| a <= b),
        "Not" => each(|a| 1.0 - a),
        "Abs" => each(f64::abs),
        "Neg" => each(|a| -a),
        "Sqrt" => each(f64::sqrt),
        "Sin" => each(f64::sin),
        "Cos" => each(f64::cos),
        "Erf" => each(erf),
        "Tanh" => each(f64::tanh),
        "Sigmoid" => each(|a| 1.0 / (1.0 + (-a).exp())),
        "Relu" => each(|a| a.max(0.0)),
        "Softplus" => each(|a| a.max(0.0) + (-a.abs()).exp().ln_1p()),
        "HardSwish" => each(|a| a * (a / 6.0 + 0.5).clamp(0.0, 1.0)),
        "LeakyRelu" => {
            let alpha = f64::from(attribute(node, "alpha").unwrap().f.unwrap());
            x.map(x.kind, |a| if a < 0.0 { alpha * a } else { a })
        }
        "Clip" => x.map(x.kind, |a| a.clamp(inputs[1].values[0], inputs[2].values[0])),
        "Cast" => {
            let kind = int(node, "to").unwrap() as i32;
            x.map(kind, |a| if kind == BOOL { truth(a != 0.0) } else { a })
        }
        "Where" => {
            let shape = common_shape(&common_shape(&x.shape, &inputs[1].shape), &inputs[2].shape);
            let [choice, a, b] = [x, inputs[1], inputs[2]].map(|array| array.expand(&shape));
            let chosen = choice.values.iter().zip(a.values.iter().zip(&b.values));
            let values = chosen.map(|(choice, (a, b))| if *choice != 0.0 { *a } else { *b }).collect();
            Array::new(inputs[1].kind, shape, values)
        }
        "Reshape" => {
            let wanted = inputs[1].list();
            let kept = |i: usize, size: i64| if size == 0 { x.shape[i] } else { size.max(1) as usize };
            let mut shape: Vec<usize> = wanted.iter().enumerate().map(|(i, size)| kept(i, *size)).collect();
            if let Some(any) = wanted.iter().position(|size| *size == -1) {
                shape[any] = x.values.len() / shape.iter().product::<usize>();
            }
            x.reshaped(shape)
        }
        "Transpose" => x.transpose(&attribute(node, "perm").unwrap().ints),
        "Unsqueeze" => {
            let axes = inputs[1].list();
            let mut sizes = x.shape.iter();
            let rank = x.shape.len() + axes.len();
            let size = |axis| if axes.contains(&(axis as i64)) { 1 } else { *sizes.next().unwrap() };
            x.reshaped((0..rank).map(size).collect())
        }
        "Squeeze" => {
            let axes: Vec<usize> = inputs[1].list().into_iter().map(|axis| x.axis(axis)).collect();
            assert!(axes.iter().all(|axis| x.shape[*axis] == 1), "{}", node.name);
            let kept = (0..x.shape.len()).filter(|axis| !axes.contains(axis));
            x.reshaped(kept.map(|axis| x.shape[axis]).collect())
        }
        "Shape" => {
            let (from, to) = (int(node, "start").unwrap_or(0), int(node, "end").unwrap());
            let sizes = &x.shape[from as usize..(to as usize).min(x.shape.len())];
            Array::ints(&[sizes.len()], sizes.iter().map(|size| *size as i64))
        }
        "Expand" => {
            let shape: Vec<usize> = inputs[1].list().into_iter().map(|size| size as usize).collect();
            x.expand(&common_shape(&x.shape, &shape))
        }
        "Range" => {
            let [from, to, step] = [0, 1, 2].map(|i| inputs[i].values[0]);
            let n = ((to - from) / step).ceil().max(0.0) as usize;
            Array::ints(&[n], (0..n).map(|i| (from + i as f64 * step) as i64))
        }
        "Concat" => concat(inputs, axis()),
        "Split" => {
            let (axis, mut from) = (axis(), 0);
            return inputs[1]
                .list()
                .into_iter()
                .map(|size| {
                    let range = from..from + size as usize;
                    from = range.end;
                    x.along(axis, |line| line[range.clone()].to_vec())
                })
                .collect();
        }
        "Gather" => {
            assert_eq!(axis(), 0);
            let [_, n, inner] = x.around(0);
            let row = |row: &i64| {
                assert!((0..n as i64).contains(row), "{}: row {row} of {n}", node.name);
                x.values[*row as usize * inner..][..inner].to_vec()
            };
            let values = inputs[1].list().iter().flat_map(row).collect();
            Array::new(x.kind, [&inputs[1].shape[..], &x.shape[1..]].concat(), values)
        }
        "GatherElements" => {
            let (axis, wanted) = (axis(), inputs[1]);
            let value = |(mut place, row): (Vec<usize>, &f64)| {
                place[axis] = *row as usize;
                let index = place.iter().zip(&x.shape).fold(0, |index, (i, size)| {
                    assert!(i < size, "{}", node.name);
                    index * size + i
                });
                x.values[index]
            };
            let values = places(&wanted.shape).zip(&wanted.values).map(value).collect();
            Array::new(x.kind, wanted.shape.clone(), values)
        }
        "GatherND" => {
            assert_eq!(int(node, "batch_dims"), Some(1));
            let [batch, len, d] = [0, 1, 2].map(|axis| x.shape[axis]);
            let rows = inputs[1].list().into_iter().enumerate();
            let row = |(row, token): (usize, i64)| x.values[(row * len + token as usize) * d..][..d].to_vec();
            Array::new(x.kind, vec![batch, d], rows.flat_map(row).collect())
        }
        "CumSum" => x.along(x.axis(inputs[1].list()[0]), |line| {
            line.iter()
                .scan(0.0, |sum, value| {
                    *sum += value;
                    Some(*sum)
                })
                .collect()
        }),
        "ArgMax" => {
            let first = |line: &[f64]| {
                let most = line.iter().copied().fold(f64::MIN, f64::max);
                vec![line.iter().position(|value| *value == most).unwrap() as f64]
            };
            let found = x.along(axis(), first);
            let kept = |(i, _): &(usize, &usize)| *i != axis();
            let shape = found.shape.iter().enumerate().filter(kept).map(|(_, size)| *size).collect();
            Array::new(INT64, shape, found.values.clone())
        }
        "Softmax" => x.along(axis(), |line| {
            let most = line.iter().copied().fold(f64::MIN, f64::max);
            let powers: Vec<f64> = line.iter().map(|value| (value - most).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.iter().map(|power| power / sum).collect()
        }),
        "LayerNormalization" => {
            let epsilon = f64::from(attribute(node, "epsilon").unwrap().f.unwrap());
            x.along(axis(), |line| {
                let n = line.len() as f64;
                let mean = line.iter().sum::<f64>() / n;
                let variance = line.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
                let normed = line.iter().map(|value| (value - mean) / (variance + epsilon).sqrt());
                let scaled = normed.zip(&inputs[1].values).map(|(value, scale)| value * scale);
                let shift = |i| inputs.get(2).map_or(0.0, |shift: &&Array| shift.values[i]);
                scaled.enumerate().map(|(i, value)| value + shift(i)).collect()
            })
        }
        "ReduceMean" => reduced(node, inputs, |line| line.iter().sum::<f64>() / line.len() as f64),
        "ReduceSum" => reduced(node, inputs, |line| line.iter().sum()),
        "ReduceMax" => reduced(node, inputs, |line| line.iter().copied().fold(f64::MIN, f64::max)),
        "ReduceL2" => {
            reduced(node, inputs, |line| line.iter().map(|value| value * value).sum::<f64>().sqrt())
        }
        "MatMul" => matmul(x, inputs[1]),
        "Gemm" => {
            assert_eq!(int(node, "transB"), Some(1));
            matmul(x, &inputs[1].transpose(&[1, 0]))
        }
        "Conv" => convolve(node, inputs),
        "QuantizeLinear" => {
            let [scale, zero] = [1, 2].map(|i| inputs[i].values[0]);
            let step =
                |x: f64| (f64::from(x as f32 / scale as f32).round_ties_even() + zero).clamp(0.0, 255.0);
            x.map(UINT8, step)
        }
        "DequantizeLinear" => {
            let scales = inputs[1];
            let (n, inner) = match scales.shape.is_empty() {
                true => (1, 1),
                false => (x.shape[axis()], x.around(axis())[2]),
            };
            let zero = |i: usize| inputs.get(2).map_or(0.0, |zeros| zeros.values[i]);
            let number = |(place, q): (usize, &f64)| {
                let i = place / inner % n;
                (q - zero(i)) * scales.values[i]
            };
            Array::new(FLOAT, x.shape.clone(), x.values.iter().enumerate().map(number).collect())
        }
        "MatMulNBits" => {
            let [rows, columns] = ["N", "K"].map(|name| int(node, name).unwrap() as usize);
            let numbers = blocks(node, inputs[1], inputs[2]);
            matmul(x, &Array::new(FLOAT, vec![rows, columns], numbers).transpose(&[1, 0]))
        }
        "GatherBlockQuantized" => {
            assert_eq!((int(node, "gather_axis"), int(node, "quantize_axis")), (Some(0), Some(1)));
            let (numbers, n) = (blocks(node, x, inputs[2]), x.shape[0]);
            let d = numbers.len() / n;
            let rows = inputs[1].values.iter().flat_map(|id| &numbers[*id as usize * d..][..d]);
            Array::new(FLOAT, [&inputs[1].shape[..], &[d]].concat(), rows.copied().collect())
        }
        other => panic!("the operator {other} is not one that exports have"),
    };
    vec![one]
}

/// The numbers of a matrix of blocks.
fn blocks(node: &NodeProto, bytes: &Array, scales: &Array) -> Vec<f64> {
    let (bits, size) = (int(node, "bits").unwrap(), int(node, "block_size").unwrap() as usize);
    assert_eq!(bytes.kind, UINT8, "{}", node.name);
    let integers: Vec<f64> = match bits {
        4 => bytes.values.iter().flat_map(|byte| [byte % 16.0 - 8.0, (byte / 16.0).floor() - 8.0]).collect(),
        8 => bytes.values.iter().map(|byte| byte - 128.0).collect(),
        other => panic!("{}: {other} bits", node.name),
    };
    assert_eq!(integers.len(), scales.values.len() * size, "{}", node.name);
    integers.iter().enumerate().map(|(i, q)| q * scales.values[i / size]).collect()
}

fn concat(parts: &[&Array], axis: usize) -> Array {
    let [outer, _, inner] = parts[0].around(axis);
    let row = |o: usize| {
        parts.iter().flat_map(move |part| {
            let n = part.shape[axis] * inner;
            part.values[o * n..(o + 1) * n].iter().copied()
        })
    };
    let mut shape = parts[0].shape.clone();
    shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
    Array::new(parts[0].kind, shape, (0..outer).flat_map(row).collect())
}

fn reduced(node: &NodeProto, inputs: &[&Array], f: impl Fn(&[f64]) -> f64) -> Array {
    let x = inputs[0];
    let axes = match inputs.get(1) {
        Some(axes) => axes.list(),
        None => attribute(node, "axes").unwrap().ints.clone(),
    };
    let [axis] = axes[..] else { panic!("{}: {axes:?}", node.name) };
    let axis = x.axis(axis);
    let mut found = x.along(axis, |line| vec![f(line)]);
    if int(node, "keepdims").unwrap_or(1) == 0 {
        found.shape.remove(axis);
    }
    found
}

fn matmul(a: &Array, b: &Array) -> Array {
    let split = |array: &Array| {
        let (outer, inner) = array.shape.split_at(array.shape.len() - 2);
        (outer.to_vec(), [inner[0], inner[1]])
    };
    let ((outer_a, [m, k]), (outer_b, [other_k, n])) = (split(a), split(b));
    assert_eq!(k, other_k, "{:?} · {:?}", a.shape, b.shape);
    let outer = common_shape(&outer_a, &outer_b);
    let a = a.expand(&[&outer[..], &[m, k]].concat());
    let b = b.expand(&[&outer[..], &[k, n]].concat());
    let mut values = vec![0.0; outer.iter().product::<usize>() * m * n];
    for (o, out) in values.chunks_exact_mut(m * n).enumerate() {
        let (a, b) = (&a.values[o * m * k..], &b.values[o * k * n..]);
        for i in 0..m {
            for l in 0..k {
                for j in 0..n {
                    out[i * n + j] += a[i * k + l] * b[l * n + j];
                }
            }
        }
    }
    Array::new(a.kind, [&outer[..], &[m, n]].concat(), values)
}

/// A convolution over the last axis.
fn convolve(node: &NodeProto, inputs: &[&Array]) -> Array {
    let [x, weight, bias] = [inputs[0], inputs[1], inputs[2]];
    let groups = int(node, "group").unwrap() as usize;
    let before = attribute(node, "pads").unwrap().ints[0] as isize;
    let ([batch, d_in, len], [d_out, d, kernel]) =
        ([0, 1, 2].map(|axis| x.shape[axis]), [0, 1, 2].map(|axis| weight.shape[axis]));
    let mut values = Vec::new();
    for row in 0..batch {
        for out in 0..d_out {
            let first = out / (d_out / groups) * d;
            for place in 0..len as isize {
                let mut sum = bias.values[out];
                for i in 0..d {
                    for k in 0..kernel {
                        let from = place + k as isize - before;
                        if (0..len as isize).contains(&from) {
                            let value = x.values[(row * d_in + first + i) * len + from as usize];
                            sum += weight.values[(out * d + i) * kernel + k] * value;
                        }
                    }
                }
                values.push(sum);
            }
        }
    }
    Array::new(x.kind, vec![batch, d_out, len], values)
}

/// The error function by its power series; beyond 5 it is 1 to twelve digits.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

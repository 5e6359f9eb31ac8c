use super::layout::{concatenated, cut, transpose};
use super::quantization::Found;
use super::{QuantizedTensor, TensorRule, TensorRules};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use burn::tensor::TensorData;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A [rule](TensorRule) applied to a model: tensors of a file and the parameters that they hold.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The tensors' names as in the rules.
    pub tensors: Vec<String>,
    /// The parameters' paths and shapes. There is either one tensor or one parameter.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// The axis in the file along which several tensors or parameters follow each other.
    axis: usize,
    transposed: bool,
    /// The one tensor's shape, if its axes are not the one parameter's.
    shape: Option<Vec<usize>>,
    /// Whether there is a rule for it.
    pub known: bool,
}

impl Transfer {
    /// All transfers for a model with these paths and shapes, in the order of their first parameters.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a rule with a parameter that the model lacks, or with parameters whose shapes do not
    /// fit together.
    pub fn all(rules: &TensorRules, shapes: &[(String, Vec<usize>)]) -> Result<Vec<Self>> {
        let by_path: BTreeMap<&str, &Vec<usize>> =
            shapes.iter().map(|(path, shape)| (path.as_str(), shape)).collect();
        let mut done: BTreeSet<&str> = BTreeSet::new();
        let mut all = Vec::new();
        for (path, shape) in shapes {
            if done.contains(path.as_str()) {
                continue;
            }
            let Some((rule, part)) = rules.rules().iter().find_map(|rule| Some((rule, part(rule, path)?)))
            else {
                all.push(Self::unknown(path, shape));
                continue;
            };
            let transfer = Self::of(rule, part, &by_path)?;
            for (path, _) in &transfer.parameters {
                done.extend(by_path.get_key_value(path.as_str()).map(|(path, _)| *path));
            }
            all.push(transfer);
        }
        Ok(all)
    }

    /// The transfer of a parameter without a rule.
    fn unknown(path: &str, shape: &[usize]) -> Self {
        Self {
            tensors: vec![path.to_string()],
            parameters: vec![(path.to_string(), shape.to_vec())],
            axis: 0,
            transposed: path.ends_with(".weight"),
            shape: None,
            known: false,
        }
    }

    /// The transfer of a rule whose `*` stands for `part`.
    fn of(rule: &TensorRule, part: &str, shapes: &BTreeMap<&str, &Vec<usize>>) -> Result<Self> {
        let (tensors, axis, parameters, transposed) = match rule {
            TensorRule::Copy { tensor, parameter } => (vec![tensor], 0, vec![parameter], false),
            TensorRule::Transpose { tensor, parameter } => (vec![tensor], 0, vec![parameter], true),
            TensorRule::Split { tensor, axis, parameters, transposed } => {
                (vec![tensor], *axis, parameters.iter().collect(), *transposed)
            }
            TensorRule::Join { tensors, axis, parameter, transposed } => {
                (tensors.iter().collect(), *axis, vec![parameter], *transposed)
            }
            TensorRule::Reshape { tensor, parameter, transposed, .. } => {
                (vec![tensor], 0, vec![parameter], *transposed)
            }
            TensorRule::Tie { .. } => unreachable!("a tie has no parameter"),
        };
        let spelt_out = |name: &String| name.replace('*', part);
        let tensors: Vec<String> = tensors.into_iter().map(spelt_out).collect();
        let parameters = parameters.into_iter().map(spelt_out).map(|path| match shapes.get(path.as_str()) {
            Some(shape) => Ok((path, shape.to_vec())),
            None => Err(ModelError::Config(format!(
                "the rule for the tensor `{}` has the parameter `{path}`, which the model lacks",
                tensors.join("`, `")
            ))),
        });
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let shape = match rule {
            TensorRule::Reshape { shape, .. } => Some(shape.clone()),
            _ => None,
        };
        let transfer = Self { tensors, parameters, axis, transposed, shape, known: true };
        transfer.check()?;
        Ok(transfer)
    }

    /// Checks that the shapes fit together.
    fn check(&self) -> Result<()> {
        let shapes = self.laid_out();
        let first = &shapes[0];
        if let Some(shape) = self.shape.as_ref().filter(|shape| n_elements(shape) != n_elements(first)) {
            return Err(ModelError::Config(format!(
                "the rule for the tensor `{}` does not fit the model: {first:?} does not have as many elements as {shape:?}",
                self.tensors[0]
            )));
        }
        let several = self.tensors.len() > 1 || shapes.len() > 1;
        let but_axis = |shape: &Vec<usize>| -> Vec<usize> {
            shape.iter().enumerate().filter(|(axis, _)| *axis != self.axis).map(|(_, size)| *size).collect()
        };
        let fits = !several
            || (self.axis < first.len()
                && shapes
                    .iter()
                    .all(|shape| shape.len() == first.len() && but_axis(shape) == but_axis(first))
                && first[self.axis].is_multiple_of(self.tensors.len()));
        if fits {
            return Ok(());
        }
        let shapes: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
        Err(ModelError::Config(format!(
            "the rule for the tensor `{}` does not fit the model: {} do not fit together along axis {}",
            self.tensors.join("`, `"),
            shapes.join(", "),
            self.axis
        )))
    }

    /// The parameters' shapes in the file's layout.
    fn laid_out(&self) -> Vec<Vec<usize>> {
        let laid_out = |(_, shape): &(String, Vec<usize>)| match self.transposed {
            true => shape.iter().rev().copied().collect(),
            false => shape.clone(),
        };
        self.parameters.iter().map(laid_out).collect()
    }

    /// The tensors' shapes in the file.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        if let Some(shape) = &self.shape {
            return vec![shape.clone()];
        }
        let parts = self.laid_out();
        let mut shape = parts[0].clone();
        if parts.len() > 1 {
            shape[self.axis] = parts.iter().map(|part| part[self.axis]).sum();
        }
        if self.tensors.len() > 1 {
            shape[self.axis] /= self.tensors.len();
        }
        vec![shape; self.tensors.len()]
    }

    /// The parameters' values, from tensors of the right [shapes](Self::shapes).
    pub fn load(self, mut tensors: Vec<TensorData>) -> Vec<(String, TensorData)> {
        if self.shape.is_some() {
            let laid_out = self.laid_out().swap_remove(0);
            tensors = tensors.into_iter().map(|tensor| reshaped(tensor, laid_out.clone())).collect();
        }
        let sizes: Vec<usize> = match self.parameters.len() {
            1 => Vec::new(),
            _ => self.laid_out().iter().map(|part| part[self.axis]).collect(),
        };
        let parts = regrouped(tensors, self.axis, &sizes);
        let paths = self.parameters.into_iter().map(|(path, _)| path);
        paths.zip(parts.into_iter().map(|part| turned(part, self.transposed))).collect()
    }

    /// Whether the parameters, transposed or not, are rows of one tensor.
    pub fn holds_rows(&self, transposed: bool) -> bool {
        let in_rows = self.parameters.len() == 1 || self.axis == 0;
        self.tensors.len() == 1 && self.shape.is_none() && in_rows && self.transposed == transposed
    }

    /// The integers of parameters that are rows of one matrix, or all of it, by their paths, and whether the parameter is
    /// the transpose; otherwise everything back.
    #[allow(clippy::type_complexity, reason = "the caller takes it apart at once")]
    pub fn load_integers(
        self,
        mut found: Vec<(String, Found)>,
    ) -> std::result::Result<Vec<(String, (Arc<QuantizedTensor>, bool))>, (Self, Vec<(String, Found)>)> {
        // Otherwise a weight that the file does not multiply in integers, or one whose rows are not the outputs.
        let fits =
            matches!(&*found, [(_, Found::Integers(tensor))] if self.holds_rows(tensor.tokens.is_some()));
        let Some((_, Found::Integers(tensor))) = found.pop_if(|_| fits) else {
            return Err((self, found));
        };
        let mut row = 0;
        let rows: Vec<usize> = self.laid_out().iter().map(|shape| shape[0]).collect();
        let parts = self.parameters.into_iter().zip(rows).map(|((path, _), n)| {
            row += n;
            let matrix = tensor.matrix.rows(row - n..row);
            let part = QuantizedTensor { matrix, tokens: tensor.tokens.clone() };
            (path, (Arc::new(part), self.transposed))
        });
        Ok(parts.collect())
    }

    /// The tensors' values, from the parameters, which are removed from `all`.
    ///
    /// # Panics
    /// If a parameter is missing.
    pub fn store(&self, all: &mut NamedTensors) -> Vec<(String, TensorData)> {
        let parts = self.parameters.iter().map(|(path, _)| {
            let data = all.remove(path).unwrap_or_else(|| panic!("`{path}` is a parameter of the model"));
            turned(data, self.transposed)
        });
        let sizes: Vec<usize> = match self.tensors.len() {
            1 => Vec::new(),
            _ => self.shapes().iter().map(|shape| shape[self.axis]).collect(),
        };
        let mut tensors = regrouped(parts.collect(), self.axis, &sizes);
        if let Some(shape) = &self.shape {
            tensors = tensors.into_iter().map(|tensor| reshaped(tensor, shape.clone())).collect();
        }
        self.tensors.iter().cloned().zip(tensors).collect()
    }
}

/// Concatenates several tensors, or splits one into parts of these sizes along the axis; a single one is returned
/// unchanged.
fn regrouped(mut from: Vec<TensorData>, axis: usize, sizes: &[usize]) -> Vec<TensorData> {
    if from.len() > 1 {
        from = vec![concatenated(&from, axis)];
    }
    if sizes.is_empty() { from } else { cut(&from[0], axis, sizes) }
}

/// The same numbers with other axes.
fn reshaped(data: TensorData, shape: Vec<usize>) -> TensorData {
    let (bytes, _, dtype) = data.into_parts();
    TensorData::from_bytes(bytes, shape, dtype)
}

fn n_elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

fn turned(data: TensorData, transposed: bool) -> TensorData {
    if transposed { transpose(&data) } else { data }
}

/// The part that a rule's `*` stands for if `path` is one of its parameters; empty if the rule has no `*`.
fn part<'a>(rule: &TensorRule, path: &'a str) -> Option<&'a str> {
    let paths = match rule {
        TensorRule::Copy { parameter, .. }
        | TensorRule::Transpose { parameter, .. }
        | TensorRule::Reshape { parameter, .. }
        | TensorRule::Join { parameter, .. } => std::slice::from_ref(parameter),
        TensorRule::Split { parameters, .. } => parameters,
        TensorRule::Tie { .. } => &[],
    };
    paths.iter().find_map(|pattern| match pattern.split_once('*') {
        None => (pattern == path).then_some(""),
        Some((before, after)) => {
            let part = path.strip_prefix(before)?.strip_suffix(after)?;
            (!part.is_empty() && !part.contains('.')).then_some(part)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::blocks::Linear;
    use crate::huggingface::{MAX_SHARD_SIZE, save_tensors};
    use crate::weights;
    use burn::module::Module;
    use burn::tensor::Device;

    /// The width of a small relative of GPT-2.
    const D: usize = 4;

    #[derive(Module, Debug)]
    struct Attention {
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear,
    }

    /// A decoder's layers, named as in this crate.
    #[derive(Module, Debug)]
    struct Decoder {
        layers: Vec<Attention>,
    }

    /// Layers whose keys and values have `d_kv` features.
    fn decoder(seed: u64, d_kv: usize) -> Decoder {
        let init = &mut ParamInit::new(&Device::flex(), seed).with_std(0.5);
        let layers = (0..2).map(|_| Attention {
            query: Linear::new(D, D, init),
            key: Linear::new(D, d_kv, init),
            value: Linear::new(D, d_kv, init),
            output: Linear::new(D, D, init),
        });
        Decoder { layers: layers.collect() }
    }

    /// A fused map of GPT-2: its `Conv1D` stores `[n_embd, 3 * n_embd]`, as this crate does.
    fn conv1d() -> TensorRules {
        let three = |what: &str| ["query", "key", "value"].map(|map| format!("layers.*.{map}.{what}"));
        let split = |axis, what: &str| {
            let paths = three(what);
            TensorRule::split(&format!("h.*.attn.c_attn.{what}"), axis, &paths.each_ref().map(String::as_str))
        };
        TensorRules::new()
            .with(split(1, "weight"))
            .with(split(0, "bias"))
            .with(TensorRule::copy("h.*.attn.c_proj.weight", "layers.*.output.weight"))
            .with(TensorRule::copy("h.*.attn.c_proj.bias", "layers.*.output.bias"))
            .within("transformer.", "")
            .with_optional_prefixes(["transformer."])
    }

    /// The same for a PyTorch `Linear`, which stores `[3 * d, d]`.
    fn linear() -> TensorRules {
        let weights = ["layers.*.query.weight", "layers.*.key.weight", "layers.*.value.weight"];
        let biases = ["layers.*.query.bias", "layers.*.key.bias", "layers.*.value.bias"];
        TensorRules::new()
            .with(TensorRule::split("h.*.qkv.weight", 0, &weights).transposed())
            .with(TensorRule::split("h.*.qkv.bias", 0, &biases))
            .linear("h.*.out", "layers.*.output")
    }

    fn rows(data: &TensorData) -> Vec<Vec<f32>> {
        let [_, columns] = data.shape()[..] else { panic!("a matrix") };
        data.as_slice::<f32>().unwrap().chunks(columns).map(<[f32]>::to_vec).collect()
    }

    #[test]
    fn a_fused_map_that_is_not_transposed_is_split_and_put_together() {
        let model = decoder(1, D);
        let tensors = conv1d().tensors(&model).unwrap();
        let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
        assert_eq!(names[..2], ["transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.weight"]);
        assert_eq!(names.len(), 2 * 4);

        // Row i of the file's matrix is row i of the three maps, concatenated.
        let parameters = weights::collect(&model);
        let fused = &tensors["transformer.h.1.attn.c_attn.weight"];
        assert_eq!(fused.shape().as_slice(), [D, 3 * D]);
        let of = |map: &str| rows(&parameters[&format!("layers.1.{map}.weight")]);
        for (i, row) in rows(fused).into_iter().enumerate() {
            assert_eq!(row, [&of("query")[i][..], &of("key")[i], &of("value")[i]].concat());
        }
        let output = &tensors["transformer.h.1.attn.c_proj.weight"];
        assert_eq!(output, &parameters["layers.1.output.weight"]);

        // Into another model with the same parameters, with and without the prefix.
        for prefix in ["transformer.", ""] {
            let folder = tempfile::tempdir().unwrap();
            let renamed =
                tensors.iter().map(|(name, data)| (name.replace("transformer.", prefix), data.clone()));
            save_tensors(folder.path(), &renamed.collect(), MAX_SHARD_SIZE).unwrap();
            let (loaded, report) = conv1d().load(decoder(2, D), folder.path(), &[]).unwrap();
            assert_eq!(weights::collect(&loaded), parameters);
            assert_eq!((report.missing.len(), report.unexpected.len()), (0, 0));
        }
    }

    #[test]
    fn parts_of_a_fused_map_are_as_wide_as_the_parameters_and_may_be_transposed() {
        let model = decoder(1, 2);
        let tensors = linear().tensors(&model).unwrap();
        let parameters = weights::collect(&model);
        let fused = &tensors["h.0.qkv.weight"];
        assert_eq!(fused.shape().as_slice(), [D + 2 + 2, D]);
        // The file's rows are the maps' columns.
        let columns = ["query", "key", "value"]
            .map(|map| rows(&transpose(&parameters[&format!("layers.0.{map}.weight")])));
        assert_eq!(rows(fused), columns.concat());

        let folder = tempfile::tempdir().unwrap();
        save_tensors(folder.path(), &tensors, MAX_SHARD_SIZE).unwrap();
        let (loaded, _) = linear().load(decoder(2, 2), folder.path(), &[]).unwrap();
        assert_eq!(weights::collect(&loaded), parameters);

        let wide = linear().load(decoder(2, D), folder.path(), &[]).unwrap_err().to_string();
        let expected = "tensor `h.0.qkv.weight` has shape [8, 4], the configuration asks for [12, 4]";
        assert!(wide.ends_with(expected), "{wide}");
    }

    #[test]
    fn several_tensors_are_one_parameter() {
        let parameters = NamedTensors::from([
            ("experts.weight".into(), TensorData::new((0..12).map(|i| i as f32).collect(), [2, 6])),
            ("experts.bias".into(), TensorData::new(vec![7f32, 8.0, 9.0], [3])),
        ]);
        let shapes: Vec<_> =
            parameters.iter().map(|(path, data)| (path.clone(), data.shape().to_vec())).collect();
        for transposed in [false, true] {
            let (names, axis) = (["a.weight", "b.weight", "c.weight"], usize::from(!transposed));
            let rule = TensorRule::join(&names, axis, "experts.weight");
            let rule = if transposed { rule.transposed() } else { rule };
            let rules = TensorRules::new().with(rule).with(TensorRule::join(
                &["a.bias", "b.bias", "c.bias"],
                0,
                "experts.bias",
            ));
            let stored: NamedTensors = Transfer::all(&rules, &shapes)
                .unwrap()
                .iter()
                .flat_map(|transfer| transfer.store(&mut parameters.clone()))
                .collect();
            let b = TensorData::new(vec![2f32, 3.0, 8.0, 9.0], [2, 2]);
            assert_eq!(stored["b.weight"], if transposed { transpose(&b) } else { b });
            assert_eq!(stored["c.bias"], TensorData::new(vec![9f32], [1]));
            let loaded: NamedTensors = Transfer::all(&rules, &shapes)
                .unwrap()
                .into_iter()
                .flat_map(|transfer| {
                    let shapes = transfer.shapes();
                    let tensors = transfer.tensors.iter().map(|name| stored[name].clone());
                    let tensors: Vec<TensorData> = tensors.collect();
                    assert!(tensors.iter().zip(shapes).all(|(data, shape)| data.shape()[..] == shape));
                    transfer.load(tensors)
                })
                .collect();
            assert_eq!(loaded, parameters);
        }
    }

    #[test]
    fn a_tensor_may_have_other_axes() {
        let model = decoder(1, D);
        let heads = |tensor: &str, parameter: &str| TensorRule::reshape(tensor, &[D, 2, D / 2], parameter);
        let rules = TensorRules::new()
            .with(heads("h.*.q", "layers.*.query.weight"))
            .with(heads("h.*.o", "layers.*.output.weight").transposed());
        let tensors = rules.tensors(&model).unwrap();
        let parameters = weights::collect(&model);
        assert_eq!(tensors["h.1.q"].shape().as_slice(), [D, 2, D / 2]);
        let values = |data: &TensorData| data.as_slice::<f32>().unwrap().to_vec();
        assert_eq!(values(&tensors["h.1.q"]), values(&parameters["layers.1.query.weight"]));
        assert_eq!(values(&tensors["h.1.o"]), values(&transpose(&parameters["layers.1.output.weight"])));

        let folder = tempfile::tempdir().unwrap();
        save_tensors(folder.path(), &tensors, MAX_SHARD_SIZE).unwrap();
        let (loaded, _) = rules.load(decoder(2, D), folder.path(), &[]).unwrap();
        assert_eq!(weights::collect(&loaded), parameters);

        let wide = TensorRules::new().with(TensorRule::reshape("q", &[D, 3], "layers.0.query.weight"));
        let message = wide.tensors(&model).unwrap_err().to_string();
        assert!(message.ends_with("[4, 4] does not have as many elements as [4, 3]"), "{message}");
    }

    #[test]
    fn the_star_is_one_part_of_a_path() {
        let rule = TensorRule::copy("h.*.ln.weight", "layers.*.norm.gamma");
        assert_eq!(part(&rule, "layers.11.norm.gamma"), Some("11"));
        for other in ["layers.11.norm.beta", "layers..norm.gamma", "layers.1.x.norm.gamma", "norm.gamma"] {
            assert_eq!(part(&rule, other), None, "{other}");
        }
    }

    #[test]
    fn a_part_that_is_missing_is_named_by_its_tensor() {
        let folder = tempfile::tempdir().unwrap();
        let mut tensors = conv1d().tensors(&decoder(1, D)).unwrap();
        tensors.remove("transformer.h.1.attn.c_attn.bias");
        save_tensors(folder.path(), &tensors, MAX_SHARD_SIZE).unwrap();
        let load = |new: &[&str]| conv1d().load(decoder(2, D), folder.path(), new);
        // It is not enough that one part is new.
        let message = load(&["layers.*.query.bias"]).unwrap_err().to_string();
        let expected = "1 tensors are missing, the first is `transformer.h.1.attn.c_attn.bias`, for the parameter \
                        `layers.1.key.bias`";
        assert!(message.ends_with(expected), "{message}");
        let (_, report) = load(&["layers.1.*"]).unwrap();
        assert_eq!(report.missing, ["transformer.h.1.attn.c_attn.bias"]);
    }

    #[test]
    fn rules_that_do_not_fit_the_model_are_errors() {
        let refused = |rule| TensorRules::new().with(rule).tensors(&decoder(1, 2)).unwrap_err().to_string();
        let message = refused(TensorRule::split("qk", 0, &["layers.0.query.bias", "layers.0.keys.bias"]));
        let expected =
            "the rule for the tensor `qk` has the parameter `layers.0.keys.bias`, which the model lacks";
        assert!(message.ends_with(expected), "{message}");
        let message = refused(TensorRule::split("qk", 0, &["layers.0.query.weight", "layers.0.key.weight"]));
        assert!(message.ends_with("[4, 4], [4, 2] do not fit together along axis 0"), "{message}");
        let message = refused(TensorRule::join(&["a", "b", "c"], 0, "layers.0.query.bias"));
        assert!(message.contains("the rule for the tensor `a`, `b`, `c` does not fit"), "{message}");
        let message = refused(TensorRule::join(&["a", "b"], 1, "layers.0.query.bias"));
        assert!(message.ends_with("[4] do not fit together along axis 1"), "{message}");
    }
}

use super::quantization::Found;
use crate::weights::NamedTensors;
use std::collections::BTreeMap;

/// How tensors of a file correspond to parameters of a model.
///
/// A name or a path may contain one `*`, which stands for one part between dots, such as a layer's number. It stands
/// for the same part everywhere in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorRule {
    /// The tensor is the parameter.
    Copy {
        /// The tensor's name.
        tensor: String,
        /// The parameter's path.
        parameter: String,
    },
    /// The tensor is the parameter's transpose: PyTorch stores a linear map's matrix as `[d_out, d_in]`, this crate
    /// as `[d_in, d_out]`.
    Transpose {
        /// The tensor's name.
        tensor: String,
        /// The parameter's path.
        parameter: String,
    },
    /// One tensor holds several parameters, one after another.
    Split {
        /// The tensor's name.
        tensor: String,
        /// The tensor's axis along which the parameters follow each other. The parameters' shapes say how much of it
        /// each takes.
        axis: usize,
        /// The parameters' paths, in their order in the tensor.
        parameters: Vec<String>,
        /// Whether the tensor holds the parameters' transposes.
        transposed: bool,
    },
    /// Several tensors of the same shape are concatenated into one parameter.
    Join {
        /// The tensors' names, in their order in the parameter.
        tensors: Vec<String>,
        /// The tensors' axis along which they follow each other.
        axis: usize,
        /// The parameter's path.
        parameter: String,
        /// Whether the tensors hold the parameter's transpose.
        transposed: bool,
    },
    /// The tensor has the parameter's numbers in their order, but with other axes, as where heads have an axis of their
    /// own.
    Reshape {
        /// The tensor's name.
        tensor: String,
        /// The tensor's shape.
        shape: Vec<usize>,
        /// The parameter's path.
        parameter: String,
        /// Whether the tensor holds the parameter's transpose.
        transposed: bool,
    },
    /// A file may hold one tensor under two names. Reading accepts either; saving writes only the original.
    Tie {
        /// The second name.
        copy: String,
        /// The name that has a rule with a parameter.
        original: String,
    },
}

impl TensorRule {
    /// A [copy](Self::Copy).
    pub fn copy(tensor: &str, parameter: &str) -> Self {
        Self::Copy { tensor: tensor.into(), parameter: parameter.into() }
    }

    /// A [transpose](Self::Transpose).
    pub fn transpose(tensor: &str, parameter: &str) -> Self {
        Self::Transpose { tensor: tensor.into(), parameter: parameter.into() }
    }

    /// A [split](Self::Split) along `axis` of parameters that the tensor holds as they are.
    pub fn split(tensor: &str, axis: usize, parameters: &[&str]) -> Self {
        let parameters = parameters.iter().map(|path| path.to_string()).collect();
        Self::Split { tensor: tensor.into(), axis, parameters, transposed: false }
    }

    /// A [join](Self::Join) along `axis` of tensors that hold the parameter untransposed.
    pub fn join(tensors: &[&str], axis: usize, parameter: &str) -> Self {
        let tensors = tensors.iter().map(|name| name.to_string()).collect();
        Self::Join { tensors, axis, parameter: parameter.into(), transposed: false }
    }

    /// A [tensor of this shape](Self::Reshape) that holds the parameter untransposed.
    pub fn reshape(tensor: &str, shape: &[usize], parameter: &str) -> Self {
        Self::Reshape {
            tensor: tensor.into(),
            shape: shape.to_vec(),
            parameter: parameter.into(),
            transposed: false,
        }
    }

    /// A [tie](Self::Tie).
    pub fn tie(copy: &str, original: &str) -> Self {
        Self::Tie { copy: copy.into(), original: original.into() }
    }

    /// The same rule for transposed tensors.
    ///
    /// # Panics
    /// For a [tie](Self::Tie), which has no parameter.
    pub fn transposed(mut self) -> Self {
        match &mut self {
            Self::Copy { tensor, parameter } => {
                let (tensor, parameter) = (std::mem::take(tensor), std::mem::take(parameter));
                return Self::Transpose { tensor, parameter };
            }
            Self::Transpose { .. } => (),
            Self::Split { transposed, .. }
            | Self::Join { transposed, .. }
            | Self::Reshape { transposed, .. } => *transposed = true,
            Self::Tie { .. } => panic!("a tie has no parameter that could be transposed"),
        }
        self
    }

    /// Everything that the rule names: first tensors, then parameters.
    pub(super) fn names(&self) -> (Vec<&String>, Vec<&String>) {
        match self {
            Self::Copy { tensor, parameter }
            | Self::Transpose { tensor, parameter }
            | Self::Reshape { tensor, parameter, .. } => (vec![tensor], vec![parameter]),
            Self::Split { tensor, parameters, .. } => (vec![tensor], parameters.iter().collect()),
            Self::Join { tensors, parameter, .. } => (tensors.iter().collect(), vec![parameter]),
            Self::Tie { copy, original } => (vec![copy, original], Vec::new()),
        }
    }

    /// [`names`](Self::names), to change them.
    fn names_mut(&mut self) -> (Vec<&mut String>, Vec<&mut String>) {
        match self {
            Self::Copy { tensor, parameter }
            | Self::Transpose { tensor, parameter }
            | Self::Reshape { tensor, parameter, .. } => (vec![tensor], vec![parameter]),
            Self::Split { tensor, parameters, .. } => (vec![tensor], parameters.iter_mut().collect()),
            Self::Join { tensors, parameter, .. } => (tensors.iter_mut().collect(), vec![parameter]),
            Self::Tie { copy, original } => (vec![copy, original], Vec::new()),
        }
    }
}

/// How a file's tensors become a model's parameters, and vice versa.
///
/// The [families](super::Family) have such rules for their folders. With custom rules, a folder of any architecture can
/// be loaded into a custom model. The example is the attention of GPT-2 (Radford et al. 2019), whose file has queries,
/// keys and values in one matrix that is not transposed.
///
/// ```
/// # use burn::module::Module;
/// # use burn::tensor::Device;
/// # use cloze_model::ParamInit;
/// # use cloze_model::blocks::Linear;
/// use cloze_model::huggingface::{TensorRule, TensorRules};
/// # #[derive(Module, Debug)]
/// # struct Attention { query: Linear, key: Linear, value: Linear, output: Linear }
/// # let init = &mut ParamInit::new(&Device::flex(), 1);
/// # let mut linear = || Linear::new(8, 8, init);
/// # let attention = Attention { query: linear(), key: linear(), value: linear(), output: linear() };
///
/// let rules = TensorRules::new()
///     .with(TensorRule::split("attn.c_attn.weight", 1, &["query.weight", "key.weight", "value.weight"]))
///     .with(TensorRule::split("attn.c_attn.bias", 0, &["query.bias", "key.bias", "value.bias"]))
///     .with(TensorRule::copy("attn.c_proj.weight", "output.weight"))
///     .with(TensorRule::copy("attn.c_proj.bias", "output.bias"));
/// let tensors = rules.tensors(&attention)?;
/// assert_eq!(tensors["attn.c_attn.weight"].shape().as_slice(), [8, 24]);
/// # Ok::<(), cloze_model::ModelError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TensorRules {
    rules: Vec<TensorRule>,
    optional_prefixes: Vec<String>,
    saves_copies: bool,
}

impl TensorRules {
    /// No rules: each tensor is named like its parameter, and a matrix called `weight` is transposed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule. If several rules name a parameter, the first applies.
    pub fn with(mut self, rule: TensorRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// The rules of both.
    pub fn and(mut self, other: Self) -> Self {
        self.rules.extend(other.rules);
        self.optional_prefixes.extend(other.optional_prefixes);
        self.saves_copies |= other.saves_copies;
        self
    }

    /// PyTorch's `Linear` for a [`Linear`](crate::blocks::Linear): the weight is transposed, the bias copied.
    pub fn linear(self, tensor: &str, parameter: &str) -> Self {
        self.with(TensorRule::transpose(&format!("{tensor}.weight"), &format!("{parameter}.weight")))
            .with(TensorRule::copy(&format!("{tensor}.bias"), &format!("{parameter}.bias")))
    }

    /// PyTorch's `LayerNorm` for a [`LayerNorm`](crate::blocks::LayerNorm) or a [`Norm`](crate::blocks::Norm).
    pub fn norm(self, tensor: &str, parameter: &str) -> Self {
        self.with(TensorRule::copy(&format!("{tensor}.weight"), &format!("{parameter}.gamma")))
            .with(TensorRule::copy(&format!("{tensor}.bias"), &format!("{parameter}.beta")))
    }

    /// PyTorch's `Embedding` for an [`Embedding`](crate::blocks::Embedding): a table that is looked up.
    pub fn table(self, tensor: &str, parameter: &str) -> Self {
        self.with(TensorRule::copy(&format!("{tensor}.weight"), &format!("{parameter}.weight")))
    }

    /// The same rules with prefixes before each tensor name and each parameter path, for use as a part of a model.
    pub fn within(mut self, tensors: &str, parameters: &str) -> Self {
        for rule in &mut self.rules {
            let (names, paths) = rule.names_mut();
            names.into_iter().for_each(|name| name.insert_str(0, tensors));
            paths.into_iter().for_each(|path| path.insert_str(0, parameters));
        }
        self
    }

    /// Whether a tensor's name begins with `prefix`.
    pub(super) fn has_tensor_within(&self, prefix: &str) -> bool {
        self.rules.iter().any(|rule| rule.names().0.iter().any(|tensor| tensor.starts_with(prefix)))
    }

    /// Ignores these prefixes when names are compared, in any number and order.
    pub fn with_optional_prefixes<'a>(mut self, prefixes: impl IntoIterator<Item = &'a str>) -> Self {
        self.optional_prefixes.extend(prefixes.into_iter().map(str::to_string));
        self
    }

    /// The rules of a model whose output projection is the parameter at `path` in place of the tensor that it was tied to.
    ///
    /// Its bias is the one that is called like the projection, where a file has two that differ, as in transformers 5; both are
    /// saved, for transformers 4 reads the other one.
    pub(super) fn untied(mut self, path: &str) -> Self {
        self.saves_copies = true;
        let mut biases = Vec::new();
        for rule in &mut self.rules {
            let TensorRule::Tie { copy, original } = rule else { continue };
            if copy.ends_with(".weight") {
                *rule = TensorRule::transpose(&std::mem::take(copy), path);
            } else {
                std::mem::swap(copy, original);
                biases.push((copy.clone(), original.clone()));
            }
        }
        for rule in &mut self.rules {
            let TensorRule::Copy { tensor, .. } = rule else { continue };
            if let Some((_, own)) = biases.iter().find(|(other, _)| other == tensor) {
                tensor.clone_from(own);
            }
        }
        self
    }

    /// The rules of a model whose tensors with two names are saved under both.
    pub(super) fn saving_copies(mut self) -> Self {
        self.saves_copies = true;
        self
    }

    /// The names of an output projection and of the table that it would be tied to, where `tensors` has both and they differ;
    /// `is_projection` tells by a copy's name whether it is one.
    pub(super) fn own_projection(
        &self,
        tensors: &NamedTensors,
        is_projection: impl Fn(&str) -> bool,
    ) -> Option<(String, String)> {
        let of = |name: &str| {
            let canonical = self.canonical(name);
            tensors.iter().find(|(found, _)| self.canonical(found) == canonical)
        };
        self.rules.iter().find_map(|rule| {
            let TensorRule::Tie { copy, original } = rule else { return None };
            if !is_projection(copy) {
                return None;
            }
            let ((copy, data), (original, same)) = (of(copy)?, of(original)?);
            (data != same).then(|| (copy.clone(), original.clone()))
        })
    }

    /// Adds the copies that are saved too.
    pub(super) fn add_copies(&self, tensors: &mut NamedTensors) {
        for rule in self.rules.iter().filter(|_| self.saves_copies) {
            if let TensorRule::Tie { copy, original } = rule
                && let Some(data) = tensors.get(original)
            {
                tensors.insert(copy.clone(), data.clone());
            }
        }
    }

    /// The rules.
    pub(super) fn rules(&self) -> &[TensorRule] {
        &self.rules
    }

    /// The canonical form of a name, in which names are compared: without [optional
    /// prefixes](Self::with_optional_prefixes), and with the current names of a layer norm's parameters.
    pub(super) fn canonical(&self, name: &str) -> String {
        let mut name = name;
        while let Some(inner) =
            self.optional_prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str()))
        {
            name = inner;
        }
        modern(name)
    }

    /// Of a tensor with two names, one is kept: a copy gets the original's name if the original is missing. A copy that
    /// differs keeps its own name, and so is left over, which is told.
    pub(super) fn untie(&self, found: &mut BTreeMap<String, (String, Found)>) {
        for rule in &self.rules {
            let TensorRule::Tie { copy, original } = rule else { continue };
            let (copy, original) = (self.canonical(copy), self.canonical(original));
            match (found.remove(&copy), found.get(&original)) {
                (Some(copy), None) => _ = found.insert(original, copy),
                (Some((_, data)), Some((_, same))) if data == *same => {}
                (Some(other), Some((original, _))) => {
                    tracing::warn!(
                        "`{}` differs from `{original}`, which the model uses in its place",
                        other.0
                    );
                    found.insert(copy, other);
                }
                (None, _) => {}
            }
        }
    }
}

/// Checkpoints converted from TensorFlow call scale and shift `gamma` and `beta`, as this crate does.
fn modern(name: &str) -> String {
    let renamed = |old, new| Some(format!("{}{new}", name.strip_suffix(old)?));
    renamed(".gamma", ".weight").or_else(|| renamed(".beta", ".bias")).unwrap_or_else(|| name.to_string())
}

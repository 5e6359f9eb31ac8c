use super::{Embedding, InferenceWeight, Linear, NormedLinear};
use crate::huggingface::Integers;
use burn::tensor::Tensor;
use std::collections::BTreeMap;
use std::fmt::Display;

/// A module that lists its linear maps; [`linear_maps!`](crate::linear_maps) implements it.
///
/// [`pack_weights`], [`quantize_int8`], [`LoraConfig::attach`](super::LoraConfig::attach) and
/// [`merge_lora`](super::merge_lora) are functions over it.
pub trait LinearMaps {
    /// Every [`Linear`] and [`NormedLinear`] in the module, heads and projections included, and
    /// [tied projections](LinearMapKind::Tied). New adapters are drawn in this order.
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>>;

    /// The tables of pieces, with their paths: those that a file may hold as integers.
    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        Vec::new()
    }
}

/// A linear map in a module.
#[derive(Debug)]
#[non_exhaustive]
pub struct LinearMap<'a> {
    /// The path in the module, as in [`weights`](crate::weights) but without the parameter's own name: the weight of
    /// `encoder.layers.0.attention.query` is `encoder.layers.0.attention.query.weight`.
    pub path: String,
    /// The map.
    pub kind: LinearMapKind<'a>,
    /// Whether [`pack_weights`], [`quantize_int8`] and adapters apply to the map. The model decides: they
    /// apply to the maps of layers and to the output projections of generative models. They do not apply to
    /// embeddings and heads, to the separate maps of [disentangled](super::Disentangled) attention, or to the
    /// recurrent parts of recurrent encoder–decoders.
    pub is_convertible: bool,
}

/// The kinds of linear maps.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinearMapKind<'a> {
    /// A map with a weight of its own. Only these can have adapters.
    Plain(&'a mut Linear),
    /// A map whose weight is computed from a direction and a length.
    Normed(&'a mut NormedLinear),
    /// A projection onto the vocabulary whose weight is the transposed embedding table. It has no parameter of its own,
    /// so its path is the table's. Only models that can store the table for inference list it.
    Tied {
        /// The table.
        table: &'a Embedding,
        /// The transposed table, if it is stored for inference.
        stored: &'a mut Option<InferenceWeight>,
    },
}

impl<'a> LinearMap<'a> {
    fn new(path: String, kind: LinearMapKind<'a>) -> Self {
        Self { path, kind, is_convertible: true }
    }

    /// The maps of a field.
    pub fn of(field: impl Display, module: &'a mut impl LinearMaps) -> impl Iterator<Item = Self> {
        module.linear_maps_mut().into_iter().map(move |map| {
            let separator = if map.path.is_empty() { "" } else { "." };
            Self { path: format!("{field}{separator}{}", map.path), ..map }
        })
    }

    /// The maps of a field that are not [convertible](Self::is_convertible).
    pub fn kept(field: &'static str, module: &'a mut impl LinearMaps) -> impl Iterator<Item = Self> {
        Self::of(field, module).map(|map| Self { is_convertible: false, ..map })
    }

    /// The projection onto the vocabulary: the field `output`, else the one tied to `table`.
    pub(crate) fn of_output(
        output: &'a mut Option<impl LinearMaps>,
        (field, table): (&'static str, &'a Embedding),
        stored: &'a mut Option<InferenceWeight>,
    ) -> impl Iterator<Item = Self> {
        let tied = output.is_none().then(|| Self::new(field.into(), LinearMapKind::Tied { table, stored }));
        Self::of("output", output).chain(tied)
    }

    fn store(self, form: fn(Tensor<2>) -> InferenceWeight) {
        match self.kind {
            LinearMapKind::Plain(map) => map.store(form(map.weight.val())),
            LinearMapKind::Normed(map) => map.inference = Some(form(map.weight())),
            LinearMapKind::Tied { table, stored } => *stored = Some(form(table.weight.val().transpose())),
        }
    }

    /// Whether its weight is the integers of a file, which have no gradient.
    pub fn is_stored(&self) -> bool {
        let inference = match &self.kind {
            LinearMapKind::Plain(map) => &map.inference,
            LinearMapKind::Normed(map) => &map.inference,
            LinearMapKind::Tied { stored, .. } => stored,
        };
        inference.as_ref().is_some_and(|weight| weight.integers().is_some())
    }
}

/// Packs the weights of the [convertible](LinearMap::is_convertible) maps for matrix products, see
/// [`ops::linear_packed`](crate::ops::linear_packed), for inference only. The parameters do not change; later
/// changes to them have no effect. A weight that is packed in FP32 is in memory once, until somebody asks for the parameter; in
/// bf16 it needs half as much memory again. Short texts take half the time or less. Integers of a file stay as they are.
pub fn pack_weights(module: &mut impl LinearMaps) {
    store(module, InferenceWeight::packed);
}

/// Quantises the [convertible](LinearMap::is_convertible) maps to 8 bits, see
/// [`ops::linear_integer`](crate::ops::linear_integer), for inference only. The parameters do not change; later
/// changes to them have no effect. Each output has a scale for its weights, and each token one for its
/// activations, computed on the fly. Everything else stays in FP32, embeddings included. Integers of a file stay as they
/// are.
pub fn quantize_int8(module: &mut impl LinearMaps) {
    store(module, InferenceWeight::int8);
}

fn store(module: &mut impl LinearMaps, form: fn(Tensor<2>) -> InferenceWeight) {
    let maps = module.linear_maps_mut().into_iter();
    maps.filter(|map| map.is_convertible && !map.is_stored()).for_each(|map| map.store(form));
}

/// Gives the maps and tables of a module the integers that were read for them, by the paths of their weights within
/// `prefix`. Returns what is left, whose parameters are floats.
pub(crate) fn set_integers(module: &mut impl LinearMaps, prefix: &str, mut integers: Integers) -> Integers {
    let mut of_tables = BTreeMap::new();
    for (path, table) in module.tables_mut() {
        let path = format!("{prefix}{path}.weight");
        if let Some((tensor, false)) = integers.remove(&path) {
            table.set_integers(tensor.clone());
            of_tables.insert(path, tensor);
        }
    }
    for map in module.linear_maps_mut() {
        let path = format!("{prefix}{}.weight", map.path);
        match map.kind {
            LinearMapKind::Plain(map) => {
                if let Some((tensor, _)) = integers.remove(&path).filter(|(_, transposed)| *transposed) {
                    map.inference = Some(InferenceWeight::stored(&tensor, &map.weight.lazy_device()));
                }
            }
            LinearMapKind::Normed(_) => {}
            LinearMapKind::Tied { table, stored } => {
                if let Some(tensor) = of_tables.get(&path) {
                    *stored = Some(InferenceWeight::stored(tensor, &table.weight.lazy_device()));
                }
            }
        }
    }
    integers
}

/// Implements [`LinearMaps`](crate::blocks::LinearMaps) for a struct: the maps of the named fields. Those of
/// fields after a semicolon are not [convertible](crate::blocks::LinearMap::is_convertible).
///
/// ```
/// # use burn::module::Module;
/// # use burn::tensor::Device;
/// # use cloze_model::ParamInit;
/// use cloze_model::blocks::{FeedForward, FeedForwardConfig, Activation, Linear, LinearMaps};
///
/// #[derive(Module, Debug)]
/// struct Scorer {
///     layers: Vec<FeedForward>,
///     score: Linear,
/// }
///
/// cloze_model::linear_maps!(Scorer { layers; score });
///
/// # let init = &mut ParamInit::new(&Device::flex(), 1);
/// # let layers = vec![FeedForwardConfig::new(8, 32, Activation::Gelu).init(init)];
/// let mut scorer = Scorer { layers, score: Linear::new(8, 1, init) };
/// let paths: Vec<String> = scorer.linear_maps_mut().into_iter().map(|map| map.path).collect();
/// assert_eq!(paths, ["layers.0.up", "layers.0.down", "score"]);
/// ```
#[macro_export]
macro_rules! linear_maps {
    ($module:ident $(<$($part:ident: $bound:path),+>)? { $($field:ident),* $(; $($kept:ident),+)? }) => {
        impl $(<$($part: $bound),+>)? $crate::blocks::LinearMaps for $module $(<$($part),+>)? {
            fn linear_maps_mut(&mut self) -> ::std::vec::Vec<$crate::blocks::LinearMap<'_>> {
                let Self { $($field,)* $($($kept,)+)? .. } = self;
                ::std::iter::empty()
                    $(.chain($crate::blocks::LinearMap::of(stringify!($field), $field)))*
                    $($(.chain($crate::blocks::LinearMap::kept(stringify!($kept), $kept)))+)?
                    .collect()
            }
        }
    };
}

impl LinearMaps for Linear {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        vec![LinearMap::new(String::new(), LinearMapKind::Plain(self))]
    }
}

impl LinearMaps for NormedLinear {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        vec![LinearMap::new(String::new(), LinearMapKind::Normed(self))]
    }
}

impl<M: LinearMaps> LinearMaps for Option<M> {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        self.iter_mut().flat_map(M::linear_maps_mut).collect()
    }
}

impl<M: LinearMaps> LinearMaps for Vec<M> {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        self.iter_mut().enumerate().flat_map(|(number, module)| LinearMap::of(number, module)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::awd_lstm::{AwdLstmClassifierConfig, AwdLstmConfig, StreamMemory, StreamedAwdLstm};
    use crate::bert::{BertConfig, ElectraConfig, MlmHead};
    use crate::blocks::{Activation, DisentangledConfig, ScalarMixConfig, TransformerXlConfig};
    use crate::elmo::{ElmoClassifierConfig, ElmoTaggerConfig, small_elmo};
    use crate::gpt::GptConfig;
    use crate::probes::{ClassProbe, MixedProbe};
    use crate::recurrent::{Cell, Reading};
    use crate::scores::ScoreKind;
    use crate::seq2seq::{
        AnyEncoderDecoderConfig, ConvolutionalEncoderDecoderConfig, RecurrentEncoderDecoderConfig,
        TiedEmbeddings, TransformerConfig,
    };
    use crate::tasks::*;
    use crate::weights::ModulePath;
    use crate::xlnet::XlnetConfig;
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::Device;
    use std::collections::BTreeSet;

    /// The paths of all maps in the module tree.
    #[derive(Default)]
    struct Maps {
        path: ModulePath,
        /// The fields on the way, each with its container.
        fields: Vec<[String; 2]>,
        found: BTreeSet<String>,
    }

    impl ModuleVisitor for Maps {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
            self.fields.push([name, container].map(str::to_owned));
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
            self.fields.pop();
        }

        fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<D>>) {
            let [name, container] = self.fields.last().unwrap();
            if ["Struct:Linear.weight", "Struct:NormedLinear.v"].contains(&&*format!("{container}.{name}")) {
                let path = self.path.to_string();
                self.found.insert(path[..path.len() - name.len()].trim_end_matches('.').into());
            }
        }
    }

    fn init() -> ParamInit {
        ParamInit::new(&Device::flex(), 1).deferred()
    }

    /// Checks that `model` lists the maps of its module tree, and that the convertible ones are `n_convertible`, all of
    /// which are under `prefix`.
    fn check<M: Module + LinearMaps>(mut model: M, prefix: &str, n_convertible: usize) {
        let mut maps = Maps::default();
        model.visit(&mut maps);
        let name = std::any::type_name::<M>();
        let mut found = BTreeSet::new();
        let mut convertible = Vec::new();
        for map in model.linear_maps_mut() {
            if map.is_convertible {
                convertible.push(map.path.clone());
            }
            if !matches!(map.kind, LinearMapKind::Tied { .. }) {
                assert!(found.insert(map.path.clone()), "{name}: `{}` twice", map.path);
            }
        }
        assert!(!found.is_empty(), "{name}");
        assert_eq!(found, maps.found, "{name}");
        assert_eq!(convertible.len(), n_convertible, "{name}: {convertible:?}");
        assert!(convertible.iter().all(|path| path.starts_with(prefix)), "{name}: {convertible:?}");
    }

    #[test]
    fn encoders_list_every_map_and_convert_those_of_their_layers() {
        let plain = BertConfig { n_heads: 2, ..BertConfig::new(31, 2, 8) };
        let own_maps = DisentangledConfig { share_maps: false, ..DisentangledConfig::v3() };
        let all = BertConfig {
            gated: true,
            d_embedding: Some(4),
            mlm_tied: false,
            disentangled: Some(own_maps),
            ..plain.clone()
        };
        let by_distance =
            BertConfig { transformer_xl: Some(TransformerXlConfig::default()), ..plain.clone() };
        check(by_distance.init_encoder(&mut init()), "encoder.layers.", 2 * 7);
        check(plain.init(&mut init()).with_span_boundary(&plain, &mut init()), "bert.encoder.layers.", 2 * 6);
        for (config, n) in [(&plain, 2 * 6), (&all, 2 * 7)] {
            let init = &mut init();
            check(config.init_encoder(init), "encoder.layers.", n);
            check(config.init(init), "bert.encoder.layers.", n);
            let bert = || config.init_encoder(&mut self::init());
            let transform = Some(HeadTransform::new(config, init));
            let output = Linear::new(8, 2, init);
            let head = SequenceHead::new(8, 2, 0.0, init).with_dense(Activation::Gelu, init);
            let mlm = MlmHead::new(config, init);
            check(BertForMaskedLm { bert: bert(), mlm }, "bert.encoder.layers.", n);
            check(BertForMultipleChoice { bert: bert(), head: head.clone() }, "bert.encoder.layers.", n);
            check(BertForSequenceClassification::new(bert(), head), "bert.encoder.layers.", n);
            let (of_spans, of_words) = (transform.clone(), output.clone());
            check(
                BertForQuestionAnswering { bert: bert(), transform: of_spans, output: of_words },
                "bert.encoder.layers.",
                n,
            );
            let tagger =
                BertForTokenClassification { bert: bert(), transform, output, crf: None, dropout: 0.0 };
            check(tagger, "bert.encoder.layers.", n);
        }
        let electra = ElectraConfig::new(plain, 0.5).unwrap().init(&mut init());
        check(electra.discriminator.clone(), "bert.encoder.layers.", 2 * 6);
        check(electra, "", 4 * 6);
        let xlnet = XlnetConfig { n_heads: 2, ..XlnetConfig::new(31, 2, 8) };
        check(xlnet.init_encoder(&mut init()), "layers.", 2 * 7);
        check(xlnet.init(&mut init()), "xlnet.layers.", 2 * 7);
        let probe = ClassProbe::new(8, Some(4), 3, &mut init());
        check(MixedProbe { mix: ScalarMixConfig::new(2).init(&mut init()), probe }, "probe.", 2);
    }

    #[test]
    fn recurrent_models_list_every_map() {
        let init = &mut init();
        let awd_lstm = AwdLstmConfig { n_layers: 2, ..AwdLstmConfig::new(31) };
        check(awd_lstm.init_encoder(init), "layers.", 2);
        check(AwdLstmClassifierConfig::new(awd_lstm.clone(), 3).init(init), "encoder.layers.", 2);
        let memory = StreamMemory::new(&awd_lstm, 1, &Device::flex());
        check(StreamedAwdLstm { model: awd_lstm.init(init), memory }, "model.encoder.layers.", 2);
        check(small_elmo().init(init), "encoder.layers.", 4);
        check(ElmoClassifierConfig::new(small_elmo(), 3).init(init), "encoder.layers.", 4);
        check(ElmoTaggerConfig::new(small_elmo(), 3).init(init), "encoder.layers.", 4);
        let encoder = RecurrentEncoderConfig {
            vocab_size: 31,
            cell: Cell::Lstm,
            d_embedding: 8,
            d_model: 8,
            n_layers: 2,
            reading: Reading::Both,
            dropout: 0.0,
        };
        check(
            RecurrentTaggerConfig { encoder: encoder.clone(), n_tags: 3, crf: true }.init(init),
            "encoder.layers.",
            4,
        );
        let pooling = RecurrentPooling::Attention;
        check(RecurrentClassifierConfig { encoder, pooling, n_outputs: 3 }.init(init), "encoder.layers.", 4);
    }

    #[test]
    fn models_that_write_convert_their_projection_too() {
        let tied = GptConfig::gpt2(31, 2, 8);
        let own = GptConfig { tied: false, gated: true, ..tied.clone() };
        check(tied.init(&mut init()), "", 2 * 6 + 1);
        check(own.init(&mut init()), "", 2 * 7 + 1);
        for tied in [TiedEmbeddings::All, TiedEmbeddings::None] {
            let check = |config: AnyEncoderDecoderConfig, n| check(config.init(&mut init()), "", n);
            check(TransformerConfig::new(31, 2, 8).with_tied(tied).into(), 2 * 6 + 2 * 10 + 1);
            let config = ConvolutionalEncoderDecoderConfig::new(31, 6, 8);
            let config = ConvolutionalEncoderDecoderConfig {
                n_encoder_layers: 2,
                n_decoder_layers: 1,
                tied,
                ..config
            };
            check(config.into(), 4 + 2 + 3 + 1);
            let scores = [ScoreKind::Additive, ScoreKind::Dot, ScoreKind::General, ScoreKind::Location];
            for (score, max_source_tokens) in scores.into_iter().zip([None, None, None, Some(9)]) {
                let config = RecurrentEncoderDecoderConfig {
                    score,
                    tied,
                    ..RecurrentEncoderDecoderConfig::new(31, 8, 8)
                };
                let config = RecurrentEncoderDecoderConfig { max_source_tokens, ..config };
                check(config.into(), 1 + usize::from(tied == TiedEmbeddings::None));
            }
        }
    }

    #[test]
    fn a_tied_projection_has_its_tables_path() {
        let mut gpt = GptConfig::gpt2(31, 1, 8).init(&mut init());
        let maps = gpt.linear_maps_mut();
        let tied = maps.iter().find(|map| matches!(map.kind, LinearMapKind::Tied { .. })).unwrap();
        assert_eq!((tied.path.as_str(), tied.is_convertible), ("tokens", true));
    }
}

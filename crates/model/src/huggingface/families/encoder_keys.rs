//! Keys of `config.json` that only some families have, and that errors name for any.

/// The key of [`BertConfig::causal`](crate::bert::BertConfig::causal).
pub(super) const IS_DECODER: &str = "is_decoder";

/// The key of the language that texts are in, see [`BertConfig::language`](crate::bert::BertConfig::language). XLM has it;
/// in the folders of other families transformers leaves it alone.
pub(super) const LANGUAGE: &str = "lang_id";

/// The key of [`LayerGroups::n_groups`](crate::bert::LayerGroups::n_groups).
pub(super) const GROUPS: &str = "num_hidden_groups";

/// The key of [`LayerGroups::n_inner_layers`](crate::bert::LayerGroups::n_inner_layers).
pub(super) const INNER_LAYERS: &str = "inner_group_num";

/// The key of [`ResidualConvolutionConfig::kernel`](crate::blocks::ResidualConvolutionConfig::kernel); 0 stands
/// for no convolution.
pub(super) const KERNEL: &str = "conv_kernel_size";

/// The key of [`ResidualConvolutionConfig::n_groups`](crate::blocks::ResidualConvolutionConfig::n_groups).
pub(super) const CONVOLUTION_GROUPS: &str = "conv_groups";

/// T5's key of [`RelativeBiasConfig::n_buckets`](crate::blocks::RelativeBiasConfig::n_buckets), and its default.
pub(super) const BUCKETS: (&str, usize) = ("relative_attention_num_buckets", 32);

/// T5's key of [`RelativeBiasConfig::max_distance`](crate::blocks::RelativeBiasConfig::max_distance), and its default.
pub(super) const FARTHEST: (&str, usize) = ("relative_attention_max_distance", 128);

/// T5's key of [`BertConfig::d_head`](crate::bert::BertConfig::d_head), and its default.
pub(super) const HEAD: (&str, usize) = ("d_kv", 64);

use super::fields::Fields;
use super::{Format, PretrainedConfig};
use crate::Result;
use crate::awd_lstm::{AwdLstmClassifierConfig, AwdLstmConfig};
use crate::elmo::{ElmoClassifierConfig, ElmoConfig, ElmoTaggerConfig};
use crate::gpt::GptConfig;
use crate::seq2seq::{ConvolutionalEncoderDecoderConfig, RecurrentEncoderDecoderConfig, TransformerConfig};
use crate::tasks::{RecurrentClassifierConfig, RecurrentTaggerConfig};
use crate::vision::{ImageClassifierConfig, MaeConfig, ResNetClassifierConfig, ResNetConfig, VitConfig};
use crate::xlnet::XlnetConfig;

/// Reads a file of this `model_type` as every model that it may describe, without a check of the keys that nothing asks
/// for; last as an encoder. A T5's describes an encoder as well as an encoder–decoder.
pub(super) fn read_as_all(fields: &Fields, model_type: &str) -> Vec<Result<()>> {
    fn as_one<C: Format>(fields: &Fields, model_type: &str) -> Option<Result<()>> {
        C::MODEL_TYPES.contains(&model_type).then(|| C::read(fields).map(drop))
    }
    let published = [
        as_one::<GptConfig>,
        as_one::<TransformerConfig>,
        as_one::<XlnetConfig>,
        as_one::<RecurrentEncoderDecoderConfig>,
        as_one::<ConvolutionalEncoderDecoderConfig>,
        as_one::<RecurrentClassifierConfig>,
        as_one::<RecurrentTaggerConfig>,
        as_one::<AwdLstmConfig>,
        as_one::<AwdLstmClassifierConfig>,
        as_one::<ElmoConfig>,
        as_one::<ElmoClassifierConfig>,
        as_one::<ElmoTaggerConfig>,
        as_one::<ImageClassifierConfig>,
        as_one::<MaeConfig>,
        as_one::<VitConfig>,
        as_one::<ResNetClassifierConfig>,
        as_one::<ResNetConfig>,
    ];
    let published = published.iter().filter_map(|read| read(fields, model_type));
    published.chain([PretrainedConfig::of(fields).map(drop)]).collect()
}

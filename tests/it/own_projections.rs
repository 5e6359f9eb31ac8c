//! Folders whose output projection is a tensor of its own although `tie_word_embeddings` is true, and T5's scaling, against
//! transformers 5: `tests/fixtures/own_projections/export.py`.

use crate::golden::{Golden, fixture, relative_error};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::bert::{BertInput, MlmHead};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{
    Architecture, FloatType, LoadReport, PretrainedFolder, SaveConfig, load_published, read_tensors,
    save_pretrained, save_published,
};
use cloze_model::seq2seq::{EncoderDecoder, TransformerConfig};
use cloze_model::tasks::BertForMaskedLm;
use cloze_model::{ParamInit, Sequences};
use std::path::Path;

fn ids(golden: &Golden, name: &str) -> Sequences {
    let ids: Vec<i32> = golden.data(name).iter::<i32>().collect();
    [ids.as_slice()].into_iter().collect()
}

/// The logits of the folder's model, which is saved in `saved`.
fn logits(folder: &Path, golden: &Golden, saved: &Path) -> TensorData {
    let device = Device::flex();
    let init = &mut ParamInit::new(&device, 1);
    let source = ids(golden, "input_ids");
    if golden.has("decoder_input_ids") {
        let (config, model, report) = load_published::<TransformerConfig>(folder, init).unwrap();
        assert_eq!(report, LoadReport::default());
        save_published(saved, &model, &config, FloatType::F32).unwrap();
        return model.logits(&source, &ids(golden, "decoder_input_ids"), &device).into_data();
    }
    match load_published::<GptConfig>(folder, init) {
        Ok((config, model, report)) => {
            assert_eq!(report, LoadReport::default());
            save_published(saved, &model, &config, FloatType::F32).unwrap();
            model.logits(&source, &device).into_data()
        }
        Err(_) => {
            let pretrained = PretrainedFolder::open(folder).unwrap();
            let (config, save) =
                (pretrained.encoder(Architecture::MaskedLm), SaveConfig::from(&pretrained.config));
            let model = BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
            let (model, report) = pretrained.load_into(model, Architecture::MaskedLm, &[]).unwrap();
            // `untied` has a second bias, which its class in transformers 5 does not use.
            assert!(report.missing.is_empty(), "{report:?}");
            assert!(report.unexpected.iter().all(|name| name == "cls.predictions.bias"), "{report:?}");
            save_pretrained(saved, &model, &config, &save).unwrap();
            let n = source.ids().len();
            let positions = Tensor::<1, Int>::arange(0..n as i64, &device);
            model.forward(BertInput::packed(source.ids(), &[n], &device), positions).into_data()
        }
    }
}

#[test]
fn a_projection_that_differs_from_the_embeddings_is_used() {
    for name in ["t5", "t5_scaled", "mt5", "bart", "gpt2", "qwen2", "bert", "roberta", "untied"] {
        let folder = fixture("own_projections").join(name);
        let golden = Golden::open(&folder);
        let expected = golden.data("logits");
        let n = expected.shape().as_slice().to_vec();
        let expected = TensorData::new(expected.iter::<f32>().collect(), [n[1], n[2]]);
        let saved = tempfile::tempdir().unwrap();
        let found = logits(&folder, &golden, saved.path());
        let error = relative_error(&found, &expected);
        assert!(error < 1e-4, "{name}: off by {error}");

        // What is saved computes the same, and has what transformers 4 needs for it.
        let again = tempfile::tempdir().unwrap();
        assert_eq!(logits(saved.path(), &golden, again.path()), found, "{name}");
        let tensors = read_tensors(&saved.path().join("model.safetensors")).unwrap();
        let bias = "cls.predictions.decoder.bias";
        assert_eq!(tensors.contains_key(bias), matches!(name, "bert" | "untied"), "{name}");
        let json = std::fs::read_to_string(saved.path().join("config.json")).unwrap();
        assert!(json.contains("\"tie_word_embeddings\": false"), "{name}: {json}");
    }
}

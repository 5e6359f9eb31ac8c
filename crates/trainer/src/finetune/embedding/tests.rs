//! Losses compared with sentence-transformers', and chunked gradients with those of the whole batch.

use super::losses::{
    Cosent, CosineRegression, Distillation, GuidedNegatives, InBatchNegatives, Matryoshka, PairClasses,
    Triplet, TripletDistance,
};
use super::*;
use crate::engine::gradients::global_norm;
use crate::engine::gradients_by_rows;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tolerance;
use cloze_data::derive_seed;
use cloze_model::HasBackbone;
use cloze_model::bert::Pooling;
use serde_json::Value;

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/embedding_losses/golden.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn table(value: &Value) -> TensorData {
    let rows = value.as_array().unwrap();
    let numbers: Vec<f32> =
        rows.iter().flat_map(|row| row.as_array().unwrap()).map(|x| x.as_f64().unwrap() as f32).collect();
    let width = numbers.len() / rows.len();
    TensorData::new(numbers, [rows.len(), width])
}

#[test]
fn losses_and_gradients_are_those_of_sentence_transformers() {
    let golden = golden();
    let device = Device::flex().autodiff();
    let tensor = |value: &Value| Tensor::<2>::from_data(table(value), &device);
    let scores: Vec<f64> = golden["scores"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let n = scores.len();
    let rank = InBatchNegatives { temperature: 0.05, symmetric: false };
    let cases: [(&str, Box<dyn EmbeddingLoss>); 12] = [
        ("in-batch", Box::new(rank)),
        ("in-batch-negatives", Box::new(rank)),
        ("symmetric", Box::new(InBatchNegatives { symmetric: true, ..rank })),
        ("guided", Box::new(GuidedNegatives { temperature: 0.1, margin: 0.0 })),
        ("guided-negatives", Box::new(GuidedNegatives { temperature: 0.1, margin: 0.1 })),
        ("triplet-euclidean", Box::new(Triplet { distance: TripletDistance::Euclidean, margin: 1.0 })),
        ("triplet-cosine", Box::new(Triplet { distance: TripletDistance::Cosine, margin: 0.5 })),
        ("cosine", Box::new(CosineRegression { max_score: 1.0 })),
        ("cosent", Box::new(Cosent { temperature: 0.05 })),
        ("softmax", Box::new(PairClasses)),
        ("distillation", Box::new(Distillation)),
        ("matryoshka", Box::new(Matryoshka { loss: rank, widths: vec![(6, 1.0), (3, 0.5)] })),
    ];
    let classes: Vec<usize> =
        golden["classes"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect();
    let classifier = |of: &Value| {
        let bias: Vec<f32> =
            of["bias"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
        (tensor(&of["weight"]).transpose(), Tensor::<1>::from_data(bias.as_slice(), &device))
    };
    let (weight, bias) = classifier(&golden["classifier"]);
    let map = Linear::from_parts(Param::from_tensor(weight), Some(Param::from_tensor(bias)));
    let owners: Vec<usize> = (0..n).collect();
    for (name, loss) in cases {
        let case = &golden["cases"][name];
        let expected = case["gradients"].as_array().unwrap();
        let n_columns = expected.len();
        let columns: Vec<Tensor<2>> = ["first", "second", "negatives"]
            .iter()
            .take(n_columns)
            .map(|column| tensor(&golden[*column]).require_grad())
            .collect();
        let owners = if n_columns == 3 { &owners[..] } else { &[] };
        let mut batch = EmbeddingBatch::of_rows(Tensor::cat(columns.clone(), 0), n, true, owners, &scores);
        (batch.classes, batch.classifier) = (&classes, Some(&map));
        let guides = golden["guides"].as_array().unwrap().iter().take(n_columns).map(tensor).collect();
        batch.reference =
            Some(Box::new(EmbeddingBatch::of_rows(Tensor::cat(guides, 0), n, true, owners, &scores)));
        let found = loss.mean(&batch);
        let value = found.clone().into_data().iter::<f64>().next().unwrap();
        let right = case["loss"].as_f64().unwrap();
        assert!((value - right).abs() < 1e-4 * right.abs().max(1.0), "{name}: {value}, expected {right}");
        let gradients = found.backward();
        for (column, expected) in columns.iter().zip(expected) {
            let found = column.grad(&gradients).unwrap().into_data();
            found.assert_approx_eq::<f32>(&table(expected), Tolerance::absolute(1e-4));
        }
        if name == "softmax" {
            let (weight, bias) = classifier(&golden["classifier"]["gradients"]);
            let tolerance = Tolerance::absolute(1e-4);
            let found = map.weight.val().grad(&gradients).unwrap().into_data();
            found.assert_approx_eq::<f32>(&weight.into_data(), tolerance);
            let found = map.bias.as_ref().unwrap().val().grad(&gradients).unwrap().into_data();
            found.assert_approx_eq::<f32>(&bias.into_data(), tolerance);
        }
    }
}

fn features(ids: &[&[i32]]) -> EmbeddingFeatures {
    let sequence =
        |ids: &&[i32]| TokenSequence { input_ids: ids.to_vec(), token_type_ids: vec![0; ids.len()] };
    EmbeddingFeatures {
        sequences: ids.iter().map(sequence).collect(),
        has_pair: ids.len() > 1,
        score: None,
        class: None,
        keys: Vec::new(),
        reference: Vec::new(),
        truncated: false,
    }
}

const SYMMETRIC: LossSection = LossSection::InBatchNegatives { temperature: 0.05, symmetric: true };

fn task(loss: LossSection, chunk: Option<usize>) -> EmbeddingTask {
    let mut section = EmbeddingSection::new(loss);
    (section.chunk, section.pooling, section.normalize) = (chunk, Some(Pooling::Mean), Some(true));
    let loss = section.loss();
    EmbeddingTask::new(section, loss, SentenceConfig::default(), SimilarityKind::Pairs).unwrap()
}

fn model(dropout: f64, device: &Device) -> SentenceEncoder {
    let mut config = BertConfig::new(31, 2, 8).with_d_ff(12).with_n_heads(2);
    (config.hidden_dropout, config.attention_dropout) = (dropout, dropout);
    config.init_encoder(&mut ParamInit::new(device, 7).with_std(0.4)).into()
}

/// The largest difference between two models' gradients.
fn difference(model: &SentenceEncoder, a: &GradientsParams, b: &GradientsParams) -> f64 {
    struct Difference<'a>(&'a GradientsParams, &'a GradientsParams, f64);

    impl ModuleVisitor for Difference<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let of = |gradients: &GradientsParams| gradients.get::<D>(param.id);
            match (of(self.0), of(self.1)) {
                (Some(a), Some(b)) => {
                    let all = (a - b).abs().into_data();
                    self.2 = all.iter::<f64>().fold(self.2, f64::max);
                }
                (None, None) => {}
                _ => self.2 = f64::INFINITY,
            }
        }
    }

    let mut visitor = Difference(a, b, 0.0);
    model.visit(&mut visitor);
    visitor.2
}

#[test]
fn a_pair_that_shares_a_text_is_no_wrong_answer() {
    let example = |text: &str, pair: &str| SentenceExample {
        text: text.into(),
        pair: Some(pair.into()),
        negatives: Vec::new(),
        score: None,
        class: None,
    };
    // The second texts of the first two are one; to `b` that of `c` is more like.
    let examples = [example("a", "x"), example("b", "x"), example("c", "y")];
    let (x, y) = (vec![1.0, 0.0], vec![0.0, 1.0]);
    let outputs = [vec![x.clone(), x.clone()], vec![vec![0.6, 0.8], x], vec![y.clone(), y]];
    let found = task(SYMMETRIC, None).predictions(&examples, &[], &outputs);
    assert_eq!(found.figures().main(), ("mrr", (1.0 + 0.5 + 1.0) / 3.0));
    assert_eq!((0..3).map(|i| found.is_error(i)).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn gradients_in_chunks_are_those_of_the_whole_batch() {
    let device = Device::flex().autodiff();
    let examples = [
        features(&[&[4, 5, 6], &[7, 8], &[9, 3, 4, 5]]),
        features(&[&[10, 11], &[12, 13, 14]]),
        features(&[&[15, 16, 17, 18], &[19, 20], &[21]]),
    ];
    let batch: Vec<&EmbeddingFeatures> = examples.iter().collect();
    chunks_change_nothing(&SYMMETRIC, &batch, |dropout| model(dropout, &device), &device);
}

#[test]
fn a_classifier_has_its_gradients_in_chunks_too() {
    let device = Device::flex().autodiff();
    let classified = |ids: &[&[i32]], class| EmbeddingFeatures { class: Some(class), ..features(ids) };
    let examples = [
        classified(&[&[4, 5, 6], &[7, 8]], 1),
        classified(&[&[10, 11], &[12, 13, 14]], 0),
        classified(&[&[15, 16, 17, 18], &[19, 20]], 2),
    ];
    let batch: Vec<&EmbeddingFeatures> = examples.iter().collect();
    let with_classifier = |dropout| {
        let mut init = ParamInit::new(&device, 8);
        let classifier = Some(Linear::uniform(3 * 8, 3, &mut init));
        SentenceEncoder { classifier, ..model(dropout, &device) }
    };
    chunks_change_nothing(&LossSection::Softmax {}, &batch, with_classifier, &device);
}

/// Compares gradients in chunks of three sentences with those of the full graph, with and without dropout.
fn chunks_change_nothing(
    loss: &LossSection,
    batch: &[&EmbeddingFeatures],
    model: impl Fn(f64) -> SentenceEncoder,
    device: &Device,
) {
    let (seed, factor) = (11, 0.25);
    for dropout in [0.0, 0.3] {
        let model = model(dropout);
        let chunked = task(loss.clone(), Some(3));
        let by_rows = chunked.by_rows().unwrap();
        let (sums, found) = gradients_by_rows(by_rows, &model, batch, &[factor], seed, device);
        let value = sums[0].clone().into_scalar::<f64>();
        // The same dropout, all graphs at once.
        let parts = chunked.ordered(batch);
        let parts = parts.chunks(3).enumerate().map(|(place, part)| {
            device.seed(derive_seed(seed, &[place as u64]));
            chunked.embed(&model, part, device)
        });
        let rows = Tensor::cat(parts.collect(), 0);
        let sum = chunked.mean_loss(EmbeddingScores { rows, classifier: model.classifier.clone() }, batch)
            * batch.len() as f64;
        let whole = sum.clone().into_data().iter::<f64>().next().unwrap();
        assert!((value - whole).abs() < 1e-5 * whole, "{value}, {whole}");
        let expected = GradientsParams::from_grads((sum * factor).backward(), &model);
        assert!(global_norm(&model, &expected) > 0.1);
        let off = difference(&model, &found, &expected);
        assert!(off < 1e-5, "dropout {dropout}: gradients differ by {off}");
        if dropout == 0.0 {
            let whole = task(loss.clone(), None);
            assert!(whole.by_rows().is_none());
            let sum = whole.loss(whole.scores(&model, batch, device), batch) * factor;
            let plain = GradientsParams::from_grads(sum.backward(), &model);
            let off = difference(&model, &found, &plain);
            assert!(off < 1e-5, "gradients differ by {off}");
        }
    }
}

#[test]
fn a_classifier_is_not_saved_and_the_encoder_has_its_plain_names() {
    use cloze_model::huggingface::{SaveConfig, read_tensors, save_pretrained};
    let device = Device::flex();
    let config = BertConfig::new(31, 2, 8).with_d_ff(12).with_n_heads(2);
    let classifier = Some(Linear::uniform(3 * 8, 3, &mut ParamInit::new(&device, 8)));
    let trained = SentenceEncoder { classifier, ..model(0.0, &device) };
    let task = task(LossSection::Softmax {}, None);
    let folder = tempfile::tempdir().unwrap();
    let [of_trained, of_encoder] = ["trained", "encoder"].map(|name| folder.path().join(name));
    let save = SaveConfig::new(Architecture::Encoder);
    save_pretrained(&of_trained, &task.without_training_parts(trained.clone()), &config, &save).unwrap();
    save_pretrained(&of_encoder, trained.backbone(), &config, &save).unwrap();
    let tensors = |path: &Path| read_tensors(&path.join("model.safetensors")).unwrap();
    assert_eq!(tensors(&of_trained), tensors(&of_encoder));
    let loaded = PretrainedFolder::open(&of_trained).unwrap();
    let other = SentenceEncoder::from(config.init_encoder(&mut ParamInit::new(&device, 9)));
    let (loaded, report) = loaded.load_into(other, Architecture::Encoder, &[]).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty());
    save_pretrained(&of_trained, &loaded, &config, &save).unwrap();
    assert_eq!(tensors(&of_trained), tensors(&of_encoder));
}

#[test]
fn prompts_stand_before_sentences_and_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let words = "the old sea query passage : a";
    let trainer = cloze_tokenizer::train::WordPieceTrainer { vocab_size: 60, ..Default::default() };
    let tokenizer = trainer.train([words, words]).unwrap();
    let encode = |prompts: Option<PromptsSection>, texts: [&str; 3]| {
        let mut section = EmbeddingSection::new(SYMMETRIC);
        (section.pooling, section.prompts) = (Some(Pooling::Mean), prompts);
        let loss = section.loss();
        let task = EmbeddingTask::new(section, loss, SentenceConfig::default(), SimilarityKind::Pairs);
        let task = task.unwrap();
        let [text, pair, negative] = texts.map(str::to_owned);
        let negatives = vec![negative];
        let example = SentenceExample { text, pair: Some(pair), negatives, score: None, class: None };
        let encoded = task.encode(&tokenizer, vec![example], 32).unwrap();
        (task, encoded.features.into_iter().next().unwrap().sequences)
    };
    let prompts = PromptsSection { text: "query: ".into(), pair: "passage: ".into() };
    let (task, found) = encode(Some(prompts), ["the old", "a sea", "old"]);
    let (_, expected) = encode(None, ["query: the old", "passage: a sea", "passage: old"]);
    assert_eq!(found, expected);
    task.save_more(&BertConfig::new(31, 2, 8), 16, folder.path()).unwrap();
    let saved = SentenceConfig::load(folder.path()).unwrap().unwrap();
    assert_eq!(saved.prompt(Some("query")).unwrap(), "query: ");
    assert_eq!(saved.prompt(Some("document")).unwrap(), "passage: ");
}

#[test]
fn a_checkpoint_that_pools_no_prompt_is_trained_without_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let task = |prompts: Option<PromptsSection>| {
        let mut section = EmbeddingSection::new(SYMMETRIC);
        section.prompts = prompts;
        let loss = section.loss();
        let sentence = SentenceConfig { excludes_prompt: true, ..SentenceConfig::default() };
        EmbeddingTask::new(section, loss, sentence, SimilarityKind::Pairs)
    };
    task(None).unwrap().save_more(&BertConfig::new(31, 2, 8), 16, folder.path()).unwrap();
    assert!(SentenceConfig::load(folder.path()).unwrap().unwrap().excludes_prompt);
    let prompts = PromptsSection { text: "query: ".into(), pair: String::new() };
    let message = task(Some(prompts)).err().unwrap().to_string();
    assert!(message.contains("cannot be trained with `task.prompts`; expected none"), "{message}");
}

#[test]
fn single_sentences_are_their_own_pairs() {
    let mut section = EmbeddingSection::new(LossSection::Simcse { temperature: 1.0 });
    section.pooling = Some(Pooling::Cls);
    let loss = section.loss();
    let task = EmbeddingTask::new(section, loss, SentenceConfig::default(), SimilarityKind::Scored).unwrap();
    let examples = [features(&[&[4, 5]]), features(&[&[6]])];
    let batch: Vec<&EmbeddingFeatures> = examples.iter().collect();
    let ids: Vec<&[i32]> = task.ordered(&batch).iter().map(|sequence| &sequence.input_ids[..]).collect();
    assert_eq!(ids, [&[4, 5][..], &[6], &[4, 5], &[6]]);
    // Without dropout a sentence is exactly like itself.
    let device = Device::flex();
    let scores = task.scores(&model(0.0, &device), &batch, &device);
    let same = task.loss(scores, &batch).into_data().iter::<f64>().next().unwrap();
    assert!(same > 0.0 && same < 2.0 * 2f64.ln() + 1e-6, "{same}");
}

#[test]
fn a_row_without_negatives_counts_neither_as_right_nor_as_wrong() {
    let mut section =
        EmbeddingSection::new(LossSection::Triplet { distance: TripletDistance::Cosine, margin: 0.5 });
    section.pooling = Some(Pooling::Cls);
    let loss = section.loss();
    let task =
        EmbeddingTask::new(section, loss, SentenceConfig::default(), SimilarityKind::Triplets).unwrap();
    let row = |negatives: &[&str]| SentenceExample {
        text: "a".into(),
        pair: Some("b".into()),
        negatives: negatives.iter().map(|text| (*text).to_owned()).collect(),
        score: None,
        class: None,
    };
    let (near, far) = (vec![1.0, 0.1], vec![0.0, 1.0]);
    let outputs = [
        vec![vec![1.0, 0.0], near.clone(), far.clone()],
        vec![vec![1.0, 0.0], far.clone()],
        vec![vec![1.0, 0.0], far, near],
    ];
    let found = task.predictions(&[row(&["c"]), row(&[]), row(&["c"])], &[], &outputs);
    assert_eq!(found.len(), 2);
    assert_eq!(found.figures().get("accuracy"), Some(0.5));
}

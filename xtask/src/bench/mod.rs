//! `cargo xtask bench`: what is measured, beside its peers.

mod attention;
mod backends;
mod compress;
mod embedding_training;
mod embeddings;
mod ensembles;
mod finetune;
mod generate;
mod glue;
mod gpu;
mod images;
mod infer;
mod inspect;
pub mod kept;
mod knowledge;
mod languages;
mod lexicon;
mod likelihood;
mod load;
pub mod measure;
mod objectives;
mod positions;
mod pretrained;
pub mod processor;
mod ranks;
mod recompute;
mod records;
pub mod report;
mod scaling;
mod search;
mod seeing;
mod serve;
mod steps;
mod tokenizers;
mod train;
mod transfer;
mod translate;
mod vocabulary;
mod whole;

use anyhow::Result;
use clap::Subcommand;

use crate::step;

/// Run the benchmarks: of every crate, or a table beside the peers.
#[derive(clap::Args)]
#[command(after_long_help = "\
The tables need a Python with the peers, named by CLOZE_PYTHON:
  python3 -m venv peers
  peers/bin/pip install torch==2.9.0 transformers==4.57.6 tokenizers onnx onnxruntime openvino \\
    accelerate scikit-learn scipy seqeval ctranslate2 faiss-cpu captum minicons==0.3.39 \\
    sentence-transformers==5.1.2 xllamacpp
  CLOZE_PYTHON=$PWD/peers/bin/python cargo xtask bench train
Without one, our side alone is measured.")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Pretraining steps beside PyTorch's.
    Train(measure::Rounds),
    /// Steps of ELECTRA, XLNet and BART beside those of transformers' classes.
    Steps(measure::Rounds),
    /// Training by two processes beside one, and beside PyTorch's DistributedDataParallel. Needs Open MPI.
    Ranks(ranks::Args),
    /// Models of images beside transformers': training steps, and a ViT-B/16's answers.
    Images(measure::Rounds),
    /// What models of images learn beside timm's, torch's and lightly's: classes, also without labels, and captions of scenes.
    Seeing(seeing::Args),
    /// Sentence embeddings beside PyTorch's and ONNX Runtime's.
    Infer(infer::Args),
    /// Explanations of a classifier: how faithful they are, and how long they take beside Captum.
    Inspect(inspect::Args),
    /// Figures of a sentence encoder beside sentence-transformers': whether they agree, and how long they take. With `--train`,
    /// sentence encoders trained on both sides.
    Embeddings(embeddings::Args),
    /// How much a pretraining step slows down beside busy processes, ours and PyTorch's.
    Load(load::Args),
    /// Keep a core busy until standard input ends.
    #[command(hide = true)]
    Spin,
    /// Fine-tuning beside transformers' Trainer: how good, and how long.
    Finetune(finetune::Args),
    /// GLUE's tasks beside transformers' Trainer: how good, and how long.
    Glue(glue::Args),
    /// Smaller models beside one another: distilled, pruned, quantised; and the forms of weights beside their peers.
    Compress(compress::Args),
    /// Objectives of pretraining beside one another: each for the same time, its result fine-tuned.
    Objectives(objectives::Args),
    /// Kinds of positions beside one another: BERTs that differ in nothing else, fine-tuned and looked into.
    Positions(positions::Args),
    /// Tokenizers' compression beside the quality of models: BPE trained on more and less text, and without some pieces.
    Tokenizers(tokenizers::Args),
    /// What small models of one corpus know: grammar, common sense and facts, beside published models.
    Knowledge(knowledge::Args),
    /// Scores of sentences beside minicons': whether they agree, and how long they take.
    Likelihood(likelihood::Args),
    /// Several languages: parts of speech, relations and entities learned in English, in the others, by encoders pretrained
    /// with translations and without; frozen layers, language identification and shared pieces.
    Languages(languages::Args),
    /// Vectors of words by layer, alone and in contexts: similarity, analogies, categories, relations and translation.
    Lexicon(lexicon::Args),
    /// Tasks beside one another: how alike their encoders are, and what they give one another with few examples.
    Transfer(transfer::Args),
    /// Translation models beside one another and beside PyTorch's: how good, and how fast they are trained.
    Translate(translate::Args),
    /// Translation models that write together: three seeds, and three networks.
    Ensembles(ensembles::Args),
    /// Language models of 100,000 words: a whole softmax, a sampled and an adaptive one, beside PyTorch's.
    Vocabulary(vocabulary::Args),
    /// Decoding beside transformers' `generate` and CTranslate2, and nanoGPT's configuration beside PyTorch.
    Generate(generate::Args),
    /// Attention by length beside PyTorch's: how fast, and how much memory.
    Attention(measure::Rounds),
    /// How a pretraining step grows with batch, length, depth and cores: a table and a plot.
    Scaling(scaling::Args),
    /// Pretraining steps with recomputed layers and with kept ones: time and memory.
    Recompute(recompute::Args),
    /// Nearest neighbours beside FAISS: how fast indexes are built and asked, and how much memory.
    Search(search::Args),
    /// Training and inference on every backend beside flex, and what a backend costs to build.
    Backends(backends::Args),
    /// `cloze serve` beside FastAPI with sentence-transformers and infinity: how many answers a second, how late, and
    /// whether each is right.
    Serve(serve::Args),
    /// A GPU beside PyTorch on the same card: parity, training, embeddings, texts, and where the time goes.
    Gpu(gpu::Args),
    /// Tokenizers beside the `tokenizers` crate and package: `--megabytes N` of text, `--rounds N`.
    Tokenizer(Rest),
    /// The whole program, from file to file, beside the library and the `tokenizers` package.
    Whole(whole::Args),
    /// The benchmarks of the crates, through `cargo bench`: `-p CRATE`, a filter.
    Crates(Rest),
}

#[derive(clap::Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        Some(What::Train(args)) => train::run(args),
        Some(What::Steps(args)) => steps::run(args),
        Some(What::Ranks(args)) => ranks::run(args),
        Some(What::Images(args)) => images::run(args),
        Some(What::Seeing(args)) => seeing::run(args),
        Some(What::Infer(args)) => infer::run(args),
        Some(What::Inspect(args)) => inspect::run(args),
        Some(What::Embeddings(args)) => embeddings::run(args),
        Some(What::Load(args)) => load::run(args),
        Some(What::Spin) => {
            load::spin(std::io::stdin());
            Ok(())
        }
        Some(What::Finetune(args)) => finetune::run(args),
        Some(What::Glue(args)) => glue::run(args),
        Some(What::Compress(args)) => compress::run(args),
        Some(What::Objectives(args)) => objectives::run(args),
        Some(What::Positions(args)) => positions::run(args),
        Some(What::Tokenizers(args)) => tokenizers::run(args),
        Some(What::Knowledge(args)) => knowledge::run(args),
        Some(What::Likelihood(args)) => likelihood::run(args),
        Some(What::Languages(args)) => languages::run(args),
        Some(What::Lexicon(args)) => lexicon::run(args),
        Some(What::Transfer(args)) => transfer::run(args),
        Some(What::Translate(args)) => translate::run(args),
        Some(What::Ensembles(args)) => ensembles::run(args),
        Some(What::Vocabulary(args)) => vocabulary::run(args),
        Some(What::Generate(args)) => generate::run(args),
        Some(What::Attention(args)) => attention::run(args),
        Some(What::Scaling(args)) => scaling::run(args),
        Some(What::Recompute(args)) => recompute::run(args),
        Some(What::Search(args)) => search::run(args),
        Some(What::Backends(args)) => backends::run(args),
        Some(What::Serve(args)) => serve::run(args),
        Some(What::Gpu(args)) => gpu::run(args),
        Some(What::Whole(args)) => whole::run(args),
        Some(What::Tokenizer(rest)) => {
            let mut bench = step::cargo("bench");
            bench.args(["-p", "cloze-tokenizer", "--bench", "tokenizer", "--"]).args(&rest.args);
            step::run("tokenizer beside its peers", &mut bench)
        }
        // Only `benches/`: a library's own tests measure nothing.
        Some(What::Crates(rest)) => {
            step::run("benchmarks", step::cargo("bench").args(["--bench", "*"]).args(&rest.args))
        }
        None => step::run("benchmarks", step::cargo("bench").args(["--bench", "*"])),
    }
}

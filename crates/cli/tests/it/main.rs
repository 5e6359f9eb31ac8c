//! The program and the library, in one binary, because each test binary links burn.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

#[cfg(all(feature = "program", feature = "flex"))]
mod configs;
#[cfg(feature = "program")]
mod decoding;
#[cfg(all(feature = "program", feature = "flex"))]
mod eval_embeddings;
#[cfg(all(feature = "program", feature = "flex"))]
mod from_data;
#[cfg(all(feature = "program", feature = "flex"))]
mod gguf;
#[cfg(all(feature = "program", feature = "flex"))]
mod glue;
#[cfg(all(feature = "program", feature = "hub"))]
mod hub;
#[cfg(all(feature = "program", feature = "flex"))]
mod image_vectors;
#[cfg(all(feature = "program", feature = "flex"))]
mod images;
#[cfg(feature = "program")]
mod inspect;
#[cfg(all(feature = "program", feature = "flex"))]
mod jobs;
#[cfg(all(feature = "program", feature = "flex"))]
mod lexicon;
mod library;
#[cfg(all(feature = "program", feature = "flex"))]
mod likelihood;
#[cfg(feature = "program")]
mod limits;
#[cfg(feature = "program")]
mod lines;
#[cfg(all(feature = "program", feature = "flex"))]
mod map;
#[cfg(all(unix, feature = "program", feature = "flex", feature = "hub"))]
mod pages;
#[cfg(all(feature = "program", target_os = "linux"))]
mod peak;
#[cfg(all(feature = "program", feature = "flex"))]
mod perplexity;
#[cfg(feature = "program")]
mod program;
#[cfg(feature = "program")]
mod prune;
#[cfg(feature = "program")]
mod ran;
#[cfg(all(unix, feature = "mpi", feature = "flex"))]
mod ranks;
#[cfg(all(feature = "program", feature = "flex"))]
mod reranking;
#[cfg(feature = "program")]
mod resume;
#[cfg(feature = "program")]
mod run_folder;
#[cfg(feature = "program")]
mod score;
#[cfg(all(feature = "program", feature = "flex"))]
mod search;
#[cfg(all(feature = "flex", feature = "ndarray"))]
mod second_backend;
#[cfg(all(feature = "program", feature = "flex"))]
mod senses;
#[cfg(all(unix, feature = "serve", feature = "flex"))]
mod serve;
#[cfg(all(unix, feature = "serve", feature = "flex"))]
mod serve_clients;
#[cfg(all(unix, feature = "serve", feature = "flex"))]
mod serve_faults;
#[cfg(all(unix, feature = "serve", feature = "flex"))]
mod serve_fuzzed;
#[cfg(all(unix, feature = "serve", feature = "flex"))]
mod serve_images;
#[cfg(all(unix, feature = "serve", feature = "flex"))]
mod served;
#[cfg(all(feature = "program", feature = "hub"))]
#[allow(dead_code, reason = "the hub's own tests use the rest")]
#[path = "../../../hub/tests/hub/server.rs"]
mod server;
#[cfg(feature = "program")]
mod tables;
#[cfg(feature = "program")]
mod tokenizer_evaluate;
#[cfg(all(feature = "program", feature = "flex"))]
mod transfer;
#[cfg(all(feature = "program", feature = "flex"))]
mod workplace;

//! Looking into models, against transformers and Captum: `tests/fixtures/inspection/export.py`.

mod attention;
mod explanations;

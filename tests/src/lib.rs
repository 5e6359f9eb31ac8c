//! Integration tests across the crates: see `it/`. The README's programs are in `outside/`.

//! Puts small models with random weights where the examples look for published ones: a folder wins over a name.
//!
//!     outside FOLDER

mod models;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("expected the folder to put models in")?;
    models::make(folder.as_ref())
}

//! Lets the program find libtorch where it was built with it, whatever else `LD_LIBRARY_PATH` leads to: the backend
//! works with one version only.

use std::env;
use std::fs;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys tells it, where the feature `tch` is on.
    let Some(folder) = env::var_os("DEP_TCH_LIBTORCH_LIB") else { return };
    let folder = Path::new(&folder);
    // A folder of links, as `cargo xtask tch setup` makes it, leads to the libraries; each finds the next beside itself.
    let library = fs::canonicalize(folder.join("libtorch_cpu.so")).ok();
    let folder = library.as_deref().and_then(Path::parent).unwrap_or(folder).display();
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{folder}"),
        Ok("macos") => println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}"),
        _ => {}
    }
}

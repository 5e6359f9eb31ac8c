//! `cargo xtask tch`: libtorch, which the backend `tch` needs to be built and to run.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::bench::kept;

/// The only version that burn's backend works with.
const VERSION: &str = "2.9.0";

/// What tells torch-sys where libtorch is: whoever sets one of these knows better.
const SET_BY_HAND: [&str; 3] = ["LIBTORCH", "LIBTORCH_LIB", "LIBTORCH_USE_PYTORCH"];

/// Libraries for NVIDIA's GPUs.
const OF_CUDA: [&str; 5] = [
    "libtorch_cuda.so",
    "libtorch_cuda_linalg.so",
    "libc10_cuda.so",
    "libtorch_nvshmem.so",
    "libcaffe2_nvrtc.so",
];

/// What a Python says of its PyTorch, without loading it.
const ASK: &str = "import importlib.metadata as m, importlib.util as u; \
                   print(m.version('torch')); print(u.find_spec('torch').submodule_search_locations[0])";

/// The libtorch that the backend `tch` is built with.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Find libtorch 2.9.0 in a Python's packages, for all later tasks; or say how to get it.
    ///
    /// Nothing is copied: a folder of links to it goes to the target folder. It leaves out the libraries for NVIDIA's
    /// GPUs, so that the CPU needs none of them.
    #[command(after_long_help = "\
Examples:
  python3 -m venv venv && venv/bin/pip install torch==2.9.0
  cargo xtask tch setup --python venv/bin/python
  cargo xtask backends tch
  cargo xtask train configs/sst2.toml --device tch")]
    Setup {
        /// The Python that has PyTorch [default: that of the active virtual environment, else python3]
        #[arg(long)]
        python: Option<PathBuf>,
        /// With the libraries for NVIDIA's GPUs: for the devices tch:cuda:N.
        #[arg(long)]
        cuda: bool,
    },
}

pub fn run(args: &Args) -> Result<()> {
    let Task::Setup { python, cuda } = &args.task;
    let python = python.clone().unwrap_or_else(default_python);
    let torch = torch(&python)?;
    let folder = folder();
    link(&torch, &folder, *cuda)?;
    let devices = if *cuda { "CPU and CUDA" } else { "CPU" };
    println!("libtorch {VERSION} ({devices}), {}", torch.display());
    println!("`cargo xtask` builds and runs `tch` with it from now on; for cargo by itself:");
    println!("export LIBTORCH={}", folder.display());
    Ok(())
}

/// Where the links go.
fn folder() -> PathBuf {
    kept::target().join("libtorch")
}

fn default_python() -> PathBuf {
    let active =
        std::env::var_os("VIRTUAL_ENV").map(|environment| Path::new(&environment).join("bin/python"));
    active.unwrap_or_else(|| "python3".into())
}

/// The folder of a Python's PyTorch.
///
/// # Errors
/// If it has none, or one of another version: what is there, and what to do.
fn torch(python: &Path) -> Result<PathBuf> {
    let shown = python.display();
    let asked = Command::new(python).args(["-c", ASK]).stdin(Stdio::null()).output();
    let how = format!(
        "get it with `python3 -m venv venv && venv/bin/pip install torch=={VERSION}`, then run `cargo xtask tch setup \
         --python venv/bin/python`"
    );
    let said = asked.with_context(|| format!("{shown} does not run; expected PyTorch {VERSION}: {how}"))?;
    let said = String::from_utf8_lossy(&said.stdout);
    let Some((version, folder)) = said.trim().split_once('\n') else {
        bail!("{shown} has no PyTorch; expected {VERSION}: {how}")
    };
    // As in 2.9.0+cpu.
    if version.split('+').next() != Some(VERSION) {
        bail!("{shown} has PyTorch {version}; burn's backend works with {VERSION} only: {how}")
    }
    Ok(folder.into())
}

/// Makes a folder that looks like an unpacked libtorch.
fn link(torch: &Path, folder: &Path, cuda: bool) -> Result<()> {
    if !cfg!(unix) {
        bail!("set LIBTORCH to {} by hand: there is no setup for this system", torch.display())
    }
    let lib = folder.join("lib");
    let made = || -> std::io::Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(&lib)?;
        symlink(&torch.join("include"), &folder.join("include"))?;
        for entry in fs::read_dir(torch.join("lib"))? {
            let entry = entry?;
            let of_cuda = OF_CUDA.iter().any(|name| *name == entry.file_name());
            if cuda || !of_cuda {
                symlink(&entry.path(), &lib.join(entry.file_name()))?;
            }
        }
        // torch-sys compares it with the version that it wants.
        fs::write(folder.join("build-version"), VERSION)
    };
    made().with_context(|| format!("cannot link {} to {}", folder.display(), torch.display()))
}

#[cfg(unix)]
fn symlink(original: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// What a build with the feature `tch`, and a program that it makes, has to have in its environment.
///
/// # Errors
/// If libtorch was not set up, or is gone since: what to do.
pub fn environment() -> Result<Vec<(&'static str, OsString)>> {
    if SET_BY_HAND.iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(Vec::new());
    }
    let folder = folder();
    let libraries = libraries(&folder)?;
    // The programs of this workspace but `cloze`, which has the path in itself.
    let mut paths = vec![libraries];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    Ok(vec![("LIBTORCH", folder.into()), ("LD_LIBRARY_PATH", std::env::join_paths(paths)?)])
}

/// Where the libraries lie that a folder's links lead to.
fn libraries(folder: &Path) -> Result<PathBuf> {
    let link = folder.join("lib/libtorch_cpu.so");
    let Ok(target) = fs::read_link(&link) else {
        bail!("`tch` needs libtorch {VERSION}: run `cargo xtask tch setup`")
    };
    if !target.exists() {
        let gone = target.display();
        bail!(
            "`tch` was set up with libtorch {VERSION} in {gone}, which is gone: run `cargo xtask tch setup` again"
        )
    }
    target.parent().map(Path::to_owned).context("a library lies in a folder")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program that answers as a Python would.
    fn python(folder: &Path, answer: &str) -> PathBuf {
        let path = folder.join("python");
        fs::write(&path, format!("#!/bin/sh\nprintf '{answer}'\n")).expect("a temporary folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a temporary folder");
        path
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = |answer: &str| format!("{:#}", torch(&python(folder.path(), answer)).unwrap_err());
        let shown = folder.path().join("python").display().to_string();
        let none = error("");
        assert!(
            none.starts_with(&format!("{shown} has no PyTorch; expected 2.9.0: get it with `python3 -m")),
            "{none}"
        );
        let old = error("2.8.0+cu128\\n/packages/torch");
        assert!(
            old.starts_with(&format!(
                "{shown} has PyTorch 2.8.0+cu128; burn's backend works with 2.9.0 only"
            ))
        );
        let nowhere = torch(&folder.path().join("nowhere")).unwrap_err().to_string();
        assert!(nowhere.contains("nowhere does not run; expected PyTorch 2.9.0: get it with"), "{nowhere}");
    }

    #[test]
    fn links_leave_cuda_out_and_say_when_they_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let (packages, links) = (folder.path().join("torch"), folder.path().join("links"));
        fs::create_dir_all(packages.join("lib")).unwrap();
        fs::create_dir_all(packages.join("include")).unwrap();
        for name in ["libtorch_cpu.so", "libtorch_cuda.so"] {
            fs::write(packages.join("lib").join(name), "").unwrap();
        }
        let found = torch(&python(folder.path(), &format!("2.9.0+cpu\\n{}", packages.display()))).unwrap();
        assert_eq!(found, packages);
        assert!(libraries(&links).unwrap_err().to_string().ends_with("run `cargo xtask tch setup`"));
        for cuda in [true, false] {
            link(&found, &links, cuda).unwrap();
            assert_eq!(links.join("lib/libtorch_cuda.so").exists(), cuda);
        }
        assert_eq!(fs::read_to_string(links.join("build-version")).unwrap(), VERSION);
        assert_eq!(libraries(&links).unwrap(), packages.join("lib"));
        fs::remove_dir_all(&packages).unwrap();
        assert!(libraries(&links).unwrap_err().to_string().contains("which is gone: run"));
    }
}

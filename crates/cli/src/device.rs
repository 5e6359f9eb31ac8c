//! Device selection. The only place in the workspace that names a backend: each is a Cargo feature of this
//! package, and a [`DeviceName`] chooses among those that are built in.

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;

use crate::{Error, Result};
#[cfg(any(feature = "wgpu", feature = "cuda"))]
use cloze_trainer::device_failure::Told;

/// A device by its name, as the program's `--device` takes it.
///
/// ```
/// use cloze::device::DeviceName;
///
/// let name: DeviceName = "wgpu:1".parse()?;
/// assert_eq!(name, DeviceName::Wgpu(Some(1)));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// `auto`: the [best] one available.
    Auto,
    /// `flex`: the CPU, pure Rust.
    Flex,
    /// `ndarray`: the CPU, the older pure-Rust backend.
    NdArray,
    /// `wgpu[:n]`: the n-th graphics adapter, or the graphics API's first.
    Wgpu(Option<usize>),
    /// `tch[:cpu|:cuda:n]`: libtorch on the CPU, or on the n-th NVIDIA GPU.
    Tch(Option<usize>),
    /// `cuda[:n]`: the n-th NVIDIA GPU.
    Cuda(usize),
}

/// The backends, default first: Cargo feature, whether this build has it, what it is.
const BACKENDS: [(&str, bool, &str); 5] = [
    ("flex", cfg!(feature = "flex"), "CPU, pure Rust"),
    ("ndarray", cfg!(feature = "ndarray"), "CPU, pure Rust (older)"),
    ("wgpu", cfg!(feature = "wgpu"), "GPU through Vulkan, Metal, DirectX 12 or WebGPU"),
    ("tch", cfg!(feature = "tch"), "libtorch 2.9.0, CPU or NVIDIA GPU"),
    ("cuda", cfg!(feature = "cuda"), "NVIDIA GPU"),
];

/// The prefix of the description of a device that exists but does not open.
const UNFIT: &str = "cannot be opened";

/// A device available in this build and on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// Its name.
    pub name: DeviceName,
    /// Human-readable: the backend, or the hardware.
    pub description: String,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (backend, rest) = match text.split_once(':') {
            Some((backend, rest)) => (backend, Some(rest)),
            None => (text, None),
        };
        let index = |digits: &str| {
            let parsed = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok());
            parsed.flatten().ok_or_else(|| format!("`{digits}` is not a device number (0, 1, ...)"))
        };
        match (backend, rest) {
            ("auto", None) => Ok(Self::Auto),
            ("flex", None) => Ok(Self::Flex),
            ("ndarray", None) => Ok(Self::NdArray),
            ("wgpu", rest) => Ok(Self::Wgpu(rest.map(index).transpose()?)),
            ("cuda", rest) => Ok(Self::Cuda(rest.map_or(Ok(0), index)?)),
            ("tch", None | Some("cpu")) => Ok(Self::Tch(None)),
            ("tch", Some("cuda")) => Ok(Self::Tch(Some(0))),
            ("tch", Some(rest)) => match rest.strip_prefix("cuda:") {
                Some(digits) => Ok(Self::Tch(Some(index(digits)?))),
                None => Err("expected tch, tch:cpu or tch:cuda:N".to_owned()),
            },
            ("auto" | "flex" | "ndarray", Some(_)) => Err(format!("there is only one `{backend}` device")),
            _ => Err("expected auto, flex, ndarray, wgpu[:N], tch[:cpu|:cuda:N] or cuda[:N]".to_owned()),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend())?;
        match self {
            Self::Auto | Self::Flex | Self::NdArray | Self::Wgpu(None) | Self::Tch(None) => Ok(()),
            Self::Wgpu(Some(index)) | Self::Cuda(index) => write!(f, ":{index}"),
            Self::Tch(Some(index)) => write!(f, ":cuda:{index}"),
        }
    }
}

impl DeviceName {
    /// The first part of its name, also the Cargo feature that builds its backend in.
    fn backend(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Flex => "flex",
            Self::NdArray => "ndarray",
            Self::Wgpu(_) => "wgpu",
            Self::Tch(_) => "tch",
            Self::Cuda(_) => "cuda",
        }
    }

    /// The device itself, without automatic differentiation.
    ///
    /// # Errors
    /// [`Error::NotBuiltIn`] when this build lacks the backend, naming the feature to add; [`Error::NoSuchDevice`]
    /// when the machine has no such device.
    pub fn open(self) -> Result<Device> {
        let device = match self {
            Self::Auto => return best().ok_or(Error::NoDevice)?.name.open(),
            #[cfg(feature = "flex")]
            Self::Flex => Some(Device::flex()),
            #[cfg(feature = "ndarray")]
            #[allow(deprecated, reason = "deprecated in burn 0.22, gone in 0.23; offered while there")]
            Self::NdArray => Some(Device::ndarray()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(index) => wgpu(index),
            #[cfg(feature = "tch")]
            Self::Tch(index) => tch(index),
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => Device::enumerate(burn::tensor::DeviceType::Cuda).into_iter().nth(index),
            #[allow(unreachable_patterns, reason = "reached only where a feature is off")]
            _ => return Err(Error::NotBuiltIn { device: self, feature: self.backend() }),
        };
        device.ok_or(Error::NoSuchDevice { device: self, needs: self.needs() })
    }

    /// What a machine must have for this device.
    fn needs(self) -> &'static str {
        match self {
            Self::Wgpu(_) => {
                "a graphics adapter with its driver, or software in place of one, such as Mesa's lavapipe (on \
                 Debian the package mesa-vulkan-drivers)"
            }
            Self::Cuda(_) => "an NVIDIA GPU with its driver, not older than the build's CUDA",
            Self::Tch(Some(_)) => "an NVIDIA GPU with its driver, and a libtorch with CUDA",
            _ => "its backend",
        }
    }
}

/// The device of this build's first backend; none if it has no backend at all.
pub fn default_name() -> Option<DeviceName> {
    let (feature, ..) = BACKENDS.iter().find(|(_, built_in, _)| *built_in)?;
    feature.parse().ok()
}

/// The device named, else the [default](default_name).
///
/// # Errors
/// Those of [`DeviceName::open`]; [`Error::NoDevice`] when the build has no backend at all.
pub fn open(name: impl Into<Option<DeviceName>>) -> Result<Device> {
    name.into().or_else(default_name).ok_or(Error::NoDevice)?.open()
}

/// Caches kernels compiled for NVIDIA GPUs on disk for the next run. Autotuning results, the fastest kernel for
/// each shape, are always cached. Both are in `target/environment` of the cargo workspace around the current
/// folder, or else in the user's cache folder, unless a `cubecl.toml` in the current folder or a parent says
/// otherwise. Kernels of other devices are recompiled, unless the driver caches them.
///
/// Call it before opening a device: CubeCL reads its settings once.
pub fn keep_kernels() {
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.compilation.cache = true;
        // Whoever set them before has reasons.
        CubeClRuntimeConfig::try_set(config);
    }
}

/// The devices available in this build and on this machine, in order of preference.
pub fn available() -> Vec<Available> {
    let mut found = Vec::new();
    for (feature, built_in, description) in BACKENDS {
        if !built_in {
            continue;
        }
        let mut add = |name, description: &str| {
            found.push(Available { name, description: description.to_owned() });
        };
        match feature {
            "flex" => add(DeviceName::Flex, description),
            "ndarray" => add(DeviceName::NdArray, description),
            #[cfg(feature = "wgpu")]
            "wgpu" => {
                for (index, name) in cube_devices(burn::tensor::DeviceType::Wgpu) {
                    add(DeviceName::Wgpu(Some(index)), &name);
                }
            }
            #[cfg(feature = "tch")]
            "tch" => {
                add(DeviceName::Tch(None), "CPU, libtorch 2.9.0");
                for index in (0..).take_while(|index| tch(Some(*index)).is_some()) {
                    add(DeviceName::Tch(Some(index)), "NVIDIA GPU, libtorch 2.9.0");
                }
            }
            #[cfg(feature = "cuda")]
            "cuda" => {
                for (index, name) in cube_devices(burn::tensor::DeviceType::Cuda) {
                    add(DeviceName::Cuda(index), &name);
                }
            }
            _ => {}
        }
    }
    found
}

/// The device that is probably the fastest: an NVIDIA GPU, another GPU, the CPU. Software GPUs come last. None
/// if the build has no backend at all.
pub fn best() -> Option<Available> {
    // Of equals the first.
    available().into_iter().rev().max_by_key(Available::preference)
}

impl Available {
    /// Whether it is a software GPU, useful for tests.
    pub fn is_software(&self) -> bool {
        const SOFTWARE: [&str; 4] = ["llvmpipe", "lavapipe", "swiftshader", "microsoft basic render"];
        let name = self.description.to_lowercase();
        matches!(self.name, DeviceName::Wgpu(_)) && SOFTWARE.iter().any(|software| name.contains(software))
    }

    /// Whether it exists but does not open.
    fn is_unfit(&self) -> bool {
        self.description.starts_with(UNFIT)
    }

    fn preference(&self) -> u32 {
        match self.name {
            _ if self.is_unfit() => 0,
            DeviceName::Cuda(_) => 5,
            DeviceName::Tch(Some(_)) => 4,
            DeviceName::Wgpu(_) if self.is_software() => 0,
            DeviceName::Wgpu(_) => 3,
            DeviceName::Flex => 2,
            _ => 1,
        }
    }
}

/// The backends missing from this build.
pub fn missing_features() -> Vec<&'static str> {
    BACKENDS.iter().filter(|(_, built_in, _)| !built_in).map(|(feature, ..)| *feature).collect()
}

/// Without a number, the graphics API's own choice, if it has any.
#[cfg(feature = "wgpu")]
fn wgpu(index: Option<usize>) -> Option<Device> {
    let mut adapters = Device::enumerate(burn::tensor::DeviceType::Wgpu).into_iter();
    match index {
        Some(index) => adapters.nth(index),
        None => adapters.next().map(|_| Device::wgpu(Default::default())),
    }
}

/// Libtorch's n-th CUDA device, or its CPU.
#[cfg(feature = "tch")]
#[allow(deprecated, reason = "deprecated in burn 0.22, gone in 0.23; offered while there")]
fn tch(index: Option<usize>) -> Option<Device> {
    let Some(index) = index else {
        return Some(Device::libtorch());
    };
    let wanted = Device::libtorch_cuda(index);
    let mut devices = Device::enumerate(burn::tensor::DeviceType::LibTorch).into_iter();
    devices.find(|device| *device == wanted)
}

/// The number of each device of a CubeCL backend, with its hardware's name or why it cannot be opened.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn cube_devices(kind: burn::tensor::DeviceType) -> impl Iterator<Item = (usize, String)> {
    Device::enumerate(kind).into_iter().enumerate().map(|(index, device)| {
        // To be asked, it is opened, which one with an unfit driver answers by a panic.
        let description = match cloze_data::caught(|| device.identity()) {
            Ok(identity) => identity.map_or_else(|| format!("{device:?}"), |identity| identity.name),
            Err(said) => format!("{UNFIT}: {}", Told(&said)),
        };
        (index, description)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<DeviceName, String> {
        text.parse()
    }

    #[test]
    fn every_form_is_understood_and_written_back() {
        for text in ["auto", "flex", "ndarray", "wgpu", "wgpu:2", "tch", "tch:cuda:1", "cuda:0", "cuda:3"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert_eq!(parsed("tch:cpu"), Ok(DeviceName::Tch(None)));
        assert_eq!(parsed("cuda"), Ok(DeviceName::Cuda(0)));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "cpu",
            "Flex",
            "auto:1",
            "flex:0",
            "wgpu:",
            "wgpu:x",
            "wgpu:-1",
            "cuda:+1",
            "tch:gpu",
            "tch:cuda:",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
        assert_eq!(parsed("wgpu:x").unwrap_err(), "`x` is not a device number (0, 1, ...)");
    }

    #[test]
    fn every_backend_is_a_device_name_and_listed_or_missing() {
        for (feature, built_in, _) in BACKENDS {
            assert_eq!(parsed(feature).unwrap().backend(), feature);
            assert_eq!(missing_features().contains(&feature), !built_in);
        }
    }

    #[test]
    fn a_gpu_is_better_than_the_cpu_and_software_is_not() {
        let preference = |text: &str, description: &str| {
            Available { name: parsed(text).unwrap(), description: description.into() }.preference()
        };
        let falling = [
            preference("cuda:1", "NVIDIA H100"),
            preference("wgpu:0", "AMD Radeon"),
            preference("flex", "CPU"),
            preference("tch", "CPU"),
            preference("wgpu:1", "llvmpipe (LLVM 15.0.6, 256 bits)"),
        ];
        assert!(falling.is_sorted_by(|a, b| a > b), "{falling:?}");
        let unfit =
            "cannot be opened: driver version is insufficient; install a newer driver of the device's maker";
        assert!(preference("cuda:0", unfit) < preference("flex", "CPU"));
    }

    #[cfg(feature = "flex")]
    #[test]
    fn what_is_listed_opens() {
        let listed = available();
        assert_eq!(listed[0].name, DeviceName::Flex);
        for device in listed {
            device.name.open().unwrap();
        }
        open(None).unwrap();
        open(DeviceName::Auto).unwrap();
    }

    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn a_backend_that_is_not_built_in_names_its_feature() {
        let error = DeviceName::Wgpu(Some(1)).open().unwrap_err();
        assert!(error.is_wrong_usage());
        assert_eq!(
            error.to_string(),
            "device `wgpu:1` is not in this build: add the feature `wgpu` to the dependency `cloze` in Cargo.toml"
        );
    }
}

//! Kernels of graphics processors that the next run finds.

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Has kernels that were compiled for NVIDIA's GPUs kept on the disk, beside what is kept anyway: which kernel was found to
/// be the fastest for a shape. Both lie in `target/environment` of the cargo workspace around the current folder, elsewhere
/// in the user's folder for caches; a file `cubecl.toml` in the current folder or one above says otherwise. Kernels of other
/// devices are compiled anew, as far as the driver keeps none.
///
/// To be called before a device is opened: CubeCL reads its settings once.
pub fn keep() {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    CubeClRuntimeConfig::try_set(config);
}

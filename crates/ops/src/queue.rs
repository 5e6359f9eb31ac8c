use burn::tensor::Device;

/// Whether a device queues operations and runs them asynchronously, as GPUs (`wgpu`, `cuda`) do. Reading a
/// number waits for all operations queued before.
pub fn is_queued(device: &Device) -> bool {
    // By its name: this crate may be built beside a burn that has no such backend.
    format!("{:?}", device.clone().inner()).starts_with("Device<Cube")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_no_queue() {
        assert!(!is_queued(&Device::flex()) && !is_queued(&Device::flex().autodiff()));
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_graphics_processor_has_one() {
        let device = Device::wgpu(Default::default());
        assert!(is_queued(&device) && is_queued(&device.autodiff()));
    }
}

use burn::tensor::Device;

/// Whether operations on a device are put into a queue, which it works off while its program goes on: so do graphics
/// processors (`wgpu`, `cuda`). Whoever reads a number waits for all that was put there before.
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

//! How much memory a device has.

use burn::tensor::Device;
use cloze::device::DeviceName;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// How many bytes of memory a device has, swapped ones among them, as far as the machine and this process's control
/// group say; none of a device with memory of its own.
pub fn of(device: &Device) -> Option<u64> {
    if !uses_main_memory(device) {
        return None;
    }
    let mut system = System::new();
    system.refresh_memory();
    let group = sysinfo::get_current_pid().ok().and_then(|pid| {
        let this = ProcessesToUpdate::Some(&[pid]);
        system.refresh_processes_specifics(this, false, ProcessRefreshKind::nothing());
        system.process(pid)?.cgroup_limits()
    });
    let machine = system.total_memory();
    let memory = group.map_or(machine, |group| group.total_memory.min(machine));
    (memory > 0).then(|| memory.saturating_add(system.total_swap()))
}

/// Whether the device computes in the machine's main memory.
fn uses_main_memory(device: &Device) -> bool {
    let is_open = |name: DeviceName| name.open().is_ok_and(|found| found == device.clone().inner());
    [DeviceName::Flex, DeviceName::NdArray, DeviceName::Tch(None)].into_iter().any(is_open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "flex")]
    #[test]
    fn the_cpu_has_the_machines_memory() {
        let memory = of(&Device::flex()).unwrap();
        assert!((1 << 26..1 << 50).contains(&memory), "{memory}");
        assert_eq!(of(&Device::flex().autodiff()), Some(memory));
    }
}

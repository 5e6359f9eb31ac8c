//! A device's memory size.

#[cfg(any(feature = "wgpu", feature = "cuda"))]
use std::path::Path;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
use std::process::{Command, Stdio};

use burn::tensor::Device;
use cloze::device::{Available, DeviceName};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// The bytes of memory a device has, including swap, limited by this process's control group; none for a device
/// with its own memory.
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

/// The bytes of memory an available device has: the machine's, or its card's if the driver reports it.
pub fn of_available(available: &Available, device: &Device) -> Option<u64> {
    match available.is_software() {
        true => of(&DeviceName::Flex.open().ok()?),
        false => of(device).or_else(|| of_card(device)),
    }
}

/// A card's own memory as reported by the driver: from a file for AMD, from a program for NVIDIA.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn of_card(device: &Device) -> Option<u64> {
    let address = device.identity()?.physical?.pci_address?.to_string();
    let file = Path::new("/sys/bus/pci/devices").join(&address).join("mem_info_vram_total");
    if let Ok(text) = std::fs::read_to_string(file) {
        return text.trim().parse().ok();
    }
    let mut asked = Command::new("nvidia-smi");
    asked
        .args(["--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits"])
        .stderr(Stdio::null());
    let said = asked.stdin(Stdio::null()).output().ok()?;
    of_nvidia_card(&String::from_utf8_lossy(&said.stdout), &address)
}

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
fn of_card(_: &Device) -> Option<u64> {
    None
}

/// Parses lines such as `00000000:65:00.0, 81559`, in MiB. Domains have four or eight digits.
#[cfg(any(feature = "wgpu", feature = "cuda", test))]
fn of_nvidia_card(lines: &str, address: &str) -> Option<u64> {
    let mebibytes = lines.lines().find_map(|line| {
        let (found, mebibytes) = line.split_once(',')?;
        let found = found.trim().to_lowercase();
        found.ends_with(address).then(|| mebibytes.trim().parse::<u64>().ok())?
    });
    Some(mebibytes? << 20)
}

/// Whether the device computes in main memory.
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

    #[test]
    fn a_card_is_found_by_its_address() {
        let said = "00000000:04:00.0, 24576\n00000000:65:00.0, 81559\n00000000:B1:00.0, [N/A]\n";
        assert_eq!(of_nvidia_card(said, "0000:65:00.0"), Some(81559 << 20));
        assert_eq!(of_nvidia_card(said, "0000:b1:00.0"), None);
        assert_eq!(of_nvidia_card("No devices were found\n", "0000:65:00.0"), None);
    }
}
